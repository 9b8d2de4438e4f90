"""Goal: a write of a micro-batch has the same number in every run of the batch, whoever dies or runs beside.

Method: the simulated world's scenario ``ordinals``, some seeds. Its seeded bug is found by ``test_mutants``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import simulate


@pytest.mark.parametrize("seed", range(1, 5))
def test_writes_of_a_batch_are_numbered_alike_in_every_run(seed: int) -> None:
    result = simulate(seed, "ordinals")
    assert result.failure is None, result.failure
    assert result.counts.commits
