"""Goal: archiving beside writers, readers and replayed streams loses nothing, doubles nothing and hides
nothing, whoever dies, stops or is overtaken.

Method: the simulated world's scenario ``archives``, some seeds. ``test_mutants`` finds its seeded bugs.
"""

from __future__ import annotations

import pytest

from tests.sim.mutants.archiving import UNSETTLED
from tests.sim.run import simulate
from tests.sim.world import Faults

SEEDS = (3, 4)


@pytest.mark.supports("Services", "archiving into the LSM archive")
@pytest.mark.parametrize("seed", SEEDS)
def test_archiving_changes_no_answer(seed: int) -> None:
    result = simulate(seed, "archives")
    assert result.failure is None, result.failure
    assert result.counts.archived


@pytest.mark.parametrize("seed", (8, 11, 19))
def test_no_crash_of_the_machine_brings_back_what_a_rollback_removed(seed: int) -> None:
    result = simulate(seed, "archives", faults=UNSETTLED)
    assert result.failure is None, result.failure


def test_an_executor_that_wakes_up_when_its_plan_was_archived_leaves_no_mark_for_good():
    stopped_for_long = Faults(pause=0.02, pause_ms_max=20_000, skew_ms=50)
    result = simulate(3, "archives", faults=stopped_for_long)
    assert result.failure is None, result.failure
