"""Overwrites of tables without buckets among writers that insert, update and delete the same keys.

The ledger hides what a file group had when an overwrite of its partition was requested. A key has one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.overwrite_world import Overwriting
from tests.sim.placed_world import Unbucketed

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from tests.sim.world import Process


class PlacedOverwrites(Unbucketed, Overwriting):
    """``overwrites`` without buckets."""

    scenario = "placed-overwrites"
    keys = 8
    late_rows = True

    def build(self) -> None:
        super().build()
        self.rules.ledger.placed = True

    def _overwrite(self, process: Process, table: Table) -> None:
        operation = self.random.choice(["insert_overwrite", "insert_overwrite", "insert_overwrite_table"])
        txn, intent = self._begin(table, process.name, operation)
        self._follow(txn, intent)
        with txn:
            rows = [self._tracer(intent, self.random), *self._rows(self.random, process.name, 4)]
            once = {(row["part"], row["id"]): row for row in rows}
            self._write(txn, intent, "upsert", list(once.values()))
            self.pause_between(process, 300)
            self._commit(txn, intent)


