"""Goal: work that is repeated in the background costs a short transaction no thread of its own, and each task
runs as often as it asked for, until it is stopped."""

from __future__ import annotations

import os
import threading
import time

import pytest

from mainstem.truetime.clock import SystemClock


def threads(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == f"mainstem-{name}"}


def eventually(condition) -> bool:
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return condition()


def test_tasks_one_after_another_share_a_thread() -> None:
    started = [SystemClock().every_ms(60_000, lambda: None, "shared")]
    first = threads("shared")
    for _ in range(50):
        started[-1].stop()
        started.append(SystemClock().every_ms(60_000, lambda: None, "shared"))
    assert threads("shared") == first and len(first) == 1
    started[-1].stop()


def test_tasks_at_the_same_time_have_threads_of_their_own_and_all_run() -> None:
    runs = {n: threading.Event() for n in range(5)}
    started = [SystemClock().every_ms(5, runs[n].set, "together") for n in runs]
    assert all(event.wait(20) for event in runs.values())
    assert len(threads("together")) == 5
    for one in started:
        one.stop()
    assert eventually(lambda: not threads("together"))


def test_the_task_that_a_thread_takes_over_runs_and_the_stopped_one_does_not() -> None:
    stopped, ran = [], threading.Event()
    SystemClock().every_ms(50, lambda: stopped.append(1), "taken").stop()
    running = SystemClock().every_ms(50, ran.set, "taken")
    assert ran.wait(20)
    assert not stopped
    running.stop()
    assert eventually(lambda: not threads("taken"))


def test_a_task_of_another_interval_gets_no_thread_that_sleeps_longer() -> None:
    SystemClock().every_ms(60_000, lambda: None, "interval").stop()
    ran = threading.Event()
    quick = SystemClock().every_ms(5, ran.set, "interval")
    assert ran.wait(20)
    quick.stop()


def test_a_thread_whose_stopped_task_hangs_takes_no_other() -> None:
    hangs, go_on, ran = threading.Event(), threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        go_on.wait(60)

    first = SystemClock().every_ms(5, hang, "hanging")
    assert hangs.wait(20)
    first.stop()
    second = SystemClock().every_ms(5, ran.set, "hanging")
    assert ran.wait(20)
    second.stop()
    go_on.set()
    assert eventually(lambda: not threads("hanging"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_died_of_its_task_takes_no_other() -> None:
    def fail() -> None:
        raise OSError("a task that fails")

    first = SystemClock().every_ms(5, fail, "dying")
    assert eventually(lambda: not threads("dying"))
    first.stop()
    ran = threading.Event()
    second = SystemClock().every_ms(5, ran.set, "dying")
    assert ran.wait(20)
    second.stop()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_takes_over_no_thread_of_its_parent() -> None:
    resting = SystemClock().every_ms(5_000, lambda: None, "forked")
    running = SystemClock().every_ms(5_000, lambda: None, "forked")
    resting.stop()
    if (child := os.fork()) == 0:
        running.stop()
        before = threading.active_count()
        SystemClock().every_ms(5_000, lambda: None, "forked")
        os._exit(0 if threading.active_count() == before + 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    running.stop()
