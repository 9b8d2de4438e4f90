"""Goal: a table in a bucket is streamed and compacted in the same memory, however large it is.

Method: MinIO; child processes stream and compact a table and one of ten times its rows in one file group, and
tell their peak memory. Reading the larger one whole shows what it would take.
"""

from __future__ import annotations

import numpy as np
import pytest

import mainstem
from benchmarks import data
from tests.readers import peak_memory
from tests.servers.object_stores import StoreServer

pytestmark = pytest.mark.timeout(600)
ROWS = 50_000
# Ten times the rows take about 100 MB more as Arrow, and their log files 130 MB.
MORE_BYTES = 60_000_000
OPTIONS = {
    "hoodie.mainstem.exclusive": "true", "hoodie.mainstem.fsync": "false",
    "hoodie.memory.compaction.max.size": str(16 << 20), "hoodie.parquet.block.size": str(4 << 20),
}  # fmt: skip


def peak(server: StoreServer, path: str, how: str) -> tuple[int, int]:
    """``peak_memory.peak`` of a table in the bucket."""
    return peak_memory.peak(server.url("bucket", path), how, {**OPTIONS, **server.options()})


def made(server: StoreServer, path: str, rows: int) -> str:
    """A table of log files, of one file group."""
    table = mainstem.create_table(
        server.location("bucket", path), data.SCHEMA, record_key=[data.KEY], ordering=[data.ORDERING],
        buckets=1, properties={**OPTIONS, **server.options()},
    )  # fmt: skip
    for first in range(0, rows, ROWS):
        table.upsert(data.rows(np.arange(first, min(first + ROWS, rows))))
    return path


def test_a_table_ten_times_as_large_is_compacted_and_streamed_in_the_same_memory(minio: StoreServer) -> None:
    small, large = made(minio, "memory-small", ROWS), made(minio, "memory-large", 10 * ROWS)
    for how in ("compact", "stream"):
        few, many = peak(minio, small, how), peak(minio, large, how)
        assert (few[0], many[0]) == ((0, 0) if how == "compact" else (ROWS, 10 * ROWS))
        assert many[1] - few[1] < MORE_BYTES, f"{how}: {many[1]:,} bytes after {few[1]:,}"
    assert peak(minio, large, "whole")[1] - few[1] > MORE_BYTES, "the whole table fits too: nothing was shown"
