"""How many rows of new keys a new file group gets, by Hudi's options (``UpsertPartitioner.assignInserts``).

Hudi divides ``hoodie.parquet.max.file.size`` by the average size of a row in earlier commits, at first by an
estimate. Here the rows are at hand, and what they take in memory is a better measure, unless an estimate is
given.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mainstem.options.writing import AUTO_SPLIT, MAX_FILE, ROW_BYTES, SPLIT_ROWS

# Rows with Hudi's columns take about so much more in memory than in a compressed file.
_IN_MEMORY = 256 / 120


def rows_per_file(layout: Mapping[str, str], rows: pa.Table) -> int:
    """The most rows like these for one file, at least 1; ``layout``: the options that were given."""
    if not AUTO_SPLIT.read(layout):
        return SPLIT_ROWS.read(layout)
    in_file = ROW_BYTES.read_if_given(layout)
    if in_file is None:
        in_file = max(1.0, rows.nbytes / max(1, rows.num_rows) / _IN_MEMORY)
    return max(1, int(MAX_FILE.read(layout) / in_file))
