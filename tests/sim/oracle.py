"""What writers meant to write, and how rows merge: plain dictionaries.

The rules are Hudi's (format-core 8: log files merge among themselves in order of requested time,
whatever order they completed in, and the result with the base file), written down a second time and
without columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Where = tuple[str, str]  # partition, record key
KEY, PARTITION, ORDERING = "id", "part", "ts"
#: names of columns that writers add to the table begin so; a row of a writer that knew none has nulls
GROWN = "new_"


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
    timed: bool = False  # its deletes keep the ordering values of their rows
    spoilt: bool = False  # its writer went on with it after an error: it may be refused as such

    def rows(self) -> list[Row]:
        return [row for kind, row in self.operations if kind != "delete"]


@dataclass(frozen=True)
class Mode:
    """Merge mode of a table; ``partial`` is ``hoodie.table.partial.update.mode=IGNORE_DEFAULTS``.

    ``in_order``: a deletion with an ordering value counts behind one without (table version 10);
    ``one_by_one``: each record meets what is there, the base file's row first (an LSM tree).
    """

    name: str
    event_time: bool
    partial: bool = False
    in_order: bool = False
    one_by_one: bool = False


EVENT = Mode("event", event_time=True)
COMMIT = Mode("commit", event_time=False)
PARTIAL = Mode("partial", event_time=False, partial=True)
MODES = {mode.name: mode for mode in (EVENT, COMMIT, PARTIAL)}

@dataclass(frozen=True)
class Deleted:
    """A key that was deleted; ``ordering`` None is the default, which every later row beats."""

    ordering: int | None = None


def put_row(mode: Mode, entries: dict[Where, Any], row: Row) -> None:
    """Merge one row of a log file over what the log files before it left of its key."""
    where = (row[PARTITION], row[KEY])
    old = entries.get(where)
    if isinstance(old, Deleted):
        if not mode.event_time or old.ordering is None or row[ORDERING] >= old.ordering:
            entries[where] = dict(row)
    else:
        entries[where] = dict(row) if old is None else _winner(mode, old, row)


def put_delete(mode: Mode, entries: dict[Where, Any], where: Where, ordering: int | None) -> None:
    """Merge one deletion of a log file; without an ordering value (Java's 0) it always wins."""
    old = entries.get(where)
    if mode.event_time and ordering is not None and old is not None:
        before = old.ordering if isinstance(old, Deleted) else old[ORDERING]
        if (not mode.in_order) if before is None else before > ordering:
            return
    entries[where] = Deleted(ordering if mode.event_time else None)


def beginning(mode: Mode, base: dict[Where, Row]) -> dict[Where, Any]:
    """What is there of each key before the first record of a log file."""
    return dict(base) if mode.one_by_one else {}


def onto_base(mode: Mode, base: dict[Where, Row], entries: dict[Where, Any]) -> dict[Where, Row]:
    """Java's final merge: what the log files left of each key, over the row of the base file.

    A deletion that a later log row overtook is forgotten here: that row meets the base row. ``entries`` began
    as ``beginning`` says.
    """
    if mode.one_by_one:
        return {where: entry for where, entry in entries.items() if not isinstance(entry, Deleted)}
    found = dict(base)
    for where, entry in entries.items():
        old = base.get(where)
        if not isinstance(entry, Deleted):
            found[where] = entry if old is None else _winner(mode, old, entry)
        elif old is not None and (entry.ordering is None or entry.ordering >= old[ORDERING]):
            del found[where]
    return found


def _winner(mode: Mode, old: Row, new: Row) -> Row:
    if mode.event_time and new[ORDERING] < old[ORDERING]:
        old, new = new, old
    if not mode.partial:
        return dict(new)
    return {name: old[name] if value is None else value for name, value in new.items()}
