"""INSERT OVERWRITE: the rows of a query that ends become one commit, which hides what was there before.

A job's checkpoints would each overwrite the one before, and a batch job has none. So this process takes the
rows as Arrow batches, as ``Table.to_pandas`` does, and writes them in one transaction beside other writers
(``writers.overwriting``). Whatever ends the query ends the transaction, and nothing of it is visible.

What is overwritten follows Hudi's ``HoodieTableSink.applyOverwrite``: the whole table, or with a PARTITION
clause or ``write.partition.overwrite.mode=DYNAMIC`` the partitions that get rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.flink.declared_columns import assembled
from mainstem.flink.pipeline import Planned
from mainstem.flink.recovery import ends
from mainstem.flink.statements import named
from mainstem.writers.outcome import Outcome
from mainstem.writers.write_spec import INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

if TYPE_CHECKING:
    from pyflink.table import Table, TableEnvironment

_BATCH_ROWS = 50_000
_DYNAMIC = "DYNAMIC"


def overwrite(planned: Planned, *, some_partitions: bool) -> OverwriteResult:
    """Runs the query and commits; ``some_partitions``: the statement names a partition.

    Raises ``Unsupported`` for a query that does not end, or that updates what it gave before.
    """
    name = planned.declared.name
    if planned.changes or not ends(planned.env, planned.rows):
        raise Unsupported(
            f"INSERT OVERWRITE {name}: the query does not end, or updates rows that it gave before, and an"
            " overwrite is one commit; use the batch mode (execution.runtime-mode=BATCH) and sources that"
            " end, or INSERT INTO"
        )
    insert = planned.opened()
    target = insert.target
    dynamic = target.options.overwrite_mode == _DYNAMIC
    operation = INSERT_OVERWRITE if dynamic or some_partitions else INSERT_OVERWRITE_TABLE
    with named(planned.env, planned.rows) as view:
        sent = planned.env.sql_query(f"SELECT {', '.join(insert.expressions)} FROM {view}")
    with target.table.begin(operation) as txn:
        for batch in batches(planned.env, sent):
            txn.write(assembled(batch.columns, insert.shapes))
        outcome = txn.commit()
    return OverwriteResult(target.sink, outcome)


def batches(env: TableEnvironment, rows: Table) -> Iterator[pa.RecordBatch]:
    """The rows of a query that ends, in this process."""
    from pyflink.java_gateway import get_gateway
    from pyflink.table.serializers import ArrowSerializer

    env._before_execute()
    arrow = get_gateway().jvm.org.apache.flink.table.runtime.arrow.ArrowUtils
    found = arrow.collectAsPandasDataFrame(rows._j_table, _BATCH_ROWS)
    if found.hasNext():
        kinds = rows.get_schema().to_row_data_type()
        yield from ArrowSerializer(None, kinds, None).load_from_iterator(found)


class OverwriteResult:
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
