"""Goal: without buckets, overwrites hide what is older and nothing else, and a key has one row.

Method: the simulated world's scenario ``placed-overwrites``; seeded bugs show that it would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.readers.queries.key_places import KeyPlaces
from mainstem.writers import keys_placed_meanwhile
from mainstem.writers.placed_overwrites import HiddenGroups, PlacingOverwriter
from tests.sim.run import simulate

ENOUGH = 60


@pytest.mark.parametrize("seed", range(1, 4))
def test_overwrites_without_buckets_lose_and_double_nothing(seed: int) -> None:
    result = simulate(seed, "placed-overwrites")
    assert result.failure is None, result.failure


def _no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HiddenGroups, "find", lambda self, timeline: None)


def _writers_in_flight_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys_placed_meanwhile, "OVERWRITES", frozenset())


def _known_keys_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacingOverwriter, "follows_updates", False)


def _no_file_group_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyPlaces, "groups_before", lambda self, partitions, instant: [])


BUGS = [
    (_no_look, 26, "plans in between are not looked for"),
    (_writers_in_flight_go_on, 77, "writers in flight append to what is hidden"),
    (_known_keys_are_not_looked_at, 10, "rows of known keys beside it are not looked at"),
    (_no_file_group_is_hidden, 1, "older file groups keep their rows"),
]


@pytest.mark.parametrize(
    ("bug", "first"),  # a seed that found it, tried first
    [bug[:2] for bug in BUGS],
    ids=[bug[2] for bug in BUGS],
)
def test_an_overwrite_that_looks_for_less_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, first: int
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, "placed-overwrites").failure is not None for seed in (first, *range(1, ENOUGH)))
