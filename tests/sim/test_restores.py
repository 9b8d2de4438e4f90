"""Goal: a restore brings back exactly what was completed at the savepoint, beside everybody, whatever dies.

Method: the scenario ``restores``: savepoints, restorers, compactors, writers, streams and readers under
faults; ``restore_world`` and ``service_rules`` look at every plan and every deletion.
"""

from __future__ import annotations

import pytest

from tests.sim.run import replay_command, simulate

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]


def test_no_seed_restores_too_much_or_too_little() -> None:
    restores = 0
    for seed in (1, 2):
        result = simulate(seed, "restores")
        assert result.failure is None, f"{result.failure}\n{replay_command(result)}"
        restores += result.counts.restores
    assert restores > 0
