"""Goal: the table lock excludes Java's own FileSystemBasedLockProvider and is excluded by it.

Method: Java's provider class itself locks and unlocks `.hoodie/lock`, mainstem's lock runs in this
process; a whole Java commit waits for us; a counter without any atomicity is counted up by both.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.errors import LeaseLost, LockUnavailable
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.protocol import Lease, LockProvider
from mainstem.truetime.locks.providers import open_lock

ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "ts": pa.array([1] * 10, pa.int64())})
AT_ONCE = {
    "hoodie.write.lock.wait_time_ms": "200",
    "hoodie.write.lock.client.num_retries": "0",
}


def our_lock(path: str, **options: str) -> LockProvider:
    """The lock of the table at `path` under Hudi's options."""
    checked = LockOptions.from_properties(options, base=path)
    return open_lock(checked, clock=SystemClock(), random=random.SystemRandom())


@pytest.fixture
def table(path: str) -> mainstem.Table:
    """An empty table."""
    return mainstem.create_table(path, ROWS.schema, record_key="id", ordering="ts", buckets=1, name="locked")


@pytest.mark.supports("Locks", "file-system lock beside Java's FileSystemBasedLockProvider")
def test_java_does_not_get_the_lock_that_we_hold(java: JavaHudi, table: mainstem.Table) -> None:
    lease = our_lock(table.path).acquire()
    assert not java.try_lock(table.path)
    lease.check()
    lease.release()
    assert java.try_lock(table.path)
    java.unlock()


def test_we_do_not_get_the_lock_that_java_holds(java: JavaHudi, table: mainstem.Table) -> None:
    assert java.try_lock(table.path)
    with pytest.raises(LockUnavailable, match="foreign writer"):
        our_lock(table.path, **AT_ONCE).acquire()
    with pytest.raises(LockUnavailable):
        mainstem.open_table(table.path, properties=AT_ONCE).upsert(ROWS)
    java.unlock()
    mainstem.open_table(table.path, properties=AT_ONCE).upsert(ROWS)


def test_we_go_on_as_soon_as_java_releases(java: JavaHudi, table: mainstem.Table) -> None:
    assert java.try_lock(table.path)
    ours: list[float] = []

    def wait() -> None:
        lease = our_lock(table.path).acquire()
        ours.append(time.monotonic())
        lease.release()

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(timeout=1)
    assert waiting.is_alive() and not ours
    released = time.monotonic()
    java.unlock()
    waiting.join(timeout=120)
    assert ours and ours[0] > released


def check_java_commits_only_after_our_lease(
    java: JavaHudi, table: mainstem.Table, lock: LockProvider, options: dict[str, str]
) -> None:
    """A Java job begins while we hold the lock: nothing of it shows before we release it."""
    table.upsert(ROWS)
    lease = lock.acquire()
    java.send("write", path=table.path, rows=java.rows_file(ROWS), options=options)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:  # far longer than a Java commit takes from begin to requested
        assert len(table.timeline()) == 1
        time.sleep(0.1)
    lease.check()
    lease.release()
    java.receive()
    assert [i.completion is not None for i in table.timeline()] == [True, True]


def test_a_java_commit_waits_while_we_hold_the_lock(java: JavaHudi, table: mainstem.Table) -> None:
    options = nbcc_options("locked", record_key=["id"], ordering=["ts"], buckets=1)
    check_java_commits_only_after_our_lease(java, table, our_lock(table.path), options)


def test_java_removes_our_lock_file_only_after_the_expiry_that_java_was_given(
    java: JavaHudi, table: mainstem.Table
) -> None:
    minute = {"hoodie.write.lock.filesystem.expire": "1"}
    lease = our_lock(table.path).acquire()
    assert not java.try_lock(table.path, minute)
    old = time.time() - 3600
    os.utime(Path(table.path, ".hoodie/lock"), (old, old))
    assert java.try_lock(table.path, minute)
    with pytest.raises(LeaseLost):
        lease.check()  # Java asks nobody: what we hold is gone, and we publish nothing under it
    lease.release()
    assert Path(table.path, ".hoodie/lock").exists(), "our release took Java's lock away"
    java.unlock()


def test_a_lock_that_java_deletes_when_it_closes_its_provider_is_noticed_before_we_publish(
    java: JavaHudi, table: mainstem.Table
) -> None:
    """LockManager.unlock releases and then closes; close() deletes without looking whose it is."""
    assert java.try_lock(table.path)
    java.unlock()
    lease = our_lock(table.path).acquire()
    java.close_lock()
    with pytest.raises(LeaseLost):
        lease.check()
    lease.release()
    assert table.upsert(ROWS).status == "committed"


def test_java_and_we_count_up_one_number_without_losing_a_step(
    java: JavaHudi, table: mainstem.Table, tmp_path: Path
) -> None:
    counter, ours, overwritten, end = tmp_path / "counter", 0, 0, time.monotonic() + 300
    counter.write_text("0")
    java.send("count", path=table.path, counter=str(counter), times=150)
    lock = our_lock(table.path)
    while ours < 50:
        assert time.monotonic() < end, f"{ours} turns of ours"
        lease = lock.acquire()
        try:
            number = int(counter.read_text())
            # Java looks whether the file exists and then creates it over whatever is there by then:
            # an overwritten lock file is noticed here, as before every publication.
            time.sleep(0.06)
            lease.check()
        except LeaseLost:
            lease.release()
            continue
        counter.write_text(str(number + 1))
        ours += 1
        # A busy machine may let Java stand still between these two for longer than our turn lasts. Then both
        # count on from one number.
        overwritten += is_lost(lease)
        lease.release()
        time.sleep(0.002)
    java.receive()
    assert 150 + ours - overwritten <= int(counter.read_text()) <= 150 + ours
    assert overwritten < ours / 2


def is_lost(lease: Lease) -> bool:
    try:
        lease.check()
    except LeaseLost:
        return True
    return False
