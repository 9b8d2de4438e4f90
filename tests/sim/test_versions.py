"""Goal: a table that changes its version beside writers and services loses and doubles nothing, and holds no
native log file that counts while it has version 9.

Method: the simulated world's scenarios ``versions`` and ``versions-indexed``; seeded bugs show that they
would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.services import version_change
from mainstem.writers.context import WriterContext
from tests.sim.run import replay_command, simulate

ENOUGH = 40


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("scenario", "seed"), [("versions", 7), ("versions-indexed", 7)])
def test_the_version_changes_beside_everybody(scenario: str, seed: int) -> None:
    result = simulate(seed, scenario)
    assert result.failure is None, f"{result.failure}\n{replay_command(result)}"
    assert result.counts.versions > 1


def _nothing_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_change, "_in_flight", lambda timeline: None)


def _what_came_meanwhile_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_change._Left, "is_due_again", lambda left, section: False)


def _a_write_of_another_version_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    _nothing_is_in_flight(monkeypatch)
    monkeypatch.setattr(WriterContext, "_check_written", lambda ctx, found, native: None)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("bug", "first"),  # a seed that found it, tried first
    [(_what_came_meanwhile_is_not_looked_at, 3), (_a_write_of_another_version_is_published, 1)],
    ids=["what came meanwhile is not looked at", "a write of another version is published"],
)
def test_a_seeded_bug_is_found(monkeypatch: pytest.MonkeyPatch, bug: Any, first: int) -> None:
    bug(monkeypatch)
    assert any(simulate(seed, "versions").failure is not None for seed in (first, *range(1, ENOUGH)))
