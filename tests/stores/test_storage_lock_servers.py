"""Goal: the storage lock excludes its holders on real object stores, and Java's own lock on one of them.

Method: threads with locks of their own count up without any atomicity, on every server. On MinIO Java
processes count with them: Hudi's ``StorageBasedLockProvider`` from its bundle, with a stand-in for the S3
client of hudi-aws, which no registry has (``java/``). Maven fetches the jars once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.errors import LeaseLost, LockUnavailable
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.storage_lock import StorageLock
from tests.servers import object_stores as stores
from tests.servers.zookeeper import NoJava, find_java, spark_jars
from tests.stores.jars import lock_classes

TURNS = 8


def lock(storage: Any, wait_ms: int = 120_000, **given: str) -> StorageLock:
    properties = {
        "hoodie.write.lock.wait_time_ms": str(wait_ms),
        "hoodie.write.lock.client.num_retries": "0",
        "hoodie.write.lock.storage.validity.timeout.secs": "10",
        "hoodie.write.lock.storage.renew.interval.secs": "1",
        **given,
    }
    options = LockOptions.from_properties(properties, base=storage.base)
    found = open_lock(options, clock=SystemClock(), random=random.Random(), storage=storage)
    assert isinstance(found, StorageLock)
    return found


def count_up(folder: Path) -> None:
    """Without any atomicity, under an independent witness."""
    os.close(os.open(folder / "witness", os.O_CREAT | os.O_EXCL))
    count = int((folder / "counter").read_text())
    time.sleep(0.02)
    (folder / "counter").write_text(str(count + 1))
    os.unlink(folder / "witness")


def in_threads(number: int, body: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=body) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.supports("Locks", "storage lock (StorageBasedLockProvider)")
@pytest.mark.parametrize("kind", stores.SERVERS, ids=lambda kind: kind.name)
def test_threads_count_without_an_overlap_on_every_server(kind: type, tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")
    with kind() as server:
        server.make_bucket("bucket")

        def body() -> None:
            one = lock(server.storage("bucket", "t"), **{"hoodie.mainstem.exclusive": "true"})
            for _ in range(TURNS):
                lease = one.acquire()
                count_up(tmp_path)
                lease.check()
                lease.release()

        for thread in in_threads(3, body):
            thread.join(240)
    assert (tmp_path / "counter").read_text() == str(3 * TURNS)


class Java:
    """A process that uses Hudi's lock as told."""

    def __init__(self, server: Any, classes: str) -> None:
        self.child = subprocess.Popen(
            [find_java(), "-cp", classes, "LockParty", "s3://bucket/t", "10"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **server.variables()},
        )  # fmt: skip
        assert self.answer() == "ready"

    def send(self, command: str) -> None:
        self.child.stdin.write(command + "\n")
        self.child.stdin.flush()

    def answer(self) -> str:
        line = self.child.stdout.readline().strip()
        assert line, f"Java ended with status {self.child.poll()}"
        return line

    def ask(self, command: str) -> str:
        self.send(command)
        return self.answer()

    def end(self) -> None:
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path: Hudi's bundle, AWS's client, Spark's Hadoop, and our two classes."""
    try:
        spark = spark_jars()
        find_java()
    except NoJava as error:
        pytest.skip(str(error))
    found, made = lock_classes(tmp_path_factory)
    return f"{made}:{found}/*:{spark}/*"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with stores.Minio() as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture
def start(server: Any, classes: str) -> Iterator[Callable[[], Java]]:
    started: list[Java] = []

    def one() -> Java:
        started.append(Java(server, classes))
        return started[-1]

    yield one
    for java in started:
        java.end()


def test_java_and_mainstem_exclude_each_other(server: Any, start: Callable[[], Java]) -> None:
    java, ours = start(), lock(server.storage("bucket", "t"))
    assert int(java.ask("acquire 20000")) >= 0
    with pytest.raises(LockUnavailable, match="held by another engine"):
        lock(server.storage("bucket", "t"), wait_ms=2_000).acquire()
    assert java.ask("release") == "released"
    lease = ours.acquire()
    assert java.ask("acquire 2500") == "-1"
    lease.check()
    lease.release()


@pytest.mark.parametrize("number", [1, 2])
def test_java_gets_its_turns_beside_four_busy_mainstem_writers(
    server: Any, start: Callable[[], Java], tmp_path: Path, number: int
) -> None:
    (tmp_path / "counter").write_text("0")
    done = threading.Event()
    javas: list[Java] = [start() for _ in range(number)]
    ours: list[int] = []
    for java in javas:  # its classes are loaded
        assert int(java.ask("acquire 20000")) >= 0
        java.ask("release")

    def body() -> None:
        one = lock(server.storage("bucket", "t"))
        while not done.is_set():
            lease = one.acquire()
            count_up(tmp_path)
            lease.check()
            lease.release()
            ours.append(1)

    threads = in_threads(4, body)
    for java in javas:
        java.send(f"count {TURNS} {tmp_path}")
    longest = [int(java.answer()) for java in javas]
    done.set()
    for thread in threads:
        thread.join(60)
    assert (tmp_path / "counter").read_text() == str(number * TURNS + len(ours))
    # One waits for some 5 s; several share the turns.
    assert max(longest) < 7_500 * number**2, longest
    print(f"Java waited for {longest} ms at most; mainstem had {len(ours)} turns")


def test_whoever_is_stopped_is_superseded_on_both_sides(server: Any, start: Callable[[], Java]) -> None:
    java, one = start(), lock(server.storage("bucket", "t"))
    assert int(java.ask("acquire 20000")) >= 0
    java.child.send_signal(signal.SIGSTOP)
    lease = one.acquire()
    java.child.send_signal(signal.SIGCONT)
    lease.check()
    java.ask("release")
    lease.check()
    one._renewer.stop()  # this holder stands still
    assert int(start().ask("acquire 30000")) >= 0
    with pytest.raises(LeaseLost, match="held by another engine"):
        lease.check()
