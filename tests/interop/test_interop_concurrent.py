"""Goal: Java Hudi and two mainstem processes write the same keys of one table at the same moment.

Method: one Java writer and two mainstem processes upsert batches whose event times are shuffled,
under the file system lock, at least 20 commits each. One of ours is killed with -9 in the middle of
a transaction and started again; Java's clean rolls the dead instant back while the others go on
writing. In the end the table must hold, per key, the row with the newest event time of everything
that was committed, as computed from the batches alone, and Java and mainstem must read the same
cells, snapshot and incremental. Overlapping pairs of transactions are counted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import event_batches
import pyarrow as pa
import pytest
from compare import assert_same, without_meta
from java_hudi import JavaHudi, nbcc_options

import mainstem

JAVA = 3
WRITER = Path(__file__).with_name("mainstem_writer.py")
# The dead writer is left to Java: ours do not roll back at begin.
OURS = {"hoodie.clean.failed.writes.policy": "NEVER"}
ROUNDS = (8, 6, 8)
PAIRS_MIN = 20


class Writer:
    """One mainstem process; its commits are read from the lines it printed."""

    def __init__(self, path: str, number: int, first: int, signals: Path) -> None:
        self.number = number
        self._log = signals / f"writer-{number}-{first}.jsonl"
        arguments = [path, str(number), str(first), str(signals), json.dumps(OURS)]
        with open(self._log, "w") as out:
            self._running = subprocess.Popen([sys.executable, str(WRITER), *arguments], stdout=out)

    def commits(self) -> list[dict]:
        """Complete lines so far."""
        lines = self._log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """kill -9, nothing less."""
        os.kill(self._running.pid, signal.SIGKILL)
        assert self._running.wait() == -signal.SIGKILL

    def finish(self) -> None:
        """Waits for an orderly end."""
        assert self._running.wait(timeout=400) == 0

    def end(self) -> None:
        """For tests that fail: nothing is left running."""
        if self._running.poll() is None:
            self._running.kill()
            self._running.wait()


def wait_for(what: Callable[[], object], seconds: float = 400) -> None:
    """Waits until something observable holds."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class Run:
    """The table, its three writers and what each of them committed."""

    def __init__(self, java: JavaHudi, path: str, signals: Path, options: dict[str, str]) -> None:
        self.java, self.path, self.signals, self.options = java, path, signals, options
        self.java_commits = 0
        self.writers: list[Writer] = []

    @classmethod
    def on_new_table(
        cls,
        java: JavaHudi,
        folder: Path,
        name: str,
        *,
        partition_by: Sequence[str] = ("city",),
        buckets: int = 2,
    ) -> Run:
        """An empty table of this name, and who will write it."""
        path, signals = str(folder / name), folder / "signals"
        signals.mkdir()
        places = {"partition_by": list(partition_by), "buckets": buckets}
        mainstem.create_table(path, event_batches.SCHEMA, record_key=["id"], ordering=["ts"], **places)
        return cls(java, path, signals, nbcc_options(name, record_key=["id"], ordering=["ts"], **places))

    def start(self, number: int, first: int = 0) -> Writer:
        writer = Writer(self.path, number, first, self.signals)
        self.writers.append(writer)
        return writer

    def java_writes(self, count: int) -> None:
        """A round of Java commits, while the others run."""
        batches = [event_batches.batch(JAVA, self.java_commits + turn) for turn in range(count)]
        files = [self.java.rows_file(rows) for rows in batches]
        answer = self.java.call("write_loop", path=self.path, files=files, options=self.options)
        assert len(answer["commits"]) == count
        self.java_commits += count

    def kill_in_flight(self, writer: Writer) -> str:
        """Kills a writer between its log files and its commit; gives the dead instant."""
        hanging = self.signals / f"hanging-{writer.number}"
        (self.signals / f"hang-{writer.number}").touch()
        wait_for(hanging.exists)
        wait_for(hanging.read_text)
        writer.kill()
        (self.signals / f"hang-{writer.number}").unlink()
        return hanging.read_text()

    def expected(self) -> pa.Table:
        """From the batches and from what each writer knows it committed."""
        batches = [event_batches.batch(JAVA, commit) for commit in range(self.java_commits)]
        for writer in self.writers:
            batches += [event_batches.batch(writer.number, c["commit"]) for c in writer.commits()]
        return event_batches.newest(batches)


def files_of(path: str, instant: str) -> list[str]:
    """Everything below the table whose name or folder carries the instant."""
    found = []
    for folder, _, names in os.walk(path):
        found += [os.path.join(folder, n) for n in names if instant in os.path.join(folder, n)]
    return found


def overlapping_pairs(path: str, ours: set[str]) -> tuple[int, int]:
    """Pairs of transactions that were open at the same time: Java with ours, ours with ours."""
    done = [i for i in mainstem.open_table(path).timeline() if i.completion and i.action == "deltacommit"]
    mixed = own = 0
    for k, one in enumerate(done):
        for other in done[k + 1 :]:
            if other.requested < one.completion and one.requested < other.completion:
                both = (one.requested in ours) + (other.requested in ours)
                mixed += both == 1
                own += both == 2
    return mixed, own


@pytest.mark.timeout(900)
@pytest.mark.parametrize("partition_by", [["city"], []], ids=["partitioned", "not_partitioned"])
def test_java_and_two_of_our_processes_write_the_same_keys_at_once_and_nothing_is_lost(
    java: JavaHudi, tmp_path: Path, partition_by: list[str]
) -> None:
    run = Run.on_new_table(java, tmp_path, "shared", partition_by=partition_by, buckets=4)
    path, options, signals = run.path, run.options, run.signals
    try:
        first, second = run.start(0), run.start(1)
        (signals / "go").touch()
        run.java_writes(ROUNDS[0])
        dead = run.kill_in_flight(first)
        again = run.start(0, first=500)
        run.java_writes(ROUNDS[1])
        assert files_of(path, dead), "the dead writer left nothing to clean up"
        make_old(path, dead)
        java.clean(path, {**options, "hoodie.clean.automatic": "true"})
        assert files_of(path, dead) == []
        run.java_writes(ROUNDS[2])
        wait_for(lambda: len(second.commits()) >= 20)
        wait_for(lambda: len(first.commits()) + len(again.commits()) >= 20)
        (signals / "stop").touch()
        for writer in (second, again):
            writer.finish()
    finally:
        for writer in run.writers:
            writer.end()
    check(run, dead)


def make_old(path: str, instant: str) -> None:
    """An hour passes for a heartbeat. With short intervals a busy machine makes the living look dead, too."""
    old = time.time() - 3600
    os.utime(f"{path}/.hoodie/.heartbeat/{instant}", (old, old))


def check(run: Run, dead: str) -> None:
    """Nothing lost, nothing doubled, nothing of the dead writer, both sides read the same."""
    lines = [line for writer in run.writers for line in writer.commits()]
    ours = {line["instant"] for line in lines}
    table = mainstem.open_table(run.path)
    done = {i.requested: i for i in table.timeline() if i.completion and i.action == "deltacommit"}
    assert not [i for i in table.timeline() if not i.completion]
    assert len(ours) == len(lines) and ours <= done.keys() and dead not in done
    assert len(done) - len(ours) == run.java_commits >= 20
    assert {line["instant"]: line["completion"] for line in lines} == {t: done[t].completion for t in ours}
    rollbacks = [i for i in table.timeline() if i.action == "rollback" and i.completion]
    assert len(rollbacks) == 1
    snapshot = table.scan().to_arrow()
    assert_same(run.expected(), without_meta(snapshot), ["id"])
    assert_same(run.java.read(run.path), snapshot, ["id"])
    completions = sorted(i.completion for i in done.values())
    for after, until in (("000", None), (completions[9], completions[29]), (completions[-5], None)):
        mine = table.changes(after=after, until=until).to_arrow()
        theirs = run.java.changes(run.path, after, until)
        assert_same(theirs, mine, ["id", "_hoodie_commit_time"])
    mixed, own = overlapping_pairs(run.path, ours)
    print(
        f"\n{run.java_commits} commits by Java, {len(lines)} by mainstem (0 aborts); overlapping"
        f" pairs: {mixed} of Java with mainstem, {own} of mainstem with mainstem"
    )
    assert mixed >= PAIRS_MIN
