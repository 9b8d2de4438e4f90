"""Goal: deletes that compactions keep are those that must be kept, and wrong no row, whoever crosses or dies.

Method: the simulated world's scenarios ``kept``, and ``statements`` and ``placed-statements``, in which SQL's
statements delete. Their seeded bugs are found by ``test_mutants``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import simulate


@pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")
@pytest.mark.parametrize("seed, body", [(1, "disk"), (2, "disk"), (3, "store")])
def test_deletes_are_kept_as_hudis_rules_say(seed: int, body: str) -> None:
    result = simulate(seed, "kept", body=body)
    assert result.failure is None, result.failure


@pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")
@pytest.mark.parametrize(
    "scenario, seed, body",
    [("statements", 4, "disk"), ("statements", 5, "store"), ("placed-statements", 2, "disk")],
)
def test_deletes_of_statements_keep_their_ordering_values(scenario: str, seed: int, body: str) -> None:
    result = simulate(seed, scenario, body=body)
    assert result.failure is None, result.failure
