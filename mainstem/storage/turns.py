"""Work that one process of a machine does for all: others would look for it, too, and find nothing left.

Only local disks know who else is at it; anywhere else nobody is. So nothing may rest on it but the cost.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, cast

from mainstem.storage.protocol import Storage


class _Turns(Protocol):
    def turn(self, folder: str) -> AbstractContextManager[bool]: ...


def has_turns(storage: Storage) -> bool:
    """Whether the store knows of other processes of this machine."""
    return getattr(storage, "turn", None) is not None


def turn(storage: Storage, folder: str) -> AbstractContextManager[bool]:
    """A block that yields whether no other block with this folder is running on this machine.

    A process that dies leaves its block. Call it only if ``has_turns``.
    """
    return cast(_Turns, storage).turn(folder)
