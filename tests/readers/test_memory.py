"""Goal: reading a table as a stream takes the same memory, however large the table is.

Method: a child process streams a table and tells its peak memory; beside it a table ten times as large,
once in more file slices and once in a larger base file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import read_tables
from tests.readers.peak_memory import peak

ROWS = 50_000
# What ten times the rows would take more, as Arrow, is about 100 MB.
MORE_BYTES = 40_000_000


def made(path: Path, rows: int, buckets: int) -> Path:
    table = read_tables.create(path, buckets=buckets)
    read_tables.insert(table, 0, rows)
    read_tables.compacted(table, group_rows=20_000, compression="snappy")
    read_tables.insert(table, 0, ROWS // 10, version=1)
    return path


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells a process's peak memory")
@pytest.mark.slow
@pytest.mark.supports("Queries", "streams of batches in bounded memory")
def test_a_table_ten_times_as_large_is_streamed_in_the_same_memory(tmp_path):
    small = peak(str(made(tmp_path / "small", ROWS, 1)))
    assert small[0] == ROWS
    for name, buckets in (("more slices", 10), ("larger base file", 1)):
        path = made(tmp_path / name, 10 * ROWS, buckets)
        rows, most = peak(str(path))
        assert rows == 10 * ROWS
        assert most - small[1] < MORE_BYTES, f"{name}: {most:,} bytes after {small[1]:,}"
    assert peak(str(path), "whole")[1] - small[1] > MORE_BYTES, "the whole table fits too: nothing was shown"
