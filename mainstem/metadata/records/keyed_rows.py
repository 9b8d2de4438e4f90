"""Rows of an index of keys as a commit makes them: many keys, and little else that differs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class KeyedRows:
    """Rows of one file group of the record index or of a secondary index, sorted by unsigned bytes of their
    keys, each there once. Row n is the row ``which[n]`` of ``kinds`` (as in ``records.SCHEMAS``) with the key
    ``keys[n]``: a row names the file group of the data that its key lies in, and a commit has few of these.
    """

    keys: pa.Array
    which: np.ndarray
    kinds: pa.Table

    @property
    def num_rows(self) -> int:
        return len(self.keys)

    def slice(self, low: int, size: int) -> KeyedRows:
        """Some of the rows; nothing is copied."""
        return KeyedRows(self.keys.slice(low, size), self.which[low : low + size], self.kinds)

    def table(self) -> pa.Table:
        """The rows as a flat table."""
        return self.kinds.take(pa.array(self.which)).set_column(0, self.kinds.schema.field(0), self.keys)
