"""Tables without buckets that engines write: tasks and staged checkpoints hand their rows over, and whoever
commits them places them, beside writers that insert the same keys."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.sim.ledger import Ledger, user_columns
from tests.sim.oracle import KEY, PARTITION, Intent, Where, put_delete, put_row
from tests.sim.placed_world import PlacedAudit, Unbucketed
from tests.sim.resize_world import AnewSinks
from tests.sim.tasks_world import Tasks
from tests.sim.world import Violation


class PlacedTasks(Unbucketed, Tasks):
    """``tasks`` without buckets."""

    scenario = "placed-tasks"


class PlacedSinks(Unbucketed, AnewSinks):
    """``sinks`` without buckets."""

    scenario = "placed-sinks"

    def build(self) -> None:
        super().build()
        self.audit = CheckpointAudit(self.watch, self.mode, self.intents)

    def _in_order(self) -> None:
        """What a commit's files leave of each key is what its batches do, one row after the other."""
        for intent in self.audit.committed():
            if not intent.writer.startswith("committer"):
                continue
            found: dict[Where, Any] = {}
            ledger = self.rules.ledger
            for bulk in ledger.bulk.values():
                for row in bulk.rows if bulk.instant == intent.instant else ():
                    put_row(self.mode, found, user_columns(row))
            logs = [w for w in ledger.logs.values() if w.log.instant == intent.instant]
            for block in [block for w in sorted(logs, key=lambda w: w.log.order) for block in w.blocks]:
                for row in block.rows:
                    put_row(self.mode, found, user_columns(row))
                for gone in block.deletes:
                    put_delete(self.mode, found, (gone.partition, gone.key), gone.ordering)
            meant = self.audit.left_by(intent)
            if _rows(found) != _rows(meant):
                raise Violation("order of batches", f"{intent.instant} left {found}, expected {meant}")


def _rows(entries: dict[Where, Any]) -> dict[Where, Any]:
    return {where: entry for where, entry in entries.items() if isinstance(entry, dict)}


class CheckpointAudit(PlacedAudit):
    """Deletions come with their ordering values, among rows; new keys are merged with them."""

    def left_by(self, intent: Intent) -> dict[Where, Any]:
        """What the operations of a commit leave of each key, one after the other."""
        entries: dict[Where, Any] = {}
        for kind, row in intent.operations:
            if kind == "delete":
                put_delete(self.mode, entries, (row[PARTITION], row[KEY]), row["ts"])
            else:
                put_row(self.mode, entries, row)
        return entries

    def _same(self, intent: Intent, ledger: Ledger) -> None:
        if not intent.writer.startswith("committer"):
            super()._same(intent, ledger)
            return
        found, meant = defaultdict(list), defaultdict(list)
        for row in ledger.rows_of(intent.instant):
            found[row[PARTITION], row[KEY]].append(user_columns(row))
        for kind, row in intent.operations:
            if kind != "delete":
                meant[row[PARTITION], row[KEY]].append(row)
        left = self.left_by(intent)
        for where in found.keys() | meant.keys():
            merged = [left[where]] if isinstance(left.get(where), dict) else []
            if found[where] not in (meant[where], self._folded(meant[where]), merged):
                raise Violation(
                    "nothing lost, nothing doubled",
                    f"{intent.instant} wrote {found[where]} of {where}, meant {meant[where]} or {merged}",
                )
        gone = {(d.partition, d.key) for block in ledger.blocks_of(intent.instant) for d in block.deletes}
        deleted = {(row[PARTITION], row[KEY]) for kind, row in intent.operations if kind == "delete"}
        if gone - deleted:
            raise Violation("nothing lost, nothing doubled", f"{intent.instant} deleted {gone - deleted}")
        completion = ledger.commits[intent.instant].completion
        before = max((c.completion for c in ledger.writes() if c.completion < completion), default="")
        there = ledger.rows(self.mode, before).keys() if before else set()
        lost = {where for where in (deleted - gone) & there if where not in _rows(left)}
        if lost:
            raise Violation("nothing lost, nothing doubled", f"{intent.instant} did not delete {lost}")
