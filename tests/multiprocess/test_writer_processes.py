"""Goal: real writer processes on one table, killed and stopped at any moment, lose and double nothing.

Method: ``writer_worker.py`` processes upsert the same keys and keep journals of what ``commit`` told
them, while this process kills (SIGKILL), stops (SIGSTOP, longer than lock expiry and heartbeats) and
restarts them. Afterwards the journals are compared with what the table's files say, read without our
readers (``table_files.py``), with our scan and with hudi-rs. Targeted tests stop a writer at one exact
storage call. Stopping must be noticed by the clock, so these tests wait for short real expiries.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

import mainstem
from tests.hudi_rs.reading import read as read_with_hudi_rs
from tests.multiprocess import table_files, writer_worker
from tests.multiprocess.writer_worker import SCHEMA, batch, entries

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("writer_worker.py")
WRITERS = 4
SEED = 1  # decides what is done to whom; how processes race differs each time
ALLOWED = {"LeaseLost", "RolledBack", "LockUnavailable"}

LONG = 60_000  # of those who must not be taken for dead on a busy machine

pytestmark = pytest.mark.timeout(600)


def options(*, expire_ms: int = 600, beat_ms: int = 500, **more: object) -> dict[str, str]:
    return {
        "hoodie.mainstem.lock.expire_ms": str(expire_ms),
        "hoodie.client.heartbeat.interval_in_ms": str(beat_ms),
        "hoodie.client.heartbeat.tolerable.misses": "2",
        "hoodie.mainstem.fsync": "false",  # processes die here, the machine does not
        **{key: str(value) for key, value in more.items()},
    }


def create(path: Path, *, exclusive: bool, index: str = "BUCKET") -> mainstem.Table:
    return mainstem.create_table(
        path,
        SCHEMA,
        record_key="id",
        ordering="ts",
        partition_by="city",
        buckets=2 if index == "BUCKET" else None,
        properties={
            "hoodie.mainstem.exclusive": exclusive, "hoodie.mainstem.fsync": False, "hoodie.index.type": index
        },
    )


def spawn(given: dict, **streams) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(WORKER), json.dumps(given)], env=environment, **streams
    )


# -- chaos -----------------------------------------------------------------------------------------


class Observer:
    """Watches instants become visible.

    A listing that runs while files appear may show a later one without an earlier one; two listings on,
    everything that was visible before the first one's end must have been seen.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.listings: list[set[str]] = [set(), set()]
        self.wrong: list[str] = []

    def look(self) -> None:
        self._seen(table_files.completion_times(self.base))

    def _seen(self, now: set[str]) -> None:
        before, last = self.listings
        newest = max(before, default="")
        self.wrong += [f"{c} became visible after {newest}" for c in now - last - before if c <= newest]
        self.listings = [last, now]


class Fleet:
    """Writer processes, and what was done to them."""

    # With less than this a run says nothing.
    ENOUGH: ClassVar = {"SIGKILL": 1, "SIGSTOP": 4}
    COMMITS = 8

    def __init__(self, base: Path, properties: dict[str, str], seed: int) -> None:
        self.base, self.properties = base, properties
        self.chance = random.Random(seed)
        self.stop_file = base.parent / "stop"
        self.done = Counter()
        self.frozen: dict[int, float] = {}  # writer -> when to wake it
        self.processes = {w: self._start(w) for w in range(WRITERS)}

    def journal(self, writer: int) -> Path:
        return self.base.parent / f"journal-{writer}"

    def _start(self, writer: int) -> subprocess.Popen:
        self.done["starts"] += 1
        given = {
            "mode": "stream",
            "path": str(self.base),
            "properties": self.properties,
            "writer": writer,
            "journal": str(self.journal(writer)),
            "stop": str(self.stop_file),
        }
        with open(self.base.parent / f"stderr-{writer}", "ab") as log:
            return spawn(given, stderr=log)

    def step(self) -> None:
        """Wake whose time has come, restart the dead, then hurt one of the others."""
        now = time.monotonic()
        for writer in [w for w, until in self.frozen.items() if until <= now]:
            self.processes[writer].send_signal(signal.SIGCONT)
            del self.frozen[writer]
        self.restart_dead()
        # At least one writer runs, so that somebody takes over.
        running = [w for w in self.processes if w not in self.frozen]
        if len(running) < 2 or self.chance.random() < 0.3:
            return
        victim = self.chance.choice(running)
        if self.chance.random() < 0.5:
            holders = {process.pid: writer for writer, process in self.processes.items()}
            holder = holders.get(self.holder_of_the_lock())
            victim = victim if holder is None or holder in self.frozen else holder
        # By chance alone a run might see no kill at all.
        if self.chance.random() < 0.25 or (self.done["SIGSTOP"] >= 4 and not self.done["SIGKILL"]):
            self.processes[victim].kill()
            self.done["SIGKILL"] += 1
        else:
            self.processes[victim].send_signal(signal.SIGSTOP)
            self.frozen[victim] = now + self.chance.uniform(0.2, 3)
            self.done["SIGSTOP"] += 1

    def says_something(self) -> bool:
        """Enough was done to them, and they did enough."""
        told = sum(len(entries(self.journal(writer))) for writer in range(WRITERS))
        return told >= self.COMMITS and all(self.done[fault] >= n for fault, n in self.ENOUGH.items())

    def holder_of_the_lock(self) -> int | None:
        try:
            record = json.loads((self.base / ".hoodie/lock").read_text())
        except FileNotFoundError:
            return None
        return record["pid"]

    def restart_dead(self) -> None:
        for writer, process in self.processes.items():
            status = process.poll()
            if status is not None and not (status == 0 and self.stop_file.exists()):
                assert status == -signal.SIGKILL, f"writer {writer} ended with {status}"
                self.processes[writer] = self._start(writer)

    def finish(self) -> None:
        """Let every writer finish its current batch; none is hurt any more."""
        self.stop_file.touch()
        for writer in list(self.frozen):
            self.processes[writer].send_signal(signal.SIGCONT)
        self.frozen.clear()
        end = time.monotonic() + 150
        while any(p.poll() != 0 for p in self.processes.values()):
            assert time.monotonic() < end, "a writer does not finish"
            self.restart_dead()
            time.sleep(0.02)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def newest_rows(commits: list[table_files.Commit]) -> dict[str, tuple[int, str]]:
    """Key -> (event time, value) that committed batches must have left, by the greatest event time."""
    newest: dict[str, tuple[int, str]] = {}
    for commit in commits:
        assert commit.guard is not None
        stream, number, _ = commit.guard
        rows = batch(int(stream.removeprefix("stream-")), number)
        for row in rows.to_pylist():
            newest[row["id"]] = max(newest.get(row["id"], (-1, "")), (row["ts"], row["value"]))
    return newest


def as_rows(found) -> list[tuple]:
    columns = [found[name].to_pylist() for name in ("id", "ts", "value")]
    return sorted(zip(*columns, strict=True))


def check_journals(fleet: Fleet, commits: list[table_files.Commit]) -> None:
    """Every batch that ``commit`` reported is visible, exactly once, at the reported instant."""
    by_guard = Counter(c.guard for c in commits)
    assert max(by_guard.values()) == 1, "a batch was committed twice"
    visible = {c.guard: c for c in commits}
    reported = set()
    for writer in range(WRITERS):
        lines = entries(fleet.journal(writer))
        assert [line["batch"] for line in lines] == list(range(len(lines)))
        for line in lines:
            commit = visible[(f"stream-{writer}", line["batch"], 0)]
            reported.add(commit.guard)
            assert line["instant"] == commit.requested
            assert line["status"] in ("committed", "already_committed")
            if line["status"] == "committed":
                assert line["completion"] == commit.completion
    assert reported == set(visible), "a batch became visible that nobody was told of"


def check_order(base: Path, fleet: Fleet, commits: list[table_files.Commit]) -> None:
    times = [time for r, c, _ in table_files.timeline(base) if c for time in (r, c)]
    assert max(Counter(times).values()) == 1, "an instant time was given twice"
    assert all(c.requested < c.completion for c in commits)
    for writer in range(WRITERS):
        own = [c for c in commits if c.guard and c.guard[0] == f"stream-{writer}"]
        own.sort(key=lambda c: c.guard)
        assert all(a.completion < b.requested for a, b in zip(own, own[1:], strict=False))


def check_rows(base: Path, commits: list[table_files.Commit]) -> None:
    expected = sorted((key, ts, value) for key, (ts, value) in newest_rows(commits).items())
    table = mainstem.open_table(base)
    assert as_rows(table.scan().to_arrow()) == expected
    written = as_rows(table.changes().to_arrow())
    assert set(written) >= set(expected)
    theirs, error = read_with_hudi_rs(base)
    assert error is None
    assert as_rows(theirs) == expected


def errors_seen(fleet: Fleet) -> Counter:
    lines = [
        line
        for writer in range(WRITERS)
        for line in entries(fleet.journal(writer).with_name(f"journal-{writer}.errors"))
    ]
    wrong = [line for line in lines if line["error"] not in ALLOWED]
    assert not wrong, wrong
    return Counter(line["error"] for line in lines)


def check_what_the_fleet_left(fleet, observer, base, tmp_path, record_property):
    """Nothing lost, nothing doubled, nothing out of order, no writer that broke; the commits."""
    for writer in range(WRITERS):
        assert (tmp_path / f"stderr-{writer}").read_bytes().count(b"Traceback") == 0
    errors, commits = errors_seen(fleet), table_files.commits(base)
    rollbacks = sum(1 for _, c, action in table_files.timeline(base) if c and action == "rollback")
    attempts = [line.get("attempts") or 0 for w in range(WRITERS) for line in entries(fleet.journal(w))]
    facts = {
        **fleet.done, **errors, "commits": len(commits), "rollbacks": rollbacks,
        "superseded": sum(a - 1 for a in attempts if a > 1),
    }  # fmt: skip
    record_property("facts", facts)
    print(facts)
    assert observer.wrong == []
    check_journals(fleet, commits)
    check_order(base, fleet, commits)
    check_rows(base, commits)
    return commits


def check_the_next_writer_cleans_up(base):
    """All who died are long dead; somebody writes, and nothing of them is left."""
    table_files.age(base)
    last = mainstem.open_table(base, properties=options(expire_ms=LONG, beat_ms=LONG))
    last.upsert(batch(99, 0))
    last.rollback_failed_writes()
    assert table_files.leftovers(base) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exclusive", "skew_ms", "seconds", "index"),
    [(True, 0, 9, "BUCKET"), (False, 15, 7, "BUCKET"), (True, 0, 7, "SIMPLE")],
    ids=["wait_0", "wait_15", "without_buckets"],
)
def test_writers_that_are_killed_and_stopped_at_random_lose_and_double_nothing(
    tmp_path, exclusive, skew_ms, seconds, index, record_property
):
    base = tmp_path / "t"
    create(base, exclusive=exclusive, index=index)
    skew = {"hoodie.time.generator.max_expected_clock_skew_ms": skew_ms}
    fleet = Fleet(base, options(**skew), SEED)
    observer = Observer(base)
    try:
        end = time.monotonic() + seconds
        act = time.monotonic() + 1
        # On a busy machine it takes longer until enough has happened.
        while time.monotonic() < end or not fleet.says_something():
            assert time.monotonic() < end + 150, fleet.done
            observer.look()
            if time.monotonic() >= act:
                fleet.step()
                act = time.monotonic() + fleet.chance.uniform(0.05, 0.5)
            time.sleep(0.05)
        fleet.finish()
        observer.look()
    finally:
        fleet.end()
    check_what_the_fleet_left(fleet, observer, base, tmp_path, record_property)
    assert not (base / ".hoodie/.mainstem/fence/foreign").exists(), "our own writer taken for another"
    check_the_next_writer_cleans_up(base)


# -- one exact moment --------------------------------------------------------------------------------


class Process:
    """A worker driven by commands; ``send`` does not wait for the answer, ``call`` does."""

    def __init__(self) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.child = spawn({"mode": "commands"}, **pipes)

    def send(self, command: str) -> None:
        self.is_idle = False
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()

    def receive(self) -> dict:
        line = self.child.stdout.readline()
        self.is_idle = True
        assert line, f"the worker ended with status {self.child.poll()}"
        return json.loads(line)

    def call(self, command: str) -> object:
        self.send(command)
        answer = self.receive()
        return answer["answer"] if "answer" in answer else answer["error"]

    def send_until_stopped(self, command: str, before: str) -> None:
        """Give a command; wait until the process stopped itself ``before`` a storage call of it."""
        self.call(f"stop_before {before}")
        self.send(command)
        self.wait_stopped()

    def wait_stopped(self) -> None:
        pid, status = os.waitpid(self.child.pid, os.WUNTRACED)
        assert pid == self.child.pid and os.WIFSTOPPED(status), status

    def stop(self) -> None:
        self.child.send_signal(signal.SIGSTOP)
        self.wait_stopped()

    def wake(self) -> object:
        """Let it go on; what its command answered."""
        self.child.send_signal(signal.SIGCONT)
        answer = self.receive()
        return answer["answer"] if "answer" in answer else answer["error"]

    def end(self) -> None:
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


@pytest.fixture
def base(tmp_path) -> Path:
    create(tmp_path / "t", exclusive=True)
    return tmp_path / "t"


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Process]]:
    """They serve one test after another: a start takes longer than a test."""
    started = [Process(), Process(), Process()]
    try:
        for process in started:
            assert process.receive() == {"answer": "ready"}
        yield started
    finally:
        for process in started:
            process.end()


@pytest.fixture
def start(base: Path, workers: list[Process]) -> Iterator[Callable[..., Process]]:
    """Give the next process the test's table."""
    idle = iter(workers)
    used = []

    def run(**properties: int) -> Process:
        process = next(idle)
        used.append(process)
        given = {"path": str(base), "properties": options(**properties)}
        assert process.call(f"open {json.dumps(given)}") is True
        return process

    yield run
    if any(not process.is_idle for process in used):  # the test failed halfway
        for place, process in enumerate(workers):
            process.end()
            workers[place] = Process()
            assert workers[place].receive() == {"answer": "ready"}


def files_named(base: Path, instant: str) -> list[str]:
    """Every file or folder of an instant, wherever it lies."""
    return [
        os.path.relpath(os.path.join(folder, name), base)
        for folder, folders, names in os.walk(base)
        for name in [*names, *folders]
        if instant in name
    ]


def content(base: Path) -> list[tuple]:
    return as_rows(mainstem.open_table(base).scan().to_arrow())


def merged(*batches: tuple[int, int]) -> list[tuple]:
    fakes = [
        table_files.Commit("", "", (f"stream-{writer}", number, 0), frozenset())
        for writer, number in batches
    ]
    return sorted((key, ts, value) for key, (ts, value) in newest_rows(fakes).items())


SECTION = {
    "before_its_epoch": r"link fence/epoch-",
    "before_it_lists_the_fence": r"names \S*fence$",
    "before_it_lists_the_timeline": r"names \.hoodie/timeline$",
    "before_its_link": r"link timeline/\d+_\d+\.deltacommit$",
}


@pytest.mark.parametrize("moment", SECTION)
def test_a_writer_stopped_in_its_critical_section_publishes_nothing_stale(base, start, moment):
    stopped, other = start(beat_ms=LONG), start(expire_ms=LONG, beat_ms=LONG)
    instant = stopped.call("begin")
    stopped.call("write 1 1")
    stopped.send_until_stopped("commit", SECTION[moment])
    later = [other.call(f"upsert 2 {n}") for n in range(2)]
    assert [answer[0] for answer in later] == ["committed"] * 2
    status, requested, completion, attempts = stopped.wake()
    assert (status, requested) == ("committed", instant)
    assert attempts >= 2, "the first attempt was superseded"
    assert completion > max(answer[2] for answer in later)
    assert content(base) == merged((1, 1), (2, 0), (2, 1))
    check_the_next_writer_cleans_up(base)


@pytest.mark.parametrize("moment", SECTION)
def test_a_writer_stopped_in_its_critical_section_and_rolled_back_publishes_nothing(
    base, start, moment
):
    stopped, other = start(), start(expire_ms=LONG)
    instant = stopped.call("begin")
    stopped.call("write 1 1")
    stopped.send_until_stopped("commit", SECTION[moment])
    roll_back_when_expired(base, other, instant)
    assert stopped.wake() == "RolledBack"
    assert files_named(base, instant) == []
    assert other.call("upsert 2 0")[0] == "committed"
    assert stopped.call("upsert 1 1")[0] == "committed"
    assert content(base) == merged((1, 1), (2, 0))
    check_the_next_writer_cleans_up(base)


def roll_back_when_expired(base: Path, other: Process, instant: str) -> None:
    """The stopped process beats no more, so this ends; it is a real wait for a real expiry."""
    end = time.monotonic() + 90
    while other.call("rollback") != [instant]:
        assert time.monotonic() < end, "never rolled back"
        time.sleep(0.05)
    left = [path for path in files_named(base, instant) if "/prepared/" not in path]
    assert left == []  # what it was about to publish is its own until it wakes


def test_a_writer_stopped_between_two_writes_and_rolled_back_is_told_and_leaves_no_file(base, start):
    stopped, other = start(), start(expire_ms=LONG)
    instant = stopped.call("begin")
    stopped.call("write 1 1")
    stopped.stop()
    roll_back_when_expired(base, other, instant)
    stopped.send("write 1 2")
    assert stopped.wake() == "RolledBack"
    assert stopped.call("commit") == "RolledBack"
    assert files_named(base, instant) == []
    assert content(base) == []
    check_the_next_writer_cleans_up(base)


INSIDE_WRITE = {
    "before_a_marker": r"put_new \.hoodie/\.temp/",
    "between_marker_and_log_file": r"upload \.log\.",
    "before_the_partition_metafile": r"stat \.hoodie_partition_metadata$",
}


@pytest.mark.parametrize("moment", INSIDE_WRITE)
def test_a_writer_stopped_inside_write_and_rolled_back_is_told_and_leaves_no_file(
    base, start, moment
):
    stopped, other = start(), start(expire_ms=LONG)
    instant = stopped.call("begin")
    stopped.send_until_stopped("write 1 1", INSIDE_WRITE[moment])
    roll_back_when_expired(base, other, instant)
    answer = stopped.wake()
    assert answer in (writer_worker.ROWS, "RolledBack")
    assert stopped.call("commit") == "RolledBack"
    assert files_named(base, instant) == []
    assert content(base) == []
    check_the_next_writer_cleans_up(base)


def test_a_writer_stopped_inside_begin_and_rolled_back_is_told_and_leaves_no_file(base, start):
    stopped, other = start(), start(expire_ms=LONG)
    stopped.send_until_stopped("begin", r"put_new timeline/\d+\.deltacommit\.inflight$")
    (instant, _), = table_files.pending(base)
    roll_back_when_expired(base, other, instant)
    assert stopped.wake() == instant
    assert stopped.call("write 1 1") == "RolledBack"
    assert stopped.call("commit") == "RolledBack"
    assert files_named(base, instant) == []
    check_the_next_writer_cleans_up(base)


def test_a_rollback_stopped_before_its_plan_does_not_undo_a_writer_that_came_back(base, start):
    writer, cleaner = start(expire_ms=LONG), start()
    instant = writer.call("begin")
    writer.call("write 1 1")
    writer.stop()
    time.sleep(1.1)  # its heartbeat must really expire
    cleaner.send_until_stopped("rollback", r"link timeline/\d+\.rollback\.requested$")
    writer.send("commit")
    status, requested, *_ = writer.wake()
    assert (status, requested) == ("committed", instant)
    assert cleaner.wake() == []
    assert content(base) == merged((1, 1))
    assert re.search(r"rollback", " ".join(files_named(base, ""))) is None
    check_the_next_writer_cleans_up(base)


def test_a_rollback_stopped_after_its_plan_is_finished_by_another_and_stays_harmless(base, start):
    writer = start(expire_ms=LONG)
    cleaner, other = start(), start(expire_ms=LONG)
    instant = writer.call("begin")
    writer.call("write 1 1")
    writer.stop()
    time.sleep(1.1)  # its heartbeat must really expire
    cleaner.send_until_stopped("rollback", r"put_new timeline/\d+\.rollback\.inflight$")
    writer.send("commit")
    assert writer.wake() == "RolledBack"
    assert other.call("rollback") == [instant]
    assert writer.call("upsert 1 1")[0] == "committed"
    assert cleaner.wake() == []
    assert content(base) == merged((1, 1))
    check_the_next_writer_cleans_up(base)
