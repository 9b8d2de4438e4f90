"""Goal: Spark writes a table in a bucket, in driver, tasks and as a data source, in batches and streams.

Method: MinIO and one real ``local[2,4]`` session whose Python workers are forked from a daemon; tables are
read back by Spark and by Python. The secret travels as the name of a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.services import compaction
from tests.servers.object_stores import Minio
from tests.spark.conftest import spark  # noqa: F401  # the session

TABLE = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.time.generator.max_expected_clock_skew_ms": 5,
}
EXECUTORS = {"hoodie.mainstem.spark.driver.rows.max": 0}
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with pytest.MonkeyPatch.context() as patch, Minio() as server:
        server.make_bucket("bucket")
        given = server.options()
        patch.setenv("TEST_STORE_SECRET", given["fs.s3a.secret.key"])
        yield {**given, "fs.s3a.secret.key": "env:TEST_STORE_SECRET"}


def rows_of(url: str, store: dict[str, str]) -> list[tuple[int, int]]:
    found = mainstem.open_table(url, store).scan(columns=["id", "v"]).to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def by_spark(spark: Any, url: str, store: dict[str, str]) -> list[tuple[int, int]]:  # noqa: F811
    found = spark.read.format("mainstem").options(**store).load(url).select("id", "v").toArrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def numbers(spark: Any, first: int, end: int, factor: int) -> Any:  # noqa: F811
    return spark.range(first, end, numPartitions=3).selectExpr("id", f"id * {factor} as v")


def test_batches_go_by_all_ways(store: dict[str, str], spark: Any) -> None:  # noqa: F811
    url, other = "s3a://bucket/batch", "s3://bucket/batch"
    given = {**TABLE, **store}
    said = ms.write_batch(numbers(spark, 0, 20, 1), url, options=given)
    assert said.status == "committed"
    said = ms.write_batch(numbers(spark, 10, 30, 2), other, options={**given, **EXECUTORS})
    assert said.status == "committed"
    rows = numbers(spark, 25, 40, 3)
    rows.write.format("mainstem").mode("append").options(**given).save(url)
    expected = [(n, n * (1 if n < 10 else 2 if n < 25 else 3)) for n in range(40)]
    assert rows_of(url, store) == by_spark(spark, url, store) == by_spark(spark, other, store) == expected
    storage = mainstem.open_table(url, store).opened.seams.storage
    for path in (".hoodie/.mainstem/spark", ".hoodie/.heartbeat"):
        for name in storage.names(path):
            assert b"mainstem-12345" not in storage.read(f"{path}/{name}", max_bytes=1 << 20)


@pytest.mark.parametrize("way", ["driver", "executors", "data source"])
def test_a_stream_is_exactly_once(store: dict[str, str], spark: Any, tmp_path: Path, way: str) -> None:  # noqa: F811
    url = f"s3a://bucket/stream-{way.split()[0]}"
    given = {**TABLE, **store, **(EXECUTORS if way == "executors" else {})}
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    rows = source.selectExpr("value as id", "value * 10 as v")
    folder = tmp_path / "checkpoint"

    def run() -> None:
        if way == "data source":
            stream = rows.writeStream.foreachBatch(
                lambda df, _: df.write.format("mainstem").mode("append").options(**given).save(url)
            ).option("checkpointLocation", str(folder))
            query = stream.trigger(processingTime="100 milliseconds").start()
        else:
            query = ms.write_stream(
                rows, url, options=given, checkpoint=str(folder), trigger="100 milliseconds"
            )
        start = progress(folder)
        while query.isActive and progress(folder) < start + 2:
            query.awaitTermination(0.1)
        query.stop()
        assert query.exception() is None

    run()
    newest = max((folder / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # the sink had committed, and Spark had not noted it
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    run()
    found = rows_of(url, store)
    assert found == [(n, n * 10) for n in range(len(found))] and len(found) >= 60
    done = [i for i in mainstem.open_table(url, store).timeline() if i.action == "deltacommit"]
    assert len(done) == len(found) / 20


def progress(folder: Path) -> int:
    commits = folder / "commits"
    return max((int(p.name) for p in commits.glob("[0-9]*")), default=-1) if commits.exists() else -1


def test_compactions_and_indexes_are_made_by_tasks(
    store: dict[str, str], spark: Any, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    url, given = "s3a://bucket/tended", {**TABLE, **store}
    for factor in range(1, 4):
        ms.write_batch(numbers(spark, 0, 40, factor), url, options=given)
    with monkeypatch.context() as patch:
        patch.setattr(compaction.GroupTask, "run", lambda *_, **__: pytest.fail("it ran in the driver"))
        runs = ms.run_services(spark, url, properties=store, if_due=False)
    assert all(run.error is None for run in runs), runs
    (done,) = next(run for run in runs if run.service == "compact").results
    assert len(done.files) == 2 and done.rows == 40
    ms.create_index(spark, url, "record_index", properties=store)
    ms.write_batch(numbers(spark, 30, 50, 9), url, options=given)
    assert rows_of(url, store) == [(n, n * (3 if n < 30 else 9)) for n in range(50)]
    table = mainstem.open_table(url, store)
    report = table.validate_metadata()
    assert report is not None and report.ok
    assert {one.kind for one in table.indexes()} >= {"files", "record_index"}


def test_a_stream_reads_what_is_written_meanwhile(
    store: dict[str, str], spark: Any, tmp_path: Path  # noqa: F811
) -> None:
    url, given = "s3a://bucket/followed", {**TABLE, **store}
    ms.write_batch(numbers(spark, 0, 10, 1), url, options=given)
    source = spark.readStream.format("mainstem").options(**store).load(url).select("id", "v")
    for number in range(2):
        query = source.writeStream.format("parquet").trigger(availableNow=True)
        query = query.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out"))
        query.awaitTermination(120)
        assert query.exception() is None
        if not number:
            ms.write_batch(numbers(spark, 10, 15, 1), url, options=given)
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()
    assert sorted(found["id"].to_pylist()) == list(range(15))
