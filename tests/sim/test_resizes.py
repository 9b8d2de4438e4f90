"""Goal: another number of buckets loses, doubles and changes no row beside everybody else, whoever dies when.

Method: the simulated world's scenarios of resizes (``resize_world``): at each completion the rows are those
of the moment before, each key in its bucket. Its seeded bugs are among ``test_mutants``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import replay_command, simulate

SEEDS = {
    "resizes": range(1, 5),
    "resized-services": (2,),
    "resized-sinks": (1, 2),
    "resized-mixed": (1, 2),
}


@pytest.mark.filterwarnings("ignore::mainstem.MixedWritersWarning")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SEEDS)
def test_tables_are_resized_beside_everybody(scenario: str) -> None:
    resizes = 0
    for seed in SEEDS[scenario]:
        result = simulate(seed, scenario)
        assert result.failure is None, f"{result.failure}\n{replay_command(result)}"
        resizes += result.counts.resizes
    assert resizes > 0


def test_transactions_that_are_open_meanwhile_are_routed_anew() -> None:
    assert any(simulate(seed, "resizes").counts.routed for seed in range(8))


def test_a_table_in_a_store_is_resized() -> None:
    result = simulate(3, "resizes", body="store")
    assert result.failure is None, f"{result.failure}\n{replay_command(result)}"
