"""Goal: Flink writes and reads tables of version 10 as it does those of version 9, and neither its jobs nor
streams of Spark notice that their table is upgraded.

Method: real jobs in one MiniCluster, and a Spark session for the upgrade; numbers from 1 up show that every
row is there once. The files that they leave are looked at.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyflink", reason="apache-flink is not installed (it has no wheel for this Python)")
from test_flink_select import OPTIONS, found, handed_out, rows, times, watch
from test_flink_writers import WAIT_MS, numbers, rows_of, table, wait_for

import mainstem
from mainstem.flink import connect
from mainstem.flink.options import FlinkReadOptions
from mainstem.flink.source import read
from mainstem.storage import paths
from tests.spark.conftest import spark  # noqa: F401 - a fixture

LAYOUTS = ("default", "lsm_tree")
ONE = "id STRING, n BIGINT, PRIMARY KEY (id) NOT ENFORCED"


def logs_of(path: Path) -> dict[Path, paths.LogName]:
    """The log files of a table without partitions."""
    names = ((file, paths.parse_log_name(file.name)) for file in path.iterdir())
    return {file: log for file, log in names if log is not None}


def check_files(path: Path, layout: str) -> None:
    """All logs are native, and files of an LSM tree are sorted."""
    logs = logs_of(path)
    assert {log.is_native for log in logs.values()} == {True}, logs
    for file in logs if layout == "lsm_tree" else ():
        keys = pq.read_table(file)["_hoodie_record_key"].cast(pa.binary())
        assert pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is not False, file


@pytest.mark.slow
@pytest.mark.supports("Engines", "Flink: writes, updates, streams out of tables of version 10, both layouts")
def test_a_job_updates_and_deletes_rows_of_tables_of_version_10(environment, tmp_path):
    flink = environment("200 ms", 1)
    source = numbers(flink, "source", 1000, 2000)
    job = flink.create_statement_set()
    grouped = f"SELECT id / 300 AS g, COUNT(*) AS n FROM {source} GROUP BY id / 300"
    for layout in LAYOUTS:
        options = {"hoodie.write.table.version": "10", "hoodie.table.storage.layout": layout}
        sink = table(flink, f"t_{layout}", tmp_path / layout, ONE, **options)
        # Each row that comes moves its group from one row to another: rows are updated, and deleted.
        job.add_insert_sql(
            f"INSERT INTO {sink} SELECT 'é' || CAST(n AS STRING), COUNT(*) FROM ({grouped}) GROUP BY n"
        )
    job.execute().wait(WAIT_MS)
    for layout in LAYOUTS:
        written = mainstem.open_table(tmp_path / layout)
        assert written.config.version == 10 and written.config.sorted_files == (layout == "lsm_tree")
        assert found(written.scan()) == [("é101", 1), ("é299", 1), ("é300", 2)]
        check_files(tmp_path / layout, layout)
        assert [file for file in logs_of(tmp_path / layout) if file.name.endswith(".deletes.parquet")]
        _, splits = watch(written).look("0")
        assert handed_out(written, splits) == found(written.scan())
    stream = FlinkReadOptions(streaming=True, check_interval_s=1, start="0", tasks=1)
    reading = read(connect(environment(tasks=1)), written, stream, columns=["id", "n"]).execute()
    try:
        changes = reading.collect()
        first = sorted(tuple(next(changes)) for _ in range(3))
        written.upsert(rows(1, 2))
        second = sorted(tuple(next(changes)) for _ in range(2))
    finally:
        reading.get_job_client().cancel().result()
    assert (first, second) == (found(written.scan())[2:], [("k1", 1), ("k2", 2)])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_streaming_read_hands_out_native_rows_once(tmp_path, layout):
    """Of the default layout after an upgrade; an LSM tree has one version."""
    tree = layout == "lsm_tree"
    properties = {**OPTIONS, "hoodie.table.storage.layout": layout} if tree else OPTIONS
    table = mainstem.create_table(
        tmp_path / "t", rows(1).schema, record_key="id", buckets=2, properties=properties,
        table_version=10 if tree else 9,
    )  # fmt: skip
    table.upsert(rows(1, 2))
    position, splits = watch(table).look("0")
    assert handed_out(table, splits) == [("k1", 1), ("k2", 2)]
    late = table.begin()
    late.write(rows(7))
    mainstem.open_table(tmp_path / "t").upgrade(10)
    late.commit()
    table.upsert(rows(2, n=20))
    table.delete(rows(1))
    later, splits = watch(table).look(position)
    assert handed_out(table, splits) == [("k2", 20), ("k7", 7)]
    table.compact()
    again, splits = watch(table).look(later)
    assert handed_out(table, splits) == [] and again == times(table)[-1]


@pytest.mark.slow
@pytest.mark.nothing_lost
@pytest.mark.timeout(1500)
@pytest.mark.supports("Services", "upgrade to version 10 beside a Flink job and streams of Spark")
def test_a_table_is_upgraded_while_a_flink_job_and_spark_streams_write_and_read_it(
    environment,
    spark,  # noqa: F811
    tmp_path,
):
    from mainstem import spark as ms

    path = tmp_path / "t"
    flink = environment("1 s", 1)
    source = numbers(flink, "source", 100_000, 100)  # a quarter of an hour: it ends when it is stopped
    columns = "who STRING, id BIGINT, PRIMARY KEY (who, id) NOT ENFORCED"
    # The reads may take longer than it takes to make as many commits as are kept.
    kept = {"clean.async.enabled": "false", "hoodie.archive.automatic": "false"}
    kept["hoodie.write.table.version"] = "9"  # jobs may say so, and go on with these options
    sink = table(flink, "sink", path, columns, **{"hoodie.bucket.index.num.buckets": "2"}, **kept)
    job = flink.execute_sql(f"INSERT INTO {sink} SELECT 'flink', id FROM {source}")
    wait_for(lambda: job.outcomes)

    outcomes = []
    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    options = {
        "hoodie.datasource.write.recordkey.field": "who,id", "hoodie.bucket.index.num.buckets": 2,
        "hoodie.mainstem.spark.driver.rows.max": 0, "hoodie.write.table.version": 9,
    }  # fmt: skip
    writing = ms.write_stream(
        made.selectExpr("'spark' who", "value + 1 id"), str(path), options=options,
        checkpoint=str(tmp_path / "c"), trigger="1 second",
        on_outcome=lambda _, outcome: outcomes.append(outcome),
    )  # fmt: skip
    told = []

    def read_on() -> None:
        """A streaming read from where the last one ended."""
        shown = spark.readStream.format("mainstem").load(str(path)).select("who", "id").writeStream
        shown = shown.foreachBatch(lambda batch, _: told.extend(map(tuple, batch.collect())))
        shown = shown.option("checkpointLocation", str(tmp_path / "r"))
        shown.trigger(availableNow=True).start().awaitTermination(400)

    def all_have_committed_natively() -> bool:
        native = {log.instant for log in logs_of(path).values() if log.is_native}
        assert writing.exception() is None
        return all({o.instant for o in done} & native for done in (job.outcomes, outcomes))

    try:
        wait_for(lambda: outcomes, 400)
        assert not all_have_committed_natively()
        read_on()
        mainstem.open_table(path).upgrade(10)
        wait_for(all_have_committed_natively, 400)
        writing.stop()
        job.get_job_client().stop_with_savepoint(False, str(tmp_path / "saved")).result()
        job.wait(WAIT_MS)
        assert job.error is None and writing.exception() is None
    except BaseException as error:
        error.add_note(f"Flink's committer: {job.error}; Spark's stream: {writing.status}")
        job.get_job_client().cancel()
        raise
    finally:
        writing.stop()
    before = len(told)
    read_on()
    assert 0 < before < len(told)
    every = rows_of(path)
    for who in ("flink", "spark"):
        written = sorted(row["id"] for row in every if row["who"] == who)
        assert written == list(range(1, len(written) + 1)) and written
        assert sorted(number for whose, number in told if whose == who) == written
    assert sum(o.rows for o in job.outcomes) == sum(row["who"] == "flink" for row in every)
    assert {log.is_native for log in logs_of(path).values()} == {True, False}
    mainstem.open_table(path).compact()
    assert sorted(map(str, rows_of(path))) == sorted(map(str, every))
