"""``create_index``: builds an index in a Spark job, so that a cluster can index a table of any size.

The driver plans, lists, catches up and completes, in the same steps as ``indexing.index_build``. One task per
file group of the data computes the index rows. Tasks leave no named file in the table, so retried,
speculative and abandoned attempts are harmless. If the driver dies, the next build or drop of the index
removes what it left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.api.indexes import VECTOR
from mainstem.api.table import open_table
from mainstem.indexing import creating
from mainstem.indexing.index_build import Built
from mainstem.indexing.initial_rows import Run
from mainstem.services.progress import Progress, silent
from mainstem.spark.in_tasks import driver_context, in_tasks, is_connect, on_table
from mainstem.spark.session_options import location_in
from mainstem.spark.worker_repairs import ensure_python
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage
from mainstem.vectors.index import lifecycle

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def create_index(
    spark: SparkSession,
    path: str,
    kind: str,
    columns: Sequence[str] = (),
    *,
    name: str | None = None,
    options: Mapping[str, object] | None = None,
    properties: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Built | lifecycle.Refreshed:
    """``Table.create_index`` with one Spark task per file group of the data, and one per cluster of a vector
    index; the resulting index is the same.

    ``properties`` are those of ``open_table``. ``progress(what, done, total)`` is called while tasks run.
    Raises what ``Table.create_index`` raises, and ``Unavailable`` if Spark gave up on a task; the table then
    has no part of the index. On Spark Connect one task on the server builds it all, as ``reindex`` and
    ``refresh_index`` do, and ``progress`` is not called.
    """
    if is_connect(spark):
        return on_table(
            spark, location_in(spark, path), properties, "create_index", kind, list(columns), name=name,
            options=options,
        )  # fmt: skip
    context = driver_context(spark, "create_index")
    ensure_python(spark)
    table = open_table(location_in(spark, path), properties)
    given = {str(k): str(v) for k, v in (options or {}).items()}
    run = _on(context, table.opened.seams.storage.location)
    if kind == VECTOR:
        table.check_new_name(name)
        return lifecycle.create(table.index_context(), list(columns), name, given, progress or silent, run)
    return creating.create_index(
        table.index_context(), kind, list(columns), given, progress, name, run
    )


def reindex(
    spark: SparkSession,
    path: str,
    name: str | None = None,
    *,
    properties: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> list[Built | lifecycle.Refreshed]:
    """``Table.reindex``, or ``reindex_all`` without a name, with Spark tasks as in ``create_index``."""
    if is_connect(spark):
        there = partial(on_table, spark, location_in(spark, path), properties)
        return there("reindex_all") if name is None else [there("reindex", name)]
    context = driver_context(spark, "reindex")
    ensure_python(spark)
    table = open_table(location_in(spark, path), properties)
    ctx, run = table.index_context(), _on(context, table.opened.seams.storage.location)
    if name is not None:
        chosen = [table.index(name)]
        others = [] if chosen[0].kind == VECTOR else [creating.rebuild(ctx, chosen[0], progress, run)]
    else:
        chosen, others = table.indexes(), list(creating.rebuild_all(ctx, progress, run))
    vectors = [index.name for index in chosen if index.kind == VECTOR]
    told = progress or silent
    return [*others, *(lifecycle.refresh(ctx, each, told, run, anew=True) for each in vectors)]


def refresh_index(
    spark: SparkSession,
    path: str,
    name: str,
    *,
    properties: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> lifecycle.Refreshed:
    """``Table.refresh_index`` with one Spark task per cluster of the vector index."""
    if is_connect(spark):
        return on_table(spark, location_in(spark, path), properties, "refresh_index", name)
    context = driver_context(spark, "refresh_index")
    ensure_python(spark)
    table = open_table(location_in(spark, path), properties)
    run = _on(context, table.opened.seams.storage.location)
    return lifecycle.refresh(table.index_context(), table.index(name).name, progress or silent, run)


def _on(context: SparkContext, location: Location) -> Run:
    def run(
        work: Callable[[Storage, Any], Any], pieces: Sequence[Any], told: Callable[[int], None]
    ) -> list[Any]:
        def in_task(piece: Any) -> Any:
            return work(storage_of(location), piece)

        called = f"index of {location}: read its rows"
        return in_tasks(context, in_task, pieces, told, "nothing was built, try again", called)

    return run
