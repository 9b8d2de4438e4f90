"""Goal: the file-system lock keeps real processes apart, whatever happens to its holder.

Method: worker processes (``lock_worker.py``) are driven over pipes, killed, stopped and forked; an
independent witness (a file made with O_EXCL inside the critical section) sees every overlap. Java
is imitated by what ``FileSystemBasedLockProvider`` does to the file: create, delete, truncate.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("lock_worker.py")

pytestmark = pytest.mark.timeout(300)


class Process:
    """A lock worker; ``send`` does not wait for the answer, ``call`` does."""

    def __init__(self, base: Path, properties: dict[str, object], worker: Path = WORKER) -> None:
        self.child = subprocess.Popen(
            [sys.executable, str(worker), str(base), json.dumps(properties)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert self.receive() == {"answer": "ready"}

    def send(self, command: str) -> None:
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()

    def receive(self) -> dict:
        line = self.child.stdout.readline()
        assert line, f"the worker ended with status {self.child.poll()}"
        return json.loads(line)

    def call(self, command: str) -> dict:
        self.send(command)
        return self.receive()

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def stop(self) -> None:
        """Comes back when it stands still."""
        self.signal(signal.SIGSTOP)
        os.waitpid(self.child.pid, os.WUNTRACED)

    def end(self) -> None:
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


@pytest.fixture
def base() -> Iterator[Path]:
    """Not below pytest's own folder: every pytest that starts takes that away from other users."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".hoodie").mkdir()
        (folder / "counter").write_text("0")
        yield folder


@pytest.fixture
def start(base: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def run(**properties: str) -> Process:
        started.append(Process(base, {f"hoodie.{k}": v for k, v in properties.items()}))
        return started[-1]

    yield run
    for process in started:
        process.end()


def options(expire_ms: int = 120_000, patience_ms: int = 90_000, foreign_minutes: int = 0) -> dict:
    """Patience ends before a lock expires: who gets one did not wait for that."""
    return {
        "mainstem.lock.expire_ms": str(expire_ms),
        "write.lock.wait_time_ms": str(patience_ms),
        "write.lock.client.num_retries": "0",
        "write.lock.filesystem.expire": str(foreign_minutes),
    }


def lock_file(base: Path) -> Path:
    return base / ".hoodie" / "lock"


def private_names(base: Path) -> set[str]:
    """But those of processes that had a turn and may have another."""
    names = os.listdir(base / ".hoodie/.mainstem/locks")
    return {name for name in names if name != "removal" and not name.startswith("idle-")}


def eventually(condition: Callable[[], bool], what: str, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.005)


@pytest.mark.nothing_lost
@pytest.mark.supports("Locks", "file-system lock (FileSystemBasedLockProvider)")
def test_six_processes_never_overlap_and_lose_no_increment(base, start):
    workers = [start(**options()) for _ in range(6)]
    for worker in workers:
        worker.send("count 200 0")
    assert [worker.receive() for worker in workers] == [{"answer": 200}] * 6
    assert (base / "counter").read_text() == "1200"
    assert not lock_file(base).exists() and not private_names(base)


def test_eight_processes_share_the_lock_fairly(base, start, record_property):
    workers = [start(**options()) for _ in range(8)]
    for seconds in (3, 6, 12, 24):  # who starves does so for ever, who was held up by the machine does not
        for worker in workers:
            worker.send(f"count_for {seconds} 5")
        shares = [worker.receive()["answer"] for worker in workers]
        mean = sum(shares) / len(shares)
        print(f"\n8 processes, {seconds} s: {sum(shares) / seconds:.0f} critical sections of 5 ms per second,"
              f" shares {sorted(shares)}, slowest {min(shares) / mean:.2f} of the mean")  # fmt: skip
        if min(shares) >= mean / 2:
            break
    record_property("critical_sections", shares)
    assert min(shares) >= mean / 2


def test_the_death_of_a_holder_is_seen_at_once(base, start):
    holder, waiter = start(**options()), start(**options())
    holder.call("acquire")
    waiter.send("acquire")
    eventually(lambda: len(private_names(base)) == 1, "the waiter stands in the queue")
    holder.signal(signal.SIGKILL)
    assert "answer" in waiter.receive()
    assert waiter.call("check") == {"answer": "ours"}


def test_the_lock_of_a_process_that_died_before_we_came_is_taken_at_once(base, start):
    holder = start(**options())
    holder.call("acquire")
    holder.end()
    assert lock_file(base).exists()
    assert "answer" in start(**options()).call("acquire")


@pytest.mark.nothing_lost
def test_killing_holders_and_waiters_all_the_time_loses_nothing(base, start):
    counters = [start(**options()) for _ in range(3)]
    victims = [start(**options()) for _ in range(2)]
    for worker in counters:
        worker.send("count 100 1")
    for _ in range(15):
        victims[0].call("acquire")
        victims[1].send("acquire")
        eventually(lambda: len(private_names(base)) >= 1, "somebody waits")
        for victim in victims:
            victim.end()
        victims = [start(**options()) for _ in range(2)]
    assert [worker.receive() for worker in counters] == [{"answer": 100}] * 3
    assert (base / "counter").read_text() == "300"


def test_a_stopped_holder_is_superseded_after_its_expiry_and_told_so(base, start):
    holder, waiter = start(**options(expire_ms=600)), start(**options())
    holder.call("acquire")
    holder.stop()
    refreshed = lock_file(base).stat().st_mtime
    assert "answer" in waiter.call("acquire")
    assert time.time() - refreshed > 0.59  # a file's time is a few milliseconds old when it is set
    holder.signal(signal.SIGCONT)
    answer = holder.call("check")
    assert answer["error"] == "LeaseLost" and "belongs to mainstem process" in answer["message"]
    before = lock_file(base).stat().st_ino
    holder.call("release")
    assert lock_file(base).stat().st_ino == before
    assert waiter.call("check") == {"answer": "ours"}


def test_a_holder_that_was_stopped_past_its_expiry_loses_even_without_a_rival(base, start):
    holder = start(**options(expire_ms=300))
    holder.call("acquire")
    holder.stop()
    stopped = time.monotonic()
    eventually(lambda: time.monotonic() - stopped > 0.5, "the expiry passed")
    holder.signal(signal.SIGCONT)
    answer = holder.call("check")
    assert answer["error"] == "LeaseLost" and "not refreshed for" in answer["message"]
    holder.call("release")
    assert not lock_file(base).exists()


def test_a_living_holder_keeps_the_lock_for_many_times_its_expiry(base, start):
    for expire_ms in (300, 1_200, 4_800):  # a busy machine may let nobody run for some of these
        holder = start(**options(expire_ms=expire_ms))
        rival = start(**options(expire_ms=expire_ms, patience_ms=5 * expire_ms))
        holder.call("acquire")
        answer = rival.call("acquire")
        if (kept := holder.call("check")) == {"answer": "ours"}:
            break
        if "answer" in answer:
            rival.call("release")
    assert kept == {"answer": "ours"}
    assert answer["error"] == "LockUnavailable"
    assert f"mainstem process {holder.child.pid} " in answer["message"]


def test_a_stopped_waiter_does_not_hold_up_the_queue(base, start):
    holder, stopped, waiter = (start(**options()) for _ in range(3))
    holder.call("acquire")
    stopped.send("acquire")
    eventually(lambda: len(private_names(base)) == 1, "the first waiter stands in the queue")
    stopped.stop()
    waiter.send("acquire")
    eventually(lambda: len(private_names(base)) == 2, "the second waiter stands in the queue")
    holder.call("release")
    assert "answer" in waiter.receive()
    waiter.call("release")
    stopped.signal(signal.SIGCONT)
    assert "answer" in stopped.receive()


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(base, start):
    holder, waiter = start(**options()), start(**options())
    holder.call("acquire")
    child = holder.call("fork_idle_child")["answer"]
    try:
        holder.signal(signal.SIGKILL)
        holder.child.wait()
        assert "answer" in waiter.call("acquire")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_forked_child_neither_owns_nor_frees_the_lock_of_its_parent(base, start):
    holder = start(**options())
    holder.call("acquire")
    assert "it was taken before the process forked" in holder.call("check_in_child")["answer"]
    assert holder.call("check") == {"answer": "ours"}
    holder.call("release")
    assert holder.call("use_lock_in_child") == {"answer": 0}


def open_to_all(base: Path) -> None:
    """Let another user work in the table, as root must step down to be refused anything."""
    base.chmod(0o777)
    (base / ".hoodie").chmod(0o777)
    (base / "counter").chmod(0o666)


def make_old(base: Path, name: str) -> None:
    an_hour_ago = time.time() - 3600
    os.utime(base / ".hoodie/.mainstem/locks" / name, (an_hour_ago, an_hour_ago))


def test_private_files_of_the_dead_are_swept_by_the_next_process(base, start):
    holder, waiter = start(**options()), start(**options())
    holder.call("acquire")
    waiter.send("acquire")
    eventually(lambda: len(private_names(base)) == 1, "the waiter stands in the queue")
    waiter.end()
    (left,) = private_names(base)
    make_old(base, left)
    (base / ".hoodie/.mainstem/locks/gone-1-2").write_bytes(b"died between two calls")
    make_old(base, "gone-1-2")
    (base / ".hoodie/.mainstem/locks/gone-3-4").write_bytes(b"brand-new")
    holder.call("release")
    start(**options()).call("acquire")
    assert private_names(base) == {"gone-3-4"}


def test_a_living_waiter_is_not_swept_and_its_time_is_renewed_when_it_gets_the_lock(base, start):
    holder, waiter = start(**options()), start(**options())
    holder.call("acquire")
    waiter.send("acquire")
    eventually(lambda: len(private_names(base)) == 1, "the waiter stands in the queue")
    (place,) = private_names(base)
    make_old(base, place)
    another = start(**options(patience_ms=50))
    assert another.call("acquire")["error"] == "LockUnavailable"
    assert private_names(base) == {place}
    holder.call("release")
    assert "answer" in waiter.receive()
    assert time.time() - lock_file(base).stat().st_mtime < 60


@pytest.mark.nothing_lost
def test_a_writer_that_creates_as_java_does_and_three_of_ours_never_overlap(start, base):
    open_to_all(base)
    workers = [start(**options()) for _ in range(4)]
    assert [worker.call("step_down") for worker in workers] == [{"answer": None}] * 4
    workers[0].send("count_like_java 100 0.5")
    for worker in workers[1:]:
        worker.send("count 100 0.5")
    assert [worker.receive() for worker in workers] == [{"answer": 100}] * 4
    assert (base / "counter").read_text() == "400"


def test_what_java_does_to_the_file_is_noticed_by_check(base, start):
    holder = start(**options())
    holder.call("acquire")
    lock_file(base).unlink()  # close() of another Java writer's provider
    assert "the file is gone" in holder.call("check")["message"]
    holder.call("acquire")
    lock_file(base).chmod(0o644)
    lock_file(base).write_bytes(b"")  # RawLocalFileSystem.create: exists(), then open with O_TRUNC
    assert "was overwritten" in holder.call("check")["message"]
    holder.call("release")
    assert lock_file(base).read_bytes() == b""  # it is the Java writer's lock now


def test_a_java_writer_that_lost_the_race_cannot_overwrite_our_lock(base, start):
    open_to_all(base)
    holder = start(**options())
    holder.call("step_down")
    holder.call("acquire")
    code = f"import os; os.geteuid() or os.setuid(65534); open({str(lock_file(base))!r}, 'w')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    code_of_reader = code.replace("'w'", "'rb'")  # it gets there, it only may not write
    subprocess.run([sys.executable, "-c", code_of_reader], check=True)
    assert "PermissionError" in done.stderr
    assert holder.call("check") == {"answer": "ours"}


def test_a_disk_that_takes_no_bytes_is_unavailable_and_keeps_no_half_file(base, start):
    worker = (
        "import random, resource, sys\n"
        "from mainstem.truetime.clock import SystemClock\n"
        "from mainstem.truetime.locks.options import LockOptions\n"
        "from mainstem.truetime.locks.providers import open_lock\n"
        "options = LockOptions.from_properties({}, base=sys.argv[1])\n"
        "lock = open_lock(options, clock=SystemClock(), random=random.Random())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "try:\n    lock.acquire()\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", worker, str(base)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.startswith(f"Unavailable lock file {lock_file(base)}: "), done
    assert not lock_file(base).exists() and not private_names(base)
