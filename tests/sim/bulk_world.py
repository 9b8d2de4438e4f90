"""Bulk inserts among the other writers: base files that appear while logs are being written.

Their rows have keys of their own. Whether a base file's row or a log row of an overlapping writer wins
is the merge's business (log rows do); that no row vanishes behind a base file is this scenario's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.tables_world import Tables

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from tests.sim.world import Process


class BulkInserts(Tables):
    """``tables`` in which every other plain transaction is a bulk insert."""

    scenario = "bulk"

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        if kind in ("delete", "abort") or self.random.random() < 0.5:
            super()._transaction(process, table, kind)
            return
        bulk_insert(self, process, table)


def bulk_insert(world: Tables, process: Process, table: Table) -> None:
    """One transaction of base files, with keys of its own."""
    txn, intent = world._begin(table, process.name, "bulk_insert")
    with txn:
        for batch in range(world.random.choice([1, 2])):
            rows = [world._tracer(intent, world.random) for _ in range(3)]
            for number, row in enumerate(rows):
                if batch or number:
                    row["id"] = f"x{intent.instant}/{batch}/{number}"
            world._write(txn, intent, "upsert", rows)
            world.pause_between(process, 300)
        world._commit(txn, intent)
