"""INSERT OVERWRITE: the rows of a query that ends become one commit, which hides what was there before.

A job's checkpoints would each overwrite the one before, and a batch job has none. So this process takes the
rows (``one_commit``) and writes them beside other writers (``writers.overwriting``).

What is overwritten follows Hudi's ``HoodieTableSink.applyOverwrite``: the whole table, or with a PARTITION
clause or ``write.partition.overwrite.mode=DYNAMIC`` the partitions that get rows.
"""

from __future__ import annotations

from mainstem.errors import Unsupported
from mainstem.flink.one_commit import CommitResult, in_one_commit
from mainstem.flink.pipeline import Planned
from mainstem.flink.recovery import ends
from mainstem.writers.write_spec import INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

_DYNAMIC = "DYNAMIC"


def overwrite(planned: Planned, *, some_partitions: bool) -> CommitResult:
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
    dynamic = insert.target.options.overwrite_mode == _DYNAMIC
    operation = INSERT_OVERWRITE if dynamic or some_partitions else INSERT_OVERWRITE_TABLE
    return in_one_commit(planned, insert, operation)
