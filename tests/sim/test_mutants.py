"""Goal: the simulator can find bugs. Method: bugs are put into the production code, one at a time.

For each, ``mutant_seeds.json`` names a seed that finds it; the same seed is good without the bug. When
production code changes, a seed may go another way: then the following seeds are tried, up to a bound.
New seeds: ``python -m tests.sim.run --mutants``.

A seed that fails without the bug has nothing to do with the bug: it found a fault by chance, mostly one of
the product. The failure says so, with the line that replays it. Mend the fault; another seed would hide it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.sim.mutants.collected import MUTANTS
from tests.sim.run import main, replay_command, simulate
from tests.sim.simulation import Result
from tests.sim.world import Violation

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
            result = simulate(seed, mutant.scenario, faults=mutant.faults, body=mutant.body)
            if result.failure is not None:
                found = result
                break
    assert found is not None, f"not found: {mutant.what}"
    slip = re.search(r"(TypeError|AttributeError|NameError): .*", str(found.failure))
    assert slip is None, f"the seeded bug does not fit the code any more, and fails by itself: {slip}"
    good = simulate(found.seed, mutant.scenario, faults=mutant.faults, body=mutant.body)
    if good.failure is not None:
        pytest.fail(not_the_bug(name, good), pytrace=False)


def not_the_bug(name: str, good: Result) -> str:
    """What a run says that fails without the seeded bug whose faults it had."""
    given = name if MUTANTS[name].faults is not None else None
    story = "\n".join(good.story[-40:])
    return (
        f"{story}\nseed {good.seed} of the scenario {good.scenario} fails WITHOUT the seeded bug {name}: by"
        " chance it found a fault of the product (or of the scenario, or of a checker), which is to be mended"
        f" there.\nviolates {good.failure}\nreplay: {replay_command(good, given)}"
    )


def test_a_fault_that_a_seed_finds_without_the_bug_is_called_one_of_the_product(capsys) -> None:
    name = "rollback_without_second_look"
    result = simulate(4, MUTANTS[name].scenario, faults=MUTANTS[name].faults)
    result.failure = Violation("row", "a row is missing")
    said = not_the_bug(name, result)
    assert "WITHOUT the seeded bug" in said and "fault of the product" in said and "a row is missing" in said
    replay = said.rpartition("python -m tests.sim.run ")[2].split()
    assert main([*replay, "--trace"]) == 0
    assert f"trace {result.trace}" in capsys.readouterr().out, "the line makes the very same run"


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
