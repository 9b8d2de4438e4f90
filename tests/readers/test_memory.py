"""Goal: reading a table as a stream takes the same memory, however large the table is.

Method: a child process streams a table and tells its peak memory; beside it a table ten times as large,
once in more file slices and once in a larger base file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import read_tables

ROWS = 50_000
# What ten times the rows would take more, as Arrow, is about 100 MB.
MORE_BYTES = 40_000_000
# What allocators keep for later is not what reading needs.
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
# Not ru_maxrss: a child inherits it from the process that forked it.
CHILD = """
import re, sys
import mainstem
plan = mainstem.open_table(sys.argv[1]).scan()
batches = plan.to_batches() if sys.argv[2] == "stream" else plan.to_arrow().to_batches()
rows = sum(batch.num_rows for batch in batches)
print(rows, int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""


def peak(path: Path, how: str = "stream") -> tuple[int, int]:
    """(rows, peak bytes) of a process that reads the table."""
    command = [sys.executable, "-c", CHILD, str(path), how]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
        env={**os.environ, **FRUGAL},
    )  # fmt: skip
    rows, most = map(int, done.stdout.split())
    return rows, most


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
    small = peak(made(tmp_path / "small", ROWS, 1))
    assert small[0] == ROWS
    for name, buckets in (("more slices", 10), ("larger base file", 1)):
        path = made(tmp_path / name, 10 * ROWS, buckets)
        rows, most = peak(path)
        assert rows == 10 * ROWS
        assert most - small[1] < MORE_BYTES, f"{name}: {most:,} bytes after {small[1]:,}"
    assert peak(path, "whole")[1] - small[1] > MORE_BYTES, "the whole table fits too: nothing was shown"
