"""Goal: columns that writers add, and rows that tasks of other processes write, are not lost nor doubled.

Method: the simulated world's scenarios ``columns`` and ``tasks``; seeded bugs (``mutants_fresh``) show that
they would notice.
"""

from __future__ import annotations

import pytest

from tests.sim.run import simulate

# Seed 8 of the tasks: a crash of the machine brought files of a lost attempt back beside the winner's.
SEEDS = [*(("columns", seed) for seed in range(1, 5)), *(("tasks", seed) for seed in (2, 3, 4, 8))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("scenario", "seed"), SEEDS)
def test_nothing_is_lost_or_doubled(scenario: str, seed: int) -> None:
    result = simulate(seed, scenario)
    assert result.failure is None, "\n".join([*result.story[-40:], str(result.failure)])
    assert result.counts.commits >= 3
