"""Goal: compaction changes no answer, stops nobody, and survives whatever happens to its executors.

Method: small tables in every merge mode are compacted while transactions are open, by executors that
die, stop, race or meet another engine's leftovers; every answer before is compared with the one after.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unavailable, Unsupported
from mainstem.services import compact_group, compaction
from mainstem.storage import paths
from mainstem.timeline.plans import encode_rollback_metadata, encode_rollback_plan
from mainstem.writers import rollback
from tests.services.city_table import QUICK, aged, base_files, content, make, rows

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.supports("Services", "compaction: planned and executed beside running writers")


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return make(tmp_path / "t")


@pytest.mark.parametrize(
    "ordering, properties",
    [
        pytest.param("ts", {}, id="event time"),
        pytest.param("", {}, id="commit time"),
        pytest.param("", {"hoodie__table__partial__update__mode": "IGNORE_DEFAULTS"}, id="partial"),
    ],
)
def test_every_answer_is_the_same_before_and_after(tmp_path, ordering, properties):
    table = make(tmp_path / "t", ordering=ordering, **properties)
    for number in range(4):
        table.upsert(rows(range(number, 20), 10 - number if number % 2 else 10 + number, f"w{number}-"))
    table.delete(rows([3, 4], 0).select(["id", "city"]))
    if properties:
        table.update_columns(rows([5, 6, 30], 0, "one column").select(["id", "city", "value"]))
    snapshot, changes = content(table), table.changes().to_arrow().num_rows
    (done,) = table.compact()
    assert done.completion and done.rows == snapshot.num_rows and done.log_files > 4
    assert content(table).equals(snapshot)
    assert content(table, mode="read_optimized").equals(snapshot)
    assert table.changes().to_arrow().num_rows == changes
    assert {s.base_file is not None and not s.log_files for s in table.file_slices() if s.latest} == {True}
    table.upsert(rows(range(10, 25), 100, "later"))
    expected = content(table)
    table.compact()
    assert content(table).equals(expected)


def test_rows_of_base_files_keep_their_commit_and_name_the_file_they_are_in(table):
    first = table.upsert(rows(range(4), 1)).instant
    second = table.upsert(rows([2], 2)).instant
    table.compact()
    for file in base_files(table):
        found = pq.read_table(file)
        assert set(found["_hoodie_file_name"].to_pylist()) == {file.name}
        expected = [second if key == "k02" else first for key in found["id"].to_pylist()]
        assert found["_hoodie_commit_time"].to_pylist() == expected


def test_a_transaction_that_is_open_while_a_compaction_is_planned_and_executed_loses_nothing(table):
    table.upsert(rows(range(6), 1))
    with table.begin() as early, table.begin() as never:
        early.write(rows([0, 1], 5, "early"))
        never.write(rows([2], 9, "never"))
        planned = table.schedule_compaction()
        with table.begin() as between:
            between.write(rows([3, 9], 5, "between"))
            between.commit()
        expected = content(table)
        (done,) = table.run_compaction(planned)
        assert done.completion
        assert content(table).equals(expected)
        early.commit()
        never.abort()
    found = dict(zip(*table.scan(columns=["id", "value"]).to_arrow().to_pydict().values(), strict=True))
    assert found == {
        "k00": "early0", "k01": "early1", "k02": "v2", "k03": "between3", "k04": "v4", "k05": "v5",
        "k09": "between9",
    }  # fmt: skip
    expected = content(table)
    table.compact()
    assert content(table).equals(expected)


def test_nothing_is_planned_where_nothing_was_logged(table):
    assert table.compact() == []
    table.upsert(rows([1], 1))
    assert len(table.compact()) == 1
    assert table.schedule_compaction() is None
    table.upsert(rows([1], 2))
    (slice_,) = [s for s in table.file_slices() if s.log_files and s.base_file]
    table.compact()
    touched = {o.name.split("_")[0] for o in base_files(table)[-1:]}
    assert touched == {slice_.file_id}


def test_a_group_that_lost_all_its_rows_gets_an_empty_base_file(table):
    table.upsert(rows([1], 1))
    table.delete(rows([1], 0).select(["id", "city"]))
    (done,) = table.compact()
    assert done.rows == 0 and content(table).num_rows == 0
    table.upsert(rows([1], 2))
    assert content(table).num_rows == 1


def test_hudis_triggers_decide_when_a_compaction_is_due(tmp_path):
    table = make(tmp_path / "t")
    for number in range(4):
        table.upsert(rows([1], number))
        assert table.schedule_compaction(if_due=True) is None
    table.upsert(rows([1], 9))
    assert table.schedule_compaction(if_due=True) is not None
    table.run_compaction()
    assert table.schedule_compaction(if_due=True) is None
    often = mainstem.open_table(table.path, {**QUICK, "hoodie.compact.inline.max.delta.commits": "1"})
    assert often.schedule_compaction(if_due=True) is None
    often.upsert(rows([1], 10))
    assert often.schedule_compaction(if_due=True) is not None
    by_time = {**QUICK, "hoodie.compact.inline.trigger.strategy": "TIME_ELAPSED"}
    table.run_compaction()
    table.upsert(rows([1], 11))
    assert mainstem.open_table(table.path, by_time).schedule_compaction(if_due=True) is None
    by_time["hoodie.compact.inline.max.delta.seconds"] = "1"
    time.sleep(1.1)
    assert mainstem.open_table(table.path, by_time).schedule_compaction(if_due=True) is not None


def test_a_strategy_bounds_and_orders_the_plan_and_others_are_named(tmp_path):
    table = make(tmp_path / "t")
    table.upsert(rows(range(20), 1))
    for number in range(3):
        table.upsert(rows([2], 2 + number))
    package = "org.apache.hudi.table.action.compact.strategy."
    few = {**QUICK, "hoodie.compaction.strategy": package + "BoundedIOCompactionStrategy",
           "hoodie.compaction.target.io": "1"}  # fmt: skip
    mainstem.open_table(table.path, few).compact()
    assert len(base_files(table)) == 1
    several = {**QUICK, "hoodie.compaction.strategy": package + "LogFileNumBasedCompactionStrategy",
               "hoodie.compaction.logfile.num.threshold": "2"}  # fmt: skip
    mainstem.open_table(table.path, several).compact()
    logs = [s.log_files for s in table.file_slices() if s.latest and s.log_files]
    assert logs and all(len(names) == 1 for names in logs), "only the group with four logs had enough"
    other = {**QUICK, "hoodie.compaction.strategy": "com.example.Own"}
    with pytest.raises(Unsupported, match=r"com\.example\.Own.*LogFileSizeBased"):
        mainstem.open_table(table.path, other).schedule_compaction()


def test_a_plan_that_a_living_executor_has_is_left_to_it_and_taken_over_when_it_died(table):
    table.upsert(rows(range(6), 1))
    planned = table.schedule_compaction()
    beat = Path(table.path) / paths.heartbeat(planned)
    beat.parent.mkdir(exist_ok=True)
    beat.touch()
    assert table.run_compaction() == []
    aged(table)
    (done,) = table.run_compaction()
    assert done.requested == planned and done.completion
    assert not beat.exists()


def test_an_execution_that_failed_is_done_again_from_the_same_plan(table, monkeypatch):
    table.upsert(rows(range(20), 1))
    expected = content(table)
    planned = table.schedule_compaction()
    write, calls = compact_group.write_base_file, []

    def full_disk(*given):
        calls.append(given)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(*given)

    monkeypatch.setattr(compact_group, "write_base_file", full_disk)
    with pytest.raises(Unavailable, match=rf"compaction {planned} did not end.*execute it again"):
        table.run_compaction()
    assert content(table).equals(expected)
    assert 1 <= len(base_files(table)) < len(table.file_slices()), "what is done stays"
    (done,) = table.run_compaction()
    assert done.requested == planned and done.completion and content(table).equals(expected)
    assert not list((Path(table.path) / paths.PREPARED).glob("*"))


def test_damage_in_a_planned_log_is_an_error_and_the_plan_stays(table):
    table.upsert(rows([1], 1))
    table.upsert(rows([1], 2))
    planned = table.schedule_compaction()
    log = min(Path(table.path).rglob(".*.log.1_*"))
    log.write_bytes(log.read_bytes()[:-10])
    with pytest.raises(CorruptTable, match=log.name):
        table.run_compaction()
    assert [i.requested for i in table.timeline() if i.action == "compaction"] == [planned]
    assert base_files(table) == [] and log.exists()


def test_what_a_dead_java_executor_left_is_removed_and_what_a_living_one_makes_is_not(table):
    table.upsert(rows(range(6), 1))
    planned = table.schedule_compaction()
    slice_ = next(s for s in table.file_slices() if s.log_files)
    stray = Path(table.path) / slice_.partition / f"{slice_.file_id}_7-21-99_{planned}.parquet"
    stray.write_bytes(b"PAR1 cut off")
    with pytest.raises(Unavailable, match=rf"another engine.*{stray.name}"):
        table.run_compaction()
    assert stray.exists()
    aged(table)
    (done,) = table.run_compaction()
    assert done.completion and not stray.exists()
    assert content(table).num_rows == 6


@pytest.mark.parametrize("stopped_at", ["load_rollback_plan", "prepared"])
def test_a_rollback_of_javas_that_java_ended_meanwhile_takes_no_file_of_the_next_execution(
    table, monkeypatch, stopped_at
):
    table.upsert(rows(range(8), 1))
    before = content(table)
    planned = table.schedule_compaction()
    at, until = (f"{int(planned) + n}" for n in (1, 2))
    folder = Path(table.path) / paths.TIMELINE
    plan = encode_rollback_plan(planned, "compaction", [], table.path)
    (folder / f"{at}.rollback.requested").write_bytes(plan)
    done: list[compaction.Compaction] = []
    step = getattr(rollback, stopped_at)

    def stopped(*given):
        monkeypatch.setattr(rollback, stopped_at, step)
        (folder / f"{at}_{until}.rollback").write_bytes(
            encode_rollback_metadata(
                rollback_time=at, instant=planned, action="compaction", taken_ms=1, deleted={}
            )
        )
        # Java keeps the plan of a compaction that it rolled back.
        done.extend(mainstem.open_table(table.path, QUICK).run_compaction(planned))
        return step(*given)

    monkeypatch.setattr(rollback, stopped_at, stopped)
    assert table.rollback_failed_writes() == []
    assert done[0].completion and all((Path(table.path) / name).exists() for name in done[0].files)
    assert table.timeline()[-2].is_completed and content(table).equals(before)


def test_a_compaction_that_is_not_planned_cannot_be_executed(table):
    with pytest.raises(Invalid, match="no compaction 20260101000000000 is planned; pending are none"):
        table.run_compaction("20260101000000000")


@pytest.mark.disk("its other process knows only disks")
def test_tasks_run_in_other_processes_without_a_writer_and_the_claimant_completes_the_plan(table):
    table.upsert(rows(range(20), 1))
    table.upsert(rows(range(5, 25), 2))
    expected = content(table)
    planned = table.schedule_compaction()
    with compaction.executing(table.writer_context(), planned) as execution:
        assert table.run_compaction(planned) == [], "a living executor has it"
        sent = [pickle.dumps((task, f"{n:x}")) for n, task in enumerate(execution.tasks)]
        back = [pickle.loads(run_elsewhere(one)) for one in (sent[0], *sent)][1:]
        with pytest.raises(Invalid, match="expects the results of its 4 tasks, in their order; these 3 "):
            execution.complete(back[1:])
        done = execution.complete(back)
    assert done.completion and done.rows == 25 and len(done.files) == len(sent)
    assert content(table, mode="read_optimized").equals(expected)
    with compaction.executing(table.writer_context(), planned) as late:
        assert late.tasks == () and late.complete([]).completion == done.completion
    assert not list((Path(table.path) / paths.PREPARED).glob("*"))


def run_elsewhere(task: bytes) -> bytes:
    code = "import pickle, sys; task, name = pickle.load(sys.stdin.buffer);" \
        " sys.stdout.buffer.write(pickle.dumps(task.run(name)))"  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code], input=task, stdout=subprocess.PIPE, check=True, env=environment
    ).stdout


def test_progress_is_told_after_each_file_group(table):
    table.upsert(rows(range(20), 1))
    told = []
    (done,) = table.compact(progress=lambda *given: told.append(given))
    groups = len(done.files)
    assert told == [(f"compaction {done.requested}, file groups", n + 1, groups) for n in range(groups)]


STOPPED = """
import os, signal, sys, time
import mainstem
from mainstem.storage.local import LocalStorage
link, stopped = LocalStorage.link, []
def stop_before_the_first_base_file(self, source, target):
    if target.endswith(".parquet") and not stopped:
        stopped.append(target)
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.1)  # this thread may run on for a moment
    return link(self, source, target)
LocalStorage.link = stop_before_the_first_base_file
table = mainstem.open_table(sys.argv[1], {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False})
try:
    print(table.run_compaction(), flush=True)
except mainstem.Unavailable as error:
    print("refused:", error, flush=True)
"""


@pytest.mark.disk("its other process knows only disks")
def test_a_stopped_executor_that_wakes_up_after_another_one_neither_adds_nor_deletes_nor_completes(table):
    table.upsert(rows(range(6), 1))
    table.schedule_compaction()
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPPED, table.path],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        assert stopped.stdout.readline() == "stopping\n"
        os.waitpid(stopped.pid, os.WUNTRACED)
        aged(table)
        (done,) = table.run_compaction()
        assert done.completion
        for file in base_files(table):  # as if a later clean had removed them
            file.rename(file.with_suffix(".cleaned"))
        before = sorted(str(p) for p in Path(table.path).rglob("*") if ".mainstem" not in str(p))
        stopped.send_signal(signal.SIGCONT)
        assert re.search("(completed|ended) by another executor", stopped.communicate(timeout=200)[0])
        after = sorted(str(p) for p in Path(table.path).rglob("*") if ".mainstem" not in str(p))
        assert after == before
    finally:
        stopped.kill()
        stopped.wait()
