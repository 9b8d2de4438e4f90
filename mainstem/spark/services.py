"""``run_services``: runs table services in a Spark job, so that a cluster can compact a table of any size.

The driver plans, claims and completes; each file group of a compaction is one task. A task writes one base
file under a name that the plan fixes, so retried, speculative and abandoned attempts are harmless.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid
from mainstem.indexing.creating import tend
from mainstem.services import compaction
from mainstem.services.compaction import Compaction, GroupTask
from mainstem.services.progress import Progress, silent
from mainstem.services.runner import Round, ServiceRun, warn_of_failures
from mainstem.services.service_switches import COMPACTION
from mainstem.spark.in_tasks import driver_context, in_tasks, is_connect, on_table
from mainstem.spark.session_options import location_in
from mainstem.spark.worker_repairs import ensure_python
from mainstem.timeline.commit_metadata import CompactionStat
from mainstem.vectors.index import lifecycle
from mainstem.writers.context import WriterContext

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def run_services(
    spark: SparkSession,
    path: str,
    only: str | Sequence[str] | None = None,
    properties: Mapping[str, object] | None = None,
    *,
    if_due: bool = True,
    progress: Progress | None = None,
) -> list[ServiceRun]:
    """One round of table services (``Table.run_services``); compactions run as Spark tasks.

    ``properties`` are those of ``open_table``. The other services run on the driver. On Spark Connect the
    whole round is one task on the server, and ``progress`` is not called. Raises ``Invalid`` or
    ``Unsupported`` for wrong arguments and tables. A failed service has ``error`` set in its
    ``ServiceRun``, and a warning is issued.
    """
    if is_connect(spark):
        runs = on_table(spark, location_in(spark, path), properties, "run_services", only, if_due=if_due)
        warn_of_failures(runs, path)
        return runs
    context = driver_context(spark, "run_services")
    ensure_python(spark)
    table = open_table(location_in(spark, path), properties)

    def compact(ctx: WriterContext, time: str, progress: Progress) -> Compaction | None:
        return _compact(context, ctx, time, progress)

    plan = Round.of(
        only, if_due=if_due, progress=progress or silent, execute={COMPACTION: compact},
        rebuild=tend,
        vectors=lifecycle.tend,
    )  # fmt: skip
    runs = plan.run(table.writer_context())
    warn_of_failures(runs, table.path)
    return runs


def _compact(
    context: SparkContext, ctx: WriterContext, time: str, progress: Progress
) -> Compaction | None:
    with compaction.executing(ctx, time) as execution:
        if execution is None:
            return None
        total = len(execution.tasks)
        stats = in_tasks(
            context,
            _compact_group,
            execution.tasks,
            lambda done: progress(f"compaction {time}, file groups", done, total),
            "the plan stays, execute it again",
            f"compaction {time} of {ctx.base}",
        )
        return execution.complete(stats)


def _compact_group(task: GroupTask) -> CompactionStat:
    # A name per attempt, so two attempts of a task never write the same private file.
    return task.run(os.urandom(8).hex())


def run_compactions(
    spark: SparkSession, table: Table, instants: Sequence[str] | None = None
) -> list[Compaction]:
    """``Table.run_compaction`` with a task per file group. ``instants``: requested times, None for all that
    are planned."""
    context = driver_context(spark, "run_compaction")
    ensure_python(spark)
    ctx = table.writer_context()
    planned = compaction.pending(ctx.timeline())
    missing = [time for time in instants or () if time not in planned]
    if missing:
        raise Invalid(
            f"no compaction is planned at {', '.join(missing)}; planned: {', '.join(planned) or 'none'}",
            table=table.path,
        )
    done = (_compact(context, ctx, time, silent) for time in instants or planned)
    return [found for found in done if found is not None]
