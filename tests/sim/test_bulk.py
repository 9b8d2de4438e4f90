"""Goal: bulk inserts among other writers lose no row and leave no file, under crashes, stops and lost locks.

Method: the simulated world's scenario ``bulk``; two seeded bugs show that it would notice.
"""

from __future__ import annotations

import pytest

from mainstem.writers.bulk_insert import BulkInserter
from mainstem.writers.conflicts import Overlaps
from tests.sim.run import simulate

SEEDS = range(1, 7)
ENOUGH = 120


@pytest.mark.parametrize("seed", SEEDS)
def test_bulk_inserts_lose_nothing(seed: int) -> None:
    result = simulate(seed, "bulk")
    assert result.failure is None, result.failure


@pytest.mark.parametrize(
    ("where", "name", "bug", "first"),  # a seed that found it, tried first
    [
        (BulkInserter, "_has_files", lambda self, partition, bucket: False, 5),
        (Overlaps, "find", lambda self, timeline: None, 70),
    ],
    ids=["a base file in front of older files", "two base files for one bucket"],
)
def test_a_bulk_insert_that_does_not_look_is_found(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, bug: object, first: int
) -> None:
    monkeypatch.setattr(where, name, bug)
    assert any(simulate(seed, "bulk").failure is not None for seed in (first, *range(1, ENOUGH)))
