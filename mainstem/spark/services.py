"""``run_services``: table services by a Spark job, so that a cluster compacts a table of any size.

The driver plans, claims and completes; each file group of a compaction is one task. A task makes one base
file under a name that the plan fixes, so attempts that Spark repeats, speculates or forgets are harmless.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from mainstem.client import open_table
from mainstem.errors import MainstemError, Unavailable, Unsupported
from mainstem.services import compaction
from mainstem.services.compaction import Compaction, GroupTask
from mainstem.services.progress import Progress, silent
from mainstem.services.run_options import COMPACTION
from mainstem.services.runner import Round, ServiceRun, warn_of_failures
from mainstem.spark.options import local_path
from mainstem.spark.workers import ensure_python
from mainstem.timeline.commit_metadata import CompactionStat
from mainstem.writers.context import WriterContext

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOOK_S = 0.5


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

    ``properties`` are those of ``open_table``. The other services run on the driver. Raises ``Invalid`` or
    ``Unsupported`` for wrong arguments and tables; a service that failed has ``error`` in what is
    returned, and is warned about.
    """
    try:
        context = spark.sparkContext
    except Exception as error:
        raise Unsupported(
            "run_services claims and completes plans in the driver process, which Spark Connect keeps on the"
            " server; run it there, or `mainstem services`"
        ) from error
    ensure_python(spark)
    table = open_table(local_path(path), properties)

    def compact(ctx: WriterContext, time: str, progress: Progress) -> Compaction | None:
        return _compact(context, ctx, time, progress)

    plan = Round.of(only, if_due=if_due, progress=progress or silent, execute={COMPACTION: compact})
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
        stats = _in_tasks(
            context,
            execution.tasks,
            lambda done: progress(f"compaction {time}, file groups", min(done, total), total),
        )
        return execution.complete(stats)


def _in_tasks(
    context: SparkContext, tasks: Sequence[GroupTask], told: Callable[[int], None]
) -> list[CompactionStat]:
    """Each in a Spark task of its own; their results in their order."""
    if not tasks:
        return []
    done = context.accumulator(0)

    def run(task: bytes) -> bytes:
        try:
            # A name per attempt: two of one task never write the same private file.
            result: CompactionStat | MainstemError = pickle.loads(task).run(os.urandom(8).hex())
        except MainstemError as error:
            result = error  # as it is; anything else is Spark's to try again
        done.add(1)
        return pickle.dumps(result)

    work = context.parallelize([pickle.dumps(task) for task in tasks], len(tasks)).map(run)
    with ThreadPoolExecutor(1) as waiting:
        job = waiting.submit(work.collect)
        while not wait([job], _LOOK_S).done:
            told(done.value)
        try:
            results = [pickle.loads(result) for result in job.result()]
        except Exception as error:
            raise Unavailable(
                f"Spark's tasks failed ({_cause(error)}); the plan stays, execute it again"
            ) from error
    for result in results:
        if isinstance(result, MainstemError):
            raise result
    told(len(tasks))
    return results


def _cause(error: Exception) -> str:
    """The last line of the worker's own trace, before the frames of the JVM."""
    trace = str(error).partition("\n\tat ")[0].strip()
    return trace.splitlines()[-1][:500] if trace else type(error).__name__
