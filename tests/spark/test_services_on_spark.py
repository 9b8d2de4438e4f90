"""Goal: a Spark session runs table services for tables of any size, and a stream in the driver has them
beside it by default, as Hudi's does, without waiting.

Method: one small session; tables are compacted by its tasks and compared with what they held before;
streams with small triggers are watched on the timeline.
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
from mainstem.errors import Invalid
from mainstem.services import compaction
from mainstem.services.runner import ServiceWarning
from mainstem.spark import services as on_spark

pytestmark = pytest.mark.spark

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 3,
    "hoodie.time.generator.max_expected_clock_skew_ms": 5,
    "hoodie.compact.inline.max.delta.commits": 2,
}
WAIT_S = 60


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


@pytest.mark.supports("Services", "on Spark: a task per file group (mainstem.spark.run_services)")
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


@pytest.mark.supports("Services", "beside a Spark streaming query, by default")
def test_a_stream_is_compacted_and_cleaned_beside_itself_and_no_batch_fails(spark, tmp_path):
    path = tmp_path / "t"
    query = stream(spark, path, tmp_path / "c", {"hoodie.clean.commits.retained": 2})
    try:
        eventually(lambda: {"commit", "clean"} <= set(actions(path)) or query.exception())
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
        eventually(lambda: (path.exists() and "commit" in actions(path)) or query.exception())
    finally:
        query.stop()
    assert query.exception() is None


@pytest.mark.parametrize("off", ["hoodie.table.services.enabled", "hoodie.mainstem.services.automatic"])
def test_a_stream_whose_options_switch_services_off_has_none(spark, tmp_path, off):
    path = tmp_path / "t"
    query = stream(spark, path, tmp_path / "c", {off: False})
    try:
        eventually(lambda: (path.exists() and len(actions(path)) >= 5) or query.exception())
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
