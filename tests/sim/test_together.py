"""Goal: threads that share critical sections lose nothing and double nothing, whatever dies.

Method: scenario ``together`` (``together_world``) under pinned seeds, with interrupts, lost leases,
crashes of processes and machines among them. Seeded bugs of such sections: ``mutants/together.py``.
"""

from __future__ import annotations

import pytest

from mainstem.publish.publisher import Publisher
from tests.sim.run import replay_command, simulate
from tests.sim.world import Counts


@pytest.mark.filterwarnings("ignore")
def test_no_seed_breaks_a_promise_to_threads_that_share_sections(monkeypatch) -> None:
    whole, sizes = Publisher._company, []

    def company(self, lease, leader, take, works):
        def taken():
            sizes.append(len(found := take()))
            return found

        return whole(self, lease, leader, taken, works)

    monkeypatch.setattr(Publisher, "_company", company)
    total = Counts()
    for seed in (0, 1, 2, 3, 12, 13, 20, 21, 23, 29, 32, 36, 39):
        result = simulate(seed, "together")
        assert result.failure is None, replay_command(result)
        total.add(result.counts)
    assert total.crashes and total.interrupts and total.host_crashes and total.lease_losses
    assert sum(size > 1 for size in sizes) > 100, "threads did share sections"
