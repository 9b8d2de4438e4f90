"""Goal: under a ZooKeeper ensemble whose leader dies Java Hudi and mainstem write one table together.

Method: Java Spark and two mainstem processes upsert the same keys; meanwhile the ensemble's leader is killed
and comes back, and everybody's connections are cut, all of it shorter than a session (a Java holder that is
overtaken is not told: SAFETY.md). Who committed what is computed from the batches alone; Java, mainstem and
hudi-rs must read it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from compare import assert_same
from java_hudi import JavaHudi
from test_interop_zookeeper import explicit, write_together

from tests.hudi_rs.reading import read as read_with_hudi_rs
from tests.servers.zookeeper_ensemble import SERVERS, ZooKeeperEnsemble

pytest.importorskip("kazoo.client")
JAVA_COMMITS = 4


@pytest.fixture
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble() as running:
        yield running


class Troubles:
    """The ensemble's leader dies and comes back, and connections are cut, again and again."""

    def __init__(self, ensemble: ZooKeeperEnsemble) -> None:
        self.ensemble = ensemble
        self.leaders_killed = self.cuts = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def enough(self) -> bool:
        """Whether a leader died and connections were cut more than once."""
        assert self._thread.is_alive(), "nobody makes troubles any more"
        return self.leaders_killed >= 1 and self.cuts >= 2

    def __enter__(self) -> Troubles:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(1.5):
            for proxy in self.ensemble.proxies:
                proxy.cut()
            self.cuts += 1
            leader = self.ensemble.leader()
            if leader is None or self._over.wait(1):
                continue
            self.ensemble.servers[leader].kill()
            self._over.wait(0.5)
            self.ensemble.servers[leader].launch()
            self.ensemble.wait(range(SERVERS))
            self.leaders_killed += 1


@pytest.mark.timeout(900)
def test_java_and_two_of_our_processes_write_while_leaders_die_and_connections_are_cut(
    java: JavaHudi, ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    troubles = Troubles(ensemble)
    lock = explicit(ensemble, "shared")
    snapshot = write_together(
        java, tmp_path, lock, java_commits=JAVA_COMMITS, troubles=troubles, enough=troubles.enough
    )
    theirs, error = read_with_hudi_rs(str(tmp_path / "shared"))
    assert error is None
    assert_same(theirs, snapshot, ["id"])
    print(f"{troubles.leaders_killed} leaders killed, {troubles.cuts} times cut")
