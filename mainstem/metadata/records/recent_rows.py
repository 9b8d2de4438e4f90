"""Rows that this process has written to the metadata table lately, so that its own compactions and look-ups
need not open a log file per file group and commit for them.

A log file of the metadata table is named after its instant, and no instant is used twice, so a name stands
for one content. Rows are kept once their commit is completed. Whoever asks has seen the file in a listing and
judged its instant; a file of another size than the one written is read, whoever put it there. The store
belongs to one opened table (``writers.context``): a table that is made anew at its path is another one.

Memory: ``BYTES_MAX`` of the newest small files; rows of larger ones cost little to read, measured by what
they hold.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

from mainstem.forks import Mutex
from mainstem.limits import KIB, MIB

BYTES_MAX = 16 * MIB
_FILE_BYTES_MAX = 64 * KIB
_FILES_MAX = 20_000


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of a log file of ``size`` bytes: keys and values (binary, or a dictionary of it)."""

    keys: pa.Array
    values: pa.Array
    schema_text: str
    size: int

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
        """Keep a file's rows, if it is small, and forget the oldest of too many."""
        if rows.size > _FILE_BYTES_MAX:
            return
        with self._mutex.held:
            before = self._files.pop(path, None)
            self._bytes += rows.size - (0 if before is None else before.size)
            self._files[path] = rows
            while self._bytes > BYTES_MAX or len(self._files) > _FILES_MAX:
                self._bytes -= self._files.popitem(last=False)[1].size

    def get(self, path: str, size: int) -> FileRows | None:
        """The rows of a file that has ``size`` bytes now; None if it is not known."""
        with self._mutex.held:
            found = self._files.get(path)
        return found if found is not None and found.size == size else None
