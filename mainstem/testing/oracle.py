"""What writers meant to write, and how rows merge: plain dictionaries.

The rules are Hudi's (format-core 8: log files merge in order of requested time, whatever order they
completed in), written down a second time and without columns.
"""

from __future__ import annotations

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

@dataclass(frozen=True)
class _Deleted:
    """A key that was deleted; ``ordering`` None is the default, which every later row beats."""

    ordering: int | None = None


def put_row(mode: Mode, state: dict[tuple[str, str], Any], row: Row) -> None:
    """Merge one row into (partition, key) -> row or deletion."""
    where = (row[PARTITION], row[KEY])
    old = state.get(where)
    if isinstance(old, _Deleted):
        if not mode.event_time or old.ordering is None or row[ORDERING] >= old.ordering:
            state[where] = dict(row)
    else:
        state[where] = dict(row) if old is None else _winner(mode, old, row)


def put_delete(
    mode: Mode, state: dict[tuple[str, str], Any], where: tuple[str, str], ordering: int | None
) -> None:
    """Merge one deletion; without an ordering value (Java's 0) it always wins."""
    old = state.get(where)
    if mode.event_time and ordering is not None and old is not None:
        before = old.ordering if isinstance(old, _Deleted) else old[ORDERING]
        if before is not None and before > ordering:
            return
    state[where] = _Deleted(ordering if mode.event_time else None)


def shown(state: dict[tuple[str, str], Any]) -> dict[tuple[str, str], Row]:
    """What a reader sees of it."""
    return {where: row for where, row in state.items() if not isinstance(row, _Deleted)}


def _winner(mode: Mode, old: Row, new: Row) -> Row:
    if mode.event_time and new[ORDERING] < old[ORDERING]:
        old, new = new, old
    if not mode.partial:
        return dict(new)
    return {name: old[name] if value is None else value for name, value in new.items()}
