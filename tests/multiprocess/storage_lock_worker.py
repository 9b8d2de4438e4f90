"""``lock_worker.py`` with the storage lock, on a store that the tests serve.

Arguments: base path of the counter, JSON with the address of the store and the validity in milliseconds.
"""

from __future__ import annotations

import json
import random
import sys
from multiprocessing.managers import BaseManager

from mainstem.options.locks import STORAGE
from mainstem.storage.swaps import Tag
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.storage_lock import StorageLock
from mainstem.truetime.locks.storage_options import StorageLockOptions
from tests.multiprocess import lock_worker


class Served(BaseManager):
    """The store of the test's process."""


Served.register("swaps")


class RemoteSwaps:
    """``Swappable`` over the connection."""

    def __init__(self, address: list) -> None:
        manager = Served(tuple(address), authkey=b"test")
        manager.connect()
        self.swaps = manager.swaps()

    def read_tagged(self, path: str, *, max_bytes: int = 0) -> tuple[bytes, Tag] | None:
        return self.swaps.read_tagged(path)

    def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
        return self.swaps.swap(path, data, tag)


class Worker(lock_worker.Worker):
    """A process that uses the storage lock."""

    def __init__(self, base: str, given: dict) -> None:
        self.base = base
        options = LockOptions(provider=STORAGE, base="memory://t", folder="", identity="")
        settings = StorageLockOptions(given["validity_ms"], given["validity_ms"] // 10, exclusive=True)
        self.lock = StorageLock(
            options, settings, RemoteSwaps(given["address"]), clock=SystemClock(), random=random.Random()
        )
        self.lease = None


if __name__ == "__main__":
    worker = Worker(sys.argv[1], json.loads(sys.argv[2]))  # still there when the interpreter ends
    lock_worker.main(worker)
