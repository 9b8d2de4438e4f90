"""Large files as memory: mapped on a file system, read as a whole on other stores."""

from __future__ import annotations

import sys
from collections.abc import Callable

from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage


def view(storage: Storage, path: str) -> memoryview:
    """Whole content of a large file, without a copy if the store can map it."""
    mapped: Callable[[str], memoryview] | None = getattr(storage, "view", None)
    if mapped is not None:
        return mapped(path)
    return memoryview(storage.read(path, max_bytes=sys.maxsize))


def part(storage: Storage, path: str, start: int, end: int) -> memoryview:
    """These bytes of a large file, without a copy if the store can map it, fewer at the end of the file."""
    mapped: Callable[[str], memoryview] | None = getattr(storage, "view", None)
    if mapped is not None and has_links(storage):
        return mapped(path)[start:end]
    return memoryview(storage.read_range(path, start, end - start))


def private_copy(storage: Storage, path: str, size: int, *, spill: bool) -> memoryview:
    """A private, read-only copy of the first ``size`` bytes of a file, fewer if it is shorter.

    Nobody else can change or truncate it. It lies in memory; with ``spill`` in a nameless temporary file on
    this machine, whose pages need not stay in memory.
    """
    copied: Callable[..., memoryview] | None = getattr(storage, "private", None)
    if copied is not None:
        return copied(path, size, spill=spill)
    return memoryview(storage.read_range(path, 0, size))
