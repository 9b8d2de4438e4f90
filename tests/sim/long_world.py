"""Scenario ``long``: ``services`` for longer, on four partitions of four buckets, with more writers and
streams, and with services that plan and services that execute, in processes of their own.

Elsewhere one process mostly executes what it has just planned, so plans are pending for a moment. Here two
planners of compactions, one of log compactions and one of cleans only plan, and whoever executes comes
when it likes: several plans of compactions of other file groups are pending while cleans, archivers,
savepoints, log compactions and rounds of all services go on, and while writers complete that began before any
of them.
"""

from __future__ import annotations

from mainstem.api.table import Table
from mainstem.options.services import BESIDE_WRITERS
from tests.sim.bulk_world import bulk_insert
from tests.sim.services_world import Services
from tests.sim.world import Process


class Long(Services):
    """``services`` with more of everything."""

    scenario = "long"
    busy_calls = 16_000
    settle_calls = 160_000
    buckets = 4
    keys = 24

    def _create(self) -> None:
        self.partitions = ["x", "y", "z", "x y"]
        super()._create()

    def more_properties(self) -> dict[str, str]:
        return {**super().more_properties(), BESIDE_WRITERS: "true"}

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] += 4
        for name in ("w7", "w9"):
            self.left[name] = 6
            self.start(name, self._writer)
        self.compactions += 6
        for name in ("planner", "planner'"):
            self.start(name, self._chore(self._plans), counted=False)
        self.start("executor", self._chore(self._executes), counted=False)
        self.start("saver'", self._chore(self._save), counted=False)
        self.start("rounds", self._chore(self._round), counted=False)

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        """Two of the writers insert in bulk now and then, into groups that others are at."""
        if process.name in ("w7", "w9") and kind == "upsert" and self.random.random() < 0.5:
            bulk_insert(self, process, table)
        else:
            super()._transaction(process, table, kind)

    def _plans(self, process: Process, table: Table) -> None:
        """Plan something, and leave it to others."""
        kind = self.random.randrange(4)
        if kind < 2:
            table.schedule_compaction()
        elif kind == 2:
            table.schedule_log_compaction(if_due=self.random.random() < 0.5)
        else:
            table.schedule_clean()

    def _executes(self, process: Process, table: Table) -> None:
        """Execute whatever is planned, some time after it was."""
        if self.random.random() < 0.7:
            self.world.counts.compactions += len(table.run_compaction())
        else:
            self.world.counts.log_compactions += len(table.run_log_compaction())

    def _round(self, process: Process, table: Table) -> None:
        """A round of all services, each if it is due."""
        table.run_services()
