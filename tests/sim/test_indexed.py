"""Goal: ``files`` of the metadata table equals the listing at every moment, whoever dies, stops or is late.

Method: the simulated world's scenario ``indexed``: all writers and services on a table with a metadata table,
which is read by Hudi's rules at every change of a timeline. ``test_mutants`` finds its seeded bugs.
"""

from __future__ import annotations

import pytest

from tests.sim.mutants.metadata import CRASHING
from tests.sim.run import simulate


@pytest.mark.filterwarnings("ignore")
@pytest.mark.supports("Indexes", "files: maintained by every action")
@pytest.mark.parametrize(
    ("scenario", "seed", "faults"),
    [("indexed", 3, None), ("indexed", 5, CRASHING), ("compacted", 5, CRASHING)],
)
def test_files_equals_the_listing_at_every_moment(scenario, seed, faults) -> None:
    result = simulate(seed, scenario, faults=faults)
    assert result.failure is None, result.failure
    assert result.counts.commits and result.counts.compactions
