"""Large files as memory: mapped where the store is a file system, read elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mainstem.storage.protocol import Storage


def view(storage: Storage, path: str) -> memoryview:
    """Whole content of a large file, without copying it where the store can map it."""
    mapped: Callable[[str], memoryview] | None = getattr(storage, "view", None)
    if mapped is not None:
        return mapped(path)
    return memoryview(storage.read(path, max_bytes=sys.maxsize))


def private_copy(storage: Storage, path: str, size: int, *, spill: bool) -> memoryview:
    """The first ``size`` bytes of a file, fewer if it is shorter, where nobody else can change or cut them,
    read-only: in memory, or with ``spill`` in a file of this machine that has no name, whose pages need not
    stay in memory (where the store is a file system)."""
    copied: Callable[..., memoryview] | None = getattr(storage, "private", None)
    if copied is not None:
        return copied(path, size, spill=spill)
    return memoryview(storage.read_range(path, 0, size))
