"""The record index of a whole table, built by ``create_index`` in a process of its own, and what no engine
can do without, bare.

The build has the table for itself, which has its list of files in a metadata table already; it is dropped
and built again. The process's peak of memory counts what it mapped, too. Bare: record keys are read with
pyarrow, sorted by Arrow, laid out as entries of the same bytes and compressed as an HFile's blocks are,
on all cores and in as much memory as it takes, into nothing. Both take turns. Then a writer beside builds
(``index_writers``).
"""

from __future__ import annotations

import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from isal import isal_zlib

import mainstem
from benchmarks import FOLDER, Row, bound, index_writers, read_tables, row, work_folder
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.metadata_partitions import RECORD_INDEX

ROWS, GROUPS, INDEX_GROUPS = 10_000_000, 200, 10
PEAK_MIB = 1024
_VALUE_BYTES = 69  # of a record-index entry, with what an HFile adds to it
_BLOCK_BYTES = 1 << 20
_LEVEL, _GZIP = 3, 31  # as base files are compressed; a gzip member
_TURNS = 2


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("index-build")
    rows = ROWS // 10 if reduced else ROWS
    try:
        found, bare = _measured(folder / "t", rows)
        others = index_writers.run(folder, ROWS // (40 if reduced else 10))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if {f["keys"] for f in found} != {rows}:
        raise RuntimeError(f"the index has {found[0]['keys']} keys of {rows}")
    what = f"a record index on {rows:,} rows in {GROUPS} file groups"
    seconds, least = (statistics.median(f["seconds"] for f in some) for some in (found, bare))
    return [
        row(f"build {what}", rows / seconds, "rows/s", against="keys read, sorted and compressed bare",
            baseline=rows / least, note=f"{seconds:.1f} s, bare {least:.1f} s"),
        bound(f"peak memory of that, {what}", max(f["peak_mib"] for f in found), "MiB", most=PEAK_MIB),
        bound(f"bytes per key of {what}", found[0]["bytes"] / rows, "bytes", most=48),
        *others,
    ]  # fmt: skip


def _measured(path: Path, rows: int) -> tuple[list[dict], list[dict]]:
    table = read_tables.create(path, buckets=GROUPS)
    read_tables.insert(table, 0, rows)
    read_tables.compacted(table)
    table.create_index("files")
    found, bare = [], []
    for turn in range(_TURNS):
        if turn:
            mainstem.open_table(str(path)).drop_index(RECORD_INDEX)
        found.append(alone("build", path))
        bare.append(alone("bare", path))
    return found, bare


def alone(what: str, path: Path) -> dict[str, Any]:
    """``build`` or ``bare`` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.index_build", what, str(path)]
    told = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


def build(path: str) -> dict[str, float]:
    """Build the index; what it took."""
    began = time.perf_counter()
    built = mainstem.open_table(path, read_tables.FAST).create_index("record_index")
    seconds = time.perf_counter() - began
    return {
        "keys": built.rows,
        "bytes": sum(f.stat().st_size for f in Path(path, ".hoodie/metadata", RECORD_INDEX).glob("*.hfile")),
        "seconds": seconds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def bare(path: str) -> dict[str, float]:
    """Read keys, sort them, lay out and compress entries; what it took."""
    began = time.perf_counter()
    with ThreadPoolExecutor(3) as pool:
        read = pool.map(lambda file: pq.read_table(file, columns=[KEY_COLUMN]), Path(path).glob("*.parquet"))
        keys = pa.concat_tables(read).column(0)
        step = -(-len(keys) // INDEX_GROUPS)
        parts = [keys.slice(low, step) for low in range(0, len(keys), step)]
        size = sum(pool.map(_compressed, parts))
    return {"keys": len(keys), "bytes": size, "seconds": time.perf_counter() - began}


def _compressed(column: pa.ChunkedArray) -> int:
    keys = pa.concat_arrays(column.cast(pa.binary()).chunks)
    keys = keys.take(pc.sort_indices(keys))
    key_bytes = len(keys[0].as_py())
    chance = np.random.default_rng(1)
    values = chance.integers(0, 256, (GROUPS, 16), np.uint8)[chance.integers(0, GROUPS, len(keys))]
    entries = np.zeros((len(keys), key_bytes + _VALUE_BYTES), np.uint8)
    entries[:, :key_bytes] = np.frombuffer(keys.buffers()[2], np.uint8).reshape(-1, key_bytes)[: len(keys)]
    entries[:, key_bytes : key_bytes + 16] = values  # the file id of each row
    plain = memoryview(entries.reshape(-1))
    size = 0
    for low in range(0, len(plain), _BLOCK_BYTES):
        packer = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _GZIP)
        size += len(packer.compress(plain[low : low + _BLOCK_BYTES]) + packer.flush())
    return size


if __name__ == "__main__":
    print(json.dumps({"build": build, "bare": bare}[sys.argv[1]](sys.argv[2])))
