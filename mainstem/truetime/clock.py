"""The clock seam: wall clock, monotonic clock, waiting and periodic work.

Instant times come from ``now_ms`` under the table lock (``truetime.instant_times``), never from file times.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from mainstem.forks import Mutex


class Periodic(Protocol):
    """A running periodic task."""

    def stop(self) -> None: ...


class Clock(Protocol):
    """Milliseconds since the epoch, UTC."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...

    def sleep_ms(self, duration_ms: float) -> None: ...

    def every_ms(self, interval_ms: float, task: Callable[[], None], name: str) -> Periodic:
        """Run ``task`` every ``interval_ms`` in the background until stopped."""


class _Work:
    """A task that a thread runs every so often, until it is stopped."""

    def __init__(self, task: Callable[[], None]) -> None:
        self.task: Callable[[], None] | None = task
        self.thread: _Thread | None = None

    def stop(self) -> None:
        self.task = None
        if self.thread is not None:
            self.thread.rest()


class _Thread:
    """Runs one task after another, each every so often.

    A commit of a few milliseconds starts a task and stops it, and a new thread for each would cost a good
    part of it. So a thread whose task was stopped is not woken: it rests until its interval is over, and ends
    then, unless it was given another task meanwhile. That one runs a little earlier at first than it asked.
    """

    def __init__(self, interval_ms: float, name: str, work: _Work) -> None:
        self.kind = (interval_ms, name)
        self.work = work
        self._pid = os.getpid()
        #: it is between two runs; while a task runs, which may hang in the storage, it is given no other
        self._waits = True
        work.thread = self
        threading.Thread(target=self._run, name=f"mainstem-{name}", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(self.kind[0] / 1000)
            with _guard.held:
                task = self.work.task
                if task is None:
                    _resting.pop(self, None)
                    return
                self._waits = False
            task()
            with _guard.held:
                self._waits = True

    def rest(self) -> None:
        """Its task was stopped."""
        with _guard.held:
            # A forked child has its parent's objects, but not the threads.
            if self._waits and self.work.task is None and self._pid == os.getpid():
                _resting[self] = self.kind

    def take(self, work: _Work) -> None:
        """Runs ``work`` from now on. The guard is held."""
        self.work, work.thread = work, self
        del _resting[self]


_guard = Mutex()
_resting: dict[_Thread, tuple[float, str]] = {}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resting.clear)


class SystemClock:
    """The machine's clock, shifted by ``offset_ms`` (for demos and tests that need skewed clocks)."""

    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.offset_ms

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1e6

    def sleep_ms(self, duration_ms: float) -> None:
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)

    def every_ms(self, interval_ms: float, task: Callable[[], None], name: str) -> Periodic:
        work = _Work(task)
        with _guard.held:
            for thread, kind in _resting.items():
                if kind == (interval_ms, name):
                    thread.take(work)
                    return work
        _Thread(interval_ms, name, work)
        return work
