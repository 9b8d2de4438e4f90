"""INSERT OVERWRITE, TRUNCATE TABLE, and INSERT INTO by ``bulk_insert``: one commit each.

The rows of a query that ends become one commit, which an overwrite makes hide what was there before.

A job's checkpoints would each overwrite the one before, and a batch job has none. So this process takes the
rows (``one_commit``) and writes them beside other writers (``writers.overwriting``).

What is overwritten follows Hudi's ``HoodieTableSink.applyOverwrite``: the whole table, or with a PARTITION
clause or ``write.partition.overwrite.mode=DYNAMIC`` the partitions that get rows.
"""

from __future__ import annotations

from mainstem.api.given_options import for_opening
from mainstem.api.table import open_table
from mainstem.errors import Unsupported
from mainstem.flink.declared_table import Declared
from mainstem.flink.one_commit import CommitResult, in_one_commit
from mainstem.flink.options import WRITE_OPERATION
from mainstem.flink.pipeline import Planned
from mainstem.flink.recovery import ends
from mainstem.writers.write_spec import BULK_INSERT, INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

_DYNAMIC = "DYNAMIC"


def overwrite(planned: Planned, *, some_partitions: bool) -> CommitResult:
    """Runs the query and commits; ``some_partitions``: the statement names a partition.

    Raises ``Unsupported`` for a query that does not end, or that updates what it gave before.
    """
    _check_ends(planned, f"INSERT OVERWRITE {planned.declared.name}", "INSERT INTO")
    insert = planned.opened()
    dynamic = insert.target.options.overwrite_mode == _DYNAMIC
    operation = INSERT_OVERWRITE if dynamic or some_partitions else INSERT_OVERWRITE_TABLE
    return in_one_commit(planned, insert, operation)


def bulk_insert(planned: Planned) -> CommitResult:
    """Runs the query and commits its rows as base files where buckets have none. Raises as ``overwrite``, and
    ``RolledBack`` if another writer came in between."""
    what = f"INSERT INTO {planned.declared.name} by {WRITE_OPERATION}=bulk_insert"
    _check_ends(planned, what, f"'{WRITE_OPERATION}' = 'upsert'")
    return in_one_commit(planned, planned.opened(), BULK_INSERT)


def truncate(declared: Declared) -> CommitResult:
    """Hides all rows of a table. Raises ``Invalid`` where there is none."""
    options = declared.options
    table = open_table(options.location, properties=for_opening(options.passed))
    return CommitResult(options.client_id or declared.name, table.truncate())


def _check_ends(planned: Planned, what: str, instead: str) -> None:
    if planned.changes or not ends(planned.env, planned.rows):
        raise Unsupported(
            f"{what}: the query does not end, or updates rows that it gave before, and it is one commit; use"
            f" the batch mode (execution.runtime-mode=BATCH) and sources that end, or {instead}"
        )
