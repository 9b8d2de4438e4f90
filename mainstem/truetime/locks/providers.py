"""Opens the lock that a table's options select; the only module that knows every kind of lock."""

from __future__ import annotations

from mainstem.errors import Unsupported
from mainstem.options.locks import FILE_SYSTEM, IN_PROCESS, PROVIDER, STORAGE
from mainstem.storage.protocol import Storage
from mainstem.storage.renames import has_renames
from mainstem.storage.swaps import has_swaps, swappable
from mainstem.truetime.clock import Clock
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.protocol import LockProvider
from mainstem.truetime.seams import Randomness


def open_lock(
    options: LockOptions, *, clock: Clock, random: Randomness, storage: Storage | None = None
) -> LockProvider:
    """The lock provider that ``options`` select; it writes nothing before ``acquire``.

    ``storage`` is the table's, for the lock that is an object in it. Raises ``Unsupported`` if that cannot
    swap.
    """
    if options.provider == IN_PROCESS:
        from mainstem.truetime.locks.in_process import InProcessLock

        return InProcessLock(options)
    if options.zookeeper is not None:
        from mainstem.truetime.locks.zookeeper import ZooKeeperLock

        return ZooKeeperLock(options, options.zookeeper, clock=clock, random=random)
    if options.dynamodb is not None:
        from mainstem.truetime.locks.dynamodb_lock import open_dynamodb_lock

        where = None if storage is None else storage.location
        return open_dynamodb_lock(options, options.dynamodb, clock=clock, random=random, location=where)
    if options.storage is not None:
        from mainstem.truetime.locks.storage_lock import StorageLock

        if storage is None or not has_swaps(storage):
            raise Unsupported(
                f"{PROVIDER}={STORAGE}: the storage of this table cannot swap an object on condition; take a"
                f" ZooKeeper lock, or {FILE_SYSTEM} on a local disk",
                table=options.base,
            )
        return StorageLock(options, options.storage, swappable(storage), clock=clock, random=random)
    if storage is not None and has_renames(storage):
        from mainstem.truetime.locks.rename_lock import RenameLock

        return RenameLock(options, storage, clock=clock, random=random)
    from mainstem.truetime.locks.file_system import FileSystemLock

    return FileSystemLock(options, clock=clock, random=random)
