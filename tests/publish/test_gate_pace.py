"""Goal: many writers on one table in an object store commit often, and each of them does.

Method: the publisher and the gate run in virtual time: a put takes 20 ms, a get or a list 10 ms, and each up
to 2 ms more, on the way there. So the figures are those of the protocol and hold on any machine; what
processes and servers compute comes on top (``benchmarks/store_commits.py``). A commit makes its requests one
after another as a single upsert does: its inflight file goes with its markers, then its log files.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import pytest

from mainstem.formats.avro_container import OUR_MARK
from mainstem.publish.gate_fence import GateFence
from mainstem.publish.publisher import Publisher
from mainstem.storage import paths
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from tests.publish.gate_world import FreeLock, GateWorld
from tests.publish.late_store import LateStore
from tests.sim.sim_clock import SimClock
from tests.sim.world import Process

T = TypeVar("T")
PUT_MS, GET_MS, MORE_MS = 20.0, 10.0, 2.0
SECONDS = 5


class FarStore(LateStore):
    """Each request takes its time before it arrives."""

    def _request(self, kind: str, path: str, effect: Callable[[], T]) -> T:
        world = self.objects.world
        if not path.startswith(paths.PREPARED):  # private files are in memory
            wait = GET_MS if kind in ("GET", "LIST", "HEAD") else PUT_MS
            world.sleep(wait + MORE_MS * world.random.random())
        return super()._request(kind, path, effect)


@dataclass
class Race:
    """What the writers of one run did: milliseconds and attempts of each commit."""

    writers: int
    ms: dict[str, list[float]] = field(default_factory=dict)
    attempts: list[int] = field(default_factory=list)

    def run(self) -> Race:
        made = GateWorld(1)
        for number in range(self.writers):
            process = made.world.process(f"w{number}")
            made.running += 1
            made.world.spawn(process, process.name, partial(self._write, made, process))
        made.run()
        made.check()
        return self

    def _write(self, made: GateWorld, process: Process) -> None:
        world, storage = made.world, FarStore(made.objects)
        seams = Seams(storage, SimClock(world, process), FreeLock(), process.random)
        publisher = Publisher(
            seams,
            InstantTimes(),
            GateFence(storage, seams.clock, seams.random),
            skew=ClockSkew(0),
            exclusive=True,
            lock_free=True,
        )
        beats, mine = Heartbeats(storage, seams.clock, 60_000, 2), self.ms.setdefault(process.name, [])
        end = world.now + SECONDS * 1000
        while world.now < end:
            began = world.now
            instant = publisher.begin("deltacommit", beats).time
            inflight = paths.timeline_file(f"{instant}.deltacommit.inflight")
            storage.put_new(inflight, OUR_MARK.encode(), durable=True)
            world.sleep(PUT_MS)  # log files
            prepared = paths.prepared(instant, f"{seams.random.getrandbits(64):016x}")
            storage.put_new(prepared, f"{OUR_MARK} {instant}".encode() * 80, durable=True)
            done = publisher.publish(
                lambda time, instant=instant: f"{instant}_{time}.deltacommit", prepared=prepared, carries=True
            )
            beats.leave(instant)
            self.attempts.append(done.held.attempts)
            mine.append(world.now - began)
        made.running -= 1

    @property
    def per_second(self) -> float:
        return sum(map(len, self.ms.values())) / SECONDS


@pytest.mark.parametrize("writers", [4, 8])
def test_many_writers_make_fifteen_commits_a_second_and_none_is_left_behind(writers: int) -> None:
    race = Race(writers).run()
    assert race.per_second >= 15, race.per_second
    assert min(map(len, race.ms.values())) * writers >= 0.5 * len(race.attempts)
    assert statistics.mean(race.attempts) < 5


def test_a_writer_alone_takes_less_than_two_hundred_milliseconds_and_one_attempt() -> None:
    race = Race(1).run()
    assert statistics.median(race.ms["w0"]) < 165
    assert set(race.attempts) == {1}
