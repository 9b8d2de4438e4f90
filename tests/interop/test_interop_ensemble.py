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

import event_batches
import pytest
from compare import assert_same, without_meta
from java_hudi import JavaHudi
from test_interop_concurrent import Run, overlapping_pairs, wait_for
from test_interop_zookeeper import java_options

import mainstem
from mainstem.testing.zookeeper_ensemble import SERVERS, ZooKeeperEnsemble
from mainstem.truetime.zk_options import EXPLICIT
from tests.hudi_rs.reading import read as read_with_hudi_rs

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


@pytest.mark.timeout(300)
def test_java_and_two_of_our_processes_write_while_leaders_die_and_connections_are_cut(
    java: JavaHudi, ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    path, signals = str(tmp_path / "shared"), tmp_path / "signals"
    signals.mkdir()
    mainstem.create_table(
        path, event_batches.SCHEMA, record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=4,
        properties={
            "hoodie.write.lock.provider": EXPLICIT,
            "hoodie.write.lock.zookeeper.url": ensemble.connect_string,
            "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
            "hoodie.write.lock.zookeeper.lock_key": "shared",
        },
    )  # fmt: skip
    run = Run(java, path, signals, java_options("shared", partition_by=["city"], buckets=4))
    try:
        writers = [run.start(0), run.start(1)]
        (signals / "go").touch()
        wait_for(lambda: all(writer.commits() for writer in writers))
        with Troubles(ensemble) as troubles:
            run.java_writes(JAVA_COMMITS)
        (signals / "stop").touch()
        for writer in writers:
            writer.finish()
    finally:
        for writer in run.writers:
            writer.end()
    lines = [line for writer in run.writers for line in writer.commits()]
    opened = mainstem.open_table(path)
    done = [i for i in opened.timeline() if i.completion and i.action == "deltacommit"]
    assert len(done) == len(opened.timeline()) == len(lines) + run.java_commits
    snapshot = opened.scan().to_arrow()
    assert_same(run.expected(), without_meta(snapshot), ["id"])
    assert_same(java.read(path), snapshot, ["id"])
    theirs, error = read_with_hudi_rs(path)
    assert error is None
    assert_same(theirs, snapshot, ["id"])
    mixed, _ = overlapping_pairs(path, {line["instant"] for line in lines})
    print(f"\n{run.java_commits} commits by Java, {len(lines)} by mainstem, {mixed} overlapping pairs;"
          f" {troubles.leaders_killed} leaders killed, {troubles.cuts} times cut")  # fmt: skip
    assert troubles.leaders_killed >= 1 and troubles.cuts >= 2
    assert mixed >= 3
