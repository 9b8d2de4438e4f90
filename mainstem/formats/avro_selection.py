"""Selects framed Avro records from log blocks, with their bytes unchanged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.record_starts import framed_starts


def selected_records(
    parts: Sequence[tuple[memoryview, int]],
    rows: np.ndarray,
    *,
    places: Sequence[tuple[str, int]],
) -> list[tuple[memoryview, int]]:
    """For each part, the selected records joined, in the form that ``decode_many`` takes.

    ``parts`` are (framed records, their number), ``rows`` ascending record numbers over all parts, and
    ``places`` the (path, offset) of the parts, for the ``CorruptTable`` that damaged lengths raise.
    """
    chosen, first = [], 0
    for (data, count), (path, offset) in zip(parts, places, strict=True):
        low, high = np.searchsorted(rows, (first, first + count))
        wanted = rows[low:high] - first
        first += count
        if len(wanted) == count:
            chosen.append((data, count))
            continue
        if not len(wanted):
            chosen.append((data[:0], 0))
            continue
        try:
            starts = framed_starts(data, count)
        except Malformed as error:
            raise CorruptTable(
                f"a damaged Avro log block: {error}; restore the file from a copy", path=path, offset=offset
            ) from None
        chosen.append((_gathered(data, starts, wanted), len(wanted)))
    return chosen


def _gathered(data: memoryview, starts: np.ndarray, rows: np.ndarray) -> memoryview:
    """The records at ``rows``, by one Arrow ``take`` from an array over the block's bytes."""
    records = pa.Array.from_buffers(
        pa.large_binary(), len(starts) - 1, [None, pa.py_buffer(starts.astype(np.int64)), pa.py_buffer(data)]
    )
    taken = records.take(pa.array(rows)).buffers()[2]
    return memoryview(taken)[: int((starts[rows + 1] - starts[rows]).sum())]
