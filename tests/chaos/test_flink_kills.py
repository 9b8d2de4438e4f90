"""Goal: whatever of a Flink job is killed with -9, every row is in the table, and was committed once.

Method: a job writes the numbers from 1 up; its Python workers, the whole job, or busy task managers and the
job manager of a local cluster are killed at random moments; jobs go on from the newest checkpoint or
savepoint, with another parallelism too. In the end the table's keys are read by mainstem and by hudi-rs, and
the rows of all commits are counted: a row that was written again, and merged away by its key, would be among
them.

``make chaos`` runs it. ``FLINK_KILLS_SECONDS`` (default 12): for how long the rows of each test come.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import mainstem
from mainstem.flink.committer import Committer, folders
from mainstem.writers.staged_rows import parse_line
from tests.chaos.actors import ROOT, Actor
from tests.chaos.written import rows_written
from tests.hudi_rs.reading import read
from tests.servers.flink_cluster import ask, attempts, command, configure, environment, remote
from tests.servers.zookeeper import free_port

pytest.importorskip("hudi")
if importlib.util.find_spec("pyflink") is None:
    pytest.skip("apache-flink is not installed", allow_module_level=True)

SECONDS = float(os.environ.get("FLINK_KILLS_SECONDS", "12"))
RATE = 5_000
KILLS = max(3, int(SECONDS / 3))
# The files are read as fast as rows can be written, so there are more of them.
COUNTS = {"endless": int(RATE * SECONDS), "bounded": int(20 * RATE * SECONDS)}
FILES = 24
# Jobs of a cluster must not come to their end before they are killed, however late that is.
LONGER = 3
pytestmark = [pytest.mark.timeout(1200 + 12 * SECONDS), pytest.mark.slow]


class Run:
    """One table, the jobs that write it one after the other, and what was killed."""

    def __init__(self, folder: Path, source: str, longer: int) -> None:
        self.table, self.totals = folder / "t", folder / "totals"
        self.count = COUNTS[source] * longer
        self.started, self.stop = folder / "started", folder / "stop"
        self.checkpoints = folder / "checkpoints"
        self.job: Actor | None = None
        self.kills: list[str] = []
        #: of the test, and of the moment of each kill
        self.chance = random.Random(1)
        self._folder = folder
        self._source = source
        for name in ("files", "logs"):
            (folder / name).mkdir()
        if source == "bounded":
            for i in range(FILES):
                ids = range(1 + i, self.count + 1, FILES)
                (folder / f"files/{i}.csv").write_text("".join(f"{n}\n" for n in ids))

    def start(self, tasks: int, totals: bool = False, **settings: str) -> Actor:
        """The next job; with ``totals`` it counts the rows in state of its own, too."""
        self.started.unlink(missing_ok=True)
        self.stop.unlink(missing_ok=True)
        given = {
            "path": str(self.table), "totals": totals and str(self.totals), "source": self._source,
            "tasks": tasks, "count": self.count, "rate": RATE, "files": str(self._folder / "files"),
            "every_ms": 400, "checkpoints": str(self.checkpoints), "logs": str(self._folder / "logs"),
            "started": str(self.started), "stop": str(self.stop), "settings": settings,
        }  # fmt: skip
        command = ["-m", "tests.chaos.flink_counted", json.dumps(given)]
        self.job = Actor("counted", "flink", command, self._folder / "job.log")
        self.job.start()
        return self.job

    def ended(self) -> bool:
        """Whether the job did, by itself and without an error."""
        status = self.job.process.poll()
        assert status in (None, 0), f"the job ended with {status}:\n{self.job.tail()}"
        return status == 0

    def wait(self) -> None:
        wait_for(self.ended, 600 + 10 * SECONDS)

    def wait_for_progress(self) -> None:
        """Until something more was committed, or the job has ended."""
        before = self.rows()
        wait_for(lambda: self.rows() > before or self.ended(), 400)

    def stop_with_a_savepoint(self) -> None:
        self.stop.touch()
        self.wait()

    def kill(self, parts: str = "client, java") -> None:
        """The whole job, ``parts`` of it first."""
        for part in parts.split(", "):
            if self.job.kill(part):
                self.kills.append(part)
                time.sleep(self.chance.choice([0, 0.3]))
        self.job.end()

    def all_staged(self) -> bool:
        """Every row is in a commit, or in a part file that waits for one.

        Such a job has perhaps ended: then Flink has removed its checkpoints, and it must not be started
        again, from those of an earlier job.
        """
        if not self.table.exists():
            return False
        committer = Committer(mainstem.open_table(self.table), "counted")
        _, folder = folders(mainstem.open_table(self.table), "counted")
        waiting = 0
        for name in committer.pending():
            lines = Path(folder, name).read_text().splitlines()
            waiting += sum(parse_line(line, source=name).rows for line in lines)
        return self.rows() + waiting >= self.count

    def signal_one_worker(self, number: int, what: str = "worker") -> None:
        workers = [pid for pid in self.job.members() if b"pyflink.fn_execution" in command_of(pid)]
        if workers:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(workers), number)
                self.kills.append(what)

    def rows(self) -> int:
        return rows_written(self.table)

    def check(self, commit: bool = True) -> None:
        """All rows, each once."""
        if commit:
            Committer(mainstem.open_table(self.table), "counted").commit_pending()
        expected = list(range(1, self.count + 1))
        rows = mainstem.open_table(self.table).scan(columns=["id", "text"]).to_arrow()
        assert sorted(rows["id"].to_pylist()) == expected
        assert rows["text"].to_pylist() == [str(i) for i in rows["id"].to_pylist()]
        found, error = read(self.table)
        assert error is None
        assert sorted(found["id"].to_pylist()) == expected
        assert self.rows() == self.count, "rows that a restart wrote again were committed"
        print(f"\n{self.count} rows once; killed: {', '.join(self.kills)}", flush=True)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Run]]:
    runs: list[Run] = []

    def make(source: str, longer: int = 1) -> Run:
        runs.append(Run(tmp_path, source, longer))
        return runs[-1]

    yield make
    for run in runs:
        if run.job is not None:
            run.job.end()


@pytest.mark.supports("Engines", "Flink: exactly once across failures")
@pytest.mark.parametrize(("source", "tasks"), [("bounded", 2), ("endless", 4)])
def test_rows_of_killed_and_interrupted_python_workers_come_once(start, source, tasks):
    run = start(source)
    run.start(tasks)
    run.wait_for_progress()
    while not run.ended() and len(run.kills) < KILLS:
        # An interrupt ends a worker from within, with all that it has open.
        run.signal_one_worker(signal.SIGINT if len(run.kills) % 2 else signal.SIGKILL)
        pause = time.monotonic() + run.chance.uniform(0.3, 6)
        wait_for(lambda pause=pause: time.monotonic() > pause or run.ended(), 200)
    run.wait()
    assert run.kills
    run.check()


def test_a_job_whose_python_worker_stands_still_goes_on_when_its_checkpoint_has_expired(start):
    run = start("endless")
    run.start(2)
    run.wait_for_progress()
    run.signal_one_worker(signal.SIGSTOP, "none, a worker stopped")
    assert run.kills
    run.wait()
    run.check()


@pytest.mark.supports("Engines", "Flink: restart from savepoints, rescaled")
@pytest.mark.parametrize("source", ["endless", "bounded"])
def test_killed_jobs_go_on_from_checkpoints_with_other_parallelisms(start, source):
    run = start(source)
    for tasks in (1, 2, 4):
        run.start(tasks)
        run.wait_for_progress()
        time.sleep(run.chance.uniform(0, 1))
        run.kill(run.chance.choice(["java, client", "client, java"]))
        if run.all_staged():
            break
    else:
        run.start(2)
        run.wait()
    run.check()


@pytest.mark.supports("Engines", "Flink: restart from savepoints, rescaled")
def test_jobs_go_on_from_savepoints_however_often_they_are_killed_then(start):
    run = start("bounded")
    run.start(2)
    run.wait_for_progress()
    run.stop_with_a_savepoint()
    for tasks in (4, 1):
        if run.all_staged():
            break
        run.start(tasks)
        # At any moment from the restore on: before the next checkpoint the savepoint is taken again.
        wait_for(lambda: run.started.exists() or run.ended(), 400)
        time.sleep(run.chance.uniform(0, 4))
        run.kill()
    if not run.all_staged():
        run.start(2)
        run.wait()
    run.check()


class Cluster:
    """A local Flink cluster of the wheel's scripts: a job manager and task managers, which may be killed."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        configure(folder / "conf", "localhost", self.port, free_port())
        self._folder = folder
        self._all: list[Actor] = []
        self._environment = environment(folder / "conf", folder / "logs")
        self.job_manager = self._start("jobmanager.sh")
        self.managers: dict[str, Actor] = {}
        self._mutex, self._ended = threading.RLock(), threading.Event()
        for _ in range(2):
            self._start_manager()
        self._supervisor = threading.Thread(target=self._supervise)
        self._supervisor.start()

    def _supervise(self) -> None:
        """Another task manager for one that ended itself, which Flink's do when a task cannot be closed."""
        while not self._ended.wait(1):
            with self._mutex:
                ended = [name for name, actor in self.managers.items() if actor.process.poll() is not None]
                for name in ended:
                    self.kill_manager(name)

    def _start(self, script: str, *arguments: str) -> Actor:
        log = self._folder / f"{script}-{len(self._all)}.log"
        call = f"import os; os.execvp('bash', {command(script, *arguments)!r})"
        actor = Actor(script, "cluster", ["-c", call], log, environment=self._environment)
        actor.start()
        self._all.append(actor)
        return actor

    def _start_manager(self) -> None:
        name = f"tm-{len(self._all)}"
        self.managers[name] = self._start("taskmanager.sh", f"-Dtaskmanager.resource-id={name}")

    def kill_manager(self, name: str) -> None:
        """With its workers; another one comes."""
        with self._mutex:
            self.managers.pop(name).end()
            self._start_manager()

    def kill_job_manager(self) -> None:
        """With all that it knows; another one comes, which knows no job."""
        self.job_manager.end()
        self.job_manager = self._start("jobmanager.sh")

    def end(self) -> None:
        self._ended.set()
        self._supervisor.join()
        for actor in self._all:
            actor.end()

    def state(self, job: str) -> str:
        return ask("localhost", self.port, f"jobs/{job}")["state"]

    def attempts(self, job: str) -> dict[str, int]:
        """Task managers at which the job runs -> the newest attempt of its tasks there, from 0."""
        return attempts("localhost", self.port, job)

    def settings(self) -> dict[str, str]:
        return remote("localhost", self.port)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.end()


@pytest.mark.supports("Engines", "Flink: exactly once across failures")
def test_a_cluster_loses_busy_task_managers_then_the_client_and_rows_that_come_later_are_committed(
    start, cluster
):
    run = start("endless", LONGER)
    run.start(2, **cluster.settings())
    run.wait_for_progress()
    job = run.started.read_text()
    for restarts in (1, 2):
        time.sleep(run.chance.uniform(0, 2))
        wait_for(lambda: cluster.attempts(job), 400)
        (busy, *_) = cluster.attempts(job)
        cluster.kill_manager(busy)
        run.kills.append("busy task manager")
        wait_for(lambda restarts=restarts: min(cluster.attempts(job).values(), default=0) >= restarts, 400)
        run.wait_for_progress()
    before = run.rows()
    run.kill()
    wait_for(lambda: cluster.state(job) == "FINISHED", 600)
    assert run.rows() in range(before, run.count), "the client's last commit may have been under way"
    command = [sys.executable, "-m", "mainstem", "flink-commit", str(run.table), "--once"]
    subprocess.run(command, cwd=ROOT, check=True)
    run.check(commit=False)


@pytest.mark.supports("Engines", "Flink: exactly once across failures")
def test_a_cluster_loses_its_job_manager_and_the_next_job_goes_on_from_the_last_checkpoint(start, cluster):
    run = start("endless", LONGER)
    run.start(2, **cluster.settings())
    run.wait_for_progress()
    time.sleep(run.chance.uniform(0, 2))
    cluster.kill_job_manager()
    run.kills.append("job manager")
    run.job.end()
    assert run.rows() < run.count
    run.start(2, **cluster.settings())
    run.wait()
    run.check()


@pytest.mark.supports("Engines", "Flink: restart from savepoints, rescaled")
def test_jobs_of_a_cluster_go_on_from_savepoints_with_one_two_and_four_tasks_and_their_state(start, cluster):
    run = start("endless", LONGER)
    for tasks in (1, 2):
        run.start(tasks, totals=True, **cluster.settings())
        run.wait_for_progress()
        run.stop_with_a_savepoint()
        run.kills.append(f"none, a savepoint at {tasks}")
    assert run.rows() < run.count
    run.start(4, totals=True, **cluster.settings())
    run.wait()
    run.check()
    totals = mainstem.open_table(run.totals).scan(columns=["digits", "n"]).to_arrow()
    found = dict(zip(*(totals[name].to_pylist() for name in ("digits", "n")), strict=True))
    assert found == Counter(number % 100 for number in range(1, run.count + 1))
