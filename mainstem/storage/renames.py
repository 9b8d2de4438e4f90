"""Renames that do not overwrite, which HDFS has: it has neither hard links nor conditional puts.

In one atomic step a rename fails if the target exists or the source is gone. So it decides who was first, as
a link does; but the file moves instead of getting a second name.

A client repeats a call whose reply was lost. If the first try took effect, the repetition finds no source. So
``FileNotFoundError`` alone does not tell that nothing was moved; ``move_new`` finds out where only one
process removes or moves the source, ``publish.rename_fence`` where others do, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from mainstem.errors import Unsupported
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


def move_new(storage: Storage, source: str, target: str) -> None:
    """``rename_new`` of a source with a unique name, which others may remove but not move.

    ``FileExistsError`` if the target exists, ``FileNotFoundError`` if the source was removed.
    """
    _move(storage, renames(storage).rename_new, source, target)


def move_over(storage: Storage, source: str, target: str) -> None:
    """As ``move_new``, replacing a target that exists."""
    _move(storage, renames(storage).rename_over, source, target)


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
