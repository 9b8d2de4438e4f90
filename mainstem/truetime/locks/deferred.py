"""A lock that is opened when it is first needed: a table that is only read may name one that is not there."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from mainstem.truetime.locks.protocol import Lease, LockProvider


class DeferredLock:
    """The lock that ``make`` opens. What ``make`` raises, ``identity`` and ``acquire`` raise."""

    def __init__(self, make: Callable[[], LockProvider]) -> None:
        self._make = make

    @cached_property
    def _lock(self) -> LockProvider:
        return self._make()

    @property
    def identity(self) -> str:
        """As of the lock itself."""
        return self._lock.identity

    def acquire(self) -> Lease:
        return self._lock.acquire()
