"""Goal: what completed checkpoints staged is committed once and in order, whichever committer dies or races.

Method: the simulated world's scenario ``sinks``, some seeds. Its seeded bugs are found by ``test_mutants``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import simulate

SEEDS = range(1, 5)


@pytest.mark.supports("Engines", "Flink: checkpoints committed once, by any number of processes")
@pytest.mark.parametrize("seed", SEEDS)
def test_every_checkpoint_is_in_one_commit(seed: int) -> None:
    result = simulate(seed, "sinks")
    assert result.failure is None, result.failure
    assert result.counts.commits
