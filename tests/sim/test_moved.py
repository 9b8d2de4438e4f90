"""Goal: where keys move with their partition, a key has one row in the whole table, whoever moves it when.

Method: the simulated world's scenarios ``moved``, ``moved-services`` and ``moved-indexed``; seeded bugs show
that it would notice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mainstem.readers.queries.key_places import KeyPlaces
from mainstem.writers import moved_rows
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile
from mainstem.writers.moved_rows import MovingAppender
from tests.sim.run import simulate

SEEDS = {"moved": range(1, 4), "moved-services": range(1, 3), "moved-indexed": range(2, 3)}
ENOUGH = 60


@pytest.mark.filterwarnings("ignore")  # of a metadata table that cannot be read for a moment
@pytest.mark.parametrize(("scenario", "seed"), [(name, seed) for name in SEEDS for seed in SEEDS[name]])
def test_a_key_has_one_row_whoever_moves_it(scenario: str, seed: int) -> None:
    result = simulate(seed, scenario)
    assert result.failure is None, result.failure


def _no_look_under_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysPlacedMeanwhile, "look", lambda self, timeline: None)


def _only_new_keys_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MovingAppender, "follows_updates", False)


def _fates_are_not_decided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MovingAppender, "settle_places", lambda self: None)


def _moves_hide_behind_later_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MovingAppender, "_hidden", lambda self: False)


def _files_of_another_fate_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MovingAppender, "_take_back_logs", lambda self, number: None)


def _decided(monkeypatch: pytest.MonkeyPatch, fate: int, other: int) -> None:
    decide = MovingAppender._decide

    def wrongly(self: Any, puts: np.ndarray, deletes: np.ndarray) -> None:
        decide(self, puts, deletes)
        self._puts.fate[self._puts.fate == fate] = other

    monkeypatch.setattr(MovingAppender, "_decide", wrongly)


def _a_move_deletes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _decided(monkeypatch, moved_rows._MOVED, moved_rows._NEW)


def _a_move_inserts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    insert = MovingAppender._insert

    def without(self: Any, partitions: list[str]) -> None:
        moved = self._puts.fate == moved_rows._MOVED
        self._puts.fate[moved] = moved_rows._LOST
        insert(self, partitions)
        self._puts.fate[moved] = moved_rows._MOVED

    monkeypatch.setattr(MovingAppender, "_insert", without)


def _every_move_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    contest = KeyPlaces.contest

    def won(self: Any, place: Any, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        alive, _ = contest(self, place, rows)
        return alive, np.ones(len(alive), bool)

    monkeypatch.setattr(KeyPlaces, "contest", won)


BUGS = [
    (_no_look_under_the_lock, "moved", 1, "nobody looks under the lock"),
    (_only_new_keys_count, "moved", 9, "updates of others do not count"),
    (_fates_are_not_decided_again, "moved", 1, "two movers of one key do not see each other"),
    (_moves_hide_behind_later_instants, "moved", 7, "a move is hidden behind a later requested time"),
    (_files_of_another_fate_stay, "moved", 9, "records of another fate are published"),
    (_a_move_deletes_nothing, "moved", 1, "a move is published without its delete"),
    (_a_move_inserts_nothing, "moved", 1, "a move is published without its row"),
    (_every_move_wins, "moved", 2, "a row with a smaller ordering value moves its key"),
]


@pytest.mark.parametrize(
    ("bug", "scenario", "first"),  # a seed that found it, tried first
    [bug[:3] for bug in BUGS],
    ids=[bug[3] for bug in BUGS],
)
def test_a_move_that_looks_for_less_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, scenario: str, first: int
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, scenario).failure is not None for seed in (first, *range(1, ENOUGH)))
