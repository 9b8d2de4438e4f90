"""Entries that are put into a finished footer, as on pyarrow 16, are read back by pyarrow."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.formats.parquet_footer import with_notes

ROWS = pa.table({"id": ["a", "b", "c"], "n": [1, 2, None]})


@pytest.mark.parametrize("count", [1, 14, 15, 300])
def test_entries_are_added_to_a_footer_that_has_none(count: int) -> None:
    stream = io.BytesIO()
    pq.write_table(ROWS, stream, store_schema=False, row_group_size=2)
    notes = {f"key {i}": "é" * i * 7 for i in range(count)}
    file = pq.ParquetFile(pa.BufferReader(with_notes(stream.getvalue(), notes)))
    assert file.metadata.metadata == {key.encode(): value.encode() for key, value in notes.items()}
    assert file.metadata.num_row_groups == 2
    assert file.read().equals(ROWS)
