"""Goal: Spark reads tables of version 10 with all their queries, and its sinks refuse to write them.

Method: tables that Java 1.3.0-SNAPSHOT wrote, read by the data source and compared with ``Table.scan``; every
way into a table, after which its files are the same, byte by byte.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import mainstem
import mainstem.spark as ms
from mainstem.errors import Unsupported
from tests.golden_tables.tables import unpack

TABLES = ("v10_basic_mdt", "v10_lsm_tree_commit.logs", "v10_mixed_batch", "v10_upgraded_9_to_10_event.mixed")
REFUSED = "can be read, but not written"
COLUMNS = ["_hoodie_commit_time", "_hoodie_record_key", "id", "name", "price", "ts"]
OPTIONS = {"hoodie.mainstem.timeline.zone": "UTC"}


def read(spark: SparkSession, path: Path, **options: str) -> Counter[tuple]:
    frame = spark.read.format("mainstem").options(**options).load(str(path))
    return Counter(map(tuple, frame.select(COLUMNS).collect()))


def expected(plan: mainstem.ScanPlan) -> Counter[tuple]:
    rows = plan.to_arrow()
    return Counter(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def new_rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [(1, "rome", "x", 1.0, 9999)], "id int, city string, name string, price double, ts bigint"
    )


@pytest.mark.parametrize("name", TABLES)
def test_spark_reads_the_rows_that_python_reads(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = unpack(name, tmp_path)
    table = mainstem.open_table(path)
    assert read(spark, path) == expected(table.scan()) != Counter()
    first, *_ = [i for i in table.timeline() if i.is_completed and i.action == "deltacommit"]
    past = read(spark, path, **{"as.of.instant": first.requested})
    assert past == expected(table.scan(as_of=first.requested)) != Counter()
    changed = {"hoodie.datasource.query.type": "incremental"}
    changed["hoodie.datasource.read.begin.instanttime"] = first.completion or ""
    assert read(spark, path, **changed) == expected(table.changes(after=first.completion))
    late = spark.read.format("mainstem").load(str(path)).where("ts > 1030").count()
    assert late == sum(row[-1] > 1030 for row in expected(table.scan()).elements())


def test_no_sink_of_spark_writes_to_version_10(spark: SparkSession, tmp_path: Path) -> None:
    path = unpack("v10_basic_mor", tmp_path)
    before, rows = content(path), new_rows(spark)
    with pytest.raises(Exception, match=REFUSED):
        rows.write.format("mainstem").mode("append").options(**OPTIONS).save(str(path))
    with pytest.raises(Unsupported, match=REFUSED):
        ms.write_batch(rows, str(path), options=OPTIONS)
    with pytest.raises(Unsupported, match=REFUSED):
        ms.run_services(spark, str(path), properties=OPTIONS)
    with pytest.raises(Unsupported, match=REFUSED):
        ms.create_index(spark, str(path), "column_stats", ["ts"], properties=OPTIONS)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    stream = stream.selectExpr("cast(value as int) id", "'rome' city", "'n' name", "1.0D price", "value ts")
    with pytest.raises(Exception, match=REFUSED):
        query = ms.write_stream(
            stream, str(path), options=OPTIONS, checkpoint=str(tmp_path / "c"), trigger={"once": True}
        )
        query.awaitTermination(120)
    assert content(path) == before
