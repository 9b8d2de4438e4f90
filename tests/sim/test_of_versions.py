"""Goal: what holds of any scenario holds on tables of version 10, and of tables that are upgraded to it in
mid-history, whose slices mix files of blocks and native ones.

Method: the variants of ``of_versions``. Every scenario has both, or a reason why not; here a seed of one of
the two, in turn. More: ``python -m tests.sim.run --each '*-v10' --seconds 60``, and ``'*-raised'``.
"""

from __future__ import annotations

import pytest

from mainstem.storage.paths import LogName
from mainstem.writers import open_logs
from mainstem.writers.context import WriterContext
from tests.sim.of_versions import NOT_OF_VERSION_10, NOT_RAISED, of_version_10, raised
from tests.sim.run import SCENARIOS, replay_command, simulate

ENOUGH = 40
PLAIN = [name for name in SCENARIOS if not name.endswith(("-v10", "-raised"))]
IN_TURN = [
    found[number % len(found)]
    for number, name in enumerate(PLAIN)
    if (found := [v for v in (f"{name}-v10", f"{name}-raised") if v in SCENARIOS])
]


def test_every_scenario_has_both_variants_or_a_reason_why_not() -> None:
    for name in PLAIN:
        scenario = SCENARIOS[name]
        for make, reasons in ((of_version_10, NOT_OF_VERSION_10), (raised, NOT_RAISED)):
            told = any(issubclass(scenario, one) for one in reasons)
            assert (make(scenario) is None) == told, f"{name}: {make.__name__}"


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scenario", IN_TURN)
def test_no_seed_breaks_a_promise_on_version_10(scenario: str) -> None:
    result = simulate(1, scenario)
    assert result.failure is None, f"{result.failure}\n{replay_command(result)}"


def _native_logs_count_before_files_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LogName.order.fget
    monkeypatch.setattr(LogName, "order", property(lambda name: (not name.is_native, *right(name))))


def _writers_do_not_follow_the_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriterContext, "follow_version", lambda ctx, found: None)


def _of_two_files_the_commit_names_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    right = open_logs.NativeLogs.stats.fget
    monkeypatch.setattr(open_logs.NativeLogs, "stats", property(lambda logs: right(logs)[:1]))


BUGS = {
    # the bug, a scenario and a seed that found it
    "native logs count first": (_native_logs_count_before_files_of_blocks, "tables-raised", 0),
    "writers do not follow the upgrade": (_writers_do_not_follow_the_upgrade, "tables-raised", 0),
    "of two files the commit names the first": (_of_two_files_the_commit_names_the_first, "native-kept", 0),
}


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", BUGS)
def test_a_seeded_bug_is_found(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    bug, scenario, first = BUGS[what]
    bug(monkeypatch)
    assert any(simulate(seed, scenario).failure is not None for seed in (first, *range(ENOUGH)))
