"""How long one ``acquire`` of a table lock waits, and what it logs meanwhile; shared by all locks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.errors import LockUnavailable

if TYPE_CHECKING:
    from mainstem.truetime.clock import Clock
    from mainstem.truetime.locks.options import LockOptions

_log = logging.getLogger(__name__)

_WARN_AFTER_MS = 30_000


class Patience:
    """A timer that starts at construction; ``place`` is the lock's name in messages."""

    def __init__(self, options: LockOptions, clock: Clock, place: str) -> None:
        self._options = options
        self._clock = clock
        self._place = place
        self._warn_ms: float = _WARN_AFTER_MS
        self.started_ms = clock.monotonic_ms()

    @property
    def waited_ms(self) -> float:
        """Milliseconds since the start."""
        return self._clock.monotonic_ms() - self.started_ms

    def left_ms(self, held_by: str, refusal: Callable[[float], str]) -> float:
        """Milliseconds left, above 0. Logs the holder after half a minute, then at doubling intervals.

        When no time is left, raises ``LockUnavailable`` with the text of ``refusal(milliseconds waited)``.
        """
        waited_ms = self.waited_ms
        left_ms = self._options.patience_ms - waited_ms
        if left_ms <= 0:
            raise LockUnavailable(refusal(waited_ms), table=self._options.base)
        if waited_ms > self._warn_ms:
            self._warn_ms *= 2
            _log.warning("waiting for %s for %.0f s: held by %s", self._place, waited_ms / 1e3, held_by)
        return left_ms
