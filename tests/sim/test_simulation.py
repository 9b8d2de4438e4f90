"""Goal: nothing lost, nothing doubled, whatever crashes, pauses, lost leases, full disks and clocks do.

Method: the production code of writers and readers runs in the simulated world of ``tests.sim``;
every seed is another run with another mixture of faults, and independent checkers watch it. Always the same
seeds: new ones are looked for by ``make sim SECONDS=... SEED=...``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.run import Search, replay_command, simulate

SEEDS = range(80)
REGRESSIONS = Path(__file__).parent / "regressions" / "seeds.txt"


def _regressions() -> list[tuple[str, int, str]]:
    """Scenario, seed and body."""
    lines = (line.split("#")[0].split() for line in REGRESSIONS.read_text().splitlines())
    return [(words[0], int(words[1]), words[2] if words[2:] else "disk") for words in lines if words]


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_no_seed_breaks_a_promise(capsys: pytest.CaptureFixture[str]) -> None:
    search = Search()
    for seed in SEEDS:
        result = search.one(seed, None)
        story = "\n".join(result.story[-60:])
        assert result.failure is None, f"{story}\n{result.failure}\n{replay_command(result)}"
    with capsys.disabled():
        print(f"\n{search.report()}")
    assert search.total.commits > 0
    assert search.total.crashes + search.total.pauses + search.total.errors > 0


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("scenario", "seed", "body"), _regressions())
def test_a_seed_that_once_found_a_bug_stays_good(scenario: str, seed: int, body: str) -> None:
    result = simulate(seed, scenario, body=body)
    assert result.failure is None, replay_command(result)


def _command(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.sim.run", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    ("seed", "scenario"),
    [
        ("1", ""), ("3", ""), ("19", ""), ("5", "long"),
        # These went by the order of a set.
        ("1", "archives"), ("4", "births"), ("3", "compacted"), ("2", "placed-indexed"), ("1", "vectors"),
    ],
)  # fmt: skip
def test_a_seed_makes_the_same_calls_in_every_process(seed: str, scenario: str) -> None:
    named = ("--scenario", scenario) if scenario else ()
    first, second = (
        _command("--seed", seed, "--runs", "1", *named, "--trace", hash_seed=h).stdout.splitlines()[0]
        for h in ("1", "2")
    )
    assert first.startswith(f"seed {seed} trace ")
    assert first == second


@pytest.mark.timeout(900)
def test_a_failing_seed_is_reported_with_the_line_that_replays_it() -> None:
    """The canary: a checker that fails one seed in a hundred on purpose must be heard."""
    found = _command("--canary", "--scenario", "publishers", "--runs", "300", "--seconds", "500")
    assert found.returncode == 1
    (line,) = [x for x in found.stdout.splitlines() if x.startswith("replay: ")]
    arguments = line.removeprefix("replay: python -m tests.sim.run ").split()
    again = _command(*arguments, "--canary")
    assert again.returncode == 1
    assert "violates canary" in again.stdout
    assert _command(*arguments).returncode == 0
