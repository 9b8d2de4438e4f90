"""Goal: tables on HDFS are written by several processes with all services, and nothing is lost in trouble.

Method: a name node and two data nodes of Hadoop 3.3.6; writer processes beside services; a writer that is
killed, safe mode, a data node that dies, and two name nodes of which the active one stops.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import LeaseLost, LockUnavailable, MainstemError, Unavailable
from mainstem.publish.rename_fence import RenameFence
from mainstem.storage import paths
from mainstem.storage.hdfs import HdfsStorage
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.rename_lock import RenameLock
from tests.servers import hdfs
from tests.servers.hdfs import Hdfs
from tests.stores.hdfs_writer import SCHEMA, rows

pytestmark = pytest.mark.skipif(not hdfs.installed(), reason="HDFS is not installed: make stores")
_numbers = itertools.count()
QUICK = {
    "hoodie.mainstem.exclusive": "true",
    "hoodie.bucket.index.num.buckets": "1",
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "1",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Hdfs]:
    with Hdfs() as running:
        yield running


def new_table(cluster: Hdfs, **given: str) -> mainstem.Table:
    return mainstem.create_table(
        cluster.url(f"tables/t{next(_numbers)}"), schema=SCHEMA, name="t", record_key="id", ordering="ts",
        partition_by="p", properties={**cluster.options(), **QUICK, **given},
    )  # fmt: skip


def writer(cluster: Hdfs, table: mainstem.Table, name: str, commits: int) -> subprocess.Popen[str]:
    options = json.dumps(cluster.options())
    command = [sys.executable, "-m", "tests.stores.hdfs_writer", table.path, options, name, str(commits)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def storage_of_table(cluster: Hdfs, table: mainstem.Table) -> HdfsStorage:
    return cluster.storage("tables/" + table.path.rpartition("/")[2])


def ids(cluster: Hdfs, table: mainstem.Table) -> list[str]:
    found = mainstem.open_table(table.path, properties=cluster.options()).scan().to_arrow()
    return sorted(found["id"].to_pylist())


# -- tables ----------------------------------------------------------------------------------------------


@pytest.mark.supports("Stores", "HDFS: writers and services in several processes")
@pytest.mark.parametrize("metadata", ["false", "true"])
def test_two_processes_write_beside_every_service(cluster: Hdfs, metadata: str) -> None:
    table = new_table(cluster, **{"hoodie.metadata.enable": metadata})
    writers = [writer(cluster, table, name, 6) for name in ("one", "two")]
    with writers[0], writers[1]:
        while any(process.poll() is None for process in writers):
            table.compact()
            table.clean()
            table.archive()
            time.sleep(0.2)
    assert [process.returncode for process in writers] == [0, 0]
    table.compact()
    expected = sorted(["all", *(f"{name}-{n}" for name in ("one", "two") for n in range(6))])
    assert ids(cluster, table) == expected
    if metadata == "true":
        report = table.validate_metadata()
        assert report is not None and report.ok
    storage = storage_of_table(cluster, table)
    assert storage.names(paths.PREPARED) == []
    assert not [name for name in storage.names(paths.TIMELINE) if ".part" in name]


def test_the_archive_is_read_back(cluster: Hdfs) -> None:
    kept = {"keep.min.commits": "3", "keep.max.commits": "4", "clean.commits.retained": "1"}
    table = new_table(cluster, **{f"hoodie.{name}": text for name, text in kept.items()})
    for number in range(8):
        table.upsert(rows("one", number))
        if number % 3 == 2:
            table.compact()
    table.clean()
    assert table.archive() is not None
    assert len(ids(cluster, table)) == 9
    assert len(table.timeline()) < 8
    assert storage_of_table(cluster, table).names(paths.HISTORY)


def test_a_killed_writer_s_write_is_rolled_back_by_the_next(cluster: Hdfs) -> None:
    table = new_table(cluster)
    with writer(cluster, table, "killed", 1_000) as process:
        assert process.stdout is not None
        done = [process.stdout.readline().strip() for _ in range(3)]
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        done += process.stdout.read().split()
    time.sleep(2.5)
    table.upsert(rows("next", 0))
    table.rollback_failed_writes()
    found = ids(cluster, table)
    assert set(done) | {"all", "next-0"} <= set(found) and len(found) == len(set(found)) <= len(done) + 3


def test_a_commit_in_safe_mode_fails_by_name_and_the_next_works(cluster: Hdfs) -> None:
    table = new_table(cluster)
    table.upsert(rows("one", 0))
    cluster.tell("safemode on")
    try:
        with pytest.raises(MainstemError, match="safe mode"):
            table.upsert(rows("two", 0))
    finally:
        cluster.tell("safemode off")
    table.upsert(rows("one", 1))
    assert ids(cluster, table) == ["all", "one-0", "one-1"]


@pytest.mark.supports("Stores", "HDFS: a data node dies")
def test_a_data_node_that_dies_stops_no_writer(cluster: Hdfs) -> None:
    table = new_table(cluster)
    with writer(cluster, table, "one", 6) as process:
        assert process.stdout is not None and process.stdout.readline()
        cluster.tell("data down 1")
        try:
            assert process.wait(120) == 0
            assert ids(cluster, table) == ["all", *(f"one-{n}" for n in range(6))]
        finally:
            cluster.tell("data up")


@pytest.mark.supports("Stores", "HDFS: two name nodes, of which one stops")
def test_a_name_node_that_stops_is_followed_by_the_other_one() -> None:
    with Hdfs(nodes=1, names=2) as cluster:
        table = new_table(cluster)
        with writer(cluster, table, "one", 8) as process:
            assert process.stdout is not None and process.stdout.readline() and process.stdout.readline()
            cluster.tell("active 1")
            assert process.stdout.readline() and process.stdout.readline()
            cluster.tell("active 0")
            cluster.tell("name down 1")
            done = process.stdout.read().split()
        found = ids(cluster, table)
        assert len(found) == len(set(found)) and set(done) <= set(found)
        assert process.returncode == 0 and len(found) == 9


# -- the lock --------------------------------------------------------------------------------------------


def lock(cluster: Hdfs, path: str, **given: str) -> RenameLock:
    storage = cluster.storage(path)
    storage.make_folder(".hoodie")
    waits = {"hoodie.write.lock.wait_time_ms": "60000", "hoodie.write.lock.client.num_retries": "0"}
    properties = {**waits, **given}
    options = LockOptions.from_properties(properties, base=storage.base)
    found = open_lock(options, clock=SystemClock(), random=random.Random(), storage=storage)
    assert isinstance(found, RenameLock) and found.path == ".hoodie/lock"
    return found


def test_eight_threads_with_locks_of_their_own_exclude_each_other(cluster: Hdfs, tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")

    def work() -> None:
        mine = lock(cluster, "locks/eight")
        for _ in range(5):
            lease = mine.acquire()
            (tmp_path / "witness").touch(exist_ok=False)
            count = int((tmp_path / "count").read_text())
            time.sleep(0.002)
            (tmp_path / "count").write_text(str(count + 1))
            (tmp_path / "witness").unlink()
            lease.check()
            lease.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "count").read_text() == "40"
    assert cluster.storage("locks/eight").names(".hoodie", prefix="lock") == []


def test_a_silent_holder_is_overtaken_and_finds_out(cluster: Hdfs) -> None:
    expire = {"hoodie.mainstem.lock.expire_ms": "2000"}
    silent = lock(cluster, "locks/silent", **expire)
    lease = silent.acquire()
    assert silent._refresher is not None
    silent._refresher.stop()
    began = time.monotonic()
    other = lock(cluster, "locks/silent", **expire).acquire()
    assert 1.0 < time.monotonic() - began < 20
    with pytest.raises(LeaseLost, match="no longer ours"):
        lease.check()
    lease.release()
    other.check()
    other.release()


def test_a_lock_file_of_java_is_waited_for_and_expires_only_if_told_so(cluster: Hdfs) -> None:
    ours = lock(cluster, "locks/java", **{"hoodie.write.lock.wait_time_ms": "300"})
    ours.storage.put_new(".hoodie/lock", b'{"lockCreateTime":"now"}', durable=False)
    with pytest.raises(LockUnavailable, match="foreign writer"):
        ours.acquire()
    patient = lock(cluster, "locks/java", **{"hoodie.write.lock.filesystem.expire": "1"})
    client, full = ours.storage._client, ours.storage._full(".hoodie/lock")
    client.set_times(full, client.get_file_info(full).modification_time - 61_000, 0)
    lease = patient.acquire()
    client.delete(full, False)  # as Java's unlock does, whoever holds it
    with pytest.raises(LeaseLost, match="gone"):
        lease.check()
    lease.release()


def test_a_lock_in_safe_mode_is_unavailable_by_name(cluster: Hdfs) -> None:
    ours = lock(cluster, "locks/safe")
    cluster.tell("safemode on")
    try:
        with pytest.raises(Unavailable, match="safe mode"):
            ours.acquire()
    finally:
        cluster.tell("safemode off")
    ours.acquire().release()


# -- the fence -------------------------------------------------------------------------------------------


def test_eight_fences_without_any_lock_publish_each_content_once(cluster: Hdfs) -> None:
    storage = cluster.storage("fences")
    for folder in (paths.TIMELINE, paths.PREPARED, paths.FENCE):
        storage.make_folder(folder)
    published: list[str] = []

    def work(number: int) -> None:
        mine = RenameFence(cluster.storage("fences"), SystemClock(), random.Random())
        for turn in range(4):
            path = paths.prepared(f"{number}-{turn}", "0")
            storage.put_new(path, f"{number}-{turn}".encode(), durable=False)
            while True:
                try:
                    epoch = mine.enter(path)
                except LeaseLost:
                    continue
                try:
                    epoch.publish(f"{paths.TIMELINE}/{len(storage.names(paths.TIMELINE)):06}")
                    published.append(f"{number}-{turn}")
                    break
                except (LeaseLost, FileExistsError):
                    time.sleep(random.random() / 20)
                finally:
                    epoch.leave()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = storage.names(paths.TIMELINE)
    contents = [storage.read(f"{paths.TIMELINE}/{name}", max_bytes=9).decode() for name in names]
    assert sorted(contents) == sorted(published) and len(published) == 32
    assert storage.names(paths.PREPARED) == []
