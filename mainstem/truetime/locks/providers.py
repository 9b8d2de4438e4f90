"""Opens the lock that a table's options select; the only module that knows every kind of lock."""

from __future__ import annotations

from mainstem.options.locks import IN_PROCESS
from mainstem.truetime.clock import Clock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.protocol import LockProvider
from mainstem.truetime.seams import Randomness


def open_lock(options: LockOptions, *, clock: Clock, random: Randomness) -> LockProvider:
    """The lock provider that ``options`` select; it writes nothing before ``acquire``."""
    if options.provider == IN_PROCESS:
        from mainstem.truetime.locks.in_process import InProcessLock

        return InProcessLock(options)
    if options.zookeeper is not None:
        from mainstem.truetime.locks.zookeeper import ZooKeeperLock

        return ZooKeeperLock(options, options.zookeeper, clock=clock, random=random)
    from mainstem.truetime.locks.file_system import FileSystemLock

    return FileSystemLock(options, clock=clock, random=random)
