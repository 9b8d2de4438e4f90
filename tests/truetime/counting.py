"""Threads that count under a lock: an overlap of two holders shows, and so does a lost turn."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mainstem.truetime.locks.storage_lock import StorageLock


def count_under_locks(
    open_one: Callable[[], StorageLock], *, threads: int, turns: int, patience_s: float
) -> tuple[int, int]:
    """(turns counted, overlaps) of threads that take ``turns`` turns each, with locks of their own.

    Counting is not atomic: a turn that overlaps another one may be lost. ``check`` comes in the middle.
    """
    counter, inside, overlaps = 0, 0, 0

    def body() -> None:
        nonlocal counter, inside, overlaps
        lock = open_one()
        for _ in range(turns):
            lease = lock.acquire()
            inside += 1
            overlaps += inside != 1
            seen = counter
            lease.check()
            counter = seen + 1
            inside -= 1
            lease.release()

    running = [threading.Thread(target=body) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(patience_s)
    return counter, overlaps
