"""Goal: log compactions beside writers, compactions and each other change no row, whoever dies.

Method: the simulated world's scenario ``logs``, some seeds. Its seeded bugs are found by ``test_mutants``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import simulate

SEEDS = (1, 2, 4, 5)


@pytest.mark.supports("Services", "log compaction")
@pytest.mark.parametrize("seed", SEEDS)
def test_log_compactions_change_no_row(seed: int) -> None:
    result = simulate(seed, "logs")
    assert result.failure is None, result.failure
    assert result.counts.log_compactions
