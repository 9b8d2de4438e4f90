"""Goal: rows of a transaction without buckets that go into a later instant are there once, whoever dies when.

Method: the simulated world's scenarios of such tables, in which transactions are placed anew, kept or read
back; seeded bugs show that it would notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from mainstem.writers import placed_anew, placed_rows
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile
from mainstem.writers.placed_rows import PlacingAppender
from mainstem.writers.transaction import Transaction
from tests.sim.run import simulate

ENOUGH = 60


def _rows_are_handed_over_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over = PlacingAppender.hand_over

    def twice(self: Any, later: Any) -> None:
        hand_over(self, later)
        hand_over(self, later)

    monkeypatch.setattr(PlacingAppender, "hand_over", twice)


def _deletes_are_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, hand_over = placed_rows.Kept.__iter__, PlacingAppender.hand_over

    def rows_alone(self: Any) -> Iterator[Any]:
        for spec, batch, deleted in kept(self):
            yield spec, batch if deleted is None else batch.filter(pa.array(~deleted)), None

    def without(self: Any, later: Any) -> None:
        with monkeypatch.context() as blind:
            blind.setattr(placed_rows.Kept, "__iter__", rows_alone)
            hand_over(self, later)

    monkeypatch.setattr(PlacingAppender, "hand_over", without)


def _delete_blocks_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = placed_anew._keyed

    def without(*given: Any) -> Any:
        found = keyed(*given)
        return found if found.deleted is None else placed_anew.Keyed(
            found.rows.slice(0, 0), found.keys.slice(0, 0), found.codes[:0], found.partitions
        )  # fmt: skip

    monkeypatch.setattr(placed_anew, "_keyed", without)


def _rows_of_new_keys_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacingAppender, "_unplaced", lambda self: iter(()))


def _the_first_instant_completes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transaction, "_undo_own", lambda self: None)
    committed = Transaction._committed_later

    def both(self: Any, later: Any) -> Any:
        stats = self._files()
        with monkeypatch.context() as blind:
            blind.setattr(KeysPlacedMeanwhile, "look", lambda self, timeline: None)
            outcome = committed(self, later)
            if stats:
                self._publish_once(stats)
        return outcome

    monkeypatch.setattr(Transaction, "_committed_later", both)


BUGS = [
    (_rows_are_handed_over_twice, "placed-overwrites", "disk", 2, "rows are written twice"),
    (_deletes_are_not_handed_over, "placed-sinks", "store", 8, "deletes are lost"),
    (_delete_blocks_are_not_read_back, "placed-sinks", "store", 17, "deletes of log files are lost"),
    (_rows_of_new_keys_are_not_read_back, "placed-overwrites", "disk", 2, "rows of new keys are lost"),
    (_the_first_instant_completes_too, "placed-overwrites", "disk", 5, "the first instant completes, too"),
]


@pytest.mark.parametrize(
    ("bug", "scenario", "body", "first"),  # a seed that found it, tried first
    [bug[:4] for bug in BUGS],
    ids=[bug[4] for bug in BUGS],
)
def test_a_hand_over_that_does_less_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, scenario: str, body: str, first: int
) -> None:
    bug(monkeypatch)
    seeds = (first, *range(1, ENOUGH))
    assert any(simulate(seed, scenario, body=body).failure is not None for seed in seeds)
