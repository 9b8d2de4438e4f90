"""How many rows of new keys a file group gets, by Hudi's options (``UpsertPartitioner.assignInserts``).

Hudi divides ``hoodie.parquet.max.file.size`` by the average size of a row in earlier commits, at first by an
estimate. Here the rows are at hand, and what they take in memory is a better measure, unless an estimate is
given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.options.writing import AUTO_SPLIT, LOG_RATIO, MAX_FILE, ROW_BYTES, SMALL_FILE, SPLIT_ROWS

# Rows with Hudi's columns take about so much more in memory than in a compressed file.
_IN_MEMORY = 256 / 120


def rows_per_file(layout: Mapping[str, str], rows: pa.Table) -> int:
    """The most rows like these for one file, at least 1; ``layout``: the options that were given."""
    if not AUTO_SPLIT.read(layout):
        return SPLIT_ROWS.read(layout)
    return max(1, int(MAX_FILE.read(layout) / _row_bytes(layout, rows)))


def room_for(layout: Mapping[str, str], rows: pa.Table) -> int:
    """The most bytes that a file group may have to get these rows, too: beyond that its file would become
    larger than ``hoodie.parquet.max.file.size``."""
    return max(0, MAX_FILE.read(layout) - int(rows.num_rows * _row_bytes(layout, rows)))


def _row_bytes(layout: Mapping[str, str], rows: pa.Table) -> float:
    in_file = ROW_BYTES.read_if_given(layout)
    return max(1.0, rows.nbytes / max(1, rows.num_rows) / _IN_MEMORY) if in_file is None else in_file


@dataclass(frozen=True)
class Filling:
    """Which file groups take new keys in log files: those of less than ``small_bytes`` (0: none), where a
    byte of a log file counts ``log_ratio`` (``FileSlice.getTotalFileSizeAsParquetFormat``)."""

    small_bytes: int = 0
    log_ratio: float = 0.35

    @classmethod
    def by(cls, properties: Mapping[str, str]) -> Filling:
        """Of a table's properties and what a writer was given. Raises ``Invalid``."""
        text = LOG_RATIO.read(properties)
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            raise Invalid(f"{LOG_RATIO}={text!r}: expected a number from 0 to 1")
        return cls(SMALL_FILE.read(properties), ratio)
