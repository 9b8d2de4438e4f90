"""Goal: what the simulator reaches is measured and told, and a longer world keeps every promise as well.

Method: the scenario ``long`` and the measurement of ``tests.sim.reach`` on a seed or two. The figures
of a long measurement stand in docs/reach.md; ``make sim-reach SECONDS=...`` makes them again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.interleavings import PENDING, Interleavings, matrix
from tests.sim.run import simulate


@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
def test_several_compactions_are_pending_beside_everything_else_and_nothing_is_lost() -> None:
    met = Interleavings()
    with met.watching():
        result = simulate(1, "long")
    assert result.failure is None, result.failure
    for other in (PENDING, "delta commit", "clean", "archiving", "savepoint", "log compaction"):
        assert any({PENDING, other} == set(pair) for pair in met.pairs), matrix(met)


def test_a_run_makes_the_same_calls_while_it_is_watched() -> None:
    met = Interleavings()
    with met.watching():
        watched = simulate(3, "archives")
    assert watched.trace == simulate(3, "archives").trace
    assert met.pairs["delta commit", "delta commit"].times > 0
    assert met.actions["archiving"] > 0


@pytest.mark.timeout(300)
def test_the_measurement_tells_lines_branches_and_pairs(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    told = tmp_path / "reach.json"
    arguments = ["--runs", "1", "--scenario", "tables", "--seed", "1", "--lines", "--json", str(told)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.sim.reach", *arguments],
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| **all** |" in done.stdout and "delta commit" in done.stdout
    found = json.loads(told.read_text())
    publish = found["modules"]["publish/publisher.py"]
    assert 0.5 < publish["lines_met"] / publish["lines"] <= 1
    assert 0 < publish["branches_met"] < publish["branches"], "one seed does not meet all"
    assert found["modules"]["services/restoring.py"]["lines_met"] == 0, "nobody restores in this scenario"
    assert found["pairs"]["delta commit | delta commit"][0] > 0
