"""Goal: a frame overwrites partitions or a table, through the driver and on executors; streams do not.

Method: `write_batch` with Hudi's operations on a table whose buckets have files; each wrong way is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mainstem
import mainstem.spark as ms
from mainstem.errors import Unsupported

OPTIONS: dict[str, Any] = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.index.type": "BUCKET",
}
OPERATION = "hoodie.datasource.write.operation"
ON_EXECUTORS = {"hoodie.mainstem.spark.driver.rows.max": 0}


def frame(spark: Any, low: int, high: int, city: str = "a") -> Any:
    return spark.range(low, high).selectExpr("cast(id as string) as id", f"'{city}' as city", "id as ts")


def keys(path: Path) -> set[int]:
    found = mainstem.open_table(path).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(found) == len(set(found))
    return set(map(int, found))


@pytest.fixture
def path(spark: Any, tmp_path: Path) -> Path:
    """A table of 0 to 19 in partition a and 20 to 39 in b."""
    rows = frame(spark, 0, 20).union(frame(spark, 20, 40, "b"))
    ms.write_batch(rows, str(tmp_path / "t"), options=OPTIONS)
    return tmp_path / "t"


@pytest.mark.parametrize("way", [{}, ON_EXECUTORS], ids=["through the driver", "on executors"])
def test_a_frame_overwrites_its_partitions_or_the_whole_table(spark: Any, path: Path, way: Any) -> None:
    new = frame(spark, 100, 110).repartition(3)
    ms.write_batch(new, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite"})
    assert keys(path) == {*range(100, 110), *range(20, 40)}
    ms.write_batch(new, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite_table"})
    assert keys(path) == set(range(100, 110))


@pytest.mark.parametrize("way", [{}, ON_EXECUTORS], ids=["through the driver", "on executors"])
def test_an_empty_frame_overwrites_no_partition_and_empties_a_table(spark: Any, path: Path, way: Any) -> None:
    none = frame(spark, 0, 0)
    ms.write_batch(none, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite"})
    assert keys(path) == set(range(40))
    ms.write_batch(none, str(path), options={**OPTIONS, **way, OPERATION: "insert_overwrite_table"})
    assert keys(path) == set()


def save(frame: Any, path: Path, mode: str = "append", **options: Any) -> None:
    writer = frame.write.format("mainstem").options(**OPTIONS, path=str(path))
    writer.options(**{name.replace("__", "."): value for name, value in options.items()}).mode(mode).save()


def operation(name: str) -> dict[str, str]:
    return {OPERATION: name}


@pytest.mark.supports(
    "Engines",
    'Spark: insert_overwrite, insert_overwrite_table, delete_partition; mode("overwrite") keeps the table',
)
@pytest.mark.parametrize("tasks", [1, 3])
def test_the_data_source_overwrites_what_hudis_operations_overwrite(
    spark: Any, path: Path, tasks: int
) -> None:
    new = frame(spark, 100, 130).repartition(tasks)
    save(new, path, **operation("insert_overwrite"))
    assert keys(path) == {*range(100, 130), *range(20, 40)}
    other = frame(spark, 200, 210).repartition(tasks)
    save(other, path, "overwrite", **operation("insert_overwrite"))
    assert keys(path) == {*range(200, 210), *range(20, 40)}
    save(new, path, **operation("insert_overwrite_table"))
    assert keys(path) == set(range(100, 130))


def test_mode_overwrite_replaces_all_rows_and_keeps_the_table_and_its_history(
    spark: Any, path: Path
) -> None:
    table = mainstem.open_table(path)
    before = table.timeline()
    made = (path / ".hoodie/hoodie.properties").stat().st_ino
    with table.begin("upsert") as beside:  # no writer loses its table
        save(frame(spark, 100, 110).repartition(3), path, "overwrite")
        assert keys(path) == set(range(100, 110))
        beside.write({"id": ["7"], "city": ["b"], "ts": [7]})
        beside.commit()
    assert keys(path) == {7, *range(100, 110)}
    assert table.timeline()[: len(before)] == before
    assert (path / ".hoodie/hoodie.properties").stat().st_ino == made
    old = table.scan(columns=["id"], as_of=before[-1].completion).to_arrow()["id"].to_pylist()
    assert set(map(int, old)) == set(range(40))


@pytest.mark.parametrize("way", ["Hudi's option", "Spark's option", "the session"])
def test_mode_overwrite_is_dynamic_where_hudis_insert_overwrite_is(spark: Any, path: Path, way: str) -> None:
    new = frame(spark, 100, 110).repartition(2)
    if way == "the session":
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        try:
            save(new, path, "overwrite", hoodie__datasource__overwrite__mode="static")
            assert keys(path) == set(range(100, 110))
            save(frame(spark, 20, 40, "b"), path, "overwrite")
            save(frame(spark, 0, 0), path, "overwrite")  # names no partition
        finally:
            spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    else:
        name = "partitionOverwriteMode" if way == "Spark's option" else "hoodie__datasource__overwrite__mode"
        save(new, path, "overwrite", **{name: "dynamic"})
    assert keys(path) == {*range(100, 110), *range(20, 40)}


def test_mode_overwrite_makes_a_table_and_an_empty_frame_empties_it(spark: Any, tmp_path: Path) -> None:
    for mode in ("static", "dynamic"):
        path = tmp_path / mode
        unpartitioned = dict(OPTIONS)
        del unpartitioned["hoodie.datasource.write.partitionpath.field"]
        for new in (frame(spark, 0, 9), frame(spark, 5, 12), frame(spark, 0, 0)):
            writer = new.write.format("mainstem").options(**unpartitioned, partitionOverwriteMode=mode)
            writer.mode("overwrite").save(str(path))
            assert keys(path) == {int(row.id) for row in new.collect()}


def test_insert_overwrite_of_a_view_replaces_all_rows(spark: Any, path: Path) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW overwritten USING mainstem OPTIONS (path '{path}')")
    try:
        spark.sql("INSERT OVERWRITE overwritten BY NAME SELECT '1' AS id, 'a' AS city, 2L AS ts")
    finally:
        spark.catalog.dropTempView("overwritten")
    assert keys(path) == {1}


@pytest.mark.parametrize("way", ["write_batch", "the data source"])
def test_delete_partition_empties_the_named_partitions_whatever_the_frame_holds(
    spark: Any, path: Path, way: str
) -> None:
    asked = {**operation("delete_partition"), "hoodie.datasource.write.partitions.to.delete": "b"}
    for given in (spark.createDataFrame([], "id string"), frame(spark, 0, 3)):
        ms.write_batch(frame(spark, 30, 33, "b"), str(path), options=OPTIONS)
        if way == "write_batch":
            ms.write_batch(given, str(path), options={**OPTIONS, **asked})
        else:
            save(given, path, **asked)
        assert keys(path) == set(range(20))
    missing = {**asked, "hoodie.datasource.write.partitions.to.delete": "nowhere"}
    with pytest.raises(Exception, match="no such partition"):
        save(frame(spark, 0, 0), path, **missing)


@pytest.mark.parametrize("name", ["delete", "delete_partition"])
def test_deletes_are_for_mode_append(spark: Any, path: Path, name: str) -> None:
    more = {"hoodie.datasource.write.partitions.to.delete": "b"} if name == "delete_partition" else {}
    with pytest.raises(Exception, match="as in Hudi"):
        save(frame(spark, 0, 3), path, "overwrite", **operation(name), **more)
    assert keys(path) == set(range(40))


def test_a_failed_task_leaves_the_old_rows(spark: Any, path: Path) -> None:
    from pyspark.sql import functions as F

    broken = frame(spark, 100, 130).repartition(3).withColumn(
        "ts", F.expr("if(id = '117', cast(raise_error('broken') as bigint), ts)")
    )
    with pytest.raises(Exception, match="broken"):
        save(broken, path, "overwrite")
    assert keys(path) == set(range(40))
    save(frame(spark, 100, 110).repartition(3), path, "overwrite")
    assert keys(path) == set(range(100, 110))


def test_streams_refuse_to_overwrite_and_say_what_to_do(spark: Any, path: Path) -> None:
    source = spark.readStream.format("rate").load().selectExpr(
        "cast(value as string) as id", "'a' as city", "value as ts"
    )
    asked = {**OPTIONS, OPERATION: "insert_overwrite"}
    with pytest.raises(Unsupported, match="again in each batch"):
        ms.write_stream(source, path=str(path), options=asked, checkpoint=str(path.parent / "c"))
    assert keys(path) == set(range(40))


def test_a_batch_of_a_stream_overwrites_nothing(spark: Any, path: Path) -> None:
    partitions = {"hoodie.datasource.write.partitions.to.delete": "a"}
    batch_options = {**OPTIONS, **operation("insert_overwrite")}
    some, none = frame(spark, 0, 3).coalesce(1), frame(spark, 0, 0).coalesce(1)
    ways = [
        lambda: save(some, path, "overwrite"),
        lambda: save(none, path, "overwrite"),
        lambda: save(some, path, **operation("insert_overwrite")),
        lambda: save(none, path, **operation("delete_partition"), **partitions),
        lambda: ms.write_batch(some, str(path), options=batch_options),
    ]
    errors = []

    def write(batch: Any, number: int) -> None:
        for way in ways:
            with pytest.raises(Exception) as caught:
                way()
            errors.append(str(caught.value))

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = source.writeStream.foreachBatch(write).trigger(once=True)
    query.option("checkpointLocation", str(path.parent / "c")).start().awaitTermination()
    assert len(errors) == len(ways) and all("again in each batch" in error for error in errors)
    assert keys(path) == set(range(40))
