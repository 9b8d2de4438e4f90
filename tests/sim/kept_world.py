"""Scenario ``kept``: rows that say that they are deletes, compactions that keep them, and late rows.

Ordering values are few, so that late rows and equal values meet the deletes of every compaction, and many
writes cross them. The ledger tells the rows that must come out by Hudi's rules, with the deletes that the
log files of compactions hold; ``KeptRules`` says which these must be.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.sim import plain_format as plain
from tests.sim.ledger import Compacted, Group, group_of
from tests.sim.oracle import Intent, Row, Where
from tests.sim.plain_format import TimelineName
from tests.sim.service_rules import ServiceRules
from tests.sim.tables_world import Tables
from tests.sim.world import Violation

MARK = "gone"
RULE = "kept deletes"


def marked(row: Row) -> bool:
    """Whether a row says that it is a delete."""
    return row["a"] == MARK


class KeptRules(ServiceRules):
    """What the log files of compactions hold.

    Only what the logs of the plan deleted last; nothing that a write which crosses the compaction could be
    wronged by; and everything else, unless a write that was requested later was in flight.
    """

    #: whether the table keeps deletes
    keeps = True
    #: compaction -> writes requested before it that were in flight at its plan or later
    in_flight: dict[str, set[str]]
    #: compaction -> file group -> key -> ordering value and place
    found: dict[str, dict[Group, dict[Where, tuple[int, str]]]]

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.ledger.marked = marked
        self.in_flight, self.found = {}, {}

    def requested(self, name: TimelineName) -> None:
        super().requested(name)
        if name.action == "compaction":
            waiting = plain.pending(self.disk).items()
            before = {t for t, action in waiting if action == "deltacommit" and t < name.requested}
            self.in_flight[name.requested] = before
        elif name.action == "deltacommit":
            for time, writes in self.in_flight.items():
                if name.requested < time:
                    writes.add(name.requested)

    def completed(self, name: TimelineName, path: str) -> None:
        super().completed(name, path)
        compacted = self.ledger.compactions.get(name.requested)
        if compacted is not None and name.action == "commit":
            self._kept(compacted)
        elif name.action == "deltacommit":
            self._crossed(name.requested)

    def _kept(self, compacted: Compacted) -> None:
        ledger, time = self.ledger, compacted.time
        for group, (_, logs) in compacted.operations.items():
            # A log compaction repeats what other logs of the plan hold.
            taken = [w for w in map(ledger.logs.__getitem__, logs) if not self._repeats(w.log.instant)]
            taken.sort(key=lambda w: w.log.order)
            last = ledger.last_deletes(self.mode, taken)
            path = compacted.kept.get(group)
            blocks = [] if path is None else ledger.logs[path].blocks
            kept = {(d.partition, d.key): d.ordering for block in blocks for d in block.deletes}
            if path is not None and (later := [b.instant for b in ledger.bulk_of(group) if b.instant > time]):
                raise Violation(RULE, f"{path} lies on top of the overwrite {later}")
            if path is not None and not self.keeps:
                raise Violation(RULE, f"{path} keeps deletes, which the table does not")
            if path is not None and (not kept or any(block.rows for block in blocks)):
                raise Violation(RULE, f"{path} holds no deletes, or rows")
            self.found.setdefault(time, {})[group] = {w: last[w] for w in kept if w in last}
            for where, ordering in kept.items():
                if where not in last or last[where][0] != ordering:
                    raise Violation(RULE, f"{path} keeps {where}@{ordering}; deleted last: {last.get(where)}")
            for where, (ordering, place) in last.items():
                behind = {t for t in self.in_flight.get(time, ()) if t > place}
                if where not in kept and not behind and not self._may_forget(time):
                    raise Violation(RULE, f"{time} forgets {where}@{ordering} of {place}")
            for write in [w for w in ledger.logs_of(group) if w.log.instant < time < w.completion]:
                if not self._repeats(write.log.instant):
                    self._not_wronged(time, group, write.log.path)

    def _repeats(self, instant: str) -> bool:
        """Whether this is a log compaction."""
        return self.ledger.commits[instant].is_service and instant not in self.ledger.compactions

    def _may_forget(self, time: str) -> bool:
        """Whether the compaction need not keep what nothing crosses."""
        return False

    def _crossed(self, instant: str) -> None:
        """A write completed: what was kept by a compaction that it crosses must not lie behind it."""
        if self._repeats(instant):
            return
        for path in self.ledger.commits[instant].paths:
            if path in self.ledger.bulk:
                on_top = [c for c in self.ledger.compactions_of(group_of(path)) if group_of(path) in c.kept]
                if any(c.time < instant < (c.completion or "") for c in on_top):
                    raise Violation(RULE, f"the overwrite {instant} completed below {on_top}")
            for time, groups in self.found.items():
                for where, (_, place) in groups.get(group_of(path), {}).items():
                    if place < instant < time and self.ledger.stands(time):
                        raise Violation(RULE, f"{time} kept {where} of {place} before {instant} completed")

    def _not_wronged(self, time: str, group: Group, path: str) -> None:
        write = self.ledger.logs[path]
        kept = self.found[time][group]
        for block in write.blocks:
            for row in filter(lambda row: not marked(row), block.rows):
                ordering, place = kept.get((row["part"], row["id"]), (None, ""))
                if ordering == row["ts"] and place < write.log.instant:
                    raise Violation(RULE, f"{time} keeps a delete of {place}, behind which {path} has {row}")
            for delete in block.deletes:
                if delete.ordering is None and (delete.partition, delete.key) in kept:
                    raise Violation(RULE, f"{time} keeps a delete of {delete.key}, which {path} deletes")


class KeptDeletes(Tables):
    """``tables`` by event time, with marked rows, few ordering values and many compactions."""

    scenario = "kept"
    always_compacting = True
    late_rows = True
    event_time_only = True
    keys = 3
    busy_calls = 4000

    def more_properties(self) -> dict[str, str]:
        prefix = "hoodie.record.merge.property.hoodie.payload.delete"
        return {f"{prefix}.field": "a", f"{prefix}.marker": MARK}

    def _rules(self) -> ServiceRules:
        return KeptRules(self.disk, self.base, self.mode, self.retention)

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] += 2

    def _ordering(self, rng: random.Random) -> int:
        return rng.randrange(5)

    def _rows(self, rng: random.Random, writer: str, count: int) -> list[Row]:
        rows = super()._rows(rng, writer, count)
        return [{**row, "a": MARK} if rng.random() < 0.4 else row for row in rows]

    def appended(self, intent: Intent, operations: list[tuple[str, Row]], write: Callable[[], Any]) -> None:
        """Marked rows are written as deletes with an ordering value."""
        told = [("delete" if "a" in row and marked(row) else kind, row) for kind, row in operations]
        super().appended(intent, told, write)

    def _tracer(self, intent: Intent, rng: random.Random) -> Row:
        row = super()._tracer(intent, rng)
        return {**row, "a": row["v"]}
