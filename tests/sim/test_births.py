"""Goal: a table is born once, whole, and what happens to one that was deleted never reaches the next one.

Method: the simulated world's scenario ``births``: creators, writers, a stream, readers, services, indexers
and another engine on a path whose table is deleted and made anew; ``test_mutants`` finds its seeded bugs.
"""

from __future__ import annotations

import pytest

from tests.sim.run import replay_command, simulate

pytestmark = pytest.mark.filterwarnings("ignore")


def test_no_seed_loses_a_row_of_a_table_that_lives_or_reaches_another_one() -> None:
    commits = reads = 0
    for seed in (4, 14, 64, 92):
        result = simulate(seed, "births")
        assert result.failure is None, f"{result.failure}\n{replay_command(result)}"
        commits += result.counts.commits
        reads += result.counts.reads
    assert commits > 10 and reads > 10
