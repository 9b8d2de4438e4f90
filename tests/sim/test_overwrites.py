"""Goal: overwrites among writers hide what is older and nothing else, under crashes, stops and lost locks.

Method: the simulated world's scenarios ``overwrites``, with compactions and log compactions, ``shown``, where
another engine may write, and ``overwrites_restored``, with savepoints, restores and rollbacks; seeded bugs
show that it would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.writers import overwriting
from mainstem.writers.overwriting import Hidden
from tests.sim.run import replay_command, simulate

SEEDS = range(1, 7)
ENOUGH = 120


@pytest.mark.parametrize("seed", SEEDS)
def test_overwrites_lose_nothing_and_bring_nothing_back(seed: int) -> None:
    result = simulate(seed, "overwrites")
    assert result.failure is None, result.failure


@pytest.mark.parametrize("seed", range(1, 5))
def test_files_of_overwrites_have_no_names_before_they_are_published_nor_after_they_died(seed: int) -> None:
    result = simulate(seed, "shown")
    assert result.failure is None, f"{result.failure}\n{replay_command(result)}"


@pytest.mark.timeout(600)
def test_overwrites_are_restored_away_restored_to_and_rolled_back() -> None:
    restores = 0
    for seed in range(1, 4):
        result = simulate(seed, "overwrites_restored")
        assert result.failure is None, f"{result.failure}\n{replay_command(result)}"
        restores += result.counts.restores
    assert restores > 0


def _log_compactions_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hidden, "whenever", frozenset())


def _no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hidden, "find", lambda self, timeline: None)


def _no_empty_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overwriting, "groups_without_rows", lambda *given: iter(()))


@pytest.mark.parametrize(
    ("bug", "first"),  # a seed that found it, tried first
    [(_no_look, 7), (_log_compactions_by_time, 47), (_no_empty_files, 7)],
    ids=[
        "plans in between are not looked for",
        "a log compaction that was planned before is not looked for",
        "file groups without new rows keep the old ones",
    ],
)
def test_an_overwrite_that_looks_for_less_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, first: int
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, "overwrites").failure is not None for seed in (first, *range(1, ENOUGH)))
