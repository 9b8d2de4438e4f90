"""Which blocks of a slice's log files count, and in which order (HoodieMergedLogRecordScanner).

Blocks arrive in the order of their files. Rollback commands take away every block of the instant
they name, wherever the command stands: its file may sort before the data (equal version, smaller
write token), and delta commits never use an instant again. A block of a log compaction replaces the
blocks of the instants it lists, at the place of the latest of them; if none of them is there, it counts
for nothing: they went into the base file below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BlockNote:
    """What ordering needs to know of a block; ``block`` is carried along untouched."""

    instant: str
    block: Any
    rollback_of: str | None = None
    replaces: frozenset[str] = field(default_factory=frozenset)


def surviving(notes: Iterable[BlockNote], *, until: str | None = None) -> list[BlockNote]:
    """Blocks to replay, oldest first. ``until``: newest block instant of the query, inclusive."""
    notes = [n for n in notes if until is None or n.instant <= until]
    cancelled = {n.rollback_of for n in notes if n.rollback_of is not None}
    live = _after_rollback(notes, cancelled)
    return _resolve_compactions(live)


def _after_rollback(notes: Sequence[BlockNote], cancelled: set[str]) -> list[BlockNote]:
    """Blocks of a log compaction behind the command are valid: it is retried under its instant."""
    last_command = {n.rollback_of: at for at, n in enumerate(notes) if n.rollback_of is not None}
    live = []
    for at, note in enumerate(notes):
        if note.rollback_of is not None:
            continue
        if note.instant in cancelled and not (note.replaces and at > last_command[note.instant]):
            continue
        live.append(note)
    return live


def _resolve_compactions(notes: list[BlockNote]) -> list[BlockNote]:
    if not any(n.replaces for n in notes):
        return notes
    outermost: dict[str, str] = {}
    for note in notes:
        for instant in note.replaces:
            outermost[instant] = note.instant
    place: dict[str, int] = {}
    for at, note in enumerate(notes):
        if not note.replaces:
            for owner in _owners(note.instant, outermost):
                place[owner] = at
    kept = []
    for at, note in enumerate(notes):
        if note.instant in outermost or (note.replaces and note.instant not in place):
            continue  # its content is in a compacted block, or in the base file
        kept.append((place[note.instant] if note.replaces else at, note))
    return [note for _, note in sorted(kept, key=lambda pair: pair[0])]


def _owners(instant: str, outermost: dict[str, str]) -> list[str]:
    """Log compactions that contain the blocks of ``instant``, directly or nested."""
    owners: list[str] = []
    while instant in outermost and outermost[instant] not in owners:
        instant = outermost[instant]
        owners.append(instant)
    return owners
