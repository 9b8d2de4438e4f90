"""The four dependencies injected into protocol code: storage, clock, lock and randomness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mainstem.storage.protocol import Storage
from mainstem.truetime.clock import Clock
from mainstem.truetime.locks.protocol import LockProvider


class Randomness(Protocol):
    """The part of ``random.Random`` that protocol code uses."""

    def getrandbits(self, count: int, /) -> int: ...

    def random(self) -> float: ...


@dataclass(frozen=True)
class Seams:
    """Storage, clock, lock and randomness of one open table in one process.

    ``api.real_seams`` assembles the real ones, ``tests.sim`` the simulated ones.
    """

    storage: Storage
    clock: Clock
    lock: LockProvider
    random: Randomness
