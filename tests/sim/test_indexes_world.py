"""Goal: an answer that indexes cut equals the full one at every instant, while indexes are built, dropped and
compacted beside all writers and services, whoever dies, stops or is late.

Method: the simulated world's scenarios ``indexes`` and ``indexes-of-files``; ``test_mutants`` finds its
seeded bugs.
"""

from __future__ import annotations

import pytest

from tests.sim.indexes_world import Indexes, IndexesOfFiles
from tests.sim.mutants.mutant import STOPPING


@pytest.mark.filterwarnings("ignore")
@pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")
@pytest.mark.parametrize(("seed", "faults"), [(1, None), (2, STOPPING)])
def test_an_answer_by_indexes_equals_the_full_one_at_every_instant(seed, faults) -> None:
    world = Indexes(seed, faults=faults)
    result = world.run()
    assert result.failure is None, result.failure
    assert result.counts.commits and world.answers.asked


@pytest.mark.filterwarnings("ignore")
@pytest.mark.supports("Indexes", "bloom filters: built, and maintained by every action")
def test_so_it_does_by_indexes_whose_rows_are_each_of_one_file() -> None:
    world = IndexesOfFiles(24, faults=STOPPING)
    result = world.run()
    assert result.failure is None, result.failure
    assert result.counts.commits and world.answers.asked
