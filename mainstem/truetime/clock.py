"""The clock seam: wall clock, monotonic clock, waiting and periodic work.

Instant times come from ``now_ms`` under the table lock (``truetime.instant_times``), never from file times.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


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


class _Thread:
    def __init__(self, interval_ms: float, task: Callable[[], None], name: str) -> None:
        self._stopped = threading.Event()
        self._interval_s = interval_ms / 1000
        self._task = task
        self._thread = threading.Thread(target=self._run, name=f"mainstem-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._task()

    def stop(self) -> None:
        self._stopped.set()


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
        return _Thread(interval_ms, task, name)
