"""What can go wrong in a run, and the shuffled pack it is dealt from.

A pack holds every fault once for every kind of process, so one round of it has seen everything. Stops are
shorter or longer than a session; the longer ones, and those aimed at whoever holds the lock, are where a
writer must notice that it was overtaken.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.servers.http_proxy import FAULTS

if TYPE_CHECKING:
    from tests.chaos.actors import Actor
    from tests.chaos.bucket import Bucket
    from tests.chaos.harness import Harness

# How long somebody is waited for who holds the lock: it is held for some milliseconds at a time.
_CATCH_S = 0.7


@dataclass(frozen=True)
class Fault:
    """``act`` does it and arranges for its end; it says False if it could not, just then."""

    name: str
    act: Callable[[Harness], bool]


def pack(harness: Harness) -> list[Fault]:
    """Every fault once."""
    kinds = sorted({actor.kind for actor in harness.actors})
    found = []
    for kind in kinds:
        found += [
            Fault(f"kill {kind}", lambda run, k=kind: _kill(run, k)),
            Fault(f"stop {kind} briefly", lambda run, k=kind: _stop(run, k, longer=False)),
            Fault(f"stop {kind} beyond its session", lambda run, k=kind: _stop(run, k, longer=True)),
        ]
        parts = next(actor.parts for actor in harness.actors if actor.kind == kind)
        for part in parts:
            found.append(Fault(f"kill {part} of {kind}", lambda run, k=kind, p=part: _kill(run, k, p)))
    if harness.ensemble is not None:
        found += _OF_THE_ENSEMBLE
    return found + (_of_the_store() if harness.bucket is not None else [])


def _of_the_store() -> list[Fault]:
    storms = [Fault(f"a storm: {fault}", lambda run, f=fault: _storm(run, f)) for fault in FAULTS]
    return [
        Fault("kill the store", lambda run: _kill_store(run, longer=False)),
        Fault("kill the store for longer than a session", lambda run: _kill_store(run, longer=True)),
        Fault("stop the store briefly", lambda run: _stop_store(run, longer=False)),
        Fault("stop the store for longer than a session", lambda run: _stop_store(run, longer=True)),
        Fault("cut all connections to the store", _cut_store),
        Fault("let nothing through to the store", _stall_store),
        *storms,
    ]


class Deal:
    """Deals from a shuffled pack, and shuffles a new one when it is empty."""

    def __init__(self, faults: list[Fault], chance: random.Random) -> None:
        self._faults, self._chance = faults, chance
        self._pack: list[Fault] = []
        #: packs that were dealt to their end
        self.rounds = 0

    def next(self, harness: Harness) -> str:
        """Do the next fault that can be done now; its name, or empty if none can."""
        if not self._pack:
            self._pack = self._chance.sample(self._faults, len(self._faults))
        for place, fault in enumerate(self._pack):
            if fault.act(harness):
                del self._pack[place]
                self.rounds += not self._pack
                return fault.name
        return ""


def _one(run: Harness, kind: str) -> Actor | None:
    able = [actor for actor in run.actors if actor.kind == kind and run.may_hurt(actor)]
    return run.chance.choice(able) if able else None


def _kill(run: Harness, kind: str, part: str = "") -> bool:
    actor = _one(run, kind)
    if actor is None or not actor.kill(part):
        return False
    run.rest(actor)
    return True


def _stop(run: Harness, kind: str, *, longer: bool) -> bool:
    actor = _one(run, kind)
    return actor is not None and _freeze(run, actor, longer)


def _freeze(run: Harness, actor: Actor, longer: bool) -> bool:
    low, high = (1.3, 2.5) if longer else (0.1, 0.6)
    actor.signal(signal.SIGSTOP)
    run.frozen.add(actor.name)

    def wake() -> None:
        run.frozen.discard(actor.name)
        actor.signal(signal.SIGCONT)
        run.rest(actor)

    run.later(run.session_s * run.chance.uniform(low, high), wake)
    return True


def _caught_holder(run: Harness) -> Actor | None:
    """Somebody who stands still while the lock is his: looked for, stopped, and found there once more."""
    end = time.monotonic() + _CATCH_S
    while time.monotonic() < end:
        pid = run.holder_of_the_lock()
        actor = next((a for a in run.actors if pid and run.may_hurt(a) and a.has(pid)), None)
        if actor is None or pid is None:
            continue
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        if run.holder_of_the_lock() == pid:
            return actor
        actor.signal(signal.SIGCONT)
    return None


def _kill_holder(run: Harness) -> bool:
    actor = _caught_holder(run)
    if actor is None:
        return False
    actor.kill()
    run.rest(actor)
    return True


def _stop_holder(run: Harness) -> bool:
    actor = _caught_holder(run)
    if actor is None:
        return False
    run.overtaken += 1
    return _freeze(run, actor, longer=True)


def _expire_holder(run: Harness) -> bool:
    actor = _caught_holder(run)
    if actor is None:
        return False
    queue = run.queue()
    ended = bool(queue) and actor.has(queue[0].pid) and run.ensemble.expire(queue[0].session)
    run.overtaken += ended
    actor.signal(signal.SIGCONT)
    return ended


def _expire_waiter(run: Harness) -> bool:
    queue = run.queue()
    return len(queue) > 1 and run.ensemble.expire(run.chance.choice(queue[1:]).session)


def _down(run: Harness, numbers: list[int], seconds: float) -> bool:
    run.ensemble_trouble.begin()
    for number in numbers:
        run.ensemble.servers[number].kill()

    def up() -> None:
        for number in numbers:
            run.ensemble.servers[number].launch()
        run.later(0.2, run.ensemble_trouble.end_when_it_serves)

    run.later(seconds, up)
    return True


def _kill_leader(run: Harness) -> bool:
    leader = run.ensemble.leader() if run.ensemble_trouble.may_begin else None
    return leader is not None and _down(run, [leader], run.chance.uniform(0.2, 2))


def _kill_follower(run: Harness) -> bool:
    leader = run.ensemble.leader() if run.ensemble_trouble.may_begin else None
    others = [n for n in range(len(run.ensemble.servers)) if n != leader]
    return leader is not None and _down(run, [run.chance.choice(others)], run.chance.uniform(0.2, 2))


def _stop_leader(run: Harness) -> bool:
    leader = run.ensemble.leader() if run.ensemble_trouble.may_begin else None
    if leader is None:
        return False
    run.ensemble_trouble.begin()
    server = run.ensemble.servers[leader]
    server.stop()

    def resume() -> None:
        server.resume()
        run.later(0.2, run.ensemble_trouble.end_when_it_serves)

    run.later(run.session_s * run.chance.uniform(0.3, 1.6), resume)
    return True


def _lose_quorum(run: Harness, *, longer: bool) -> bool:
    if not run.ensemble_trouble.may_begin:
        return False
    factor = run.chance.uniform(1.2, 1.8) if longer else run.chance.uniform(0.1, 0.5)
    two = run.chance.sample(range(len(run.ensemble.servers)), 2)
    return _down(run, two, run.session_s * factor)


def _cut(run: Harness) -> bool:
    for proxy in run.ensemble.proxies:
        proxy.cut()
    return True


def _cut_one(run: Harness) -> bool:
    run.chance.choice(run.ensemble.proxies).cut()
    return True


def _stall(run: Harness) -> bool:
    if not run.ensemble_trouble.may_begin:
        return False
    run.ensemble_trouble.begin()
    for proxy in run.ensemble.proxies:
        proxy.stall()

    def flow() -> None:
        for proxy in run.ensemble.proxies:
            proxy.flow()
        run.later(0.2, run.ensemble_trouble.end_when_it_serves)

    run.later(run.session_s * run.chance.uniform(1.2, 1.8), flow)
    return True


def _bucket(run: Harness) -> Bucket:
    assert run.bucket is not None
    return run.bucket


def _kill_store(run: Harness, *, longer: bool) -> bool:
    """kill -9, and a start on what it left."""
    if not run.store_trouble.may_begin:
        return False
    run.store_trouble.begin()
    server = _bucket(run).server
    server.kill()

    def up() -> None:
        server.launch()
        run.later(0.3, run.store_trouble.end_when_it_serves)

    factor = run.chance.uniform(1.2, 1.8) if longer else run.chance.uniform(0.0, 0.3)
    run.later(run.session_s * factor, up)
    return True


def _stop_store(run: Harness, *, longer: bool) -> bool:
    """Connections stay open and nobody answers."""
    if not run.store_trouble.may_begin:
        return False
    run.store_trouble.begin()
    server = _bucket(run).server
    server.stop()

    def resume() -> None:
        server.resume()
        run.store_trouble.end_when_it_serves()

    factor = run.chance.uniform(1.2, 1.8) if longer else run.chance.uniform(0.1, 0.5)
    run.later(run.session_s * factor, resume)
    return True


def _cut_store(run: Harness) -> bool:
    _bucket(run).proxy.cut()
    return True


def _stall_store(run: Harness) -> bool:
    if not run.store_trouble.may_begin:
        return False
    run.store_trouble.begin()
    proxy = _bucket(run).proxy
    proxy.stall()

    def flow() -> None:
        proxy.flow()
        run.store_trouble.end_when_it_serves()

    run.later(run.session_s * run.chance.uniform(0.5, 1.8), flow)
    return True


def _storm(run: Harness, fault: str) -> bool:
    if not run.store_trouble.may_begin:
        return False
    run.store_trouble.begin()
    _bucket(run).storm(fault)

    def calm() -> None:
        _bucket(run).calm()
        run.store_trouble.end_when_it_serves()

    run.later(run.chance.uniform(1.0, 3.0), calm)
    return True


_OF_THE_ENSEMBLE = [
    Fault("kill the lock's holder", _kill_holder),
    Fault("stop the lock's holder beyond its session", _stop_holder),
    Fault("expire the holder's session", _expire_holder),
    Fault("expire a session in the queue", _expire_waiter),
    Fault("kill ZooKeeper's leader", _kill_leader),
    Fault("kill a ZooKeeper follower", _kill_follower),
    Fault("stop ZooKeeper's leader", _stop_leader),
    Fault("lose the quorum briefly", lambda run: _lose_quorum(run, longer=False)),
    Fault("lose the quorum for longer than a session", lambda run: _lose_quorum(run, longer=True)),
    Fault("cut all connections", _cut),
    Fault("cut the connections of one server", _cut_one),
    Fault("let nothing through for longer than a session", _stall),
]
