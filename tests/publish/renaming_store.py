"""A folder of this machine as a store that renames and has no links, as HDFS does."""

from __future__ import annotations

import ctypes
import os

from mainstem.storage.local import LocalStorage
from mainstem.storage.location import Location

_LIBC = ctypes.CDLL(None, use_errno=True)
_HERE, _NO_REPLACE = -100, 1
_LINK = LocalStorage.link


class RenamingStorage(LocalStorage):
    """``LocalStorage`` with ``storage.renames`` in the place of ``storage.links``.

    ``faults``: what becomes of the next renames, one after another: ``""`` works; ``"repeated"`` takes
    effect, and its repetition finds no source; ``"after"`` takes effect and reports trouble; ``"late"``
    reports trouble, and takes effect when ``arrive`` is called.
    """

    links = False
    renames = True

    def __init__(self, base: str) -> None:
        super().__init__(base, sync=False)
        self.faults: list[str] = []
        self._late: list[tuple[str, str, int]] = []

    def rename_new(self, source: str, target: str) -> None:
        if LocalStorage.link is not _LINK:  # a test of the disk holds up or fails links: it means this step
            LocalStorage.link(self, source, target)
            self.delete(source)
        else:
            self._go(source, target, _NO_REPLACE)

    def rename_over(self, source: str, target: str) -> None:
        self._go(source, target, 0)

    def arrive(self) -> None:
        """Let the late renames arrive."""
        while self._late:
            try:
                self._rename_now(*self._late.pop(0))
            except (FileExistsError, FileNotFoundError):
                continue

    def _go(self, source: str, target: str, flags: int) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "late":
            self._late.append((source, target, flags))
            raise OSError(5, "the connection broke", target)
        self._rename_now(source, target, flags)
        if fault == "repeated":
            raise FileNotFoundError(2, "no such file", source)
        if fault == "after":
            raise OSError(5, "the connection broke", target)

    def _rename_now(self, source: str, target: str, flags: int) -> None:
        names = os.fsencode(self._full(source)), os.fsencode(self._full(target))
        if _LIBC.renameat2(_HERE, names[0], _HERE, names[1], flags) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), source)


def renaming_store(location: Location, sync: bool) -> RenamingStorage:
    """For ``storage.backends.BACKENDS``."""
    return RenamingStorage(location.path)
