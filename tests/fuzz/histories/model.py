"""What a table must hold: its history of writes and compactions, replayed with ``tests.sim.oracle``.

Hudi's rules: log files merge in the order in which their instants were requested; a compaction takes in
exactly what had completed before it was planned; what completed later lies on top of it, once it is done.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.sim.oracle import KEY, ORDERING, PARTITION, Mode, Row, Where, onto_base, put_delete, put_row

LAST = "9" * 17
#: a row in the oracle's form, or a deleted key and its ordering value
Operation = tuple[Row | None, tuple[Where, Any] | None]


@dataclass
class Write:
    """A completed write.

    ``based``: keys whose rows went to base files (bulk insert). ``columns``: those that the table has by it.
    """

    requested: str
    completed: str
    operations: list[Operation]
    columns: tuple[str, ...]
    based: frozenset[Where] = frozenset()


@dataclass
class Compaction:
    """A compaction; ``completed`` None while it is planned only."""

    requested: str
    completed: str | None = None


Event = Write | Compaction


@dataclass
class Model:
    """All that happened to a table and still counts."""

    mode: Mode
    columns: tuple[str, ...]
    events: list[Event] = field(default_factory=list)

    def copy(self) -> Model:
        """The model as it is now, which later events leave alone."""
        return Model(self.mode, self.columns, copy.deepcopy(self.events))

    def done(self, until: str = LAST, begun: str = LAST) -> list[Event]:
        """Events completed at or before ``until`` and requested at or before ``begun``, as requested."""
        found = [e for e in self.events if (e.completed or LAST + "0") <= until and e.requested <= begun]
        return sorted(found, key=lambda event: event.requested)

    def planned(self) -> Compaction | None:
        """The compaction that waits for its execution."""
        return next((e for e in self.events if isinstance(e, Compaction) and e.completed is None), None)

    def columns_at(self, until: str = LAST, begun: str = LAST) -> tuple[str, ...]:
        """Names of the user columns."""
        names = dict.fromkeys(self.columns)
        for event in self.done(until, begun):
            if isinstance(event, Write):
                names.update(dict.fromkeys(event.columns))
        return tuple(names)

    def rows(self, until: str = LAST, begun: str = LAST) -> dict[Where, Row]:
        """(partition, key) -> row at that time, without columns that it lacks."""
        events = self.done(until, begun)
        writes = [e for e in events if isinstance(e, Write)]
        names = self.columns_at(until, begun)
        base: dict[Where, Row] = {}
        barrier = ""
        for time in [*(e.requested for e in events if isinstance(e, Compaction)), LAST]:
            base = self._merged(base, [w for w in writes if barrier <= w.completed < time], names)
            barrier = time
        return base

    def _merged(self, base: dict[Where, Row], writes: list[Write], names: Iterable[str]) -> dict[Where, Row]:
        bulk = [w for w in writes if w.based]
        for write in bulk:
            rows = onto_base(self.mode, {}, self._entries([write], names, lambda w, k: k in w.based))
            base = base | rows
        entries = self._entries(writes, names, lambda w, k: k not in w.based)
        return onto_base(self.mode, base, entries)

    def written(self, after: str, until: str) -> dict[Where, Any]:
        """What the writes of a range of completion times left of each key: a row, or a deletion."""
        writes = [e for e in self.done(until) if isinstance(e, Write) and e.completed > after]
        names = self.columns_at(until)
        entries = self._entries(writes, names, lambda w, k: k not in w.based)
        gone = {where: entry for where, entry in entries.items() if not isinstance(entry, dict)}
        return gone | self._merged({}, writes, names)

    def _entries(
        self, writes: Iterable[Write], names: Iterable[str], of: Callable[[Write, Where], bool]
    ) -> dict[Where, Any]:
        empty = {f".{name}": None for name in names}
        entries: dict[Where, Any] = {}
        for write in writes:
            for row, deleted in write.operations:
                if row is not None and of(write, (row[PARTITION], row[KEY])):
                    put_row(self.mode, entries, {**empty, **row})
                elif deleted is not None and of(write, deleted[0]):
                    put_delete(self.mode, entries, deleted[0], deleted[1])
        return entries


def row_of(where: Where, order: Any, values: dict[str, Any]) -> Row:
    """A row in the form of the oracle."""
    return {PARTITION: where[0], KEY: where[1], ORDERING: order, **{f".{k}": v for k, v in values.items()}}


def values_of(row: Row) -> dict[str, Any]:
    """The user columns of such a row."""
    return {name[1:]: value for name, value in row.items() if name.startswith(".")}
