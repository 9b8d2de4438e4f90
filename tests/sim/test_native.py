"""Goal: on tables of version 10 writers and services lose and double nothing, whatever dies or fails, and an
LSM tree stays sorted.

Method: the simulated world's scenarios ``native`` and ``native-...``, whose checkers read native logs with
eyes of their own; seeded bugs show that they would notice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mainstem.merge import rules
from mainstem.merge.rules import MergeRules
from mainstem.readers.changes.cdc_split import compared
from mainstem.readers.rows import sorted_merge
from mainstem.services import change_files, log_merge
from mainstem.writers import open_logs
from tests.sim.run import simulate

ENOUGH = 40


@pytest.mark.supports("Tables and layouts", "table version 10 (write)")
@pytest.mark.parametrize(("scenario", "seed"), [("native", 1), ("native", 2), ("native-tasks", 1)])
def test_writers_of_version_10_lose_and_double_nothing(scenario: str, seed: int) -> None:
    result = simulate(seed, scenario)
    assert result.failure is None, result.failure


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("scenario", "seed"),
    [
        ("native-services", 1), ("native-indexed", 2), ("native-kept", 10), ("native-logs", 1),
        ("native-changes", 1),
    ],
)
def test_services_of_version_10_lose_and_double_nothing(scenario: str, seed: int) -> None:
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


def _an_lsm_tree_is_compacted_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_merge, "_in_order", lambda rows: rows)


def _deletes_of_a_log_compaction_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = log_merge.LogMerge._contents

    def wrong(self: Any, *given: Any) -> Any:
        found = contents(self, *given)
        return found[:1]

    monkeypatch.setattr(log_merge.LogMerge, "_contents", wrong)


def _an_lsm_tree_is_merged_as_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    by_version = rules._by_version

    def wrong(*given: Any) -> MergeRules:
        return replace(by_version(*given), one_by_one=False)

    monkeypatch.setattr(rules, "_by_version", wrong)


def _deletes_are_merged_as_in_version_9(monkeypatch: pytest.MonkeyPatch) -> None:
    by_version = rules._by_version

    def wrong(*given: Any) -> MergeRules:
        return replace(by_version(*given), deletes_in_order=False)

    monkeypatch.setattr(rules, "_by_version", wrong)


def _deleted_rows_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any) -> Any:
        return (change for change in compared(*given) if change[0] != "d")

    monkeypatch.setattr(change_files, "compared", wrong)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("bug", "scenario", "first"),  # a seed that found it, tried first
    [
        (_an_lsm_tree_is_compacted_in_any_order, "native-services", 2),
        (_deletes_of_a_log_compaction_are_left_out, "native-logs", 21),
        (_an_lsm_tree_is_merged_as_other_tables, "native-kept", 10),
        (_deletes_are_merged_as_in_version_9, "native-kept", 18),
        (_deleted_rows_are_not_told, "native-changes", 1),
    ],
    ids=[
        "an lsm tree is compacted in any order", "deletes of a log compaction are left out",
        "an lsm tree is merged as other tables", "deletes are merged as in version 9",
        "deleted rows are not told by change data",
    ],
)
def test_a_seeded_bug_of_services_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, scenario: str, first: int
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, scenario).failure is not None for seed in (first, *range(1, ENOUGH)))
