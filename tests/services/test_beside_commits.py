"""Goal: a table that is only written to stays fast, whoever writes it, and no writer notices the services
that see to it.

Method: plain writers in loops, in threads and in processes of their own, some of which are killed or end at
once; what is on the timeline, in the folders and in the table is counted afterwards.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.real_seams import SERVICES_VARIABLE
from mainstem.errors import Invalid
from mainstem.readers.skipping import other_engines
from mainstem.services import beside_commits, compaction
from mainstem.services.metadata import metadata_compaction, metadata_overdue
from mainstem.services.runner import ServiceWarning
from mainstem.services.service_switches import RunOptions
from mainstem.storage import paths
from mainstem.timeline.active import load_timeline
from tests.golden_tables.tables import unpack

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
TIMES = itertools.count(1)
WAIT_S = 60
THREAD = "mainstem-services"


@pytest.fixture(autouse=True)
def by_default(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As a user's process runs, and without pauses, which would make counts depend on the machine."""
    monkeypatch.delenv(SERVICES_VARIABLE)
    monkeypatch.setattr(beside_commits, "PAUSE", 0)
    monkeypatch.setattr(beside_commits, "FRUITLESS_MS_MAX", 0.0)
    yield
    eventually(lambda: not services_run())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2)
    return tmp_path / "t"


def opened(path: Path, **more: object) -> mainstem.Table:
    given = {k.replace("__", "."): v for k, v in more.items()}
    at_once = {"hoodie.mainstem.archive.rest_ms": 0}  # in a store, too, instants may be archived
    return mainstem.open_table(path, {"hoodie.mainstem.fsync": False, **at_once, **given})


def commit(table: mainstem.Table, times: int = 1) -> None:
    for _ in range(times):
        ts = next(TIMES)
        rows = {"id": [*(f"k{i}" for i in range(8)), f"n{ts}"], "ts": [ts] * 9}
        assert table.upsert(pa.table(rows, SCHEMA)).status == "committed"


def services_run() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


def eventually(what: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.01)


def idle() -> None:
    eventually(lambda: not services_run())


def held_up(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Compactions wait: one has begun, and they may go on."""
    entered, leave, execute = threading.Event(), threading.Event(), compaction.execute

    def waiting(*args: object, **how: object) -> object:
        entered.set()
        assert leave.wait(WAIT_S)
        return execute(*args, **how)

    monkeypatch.setattr(compaction, "execute", waiting)
    return entered, leave


def actions(path: Path) -> Counter[str]:
    timeline = mainstem.open_table(path).timeline()
    return Counter(f"{i.action}{'' if i.is_completed else '?'}" for i in timeline)


def log_files(path: Path) -> int:
    return max(len(found.log_files) for found in mainstem.open_table(path).file_slices())


def check_rows(path: Path, commits: int) -> None:
    """Every commit left one new key and the newest values of eight; none is lost or there twice."""
    found = mainstem.open_table(path).scan(columns=["id", "ts"]).to_arrow().to_pydict()
    values = dict(zip(found["id"], found["ts"], strict=True))
    assert len(found["id"]) == len(values) == 8 + commits
    new = {key: ts for key, ts in values.items() if key.startswith("n")}
    assert all(key == f"n{ts}" for key, ts in new.items())
    assert {values[f"k{i}"] for i in range(8)} == {max(new.values())}


# -- a table that is only written to -------------------------------------------------------------


@pytest.mark.supports("Services", "services beside plain writers, by default")
@pytest.mark.slow
def test_three_hundred_upserts_leave_timeline_and_slices_as_short_as_thirty(path: Path) -> None:
    table = opened(path)
    seen: list[tuple[int, int, int]] = []
    for number in range(60):
        commit(table, 5)
        idle()
        if number >= 12:
            seen.append((sum(actions(path).values()), log_files(path), len(os.listdir(path))))
    instants, logs, files = (max(column) for column in zip(*seen, strict=True))
    assert instants <= 60 and logs <= 12 and files <= 120, (instants, logs, files)
    later = [max(column) for column in zip(*seen[24:], strict=True)]
    earlier = [max(column) for column in zip(*seen[:24], strict=True)]
    assert all(a <= b * 1.2 for a, b in zip(later, earlier, strict=True)), (earlier, later)
    check_rows(path, 300)


@pytest.mark.slow
def test_open_commit_and_scan_cost_as_much_after_three_hundred_upserts_as_after_sixty(path: Path) -> None:
    def cost() -> float:
        taken = []
        for _ in range(9):
            began = time.process_time()
            table = opened(path, hoodie__mainstem__services="off")
            commit(table)
            table.scan(columns=["id"]).to_arrow()
            taken.append(time.process_time() - began)
        return sorted(taken)[len(taken) // 2]

    def settled() -> None:
        commit(table, 5)
        idle()

    table = opened(path)
    for _ in range(12):
        settled()
    early = cost()
    for _ in range(46):
        settled()
    late = cost()
    assert late < early * 1.6 + 0.005, (early, late)


def test_a_loop_that_never_pauses_is_kept_up_with(path: Path) -> None:
    table = opened(path)
    commit(table, 150)
    idle()
    commit(table)
    idle()
    assert log_files(path) < 75
    assert sum(actions(path).values()) < 120
    check_rows(path, 151)


def test_a_program_that_opens_the_table_for_every_commit_has_one_thread(path: Path, monkeypatch) -> None:
    entered, leave = held_up(monkeypatch)
    for _ in range(20):
        commit(opened(path))
    assert entered.wait(WAIT_S)
    commit(opened(path), 5)
    assert services_run() == 1
    assert "commit" not in actions(path), "writers wait for nothing"
    leave.set()
    idle()
    assert actions(path)["commit"] >= 1
    check_rows(path, 25)


def test_of_several_tables_one_is_served_at_a_time(tmp_path: Path, monkeypatch) -> None:
    at_once, most, execute = [0], [0], compaction.execute

    def counted(*args: object, **how: object) -> object:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.02)
        try:
            return execute(*args, **how)
        finally:
            at_once[0] -= 1

    monkeypatch.setattr(compaction, "execute", counted)
    tables = [tmp_path / f"t{number}" for number in range(4)]
    for path in tables:
        mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2)
    for table in [opened(path) for path in tables]:
        commit(table, 6)
    idle()
    assert [actions(path)["commit"] >= 1 for path in tables] == [True] * 4
    assert most == [1]


def test_hudis_options_say_when(path: Path) -> None:
    table = opened(path, hoodie__compact__inline__max__delta__commits=12, hoodie__clean__automatic=False)
    commit(table, 11)
    idle()
    assert actions(path) == {"deltacommit": 11}
    commit(table)
    idle()
    assert actions(path)["commit"] == 1
    for _ in range(10):
        commit(table, 12)
        idle()
    assert actions(path)["clean"] == 0


def test_after_a_round_commits_wake_nobody_for_a_while(path: Path, monkeypatch) -> None:
    monkeypatch.setattr(beside_commits, "PAUSE", 10_000)
    table = opened(path)
    commit(table, 5)
    idle()
    assert actions(path)["commit"] == 1
    commit(table, 20)
    idle()
    commit(opened(path), 5)
    idle()
    assert actions(path)["commit"] == 1, "the pause is the table's, not the handle's"


def test_a_round_that_comes_to_nothing_is_repeated_ever_more_rarely() -> None:
    pace = beside_commits.Pace()
    beside_commits.FRUITLESS_MS_MAX = 60_000.0  # the fixture puts it back
    pauses = []
    for _ in range(20):
        pace.rest(0, 1, fruitful=False)
        pauses.append(pace.not_before_ms)
    assert pauses[:3] == [500, 1000, 2000] and pauses[-1] == 60_000
    pace.rest(0, 1, fruitful=True)
    pace.rest(0, 1, fruitful=False)
    assert pace.not_before_ms == 500


# -- what it costs those who need none -------------------------------------------------------------


ONE_UPSERT = """
import sys, threading
import pyarrow as pa
import mainstem
table = mainstem.open_table(sys.argv[1])
rows = pa.table({"id": ["a"], "ts": [1]}, pa.schema([("id", pa.string()), ("ts", pa.int64())]))
for _ in range(4):
    table.upsert(rows)
assert [t.name for t in threading.enumerate() if t.name == "mainstem-services"] == []
loaded = [m for m in sys.modules if m.startswith("mainstem.services.")]
assert not {"mainstem.services.compaction", "mainstem.services.runner"} & set(loaded), loaded
"""


def run(code: str, *given: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, given)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_script_that_makes_nothing_due_starts_and_loads_nothing(path: Path) -> None:
    done = run(ONE_UPSERT, path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("how", ["option", "table", "environment"])
def test_off_runs_nothing(path: Path, monkeypatch, how: str) -> None:
    more = {}
    if how == "option":
        more = {"hoodie__mainstem__services": "off"}
    elif how == "table":
        with open(path / ".hoodie/hoodie.properties", "a") as properties:
            properties.write("hoodie.mainstem.services=OFF\n")
    else:
        monkeypatch.setenv(SERVICES_VARIABLE, "off")
    table = opened(path, **more)
    commit(table, 40)
    assert services_run() == 0
    assert actions(path) == {"deltacommit": 40}


def test_the_callers_word_counts_more_than_the_environments(path: Path, monkeypatch) -> None:
    monkeypatch.setenv(SERVICES_VARIABLE, "off")
    commit(opened(path, hoodie__mainstem__services="auto"), 5)
    idle()
    assert actions(path)["commit"] == 1
    monkeypatch.setenv(SERVICES_VARIABLE, "perhaps")
    with pytest.raises(Invalid, match=r"hoodie\.mainstem\.services='PERHAPS', expected AUTO or ON or OFF"):
        opened(path).writer_context()


@pytest.mark.parametrize(
    "given, gently",
    [
        ("", "compact clean metadata archive vectors"),
        ("hoodie.mainstem.services=on", ""),
        ("hoodie.mainstem.services=off", ""),
        ("hoodie.table.services.enabled=false", ""),
        ("hoodie.compact.inline=true", "clean metadata archive"),
        ("hoodie.compact.schedule.inline=true", "clean metadata archive"),
        ("hoodie.datasource.compaction.async.enable=false", "clean metadata archive"),
        ("hoodie.datasource.compaction.async.enable=true", "clean metadata archive"),
        ("hoodie.clean.automatic=false", "compact metadata archive vectors"),
        ("hoodie.clean.automatic=true", "compact metadata archive vectors"),
        ("hoodie.archive.automatic=false", "compact clean metadata vectors"),
    ],
)
def test_what_was_set_is_not_done_twice(given: str, gently: str) -> None:
    options = RunOptions.from_properties(dict(pair.split("=") for pair in given.split()))
    assert " ".join(options.gently) == gently
    assert not {*options.after, *options.beside} & {*options.gently}


# -- what no writer may notice ---------------------------------------------------------------------


def test_no_compaction_is_planned_beside_a_bulk_insert_which_it_might_end(tmp_path: Path) -> None:
    path = tmp_path / "t"
    mainstem.create_table(path, SCHEMA, record_key="id", partition_by="ts", buckets=1)
    table = opened(path)
    with table.begin("bulk_insert") as load:
        load.write(pa.table({"id": ["x"], "ts": [0]}, SCHEMA))
        for _ in range(12):
            table.upsert(pa.table({"id": ["y"], "ts": [1]}, SCHEMA))
            idle()
        assert actions(path) == {"deltacommit": 12, "deltacommit?": 1}
        assert load.commit().status == "committed"
    table.upsert(pa.table({"id": ["y"], "ts": [1]}, SCHEMA))
    idle()
    assert actions(path)["commit"] == 1


def test_a_service_that_fails_is_told_once_and_never_to_the_writer(path: Path, monkeypatch, caplog) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError("the disk is away")

    monkeypatch.setattr(compaction, "execute", fails)
    table = opened(path)
    with warnings.catch_warnings(record=True) as told, caplog.at_level(logging.INFO):
        warnings.simplefilter("always")
        for _ in range(8):
            commit(table)
            idle()
        commit(opened(path), 3)
        idle()
    assert [str(w.message)[:40] for w in told if w.category is ServiceWarning] == [
        f"table service compact of {path}"[:40]
    ]
    assert caplog.text.count("the disk is away") >= 3
    monkeypatch.undo()
    monkeypatch.delenv(SERVICES_VARIABLE)
    commit(table, 3)
    idle()
    assert actions(path)["commit"] >= 1 and "compaction?" not in actions(path)
    check_rows(path, 14)


def test_a_thread_that_cannot_be_started_is_told_once(path: Path, monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("mainstem.services.background.Background.start", fails)
    table = opened(path)
    with pytest.warns(ServiceWarning, match="could not be started") as told:
        commit(table, 8)
    assert len(told) == 1


def test_of_a_table_that_was_removed_nothing_is_told(path: Path, monkeypatch) -> None:
    entered, leave = held_up(monkeypatch)
    commit(opened(path), 5)
    assert entered.wait(WAIT_S)
    shutil.rmtree(path)
    leave.set()
    idle()  # a warning would be an error here
    assert not (path / ".hoodie/hoodie.properties").exists()


def test_beside_another_engine_services_are_left_to_it(path: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(other_engines, "is_ours", lambda storage, name: False)
    table = opened(path)
    with caplog.at_level(logging.INFO):
        commit(table, 12)
        idle()
    assert actions(path) == {"deltacommit": 12}
    assert "another engine writes" in caplog.text and "hoodie.mainstem.services=on" in caplog.text
    commit(opened(path, hoodie__mainstem__services="on"))
    idle()
    assert actions(path)["commit"] == 1


@pytest.mark.parametrize("name", ["basic_mor", "flink_pending_compaction", "clean_mor_by_1_0_2"])
def test_an_instant_or_a_plan_of_java_is_another_engines(tmp_path: Path, name: str) -> None:
    table = mainstem.open_table(unpack(name, tmp_path))
    storage = table.opened.seams.storage
    ctx = SimpleNamespace(seams=SimpleNamespace(storage=storage))
    assert beside_commits.other_engines_instant(ctx, load_timeline(storage))


def test_our_own_instants_are_nobody_elses(path: Path) -> None:
    table = opened(path)
    commit(table, 60)
    idle()
    ctx = table.writer_context()
    assert beside_commits.other_engines_instant(ctx, ctx.publisher.timeline()) == ""


# -- forks, processes, ends ------------------------------------------------------------------------


@pytest.mark.here("a forked child has no threads of the library of stores, and is refused")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_inherits_no_thread_and_runs_its_own(path: Path, monkeypatch) -> None:
    execute = compaction.execute
    entered, leave = held_up(monkeypatch)
    table = opened(path)
    commit(table, 5)
    assert entered.wait(WAIT_S)
    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(compaction, "execute", execute)
            assert services_run() == 0
            commit(table, 6)
            idle()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    leave.set()
    idle()
    commit(table)
    idle()
    assert actions(path)["commit"] >= 1
    check_rows_of_forks(path)


def check_rows_of_forks(path: Path) -> None:
    """Parent and child count on from the same number."""
    ids = mainstem.open_table(path).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(ids) == len(set(ids)) == 8 + 11


WRITER = """
import json, sys, threading, time
import pyarrow as pa
import mainstem
from mainstem.services import beside_commits
beside_commits.PAUSE = 0
path, name, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
table = mainstem.open_table(path, {"hoodie.mainstem.fsync": False, **json.loads(sys.argv[4])})
for n in range(commits):
    rows = {"id": [f"{name}{i}" for i in range(8)] + [f"{name}-n{n}"], "ts": [n] * 9}
    assert table.upsert(pa.table(rows, schema)).status == "committed"
"""


def started(path: Path, name: str, commits: int, code: str = WRITER) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path), name, str(commits), "{}"],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


UNTIL_SHORT = WRITER.replace(
    "for n in range(commits):",
    """import itertools
for n in itertools.count():
    if n >= commits and (len(list(table.timeline())) < commits or n == 20 * commits):
        break
""",
)
assert UNTIL_SHORT != WRITER


def test_two_processes_that_only_write_keep_one_table_short(path: Path) -> None:
    """How many commits there are by the time that the first round is done, depends on who else is at work."""
    commits = 100
    running = [started(path, name, commits, UNTIL_SHORT) for name in ("a", "b")]
    for process in running:
        _, said = process.communicate(timeout=600)
        assert (process.returncode, said) == (0, "")
    counted = actions(path)
    assert counted["commit"] >= 1 and sum(counted.values()) <= commits
    found = mainstem.open_table(path).scan(columns=["id", "ts"]).to_arrow().to_pydict()
    values = dict(zip(found["id"], found["ts"], strict=True))
    last = {name: max(int(key[3:]) for key in values if key.startswith(f"{name}-n")) for name in "ab"}
    assert len(values) == len(found["id"]) == 2 * 8 + sum(n + 1 for n in last.values())
    assert all(n >= commits - 1 for n in last.values())
    assert all(values[f"{name}{i}"] == last[name] for name in "ab" for i in range(8))


DIES = WRITER.replace(
    "path, name", """
from mainstem.services import compact_group
import itertools
numbers, made, run = itertools.count(), threading.Event(), compact_group.GroupTask.run
def dies(*args, **how):
    if next(numbers) > 0:
        made.wait()
        print("now", flush=True)
        time.sleep(600)
    done = run(*args, **how)
    made.set()
    return done
compact_group.GroupTask.run = dies
path, name""", 1,
) + "time.sleep(600)\n"  # fmt: skip


def test_what_a_killed_process_left_of_a_compaction_is_finished_by_the_next(path: Path) -> None:
    heart = {"hoodie__client__heartbeat__interval_in_ms": 300}
    dying = subprocess.Popen(
        [sys.executable, "-c", DIES, str(path), "a", "5",
         json.dumps({"hoodie.client.heartbeat.interval_in_ms": 300})],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with dying:
        assert dying.stdout is not None and dying.stdout.readline() == "now\n"
        dying.send_signal(signal.SIGKILL)
    assert actions(path)["compaction?"] == 1
    table = opened(path, **heart)

    def finished() -> bool:
        commit(table)
        idle()
        return "compaction?" not in actions(path) and actions(path)["commit"] >= 1

    eventually(finished)
    ids = mainstem.open_table(path).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert len(ids) == len(set(ids)) and {f"a{i}" for i in range(8)} <= set(ids)
    assert {f"a-n{n}" for n in range(5)} <= set(ids)


def test_a_process_that_ends_at_once_has_done_what_was_due(path: Path) -> None:
    for _ in range(4):
        # no pause after a look at what may be cleaned, either
        none = "PAUSE = beside_commits.FRUITLESS_MS = 0\nbeside_commits.GRACE_S = 60"
        code = WRITER.replace("PAUSE = 0", none)
        process = started(path, "a", 5, code)
        _, said = process.communicate(timeout=600)
        assert (process.returncode, said) == (0, "")
    counted = actions(path)
    assert (counted["deltacommit"], counted["commit"]) == (20, 4) and counted["clean"] >= 1
    assert log_files(path) <= 5, "of slices that a clean will remove"


SLOW = WRITER.replace(
    "path, name", """
beside_commits.GRACE_S = 0.2
from mainstem.services import compact_group
began, run = threading.Event(), compact_group.GroupTask.run
def slow(*args, **how):
    began.set()
    time.sleep(0.5)
    return run(*args, **how)
compact_group.GroupTask.run = slow
path, name""", 1,
) + "began.wait(60)\n"  # fmt: skip


@pytest.mark.slow
def test_a_process_that_ends_in_a_long_compaction_ends_after_the_file_group_under_way(tmp_path: Path) -> None:
    path = tmp_path / "t"
    mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=64)
    table = opened(path, hoodie__mainstem__services="off")
    rows = {"id": [f"k{i}" for i in range(2000)], "ts": [1] * 2000}
    table.upsert(pa.table(rows, SCHEMA))
    began = time.monotonic()
    process = started(path, "a", 5, SLOW)
    _, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (0, "")
    assert time.monotonic() - began < 20, "64 groups of half a second, some side by side"
    assert actions(path)["compaction?"] == 1
    made = {name for name in os.listdir(path) if name.endswith(".parquet")}
    assert 0 < len(made) < 64
    commit(opened(path))
    idle()
    assert "compaction?" not in actions(path) and actions(path)["commit"] == 1
    assert made <= set(os.listdir(path)), "what was made is kept"


# -- the metadata table's own services ------------------------------------------------------------


@pytest.fixture
def with_files(tmp_path: Path) -> Path:
    """A table with a metadata table, whose timeline begins with one delta commit."""
    mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    return tmp_path / "t"


def tended(path: Path, **more: object) -> mainstem.Table:
    """Two delta commits make a compaction of the metadata table due."""
    return opened(path, hoodie__metadata__compact__max__delta__commits=2, **more)


def metadata_compactions(path: Path) -> int:
    storage = mainstem.open_table(path).opened.seams.storage
    return sum(i.action == "commit" for i in load_timeline(storage, paths.METADATA_TIMELINE).completed)


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_thread_compacts_the_metadata_table_and_no_commit_waits(with_files, monkeypatch, mode) -> None:
    entered, leave, run = threading.Event(), threading.Event(), metadata_compaction.run
    threads: list[str] = []

    def waiting(*args: object, **how: object) -> object:
        threads.append(threading.current_thread().name)
        entered.set()
        assert leave.wait(WAIT_S)
        return run(*args, **how)

    monkeypatch.setattr(metadata_compaction, "run", waiting)
    table = tended(with_files, hoodie__mainstem__services=mode)
    commit(table, 2)
    assert entered.wait(WAIT_S)
    commit(table)  # returns although the compaction has not ended
    assert metadata_compactions(with_files) == 0
    leave.set()
    idle()
    assert metadata_compactions(with_files) == 1 and set(threads) == {THREAD}
    report = table.validate_metadata()
    assert report is not None and report.ok, report
    check_rows(with_files, 3)


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_where_no_thread_may_run_a_commit_compacts_the_metadata_table_when_long_overdue(
    with_files: Path, monkeypatch, mode: str
) -> None:
    monkeypatch.setattr("mainstem.services.background.Background.wake", lambda self: None)
    table = tended(with_files, hoodie__mainstem__services=mode)
    commit(table, 2 * metadata_overdue.TIMES - 2)
    assert metadata_compactions(with_files) == 0
    commit(table)
    assert metadata_compactions(with_files) == 1
    commit(table, 2 * metadata_overdue.TIMES)
    assert metadata_compactions(with_files) == 2
    check_rows(with_files, 4 * metadata_overdue.TIMES - 1)


def test_overdue_services_that_others_are_at_are_not_tried_by_every_commit(with_files, monkeypatch) -> None:
    monkeypatch.setattr("mainstem.services.background.Background.wake", lambda self: None)
    tried = []
    monkeypatch.setattr(metadata_compaction, "run", lambda ctx, if_due: tried.append(ctx) or [])
    commit(tended(with_files), 2 * metadata_overdue.TIMES + 4)
    assert len(tried) == 3


def test_beside_another_engine_the_metadata_table_is_compacted_all_the_same(with_files, monkeypatch) -> None:
    monkeypatch.setattr(other_engines, "is_ours", lambda storage, name: False)
    commit(tended(with_files), 6)
    idle()
    assert actions(with_files) == {"deltacommit": 6}
    assert metadata_compactions(with_files) >= 1


def test_a_metadata_table_that_is_made_while_a_writer_runs_is_tended_by_its_thread(path: Path) -> None:
    table = tended(path)
    commit(table)
    mainstem.open_table(path).create_index("files")
    commit(table, 3)
    idle()
    assert metadata_compactions(path) >= 1
