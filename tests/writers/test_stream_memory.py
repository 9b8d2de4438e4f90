"""Goal: a stream of rows is written in the same memory, however long it is.

Method: a child process upserts a stream and tells its peak memory; beside it one with ten times as many
rows, and the same rows as one table.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readers.peak_memory import FRUGAL

# 12 MB as Arrow, six times what the child gathers before it writes.
ROWS = 12_000
# What ten times the rows would take more is 110 MB.
MORE_BYTES = 40_000_000

_CHILD = """
import re, sys
import numpy as np
import pyarrow as pa
import mainstem
from mainstem.writers import rows_in

rows_in.GATHERED_BYTES = 2 << 20  # an eighth, so that short streams show what long ones take
path, kind, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("text", pa.string())])
table = mainstem.create_table(
    path, schema, record_key="id", ordering="ts", buckets=4,
    properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.services": "off"})

def batches():
    for start in range(0, rows, 2_000):
        ids = np.arange(start, start + 2_000)
        texts = pa.array([f"{i:01000}" for i in ids])
        yield pa.record_batch([pa.array(ids), pa.array(ids), texts], schema=schema)

if kind == "table":
    given = pa.Table.from_batches(batches())
elif kind == "reader":
    given = pa.RecordBatchReader.from_batches(schema, batches())
elif kind == "dicts":
    given = (row for batch in batches() for row in batch.to_pylist())
else:
    given = batches()
assert table.upsert(given).rows == rows
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""


def peak(path: Path, kind: str, rows: int) -> int:
    """Peak bytes of a process that upserts so many rows."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), kind, str(rows)], stdout=subprocess.PIPE,
        text=True, check=True, cwd=Path(__file__).parents[2], env={**os.environ, **FRUGAL},
    )  # fmt: skip
    shutil.rmtree(path)
    return int(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells a process's peak memory")
@pytest.mark.slow
@pytest.mark.supports("Writing", "streams of rows in bounded memory")
def test_a_stream_ten_times_as_long_is_written_in_the_same_memory(tmp_path):
    for kind in ("generator", "reader", "dicts"):
        short = peak(tmp_path / f"{kind}-short", kind, ROWS)
        long = peak(tmp_path / f"{kind}-long", kind, 10 * ROWS)
        print(f"{kind}: {short:,} bytes, {long:,} bytes")
        assert long - short < MORE_BYTES, f"{kind}: {long:,} bytes after {short:,}"
    whole = peak(tmp_path / "whole", "table", 10 * ROWS)
    print(f"table: {whole:,} bytes")
    assert whole - short > MORE_BYTES, "the whole table fits too: nothing was shown"
