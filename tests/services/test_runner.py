"""Goal: services run in the right order, each failing alone, when and only when they were asked to; no
writer waits for them or fails because of them.

Method: rounds, commits and threads on small tables; services are made to fail or to stand still.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.services import compaction, runner
from mainstem.services.after_commit import Due, Refreshes
from mainstem.services.background import Background
from mainstem.services.progress import silent
from mainstem.services.runner import Round, ServiceRun, ServiceWarning, warn_of_failures
from mainstem.services.service_switches import SERVICES, RunOptions
from mainstem.storage import paths

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
TIMES = itertools.count()
EVERY_2 = {"hoodie.compact.inline.max.delta.commits": 2}
WAIT_S = 150
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    return tmp_path / "t"


def opened(path: Path, **more: object) -> mainstem.Table:
    given = {"hoodie.mainstem.fsync": False, **EVERY_2}
    return mainstem.open_table(path, given | {k.replace("__", "."): v for k, v in more.items()})


def commit(table: mainstem.Table, times: int = 1) -> list[str]:
    ids = [f"k{i}" for i in range(8)]
    outcomes = [table.upsert(pa.table({"id": ids, "ts": [next(TIMES)] * 8}, SCHEMA)) for _ in range(times)]
    return [outcome.status for outcome in outcomes]


def actions(table: mainstem.Table) -> list[str]:
    return [f"{i.action}{'' if i.is_completed else '?'}" for i in table.timeline()]


def eventually(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.01)


def by_service(runs: list[ServiceRun]) -> dict[str, ServiceRun]:
    return {run.service: run for run in runs}


class Fails:
    """A service that fails, the first few times or always, and can be counted."""

    def __init__(self, times: float = float("inf"), then: object = None) -> None:
        self.calls, self._times, self._then = 0, times, then

    def __call__(self, *args: object, **how: object) -> object:
        self.calls += 1
        if self.calls <= self._times:
            raise Unavailable("the disk is away")
        return self._then(*args, **how) if callable(self._then) else self._then


# -- rounds --------------------------------------------------------------------------------------


@pytest.mark.supports("Services", "services in rounds, by any number of processes")
def test_a_round_rolls_back_dead_writers_and_compacts_when_it_is_due(path: Path) -> None:
    table = opened(path)
    commit(table)
    dead = table.begin()
    dead.write(pa.table({"id": ["x"], "ts": [0]}, SCHEMA))
    table.writer_context().heartbeats.stop(dead.instant)
    found = by_service(opened(path).run_services())
    assert list(found) == list(SERVICES)
    assert [r.instant for r in found["rollback"].results] == [dead.instant]
    assert found["compact"].results == ()
    commit(table)
    (done,) = by_service(table.run_services())["compact"].results
    assert done.completion and actions(table).count("commit") == 1
    assert dead.instant in found["rollback"].describe()
    assert by_service(table.run_services())["compact"].describe() == "compact: nothing to do"


def test_without_triggers_a_round_plans_at_once_and_only_names_what_runs(path: Path) -> None:
    table = opened(path)
    commit(table)
    assert [run.service for run in table.run_services("compact")] == ["compact"]
    (run,) = table.run_services(["compact"], if_due=False)
    assert len(run.results) == 1
    with pytest.raises(Invalid, match=r"'compcat'.*rollback, log-compact, compact, clean, metadata, archive"):
        table.run_services("clean,compcat")


def test_a_round_executes_what_others_planned(path: Path) -> None:
    table = opened(path)
    commit(table)
    planned = table.schedule_compaction()
    (run,) = opened(path).run_services("compact")
    assert [done.requested for done in run.results] == [planned]


def test_each_service_fails_alone_with_a_warning(path: Path, monkeypatch) -> None:
    table = opened(path)
    commit(table, 2)
    monkeypatch.setattr(runner, "roll_back_failed_writes", Fails())
    with pytest.warns(ServiceWarning, match="rollback of .* failed: the disk is away") as told:
        found = by_service(table.run_services())
    assert [warning.category for warning in told].count(ServiceWarning) == 1
    assert isinstance(found["rollback"].error, Unavailable)
    assert "failed: the disk is away" in found["rollback"].describe()
    assert found["compact"].results[0].completion
    for name in SERVICES[2:]:
        assert found[name].error is None


def test_what_was_done_before_a_failure_is_told(path: Path, monkeypatch) -> None:
    table = opened(path)
    commit(table)
    table.schedule_compaction()
    commit(table, 2)
    monkeypatch.setattr(compaction, "schedule", Fails())
    with pytest.warns(ServiceWarning):
        (run,) = table.run_services("compact")
    assert len(run.results) == 1 and run.error is not None


def test_a_round_that_is_stopped_ends_between_two_steps(path: Path) -> None:
    ctx = opened(path).writer_context()
    answers = iter([False, False, True])
    assert [run.service for run in Round(stopping=lambda: next(answers)).run(ctx)] == list(SERVICES[:2])


# -- switches ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option, service",
    [
        ("hoodie.datasource.compaction.async.enable=false", "compact"),
        ("hoodie.datasource.write.streaming.disable.compaction=true", "compact"),
        ("hoodie.clean.automatic=false", "clean"),
        ("clean.async.enabled=false", "clean"),
        ("hoodie.archive.automatic=false", "archive"),
        ("hoodie.table.services.enabled=false", "rollback"),
    ],
)
def test_a_switch_keeps_a_service_out_of_rounds_unless_somebody_names_it(path, option, service):
    key, _, value = option.partition("=")
    ctx = mainstem.open_table(path, {key: value}).writer_context()
    run = by_service(Round().run(ctx))[service]
    assert run.off == option and option in run.describe()
    (run,) = Round.of(service).run(ctx)
    assert run.off is None and run.error is None


def test_one_job_plans_and_another_executes(path: Path) -> None:
    planner = opened(path, compaction__async__enabled=False)
    executor = opened(path, compaction__schedule__enabled=False)
    commit(planner, 2)
    assert by_service(executor.run_services())["compact"].results == ()
    assert by_service(planner.run_services())["compact"].results == ()
    assert actions(planner)[-1] == "compaction?"
    assert len(by_service(executor.run_services())["compact"].results) == 1
    neither = {"compaction.schedule.enabled": "false", "compaction.async.enabled": "false"}
    assert "compaction.schedule.enabled=false" in RunOptions.from_properties(neither).off["compact"]


@pytest.mark.parametrize(
    "given, after, beside",
    [
        ("", "", ""),
        ("hoodie.compact.inline=true", "compact", "vectors"),
        ("hoodie.clean.automatic=true hoodie.archive.automatic=true", "clean archive", ""),
        ("hoodie.clean.automatic=true hoodie.clean.async=true", "", "clean"),
        ("hoodie.clean.automatic=true hoodie.clean.async.enabled=true", "", "clean"),
        ("hoodie.archive.automatic=true hoodie.archive.async=true", "", "archive"),
        ("hoodie.log.compaction.inline=true", "log-compact", ""),
        ("hoodie.log.compaction.enable=true", "", "log-compact"),
        ("hoodie.datasource.compaction.async.enable=true", "", "compact vectors"),
        ("hoodie.mainstem.services=on", "", "compact clean metadata archive vectors"),
        (
            "hoodie.mainstem.services=on hoodie.compact.inline=true", "compact",
            "clean metadata archive vectors",
        ),
        (
            "hoodie.mainstem.services=on hoodie.clean.async=false", "clean",
            "compact metadata archive vectors",
        ),
        (
            "hoodie.mainstem.services=on clean.async.enabled=false", "",
            "compact metadata archive vectors",
        ),
        (
            "hoodie.mainstem.services=on hoodie.datasource.compaction.async.enable=false", "",
            "clean metadata archive vectors",
        ),
        ("hoodie.mainstem.services=on hoodie.table.services.enabled=false", "", ""),
        ("hoodie.compact.inline=true hoodie.table.services.enabled=false", "", ""),
        ("hoodie.table.metadata.partitions=files", "", ""),
        ("hoodie.table.metadata.partitions=files hoodie.mainstem.services=off", "metadata", ""),
    ],
)  # fmt: skip
def test_commits_run_or_wake_only_what_was_asked_for(given: str, after: str, beside: str) -> None:
    options = RunOptions.from_properties(dict(pair.split("=") for pair in given.split()))
    assert (" ".join(options.after), " ".join(options.beside)) == (after, beside)


@pytest.mark.parametrize(
    "given",
    [
        {"hoodie.compact.inline": "true", "hoodie.compact.schedule.inline": "true"},
        {"hoodie.clean.automatic": "perhaps"},
    ],
)
def test_switches_that_contradict_or_do_not_parse_are_refused_at_opening(path: Path, given: dict) -> None:
    with pytest.raises(Invalid, match=r"exclude each other|true or false"):
        mainstem.open_table(path, given).writer_context()


@pytest.mark.parametrize(
    "name, hint",
    [
        ("hoodie.clean.commits.retaind", "did you mean 'hoodie.clean.commits.retained'"),
        ("hoodie.compact.inlin", "did you mean 'hoodie.compact.inline'"),
        ("compaction.delta_commits", "here it is 'hoodie.compact.inline.max.delta.commits'"),
        ("clean.retain_commits", "here it is 'hoodie.clean.commits.retained'"),
        ("archive.max_commits", "here it is 'hoodie.keep.max.commits'"),
        ("compaction.tasks", "unknown option 'compaction.tasks'"),
    ],
)
def test_an_option_that_no_service_reads_is_refused_with_the_name_meant(path: Path, name, hint) -> None:
    with pytest.raises(Invalid, match=re.escape(hint)):
        mainstem.open_table(path, {name: "2"})
    with pytest.raises(Invalid, match=re.escape(hint)):
        mainstem.create_table(path.parent / "new", SCHEMA, record_key="id", properties={name: "2"})


@pytest.mark.parametrize("name", ["hoodie.clean.parallelism", "hoodie.clustering.async.enabled"])
def test_options_of_services_that_have_no_effect_are_told(path: Path, name: str) -> None:
    with pytest.warns(UserWarning, match=f"no effect in mainstem: {name}"):
        mainstem.open_table(path, {name: "true"})


def test_the_policy_of_failed_writes_is_read_by_its_older_name_too(path: Path) -> None:
    old = "hoodie.cleaner.policy.failed.writes"
    mainstem.open_table(path, {old: "LAZY"})
    with pytest.raises(Invalid, match=f"{old}=EAGER"):
        mainstem.open_table(path, {old: "EAGER"})


@pytest.mark.parametrize("pause", [0, -1, "30", float("nan"), float("inf")])
def test_a_pause_that_is_none_is_refused(path: Path, pause: object) -> None:
    with pytest.raises(Invalid, match="pause between rounds"):
        opened(path).services_in_background(every_s=pause)


# -- after a commit ------------------------------------------------------------------------------


def test_a_plain_writer_runs_nothing_that_nobody_asked_for(path: Path) -> None:
    table = opened(path)
    commit(table, 6)
    assert set(actions(table)) == {"deltacommit"}


@pytest.mark.supports("Services", "services after a commit, inline")
def test_an_inline_compaction_follows_the_commit_that_makes_it_due(path: Path) -> None:
    table = opened(path, hoodie__compact__inline=True)
    commit(table, 5)
    assert " ".join(actions(table)) == (
        "deltacommit deltacommit commit deltacommit deltacommit commit deltacommit"
    )


def test_cleaning_after_commits_comes_when_a_compaction_has_left_something_that_may_go(path: Path) -> None:
    table = opened(
        path, hoodie__compact__inline=True, hoodie__clean__automatic=True, hoodie__clean__commits__retained=3
    )
    commit(table, 10)
    found = actions(table)
    assert found.count("commit") == 5
    assert 2 <= found.count("clean") <= 4  # not after each of the seven commits that its trigger allows


def test_archiving_after_commits_keeps_the_timeline_short(path: Path) -> None:
    table = opened(
        path, hoodie__compact__inline=True, hoodie__clean__automatic=True, hoodie__clean__commits__retained=2,
        hoodie__archive__automatic=True, hoodie__keep__min__commits=4, hoodie__keep__max__commits=6,
    )  # fmt: skip
    commit(table, 20)
    assert 4 <= sum(action in ("commit", "deltacommit") for action in actions(table)) <= 8
    assert table.scan(columns=["id"]).to_arrow().num_rows == 8


def test_the_tables_own_properties_can_ask_for_it(path: Path) -> None:
    with open(path / paths.PROPERTIES, "a") as properties:  # as Hudi's `table update-configs` does
        properties.write("hoodie.compact.inline=true\nhoodie.compact.inline.max.delta.commits=2\n")
    table = mainstem.open_table(path)
    commit(table, 2)
    assert actions(table)[-1] == "commit"
    table = mainstem.open_table(path, {"hoodie.compact.inline": False})  # the caller's word counts more
    commit(table, 2)
    assert actions(table)[-1] == "deltacommit"


def test_a_commit_can_plan_and_leave_the_execution_to_others(path: Path) -> None:
    table = opened(path, hoodie__compact__schedule__inline=True)
    commit(table, 3)
    assert actions(table) == ["deltacommit", "deltacommit", "compaction?", "deltacommit"]


def test_a_failing_service_is_a_warning_and_the_commit_stands(path: Path, monkeypatch) -> None:
    table = opened(path, hoodie__compact__inline=True)
    commit(table)
    monkeypatch.setattr(compaction, "execute", Fails())
    with pytest.warns(ServiceWarning, match="compact of .* failed: the disk is away"):
        assert commit(table) == ["committed"]
    monkeypatch.undo()
    commit(table)
    assert actions(table).count("commit") == 1  # the plan stayed, and the next commit executed it


def test_a_thread_that_cannot_be_started_is_a_warning_and_the_commit_stands(path: Path, monkeypatch) -> None:
    table = opened(path, hoodie__mainstem__services="on")
    monkeypatch.setattr(Background, "start", Fails())
    with pytest.warns(ServiceWarning, match="could not be started: the disk is away"):
        assert commit(table, 2) == ["committed"] * 2


def test_to_know_that_nothing_is_due_takes_no_look_at_storage(path: Path) -> None:
    table = opened(path, hoodie__compact__inline=True)
    ctx = table.writer_context()
    commit(table)
    timeline = ctx.publisher.timeline()
    blind = replace(ctx, seams=replace(ctx.seams, storage=SimpleNamespace(base=ctx.base)))
    assert Due(blind, SERVICES).find(timeline) == set()
    one_more = timeline.with_file("20990101000000000_20990101000000001.deltacommit")
    assert Due(blind, SERVICES).find(one_more) == {"compact"}


# -- beside commits ------------------------------------------------------------------------------


@pytest.mark.supports("Services", "services beside commits, in a thread of the writer")
def test_commits_go_on_while_a_service_beside_them_stands_still(path: Path, monkeypatch) -> None:
    table = opened(path, hoodie__mainstem__services="on")
    entered, leave = threading.Event(), threading.Event()
    real = compaction.execute

    def slow(*args: object, **how: object) -> object:
        entered.set()
        assert leave.wait(WAIT_S)
        return real(*args, **how)

    monkeypatch.setattr(compaction, "execute", slow)
    commit(table, 2)
    assert entered.wait(WAIT_S)
    assert commit(table, 5) == ["committed"] * 5
    assert "commit" not in actions(table) and "compaction?" in actions(table)
    leave.set()
    eventually(lambda: "commit" in actions(table))
    table.writer_context().after_commit.stop()


def test_services_in_background_run_until_the_block_is_left(path: Path) -> None:
    table = opened(path)
    with table.services_in_background(every_s=0.01, only="compact"):
        commit(table, 2)
        eventually(lambda: "commit" in actions(table))
    found = actions(table)
    commit(table, 4)
    time.sleep(0.05)
    assert actions(table) == found + ["deltacommit"] * 4


def test_a_failed_round_beside_commits_is_repeated_without_another_commit(path: Path, monkeypatch) -> None:
    monkeypatch.setattr("mainstem.services.background.RETRY_S", 0.01)
    failing = Fails(2, compaction.execute)
    monkeypatch.setattr(compaction, "execute", failing)
    table = opened(path, hoodie__datasource__compaction__async__enable=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ServiceWarning)  # told in the thread
        commit(table, 2)
        eventually(lambda: "commit" in actions(table))
    assert failing.calls >= 3


def test_vector_indexes_are_looked_at_after_compactions_and_not_all_the_time(path: Path) -> None:
    table = opened(path)
    ctx = table.writer_context()
    now, looked, failing = [1_000.0], [], [False]
    clock = SimpleNamespace(monotonic_ms=lambda: now[0])

    def look(*_: object) -> list:
        looked.append(now[0])
        now[0] += 100  # so long it takes
        if failing[0]:
            raise Invalid("a row holds NaN")
        return []

    refreshes = Refreshes(replace(ctx, seams=replace(ctx.seams, clock=clock)), look)

    def commits(count: int = 1) -> bool:
        commit(table, count)
        due = [refreshes.are_due(ctx.publisher.timeline()) for _ in range(count)][-1]
        list(refreshes.run(ctx, True, silent))  # as the round of another service's
        return due

    assert not commits() and not looked
    table.compact()
    assert commits() and len(looked) == 1
    assert not commits() and len(looked) == 1
    table.compact()
    now[0] += 399  # it has taken 100
    assert not commits() and len(looked) == 1
    now[0] += 1
    assert commits() and len(looked) == 2
    now[0] += 400
    for _ in range(Refreshes.COMMITS - 1):
        assert not refreshes.are_due(ctx.publisher.timeline())
    assert commits() and len(looked) == 3, "every so many commits, for what was written since"
    table.compact()
    now[0] += 400
    failing[0] = True
    with pytest.raises(Invalid, match="NaN"):
        commits()
    now[0] += 400
    assert not commits() and len(looked) == 4, "what failed is not tried again at every commit"


ENDS_AT_ONCE = """
import sys, threading, time
import pyarrow as pa
import mainstem
from mainstem.services import compaction
execute, began = compaction.execute, threading.Event()
def slow(*args, **how):
    began.set()
    time.sleep(0.5)
    return execute(*args, **how)
compaction.execute = slow
table = mainstem.open_table(sys.argv[1], {"hoodie.mainstem.services": "on"})
for ts in range(5):
    table.upsert(pa.table({"id": ["a"], "ts": [ts]}))
began.wait()
"""


def test_the_end_of_the_process_waits_for_the_step_under_way(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_AT_ONCE, str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert actions(opened(path))[-1] == "commit"


def test_what_repeating_does_not_mend_waits_for_the_next_commit() -> None:
    lasting, passing = ServiceRun("clean", error=Unsupported("no")), ServiceRun("clean", error=OSError(5))
    with pytest.warns(ServiceWarning) as told:
        assert not warn_of_failures([lasting], "t")
        assert warn_of_failures([lasting, passing], "t")
        assert not warn_of_failures([ServiceRun("clean")], "t")
    assert [warning.category for warning in told].count(ServiceWarning) == 3


def test_a_woken_thread_ends_when_nothing_is_left_to_do_and_gives_up_after_some_failures(monkeypatch):
    monkeypatch.setattr("mainstem.services.background.RETRY_S", 0.001)
    rounds: list[int] = []
    quiet = Background(lambda stopping: rounds.append(1) or False)
    quiet.wake()
    eventually(lambda: rounds and quiet._thread is None)
    quiet.wake()
    eventually(lambda: len(rounds) == 2 and quiet._thread is None)
    failed: list[int] = []
    hopeless = Background(lambda stopping: failed.append(1) or True)
    hopeless.wake()
    eventually(lambda: hopeless._thread is None)
    assert len(failed) == 6
