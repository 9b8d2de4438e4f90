"""Tables without buckets whose keys move: everybody writes the same keys with whatever partition.

Every key must have one row in the whole table, wherever its writers put it, and each commit must leave what
Hudi's merge leaves if the commits came one after another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.checkers import Audit
from tests.sim.indexed_world import Indexed
from tests.sim.ledger import Ledger, user_columns
from tests.sim.oracle import KEY, ORDERING, PARTITION, Intent, Row, Where, put_delete, put_row
from tests.sim.placed_world import Unbucketed
from tests.sim.services_world import Services
from tests.sim.world import Violation

if TYPE_CHECKING:
    from mainstem.api.table import Table


class _Moving(Unbucketed):
    index = "GLOBAL_SIMPLE"
    late_rows = True  # a move is a delete, which the compactor that works as Java's does not know
    keys = 8
    modes = ("commit", "event")  # where rows are merged by columns, moves are refused
    folders = (["x", "y"], ["x", "y", "z"])

    def build(self) -> None:
        super().build()
        self.audit = MovedAudit(self.watch, self.mode, self.intents)


class Moved(_Moving):
    """``tables`` whose keys move."""

    scenario = "moved"


class MovedServices(_Moving, Services):
    """``services`` on a table whose keys move."""

    scenario = "moved-services"


class MovedIndexed(_Moving, Indexed):
    """``indexed`` under a record index of the table, which must follow."""

    scenario = "moved-indexed"
    index = "GLOBAL_RECORD_LEVEL_INDEX"

    def more_properties(self) -> dict[str, str]:
        return {**super().more_properties(), "hoodie.record.index.update.partition.path": "true"}

    def _create(self) -> None:
        super()._create()
        self._builder().create_index("record_index")

    def _builder(self) -> Table:
        return self.open(self.world.process("builder"))


class MovedAudit(Audit):
    """One row or delete of each key, where the state before the commit asks for it."""

    def _same(self, intent: Intent, ledger: Ledger) -> None:
        instant = intent.instant
        rows = ledger.rows_of(instant)
        found = {row[KEY]: user_columns(row) for row in rows}
        if len(found) < len(rows):
            raise Violation("nothing doubled", f"{instant} wrote a key twice: {rows}")
        gone = {d.key: d.partition for block in ledger.blocks_of(instant) for d in block.deletes}
        completion = ledger.commits[instant].completion
        earlier = max((c.completion for c in ledger.writes() if c.completion < completion), default="")
        before = self._by_key(ledger, earlier, instant) if earlier else {}
        after = self._by_key(ledger, completion, instant)
        meant = self._meant(intent)
        if unknown := (found.keys() | gone.keys()) - meant.keys():
            raise Violation("nothing doubled", f"{instant} wrote {sorted(unknown)}, which it did not mean")
        for key, row in meant.items():
            told = f"{instant}: {key} is meant to be {row}; found {found.get(key)}, before {before.get(key)},"
            told += f" deleted in {gone.get(key)}, after {after.get(key)}"
            if not self._right(row, found.get(key), gone.get(key), before.get(key), after.get(key)):
                raise Violation("nothing lost, nothing doubled", told)

    def _right(
        self, row: Row | None, found: Row | None, gone: str | None, before: Row | None, after: Row | None
    ) -> bool:
        if row is None:
            return found is None and (before is None or gone == before[PARTITION])
        away = before is not None and before[PARTITION] != row[PARTITION]
        loses = self.mode.event_time and before is not None and before[ORDERING] > row[ORDERING]
        if away and (loses or found is None):
            return loses and found is None and gone is None and after == before
        if found != row or after is None or after[PARTITION] != row[PARTITION]:
            return False
        if away:
            assert before is not None
            return gone == before[PARTITION] and after == row
        return gone is None and (not self.mode.event_time or after[ORDERING] >= row[ORDERING])

    def _by_key(self, ledger: Ledger, until: str, instant: str) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for (_, key), row in ledger.rows(self.mode, until).items():
            if key in found:
                raise Violation("nothing doubled", f"beside {instant}: {found[key]} and {row}")
            found[key] = row
        return found

    def _meant(self, intent: Intent) -> dict[str, Row | None]:
        """The row that counts of each key, whatever its partition; None: a delete."""
        entries: dict[Where, Any] = {}
        for kind, row in intent.operations:
            where = ("", row[KEY])
            if kind == "delete":
                put_delete(self.mode, entries, where, None)
                continue
            put_row(self.mode, entries, {**row, PARTITION: "", "at": row[PARTITION]})
        found: dict[str, Row | None] = {}
        for (_, key), entry in entries.items():
            whole = dict(entry) if isinstance(entry, dict) else None
            if whole is not None:
                whole[PARTITION] = whole.pop("at")
            found[key] = whole
        return found
