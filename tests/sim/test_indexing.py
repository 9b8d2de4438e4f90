"""Goal: an index that is built beside all writers and services, dropped and built again, holds every file
from the moment in which it is listed as whole, whoever dies, stops or is late.

Method: the simulated world's scenario ``indexing``; ``test_mutants`` finds its seeded bugs.
"""

from __future__ import annotations

import pytest

from tests.sim.mutants.mutant import STOPPING
from tests.sim.run import simulate


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("seed", "faults"), [(0, None), (24, None), (2, STOPPING)])
def test_an_index_that_is_built_meanwhile_equals_the_listing_once_it_is_whole(seed, faults) -> None:
    result = simulate(seed, "indexing", faults=faults)
    assert result.failure is None, result.failure
    assert result.counts.commits
