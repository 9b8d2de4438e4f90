"""Tables for the benchmarks: base files and log files in the sizes asked for.

Rows are written and compacted by mainstem. Java and hudi-rs read these tables as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import mainstem
from benchmarks import data

FAST = {
    "hoodie.mainstem.fsync": "false",
    "hoodie.mainstem.exclusive": "true",
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
}
BATCH = 500_000
# A row of ``data.SCHEMA`` with its meta columns, as Arrow holds it.
ROW_BYTES = 236


def create(
    folder: Path, *, buckets: int = 8, partition_by: Sequence[str] = (), schema: pa.Schema = data.SCHEMA
) -> mainstem.Table:
    """An empty table keyed by ``uuid`` and ordered by ``ts``."""
    mainstem.create_table(
        str(folder), schema, record_key=[data.KEY], ordering=[data.ORDERING], buckets=buckets,
        partition_by=list(partition_by), properties=FAST,
    )  # fmt: skip
    return mainstem.open_table(str(folder), properties=FAST)


def insert(table: mainstem.Table, first: int, count: int, *, version: int = 0) -> None:
    """Upsert ``count`` keys from number ``first`` on, in batches."""
    for begin in range(first, first + count, BATCH):
        numbers = np.arange(begin, min(begin + BATCH, first + count))
        table.upsert(data.rows(numbers, version=version))


def compacted(table: mainstem.Table, *, group_rows: int | None = None, compression: str = "gzip") -> None:
    """Compact a table of ``data.SCHEMA`` into base files with about ``group_rows`` rows per row group."""
    options = {**FAST, "hoodie.parquet.compression.codec": compression}
    if group_rows is not None:
        options["hoodie.parquet.block.size"] = str(group_rows * ROW_BYTES)
    mainstem.open_table(table.path, options).compact()


def data_bytes(folder: Path) -> int:
    """Bytes of base and log files."""
    files = [f for f in folder.rglob("*") if f.is_file() and ".hoodie" not in f.parts]
    return sum(f.stat().st_size for f in files)
