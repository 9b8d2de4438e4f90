"""What SQL's statements write: rows, and deletes of rows that were read, which keep their ordering values.

No column marks a row as a delete. ``statements`` has buckets, log compactions, overwrites, and compactions
that keep deletes in some of the seeds; the ledger and ``KeptRules`` tell what must come out. Without buckets
nothing is kept, and a key that comes back gets a file group anew.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.writers.write_spec import DELETE_MARK, DELETE_ROWS, MERGE_ROWS
from tests.sim.kept_world import KeptRules
from tests.sim.log_compactor import LogCompactions
from tests.sim.oracle import Intent, Row
from tests.sim.overwrite_world import Overwriting
from tests.sim.placed_world import PlacedServices
from tests.sim.service_rules import ServiceRules
from tests.sim.tables_world import Tables

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from tests.sim.world import Process


class _Statements(Tables):
    """Half of the plain transactions are a MERGE or a DELETE; few ordering values, by event time."""

    event_time_only = True
    always_compacting = True
    late_rows = True
    keys = 4
    busy_calls = 5000

    def _ordering(self, rng: random.Random) -> int:
        return rng.randrange(6)

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        if kind == "upsert" and self.random.random() < 0.7:
            self._statement(process, table)
        else:
            super()._transaction(process, table, kind)

    def _statement(self, process: Process, table: Table) -> None:
        """A key is in a statement once."""
        rng = self.random
        operation = rng.choice([MERGE_ROWS, MERGE_ROWS, DELETE_ROWS])
        txn, intent = self._begin(table, process.name, operation)
        intent.timed = True
        with txn:
            drawn = self._rows(rng, intent.writer, rng.choice([1, 2, 4]))
            rows: list[Row] = list({(row["part"], row["id"]): row for row in drawn}.values())
            gone = [operation == DELETE_ROWS or rng.random() < 0.5 for _ in rows]
            if operation == MERGE_ROWS:
                rows.append(self._tracer(intent, rng))
                gone.append(False)
            batch = pa.Table.from_pylist(rows, schema=self.schema)
            if operation == MERGE_ROWS:
                batch = batch.append_column(DELETE_MARK, pa.array(gone))
            else:
                batch = batch.select(["id", "part", "ts"])
            told = [("delete" if deleted else "upsert", row) for row, deleted in zip(rows, gone, strict=True)]
            self.appended(intent, told, lambda: txn.write(batch))
            self.pause_between(process, 50)
            self._commit(txn, intent)


class StatementRules(KeptRules):
    """``KeptRules`` of a table that keeps deletes or does not, beside overwrites."""

    #: instants of overwrites, taken back or not, below whose base files nothing is kept
    overwrites: set[str]

    def _may_forget(self, time: str) -> bool:
        return not self.keeps or any(instant > time for instant in self.overwrites)


class Statements(_Statements, Overwriting, LogCompactions):
    """MERGE and DELETE beside overwrites, log compactions and compactions, on a table with buckets."""

    scenario = "statements"

    def build(self) -> None:
        super().build()
        self.compactions = 4
        assert isinstance(self.rules, StatementRules)
        self.rules.overwrites = self.overwrites

    def _rows_of_overwrite(self, process: Process, intent: Intent) -> list[Row]:
        return self._rows_of_common_keys(process, intent)

    @property
    def keeps(self) -> bool:
        """Whether compactions keep deletes."""
        return random.Random(f"{self.seed}/keeps").random() < 0.6

    def more_properties(self) -> dict[str, str]:
        return {"hoodie.mainstem.keep.tombstones": "24" if self.keeps else "0"}

    def _rules(self) -> ServiceRules:
        rules = StatementRules(self.disk, self.base, self.mode, self.retention)
        rules.keeps = self.keeps
        return rules


class PlacedStatements(_Statements, PlacedServices):
    """MERGE and DELETE on a table without buckets, with every service."""

    scenario = "placed-statements"
    keys = 8
