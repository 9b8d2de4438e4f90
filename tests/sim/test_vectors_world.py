"""Goal: what a search by a vector index finds equals brute force at every instant, while versions are built,
removed, dropped and made anew beside writers, rollbacks, restores and all services, whoever dies or stops.

Method: the simulated world's scenario ``vectors``; ``test_mutants`` finds its seeded bugs.
"""

from __future__ import annotations

import pytest

from tests.sim.vectors_world import Vectors


@pytest.mark.parametrize("seed", [4, 5], ids=["without a metadata table", "beside a metadata table"])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.supports("Vectors", "index: searches are right at every instant")
def test_a_search_by_a_vector_index_equals_brute_force_at_every_instant(seed: int) -> None:
    result = Vectors(seed).run()
    assert result.failure is None, result.failure
    assert result.counts.commits and result.counts.reads
