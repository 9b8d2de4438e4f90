"""Goal: the simulated storage, clock and lock behave as the real ones do, faults included.

Method: small worlds built by hand; what POSIX, and the storage protocol, promise is asserted.
"""

from __future__ import annotations

import pytest

from mainstem.errors import LeaseLost, LockUnavailable
from mainstem.storage.local import LocalStorage
from tests.sim.sim_clock import SimClock
from tests.sim.sim_lock import LockService, SimLock
from tests.sim.sim_storage import Disk, SimStorage
from tests.sim.world import Faults, Killed, World


@pytest.fixture(params=["simulated", "local"])
def storage(request: pytest.FixtureRequest, tmp_path):
    """The same promises are asked of the real file system and of the simulated one."""
    if request.param == "local":
        return LocalStorage(str(tmp_path))
    world = World(1)
    return SimStorage(world, Disk(world), "/simulated")


def test_create_is_exclusive_and_makes_folders(storage) -> None:
    storage.put_new("a/b/c", b"1", durable=True)
    with pytest.raises(FileExistsError):
        storage.put_new("a/b/c", b"2", durable=True)
    assert storage.read("a/b/c", max_bytes=10) == b"1"
    assert storage.names("a") == ["b"]


def test_link_fails_when_the_target_exists_or_the_source_is_gone(storage) -> None:
    storage.put_new("one", b"1", durable=True)
    storage.put_new("two", b"2", durable=True)
    with pytest.raises(FileExistsError):
        storage.link("one", "two")
    with pytest.raises(FileNotFoundError):
        storage.link("none", "three")
    storage.link("one", "three")
    storage.delete("one")
    assert storage.read("three", max_bytes=10) == b"1"


def test_deleting_what_is_not_there_is_told_and_harmless(storage) -> None:
    assert storage.delete("none") is False
    assert storage.stat("none") is None
    assert storage.names("none") == []
    storage.delete_tree("none")
    with pytest.raises(FileNotFoundError):
        storage.read("none", max_bytes=1)
    with pytest.raises(FileNotFoundError):
        storage.renew("none")


def test_a_sink_grows_and_its_name_is_exclusive(storage) -> None:
    sink = storage.upload("p/log")
    sink.append([b"ab", memoryview(b"cd")])
    assert sink.size == 4
    storage.settle([sink], ["p", ""], durable=True)
    assert storage.read("p/log", max_bytes=9) == b"abcd"
    with pytest.raises(FileExistsError):
        storage.upload("p/log")
    storage.delete_tree("p")
    assert storage.stat("p") is None


def _crashed(seed: int, *, sync_file: bool, sync_names: bool) -> bytes | None:
    world = World(seed)
    disk = Disk(world)
    storage = SimStorage(world, disk, "/simulated")
    storage.put_new("folder/file", b"x" * 10_000, durable=sync_file)
    if sync_names:
        storage.settle([], ["folder", ""], durable=True)
    disk.crash()
    inode = disk.get("folder/file")
    return None if inode is None else bytes(inode.data)


def test_a_machine_crash_keeps_what_was_synced() -> None:
    for seed in range(50):
        assert _crashed(seed, sync_file=True, sync_names=True) == b"x" * 10_000


def test_a_machine_crash_may_lose_names_and_tear_bytes_that_were_not_synced() -> None:
    names = [_crashed(seed, sync_file=True, sync_names=False) for seed in range(50)]
    assert None in names and b"x" * 10_000 in names
    contents = {_crashed(seed, sync_file=False, sync_names=True) for seed in range(50)}
    assert {b"", b"x" * 10_000} <= contents
    assert any(c and 0 < len(c) < 10_000 for c in contents)


def test_a_killed_process_has_no_more_effects() -> None:
    world = World(3, Faults(crash=1.0))
    disk = Disk(world)
    storage = SimStorage(world, disk, "/simulated")
    process = world.process("p")
    seen = []

    def body() -> None:
        try:
            storage.put_new("first", b"", durable=False)
        finally:
            try:
                storage.put_new("second", b"", durable=False)
            except Killed:
                seen.append("no effect after death")
                raise

    world.spawn(process, "p", body)
    world.run(lambda: False, ms=1000, calls=100)
    assert process.dead and seen
    assert "second" not in disk.folders[""]


def _put_and_die(seed: int, *, machine: bool) -> bytes | None:
    """What is left of a file whose writer is killed, or its machine stops, at some moment."""
    world = World(seed, Faults(crash=0.0 if machine else 0.5))
    disk = Disk(world)
    storage = SimStorage(world, disk, "/simulated")
    process = world.process("p")
    world.spawn(process, "p", lambda: storage.put_new("f", b"x" * 10_000, durable=True))
    world.run(lambda: False, ms=1000, calls=1 + seed % 3 if machine else 100)
    if machine:
        process.kill()
        disk.crash()
    inode = disk.get("f")
    return None if inode is None else bytes(inode.data)


@pytest.mark.parametrize("machine", [False, True])
def test_a_new_file_is_whole_or_not_there_whatever_dies(machine: bool) -> None:
    assert {_put_and_die(seed, machine=machine) for seed in range(60)} == {None, b"x" * 10_000}


def _holders(stopped_ms: float, session_ms: float) -> list[str]:
    """Who thinks it holds the lock: one takes it and is stopped, another one asks for it."""
    world = World(5)
    service = LockService(world, session_ms)
    told: list[str] = []

    def first() -> None:
        lease = SimLock(service, one).acquire()
        one.paused_from, one.paused_until = world.now, world.now + stopped_ms
        world.sleep(stopped_ms)
        try:
            lease.check()
            told.append("first still holds it")
        except LeaseLost:
            told.append("first lost it")

    def second() -> None:
        world.sleep(10)
        try:
            SimLock(service, two, wait_ms=400).acquire()
            told.append("second took it")
        except LockUnavailable:
            told.append("second waited in vain")

    one, two = world.process("one"), world.process("two")
    world.spawn(one, "one", first)
    world.spawn(two, "two", second)
    world.run(lambda: len(told) == 2, ms=10_000, calls=10_000)
    return told


def test_a_holder_that_is_stopped_for_longer_than_its_session_loses_the_lock() -> None:
    assert _holders(stopped_ms=1000, session_ms=100) == ["second took it", "first lost it"]


def test_a_short_stop_costs_nothing() -> None:
    assert _holders(stopped_ms=50, session_ms=5000) == [
        "first still holds it",
        "second waited in vain",
    ]


def test_clocks_are_skewed_and_periodic_work_runs_beside() -> None:
    world = World(7, Faults(skew_ms=500))
    clocks = [SimClock(world, world.process(f"p{n}")) for n in range(5)]
    assert len({clock.now_ms() for clock in clocks}) == 5
    beats: list[float] = []
    task = clocks[0].every_ms(100, lambda: beats.append(world.now), "beat")
    world.run(lambda: len(beats) == 3, ms=10_000, calls=1000)
    task.stop()
    world.run(lambda: False, ms=10_000, calls=1000)
    assert len(beats) == 3
    assert all(99 < b - a < 102 for a, b in zip(beats, beats[1:], strict=False))


def test_a_seam_called_from_a_thread_of_its_own_is_refused() -> None:
    import threading

    world = World(9)
    storage = SimStorage(world, Disk(world), "/simulated")
    caught: list[str] = []

    def elsewhere() -> None:
        try:
            storage.names("")
        except RuntimeError as error:
            caught.append(str(error))

    def body() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    world.spawn(world.process("p"), "p", body)
    world.run(lambda: False, ms=100, calls=10)
    assert caught == ["a seam was called from a thread of its own"]
