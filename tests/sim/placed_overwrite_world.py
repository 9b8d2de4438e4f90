"""Overwrites of tables without buckets among writers that insert, update and delete the same keys.

The ledger hides what a file group had when an overwrite of its partition was requested. A key has one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.writers.write_spec import OVERWRITES
from tests.sim.overwrite_world import Overwriting
from tests.sim.placed_world import Unbucketed

if TYPE_CHECKING:
    from tests.sim.oracle import Intent, Row
    from tests.sim.world import Process


class PlacedOverwrites(Unbucketed, Overwriting):
    """``overwrites`` without buckets."""

    scenario = "placed-overwrites"
    keys = 8
    late_rows = True

    def build(self) -> None:
        super().build()
        self.rules.ledger.placed = True

    def follow(self, txn: Any, intent: Intent) -> None:
        """As any transaction; an overwrite may be made again, too."""
        super().follow(txn, intent)
        if txn.instant and txn.task_spec().operation in OVERWRITES:
            Overwriting._follow(self, txn, intent)

    def _follow(self, txn: Any, intent: Intent) -> None:
        if intent.instant not in self.overwrites:
            self.follow(txn, intent)

    def _rows_of_overwrite(self, process: Process, intent: Intent) -> list[Row]:
        return self._rows_of_common_keys(process, intent)


