"""Goal: on tables of version 10 writers lose and double nothing, whatever dies or fails, and an LSM tree
stays sorted.

Method: the simulated world's scenarios ``native`` and ``native-tasks``, whose checkers read native logs with
eyes of their own; seeded bugs show that they would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.writers import open_logs
from tests.sim.run import simulate

ENOUGH = 40


@pytest.mark.supports("Tables and layouts", "table version 10 (write)")
@pytest.mark.parametrize(("scenario", "seed"), [("native", 1), ("native", 2), ("native-tasks", 1)])
def test_writers_of_version_10_lose_and_double_nothing(scenario: str, seed: int) -> None:
    result = simulate(seed, scenario)
    assert result.failure is None, result.failure


def test_on_a_store_too() -> None:
    result = simulate(3, "native", body="store")
    assert result.failure is None, result.failure


def _files_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_logs, "sorted_by_key", lambda rows: rows)


def _rows_that_wait_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    put = open_logs._NativeFile._put_group

    def wrong(self: Any, *, last: bool = False) -> None:
        del self._waiting[1:]
        put(self, last=last)

    monkeypatch.setattr(open_logs._NativeFile, "_put_group", wrong)


@pytest.mark.parametrize(
    ("bug", "first"),  # a seed that found it, tried first
    [(_files_are_not_sorted, 3), (_rows_that_wait_are_left_out, 1)],
    ids=["files are not sorted", "of rows that wait only the first are written"],
)
def test_a_seeded_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: Any, first: int) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, "native").failure is not None for seed in (first, *range(1, ENOUGH)))
