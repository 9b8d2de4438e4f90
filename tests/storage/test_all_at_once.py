"""Goal: short waits run at the same time, each exactly once, and nothing still runs when the call is over,
however it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from mainstem.storage import all_at_once as module
from mainstem.storage.all_at_once import all_at_once


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 500])
def test_every_task_runs_once(count: int) -> None:
    ran: list[int] = []
    all_at_once([lambda n=n: ran.append(n) for n in range(count)])
    assert sorted(ran) == list(range(count))


def test_tasks_that_wait_for_each_other_run_at_the_same_time() -> None:
    together = threading.Barrier(4)
    all_at_once([lambda: together.wait(20) and None for _ in range(8)])


def test_rounds_of_many_threads_share_the_threads_and_all_end() -> None:
    ran: list[int] = []

    def rounds() -> None:
        for _ in range(50):
            all_at_once([lambda: ran.append(1)] * 10)

    callers = [threading.Thread(target=rounds) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert len(ran) == 6 * 50 * 10
    sync = [thread for thread in threading.enumerate() if thread.name == "mainstem-sync"]
    assert len(sync) <= 8


def slow(ended: list[str], name: str) -> Callable[[], None]:
    def task() -> None:
        time.sleep(0.05)
        ended.append(name)

    return task


@pytest.mark.parametrize("place", range(0, 10, 3))
def test_a_failure_is_raised_after_all_have_ended(place: int) -> None:
    ended: list[str] = []

    def fail() -> None:
        raise OSError("the disk is full")

    tasks = [slow(ended, str(n)) for n in range(9)]
    with pytest.raises(OSError, match="the disk is full"):
        all_at_once([*tasks[:place], fail, *tasks[place:]])
    assert len(ended) == 9
    time.sleep(0.1)
    assert len(ended) == 9


def test_an_interrupt_is_raised_after_all_have_ended_and_before_a_failure() -> None:
    ended: list[str] = []
    caller = threading.current_thread()

    reached = threading.Event()

    def interrupted() -> None:
        if threading.current_thread() is caller:
            reached.set()
            raise KeyboardInterrupt
        assert reached.wait(20)  # more of these than helpers, so that the caller gets one
        ended.append("by a helper")

    def fail() -> None:
        raise OSError("the disk is full")

    with pytest.raises(KeyboardInterrupt):
        all_at_once([fail, *[interrupted] * 12, *(slow(ended, str(n)) for n in range(9))])
    assert {str(n) for n in range(9)} <= set(ended)
    before = len(ended)
    time.sleep(0.1)
    assert len(ended) == before


def test_where_no_thread_can_be_started_the_caller_does_it_alone(monkeypatch) -> None:
    def refuse(self) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module, "_threads", [])
    monkeypatch.setattr(threading.Thread, "start", refuse)
    callers: list[threading.Thread] = []
    all_at_once([lambda: callers.append(threading.current_thread())] * 6)
    assert callers == [threading.current_thread()] * 6
