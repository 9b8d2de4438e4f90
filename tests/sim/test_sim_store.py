"""Goal: the simulated object store keeps the contract of a store, and its faults are those that it names."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.sim.sim_store import Bucket, SimStore
from tests.sim.world import Faults, World
from tests.storage.store_contract import CONTRACT

#: without threads, which nothing in the simulated world may use
OF_ONE = [
    contract for contract in CONTRACT if contract.__name__ != "one_of_many_wins_a_put_and_no_swap_is_lost"
]


def a_world(**faults: Any) -> tuple[World, Bucket, SimStore]:
    world = World(1, Faults(**faults))
    bucket = Bucket(world, tells=True)
    return world, bucket, SimStore(world, bucket, "/simulated")


def in_a_process(world: World, work: Callable[[], object]) -> list[str]:
    """What a process was told: what ``work`` raised."""
    told: list[str] = []

    def body() -> None:
        try:
            work()
            told.append("done")
        except OSError as error:
            told.append(type(error).__name__)

    process = world.process("p")
    world.spawn(process, "p", body)
    world.run(lambda: bool(told) or process.dead, ms=10**6, calls=1000)
    return told


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("contract", OF_ONE, ids=lambda function: function.__name__)
def test_the_simulated_store_keeps_the_contract(contract, tells: bool) -> None:
    world = World(1)
    contract(SimStore(world, Bucket(world, tells=tells), "/simulated"))


def test_a_request_sent_again_by_the_client_is_known_as_the_own_one() -> None:
    world, bucket, storage = a_world(repeated=1.0)
    assert in_a_process(world, lambda: storage.put_new("a/b", b"1", durable=True)) == ["done"]
    assert any("sent again" in line for line in world.recent)
    assert in_a_process(world, lambda: storage.put_new("a/b", b"1", durable=True)) == ["FileExistsError"]
    tag = storage.swap("gate", b"1", None)
    assert in_a_process(world, lambda: storage.swap("gate", b"2", tag)) == ["done"]
    assert bytes(bucket.need("gate").data) == b"2"


def test_a_lost_reply_is_an_error_after_the_effect() -> None:
    world, bucket, storage = a_world(error_after=1.0)
    assert in_a_process(world, lambda: storage.put_new("a", b"1", durable=True)) == ["OSError"]
    assert bucket.exists("a") and world.counts.errors == 1


def test_a_late_request_is_carried_out_when_nobody_waits_for_it() -> None:
    world, bucket, storage = a_world(late=1.0)
    assert in_a_process(world, lambda: storage.put_new("a", b"1", durable=True)) == ["OSError"]
    assert len(bucket.travelling) == 1 and not bucket.exists("a")
    bucket.arrive()
    assert bucket.exists("a") and not bucket.travelling
    bucket.store("b", b"of another", {})
    in_a_process(world, lambda: storage.put_new("b", b"1", durable=True))
    bucket.arrive()
    assert bytes(bucket.need("b").data) == b"of another", "its condition is looked at when it is carried out"


def test_a_request_outlives_the_process_that_sent_it() -> None:
    for seed in range(50):
        world = World(seed, Faults(crash=1.0, late=1.0))
        bucket = Bucket(world)
        storage = SimStore(world, bucket, "/simulated")
        assert in_a_process(world, lambda s=storage: s.put_new("a", b"1", durable=True)) == []
        if bucket.travelling:
            bucket.arrive()
            assert bucket.exists("a")
            return
    raise AssertionError("no request outlived its process")


def test_a_crash_of_the_machine_takes_nothing_from_the_store() -> None:
    _, bucket, storage = a_world()
    storage.put_new("a/b", b"1", durable=False)
    bucket.crash()
    assert storage.read("a/b", max_bytes=9) == b"1" and bucket.durable is bucket.folders


def test_a_mixture_of_a_store_has_no_faults_of_disks() -> None:
    rng = random.Random(1)
    drawn = [replace(Faults(), full_disk=0.5, crash_after="^link").on_a_store(rng) for _ in range(40)]
    assert all(one.full_disk == 0 and "link" not in one.crash_after for one in drawn)
    assert any(one.late for one in drawn) and any(one.repeated for one in drawn)


def test_the_store_has_its_own_clock_and_tells_whole_seconds() -> None:
    world = World(1)
    bucket = Bucket(world, clock_ms=5_500.0)
    storage = SimStore(world, bucket, "/simulated")
    storage.put_new("a", b"1", durable=True)
    assert storage.stat("a").mtime_ms == int(world.now + 5_500.0) // 1000 * 1000
    assert storage.entries("")[0].mtime_ms == int(world.now + 5_500.0)
