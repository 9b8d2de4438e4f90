"""Goal: each record of a topic is in exactly one commit, whichever ingester dies, stops, is overtaken or
holds partitions that are another's by now.

Method: the simulated world's scenario ``offsets``, some seeds: production code over a simulated broker, disk,
clock and lock. Its seeded bugs are found by ``test_mutants``; a real broker is killed in ``tests/stores``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import simulate

# In 20 the table could not be read just as partitions were taken away; in 37 several began with gaps.
SEEDS = (1, 2, 20, 37)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", SEEDS)
def test_each_record_is_in_one_commit(seed: int) -> None:
    result = simulate(seed, "offsets")
    assert result.failure is None, result.failure


@pytest.mark.parametrize("seed", (1003, 1005))
def test_each_record_is_in_one_commit_on_an_object_store(seed: int) -> None:
    result = simulate(seed, "offsets", body="store")
    assert result.failure is None, result.failure
