"""Rows of an index of keys, as a commit makes them: many keys, and few distinct other values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of one file group of the record index or of a secondary index.

    Sorted by the unsigned bytes of their keys, without repeats: the rows ``low`` to ``high`` (None: to the
    end) of arrays that the file groups of a commit share. Row n is the row ``which[n]`` of ``kinds``
    (as in ``flat_rows.SCHEMAS``) with the key ``keys[n]``: apart from its key, a row names only the file
    group of its data, and a commit has few of these.
    """

    keys: pa.Array
    which: np.ndarray
    kinds: pa.Table
    low: int = 0
    high: int | None = None

    @property
    def end(self) -> int:
        """Where the rows end in the arrays."""
        return len(self.keys) if self.high is None else self.high

    @property
    def num_rows(self) -> int:
        return self.end - self.low

    def part(self, low: int, high: int) -> KeyedRows:
        """The rows ``low`` to ``high`` of the arrays."""
        return KeyedRows(self.keys, self.which, self.kinds, low, high)

    def table(self) -> pa.Table:
        """The rows as a flat table."""
        chosen, size = self.which[self.low : self.end], self.num_rows
        rows = self.kinds.take(pa.array(chosen))
        return rows.set_column(0, self.kinds.schema.field(0), self.keys.slice(self.low, size))


def joined(groups: Sequence[KeyedRows]) -> Sequence[KeyedRows]:
    """The same rows in as few ranges as there are without copying."""
    found: list[KeyedRows] = []
    for rows in groups:
        last = found[-1] if found else None
        if last is not None and last.keys is rows.keys and last.which is rows.which and last.end == rows.low:
            found[-1] = last.part(last.low, rows.end)
        elif rows.num_rows:
            found.append(rows)
    return found
