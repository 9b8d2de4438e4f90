"""Goal: lock settings are read as Hudi means them; a lock file is judged by its owner record.

Method: real files in a temporary folder; Java is imitated by files without our record; where
minutes must pass, the virtual clock below passes them (file times are set, not waited for).
What needs several processes is in ``tests/multiprocess``.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.errors import Invalid, LeaseLost, LockUnavailable, Unavailable, Unsupported
from mainstem.options.locks import FILE_SYSTEM, IN_PROCESS
from mainstem.storage.local import LocalStorage
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks import file_system
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.owner_record import OwnerRecord, parse_owner_record
from mainstem.truetime.locks.providers import open_lock
from tests.publish.renaming_store import RenamingStorage

HOST_BOOT = file_system.boot_identity()


class VirtualClock(SystemClock):
    """Sleeping passes virtual time only; nothing runs beside the caller."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.passed_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.passed_ms += duration_ms

    def every_ms(self, interval_ms, task, name):
        return self

    def stop(self) -> None:
        pass


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / ".hoodie").mkdir()
    return tmp_path


def lock_file(base: Path) -> Path:
    return base / ".hoodie" / "lock"


def private_names(base: Path) -> set[str]:
    """But those of processes that had a turn and may have another."""
    names = os.listdir(base / ".hoodie/.mainstem/locks")
    return {name for name in names if name != "removal" and not name.startswith("idle-")}


def options(base: Path, **properties: object) -> LockOptions:
    props = {
        "hoodie.write.lock.wait_time_ms": "300",
        "hoodie.write.lock.client.num_retries": "0",
    } | {"hoodie." + key.replace("__", "."): str(value) for key, value in properties.items()}
    return LockOptions.from_properties(props, base=str(base))


def lock(base: Path, clock: SystemClock | None = None, **properties: object):
    chosen = clock or SystemClock()
    return open_lock(options(base, **properties), clock=chosen, random=random.Random())


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def record(**fields: object) -> bytes:
    known = {
        "kind": "mainstem-lock", "version": 1, "owner": "x", "host": "h", "boot": HOST_BOOT,
        "pid": 1, "created": 0, "expire_ms": 60_000,
    }  # fmt: skip
    return json.dumps(known | fields).encode()


# Settings


def test_defaults_are_hudis_with_the_file_system_lock():
    found = LockOptions.from_properties({}, base="/lake/t/")
    assert found.provider == FILE_SYSTEM
    assert (found.folder, found.identity) == ("/lake/t/.hoodie", "filesystem:.hoodie/lock")
    assert (found.wait_ms, found.retries, found.pause_ms) == (60_000, 50, 5_000)
    assert (found.foreign_expire_ms, found.expire_ms) == (0, 60_000)
    assert found.patience_ms == 51 * 60_000 + 50 * 5_000


@pytest.mark.parametrize(
    ("path", "folder", "identity"),
    [
        ("/lake/t/.hoodie/.aux", "/lake/t/.hoodie/.aux", "filesystem:.hoodie/.aux/lock"),
        ("file:/lake/t/.hoodie/", "/lake/t/.hoodie", "filesystem:.hoodie/lock"),
        ("file:///lake/t/x/../.hoodie", "/lake/t/.hoodie", "filesystem:.hoodie/lock"),
        ("/locks/t", "/locks/t", "filesystem:/locks/t/lock"),
        ("/lake/t2", "/lake/t2", "filesystem:/lake/t2/lock"),
    ],
)
def test_the_identity_tells_sparks_and_flinks_default_paths_apart(path, folder, identity):
    found = LockOptions.from_properties(
        {"hoodie.write.lock.filesystem.path": path}, base="file:///lake/t"
    )
    assert (found.folder, found.identity) == (folder, identity)


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
        "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider",
        "",
    ],
)
def test_other_providers_are_refused_by_name(name):
    with pytest.raises(Unsupported, match="provider=") as caught:
        LockOptions.from_properties({"hoodie.write.lock.provider": name}, base="/t")
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("hoodie.write.lock.wait_time_ms", "soon", "whole number of milliseconds"),
        ("hoodie.write.lock.wait_time_ms", "-1", "0 to 2147483647"),
        ("hoodie.write.lock.wait_time_ms", "99999999999", "0 to 2147483647"),
        ("hoodie.write.lock.client.num_retries", "1.5", "whole number of retries"),
        ("hoodie.write.lock.client.wait_time_ms_between_retry", "", "milliseconds"),
        ("hoodie.write.lock.filesystem.expire", "1m", "minutes (0 = never)"),
        ("hoodie.mainstem.lock.expire_ms", "100", "200 to 600000"),
        ("hoodie.write.lock.filesystem.path", "locks", "absolute local path"),
        ("hoodie.write.lock.filesystem.path", "file://server/locks", "absolute local path"),
        ("hoodie.write.lock.filesystem.path", "/a\0b", "absolute local path"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_what_was_expected(key, value, expected):
    with pytest.raises(Invalid) as caught:
        LockOptions.from_properties({key: value}, base="/t")
    assert f"{key}={value!r}" in str(caught.value) and expected in str(caught.value)


def test_a_lock_folder_that_is_not_local_is_refused_by_scheme():
    with pytest.raises(Unsupported, match="scheme hdfs:"):
        LockOptions.from_properties({"hoodie.write.lock.filesystem.path": "hdfs://n/l"}, base="/t")


# The file: what lies there while it is held, and after


def test_the_file_is_whole_read_only_and_carries_the_owner(base):
    lease = lock(base).acquire()
    found = parse_owner_record(lock_file(base).read_bytes())
    assert found is not None and found.pid == os.getpid() and found.boot == HOST_BOOT
    assert lock_file(base).stat().st_mode & 0o222 == 0
    assert lock_file(base).stat().st_nlink == 1
    lease.check()
    lease.release()
    lease.release()
    assert not lock_file(base).exists() and not private_names(base)
    with pytest.raises(LeaseLost, match="released already"):
        lease.check()


def test_a_thousand_turns_leave_a_constant_number_of_files_and_descriptors(base):
    ours = lock(base)
    ours.acquire().release()
    files, descriptors = private_names(base), len(os.listdir("/proc/self/fd"))
    for _ in range(1000):
        ours.acquire().release()
    assert private_names(base) == files
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_turns_of_a_process_have_one_file_and_each_a_new_time(base):
    ours, seen = lock(base), []
    for _ in range(3):
        lease = ours.acquire()
        seen.append(lock_file(base).stat())
        lease.release()
        with pytest.raises(LeaseLost, match="released already"):
            lease.check()
        time.sleep(0.02)
    assert len({found.st_ino for found in seen}) == 1
    assert [found.st_mtime_ns for found in seen] == sorted({found.st_mtime_ns for found in seen})


def test_a_lease_that_is_over_never_ends_the_next_turn_of_its_file(base):
    ours = lock(base)
    first = ours.acquire()
    first.release()
    second = ours.acquire()
    first.release()
    second.check()
    with pytest.raises(LeaseLost, match="released already"):
        first.check()
    second.release()
    assert not lock_file(base).exists()


def test_two_turns_at_once_never_have_one_file(base):
    ours = lock(base)
    ours.acquire().release()
    lost = ours.acquire()
    lock_file(base).unlink()  # as Java does when it closes, whoever holds it
    second = ours.acquire()
    with pytest.raises(LeaseLost):
        lost.check()
    lost.release()
    second.check()
    second.release()
    ours.acquire().release()


def test_a_file_of_turns_before_that_was_swept_or_whose_table_is_new_is_made_again(base):
    ours = lock(base)
    ours.acquire().release()
    for name in os.listdir(base / ".hoodie/.mainstem/locks"):
        (base / ".hoodie/.mainstem/locks" / name).unlink()
    ours.acquire().release()
    shutil.move(base / ".hoodie", base / "before")
    (base / ".hoodie").mkdir()
    lease = ours.acquire()
    lease.check()
    assert lock_file(base).exists() and not (base / "before/lock").exists()
    lease.release()


def test_locks_of_a_process_on_one_path_share_the_files_of_turns_before_and_few_are_kept(base, tmp_path):
    for _ in range(50):
        lock(base).acquire().release()
    assert len([n for n in os.listdir(base / ".hoodie/.mainstem/locks") if n.startswith("idle-")]) == 1
    tables = [tmp_path / f"table{number}" for number in range(file_system._IDLE_MAX + 3)]
    for table in tables:
        (table / ".hoodie").mkdir(parents=True)
        lock(table).acquire().release()
    kept = [len(os.listdir(table / ".hoodie/.mainstem/locks")) for table in tables]
    assert sum(kept) == file_system._IDLE_MAX and kept[-1] == 1


def test_a_process_that_ends_leaves_no_file_of_its_turns(base):
    turn = (
        "import random, sys; from tests.truetime.test_locks import Path, lock, os;"
        " base = Path(sys.argv[1]); lock(base).acquire().release();"
        " print(os.listdir(base / '.hoodie/.mainstem/locks'))"
    )
    ran = subprocess.run([sys.executable, "-c", turn, str(base)], capture_output=True, text=True, check=True)
    assert "'idle-" in ran.stdout and not os.listdir(base / ".hoodie/.mainstem/locks")


def test_a_free_lock_is_not_waited_for(base):
    ours, times = lock(base), []
    for _ in range(300):
        started = time.perf_counter()
        ours.acquire().release()
        times.append(time.perf_counter() - started)
    print(f"\nacquire + release: median {sorted(times)[150] * 1e6:.0f} us")
    assert min(times) < 0.005, "shorter than any pause between two looks, however slow the machine"


def test_a_custom_folder_is_made_and_used(base):
    ours = lock(base, write__lock__filesystem__path=base / ".hoodie/.aux")
    lease = ours.acquire()
    assert (base / ".hoodie/.aux/lock").exists() and not lock_file(base).exists()
    assert ours.identity == "filesystem:.hoodie/.aux/lock"
    lease.release()


def test_a_deleted_table_is_not_brought_back_by_its_lock(tmp_path):
    with pytest.raises(Unavailable, match="check that the table still exists"):
        lock(tmp_path / "gone").acquire()
    assert not (tmp_path / "gone").exists()


# Threads


@pytest.mark.parametrize("provider", [FILE_SYSTEM, IN_PROCESS])
def test_threads_of_one_process_never_overlap_and_share_fairly(base, provider):
    # Whom the machine holds up now and then is not passed over every time.
    assert any(min(shares_of_threads(base, provider)) >= 10 for _ in range(8))


def shares_of_threads(base, provider) -> list[int]:
    """How many of the first half of the turns each of six threads had, of 20 that it should."""
    locks = [
        lock(base, write__lock__provider=provider, write__lock__wait_time_ms=90_000)
        for _ in range(2)
    ]
    inside, overlaps, turns, together = [], [], [], threading.Barrier(6)

    def work(number: int) -> None:
        together.wait(90)
        for _ in range(40):
            lease = locks[number % 2].acquire()
            inside.append(number)
            time.sleep(0.0002)
            overlaps.append(len(inside))
            lease.check()
            inside.remove(number)
            turns.append(number)
            lease.release()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [1] * 240
    return [turns[:120].count(n) for n in range(6)]


@pytest.mark.parametrize("provider", [FILE_SYSTEM, IN_PROCESS])
def test_waiting_ends_after_the_configured_time_and_names_the_holder(base, provider):
    lease = lock(base, write__lock__provider=provider).acquire()
    rival = lock(base, write__lock__provider=provider, write__lock__wait_time_ms=100)
    started = time.perf_counter()
    with pytest.raises(LockUnavailable) as caught:
        rival.acquire()
    assert time.perf_counter() - started > 0.09
    holder = f"mainstem process {os.getpid()} on host"
    assert (holder if provider == FILE_SYSTEM else "thread 'MainThread'") in str(caught.value)
    assert "hoodie.write.lock.wait_time_ms" in str(caught.value)
    lease.check()
    lease.release()
    rival.acquire().release()


@pytest.mark.supports("Locks", "in-process lock (InProcessLockProvider)")
def test_the_in_process_lock_is_one_per_base_path(base, tmp_path):
    lease = lock(base, write__lock__provider=IN_PROCESS).acquire()
    other = lock(tmp_path / "other", write__lock__provider=IN_PROCESS)
    other.acquire().release()
    lease.release()
    with pytest.raises(LeaseLost):
        lease.check()


def interrupted_at(at: int, call) -> bool:
    """Raise in ``call`` at one of the places where Python looks for signals, number ``at`` of those in the
    code of locks. Returns whether there are so many."""
    places = 0

    def look(frame, event, _):
        nonlocal places
        name = frame.f_code.co_filename
        here = "truetime/locks/" in name or name.endswith("contextlib.py")
        if here and event in ("call", "c_return", "c_exception"):
            places += 1
            if places == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False


@pytest.mark.parametrize("store", [LocalStorage, RenamingStorage])
def test_a_release_that_is_repeated_wherever_it_was_interrupted_gives_the_lock_back(base, store):
    storage = store(str(base))
    first, second = (
        open_lock(options(base), clock=SystemClock(), random=random.Random(), storage=storage)
        for _ in range(2)
    )
    at, more = 0, True
    while more:
        at += 1
        lease = first.acquire()
        more = interrupted_at(at, lease.release)
        lease.release()
        second.acquire().release()
    assert at > 5


def test_a_lease_that_nobody_can_release_any_more_counts_as_dead(base):
    lease = lock(base).acquire()
    del lease
    gc.collect()
    assert lock_file(base).exists()
    lock(base).acquire().release()


# Foreign files


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"lockCreateTime":"2026-01-01 00:00:00.000","lockThreadName":"main","lockStacksInfo":[]}',
        b"\xff" * 100,
        b" " * 70_000 + record(),
        b"[" * 60_000 + b'"mainstem-lock"',
        b"1" * 60_000 + b'"mainstem-lock"',
        record(version=2),
        record(version=True),
        record(expire_ms="60000"),
        record(expire_ms=-1),
        record(expire_ms=1e300),
        record(boot=""),
        record(boot="b" * 300),
        record(owner=None),
        record(pid=[]),
        record() + b"}",
    ],
)
def test_a_file_without_our_record_is_respected_until_its_expiry(base, content):
    lock_file(base).write_bytes(content)
    age(lock_file(base), 3600)
    with pytest.raises(LockUnavailable, match=r"a foreign writer .*age 36.*never expires"):
        lock(base, VirtualClock()).acquire()
    patient = lock(base, VirtualClock(), write__lock__filesystem__expire=61)
    with pytest.raises(LockUnavailable, match="expires at 3660 s"):
        patient.acquire()
    assert lock_file(base).read_bytes() == content
    lock(base, VirtualClock(), write__lock__filesystem__expire=59).acquire().release()


def test_a_fresh_foreign_file_takes_its_time_from_the_store_not_from_a_skewed_clock(base):
    lock_file(base).write_bytes(b"")
    clock = VirtualClock()
    clock.offset_ms = 3_600_000
    with pytest.raises(LockUnavailable):
        lock(base, clock, write__lock__filesystem__expire=1).acquire()


def test_removing_an_expired_java_file_takes_its_checksum_file_along(base):
    lock_file(base).write_bytes(b"")
    crc = base / ".hoodie/.lock.crc"
    crc.write_bytes(b"crc\0")
    age(lock_file(base), 120)
    lock(base, write__lock__filesystem__expire=1).acquire().release()
    assert not crc.exists()


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_what_is_not_a_regular_file_is_never_removed(base, kind):
    target = base / "precious"
    target.write_bytes(record())
    if kind == "folder":
        lock_file(base).mkdir()
    elif kind == "link":
        lock_file(base).symlink_to(target)
    else:
        os.mkfifo(lock_file(base))
    os.utime(lock_file(base), (1, 1), follow_symlinks=False)
    with pytest.raises(LockUnavailable, match="not a regular file"):
        lock(base, VirtualClock(), write__lock__filesystem__expire=1).acquire()
    assert target.read_bytes() == record() and os.path.lexists(lock_file(base))


# Owner records that we did not write


def test_a_record_of_another_machine_is_judged_by_its_time(base):
    lock_file(base).write_bytes(record(boot="another-run-of-a-kernel"))
    with pytest.raises(LockUnavailable, match="mainstem process 1 on host h"):
        lock(base, VirtualClock(), write__lock__wait_time_ms=50_000).acquire()
    clock = VirtualClock()
    lock(base, clock, write__lock__wait_time_ms=70_000).acquire().release()
    assert 60_000 < clock.passed_ms < 61_000  # it stood still before our eyes for so long


def test_an_old_record_of_another_machine_is_watched_for_a_refresh_interval_first(base):
    lock_file(base).write_bytes(record(boot="another-run-of-a-kernel"))
    age(lock_file(base), 3600)
    clock = VirtualClock()
    lock(base, clock, write__lock__wait_time_ms=70_000).acquire().release()
    assert 25_000 < clock.passed_ms < 26_000


def test_an_endless_expiry_in_a_record_is_cut_to_ten_minutes(base):
    lock_file(base).write_bytes(record(boot="another", expire_ms=2**53))
    age(lock_file(base), 601)
    lock(base, VirtualClock(), write__lock__wait_time_ms=30_000).acquire().release()


def test_no_expiry_at_all_in_a_record_is_raised_to_the_least_one(base):
    lock_file(base).write_bytes(record(boot="another", expire_ms=0))
    clock = VirtualClock()
    lock(base, clock, write__lock__wait_time_ms=10_000).acquire().release()
    assert 200 < clock.passed_ms < 300


def test_a_living_holders_file_is_not_taken_when_its_time_of_day_looks_old(base):
    """The store's clock jumped an hour ahead, but the file is refreshed before our eyes."""
    ours = lock(base)
    lease = ours.acquire()
    clock = VirtualClock()
    rival = lock(base, clock, write__lock__wait_time_ms=200_000)
    slept = clock.sleep_ms

    def sleep_and_refresh(duration_ms: float) -> None:
        slept(duration_ms)
        if int(clock.passed_ms / 20_000) != int((clock.passed_ms - duration_ms) / 20_000):
            lease.refresh()
            os.utime(lock_file(base), (time.time() - 3600, time.time() - 3600 + clock.passed_ms))

    clock.sleep_ms = sleep_and_refresh
    with pytest.raises(LockUnavailable):
        rival.acquire()
    lease.check()
    lease.release()


def test_control_characters_of_a_hostile_record_do_not_reach_the_message(base):
    lock_file(base).write_bytes(record(boot="another", host="\x1b[2Jevil\n\ud800", owner="\r" * 9))
    with pytest.raises(LockUnavailable) as caught:
        lock(base, VirtualClock()).acquire()
    str(caught.value).encode()
    assert caught.value.message.isprintable() and "?[2Jevil" in str(caught.value)


@given(st.binary(max_size=300) | st.text(max_size=100).map(lambda t: record(host=t)))
def test_no_content_breaks_the_parser_and_what_it_accepts_survives_a_round_trip(content):
    found = parse_owner_record(content)
    assert found is None or parse_owner_record(found.encode()) == found


def test_every_prefix_of_a_record_is_foreign():
    whole = OwnerRecord("o", "h", "b", 1, 2, 3).encode()
    assert parse_owner_record(whole) is not None
    assert all(parse_owner_record(whole[:n]) is None for n in range(len(whole) - 1))


# Removal races


def test_a_file_that_took_the_place_of_the_judged_one_is_put_back(base):
    private = file_system._PrivateFolder(str(base / ".hoodie"), str(base))
    lock_file(base).write_bytes(b"judged")
    judged, answers = lock_file(base).stat(), []

    def matches(now: os.stat_result) -> bool:
        answers.append((now.st_dev, now.st_ino) == (judged.st_dev, judged.st_ino))
        if len(answers) == 1:  # between the look and the removal another writer takes over
            lock_file(base).rename(base / "elsewhere")
            lock_file(base).write_bytes(b"another writer's")
        return answers[-1]

    assert private.displace("gone-1", matches) is False
    assert answers == [True, False]
    assert lock_file(base).read_bytes() == b"another writer's" and not private_names(base)


def test_contenders_remove_one_at_a_time_unless_one_is_stuck(base):
    lock(base).acquire().release()
    lock_file(base).write_bytes(record())  # its OS lock is free: dead
    removal = os.open(base / ".hoodie/.mainstem/locks/removal", os.O_CREAT | os.O_RDWR)
    fcntl.flock(removal, fcntl.LOCK_EX)
    with pytest.raises(LockUnavailable):
        lock(base, VirtualClock(), write__lock__wait_time_ms=900).acquire()
    assert lock_file(base).exists()
    clock = VirtualClock()
    lock(base, clock, write__lock__wait_time_ms=5_000).acquire().release()
    assert clock.passed_ms > 1_000
    os.close(removal)


def test_a_private_file_that_was_swept_is_made_again(base):
    holder = lock(base).acquire()
    clock = VirtualClock()
    waiter = lock(base, clock)
    slept = clock.sleep_ms

    def sweep_then_free(duration_ms: float) -> None:
        slept(duration_ms)
        for name in private_names(base):
            (base / ".hoodie/.mainstem/locks" / name).unlink()
        holder.release()

    clock.sleep_ms = sweep_then_free
    lease = waiter.acquire()
    lease.check()
    lease.release()
    assert not private_names(base)


def test_a_lock_file_that_cannot_be_removed_is_left_to_the_next_writer(base, caplog):
    lease = lock(base).acquire()
    (base / ".hoodie/.mainstem/locks").rmdir()
    lease.release()
    assert not lock_file(base).exists()
    lease = lock(base).acquire()
    (base / ".hoodie").rename(base / "moved")
    with pytest.raises(LeaseLost, match="the file is gone"):
        lease.check()
    with caplog.at_level(logging.WARNING):
        lease.release()
    (base / "moved").rename(base / ".hoodie")
    lock(base).acquire().release()


# Trouble


def test_links_in_place_of_our_folders_are_not_followed(base, tmp_path):
    outside = tmp_path / "outside"
    (outside / "locks").mkdir(parents=True)
    (base / ".hoodie/.mainstem").symlink_to(outside)
    with pytest.raises(Unavailable, match="lock file"):
        lock(base).acquire()
    assert not os.listdir(outside / "locks")


def test_a_private_folder_that_anybody_may_change_is_refused(base):
    lock(base).acquire().release()
    (base / ".hoodie/.mainstem/locks").chmod(0o777)
    with pytest.raises(Unavailable, match=r"mode 777\): remove the write permission"):
        lock(base).acquire()
    (base / ".hoodie/.mainstem/locks").chmod(0o1777)
    lock(base).acquire().release()


def test_a_folder_without_write_permission_is_unavailable():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".hoodie").mkdir()
        folder.chmod(0o755)
        (folder / ".hoodie").chmod(0o555)
        done = _run_as_nobody(
            "import os, random, sys\n"
            "from mainstem.truetime.clock import SystemClock\n"
            "from mainstem.truetime.locks.options import LockOptions\n"
            "from mainstem.truetime.locks.providers import open_lock\n"
            "options = LockOptions.from_properties({}, base=sys.argv[1])\n"
            "lock = open_lock(options, clock=SystemClock(), random=random.Random())\n"
            "os.geteuid() or os.setuid(65534)\n"
            "lock.acquire()\n",
            name,
        )
        (folder / ".hoodie").chmod(0o755)
    assert "mainstem.errors.Unavailable: lock file" in done.stderr, done.stderr
    assert "give this user write permission on the lock folder" in done.stderr


def _run_as_nobody(code: str, argument: str) -> subprocess.CompletedProcess:
    root = str(Path(file_system.__file__).resolve().parents[2])
    return subprocess.run(
        [sys.executable, "-c", code, argument],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EROFS, "mount the file system for writing"),
        (errno.ENOLCK, "gives no hard links or OS locks"),
        (errno.ENOTSUP, "keep the lock folder on a local POSIX file system"),
        (errno.EIO, "look at the disk"),
    ],
)
def test_every_refusal_of_the_system_comes_with_advice(number, advice):
    text = file_system._trouble("/t/.hoodie/lock", OSError(number, os.strerror(number)))
    assert text.startswith("lock file /t/.hoodie/lock: ") and advice in text


def test_a_network_file_system_is_declared_weaker(base, monkeypatch):
    assert lock(base).weaker is None
    monkeypatch.setattr(file_system, "_file_system_kind", lambda path: "nfs4")
    assert "is on nfs4" in lock(base).weaker


def test_the_file_system_of_a_path_is_found():
    assert file_system._file_system_kind("/proc/self") == "proc"
    assert file_system._file_system_kind("/") not in (None, "proc")
