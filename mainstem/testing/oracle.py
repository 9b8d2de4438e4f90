"""What a table must contain, from what the writers were told to write: plain dictionaries.

The rules are Hudi's (format-core 8: log files merge in order of requested time, whatever order they
completed in), written down a second time and without columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
KEY, PARTITION, ORDERING = "id", "part", "ts"


@dataclass
class Intent:
    """One transaction as its writer meant it. ``fate`` is what the writer was told.

    ``operations`` holds ("upsert" | "update", row) and ("delete", row with key and partition).
    """

    writer: str
    instant: str
    operations: list[tuple[str, Row]] = field(default_factory=list)
    fate: str = "open"  # open, committed, failed, unknown
    stream: tuple[str, int] | None = None

    def rows(self) -> list[Row]:
        return [row for kind, row in self.operations if kind != "delete"]


@dataclass(frozen=True)
class Mode:
    """Merge mode of a table; ``partial`` is ``hoodie.table.partial.update.mode=IGNORE_DEFAULTS``."""

    name: str
    event_time: bool
    partial: bool = False


EVENT = Mode("event", event_time=True)
COMMIT = Mode("commit", event_time=False)
PARTIAL = Mode("partial", event_time=False, partial=True)
MODES = {mode.name: mode for mode in (EVENT, COMMIT, PARTIAL)}

_DELETED = object()


def merged(mode: Mode, intents: Iterable[Intent]) -> dict[tuple[str, str], Row]:
    """(partition, key) -> row after merging these committed transactions."""
    state: dict[tuple[str, str], Any] = {}
    for intent in sorted(intents, key=lambda i: i.instant):
        for kind, row in intent.operations:
            where = (row[PARTITION], row[KEY])
            old = state.get(where)
            if kind == "delete":
                state[where] = _DELETED  # ordering 0 as Java's delete operation: always wins
            elif old is None or old is _DELETED:
                state[where] = dict(row)
            else:
                state[where] = _winner(mode, old, row)
    return {where: row for where, row in state.items() if row is not _DELETED}


def _winner(mode: Mode, old: Row, new: Row) -> Row:
    if mode.event_time and new[ORDERING] < old[ORDERING]:
        old, new = new, old
    if not mode.partial:
        return dict(new)
    return {name: old[name] if value is None else value for name, value in new.items()}
