"""Goal: a Spark session runs table services for tables of any size, and a stream in the driver has them
beside it by default, as Hudi's does, without waiting. It builds indexes, and obeys Hudi's SQL about them.

Method: one small session; tables are compacted by its tasks and compared with what they held before;
streams with small triggers are watched on the timeline; what tasks built is compared with what this process
builds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.api.job_table import exists
from mainstem.errors import Invalid, Unsupported
from mainstem.indexing import initial_rows
from mainstem.layout.properties import load_config
from mainstem.readers.planning.table_state import TableState
from mainstem.services import compaction
from mainstem.services.runner import ServiceWarning
from mainstem.spark import in_tasks as on_spark
from mainstem.storage.backends import location_of
from mainstem.storage.local import LocalStorage

pytestmark = pytest.mark.spark

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 3,
    "hoodie.time.generator.max_expected_clock_skew_ms": 5,
    "hoodie.compact.inline.max.delta.commits": 2,
}
WAIT_S = 200
QUICK = {"hoodie.time.generator.max_expected_clock_skew_ms": 0, "hoodie.mainstem.fsync": False}


def actions(path: Path) -> list[str]:
    timeline = mainstem.open_table(path).timeline()
    return [f"{i.action}{'' if i.is_completed else '?'}" for i in timeline]


def content(path: Path) -> list[dict]:
    found = mainstem.open_table(path).scan(columns=["id", "v"]).to_arrow()
    return found.sort_by("id").to_pylist()


def eventually(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.05)


def written(spark, path: Path, batches: int = 3) -> Path:
    for number in range(batches):
        ms.write_batch(spark.range(40).selectExpr("id", f"id + {number} as v"), str(path), options=OPTIONS)
    return path


@pytest.mark.supports("Services", "services on Spark: a task per file group")
def test_each_file_group_is_compacted_by_a_task_and_nothing_changes(spark, tmp_path, monkeypatch):
    path = written(spark, tmp_path / "t")
    before = content(path)
    monkeypatch.setattr(
        compaction.GroupTask, "run", lambda *_, **__: pytest.fail("a task ran in the driver")
    )
    told: list[tuple[str, int, int]] = []
    runs = ms.run_services(
        spark, str(path), properties=OPTIONS, progress=lambda *step: told.append(step)
    )
    found = {run.service: run for run in runs}
    (done,) = found["compact"].results
    assert done.completion and len(done.files) == 3 and done.rows == 40
    assert told[-1] == (f"compaction {done.requested}, file groups", 3, 3)
    assert all(run.error is None for run in runs)
    assert content(path) == before
    assert mainstem.open_table(path).scan(mode="read_optimized").to_arrow().num_rows == 40
    assert [run.results for run in ms.run_services(spark, str(path), only="compact")] == [()]


def test_damage_that_a_task_meets_is_told_as_it_is_and_the_plan_stays(spark, tmp_path):
    path = written(spark, tmp_path / "t")
    log = next(path.glob(".*.log.*"))
    with open(log, "r+b") as file:
        file.seek(30)
        file.write(b"\xff" * 60)
    with pytest.warns(ServiceWarning, match="compact of"):
        (run,) = ms.run_services(spark, str(path), only="compact", properties=OPTIONS)
    assert isinstance(run.error, mainstem.CorruptTable)
    assert log.name in str(run.error)
    assert actions(path)[-1] == "compaction?"


def test_a_task_that_dies_is_repeated_by_spark(spark, tmp_path, monkeypatch):
    path = written(spark, tmp_path / "t")
    before = content(path)
    marks = tmp_path / "died"
    marks.mkdir()
    real = on_spark.pickle.dumps

    class DiesOnce:
        """A pickled task that ends the worker the first time it is run, after its file was made."""

        def __init__(self, task: object) -> None:
            self.task, self.mark = task, str(marks / task.file_name)

        def run(self, identity: str) -> object:
            made = self.task.run(identity)
            if not os.path.exists(self.mark):
                open(self.mark, "w").close()
                os._exit(1)
            return made

    def dumps(thing: object) -> bytes:
        from pyspark import cloudpickle

        return cloudpickle.dumps(DiesOnce(thing)) if isinstance(thing, compaction.GroupTask) else real(thing)

    monkeypatch.setattr(on_spark.pickle, "dumps", dumps)
    (run,) = ms.run_services(spark, str(path), only="compact", properties=OPTIONS)
    assert run.error is None and run.results[0].rows == 40
    assert len(list(marks.iterdir())) == 3
    assert content(path) == before


def test_wrong_arguments_are_refused_before_anything_runs(spark, tmp_path):
    with pytest.raises(Invalid, match="no service is called 'compcat'"):
        ms.run_services(spark, str(written(spark, tmp_path / "t", 1)), only="compcat")
    with pytest.raises(Invalid, match="no Hudi table"):
        ms.run_services(spark, str(tmp_path / "nothing"))


def stream(spark, path: Path, checkpoint: Path, more: dict, write: Callable | None = None):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    df = source.selectExpr("value % 20 as id", "value as v")
    if write is None:
        return ms.write_stream(
            df, str(path), options={**OPTIONS, **more}, checkpoint=str(checkpoint), trigger="50 milliseconds"
        )
    written_by = df.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return written_by.trigger(processingTime="50 milliseconds").start()


@pytest.mark.supports("Services", "services beside a Spark streaming query, by default")
def test_a_stream_is_compacted_and_cleaned_beside_itself_and_no_batch_fails(spark, tmp_path):
    path = tmp_path / "t"
    query = stream(spark, path, tmp_path / "c", {"hoodie.clean.commits.retained": 2})
    try:
        eventually(
            lambda: (
                (exists(location_of(path)) and {"commit", "clean"} <= set(actions(path)))
                or query.exception()
            )
        )
    finally:
        query.stop()
    assert query.exception() is None
    assert all(row["v"] % 20 == row["id"] for row in content(path))


def test_writes_inside_foreach_batch_have_services_beside_them_too(spark, tmp_path):
    path = tmp_path / "t"

    def write(df, batch):
        ms.write_batch(df, str(path), options=OPTIONS)

    query = stream(spark, path, tmp_path / "c", {}, write)
    try:
        eventually(lambda: (exists(location_of(path)) and "commit" in actions(path)) or query.exception())
    finally:
        query.stop()
    assert query.exception() is None


@pytest.mark.parametrize(
    "off", [{"hoodie.table.services.enabled": False}, {"hoodie.mainstem.services": "off"}], ids=str
)
def test_a_stream_whose_options_switch_services_off_has_none(spark, tmp_path, off):
    path = tmp_path / "t"
    query = stream(spark, path, tmp_path / "c", off)
    try:
        eventually(lambda: (exists(location_of(path)) and len(actions(path)) >= 5) or query.exception())
    finally:
        query.stop()
    assert query.exception() is None
    assert {action.rstrip("?") for action in actions(path)} == {"deltacommit"}


def test_a_plain_batch_write_runs_services_only_when_asked(spark, tmp_path):
    path = written(spark, tmp_path / "t", 4)
    assert set(actions(path)) == {"deltacommit"}
    inline = {**OPTIONS, "hoodie.compact.inline": True}
    ms.write_batch(spark.range(3).selectExpr("id", "id as v"), str(path), options=inline)
    assert actions(path)[-1] == "commit"
    df = spark.range(3).selectExpr("id", "-id as v")
    df.write.format("mainstem").mode("append").options(path=str(path), **inline).save()
    df.write.format("mainstem").mode("append").options(path=str(path), **inline).save()
    assert actions(path).count("commit") == 2


# -------------------------------------------------------------------------------------- indexes


@pytest.fixture(scope="module")
def indexed(spark, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sql") / "t"
    for number in range(2):
        rows = spark.range(40).selectExpr("id", f"id + {number} as v", "cast(id as string) as s")
        ms.write_batch(rows, str(folder), options={**OPTIONS, **QUICK})
    return folder


def rows_of(path: Path, partition: str = "column_stats") -> list[dict]:
    """All rows of an index."""
    storage = LocalStorage(str(path))
    metadata = TableState.load(storage, load_config(storage)).metadata_table
    assert metadata is not None
    return metadata.read(partition).sort_by("key").to_pylist()


@pytest.mark.supports("Indexes", "builds: Spark SQL, by CREATE, SHOW, DROP INDEX and REINDEX")
def test_an_index_lives_by_sql(spark, indexed):
    name = f"mainstem.`{indexed}`"
    spark.read.format("mainstem").load(str(indexed)).createOrReplaceTempView("seen")
    ms.sql(spark, f"CREATE TABLE known (id bigint) USING mainstem LOCATION '{indexed}'")

    def shown(table: str) -> list[tuple]:
        return [tuple(row) for row in ms.sql(spark, f"SHOW INDEXES FROM {table}").collect()]

    assert shown(name) == []
    columns = ["index_name", "index_type", "col_name", "state"]
    assert ms.sql(spark, f"SHOW INDEXES FROM {name}").columns == columns
    answer = ms.sql(spark, f"CREATE INDEX column_stats ON {name} USING column_stats (v)")
    assert answer.columns == [] and answer.collect() == []
    ms.sql(spark, "CREATE INDEX IF NOT EXISTS column_stats ON seen USING column_stats (v)")
    with pytest.raises(Invalid, match=r"CREATE INDEX .line 1, column 14.*there already"):
        ms.sql(spark, "CREATE INDEX column_stats ON known USING column_stats (v)")
    on = "_hoodie_commit_time,_hoodie_partition_path,_hoodie_record_key,v"
    expected = [("column_stats", "column_stats", on, "ready")]
    assert shown(name) == shown("seen") == shown("known") == expected
    ms.sql(spark, "CREATE INDEX by_s ON seen (s)")
    keyed = [("record_index", "record_index", "", "ready"),
             ("secondary_index_by_s", "secondary_index", "s", "ready")]  # fmt: skip
    assert shown(name) == [*expected, *keyed]
    unsafe = "hoodie.mainstem.index.unsafe.for.java = 'true'"
    with pytest.raises(Unsupported, match=r"hoodie\.mainstem\.index\.unsafe\.for\.java=true"):
        ms.sql(spark, "CREATE INDEX low ON seen USING column_stats (lower(s))")
    with pytest.raises(Unsupported, match="of the type 'bloom_filters'"):
        ms.sql(spark, f"CREATE INDEX low ON seen USING bloom_filters (s) OPTIONS (expr = 'lower', {unsafe})")
    ms.sql(spark, f"CREATE INDEX low ON seen USING column_stats (lower(s)) OPTIONS ({unsafe})")
    assert shown(name)[1] == ("expr_index_low", "expr_index", "s", "ready")
    ms.sql(spark, "DROP INDEX low ON seen")
    before = rows_of(indexed, "secondary_index_by_s")
    ms.sql(spark, "REINDEX ON seen")
    assert shown(name) == [*expected, *keyed]
    assert rows_of(indexed, "secondary_index_by_s") == before
    assert len(before) == 40
    ms.sql(spark, "DROP INDEX by_s ON known")
    ms.sql(spark, "DROP INDEX record_index ON known")
    ms.sql(spark, "REFRESH INDEX column_stats ON known")
    assert shown(name) == expected
    report = mainstem.open_table(indexed).validate_metadata()
    assert report is not None and report.ok
    ms.sql(spark, "DROP INDEX column_stats ON seen")
    ms.sql(spark, "DROP INDEX IF EXISTS column_stats ON seen")
    with pytest.raises(Invalid, match="no index is called 'column_stats'"):
        ms.sql(spark, "DROP INDEX column_stats ON seen")
    assert shown(name) == []


def test_errors_name_line_and_column(spark, indexed):
    with pytest.raises(Invalid, match=r"\(line 2, column 25, at 'w\)'\): the table has no column 'w'"):
        ms.sql(spark, f"CREATE INDEX i ON mainstem.`{indexed}`\n  USING column_stats (v,w)")
    with pytest.raises(Invalid, match=r"line 1, column 19, .* there is no such table or view"):
        ms.sql(spark, "SHOW INDEXES FROM nothing")
    with pytest.raises(Invalid, match="no Hudi table"):
        ms.sql(spark, f"SHOW INDEXES FROM mainstem.`{indexed.parent}`")


def test_everything_else_is_left_to_spark(spark, indexed):
    from pyspark.errors import AnalysisException

    assert ms.sql(spark, "SELECT id + {n} AS x FROM range(2)", n=1).collect()[1].x == 2
    spark.read.format("mainstem").load(str(indexed)).filter("v > 3").createOrReplaceTempView("part")
    for table in ("part", "missing"):
        with pytest.raises(AnalysisException):
            ms.sql(spark, f"CREATE INDEX i ON {table} USING something (v) WITH nothing")


@pytest.mark.supports("Indexes", "builds: on Spark, a task per file group")
def test_tasks_make_the_rows_that_this_process_makes_and_dead_ones_are_repeated(
    spark, indexed, tmp_path, monkeypatch
):
    table = mainstem.open_table(indexed)
    table.drop_index("column_stats", if_exists=True)
    table.create_index("column_stats", ["v", "s"])
    expected = rows_of(indexed)
    table.drop_index("column_stats")
    monkeypatch.setattr(initial_rows, "here", lambda *_: pytest.fail("a piece ran in the driver"))
    marks, real = str(tmp_path), initial_rows.stats_of_files

    def dies_once(storage, piece):
        mark = os.path.join(marks, piece.files[0].file_id)
        if not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(1)
        return real(storage, piece)

    monkeypatch.setattr(initial_rows, "stats_of_files", dies_once)
    told: list[tuple[str, int, int]] = []
    built = ms.create_index(
        spark, str(indexed), "column_stats", ["v", "s"], progress=lambda *step: told.append(step)
    )
    assert told[-1] == ("index column_stats, file groups", 3, 3)
    assert len(list(tmp_path.iterdir())) == 3
    assert built.rows == len(expected)
    assert rows_of(indexed) == expected
    table.drop_index("column_stats")


def test_damage_that_a_task_meets_is_told_as_it_is_and_nothing_is_left(spark, tmp_path):
    folder = tmp_path / "t"
    ms.write_batch(spark.range(9).selectExpr("id", "id as v"), str(folder), options={**OPTIONS, **QUICK})
    log = next(folder.glob(".*.log.*"))
    with open(log, "r+b") as file:
        file.seek(30)
        file.write(b"\xff" * 60)
    with pytest.raises(mainstem.CorruptTable, match=log.name):
        ms.create_index(spark, str(folder), "column_stats")
    assert [i.name for i in mainstem.open_table(folder).indexes()] == ["files"]
