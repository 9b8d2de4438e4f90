"""``vector_join``: finds the nearest rows of a table for every row of a DataFrame, in Spark tasks.

Every task searches for its share of the queries, some thousands at a time, like ``Table.search``: with the
vector index and the rows that it lacks, or exactly. A worker process keeps the table and its loaded graphs
open. All tasks read the table as of the newest instant that was completed when the join was created. If a
write that began before that instant is still pending, that view is not settled yet (its rows may still appear
in it); each task then reads the newest rows at the time of its search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid
from mainstem.filters.conditions import conditions
from mainstem.limits import SEARCH_HITS_MAX
from mainstem.readers.planning.table_state import TableState
from mainstem.spark.in_tasks import here_or_there
from mainstem.spark.session_options import location_in
from mainstem.spark.tasks import gathered
from mainstem.spark.types import arrow_schema, fit_for_spark, spark_schema
from mainstem.spark.worker_repairs import ensure_python
from mainstem.storage.location import Location
from mainstem.storage.store_options import split
from mainstem.vectors.search.request import DISTANCE, QUERY_INDEX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Prefix of query columns whose name the table has too (``HoodieVectorSearchPlanBuilder``).
PREFIX = "_hudi_query_"
_QUERIES_TOGETHER = 5000
_HITS_TOGETHER = min(SEARCH_HITS_MAX, 500_000)


@dataclass(frozen=True)
class _Join:
    """What a task needs to know. ``names``: (query column, its name in the result)."""

    location: Location
    properties: tuple[tuple[str, str], ...]
    column: str
    query_column: str
    names: tuple[tuple[str, str], ...]
    k: int
    metric: str | None
    filter: pc.Expression | None
    as_of: str | None
    ef: int | None
    exact: bool
    columns: tuple[str, ...]
    max_distance: float | None
    schema: pa.Schema


def vector_join(
    path: str,
    column: str,
    queries: DataFrame,
    query_column: str,
    k: int,
    *,
    metric: str | None = None,
    filter: str | pc.Expression | None = None,
    as_of: str | None = None,
    ef: int | None = None,
    exact: bool = False,
    columns: Sequence[str] | None = None,
    max_distance: float | None = None,
    properties: Mapping[str, object] | None = None,
) -> DataFrame:
    """The ``k`` rows of the table at ``path`` whose ``column`` is nearest to each row's ``query_column``.

    The result has the table's columns except the searched one (or only ``columns``), the columns of
    ``queries`` except the query (prefixed with ``_hudi_query_`` if the table has the same name),
    ``_hudi_query_index`` (long, unique per query) and ``_hudi_distance``, as in Hudi's
    ``hudi_vector_search_batch``. Null queries yield no rows. ``filter`` (an expression, or a text as in
    ``option("filter", ...)``), ``metric``, ``as_of``, ``ef`` and ``exact`` are those of ``Table.search``;
    rows farther than ``max_distance`` are left out. ``properties`` are those of ``open_table``. Raises
    ``Invalid`` for columns that do not exist or hold no vectors; queries of another dimension fail in the
    tasks.
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    ensure_python(queries.sparkSession)
    location, given = search_place(queries.sparkSession, path, properties or {})
    kind = queries.schema[query_column].dataType if query_column in queries.columns else None
    if not isinstance(kind, T.ArrayType):
        there = ", ".join(queries.columns)
        raise Invalid(f"queries have no column {query_column!r} of arrays of numbers; they have {there}")
    looked = partial(_looked, location, given, column, columns, filter)
    filter, shown, corpus, moment = here_or_there(queries.sparkSession, looked)
    others = [field for field in queries.schema if field.name != query_column]
    names = {f.name: PREFIX + f.name if f.name in shown else f.name for f in others}
    answer = T.StructType(
        [
            *spark_schema(corpus),
            *(T.StructField(names[f.name], f.dataType, True, f.metadata) for f in others),
            T.StructField(QUERY_INDEX, T.LongType(), True),
            T.StructField(DISTANCE, T.DoubleType(), True),
        ]
    )
    repeated = {name for name in answer.names if answer.names.count(name) > 1}
    if repeated:
        raise Invalid(f"the answer would have {', '.join(sorted(repeated))} twice; rename query columns")
    join = _Join(
        location, given, column, query_column, tuple(names.items()), k, metric, filter,
        as_of or moment, ef, exact, tuple(shown), max_distance, arrow_schema(answer),
    )  # fmt: skip
    asked = queries.filter(F.col(f"`{query_column}`").isNotNull())
    asked = asked.withColumn(QUERY_INDEX, F.monotonically_increasing_id())
    return asked.mapInArrow(partial(_joined, join), answer)


def _looked(
    location: Location,
    given: tuple[tuple[str, str], ...],
    column: str,
    columns: Sequence[str] | None,
    filter: str | pc.Expression | None,
) -> tuple[pc.Expression | None, list[str], pa.Schema, str | None]:
    """What a join must know of its table: filter, columns shown and their types, as of when to read."""
    table = open_search(location, given)
    shown = _columns(table, column, columns)
    return filter_on(table, filter), shown, table.scan(columns=shown).schema, moment_of(table)


def search_place(
    spark: SparkSession, path: str, properties: Mapping[str, object]
) -> tuple[Location, tuple[tuple[str, str], ...]]:
    """What ``open_search`` takes: the store's options are part of the location."""
    of_store, given = split({str(key): str(value) for key, value in properties.items()})
    return location_in(spark, path, of_store), tuple(sorted(given.items()))


@lru_cache(maxsize=8)
def open_search(location: Location, properties: tuple[tuple[str, str], ...]) -> Table:
    """The table, kept open in this process so that its graphs are loaded only once."""
    return open_table(location, dict(properties))


def filter_on(table: Table, filter: str | pc.Expression | None) -> pc.Expression | None:
    """A filter for ``Table.search`` from a text or an expression."""
    return conditions(filter, table.scan().schema, "filter") if isinstance(filter, str) else filter


def _columns(table: Table, column: str, columns: Sequence[str] | None) -> list[str]:
    known = table.scan().schema.names
    if column not in known:
        raise Invalid(f"no column {column!r}; the table has {', '.join(known)}", table=table.path)
    return list(columns) if columns is not None else [name for name in known if name != column]


def moment_of(table: Table) -> str | None:
    """The requested time as of which a join's tasks read; None if no such view is settled."""
    state = TableState.load(table.opened.seams.storage, table.config)
    newest = max((i.requested for i in state.timeline.completed), default=None)
    pending = state.first_pending_write
    unsettled = newest is None or (pending is not None and pending.requested <= newest)
    return None if unsettled else newest


def _joined(join: _Join, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The work of one task: the query rows in, the nearest rows out."""
    table = open_search(join.location, join.properties)
    length = max(1, min(_QUERIES_TOGETHER, _HITS_TOGETHER // max(join.k, 1)))
    for rows in gathered(batches):
        for start in range(0, len(rows), length):
            yield from fit_for_spark(_nearest(join, table, rows.slice(start, length)), join.schema)


def _nearest(join: _Join, table: Table, rows: pa.Table) -> pa.Table:
    found = table.search(
        join.column,
        matrix(rows.column(join.query_column), join.query_column),
        join.k,
        filter=join.filter,
        as_of=join.as_of,
        metric=join.metric,
        ef=join.ef,
        exact=join.exact,
        columns=list(join.columns),
    )
    if join.max_distance is not None:
        found = found.filter(pc.less_equal(found.column(DISTANCE), join.max_distance))
    asked = rows.take(found.column(QUERY_INDEX))
    columns = {name: found.column(name) for name in join.columns}
    columns |= {shown: asked.column(name) for name, shown in join.names}
    columns |= {QUERY_INDEX: asked.column(QUERY_INDEX), DISTANCE: found.column(DISTANCE)}
    return pa.table(columns)


def matrix(vectors: pa.ChunkedArray, name: str) -> np.ndarray:
    """Lists of equal length as a float64 matrix (queries x dimension). Raises ``Invalid`` for other lists."""
    lists = vectors.combine_chunks()
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    if len(lengths) and (lengths != lengths[0]).any():
        raise Invalid(f"vectors of {name!r} have {lengths.min()} to {lengths.max()} values; all need as many")
    values = pc.list_flatten(lists).cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values.reshape(len(lists), -1)
