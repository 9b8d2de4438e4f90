"""Goal: a real Spark session reads changes as Python does, and its streams show every commit once.

Method: one local session. A stream is stopped between batches, killed at a batch and started again from its
checkpoint while writers cross.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
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


@pytest.mark.supports("Engines", "Spark 4.1+: streaming reads by completion time")
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
