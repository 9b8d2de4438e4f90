"""Goal: under ZooKeeper's lock Java Hudi and mainstem exclude each other and write one table together.

Method: Java's own providers (`ZookeeperBasedLockProvider`, `ZookeeperBasedImplicitBasePathLockProvider`)
and whole Spark writes of Java, beside mainstem's lock and writer processes, on a real ZooKeeper server;
another client looks at the nodes. Who committed what is computed from the batches alone.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import event_batches
import pyarrow as pa
import pytest
from compare import assert_same, without_meta
from java_hudi import JavaFailed, JavaHudi, nbcc_options
from test_interop_concurrent import Run, overlapping_pairs, wait_for
from test_interop_lock import AT_ONCE, ROWS, check_java_commits_only_after_our_lease

import mainstem
from mainstem.errors import LockUnavailable
from mainstem.options.locks import EXPLICIT, IMPLICIT
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.zookeeper import ZooKeeperLock
from mainstem.truetime.locks.zookeeper_options import implicit_base_path
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_ensemble import ZooKeeperEnsemble

kazoo_client = pytest.importorskip("kazoo.client")


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as running:
        yield running


@pytest.fixture
def look(server: ZooKeeperServer) -> Iterator:
    """Somebody else's client."""
    client = kazoo_client.KazooClient(server.connect_string, timeout=30)
    client.start()
    yield client
    client.stop()
    client.close()


def explicit(server: ZooKeeperServer | ZooKeeperEnsemble, key: str) -> dict[str, str]:
    return {
        "hoodie.write.lock.provider": EXPLICIT,
        "hoodie.write.lock.zookeeper.url": server.connect_string,
        "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
        "hoodie.write.lock.zookeeper.lock_key": key,
    }


def implicit(server: ZooKeeperServer) -> dict[str, str]:
    return {
        "hoodie.write.lock.provider": IMPLICIT,
        "hoodie.write.lock.zookeeper.url": server.connect_string,
    }


def our_lock(path: str, options: dict[str, str]) -> ZooKeeperLock:
    checked = LockOptions.from_properties(options, base=path)
    return open_lock(checked, clock=SystemClock(), random=random.SystemRandom())


def java_gets(java: JavaHudi, path: str, options: dict[str, str]) -> bool:
    try:
        return java.try_lock(path, options)
    except JavaFailed as error:
        assert "FAILED_TO_ACQUIRE" in str(error)
        return False


@pytest.mark.supports("Locks", "ZooKeeper lock beside Java's ZookeeperBasedLockProvider")
@pytest.mark.parametrize("kind", ["explicit", "implicit"])
def test_javas_provider_and_our_lock_exclude_each_other(
    java: JavaHudi, server: ZooKeeperServer, path: str, kind: str
) -> None:
    options = explicit(server, "excluded") if kind == "explicit" else implicit(server)
    ours = our_lock(path, options | AT_ONCE)
    lease = ours.acquire()
    assert not java_gets(java, path, options)
    lease.check()
    lease.release()
    assert java_gets(java, path, options)
    with pytest.raises(LockUnavailable, match="application_id"):  # Hudi writes that into its node
        ours.acquire()
    java.unlock()
    java.close_lock()
    ours.acquire().check()
    ours.close()


@pytest.mark.supports("Locks", "ZooKeeper lock, implicit base path")
@pytest.mark.parametrize(
    "base", ["s3a://bucket/lake/trips", "file:/x", "/a/path/longer/than/one/round/of/32/bytes", "/ü"]
)
def test_the_implicit_node_is_the_one_that_java_locks(java: JavaHudi, server, look, base: str) -> None:
    before = set(look.get_children("/tmp")) if look.exists("/tmp") else set()
    assert java_gets(java, base, implicit(server))
    (made,) = set(look.get_children("/tmp")) - before
    assert f"/tmp/{made}" == implicit_base_path(base)
    assert len(look.get_children(f"/tmp/{made}/lock_key")) == 1
    java.unlock()
    java.close_lock()


def test_a_java_job_with_the_implicit_lock_and_we_lock_one_node(
    java: JavaHudi, server, look, path: str
) -> None:
    """What Java hashes is the path as the job spells it."""
    table = mainstem.create_table(
        path, ROWS.schema, record_key="id", ordering="ts", buckets=1, name="locked",
        properties=implicit(server),
    )  # fmt: skip
    before = set(look.get_children("/tmp")) if look.exists("/tmp") else set()
    table.upsert(ROWS)
    java.write(path, ROWS, java_options("locked", buckets=1))
    (made,) = set(look.get_children("/tmp")) - before
    assert f"/tmp/{made}" == implicit_base_path(path)
    # Both were there: a node's sequence counts its acquisitions, and ours alone are two.
    sequence = look.create(f"/tmp/{made}/lock_key/count-", ephemeral=True, sequence=True)
    assert int(sequence[-10:]) > 2


def test_we_get_the_lock_as_soon_as_java_releases_it(java: JavaHudi, server, path: str) -> None:
    options = explicit(server, "handed-over")
    assert java_gets(java, path, options)
    ours: list[float] = []

    def wait() -> None:
        lock = our_lock(path, options)
        lock.acquire().release()
        ours.append(time.monotonic())
        lock.close()

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(timeout=1)
    assert waiting.is_alive() and not ours
    released = time.monotonic()
    java.unlock()
    waiting.join(timeout=50)  # less than a session
    assert released < ours[0]
    java.close_lock()


@pytest.fixture
def table(server: ZooKeeperServer, path: str) -> mainstem.Table:
    """An empty table that carries its lock."""
    return mainstem.create_table(
        path, ROWS.schema, record_key="id", ordering="ts", buckets=1, name="locked",
        properties=explicit(server, "carried"),
    )  # fmt: skip


def java_options(name: str, **more: object) -> dict[str, str]:
    """A Java job that says nothing about the lock: it takes what the table carries."""
    options = nbcc_options(name, record_key=["id"], ordering=["ts"], **more)
    return {k: v for k, v in options.items() if not k.startswith("hoodie.write.lock.")}


def test_a_java_job_without_lock_options_takes_the_lock_from_the_table_and_waits_for_us(
    java: JavaHudi, table: mainstem.Table
) -> None:
    options = java_options("locked", buckets=1)
    check_java_commits_only_after_our_lease(java, table, table.opened.seams.lock, options)


def test_a_java_job_with_another_lock_than_the_tables_is_refused_by_java(
    java: JavaHudi, table: mainstem.Table
) -> None:
    table.upsert(ROWS)
    options = nbcc_options("locked", record_key=["id"], ordering=["ts"], buckets=1)
    with pytest.raises(JavaFailed, match="Config conflict"):
        java.write(table.path, ROWS, options)
    elsewhere = java_options("locked", buckets=1) | {"hoodie.write.lock.zookeeper.url": "127.0.0.1:1"}
    with pytest.raises(JavaFailed, match="Config conflict"):
        java.write(table.path, ROWS, elsewhere)


def write_together(
    java: JavaHudi,
    tmp_path: Path,
    lock: dict[str, str],
    *,
    java_commits: int,
    troubles: AbstractContextManager,
    enough: Callable[[], bool] = lambda: True,
) -> pa.Table:
    """Java and two processes of ours upsert the same keys, Java's commits amid ``troubles``; the snapshot.

    Java goes on until there were ``enough`` of them. The snapshot holds what was committed, as Java reads it
    too, and enough of their transactions overlapped.
    """
    path, signals = str(tmp_path / "shared"), tmp_path / "signals"
    signals.mkdir()
    mainstem.create_table(
        path, event_batches.SCHEMA, record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=4,
        properties=lock,
    )  # fmt: skip
    run = Run(java, path, signals, java_options("shared", partition_by=["city"], buckets=4))
    try:
        writers = [run.start(0), run.start(1)]
        (signals / "go").touch()
        wait_for(lambda: all(writer.commits() for writer in writers))
        with troubles:
            run.java_writes(java_commits)
            while not enough():
                run.java_writes(1)
        (signals / "stop").touch()
        for writer in writers:
            writer.finish()
    finally:
        for writer in run.writers:
            writer.end()
    lines = [line for writer in run.writers for line in writer.commits()]
    opened = mainstem.open_table(path)
    done = [i for i in opened.timeline() if i.completion and i.action == "deltacommit"]
    assert len(done) == len(opened.timeline()) == len(lines) + run.java_commits
    snapshot = opened.scan().to_arrow()
    assert_same(run.expected(), without_meta(snapshot), ["id"])
    assert_same(java.read(path), snapshot, ["id"])
    mixed, _ = overlapping_pairs(path, {line["instant"] for line in lines})
    print(f"\n{run.java_commits} commits by Java, {len(lines)} by mainstem, {mixed} overlapping pairs")
    assert mixed >= 3
    return snapshot


@pytest.mark.timeout(900)
def test_java_and_two_of_our_processes_write_the_same_keys_under_zookeeper_and_nothing_is_lost(
    java: JavaHudi, server: ZooKeeperServer, tmp_path: Path
) -> None:
    write_together(java, tmp_path, explicit(server, "shared"), java_commits=4, troubles=nullcontext())
