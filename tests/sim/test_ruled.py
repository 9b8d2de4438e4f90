"""Goal: where partitions have different bucket counts, no key is lost, doubled or left out of a query for it.

Method: the simulated world's scenario ``ruled``; seeded bugs show that it would notice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mainstem.readers.skipping.wanted_keys import WantedBuckets
from mainstem.writers import encode_rows
from tests.sim.run import simulate

SEEDS = range(1, 5)
ENOUGH = 40


@pytest.mark.parametrize("seed", SEEDS)
def test_rules_of_bucket_counts_lose_and_double_nothing(seed: int) -> None:
    result = simulate(seed, "ruled")
    assert result.failure is None, result.failure


def _some_batches_have_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    buckets_of = encode_rows.buckets_of

    def wrong(spec: Any, keys: Any, codes: np.ndarray, partitions: list[str]) -> Any:
        if len(partitions) > 1:  # of the first partition
            rules = spec.bucket_rules.counts(partitions)
            found, _ = buckets_of(spec, keys, np.zeros_like(codes), partitions[:1])
            return found, int(rules.max())
        return buckets_of(spec, keys, codes, partitions)

    monkeypatch.setattr(encode_rows, "buckets_of", wrong)


def _queries_know_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: WantedBuckets, partition: str) -> tuple[frozenset[int], int]:
        count = self.rules.most if self.rules else self.default
        return frozenset((self.hashes % np.uint32(count)).tolist()), count

    monkeypatch.setattr(WantedBuckets, "of", wrong)


@pytest.mark.parametrize(
    ("bug", "first"),  # a seed that found it, tried first
    [(_some_batches_have_one_count, 1), (_queries_know_no_rules, 1)],
    ids=["a batch has the count of its first partition", "queries know no rules"],
)
def test_a_writer_or_query_without_the_rules_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: Any, first: int
) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, "ruled").failure is not None for seed in (first, *range(1, ENOUGH)))
