"""Goal: the simulator can find bugs. Method: bugs are put into the production code, one at a time.

For each, ``mutant_seeds.json`` names a seed that finds it; the same seed is good without the bug. When
production code changes, a seed may go another way: then the following seeds are tried, up to a bound.
New seeds: ``python -m mainstem.testing.run --mutants``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mainstem.testing.mutants import MUTANTS
from mainstem.testing.run import simulate

SEEDS: dict[str, int] = json.loads((Path(__file__).parent / "mutant_seeds.json").read_text())
MORE_SEEDS = 400


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulator_finds_the_seeded_bug(name: str) -> None:
    mutant = MUTANTS[name]
    found = None
    with mutant.applied():
        for seed in [SEEDS[name], *range(MORE_SEEDS)]:
            result = simulate(seed, mutant.scenario, faults=mutant.faults)
            if result.failure is not None:
                found = result
                break
    assert found is not None, f"not found: {mutant.what}"
    good = simulate(found.seed, mutant.scenario, faults=mutant.faults)
    assert good.failure is None, f"seed {found.seed} fails without the bug too: {good.failure}"


# Hudi's published bugs that are a matter of what happens when: issue or ticket of each. Left out are R5 (a
# heartbeat that a failure of the storage ends: tests/truetime/test_heartbeats.py), R8 (connections of the
# lock that leak, and its queue: tests/multiprocess/test_zookeeper_lock.py), R13 (file ids of inserts:
# tests/writers/test_bulk_insert.py) and R14 (insert_overwrite: tests/bad_input/test_options.py).
PUBLISHED = {
    "R1": "#19774, the first slice anchored at a failed write's log",
    "R2": "HUDI-9785, an incremental query beside a pending compaction",
    "R3": "#19907, two file ids for one bucket",
    "R4": "#9135, a gap in the heartbeat lets the cleaner roll a live writer back",
    "R6": "#18050, several roll back one instant",
    "R7": "#19334, the holder of a lock goes on believing that it has it",
    "R9": "HUDI-8464, time and plan under different locks",
    "R10": "#10803, files of attempts that lost are compacted",
    "R11": "#9674, deleted without the lock",
    "R12": "#10891, a pending compaction is rolled back",
    "R15": "#11973, all log files are skipped because one is newer",
    "R16": "#8876, windows by requested time",
    "#14365": "a slice cut differently because an instant was archived",
}


@pytest.mark.parametrize("bug", PUBLISHED)
def test_every_published_bug_is_among_the_seeded_ones(bug: str) -> None:
    assert any(re.search(rf"{bug}\b", mutant.what) for mutant in MUTANTS.values()), PUBLISHED[bug]


def test_every_mutant_has_a_seed() -> None:
    assert set(SEEDS) == set(MUTANTS)
    assert len(MUTANTS) >= 16
