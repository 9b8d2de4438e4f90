"""The lock of a table that is only read: taking it is refused."""

from __future__ import annotations

from mainstem.errors import Unsupported
from mainstem.truetime.locks.protocol import Lease


class NoLock:
    """No lock; ``acquire`` raises ``Unsupported``."""

    identity = "none"

    def __init__(self, base: str) -> None:
        self._base = base

    def acquire(self) -> Lease:
        raise Unsupported("this table is open for reading: it has no lock", table=self._base)
