"""Goal: without buckets, a key has one file group, whoever inserts it when, and nothing is lost.

Method: the simulated world's scenarios ``placed``, ``placed-again``, ``placed-services``,
``placed-clustered`` and ``placed-indexed``; seeded bugs show that it would notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from mainstem.readers.queries.key_places import KeyPlaces, StoredKeys
from mainstem.services import clustering
from mainstem.services.clustering_plan import Clusterable
from mainstem.writers.append import BucketAppender
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile
from mainstem.writers.placed_rows import PlacingAppender
from tests.sim.run import simulate

SEEDS = {
    "placed": range(1, 5), "placed-services": range(1, 4), "placed-indexed": range(1, 4),
    "placed-clustered": range(1, 4), "placed-again": range(1, 4),
}  # fmt: skip
ENOUGH = 60


@pytest.mark.parametrize(("scenario", "seed"), [(name, seed) for name in SEEDS for seed in SEEDS[name]])
def test_a_key_has_one_file_group_whoever_inserts_it(scenario: str, seed: int) -> None:
    result = simulate(seed, scenario)
    assert result.failure is None, result.failure


def _no_look_under_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysPlacedMeanwhile, "look", lambda self, timeline: None)


def _no_look_at_earlier_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    is_new = KeysPlacedMeanwhile._is_new

    def later(self: Any, requested: str) -> bool:
        return requested > self._instant and is_new(self, requested)

    monkeypatch.setattr(KeysPlacedMeanwhile, "_is_new", later)


def _a_base_file_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacingAppender, "_take_back", lambda self, fresh: self._fresh.remove(fresh))


def _a_file_stays_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Any, fresh: Any) -> None:
        if fresh.stat is not None:
            self._closed.remove(fresh.stat)
        self._fresh.remove(fresh)

    monkeypatch.setattr(PlacingAppender, "_take_back", forget)


def _deletes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    give_way, meets = PlacingAppender.give_way, PlacingAppender.meets

    def without(self: Any, place: Any, keys: pa.Array) -> int:
        self._gone = []
        return give_way(self, place, keys)

    def meets_none(self: Any, place: Any, keys: pa.Array) -> bool:
        self._gone = []
        return meets(self, place, keys)

    monkeypatch.setattr(PlacingAppender, "give_way", without)
    monkeypatch.setattr(PlacingAppender, "meets", meets_none)


def _base_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_base(self: Any, storage: Any, split: Any) -> Iterator[pa.Array]:
        if split.base_file is not None:
            yield from self._of_base(storage, split.base_file).chunks

    monkeypatch.setattr(StoredKeys, "of_split", of_base)


def _rows_of_a_file_that_was_taken_back_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacingAppender, "_move", lambda self, place, rows, keys, deleted: len(keys))


def _an_old_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What completed between begin and the look counts as seen by it, and is not."""
    look = KeyPlaces.look

    def twice(self: Any, *, first: bool = False) -> None:
        look(self, first=first)
        if not hasattr(self, "_late"):
            self._late = True
            newest = max((i.completion or "" for i in self._state.timeline.completed), default="")
            late = [i.file_name for i in self._state.timeline.completed if i.completion == newest]
            self._hidden = {i.rpartition("/")[2].split("_")[0] for i in late}
            group = self._state.group

            def without(partition: str, names: Any, **how: Any) -> Any:
                kept = [n for n in names if not any(t in n for t in self._hidden)]
                return group(partition, kept, **how)

            self._state.group = without

    monkeypatch.setattr(KeyPlaces, "look", twice)


def _replaced_file_groups_are_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysPlacedMeanwhile, "_note", lambda self, metadata: None)


def _plans_stay_and_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeysPlacedMeanwhile, "_plans", lambda self, timeline: iter(()))
    monkeypatch.setattr(clustering._WrittenSince, "find", lambda self, timeline: None)


def _plans_count_outside_the_lock_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that is made between a writer's look and its section is executed without the writer's rows."""
    look = KeysPlacedMeanwhile.look

    def without_plans(self: Any, timeline: Any) -> Any:
        self._plans = lambda timeline: iter(())
        try:
            return look(self, timeline)
        finally:
            del self._plans

    monkeypatch.setattr(KeysPlacedMeanwhile, "look", without_plans)
    monkeypatch.setattr(clustering._WrittenSince, "find", lambda self, timeline: None)


def _placed_again_by_the_old_look(monkeypatch: pytest.MonkeyPatch) -> None:
    place_again = PlacingAppender.place_again
    monkeypatch.setattr(
        PlacingAppender, "place_again", lambda self, places: place_again(self, self.places)
    )


def _log_files_of_rows_placed_again_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Any) -> None:
        self._passed += 100
        for mine in (self._logs, self._closed, self._versions, self._fresh, self._gone, self._waiting):
            mine.clear()
        self._filled.clear()
        self.written.clear()

    monkeypatch.setattr(PlacingAppender, "_take_back_all", forget)


def _filled_keys_are_told_as_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for new keys in a log file that says that it has none."""

    def open_log(self: Any, partition: str, bucket: int) -> Any:
        self._versions.setdefault((partition, bucket), self._passed)
        return BucketAppender._open_log(self, partition, bucket)

    monkeypatch.setattr(PlacingAppender, "_open_log", open_log)


def _a_plan_of_what_was_listed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What completed since is not in it."""

    class Ignored(set[str]):
        def add(self, partition: str) -> None:
            return

    now = Clusterable.now

    def stale(self: Any) -> Any:
        self._listing.grown = Ignored()
        return now(self)

    monkeypatch.setattr(Clusterable, "now", stale)


@pytest.mark.parametrize(
    ("bug", "scenario", "first"),  # a seed that found it, tried first
    [
        (_no_look_under_the_lock, "placed", 1),
        (_no_look_at_earlier_requests, "placed", 1),
        (_a_base_file_stays, "placed", 1),
        (_a_file_stays_on_the_disk, "placed", 1),
        (_deletes_are_dropped, "placed", 26),
        (_base_files_only, "placed-services", 6),
        (_rows_of_a_file_that_was_taken_back_are_lost, "placed", 1),
        (_an_old_look, "placed", 1),
        (_replaced_file_groups_are_not_noticed, "placed-clustered", 161),
        (_plans_stay_and_nobody_looks, "placed-clustered", 1),
        (_plans_count_outside_the_lock_only, "placed-clustered", 2),
        (_placed_again_by_the_old_look, "placed-clustered", 8),
        (_log_files_of_rows_placed_again_stay, "placed-clustered", 3),
        (_a_plan_of_what_was_listed_before, "placed-clustered", 8),
        (_filled_keys_are_told_as_known_ones, "placed", 10),
    ],
    ids=[
        "nobody looks under the lock",
        "instants that were requested earlier are not looked at",
        "the base file of moved rows is published",
        "the base file of moved rows stays on the disk",
        "deletes of keys that were nowhere are dropped",
        "keys in log files are not looked for",
        "moved rows are lost",
        "the look misses what completed just before it",
        "nobody notices that file groups were replaced",
        "plans stay, and nobody looks who wrote to their file groups",
        "a plan that is made between look and section stays",
        "rows are placed again by the old look",
        "log files of rows that were placed again stay on the disk",
        "a plan leaves out what completed while it was made",
        "keys that fill a small file group are told as known ones",
    ],
)
def test_a_placing_that_looks_for_less_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, scenario: str, first: int
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, scenario).failure is not None for seed in (first, *range(1, ENOUGH)))


