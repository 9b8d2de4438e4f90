"""Goal: the ZooKeeper lock keeps its promises while an ensemble loses its leader, its quorum or its network.

Method: a real ensemble of three behind proxies. Holders go through the proxies, whose connections are cut or
stalled; a second lock that goes straight to the servers sees who really has it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainstem.errors import LeaseLost, LockUnavailable
from mainstem.options.locks import EXPLICIT
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.providers import open_lock
from mainstem.truetime.locks.zookeeper import ZooKeeperLock
from tests.multiprocess.test_lock_processes import eventually
from tests.servers.zookeeper_ensemble import SERVERS, ZooKeeperEnsemble, session_password

pytest.importorskip("kazoo.client")
LONG_MS, SHORT_MS = 60_000, 1_000

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tick_ms=100) as running:
        yield running


@pytest.fixture
def lock(ensemble, request, tmp_path: Path) -> Iterator[Callable[..., ZooKeeperLock]]:
    opened: list[ZooKeeperLock] = []

    def make(
        *, session_ms: int = LONG_MS, patience_ms: int = 60_000, connection_ms: int = 60_000,
        direct: bool = False,
    ) -> ZooKeeperLock:  # fmt: skip
        properties = {
            "hoodie.write.lock.provider": EXPLICIT,
            "hoodie.write.lock.zookeeper.url": ensemble.direct_string if direct else ensemble.connect_string,
            "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
            "hoodie.write.lock.zookeeper.lock_key": request.node.name,
            "hoodie.write.lock.zookeeper.session_timeout_ms": str(session_ms),
            "hoodie.write.lock.zookeeper.connection_timeout_ms": str(connection_ms),
            "hoodie.write.lock.wait_time_ms": str(patience_ms),
            "hoodie.write.lock.client.num_retries": "0",
        }
        options = LockOptions.from_properties(properties, base=str(tmp_path))
        opened.append(open_lock(options, clock=SystemClock(), random=random.SystemRandom()))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def test_a_lease_lasts_over_the_death_of_the_leader_and_is_handed_over_in_order(lock, ensemble):
    lease, got = lock().acquire(), []
    waiting = threading.Thread(target=lambda: got.append(lock().acquire()))
    waiting.start()
    leader = ensemble.leader()
    ensemble.servers[leader].kill()
    lease.check()
    assert got == []
    lease.release()
    waiting.join()
    got[0].check()
    ensemble.servers[leader].launch()
    ensemble.wait(range(SERVERS))
    got[0].check()


def test_a_lease_lasts_over_cut_connections(lock, ensemble):
    lease, other = lock().acquire(), lock(direct=True, patience_ms=200)
    for _ in range(3):
        for proxy in ensemble.proxies:
            proxy.cut()
        lease.check()
        with pytest.raises(LockUnavailable):
            other.acquire()


def test_a_holder_whose_session_is_ended_is_told_and_the_next_one_has_the_lock(lock, ensemble):
    mine = lock()
    lease = mine.acquire()
    assert mine.session().client.client_id == (mine.session().number, session_password(mine.session().number))
    eventually(lambda: ensemble.expire(mine.session().number), "its session is ended")
    other = lock(direct=True).acquire()
    with pytest.raises(LeaseLost):
        lease.check()
    other.check()
    lease.release()
    other.check()
    other.release()
    mine.acquire().check()


def test_a_holder_that_the_network_cut_off_for_longer_than_its_session_is_overtaken_and_told(lock, ensemble):
    lease = lock(session_ms=SHORT_MS).acquire()
    for proxy in ensemble.proxies:
        proxy.stall()
    try:
        other = lock(direct=True).acquire()
        with pytest.raises(LeaseLost):
            lease.check()
    finally:
        for proxy in ensemble.proxies:
            proxy.flow()
    with pytest.raises(LeaseLost):
        lease.check()
    other.check()


def test_without_a_quorum_nobody_gets_the_lock_and_afterwards_the_holder_still_has_it(lock, ensemble):
    lease = lock().acquire()
    impatient = lock(direct=True, patience_ms=1_500, connection_ms=3_000)  # also: to take its node back
    impatient.session()
    two = [ensemble.servers[0], ensemble.servers[1]]
    for server in two:
        server.kill()
    with pytest.raises(LockUnavailable, match="does not answer"):
        impatient.acquire()
    for server in two:
        server.launch()
    ensemble.wait(range(SERVERS))
    lease.check()
    with pytest.raises(LockUnavailable, match="was held by"):
        lock(direct=True, patience_ms=1_500).acquire()
