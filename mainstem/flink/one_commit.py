"""A statement whose rows become one commit: INSERT OVERWRITE, UPDATE, DELETE.

This process takes the rows of the query, which ends, as Arrow batches, as ``Table.to_pandas`` does, and
writes them in one transaction. Whatever ends the query ends the transaction, and nothing of it is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.flink.declared_columns import assembled
from mainstem.flink.pipeline import Insert, Planned
from mainstem.flink.statements import named
from mainstem.writers.outcome import Outcome

if TYPE_CHECKING:
    from pyflink.table import Table, TableEnvironment

_BATCH_ROWS = 50_000


def in_one_commit(
    planned: Planned, insert: Insert, operation: str, columns: Sequence[str] | None = None
) -> CommitResult:
    """Runs the query in this process and commits its rows, of them these ``columns`` (None: all)."""
    with named(planned.env, planned.rows) as view:
        sent = planned.env.sql_query(f"SELECT {', '.join(insert.expressions)} FROM {view}")
    with insert.target.table.begin(operation) as txn:
        for batch in _batches(planned.env, sent):
            rows = assembled(batch.columns, insert.shapes)
            txn.write(rows if columns is None else rows.select(columns))
        outcome = txn.commit()
    return CommitResult(insert.target.sink, outcome)


def _batches(env: TableEnvironment, rows: Table) -> Iterator[pa.RecordBatch]:
    from pyflink.java_gateway import get_gateway
    from pyflink.table.serializers import ArrowSerializer

    env._before_execute()
    arrow = get_gateway().jvm.org.apache.flink.table.runtime.arrow.ArrowUtils
    found = arrow.collectAsPandasDataFrame(rows._j_table, _BATCH_ROWS)
    if found.hasNext():
        kinds = rows.get_schema().to_row_data_type()
        yield from ArrowSerializer(None, kinds, None).load_from_iterator(found)


class CommitResult:
    """A committed overwrite, update or delete, with what PyFlink's ``TableResult`` of an INSERT has."""

    def __init__(self, sink: str, outcome: Outcome) -> None:
        self.outcomes = [outcome]
        self._sink = sink

    @property
    def error(self) -> None:
        """None: an error was raised by the statement."""

    def get_job_client(self) -> None:
        """None: the job has ended."""

    def wait(self, timeout_ms: int | None = None) -> None:
        """Returns at once."""

    def print(self) -> None:
        """Prints the sink with -1 rows, as Flink does: rows are not counted."""
        print(f"{self._sink}: -1")
