"""What does not fit into memory, for as long as somebody works on it: one nameless temporary file.

It has no name, so a process that is killed leaves nothing behind. It lies in the machine's folder for
temporary files (``TMPDIR``), whatever storage the table has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

from mainstem.errors import Unavailable

Place = tuple[int, int]
"""Offset and length in bytes."""


class Spill:
    """A file that only grows; pieces are read in any order."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._size = 0

    def put(self, data: bytes | memoryview) -> Place:
        """Add a piece; its place. Raises ``OSError`` where the disk is full."""
        left = memoryview(data).cast("B")
        place = self._size, left.nbytes
        while left:
            done = self._file.write(left)
            self._size += done
            left = left[done:]
        return place

    def get(self, place: Place) -> bytes:
        """The piece at a place."""
        offset, length = place
        data = os.pread(self._file.fileno(), length, offset)
        while len(data) < length:
            more = os.pread(self._file.fileno(), length - len(data), offset + len(data))
            if not more:
                raise Unavailable("a temporary file of this process was cut off by others; try again")
            data += more
        return data


@contextmanager
def spilling() -> Iterator[Spill]:
    """A spill until the block ends."""
    with TemporaryFile(prefix="mainstem-", buffering=0) as file:
        yield Spill(file)
