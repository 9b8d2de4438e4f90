"""Goal: rows that engines hand over are placed once, in their order; overwrites take their keys from
anywhere.

Method: the simulated world's scenarios ``placed-tasks``, ``placed-sinks`` and ``moved-overwrites``; seeded
bugs show that they would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.writers import staged_rows, unplaced_rows
from mainstem.writers.encode_rows import BucketEncoder
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile
from mainstem.writers.placed_overwrites import HiddenGroups, PlacingOverwriter
from tests.sim.run import simulate

ENOUGH = 40


@pytest.mark.filterwarnings("ignore")  # of a metadata table that cannot be read for a moment
@pytest.mark.parametrize("scenario", ["placed-tasks", "placed-sinks", "moved-overwrites"])
@pytest.mark.parametrize(("seed", "body"), [(1, "disk"), (2, "store")])
def test_rows_that_engines_hand_over_are_placed_once(scenario: str, seed: int, body: str) -> None:
    result = simulate(seed, scenario, body=body)
    assert result.failure is None, result.failure


def _keys_stay_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacingOverwriter, "_take_keys", lambda self: None)


def _nothing_passes_an_overwrite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HiddenGroups, "find", lambda self, timeline: None)


def _deletions_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = unplaced_rows.joined
    monkeypatch.setattr(unplaced_rows, "joined", lambda tables: ((rows, None) for rows, _ in joined(tables)))


def _deletions_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_rows, "in_turns", lambda spec, batch, deleted: iter([(batch, deleted)]))


def _nobody_placed_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysPlacedMeanwhile, "look", lambda self, timeline: None)


def _rows_come_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = BucketEncoder.arrived
    monkeypatch.setattr(BucketEncoder, "arrived", lambda self, count: arrived(self, count) * 0)


BUGS = [
    (_keys_stay_elsewhere, "moved-overwrites", 5, "keys of an overwrite stay where they were, too"),
    (_nothing_passes_an_overwrite, "moved-overwrites", 2, "an overwrite does not look what completed"),
    (_rows_come_in_any_order, "moved-overwrites", 6, "rows of a key count in the order of partitions"),
    (_deletions_are_rows, "placed-sinks", 1, "staged deletions are taken for rows"),
    (_deletions_come_last, "placed-sinks", 48, "a row after the deletion of its key is deleted"),
    (_nobody_placed_keys, "placed-tasks", 1, "keys that others placed are not looked for"),
]


@pytest.mark.parametrize(
    ("bug", "scenario", "first"),  # a seed that found it, tried first
    [bug[:3] for bug in BUGS],
    ids=[bug[3] for bug in BUGS],
)
def test_rows_that_are_placed_with_less_care_are_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, scenario: str, first: int
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, scenario).failure is not None for seed in (first, *range(1, ENOUGH)))
