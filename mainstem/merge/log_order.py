"""Selects the valid blocks of a slice's log files and orders them (HoodieMergedLogRecordScanner).

Blocks arrive in file order. A rollback command cancels every block of the instant it names, wherever the
command is: its file may sort before the data (same version, smaller write token), and delta commits never
reuse an instant. A block of a log compaction replaces the blocks of the instants that it lists, at the
position of the latest of them. If none of them is there, it is ignored: they went into the base file below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BlockNote:
    """What ordering needs to know about a block; ``block`` is passed through unchanged."""

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
    """Drops rolled back blocks. Log compaction blocks after the command stay: retries reuse the instant."""
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
            continue  # its content is in another log compaction's block, or in the base file
        kept.append((place[note.instant] if note.replaces else at, note))
    return [note for _, note in sorted(kept, key=lambda pair: pair[0])]


def _owners(instant: str, outermost: dict[str, str]) -> list[str]:
    """Log compactions that contain the blocks of ``instant``, directly or nested."""
    owners: list[str] = []
    while instant in outermost and outermost[instant] not in owners:
        instant = outermost[instant]
        owners.append(instant)
    return owners
