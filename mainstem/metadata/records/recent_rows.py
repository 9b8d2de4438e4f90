"""Rows that this process has written to the metadata table lately, so that its own compactions and look-ups
need not open a log file per file group and commit for them.

A log file of the metadata table is named after its instant, and no instant is used twice, so a name stands
for one content. Rows are kept once their commit is completed. Whoever asks has seen the file in a listing and
judged its instant; a file of another size than the one written is read, whoever put it there. The store
belongs to one opened table (``writers.context``): a table that is made anew at its path is another one.

Memory: ``BYTES_MAX`` of the newest rows. The files of one commit and index share arrays, which stay as long
as one of them is kept; so they are kept only if all of these are small (``SMALL_BYTES``). Larger ones cost
little to read, measured by what they hold.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

from mainstem.forks import Mutex
from mainstem.limits import KIB, MIB

BYTES_MAX = 16 * MIB
#: rows of one commit for one index, of which none are kept beyond that
SMALL_BYTES = 256 * KIB


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a log file of ``size`` bytes: keys and values (binary, or a dictionary of it), of about
    ``held`` bytes of memory."""

    keys: pa.Array
    values: pa.Array
    schema_text: str
    size: int
    held: int

    @property
    def cost(self) -> int:
        """About how many bytes of memory they take."""
        return self.held + KIB

    @property
    def plain_values(self) -> pa.Array:
        """The values, as reading the file returns them."""
        return self.values.cast(pa.binary())


class RecentRows:
    """Log files by their paths below the metadata table; safe to share between threads."""

    def __init__(self) -> None:
        self._mutex = Mutex()
        self._files: OrderedDict[str, FileRows] = OrderedDict()
        self._bytes = 0

    def keep(self, path: str, rows: FileRows) -> None:
        """Keep a file's rows, and forget the oldest of too many."""
        with self._mutex.held:
            before = self._files.pop(path, None)
            self._bytes += rows.cost - (0 if before is None else before.cost)
            self._files[path] = rows
            while self._bytes > BYTES_MAX:
                self._bytes -= self._files.popitem(last=False)[1].cost

    def get(self, path: str, size: int) -> FileRows | None:
        """The rows of a file that has ``size`` bytes now; None if it is not known."""
        with self._mutex.held:
            found = self._files.get(path)
        return found if found is not None and found.size == size else None
