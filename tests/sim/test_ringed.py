"""Goal: under consistent hashing splits and merges of file groups beside writers lose and double nothing.

Method: the simulated world's scenarios ``ringed``, ``ringed-sinks`` and ``ringed-tasks``; seeded bugs show
that they would notice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mainstem.layout import stored_rings
from mainstem.merge.rules import KEY_COLUMN
from mainstem.services import cluster_group, clustering
from mainstem.writers import routed_anew
from mainstem.writers.rings_meanwhile import RingsMeanwhile
from tests.sim.run import simulate

SEEDS = range(1, 4)
ENOUGH = 30


@pytest.mark.parametrize("seed", SEEDS)
def test_splits_and_merges_lose_and_double_nothing(seed: int) -> None:
    result = simulate(seed, "ringed")
    assert result.failure is None, result.failure


@pytest.mark.parametrize(
    ("scenario", "seed"), [("ringed-sinks", 1), ("ringed-tasks", 1), ("ringed-tasks", 2)]
)
def test_rows_of_workers_are_found_after_splits_and_merges(scenario: str, seed: int) -> None:
    result = simulate(seed, scenario)
    assert result.failure is None, result.failure


def _nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingsMeanwhile, "find", lambda self, timeline: None)


def _rows_of_tasks_are_routed_by_the_first_number_of_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    def placed(encoder: Any, partition: str, keys: pa.Array) -> Any:
        rings, encoder.rings = encoder.rings, None
        try:
            return right(encoder, partition, keys)
        finally:
            encoder.rings = rings

    right = routed_anew._placed
    monkeypatch.setattr(routed_anew, "_placed", placed)


def _plans_stay_and_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingsMeanwhile, "_plans", lambda self, timeline: [])
    monkeypatch.setattr(clustering._WrittenSince, "find", lambda self, timeline: None)


def _pending_rings_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rings.Completed, "has", lambda self, time: True)


def _rows_are_divided_by_another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Any, tables: Any) -> Any:
        for table in tables:
            keys = table.column(KEY_COLUMN).cast(pa.string()).combine_chunks()
            hashed = cluster_group.java_string_hash(keys).astype(np.int64)
            yield table.filter(pa.array(hashed % self.group.outputs == self.number))

    monkeypatch.setattr(cluster_group.OutputTask, "_by_hash", wrong)


@pytest.mark.parametrize(
    ("bug", "first", "scenario"),  # a seed that found it, tried first
    [
        (_nobody_looks, 1, "ringed"),
        (_nobody_looks, 5, "ringed-sinks"),
        (_rows_of_tasks_are_routed_by_the_first_number_of_buckets, 1, "ringed-tasks"),
        (_plans_stay_and_nobody_looks, 1, "ringed"),
        (_pending_rings_count, 1, "ringed"),
        (_rows_are_divided_by_another_hash, 1, "ringed"),
    ],
    ids=[
        "nobody looks what was split or merged",
        "nobody looks what was split or merged since rows were staged",
        "rows of tasks are routed by the first number of buckets",
        "plans stay, and nobody looks who wrote to their file groups",
        "rings of pending clusterings count",
        "rows are divided by another hash than keys are found by",
    ],
)
def test_a_split_or_write_that_looks_for_less_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, first: int, scenario: str
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, scenario).failure is not None for seed in (first, *range(1, ENOUGH)))
