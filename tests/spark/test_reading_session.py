"""Goal: a real Spark session reads changes as Python does, its streams show every commit once, and no filter
that Spark hands to sources leaves out rows of another query.

Method: one local session. A stream is stopped between batches, killed at a batch and started again from its
checkpoint while writers cross. What Spark does with sources that take its filters is seen by a tiny one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

import mainstem
from tests.golden_tables.tables import unpack
from tests.spark.test_spark_reading import create, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def read(spark: SparkSession, path, **options: object) -> DataFrame:
    return spark.read.format("mainstem").options(**options).load(str(path))


def test_change_data_deletes_and_views_by_completion_time_are_read_with_options(
    spark: SparkSession, tmp_path: Path
) -> None:
    incremental = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "earliest",
    }
    path = unpack("cdc_mor_op_key_only", tmp_path)
    cdc = {**incremental, "hoodie.datasource.query.incremental.format": "cdc"}
    frame = read(spark, path, **cdc)
    assert frame.columns == ["op", "ts_ms", "before", "after"]
    whole = mainstem.open_table(path).changes(mode="cdc").to_arrow()
    assert frame.count() == whole.num_rows
    assert frame.where("op = 'd'").count() == whole.column("op").to_pylist().count("d") > 0
    structs = read(spark, path, **cdc, **{"hoodie.mainstem.read.cdc.images": "struct"})
    assert structs.where("op = 'i'").selectExpr("sum(after.id)").first()[0] > 0

    table = create(tmp_path / "t")
    first = table.upsert(rows((1, "a", 1, "x"), (2, "b", 1, "y")))
    table.delete(rows((1, "a", 1, "x")).select(["id", "city"]))
    deletes = read(spark, tmp_path / "t", **incremental, **{"hoodie.mainstem.read.deletes": "true"})
    found = [(r.id, r._change_type) for r in deletes.where("name = 'y' OR id = 1").collect()]
    assert sorted(found) == [(1, "delete"), (2, "upsert")]
    assert deletes.where("name = 'nobody'").count() == 0  # Spark filters what a delete row lacks
    past = read(spark, tmp_path / "t", **{"hoodie.mainstem.read.as.of.completion": first.completion_time})
    assert sorted(r.id for r in past.collect()) == [1, 2]


PUSHING = "spark.sql.python.filterPushdown.enabled"
#: Seen to lose rows. Where one of these mends it, or a newer one is seen to have, filters can be taken.
FORGETFUL = ("4.1.", "4.3.0")


@pytest.fixture
def pushing(spark: SparkSession):
    spark.conf.set(PUSHING, "true")
    yield spark
    spark.conf.unset(PUSHING)


def queries(frame: DataFrame) -> list[list[int]]:
    """The ids of several queries of one DataFrame."""
    one, two = frame.where("id = 1"), frame.where("id = 2")
    asked = (one, two, one.union(two), frame)
    return [sorted(row.id for row in query.select("id").collect()) for query in asked]


EXPECTED = [[1], [2], [1, 2], [1, 2, 3]]


@pytest.mark.xfail(
    strict=pyspark.__version__.startswith(FORGETFUL),
    raises=AssertionError,
    reason="what one query pushed into a Python source is kept for all queries of the DataFrame",
)
def test_spark_keeps_queries_apart_whose_filters_a_python_source_takes(pushing: SparkSession) -> None:
    """While this fails, ``Reader`` must not have ``pushFilters``, not even if it returns all of them."""

    class OneAtATime(DataSourceReader):
        """Three partitions of a row each, of which a pushed filter on the id leaves one."""

        only = None

        def pushFilters(self, filters):
            for each in filters:
                if isinstance(each, EqualTo):
                    self.only = each.value
                yield each

        def partitions(self):
            return [InputPartition(number) for number in (1, 2, 3) if self.only in (None, number)]

        def read(self, partition):
            yield (partition.value,)

    class Taking(DataSource):
        @classmethod
        def name(cls):
            return "taking"

        def schema(self):
            return "id int"

        def reader(self, schema):
            return OneAtATime()

    pushing.dataSource.register(Taking)
    assert queries(pushing.read.format("taking").load()) == EXPECTED


def test_queries_of_one_frame_have_their_own_rows_with_and_without_pushed_filters(
    pushing: SparkSession, tmp_path: Path
) -> None:
    create(tmp_path / "t").upsert(rows((1, "a", 1, "x"), (2, "b", 1, "y"), (3, "a", 1, "z")))
    assert queries(read(pushing, tmp_path / "t")) == EXPECTED
    pushing.conf.set(PUSHING, "false")
    assert queries(read(pushing, tmp_path / "t")) == EXPECTED


class Sink:
    """Rows per batch id, as an idempotent sink keeps them: a replayed batch replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list] = {}
        self.fail_at: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found = sorted(tuple(row) for row in frame.collect())
        if self.fail_at == batch:
            raise RuntimeError("the sink died")
        self.batches[batch] = found

    @property
    def rows(self) -> list:
        return sorted(row for batch in self.batches.values() for row in batch)


def stream(spark: SparkSession, path, sink: Sink, checkpoint, **options: object):
    frame = spark.readStream.format("mainstem").options(**options).load(str(path))
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(processingTime="100 milliseconds").start()


NAMES = {"columns": "id,name"}


@pytest.mark.supports("Engines", "Spark: streaming reads by completion time")
def test_a_stream_that_is_killed_and_started_again_shows_every_commit_once_and_misses_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "first")))
    sink = Sink()
    query = stream(spark, tmp_path / "t", sink, tmp_path / "c", **NAMES)
    slow = table.begin()  # requested before, completed after what the stream has seen
    slow.write(rows((2, "b", 1, "slow")))
    table.upsert(rows((3, "a", 1, "quick")))
    query.processAllAvailable()
    assert sink.rows == [(1, "first"), (3, "quick")]
    query.stop()

    slow.commit()
    table.upsert(rows((4, "a", 1, "while it was stopped")))
    sink.fail_at = max(sink.batches) + 1
    query = stream(spark, tmp_path / "t", sink, tmp_path / "c", **NAMES)
    with pytest.raises(Exception, match="the sink died"):
        query.awaitTermination(200)
        raise AssertionError("the query did not end")
    table.upsert(rows((5, "b", 1, "after the replayed batch")))
    sink.fail_at = None
    query = stream(spark, tmp_path / "t", sink, tmp_path / "c", **NAMES)
    query.processAllAvailable()
    query.stop()
    expected = [
        (1, "first"), (2, "slow"), (3, "quick"), (4, "while it was stopped"), (5, "after the replayed batch"),
    ]  # fmt: skip
    assert sink.rows == expected


def test_a_stream_shows_deletes_and_change_data_on_request(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x"), (2, "b", 1, "y")))
    deletes = Sink()
    query = stream(
        spark,
        tmp_path / "t",
        deletes,
        tmp_path / "c",
        **{"hoodie.mainstem.read.deletes": True, "columns": "id,_change_type"},
    )
    query.processAllAvailable()
    table.delete(rows((1, "a", 1, "x")).select(["id", "city"]))
    query.processAllAvailable()
    query.stop()
    assert deletes.rows == [(1, "delete"), (1, "upsert"), (2, "upsert")]

    path = unpack("cdc_mor_op_key_only", tmp_path)
    changes = Sink()
    options = {"hoodie.datasource.query.incremental.format": "cdc", "columns": "op,ts_ms,before,after"}
    query = stream(spark, path, changes, tmp_path / "c2", **options)
    query.processAllAvailable()
    query.stop()
    expected = mainstem.open_table(path).changes(mode="cdc").to_arrow()
    as_rows = zip(*(column.to_pylist() for column in expected.columns), strict=True)
    by_text = [tuple(map(str, row)) for row in as_rows]
    assert sorted(tuple(map(str, row)) for row in changes.rows) == sorted(by_text)
