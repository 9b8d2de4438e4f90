"""What a process has fetched of files that never change again, kept in memory up to a bound.

Only ends of files are kept: the footer of a large file, or a small file as a whole. A key is a path, and for
files whose names may come again, what tells one file of that name from the next.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from mainstem.forks import Mutex

Key = tuple[str, object]


class End(NamedTuple):
    """The last bytes of a file of ``size`` bytes."""

    data: memoryview
    size: int

    @property
    def is_whole(self) -> bool:
        """Whether these are all of its bytes."""
        return len(self.data) == self.size


class KeptReads:
    """The ends that were used last, of at most ``bytes_max`` bytes together. Safe for several threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._ends: OrderedDict[Key, End] = OrderedDict()
        self._mutex = Mutex()

    def get(self, key: Key) -> End | None:
        """What is kept of a file; None if nothing is."""
        with self._mutex.held:
            found = self._ends.get(key)
            if found is not None:
                self._ends.move_to_end(key)
            return found

    def put(self, key: Key, end: End) -> None:
        """Keep the end of a file, and drop others that do not fit beside it."""
        with self._mutex.held:
            self._drop(key)
            if len(end.data) > self._bytes_max:
                return
            while self._ends and self._bytes + len(end.data) > self._bytes_max:
                self._drop(next(iter(self._ends)))
            self._ends[key] = end
            self._bytes += len(end.data)

    def forget(self) -> None:
        """Drop everything."""
        with self._mutex.held:
            self._ends.clear()
            self._bytes = 0

    def _drop(self, key: Key) -> None:
        found = self._ends.pop(key, None)
        if found is not None:
            self._bytes -= len(found.data)
