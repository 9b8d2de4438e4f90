"""Goal: what is published through the gate is acknowledged and visible, or reported as failed and never seen.

Method: the publisher runs with the gate on an object store in memory, in the simulated world. Writers (beside
them a rollback and an archiver) take turns by a seeded scheduler without any lock. At every request of one
writer in turn the process is killed, stands still for an hour, its reply is lost, or the request arrives
hours later. Then everything at random, and then with a rule left out of the code: the same worlds must find
it.

A longer search: ``python -m tests.publish.test_gate_fence 0 5000`` (first and last seed).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from mainstem.errors import CorruptTable, LeaseLost, TableReplaced, Unavailable, Unsupported
from mainstem.publish import gate_fence, gate_object
from mainstem.publish.gate import GATE_BYTES_MAX, PAST_MAX, PENDING_MAX, Gate, Item, fresh, parse_gate
from mainstem.publish.gate_fence import GateEpoch, GateFence
from mainstem.publish.gate_object import GateObject, known_identity, note_identity
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.truetime.clock import SystemClock
from tests.publish.gate_world import FAILED, OK, GateWorld
from tests.publish.late_store import FAULTS, LateStore, Objects
from tests.sim.world import Faults, Violation, World

SMALL, LARGE = 10, 6000  # repetitions of 17 bytes: in the gate, or in an object of its own


def drawn(seed: int) -> GateWorld:
    """A world with anything in it, by its seed."""
    rng = random.Random(f"gate {seed}")
    made = GateWorld(
        seed,
        clears=seed % 3 == 0,
        lock_free=seed % 3 == 1,
        metadata=rng.random() < 0.5,
        size=rng.choice([SMALL, SMALL, LARGE]),
        faults=Faults(skew_ms=rng.choice([0, 50, 5000])),
    )
    level = rng.choice([0.002, 0.01, 0.03, 0.1])
    for fault in FAULTS:
        rare = 0.1 if fault.startswith(("kill", "stop", "interrupt")) else 1.0
        made.objects.chances[fault] = level * rng.random() * rare
    for number in range(rng.choice([1, 2, 3, 5])):
        made.start(f"w{number}", made.writer(4))
    if rng.random() < 0.5:
        made.start("rollbacks", made.rollbacks)
    if rng.random() < 0.5:
        made.start("archiver", made.archiver)
    return made


def search(seeds: Iterable[int]) -> Counter[str]:
    """Run these worlds; raises for the first broken promise."""
    told: Counter[str] = Counter()
    for seed in seeds:
        world = drawn(seed)
        world.run()
        world.check()
        told.update(world.told.values())
    return told


# -- in order --------------------------------------------------------------------------------------------


def test_one_writer_alone_begins_and_commits_in_thirteen_requests() -> None:
    world = GateWorld(1)
    world.start("w", world.writer(10))
    world.run()
    world.check()
    assert list(world.told.values()) == [OK] * 10
    # a listing of the archive and two for a private file included
    assert world.objects.requests["w"] <= 13 * 10


@pytest.mark.parametrize(("metadata", "lock_free"), [(False, False), (True, False), (False, True)])
def test_writers_without_any_lock_publish_everything(metadata: bool, lock_free: bool) -> None:
    for seed in range(25):
        world = GateWorld(seed, metadata=metadata, lock_free=lock_free)
        for number in range(4):
            world.start(f"w{number}", world.writer(3))
        world.run()
        world.check()
        assert list(world.told.values()) == [OK] * 12


# -- one fault at each request ---------------------------------------------------------------------------


def faulty(
    fault: str,
    at: int,
    *,
    metadata: bool,
    size: int,
    archiver: bool,
    lock_free: bool = False,
    seed: int | None = None,
) -> GateWorld:
    """Two writers; at one request of the first one something happens."""
    seed = at if seed is None else seed
    world = GateWorld(seed, metadata=metadata, size=size, lock_free=lock_free)
    world.objects.faults["w0", at] = fault
    world.start("w0", world.writer(2))
    world.start("w1", world.writer(2))
    if archiver:
        world.start("archiver", world.archiver)
    world.run()
    return world


@pytest.mark.parametrize(
    ("metadata", "size", "archiver", "lock_free"),
    [(False, SMALL, False, False), (True, LARGE, True, False), (False, SMALL, True, True)],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_request_breaks_no_promise(fault, metadata, size, archiver, lock_free) -> None:
    told: Counter[str] = Counter()
    for at in range(1, 200):
        world = faulty(fault, at, metadata=metadata, size=size, archiver=archiver, lock_free=lock_free)
        world.check()
        told.update(world.told.values())
        if world.objects.requests["w0"] < at:
            break
    else:
        raise AssertionError("it never ended")
    assert told[OK] >= 2 * at and at > 25


def alone(fault: str, at: int) -> GateWorld:
    """One writer, one commit: nobody moves the gate when a late request arrives."""
    world = GateWorld(at)
    world.objects.faults["w0", at] = fault
    world.start("w0", world.writer(1))
    world.run()
    return world


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_request_of_one_commit_breaks_no_promise(fault) -> None:
    for at in range(1, 25):
        alone(fault, at).check()


def test_an_hour_s_stop_fails_no_commit() -> None:
    for fault in ("stop before", "stop after"):
        for at in range(16, 30):
            world = faulty(fault, at, metadata=False, size=SMALL, archiver=False)
            assert FAILED not in world.told.values(), (fault, at)


# -- everything at random --------------------------------------------------------------------------------


def test_faults_at_random_break_no_promise() -> None:
    told = search(range(40))
    assert told[OK] > 150 and told[FAILED] > 20


def _nothing(*given: object, **named: object) -> None: ...


def _blind(self: GateObject, before: Gate, tag: Any, after: Gate, *, publishes: bool) -> tuple[Gate, Any]:
    new = self._swaps.swap(paths.GATE, after.encode(), tag)
    if new is None:
        raise LeaseLost("refused, so it was somebody else")
    return after, new


def _without_condition(
    self: GateObject, before: Gate, tag: Any, after: Gate, *, publishes: bool
) -> tuple[Gate, Any]:
    self.storage.put(paths.GATE, after.encode(), durable=True)
    return self.read()


def _without_cancelling(
    self: GateObject, before: Gate, tag: Any, after: Gate, *, publishes: bool
) -> tuple[Gate, Any]:
    try:
        new = self._swaps.swap(paths.GATE, after.encode(), tag)
    except OSError:
        found = self.read()
        if found[0].nonce == before.nonce:
            raise Unavailable("the gate is unchanged, so it failed") from None
        new = None
    found = (after, new) if new is not None else self.read()
    if not found[0].knows(after):
        raise LeaseLost("superseded")
    return found


def _no_help(self: GateObject, gate: Gate, read_ms: float, listed: Any = None) -> Gate:
    return gate


def _first_only(self: GateObject, gate: Gate, read_ms: float, listed: Any = None) -> Gate:
    for item in gate.pending[:1]:
        if self.storage.stat(item.target) is None:
            self.put(item, gate)
    return gate


def _data_first(self: GateEpoch, target: str) -> None:
    files = [(target, self._content, None)]
    if self._ahead_target is not None:
        files.append((self._ahead_target, self._ahead, None))
    self._decide(files)


def _all_swept(storage: Any, path: str) -> None:
    """Whoever drops contents drops those of others, too."""
    for name in storage.names(paths.DECIDED):
        storage.delete(f"{paths.DECIDED}/{name}")


def _told_as_trouble(self: GateEpoch, decided: Gate, contents: Any, before_ms: float) -> None:
    for item, data in zip(decided.pending, contents, strict=True):
        self._object.put(item, decided, data)  # an error of storage goes to the publisher


def _carries_nothing(
    self: Gate, nonce: str, decided: Any = (), carried: Any = (), whole: Any = Gate.after, **more: Any
) -> Gate:
    return whole(self, nonce, decided, **more)


SEEDED: dict[str, Callable[[], Any]] = {
    "nobody helps": lambda: patch.object(GateObject, "carry_out", _no_help),
    "only the first file is helped": lambda: patch.object(GateObject, "carry_out", _first_only),
    "a refused swap is somebody else's": lambda: patch.object(GateObject, "swap", _blind),
    "the gate is put without a condition": lambda: patch.object(GateObject, "swap", _without_condition),
    "nobody looks for the own nonce": lambda: patch.object(Gate, "knows", lambda self, other: False),
    "failed without a cancelling swap": lambda: patch.object(GateObject, "swap", _without_cancelling),
    "the data's file goes first": lambda: patch.object(GateEpoch, "publish", _data_first),
    "success without a put": lambda: patch.object(GateEpoch, "_put", _nothing),
    "trouble after the decision is told as a failure": lambda: patch.object(
        GateEpoch, "_put", _told_as_trouble
    ),
    "a swap does not name what it takes along": lambda: patch.object(Gate, "after", _carries_nothing),
    "what is taken along is not put": lambda: patch.object(GateEpoch, "_is_put", lambda self, item: True),
    "contents that a decision names are swept": lambda: patch.object(
        gate_fence, "delete_quietly", _all_swept
    ),
}


@pytest.mark.parametrize("omission", SEEDED)
def test_the_same_worlds_find_each_rule_that_is_left_out(omission: str) -> None:
    with SEEDED[omission](), pytest.raises((AssertionError, CorruptTable, Violation)):
        for at in range(10, 34):
            for fault in ("stop before", "never", "late"):
                alone(fault, at).check()
                faulty(fault, at, metadata=False, size=SMALL, archiver=False, lock_free=True).check()
                size = LARGE if at % 2 else SMALL
                faulty(fault, at, metadata=True, size=size, archiver=False).check()
        search(range(300))


# -- single steps ----------------------------------------------------------------------------------------


TABLE, T = "ab" * 16, "20260101000000001"


def instant_file(time: str, action: str = "deltacommit", folder: str = paths.TIMELINE) -> str:
    return f"{folder}/{T}_{time}.{action}"


@pytest.fixture
def objects() -> Objects:
    return Objects(World(1))


@pytest.fixture
def storage(objects) -> Any:
    return LateStore(objects)


def fence(storage: Any, table: str | None = None) -> GateFence:
    return GateFence(storage, SystemClock(), random.Random(len(storage.objects.data)), table)


def private(storage: Any, data: bytes) -> str:
    path = paths.prepared("1", f"{len(storage.objects.data)}")
    storage.put_new(path, data, durable=True)
    return path


def test_a_section_that_entered_before_another_published_publishes_nothing(storage) -> None:
    one, other = (fence(storage).enter(private(storage, data)) for data in (b"one", b"other"))
    other.publish(instant_file("20260101000000004"))
    with pytest.raises(LeaseLost, match="epoch 0 of the gate was superseded by epoch 1"):
        one.check()
    with pytest.raises(LeaseLost, match="superseded"):
        one.publish(instant_file("20260101000000006"))
    assert [n[18:35] for n in storage.names(paths.TIMELINE)] == ["20260101000000004"]


def test_a_section_without_content_supersedes_at_its_entry(storage) -> None:
    one = fence(storage).enter(private(storage, b"one"))
    work = fence(storage).enter()
    with pytest.raises(LeaseLost):
        one.publish(instant_file("20260101000000004"))
    work.check()
    assert storage.names(paths.TIMELINE) == []


def test_whoever_enters_carries_out_what_is_decided_and_settle_does_nothing_else(storage) -> None:
    storage.put_new(f"{paths.TIMELINE}/{T}.deltacommit.inflight", b"", durable=True)
    epoch = fence(storage).enter(private(storage, b"x" * 10), private(storage, b"first"))
    ahead = instant_file("20260101000000002", folder=paths.METADATA_TIMELINE)
    epoch.publish_ahead(ahead, [])
    with patch.object(GateEpoch, "_put", _nothing):
        epoch.publish(instant_file("20260101000000004"))
    assert storage.names(paths.TIMELINE) == [f"{T}.deltacommit.inflight"]
    assert fence(storage).look().newest == "20260101000000004", "decided, if not visible yet"
    before = storage.objects.data[paths.GATE]
    fence(storage).settle()
    assert storage.read(instant_file("20260101000000004"), max_bytes=99) == b"x" * 10
    assert storage.read(ahead, max_bytes=99) == b"first"
    assert storage.objects.data[paths.GATE] == before


def taking_along(storage: Any, data: bytes) -> GateEpoch:
    """A section that publishes a commit, and takes along what is decided and missing."""
    epoch = fence(storage).enter(private(storage, data), carries=True)
    assert epoch.listed is not None
    return epoch


FIRST, SECOND, THIRD = (instant_file(f"2026010100000000{digit}") for digit in "468")


def test_a_commit_takes_along_what_is_decided_and_missing_and_puts_it_first(storage, objects) -> None:
    request(storage)
    with patch.object(GateEpoch, "_put", _nothing):
        taking_along(storage, b"first").publish(FIRST)
        second = taking_along(storage, b"second")
        assert second.decided == {FIRST.rpartition("/")[2]: b"first"}, "it can be read before it is there"
        second.publish(SECOND)
    put: list[str] = []
    objects.watch = lambda event, path: put.append(path) if path.startswith(paths.TIMELINE) else None
    taking_along(storage, b"third").publish(THIRD)
    assert put == [FIRST, SECOND, THIRD]
    assert storage.read(FIRST, max_bytes=99) == b"first"


def test_a_writer_whose_decision_another_took_along_and_did_not_put_puts_it_itself(storage) -> None:
    request(storage)
    first, whole = taking_along(storage, b"first"), storage.swap

    def overtaken(path: str, data: bytes, tag: Any) -> Any:
        whole(path, data, tag)
        storage.swap = whole
        second = taking_along(storage, b"second")
        with patch.object(GateEpoch, "_put", _nothing):
            second.publish(SECOND)  # decided, and its process dies
        raise OSError("the reply was lost")

    storage.swap = overtaken
    first.publish(FIRST)
    assert storage.read(FIRST, max_bytes=99) == b"first"
    assert SECOND.rpartition("/")[2] not in storage.names(paths.TIMELINE)
    fence(storage).settle()
    assert storage.read(SECOND, max_bytes=99) == b"second"


def test_a_refused_commit_lists_again_only_if_more_than_commits_were_decided(storage, objects) -> None:
    request(storage)
    first, second = taking_along(storage, b"first"), taking_along(storage, b"second")
    first.publish(FIRST)
    with pytest.raises(LeaseLost):
        second.publish(SECOND)
    again = fence(storage).enter(private(storage, b"second"), carries=True, again=second)
    assert again.told and set(again.listed or ()) == set(storage.names(paths.TIMELINE))
    plan = fence(storage).enter(private(storage, b"a plan"))
    plan.publish(f"{paths.TIMELINE}/20260101000000006.rollback.requested")
    with pytest.raises(LeaseLost):
        again.publish(SECOND)
    last = fence(storage).enter(private(storage, b"second"), carries=True, again=again)
    assert not last.told and set(last.listed or ()) == set(storage.names(paths.TIMELINE))


def test_other_sections_put_what_is_missing_before_they_go_on(storage) -> None:
    request(storage)
    with patch.object(GateEpoch, "_put", _nothing):
        taking_along(storage, b"first").publish(FIRST)
    assert FIRST.rpartition("/")[2] in (fence(storage).enter(private(storage, b"a plan")).listed or ())
    assert storage.read(FIRST, max_bytes=99) == b"first"


def test_a_name_that_other_bytes_have_is_a_corrupt_table(storage) -> None:
    storage.put_new(instant_file("20260101000000004"), b"somebody's", durable=True)
    epoch = fence(storage).enter(private(storage, b"mine"))
    with pytest.raises(CorruptTable, match="should hold the 4 bytes that epoch 1 of the gate decided"):
        epoch.publish(instant_file("20260101000000004"))


def test_after_more_swaps_than_the_gate_remembers_nobody_can_tell(storage) -> None:
    one = fence(storage).enter(private(storage, b"one"))
    for _ in range(PAST_MAX + 2):
        fence(storage).enter()
    with pytest.raises(gate_fence.OutcomeUnknown, match="66 swaps came in between"):
        one.publish(instant_file("20260101000000004"))


def test_a_replacement_is_decided_and_its_old_bytes_never_come_back(storage) -> None:
    storage.put(paths.PROPERTIES, b"a=1\n", durable=True)
    seen = [storage.read_tagged(paths.PROPERTIES)]
    for text in (b"a=2\n", b"a=1\n", b"a=2\n", b"a=1\n"):
        late = fence(storage).enter(private(storage, b"by the old properties"))
        fence(storage).enter().replace(private(storage, text), paths.PROPERTIES)
        with pytest.raises(LeaseLost):
            late.publish(instant_file("20260101000000004"))
        assert storage.read(paths.PROPERTIES, max_bytes=99).startswith(text)
        seen.append(storage.read_tagged(paths.PROPERTIES))
    assert len({tag for _, tag in seen}) == 5, "a late replacement finds its condition never again"


def test_a_replacement_that_is_decided_is_carried_out_by_whoever_comes_next(storage) -> None:
    storage.put(paths.PROPERTIES, b"a=1\n", durable=True)
    with patch.object(GateEpoch, "_put", _nothing):
        fence(storage).enter().replace(private(storage, b"a=2\n"), paths.PROPERTIES)
    assert storage.read(paths.PROPERTIES, max_bytes=99) == b"a=1\n"
    fence(storage).settle()
    assert storage.read(paths.PROPERTIES, max_bytes=99).startswith(b"a=2\n")


def request(storage: Any) -> None:
    storage.put_new(f"{paths.TIMELINE}/{T}.deltacommit.requested", b"", durable=True)


def decide_and_die(storage: Any) -> GateEpoch:
    """An instant that is requested, decided and not put."""
    request(storage)
    epoch = fence(storage).enter(private(storage, b"mine"))
    with patch.object(GateEpoch, "_put", _nothing):
        epoch.publish(instant_file("20260101000000004"))
    return epoch


def test_what_an_engine_without_a_gate_took_back_is_not_put(storage) -> None:
    epoch = decide_and_die(storage)
    decided = epoch._gate
    storage.delete(f"{paths.TIMELINE}/{T}.deltacommit.requested")  # Java rolls it back
    fence(storage).settle()
    fence(storage).enter(private(storage, b"next")).publish(
        instant_file("20260101000000006").replace("1_", "3_")
    )
    assert [n[:17] for n in storage.names(paths.TIMELINE)] == ["20260101000000003"]
    with pytest.raises(gate_fence.OutcomeUnknown, match="another engine took its instant back"):
        epoch._object.moved(decided)


def test_what_was_put_and_removed_by_an_engine_without_a_gate_does_not_come_back(storage) -> None:
    one = GateFence(storage, SystemClock(), random.Random(1), clears=True)
    storage.put_new(f"{paths.TIMELINE}/{T}.deltacommit.inflight", b"", durable=True)
    one.enter(private(storage, b"mine")).publish(instant_file("20260101000000004"))
    assert parse_gate(storage.objects.data[paths.GATE][0], "t").pending == ()
    storage.delete(instant_file("20260101000000004"))  # Java rolls it back: it is pending first
    fence(storage).settle()
    assert storage.names(paths.TIMELINE) == [f"{T}.deltacommit.inflight"]


def test_several_replacements_in_one_section_follow_each_other(storage) -> None:
    work = fence(storage).enter()
    for number in (b"1", b"2"):
        work.replace(private(storage, number), f"{paths.HISTORY}/_version_")
    assert storage.read(f"{paths.HISTORY}/_version_", max_bytes=9) == b"2"
    work.check()


def test_what_is_too_large_for_the_gate_lies_beside_it_until_it_is_put(storage) -> None:
    data = bytes(100_000)
    request(storage)
    with patch.object(GateEpoch, "_put", side_effect=gate_fence.OutcomeUnknown("died")):
        epoch = fence(storage).enter(private(storage, data))
        with pytest.raises(gate_fence.OutcomeUnknown):
            epoch.publish(instant_file("20260101000000004"))
    assert len(storage.objects.data[paths.GATE][0]) < 1000
    assert len(storage.names(paths.DECIDED)) == 1
    fence(storage).sweep()
    assert len(storage.names(paths.DECIDED)) == 1, "the gate names it"
    fence(storage).enter(private(storage, b"next")).publish(instant_file("20260101000000006"))
    assert storage.read(instant_file("20260101000000004"), max_bytes=10**6) == data
    assert storage.names(paths.DECIDED) == []


def test_a_sweep_leaves_contents_that_may_still_be_named(storage) -> None:
    fence(storage).enter()  # epoch 1
    for epoch in (0, 1, 2):
        storage.put_new(paths.decided(epoch, "0" * 32, 0), b"", durable=True)
    fence(storage).sweep()
    assert storage.names(paths.DECIDED) == [f"2-{'0' * 32}-0"]


def test_a_decided_content_that_is_gone_stops_everybody(storage) -> None:
    request(storage)
    died = gate_fence.OutcomeUnknown("died")
    with patch.object(GateEpoch, "_put", side_effect=died), pytest.raises(gate_fence.OutcomeUnknown):
        fence(storage).enter(private(storage, bytes(100_000))).publish(instant_file("20260101000000004"))
    for name in storage.names(paths.DECIDED):
        storage.delete(f"{paths.DECIDED}/{name}")
    with pytest.raises(CorruptTable, match="is gone: bring it back from a copy"):
        fence(storage).enter(private(storage, b"next")).publish(instant_file("20260101000000006"))


def test_notes_outlive_sections_and_supersede_those_that_entered_before(storage) -> None:
    one = fence(storage).enter(private(storage, b"one"))
    fence(storage).enter().note_newest("20260101000000009")
    fence(storage).note_foreign("Java's")
    with pytest.raises(LeaseLost):
        one.publish(instant_file("20260101000000004"))
    fence(storage).enter().note_newest("20260101000000007")
    epoch = fence(storage).enter(private(storage, b"one"))
    assert (epoch.notes.newest, epoch.notes.foreign_seen) == ("20260101000000009", True)
    epoch.publish(instant_file("20260101000000010"))
    assert fence(storage).look().newest == "20260101000000010"


def test_the_clock_of_the_store_is_read_from_a_swap_of_this_section(storage, objects) -> None:
    fence(storage).enter()
    objects.world.now += 10**7
    epoch = fence(storage).enter(private(storage, b"one"))
    assert objects.world.now - 1000 < epoch.now_ms() <= objects.world.now
    epoch.publish(instant_file("20260101000000004"))


def test_another_table_at_the_path_gets_nothing(storage) -> None:
    mine = note_identity(storage, random.Random(1))
    assert known_identity(storage) == note_identity(storage, random.Random(2)) == mine
    old = fence(storage, mine)
    epoch = old.enter(private(storage, b"one"))
    storage.delete(paths.GATE)
    tries = (old.look, old.enter, epoch.check, lambda: epoch.publish(instant_file("20260101000000004")))
    for doomed in tries:
        with pytest.raises(TableReplaced, match="is missing"):
            doomed()
    assert known_identity(storage) is None, "nobody brought the gate back"
    note_identity(storage, random.Random(3))
    for doomed in tries:
        with pytest.raises(TableReplaced, match="is of another table"):
            doomed()
    assert storage.names(paths.TIMELINE) == []


def test_a_store_without_swaps_is_refused_and_a_private_file_that_is_gone(storage, tmp_path) -> None:
    with pytest.raises(Unsupported, match="cannot swap"):
        GateFence(LocalStorage(str(tmp_path)), SystemClock(), random.Random(1))
    with pytest.raises(Unavailable, match="prepared content p is gone; nothing was published"):
        fence(storage).enter("p")


def came_back(fault: str) -> list[str]:
    """Files that appeared again after an archiver took them away, over stops at each request in turn."""
    found = []
    for seed in range(48):
        world = faulty(fault, 10 + seed % 24, metadata=False, size=SMALL, archiver=True, seed=seed)
        world.check()
        found += world.came_back
    return found


def test_a_holder_that_stood_still_after_its_swap_looks_and_brings_nothing_back() -> None:
    assert came_back("stop after") == []
    with patch.object(gate_object, "LOOK_AGAIN_MS", 10**12):
        assert came_back("stop after") != []


def test_a_put_that_arrives_late_brings_a_file_back_that_counts_once() -> None:
    assert came_back("stop before") != []


# -- what the gate may say -------------------------------------------------------------------------------


GOOD = Gate(TABLE, 0, "0" * 32).after("1" * 32, [Item.of(instant_file("20260101000000004"), b"content")])


def changed(**fields: Any) -> bytes:
    return replace(GOOD, **fields).encode()


def of_item(**fields: Any) -> bytes:
    return changed(pending=(replace(GOOD.pending[0], **fields),))


BAD = {
    "no JSON": b"{",
    "no object": b"[]",
    "another field": GOOD.encode().replace(b'"version"', b'"more":1,"version"'),
    "a dropped file that is none": changed(dropped=("x",)),
    "a shorter past": changed(past=()),
    "no nonce": changed(nonce="1"),
    "a time": changed(newest="now"),
    "too many files": changed(pending=GOOD.pending * (PENDING_MAX + 1)),
    "no checksum": of_item(sha256="0" * 63),
    "another checksum": of_item(sha256="0" * 64),
    "another size": of_item(size=3),
    "a data file": of_item(target="p/.f_1.log.1_0-0-0"),
    "a path that leaves the table": of_item(target=f"{paths.TIMELINE}/../../{T}.commit.requested"),
    "no instant": of_item(target=f"{paths.TIMELINE}/x"),
    "properties as a new file": of_item(target=paths.PROPERTIES),
    "a data file that is replaced": of_item(target="p/f", was=""),
    "the gate itself": of_item(target=paths.GATE, was=""),
    "a lock": of_item(target=".hoodie/.locks/table_lock.json", was=""),
    "a content elsewhere": of_item(content=None, prepared="p/f"),
    "another decision's content": of_item(content=None, prepared=paths.decided(1, "2" * 32, 0)),
    "no content": of_item(content=None),
}


@pytest.mark.parametrize("what", BAD)
def test_a_gate_that_is_not_ours_is_refused_by_name(what, storage) -> None:
    storage.put(paths.GATE, BAD[what], durable=True)
    with pytest.raises(CorruptTable, match=r"Nothing was published.*gate\.json"):
        fence(storage).enter()
    assert storage.names(paths.TIMELINE) == []


def test_a_later_version_is_refused(storage) -> None:
    storage.put(paths.GATE, GOOD.encode().replace(b'"version":1', b'"version":2'), durable=True)
    with pytest.raises(Unsupported, match="has version 2, and this mainstem knows 1"):
        fence(storage).look()


def test_the_gate_is_read_as_it_was_written_and_stays_small() -> None:
    gate = Gate(TABLE, 0, "0" * 32)
    for number in range(200):
        items = [Item.of(instant_file(f"{20260101000000002 + number}"), bytes(65_536))]
        gate = gate.after(f"{number:032x}", items)
        assert parse_gate(gate.encode(), "t") == gate
    assert len(gate.past) == PAST_MAX and len(gate.encode()) < GATE_BYTES_MAX


def test_replaced_texts_are_never_twice_the_same() -> None:
    for target in (paths.PROPERTIES, "p/.hoodie_partition_metadata", paths.INDEX_DEFINITIONS):
        found = {fresh(target, b"{}", f"{nonce:032x}") for nonce in range(9)}
        assert len(found) == 9 and all(text.strip().startswith(b"{}") for text in found)
    assert fresh(f"{paths.HISTORY}/_version_", b"7", "0" * 32) == b"7"


if __name__ == "__main__":
    first, last = (int(text) for text in sys.argv[1:3])
    print(search(range(first, last)))
