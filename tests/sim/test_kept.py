"""Goal: deletes that compactions keep are those that must be kept, and wrong no row, whoever crosses or dies.

Method: the simulated world's scenario ``kept``, some seeds. Its seeded bugs are found by ``test_mutants``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import simulate


@pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")
@pytest.mark.parametrize("seed, body", [(1, "disk"), (2, "disk"), (3, "store")])
def test_deletes_are_kept_as_hudis_rules_say(seed: int, body: str) -> None:
    result = simulate(seed, "kept", body=body)
    assert result.failure is None, result.failure
