"""Scenario ``columns``: writers bring new columns while others, who do not know them, write and compact.

A column that one writer has added must be shown from its commit on, whatever is committed after it: by
writers that began before, out of turn, or died in between. A row of a writer that did not know a column has
a null there.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.options.writing import SET_NULL
from tests.sim import plain_format
from tests.sim.ledger import user_columns
from tests.sim.oracle import GROWN, Intent, Row
from tests.sim.tables_world import Tables

_COLUMNS = 4


class Columns(Tables):
    """``tables`` by event time, in which every third upsert brings a column that may be new."""

    scenario = "columns"
    always_compacting = True
    given: Mapping[str, str] = {SET_NULL: "true"}

    def _ours_compact(self) -> bool:
        return True  # the other compactor's schema is that of the table's creation

    def _rows(self, rng: random.Random, writer: str, count: int) -> list[Row]:
        rows = super()._rows(rng, writer, count)
        if rng.random() < 0.35:
            name = f"{GROWN}{rng.randrange(_COLUMNS)}"
            for row in rows:
                row[name] = row["v"]
        return rows

    def _schema_of(self, rows: list[Row]) -> pa.Schema:
        grown = sorted({name for row in rows for name in row if name.startswith(GROWN)})
        return pa.schema([*self.schema, *(pa.field(name, pa.string()) for name in grown)])

    def _snapshot(self, table: Table) -> list[Row]:
        return [user_columns(row) for row in table.scan().to_arrow().to_pylist()]

    def _told_rows(self, rows: pa.Table) -> list[Row]:
        return [user_columns(row) for row in rows.to_pylist()]

    def _view(self, table: Table, moment: str) -> list[Row] | None:
        found = table.scan(as_of_completion=moment).to_arrow().to_pylist()
        return [user_columns(row) for row in found]

    def _audit(self, table: Table) -> None:
        # A commit without rows says the columns first that a later requested one would hide.
        for commit in plain_format.commits(self.disk):
            if not commit.paths and commit.requested not in self.audit.intents:
                self.audit.intents[commit.requested] = Intent("schema", commit.requested, fate="unknown")
        super()._audit(table)
