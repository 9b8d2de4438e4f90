"""How long one ``acquire`` of a table lock waits, and what it says meanwhile; the same for every lock."""

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
    """Begins when it is made; ``place`` is the lock, as messages name it."""

    def __init__(self, options: LockOptions, clock: Clock, place: str) -> None:
        self._options = options
        self._clock = clock
        self._place = place
        self._warn_ms: float = _WARN_AFTER_MS
        self.started_ms = clock.monotonic_ms()

    @property
    def waited_ms(self) -> float:
        """Since the beginning."""
        return self._clock.monotonic_ms() - self.started_ms

    def left_ms(self, held_by: str, refusal: Callable[[float], str]) -> float:
        """What is left, above 0. After half a minute it is logged who holds the lock, then ever more rarely.

        Raises ``LockUnavailable`` with what ``refusal(milliseconds waited)`` says when nothing is left.
        """
        waited_ms = self.waited_ms
        left_ms = self._options.patience_ms - waited_ms
        if left_ms <= 0:
            raise LockUnavailable(refusal(waited_ms), table=self._options.base)
        if waited_ms > self._warn_ms:
            self._warn_ms *= 2
            _log.warning("waiting for %s for %.0f s: held by %s", self._place, waited_ms / 1e3, held_by)
        return left_ms
