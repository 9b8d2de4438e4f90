"""A table's rows read by plain tasks, planned in this process.

Spark asks a Python source for its columns and its partitions in a new Python process each, which takes more
processor time than a small read. ``sql`` is in a process that knows all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.readers.queries.scan_plan import ReadableSplit
from mainstem.spark.options import ReadOptions
from mainstem.spark.session_options import session_options
from mainstem.spark.source_readers import SplitPartition, plan_of, rows_of
from mainstem.spark.types import arrow_schema, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Every task gets all of them, 2 to 3 KB each.
_SPLITS_MAX = 400
# File slices of one task: Spark takes a tenth of a second of processor time for a Python task without work.
_OF_A_TASK = 8


def read_in_tasks(
    spark: SparkSession, path: str, options: Mapping[str, str], among: pc.Expression | None = None
) -> DataFrame:
    """The rows of a batch read, a task for each slot or more; those of the Python source where there are too
    many file slices, and then whether or not they pass ``among``.

    As for a Python source, the planner takes the rows for as many as can be.
    """
    from pyspark.sql import DataFrame

    parsed = ReadOptions.parse({**options, "path": path}, below=session_options(spark))
    plan = plan_of(parsed)
    if among is not None:
        plan = plan.refined(None, among)
    splits = list(plan.splits())
    if len(splits) > _SPLITS_MAX:
        return spark.read.format("mainstem").options(**options).load(path)
    count, schema = len(splits), spark_schema(plan.schema)
    tasks = max(1, min(count, spark.sparkContext.defaultParallelism), -(-count // _OF_A_TASK))
    numbers = spark.range(0, count, 1, tasks).toDF("number")
    # By way of an RDD, of which the planner knows no size: it would send a table of few slices to all tasks.
    session = spark._jsparkSession
    made = session.createDataFrame(numbers._jdf.toJavaRDD(), numbers._jdf.schema())
    read = partial(_read, parsed, splits, arrow_schema(schema))
    return DataFrame(made, spark).mapInArrow(read, schema)


def _read(
    options: ReadOptions,
    splits: Sequence[ReadableSplit],
    schema: pa.Schema,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from rows_of(options, SplitPartition(splits[number]), schema)
