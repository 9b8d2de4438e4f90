"""Rows of an index of keys, as a commit makes them: many keys, and few distinct other values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class KeyedRows:
    """Rows of one file group of the record index or of a secondary index.

    Sorted by the unsigned bytes of their keys, without repeats. Row n is the row ``which[n]`` of ``kinds``
    (as in ``flat_rows.SCHEMAS``) with the key ``keys[n]``: apart from its key, a row names only the file
    group of its data, and a commit has few of these.
    """

    keys: pa.Array
    which: np.ndarray
    kinds: pa.Table

    @property
    def num_rows(self) -> int:
        return len(self.keys)

    def slice(self, low: int, size: int) -> KeyedRows:
        """Some of the rows, without copying."""
        return KeyedRows(self.keys.slice(low, size), self.which[low : low + size], self.kinds)

    def table(self) -> pa.Table:
        """The rows as a flat table."""
        return self.kinds.take(pa.array(self.which)).set_column(0, self.kinds.schema.field(0), self.keys)
