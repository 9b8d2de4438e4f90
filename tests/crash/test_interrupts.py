"""Goal: whatever ran past the publishing link is never undone by its own process, whoever interrupts it.

Method: a sample of ``tests.crash.interrupt_matrix`` (some calls of every action; Ctrl-C, SIGTERM and a
time-out come by real signals), and writers that real signals and exceptions of other threads interrupt at any
moment (``tests.crash.interrupted_writers``); the whole of both is ``make crash``.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.storage.local import LocalStorage
from mainstem.writers.transaction import Transaction
from tests.crash import crash_worker
from tests.crash.crash_matrix import Run, templates, worker
from tests.crash.interrupt_matrix import Interrupts, actions
from tests.crash.interrupted_writers import STYLES, Ledger, by_async_exceptions, by_signals
from tests.crash.interrupts import KINDS, Interrupter, interrupted
from tests.crash.vector_matrix import ACTIONS as VECTOR_ACTIONS

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

# About eight calls of a commit, where most can be lost, and four of every other action.
EVERY = {"upsert": 13, "upsert_indexed": 23, "bulk_insert": 17, "tasks": 17, "abort": 17, "create": 3}
EVERY |= {"upgrade": 7, "upgrade_indexed": 11}
EVERY_INDEXED = 71
SEED = 3
ACTIONS = sorted({*templates(lambda *given: {}), *VECTOR_ACTIONS, "flink_commit", "create", "tasks"})


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with worker() as call:
        yield call


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_that_is_interrupted_at_a_call_is_done_or_not_and_can_be_repeated(
    run: Run, tmp_path: Path, action: str
) -> None:
    matrix = Interrupts(run, tmp_path, random.Random(SEED))
    every = EVERY.get(action, EVERY_INDEXED if action.endswith("_indexed") else 41)
    calls = matrix.action(action, every, settle_every=2)
    assert matrix.cells and calls, action
    assert not matrix.broken, "\n".join(matrix.broken)


def test_every_action_of_the_matrix_is_among_those_that_are_tried(run: Run) -> None:
    assert set(ACTIONS) == set(actions(run))


@pytest.mark.parametrize("way", [by_signals, by_async_exceptions])
@pytest.mark.parametrize("style", STYLES)
def test_a_writer_that_is_interrupted_at_any_moment_and_replays_loses_and_doubles_nothing(
    tmp_path: Path, style: str, way
) -> None:
    crash_worker.create(str(tmp_path / "t"))
    ledger = Ledger(tmp_path / "t", style)
    way(ledger, 8, random.Random(f"{SEED}/{style}"), apart_s=0.05, seconds=4.0)
    ledger.check()
    ledger.settle()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_is_raised_before_or_after_the_effect_of_its_call(
    tmp_path: Path, kind: type[BaseException], after: bool
) -> None:
    storage = LocalStorage(str(tmp_path))
    handler = signal.getsignal(signal.SIGINT)
    with interrupted(Interrupter(1, after=after, kind=kind)) as interrupter:
        storage.put_new("first", b"1", durable=True)
        with pytest.raises(kind):
            storage.put_new("second", b"2", durable=True)
        storage.put_new("third", b"3", durable=True)
    assert storage.names("") and sorted(storage.names("")) == (
        ["first", "second", "third"] if after else ["first", "third"]
    )
    assert interrupter.where == f"{'after' if after else 'before'} LocalStorage.put_new"
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_action_that_undoes_what_it_published_is_found(run: Run, tmp_path: Path, monkeypatch) -> None:
    """The matrix itself: a transaction whose clean-up does not ask what is published."""
    monkeypatch.setattr(Transaction, "_completed", lambda self: None)
    matrix = Interrupts(run, tmp_path, random.Random(SEED))
    matrix.action("upsert", 3, settle_every=100)
    assert any("gone" in line or "expected" in line or "missing" in line for line in matrix.broken)
