"""Goal: on an object store, too, nothing is lost and nothing doubled, whatever its requests do.

Method: scenarios of the simulated world with their table in a simulated object store, always the same
seeds. New ones are looked for by ``make sim ARGS="--body store --each"``.
"""

from __future__ import annotations

import pytest

from tests.sim.run import Search, replay_command, simulate
from tests.sim.sim_store import Bucket

SEEDS = {
    "archives": [0],
    "births": range(3),
    "bulk": range(2),
    "compactions": range(2),
    "mixed": range(2),
    "publishers": range(12),
    "sinks": [0],
    "tables": range(5),
    "tasks": range(2),
}


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scenario", SEEDS)
def test_no_seed_breaks_a_promise_on_a_store(scenario: str) -> None:
    search = Search(body="store")
    for seed in SEEDS[scenario]:
        result = search.one(seed, scenario)
        story = "\n".join(result.story[-60:])
        assert result.failure is None, f"{story}\n{result.failure}\n{replay_command(result)}"
    assert search.total.commits > 0


def test_the_line_that_replays_a_seed_names_the_store() -> None:
    result = simulate(1, "publishers", body="store")
    assert "--scenario publishers --body store" in replay_command(result)


@pytest.mark.filterwarnings("ignore")
def test_a_late_file_of_a_lost_task_attempt_does_not_stay(monkeypatch) -> None:
    """No query of ours reads it, but one of an engine would that lists files. Nobody prevents it yet."""
    monkeypatch.setattr(Bucket, "late_tasks", True)
    result = simulate(7000, "tasks", body="store")
    if result.failure is not None:
        replay = replay_command(result)
        pytest.xfail(f"{result.failure.rule}: with Bucket.late_tasks, {replay}")
