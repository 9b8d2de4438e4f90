"""Goal: a round of chaos loses and doubles nothing, and the checks after it are able to find what goes wrong.

Method: one round of ``make chaos`` in small: every fault of the pack once, on two plain writers and the three
services under a ZooKeeper ensemble of three. Then short runs in which a writer breaks one promise, which the
checks must find.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.checks import check
from tests.chaos.harness import PYTHON, Harness
from tests.chaos.python_writer import SPOILED
from tests.servers.zookeeper_ensemble import ZooKeeperEnsemble

pytest.importorskip("kazoo.client")
SESSION_S = 1.5

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


@pytest.fixture(scope="module")
def ensemble() -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tick_ms=100) as running:
        yield running


@pytest.fixture
def start(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    started: list[Harness] = []

    def make(**more: object) -> Harness:
        started.append(Harness(ensemble, tmp_path, seed=1, session_s=SESSION_S, writers=PYTHON, **more))
        return started[-1]

    yield make
    for run in started:
        run.close()


@pytest.mark.supports("Locks", "ZooKeeper lock (ZookeeperBasedLockProvider)")
def test_a_round_of_every_fault_loses_and_doubles_nothing(start, record_property):
    run = start()
    run.run(400, rounds=1, pause=(0.05, 0.4), least_batches=5)
    score = check(run)
    print("\n" + "\n".join(score.lines()))
    record_property("score", score.lines())
    assert score.wrong == []
    # It did happen, or the test says nothing.
    assert run.deal.rounds >= 1 and score.overtaken + score.faults["kill the lock's holder"] >= 1


def test_the_checks_find_a_batch_that_was_told_and_not_written_and_a_cell_that_is_another(start):
    run = start(sabotage={"python-0": "lost", "python-1": "altered"}, services=())
    run.run(0, rounds=0, least_batches=SPOILED + 2)
    found = "\n".join(check(run).wrong)
    assert "('python-0', 3, 0) was told as committed and is not on the timeline" in found
    for reader in ("mainstem", "hudi-rs"):
        assert re.search(rf"{reader}: \d+ rows missing, for instance s0-1", found)
        assert re.search(rf"{reader}: \d+ rows different, for instance \('s1-1", found)


def test_the_checks_find_a_writer_without_a_fence_that_publishes_after_it_was_overtaken(start):
    run = start(sabotage={"python-0": "unfenced"}, services=())
    run.run(0.5, rounds=0)  # it has published by the time that all have written
    assert any("became visible after" in finding for finding in check(run).wrong)
