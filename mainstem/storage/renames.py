"""Renames that do not overwrite, which HDFS has: it has neither hard links nor conditional puts.

In one atomic step a rename fails if the target exists or the source is gone. So it decides who was first, as
a link does; but the file moves instead of getting a second name.

A client repeats a call whose reply was lost. If the first try took effect, the repetition finds no source. So
``FileNotFoundError`` alone does not tell that nothing was moved; ``move_new`` finds out where only one
process removes or moves the source, ``publish.rename_fence`` where others do, too. And a section that runs
again finds its private files moved by its first run: so what this process moved is remembered
(``was_moved``).
"""

from __future__ import annotations

import errno
import os
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, cast

from mainstem.errors import Unsupported
from mainstem.forks import Mutex
from mainstem.storage.protocol import Storage


class RenameStore(Protocol):
    """The operations of a store with renames. Errors as in ``Storage``; both keep the file's time."""

    def rename_new(self, source: str, target: str) -> None:
        """Move a file to a name that is free, atomically.

        ``FileExistsError`` if the target exists; ``FileNotFoundError`` if the source is gone (perhaps to the
        target, see the module) or the target's folder is missing. After another ``OSError`` it may or may not
        have taken effect, and may still.
        """

    def rename_over(self, source: str, target: str) -> None:
        """As ``rename_new``, replacing a target that exists."""


def has_renames(storage: Storage) -> bool:
    """Whether the store has an atomic rename that does not overwrite, and no links."""
    return bool(getattr(storage, "renames", False))


def renames(storage: Storage) -> RenameStore:
    """The same store, typed as one with renames. Raises ``Unsupported`` if it has none."""
    if not has_renames(storage):
        raise Unsupported(
            "the storage cannot rename a file without overwriting another: expected HDFS", table=storage.base
        )
    return cast(RenameStore, storage)


# What this process moved: full name of the source -> full name of the target, size and time there.
_moved: OrderedDict[str, tuple[str, int, int]] = OrderedDict()
_MOVED_MAX = 10_000
_guard = Mutex()


def move_new(storage: Storage, source: str, target: str) -> None:
    """``rename_new`` of a source with a unique name, which others may remove but not move.

    ``FileExistsError`` if the target exists, also if this process moved the source there before;
    ``FileNotFoundError`` if the source was removed.
    """
    try:
        _move(storage, renames(storage).rename_new, source, target)
    except FileNotFoundError:
        if not was_moved(storage, source, target):
            raise
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None


def move_over(storage: Storage, source: str, target: str) -> None:
    """As ``move_new``, replacing a target that exists."""
    _move(storage, renames(storage).rename_over, source, target)


def was_moved(storage: Storage, source: str, target: str) -> bool:
    """Whether this process moved the source there, and the target is still that file."""
    with _guard.held:
        known = _moved.get(f"{storage.base}/{source}")
    there = None if known is None or known[0] != f"{storage.base}/{target}" else storage.stat(target)
    return known is not None and there is not None and (there.size, there.mtime_ms) == known[1:]


def _move(storage: Storage, rename: Callable[[str, str], None], source: str, target: str) -> None:
    before = storage.stat(source)
    try:
        rename(source, target)
    except FileNotFoundError:
        there = storage.stat(target)
        if before is None or there is None or storage.stat(source) is not None:
            raise
        if (there.size, there.mtime_ms) != (before.size, before.mtime_ms):  # which renames keep
            raise
    if before is not None:
        with _guard.held:
            _moved[f"{storage.base}/{source}"] = f"{storage.base}/{target}", before.size, before.mtime_ms
            while len(_moved) > _MOVED_MAX:
                _moved.popitem(last=False)
