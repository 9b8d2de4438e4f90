"""Goal: on a store, commits that are decided while a write begins do not make it begin again; plans do.

Method: publishers without a lock over a store in memory. Just before the request of one writer is put,
another one decides something.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from mainstem.formats.avro_container import OUR_MARK
from mainstem.publish.gate_fence import GateFence
from mainstem.publish.publisher import Publisher
from mainstem.storage import paths
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from tests.publish.gate_world import FreeLock
from tests.publish.late_store import LateStore, Objects
from tests.sim.world import World


class Hooked(LateStore):
    """Calls ``before`` once, before the next request of a write is put."""

    before: Callable[[], None] | None = None

    def put_new(self, path: str, data: Any, *, durable: bool) -> None:
        if path.endswith(".deltacommit.requested") and self.before is not None:
            before, self.before = self.before, None
            before()
        super().put_new(path, data, durable=durable)


class Writer:
    def __init__(self, objects: Objects, seed: int) -> None:
        self.storage = Hooked(objects)
        storage: Any = self.storage
        seams = Seams(storage, SystemClock(), FreeLock(), random.Random(seed))
        fence = GateFence(storage, seams.clock, seams.random)
        skew = ClockSkew(0)
        self.publisher = Publisher(seams, InstantTimes(), fence, skew=skew, exclusive=True, lock_free=True)
        self.beats = Heartbeats(storage, seams.clock, 60_000, 2)

    def begin(self) -> str:
        time = self.publisher.begin("deltacommit", self.beats).time
        self.storage.put_new(
            paths.timeline_file(f"{time}.deltacommit.inflight"), OUR_MARK.encode(), durable=True
        )
        return time

    def publish(self, name: Callable[[str], str]) -> str:
        prepared = paths.prepared("1", f"{random.getrandbits(64):016x}")
        self.storage.put_new(prepared, OUR_MARK.encode(), durable=True)
        target = self.publisher.publish(name, prepared=prepared, carries="deltacommit" in name("0")).target
        assert target is not None
        return target

    def complete(self, begun: str) -> str:
        """The completion time."""
        completed = self.publish(lambda time: f"{begun}_{time}.deltacommit")
        self.beats.leave(begun)
        return completed.partition("_")[2].partition(".")[0]

    def commit(self) -> str:
        return self.complete(self.begin())


@pytest.fixture
def two() -> tuple[Writer, Writer]:
    """Two writers, of which the first one knows that it is not alone."""
    objects = Objects(World(1))
    one, other = Writer(objects, 1), Writer(objects, 2)
    for writer in (one, other, one, other, one):
        writer.commit()
    return one, other


def requests(writer: Writer) -> list[str]:
    names = writer.storage.names(paths.TIMELINE)
    return [n.partition(".")[0] for n in names if n.endswith("deltacommit.requested")]


def test_a_commit_that_is_decided_while_a_write_begins_does_not_make_it_begin_again(two) -> None:
    one, other = two
    completed: list[str] = []
    one.storage.before = lambda: completed.append(other.commit())
    before = set(requests(one))
    deleted: list[str] = []
    one.storage.objects.watch = lambda event, path: deleted.append(path) if event == "deleted" else None
    begun = one.begin()
    assert len(set(requests(one)) - before) == 2 and deleted == []
    assert begun < completed[0], "the two ran beside one another"
    assert one.complete(begun) > completed[0]


def test_a_plan_that_is_decided_while_a_write_begins_makes_it_begin_again_above_the_plan(two) -> None:
    one, other = two
    planned: list[str] = []

    def plan() -> None:
        time.sleep(0.05)  # the fixture's commits may have brought the timeline some ms before the clock
        planned.append(other.publish("{}.compaction.requested".format).partition(".")[0])

    one.storage.before = plan
    deleted: list[str] = []
    one.storage.objects.watch = lambda event, path: deleted.append(path) if event == "deleted" else None
    begun = one.begin()
    assert begun > planned[0]
    assert [path for path in deleted if path.endswith(".requested")], "the first request was taken back"


def test_a_write_lies_above_what_was_committed_before_it_was_begun_whatever_its_clock_says(two) -> None:
    one, other = two
    for _ in range(5):
        completed = other.commit()
        assert one.begin() > completed
