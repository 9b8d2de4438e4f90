"""Goal: the storage lock keeps its holders apart, whatever happens to their requests, clocks and processes.

Method: processes of ``lock_world`` in virtual time, one by scripts (a fault at each request) and many by
seeds; threads and real processes on obstore's memory store. Java is imitated by what
``StorageBasedLockProvider`` asks and writes.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from mainstem.errors import CorruptTable, Invalid, LeaseLost, LockUnavailable, Unavailable, Unsupported
from mainstem.options.locks import FILE_SYSTEM, IMPLICIT, STORAGE
from mainstem.storage.swaps import Swappable, Tag
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions, default_provider
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.storage_audit import AUDIT_CONFIG_PATH, AUDIT_FOLDER
from mainstem.truetime.locks.storage_lock import GAP_MS, STRETCH_MS, StorageLock
from mainstem.truetime.locks.storage_options import StorageLockOptions
from mainstem.truetime.locks.storage_record import LOCK_PATH, LockRecord, new_owner, parse_record
from tests.truetime.counting import count_under_locks
from tests.truetime.lock_world import KINDS, START_MS, HashedSwaps, MemorySwaps, Process, World

JAVA = "13ff110a-331d-4a57-9f0d-8483e3dc43b2"
BY_JAVA = b'{"expired":true,"validUntil":1795433443614,"owner":"13ff110a-331d-4a57-9f0d-8483e3dc43b2"}'


def run(world: World, *bodies: Callable[[], None], until_ms: float = 1e12) -> None:
    """Run bodies as processes until all are done; the first failure is raised."""
    open_bodies = set(range(len(bodies)))
    failures: list[BaseException] = []

    def guarded(number: int) -> Callable[[], None]:
        def body() -> None:
            try:
                bodies[number]()
            except BaseException as error:
                failures.append(error)
            open_bodies.discard(number)

        return body

    for number in range(len(bodies)):
        world.spawn(Process(world, "body"), guarded(number))
    world.run(until_ms, lambda: bool(failures) or not open_bodies)
    if failures:
        raise failures[0]
    assert not open_bodies or world.now >= until_ms, "somebody waits for nobody"


def put(store: Swappable, record: LockRecord | bytes, path: str = LOCK_PATH) -> None:
    data = record if isinstance(record, bytes) else record.encode()
    found = store.read_tagged(path)
    assert store.swap(path, data, found[1] if found else None) is not None


def record_of(store: Swappable) -> LockRecord:
    found = store.read_tagged(LOCK_PATH)
    assert found is not None
    return parse_record(found[0], "t")


# Settings


def settings(base: str = "s3://bucket/t", **given: str) -> LockOptions:
    named = {"hoodie.write.lock." + key.replace("__", "."): value for key, value in given.items()}
    return LockOptions.from_properties(named, base=base)


def test_a_table_on_an_object_store_has_this_lock_by_default() -> None:
    found = settings("s3a://bucket/lake/t/")
    assert (found.provider, found.base) == (STORAGE, "s3a://bucket/lake/t")
    assert found.storage == StorageLockOptions(300_000, 30_000)
    assert found.identity == "storage:.hoodie/.locks/table_lock.json" == settings().identity
    assert settings("/lake/t").provider == FILE_SYSTEM
    assert default_provider("abfss://c@a.dfs.core.windows.net/t") == STORAGE


def test_hudis_options_are_read() -> None:
    given = {"storage__validity__timeout__secs": "60", "storage__renew__interval__secs": "6"}
    assert settings(**given).storage == StorageLockOptions(60_000, 6_000)
    older = {"storage__validity__timeout__secs": "60", "storage__heartbeat__poll__secs": "5"}
    assert settings(**older).storage == StorageLockOptions(60_000, 5_000)


@pytest.mark.parametrize(("validity", "renew"), [("60", "7"), ("9", "1"), ("10", "0"), ("x", "1")])
def test_settings_that_hudi_refuses_are_refused(validity: str, renew: str) -> None:
    with pytest.raises(Invalid, match="storage"):
        settings(storage__validity__timeout__secs=validity, storage__renew__interval__secs=renew)


@pytest.mark.parametrize("base", ["/lake/t", "file:///lake/t", "hdfs://n/lake/t"])
def test_stores_without_conditional_puts_are_refused_with_a_way_out(base: str) -> None:
    with pytest.raises(Unsupported, match=r"swapped on condition.*s3, s3a, gs.*FileSystemBasedLockProvider"):
        settings(base, provider=STORAGE)


def test_the_file_system_lock_is_refused_on_a_store() -> None:
    with pytest.raises(Unsupported, match="found scheme s3"):
        settings(provider=FILE_SYSTEM)


def test_a_storage_that_cannot_swap_is_refused() -> None:
    with pytest.raises(Unsupported, match="cannot swap"):
        open_lock(settings(), clock=SystemClock(), random=random.Random(), storage=object())


def test_zookeeper_locks_tables_on_stores_where_java_does() -> None:
    url = {"zookeeper__url": "zk:2181", "provider": IMPLICIT}
    found = settings("s3a://my-bucket/my_lake/my_table", **url)
    assert found.identity == settings("s3://my-bucket/my_lake/my_table", **url).identity
    assert found.zookeeper and found.zookeeper.folder == "/tmp/C0E15D0CE1AD11CC/lock_key"


# The record


def test_records_are_byte_for_byte_as_java_writes_them() -> None:
    found = parse_record(BY_JAVA, "t")
    assert found == LockRecord(True, 1795433443614, JAVA)
    assert found.encode() == BY_JAVA
    assert found.busy_since_ms is None


def test_our_owners_are_uuids_that_say_so() -> None:
    one, other = new_owner(START_MS, 7), new_owner(START_MS, 8)
    assert one != other
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one)
    assert LockRecord(False, 0, one).busy_since_ms == START_MS


def test_fields_that_are_not_known_are_skipped() -> None:
    assert parse_record(BY_JAVA[:-1] + b',"more":[1]}', "t") == parse_record(BY_JAVA, "t")


BROKEN = [
    b"", b"x", b"[]", b"null", b"{}", b"\xff\xfe", b"[" * 5_000, b" " * 70_000 + BY_JAVA,
    *(BY_JAVA.replace(*pair) for pair in (
        (b"true", b'"true"'), (b"true", b"1"), (b"1795433443614", b'"1"'), (b"1795433443614", b"1.5"),
        (b"1795433443614", b"true"), (b"1795433443614", b"9" * 19), (b"1795433443614", b"9" * 5_000),
        (JAVA.encode(), b""), (JAVA.encode(), b"x" * 600), (f'"{JAVA}"'.encode(), b"null"),
    )),
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_garbage_in_the_object_is_an_error_at_once_and_stays(content: bytes) -> None:
    world = World()
    put(world.store, content)

    def body() -> None:
        with pytest.raises(CorruptTable, match=r"expected .*found .*Delete it if no writer runs"):
            Process(world, "a").lock().acquire()

    run(world, body)
    assert world.store.read_tagged(LOCK_PATH)[0] == content


def test_a_lock_that_is_valid_for_years_is_an_error_at_once() -> None:
    world = World()
    put(world.store, LockRecord(False, START_MS + 10 * 365 * 86_400_000, JAVA))

    def body() -> None:
        with pytest.raises(CorruptTable, match="the clock of that machine or of this one is wrong"):
            Process(world, "a").lock().acquire()

    run(world, body)
    assert world.now < 1_000


# Taking, holding, freeing


@pytest.fixture(params=[HashedSwaps, MemorySwaps])
def world(request: pytest.FixtureRequest) -> World:
    return World(store=request.param())


def test_one_turn_costs_two_requests_to_take_one_to_check_and_one_to_free(world: World) -> None:
    process = Process(world, "a")
    lock = process.lock()
    counts = []

    def body() -> None:
        for _ in range(2):
            lease = lock.acquire()
            counts.append(process.requests)
            lease.check()
            counts.append(process.requests)
            lease.release()
            counts.append(process.requests)

    run(world, body)
    # The first acquisition looks for the audit's settings.
    assert counts == [3, 4, 5, 7, 8, 9]
    assert record_of(world.store).expired


def test_what_is_written_while_it_is_held_excludes_java(world: World) -> None:
    def body() -> None:
        lease = Process(world, "a").lock().acquire()
        found = record_of(world.store)
        assert not found.expired
        assert abs(found.valid_until_ms - (START_MS + world.now + 300_000)) < 100
        lease.release()

    run(world, body)


def test_a_held_lock_is_waited_for_and_its_holder_is_named(world: World) -> None:
    def body() -> None:
        lease = Process(world, "a").lock().acquire()
        with pytest.raises(LockUnavailable, match=r"held by a mainstem writer \(owner .*valid for 2\d\d s"):
            Process(world, "b").lock(wait_ms=5_000).acquire()
        lease.check()
        lease.release()
        put(world.store, LockRecord(False, START_MS + 400_000, JAVA))
        with pytest.raises(LockUnavailable, match="held by another engine"):
            Process(world, "b").lock(wait_ms=5_000).acquire()

    run(world, body)


def test_no_two_records_have_the_same_bytes_even_within_a_millisecond(world: World) -> None:
    def body() -> None:
        lease = Process(world, "a").lock().acquire()
        owner = record_of(world.store).owner
        assert len({lease._next_record(owner).encode() for _ in range(5)}) == 5

    run(world, body)


def test_a_released_lock_is_lost_to_its_holder_and_free_for_the_next(world: World) -> None:
    def body() -> None:
        one = Process(world, "a").lock().acquire()
        one.release()
        with pytest.raises(LeaseLost, match="released already"):
            one.check()
        other = Process(world, "b").lock(wait_ms=0).acquire()
        one.release()
        other.check()

    run(world, body)


def test_a_holder_renews_for_as_long_as_it_lives(world: World) -> None:
    def body() -> None:
        process = Process(world, "a")
        lease = process.lock(validity_ms=10_000).acquire()
        for _ in range(6):
            process.sleep_ms(10_000)
            assert record_of(world.store).valid_until_ms - process.now_ms() > 8_000
            lease.check()
        lease.release()
        requests = process.requests
        process.sleep_ms(60_000)
        assert process.requests == requests, "nothing is left to renew"

    run(world, body)


def test_a_dead_holders_lock_is_taken_over_half_a_second_after_its_validity(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    dead = Process(world, "a")

    def body() -> None:
        dead.lock(validity_ms=60_000).acquire()
        dead.dead = True
        until = record_of(world.store).valid_until_ms
        process = Process(world, "b")
        process.lock().acquire()
        assert 500 < process.now_ms() - until < 700

    with caplog.at_level(logging.WARNING):
        run(world, body)
    assert "took over lock object memory://t/.hoodie/.locks/table_lock.json" in caplog.text


@pytest.mark.parametrize("skew_ms", [-400, 400])
def test_clocks_half_a_second_apart_rob_nobody(world: World, skew_ms: int) -> None:
    def body() -> None:
        put(world.store, LockRecord(False, START_MS + 5_000, JAVA))
        process = Process(world, "a", skew_ms)
        process.lock().acquire()
        assert world.now > 5_000 + min(500 - skew_ms, 90)

    run(world, body)


def test_a_stopped_holder_finds_that_it_lost_the_lock(world: World) -> None:
    def body() -> None:
        stopped = Process(world, "a")
        lease = stopped.lock(validity_ms=10_000).acquire()
        stopped.stopped_until = world.now + 60_000
        successor = Process(world, "b").lock().acquire()
        Process(world, "c").sleep_ms(60_000)
        with pytest.raises(LeaseLost, match=r"held by a mainstem writer .* \(was this process stopped\?\)"):
            lease.check()
        lease.release()
        successor.check()
        successor.release()

    run(world, body)


def test_a_holder_that_was_stopped_but_not_superseded_goes_on(world: World) -> None:
    def body() -> None:
        stopped = Process(world, "a")
        lease = stopped.lock(validity_ms=10_000).acquire()
        stopped.stopped_until = world.now + 60_000
        Process(world, "b").sleep_ms(60_000)
        lease.check()
        assert lease.remaining_ms > 5_000
        lease.release()

    run(world, body)


def test_a_check_leaves_half_of_the_validity(world: World) -> None:
    def body() -> None:
        process = Process(world, "a")
        lease = process.lock(validity_ms=10_000).acquire()
        for jump_ms in (4_000, 30_000, -30_000, 7_000):
            process.skew_ms += jump_ms
            lease.check()
            assert lease.remaining_ms >= 5_000

    run(world, body)


@pytest.mark.parametrize("instead", [None, b"garbage", LockRecord(True, 1, JAVA), LockRecord(False, 1, JAVA)])
def test_a_holder_whose_object_is_gone_or_replaced_lost_the_lock(instead: object) -> None:
    world = World()

    def body() -> None:
        lease = Process(world, "a").lock().acquire()
        if instead is None:
            del world.store.objects[LOCK_PATH]
        else:
            put(world.store, instead)
        before = dict(world.store.objects)
        with pytest.raises(LeaseLost):
            lease.check()
        lease.release()
        assert world.store.objects == before

    run(world, body)


def test_a_store_that_does_not_answer_is_unavailable_after_a_fifth_of_the_validity(world: World) -> None:
    def body() -> None:
        process = Process(world, "a")
        lock = process.lock(validity_ms=60_000)
        lease = lock.acquire()
        process.faults = dict.fromkeys(range(10_000), "lost")
        for act in (lease.check, lock.acquire):
            started = world.now
            with pytest.raises(Unavailable, match="503 SlowDown: try again when the store answers"):
                act()
            assert 12_000 <= world.now - started < 30_000

    run(world, body)


def test_a_lock_that_could_not_be_freed_is_freed_when_the_store_answers_again(world: World) -> None:
    def body() -> None:
        process = Process(world, "a")
        lease = process.lock(validity_ms=60_000).acquire()
        process.faults = dict.fromkeys(range(10_000), "lost")
        lease.release()
        assert not record_of(world.store).expired
        process.faults = {}
        process.sleep_ms(7_000)
        assert record_of(world.store).expired

    run(world, body)


def test_who_may_not_write_is_told_at_once() -> None:
    class Locked(HashedSwaps):
        def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
            raise PermissionError("403 Forbidden")

    world = World(store=Locked())

    def body() -> None:
        with pytest.raises(Unavailable, match=r"403 Forbidden: give this user the right"):
            Process(world, "a").lock().acquire()

    run(world, body)


# Faults


def one_turn(seed: int, store: Swappable, faults: dict[int, str]) -> int:
    """A holder with faults at its requests; then a second one, who must get the lock at once."""
    world = World(seed, store)
    process = Process(world, "a", faults=faults)

    def nobody_else() -> None:
        with pytest.raises(LockUnavailable):
            Process(world, "b").lock(wait_ms=0).acquire()

    def body() -> None:
        lease = process.lock(validity_ms=60_000).acquire()
        assert world.now < 3_000, "a put of one's own is not waited for"
        nobody_else()
        lease.check()
        process.sleep_ms(40_000)
        nobody_else()
        lease.check()
        nobody_else()
        lease.release()
        freed = world.now
        other = Process(world, "c").lock(validity_ms=60_000, wait_ms=30_000).acquire()
        assert world.now - freed < 10_000 + GAP_MS
        Process(world, "b").sleep_ms(25_000)  # what is late arrives
        other.check()
        other.release()
        Process(world, "d").lock(wait_ms=2_000).acquire()

    run(world, body)
    return process.requests


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", [HashedSwaps, MemorySwaps])
def test_a_fault_at_any_request_loses_nothing_and_blocks_nobody(kind: str, store: type) -> None:
    requests = one_turn(0, store(), {})
    assert requests >= 12
    for number in range(1, requests + 1):
        one_turn(number, store(), {number: kind})


def test_two_faults_in_a_row_neither() -> None:
    for number in range(1, 8):
        for first in KINDS:
            for second in KINDS:
                one_turn(number, HashedSwaps(), {number: first, number + 1: second})


@pytest.mark.parametrize("kind", KINDS)
def test_a_waiter_that_gives_up_leaves_no_put_that_takes_the_lock_later(kind: str) -> None:
    for number in (2, 3, 4):
        world = World(number)
        process = Process(world, "a", faults={number: kind})

        def body(process: Process = process, world: World = world) -> None:
            lock = process.lock(wait_ms=0)
            with suppress(LockUnavailable):
                lock.acquire().release()
            process.sleep_ms(30_000)
            Process(world, "b").lock(wait_ms=0).acquire()

        run(world, body)


def test_an_interrupt_while_it_is_taken_leaves_it_free() -> None:
    world = World()

    class Interrupted(Process):
        def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
            new = super().swap(path, data, tag)
            if self.requests == 2:
                raise KeyboardInterrupt
            return new

    def body() -> None:
        with pytest.raises(KeyboardInterrupt):
            Interrupted(world, "a").lock().acquire()
        assert record_of(world.store).expired

    run(world, body)


def turns(seed: int, *, chance: float, stops: bool, skew_ms: float) -> None:
    """Three processes, four turns each; a witness sees every overlap that nobody may have."""
    world = World(seed)
    acquired: list[str] = []
    validity_ms = 10_000
    lost = 0

    def turns_of(process: Process) -> Callable[[], None]:
        lock = process.lock(validity_ms=validity_ms)

        def body() -> None:
            nonlocal lost
            process.chance = chance
            for number in range(4):
                name = f"{process.name}{number}"
                lease = lock.acquire()
                acquired.append(name)
                if stops and world.random.random() < 0.3:
                    process.stopped_until = world.now + world.random.uniform(0, 3 * validity_ms)
                process.sleep_ms(world.random.uniform(0, 200))
                try:
                    lease.check()
                    assert acquired[-1] == name, f"{acquired[-1]} took the lock while {name} held it"
                    process.sleep_ms(world.random.uniform(0, 200))
                    assert acquired[-1] == name, f"{acquired[-1]} took the lock right after a check by {name}"
                except LeaseLost:
                    assert stops, "nobody was stopped"
                    assert acquired[-1] != name or record_of(world.store).owner, "who else has it?"
                    lost += 1
                lease.release()
                process.sleep_ms(world.random.uniform(0, 300))

        return body

    processes = [Process(world, name, world.random.uniform(-skew_ms, skew_ms)) for name in "abc"]
    run(world, *map(turns_of, processes))
    world.run(world.now + 30_000)
    assert len(acquired) == 12
    assert record_of(world.store).expired, "what is left behind blocks nobody"


def test_turns_of_three_processes_never_overlap() -> None:
    for seed in range(25):
        turns(seed, chance=0, stops=False, skew_ms=200)


def test_turns_never_overlap_with_faults_at_every_fifth_request() -> None:
    for seed in range(60):
        turns(seed, chance=0.2, stops=False, skew_ms=200)


def test_whoever_is_stopped_is_told_before_it_goes_on() -> None:
    for seed in range(60):
        turns(seed, chance=0.1, stops=True, skew_ms=200)


# A turn for Java


def java_waits(
    world: World, writers: int, *, exclusive: bool, hold_ms: float, away_ms: float, minutes: float
) -> tuple[list[float], int]:
    """How long a Java process waits for each of its turns beside busy mainstem writers, and their turns."""
    waits: list[float] = []
    turns_of_ours = 0
    until_ms = minutes * 60_000

    def mainstem(process: Process) -> Callable[[], None]:
        lock = process.lock(exclusive=exclusive)

        def body() -> None:
            nonlocal turns_of_ours
            while world.now < until_ms:
                lease = lock.acquire()
                process.sleep_ms(hold_ms * world.random.uniform(0.5, 1.5))
                lease.check()
                lease.release()
                turns_of_ours += 1
                process.sleep_ms(away_ms * world.random.uniform(0.5, 1.5))

        return body

    def java() -> None:
        process = Process(world, "java")
        while world.now < until_ms:
            process.sleep_ms(world.random.uniform(0, 3_000))
            started = world.now
            while not java_takes(process):
                process.sleep_ms(1_000)
            waits.append(world.now - started)
            process.sleep_ms(300)
            data, tag = process.read_tagged(LOCK_PATH)
            free = LockRecord(True, parse_record(data, "t").valid_until_ms, JAVA)
            assert process.swap(LOCK_PATH, free.encode(), tag)

    skews = [world.random.uniform(-100, 100) for _ in range(writers)]
    run(world, *(mainstem(Process(world, f"m{n}", skew)) for n, skew in enumerate(skews)), java,
        until_ms=until_ms)  # fmt: skip
    return waits, turns_of_ours


def java_takes(process: Process) -> bool:
    """One pass of Java's ``tryLock``."""
    found = process.read_tagged(LOCK_PATH)
    if found:
        record = parse_record(found[0], "t")
        if not record.expired and process.now_ms() <= record.valid_until_ms + 500:
            return False
    mine = LockRecord(False, process.now_ms() + 300_000, JAVA)
    return process.swap(LOCK_PATH, mine.encode(), found[1] if found else None) is not None


@pytest.mark.parametrize("away_ms", [0, 100, 1_000])
def test_java_waits_five_seconds_at_most_beside_four_busy_writers(away_ms: float) -> None:
    waits, ours = java_waits(World(1), 4, exclusive=False, hold_ms=150, away_ms=away_ms, minutes=4)
    assert len(waits) > 20
    assert max(waits) < STRETCH_MS + GAP_MS + 500
    assert ours > 4 * 60 * 2, "and mainstem goes on meanwhile"


def test_nobody_pauses_where_all_writers_are_mainstems() -> None:
    world = World(2)
    lock = Process(world, "a").lock(exclusive=True)

    def body() -> None:
        for _ in range(100):
            lease = lock.acquire()
            lease.check()
            lock.clock.sleep_ms(150)
            lease.release()

    run(world, body)
    assert world.now < 100 * 200


def test_a_lock_that_was_idle_is_taken_at_once_and_begins_a_new_stretch() -> None:
    world = World(3)
    process = Process(world, "a")
    lock = process.lock()

    def body() -> None:
        for _ in range(10):
            process.sleep_ms(1_200)
            started = world.now
            lease = lock.acquire()
            assert world.now - started < 100
            lease.release()

    run(world, body)


def test_an_exclusive_table_on_which_java_was_seen_leaves_it_turns() -> None:
    waits, _ = java_waits(World(4), 2, exclusive=True, hold_ms=150, away_ms=0, minutes=4)
    assert max(waits[1:]) < STRETCH_MS + GAP_MS + 500


# The audit


def events(store: HashedSwaps) -> list[dict]:
    files = [text for path, text in sorted(store.objects.items()) if path.startswith(f"{AUDIT_FOLDER}/")]
    return [json.loads(line) for text in files for line in text.splitlines()]


def test_an_audited_lock_notes_who_held_it_when() -> None:
    world = World()
    put(world.store, b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": true}', AUDIT_CONFIG_PATH)

    def body() -> None:
        process = Process(world, "a")
        lease = process.lock(validity_ms=10_000).acquire()
        process.sleep_ms(1_500)
        lease.check()
        lease.release()

    run(world, body)
    noted = events(world.store)
    assert [event["state"] for event in noted] == ["START", "RENEW", "END"]
    assert all(set(event) == {"ownerId", "transactionStartTime", "timestamp", "state", "lockExpiration",
                              "lockHeld"} for event in noted)  # fmt: skip
    start, owner = noted[0]["transactionStartTime"], noted[0]["ownerId"]
    assert f"{AUDIT_FOLDER}/{start}_{owner}.jsonl" in world.store.objects
    assert noted[0]["lockExpiration"] == noted[0]["timestamp"] + 10_000
    assert owner == record_of(world.store).owner


@pytest.mark.parametrize("config", [b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": false}', b"{}", b"x", b"[1]"])
def test_without_the_switch_nothing_is_audited(config: bytes) -> None:
    world = World()
    put(world.store, config, AUDIT_CONFIG_PATH)

    def body() -> None:
        Process(world, "a").lock().acquire().release()

    run(world, body)
    assert events(world.store) == []


def test_an_audit_that_cannot_be_written_stops_nobody() -> None:
    for number in range(1, 12):
        for kind in KINDS:
            world = World(number)
            put(world.store, b'{"STORAGE_LOCK_AUDIT_SERVICE_ENABLED": true}', AUDIT_CONFIG_PATH)
            process = Process(world, "a", faults={number: kind})

            def body(process: Process = process, world: World = world) -> None:
                lease = process.lock().acquire()
                lease.check()
                lease.release()
                Process(world, "b").lock(wait_ms=2_000).acquire()

            run(world, body)


# Threads


class Shaky(MemorySwaps):
    """Every tenth request has a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(5)

    def read_tagged(self, path: str, *, max_bytes: int = 0) -> tuple[bytes, Tag] | None:
        if self.random.random() < 0.1:
            raise OSError("503")
        return super().read_tagged(path)

    def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
        chance = self.random.random()
        if chance < 0.03:
            raise OSError("503")
        new = super().swap(path, data, tag)
        if chance < 0.06:
            raise OSError("reset")
        return super().swap(path, data, tag) if chance < 0.1 else new


@pytest.fixture
def shaky_lock() -> Iterator[Callable[[], StorageLock]]:
    store = Shaky()

    def one() -> StorageLock:
        options = LockOptions(provider=STORAGE, base="memory://t", folder="", identity="", wait_ms=60_000)
        quick = StorageLockOptions(10_000, 20, exclusive=True)
        return StorageLock(options, quick, store, clock=SystemClock(), random=random.Random())

    yield one


def test_threads_with_locks_of_their_own_never_overlap(shaky_lock: Callable[[], StorageLock]) -> None:
    counter, overlaps = count_under_locks(shaky_lock, threads=4, turns=12, patience_s=60)
    assert (counter, overlaps) == (48, 0)


def test_a_lock_that_is_still_held_at_the_end_is_freed(shaky_lock: Callable[[], StorageLock]) -> None:
    lock = shaky_lock()
    lock.storage.random.random = lambda: 0.5  # no faults
    lease = lock.acquire()
    lock.close()
    assert record_of(lock.storage).expired
    with pytest.raises(LeaseLost, match="this process ends"):
        lease.check()
