"""Goal: Spark writes and reads tables of version 10 as it does those of version 9.

Method: the same batches, streams and statements on tables of both layouts, compared after each with rows in
plain Python; the files that they leave are looked at. Tables that Java 1.3.0-SNAPSHOT wrote are read by the
data source and compared with ``Table.scan``. A table is upgraded beside streams in
``tests/flink/test_flink_version_10.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.storage import paths
from tests.golden_tables.tables import unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TABLES = ("v10_lsm_tree_commit.logs", "v10_upgraded_9_to_10_event.mixed")
COLUMNS = ["_hoodie_commit_time", "_hoodie_record_key", "id", "name", "price", "ts"]
KEY = "_hoodie_record_key"


def read(spark: SparkSession, path: Path, **options: str) -> Counter[tuple]:
    frame = spark.read.format("mainstem").options(**options).load(str(path))
    return Counter(map(tuple, frame.select(COLUMNS).collect()))


def expected(plan: mainstem.ScanPlan) -> Counter[tuple]:
    rows = plan.to_arrow()
    return Counter(zip(*(rows[name].to_pylist() for name in COLUMNS), strict=True))


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


# -- writes ---------------------------------------------------------------------------------------------

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.time.generator.max_expected_clock_skew_ms": 5,
}
LAYOUTS = ("default", "lsm_tree")
IN_TASKS = {"hoodie.mainstem.spark.driver.rows.max": 0}
MERGE = """
    MERGE INTO {table} AS t USING {rows} AS s ON t.id = s.id
    WHEN MATCHED AND s.v % 4 = 0 THEN DELETE
    WHEN MATCHED THEN UPDATE SET v = s.v + t.v, ts = s.ts
    WHEN NOT MATCHED THEN INSERT *
"""
Rows = dict[str, dict[str, Any]]


def numbered(frame: DataFrame, step: int, number: str = "id") -> DataFrame:
    """Keys in another order than that of numbers and of arrival."""
    return frame.selectExpr(
        f"concat('é', {number}) id", f"{step}L ts", f"{number} * 10 + {step} v",
        f"case when {number} % 2 = 0 then 'oslo' else 'rome' end city",
    )  # fmt: skip


def rows(numbers: range, step: int) -> Rows:
    """The same in Python, by key."""
    return {
        f"é{n}": {"id": f"é{n}", "ts": step, "v": n * 10 + step, "city": ("oslo", "rome")[n % 2]}
        for n in numbers
    }


def merged(before: Rows, source: Rows) -> Rows:
    """What ``MERGE`` leaves."""
    after = dict(before)
    for key, row in source.items():
        if key not in before:
            after[key] = row
        elif row["v"] % 4 == 0:
            del after[key]
        else:
            after[key] = {**before[key], "v": before[key]["v"] + row["v"], "ts": row["ts"]}
    return after


def every_way(spark: SparkSession, path: Path, options: dict[str, Any]) -> Iterator[Rows]:
    """Each way in which Spark changes a table, and the rows that it must have then."""
    named, kept = f"mainstem.`{path}`", rows(range(1, 31), 1)

    def save(frame: DataFrame, **more: object) -> None:
        frame.write.format("mainstem").mode("append").options(**options, **more).save(str(path))

    bulk = {**options, **IN_TASKS, "hoodie.datasource.write.operation": "bulk_insert"}
    ms.write_batch(numbered(spark.range(30, 0, -1, 3), 1), str(path), options=bulk)
    yield kept
    save(numbered(spark.range(5, 25, 1, 3), 2))
    yield (kept := kept | rows(range(5, 25), 2))
    save(numbered(spark.range(7, 12), 3), **{"hoodie.datasource.write.operation": "delete"})
    kept = {key: row for key, row in kept.items() if key not in rows(range(7, 12), 3)}
    yield kept
    ms.write_batch(numbered(spark.range(20, 40, 1, 3), 4), str(path), options={**options, **IN_TASKS})
    yield (kept := kept | rows(range(20, 40), 4))
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 9).load()
    ms.write_stream(
        numbered(source, 5, "value"), str(path), options=options, checkpoint=f"{path}-c",
        trigger={"once": True},
    ).awaitTermination(120)  # fmt: skip
    yield (kept := kept | rows(range(9), 5))
    ms.sql(spark, f"UPDATE {named} SET v = v + 1000 WHERE v % 3 = 0")
    kept = {key: row | {"v": row["v"] + 1000 * (row["v"] % 3 == 0)} for key, row in kept.items()}
    yield kept
    ms.sql(spark, f"DELETE FROM {named} WHERE v % 7 = 0", properties=IN_TASKS)
    yield (kept := {key: row for key, row in kept.items() if row["v"] % 7})
    ms.sql(
        spark, MERGE.replace("{table}", named), properties=IN_TASKS, rows=numbered(spark.range(25, 50), 6)
    )
    yield (kept := merged(kept, rows(range(25, 50), 6)))
    ms.run_services(spark, str(path), "compact", if_due=False)
    save(numbered(spark.range(3, 8), 0))  # late: of rows that are there, and of one that was deleted
    yield kept


def content(path: Path) -> Rows:
    found = mainstem.open_table(path).scan(columns=["id", "ts", "v", "city"]).to_arrow()
    assert found.num_rows == len(set(found["id"].to_pylist()))
    return {row["id"]: row for row in found.to_pylist()}


def check_files(path: Path, layout: str) -> None:
    """All logs are native, and files of an LSM tree are sorted."""
    files = [file for file in path.glob("*/*") if not file.name.startswith(".hoodie")]
    logs = [log for file in files if (log := paths.parse_log_name(file.name))]
    assert {log.is_native for log in logs} == {True}, logs
    for file in files if layout == "lsm_tree" else ():
        if file.suffix == ".parquet":
            keys = pq.read_table(file)[KEY].cast(pa.binary())
            assert pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False, file


@pytest.mark.slow
@pytest.mark.supports("Engines", "Spark: batches, streams, statements on tables of version 10, both layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_way_of_spark_changes_a_table_of_version_10(
    spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    path = tmp_path / layout
    options: dict[str, Any] = {
        **OPTIONS, "hoodie.write.table.version": 10, "hoodie.table.storage.layout": layout,
        "hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true",
    }  # fmt: skip
    kept: Rows = {}
    for step, kept in enumerate(every_way(spark, path, options)):
        assert content(path) == kept, f"step {step}"
    table = mainstem.open_table(path)
    assert table.config.version == 10 and table.config.sorted_files == (layout == "lsm_tree")
    check_files(path, layout)
    report = table.validate_metadata()
    assert report is not None and report.ok, report
    told = spark.readStream.format("mainstem").load(str(path)).select("id", "ts", "v", "city")
    query = told.writeStream.format("memory").queryName(layout).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert {row.id: row.asDict() for row in spark.table(layout).collect()} == kept
