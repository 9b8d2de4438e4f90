"""Tables for the read benchmarks: base files and log files in the sizes asked for, quickly made.

Rows are written through mainstem. A compaction is imitated: what a file group holds becomes one base
file of the columns, compression (gzip) and row groups (120 MiB at most) that Java Hudi writes, and a
commit that names it is put on the timeline. Java and hudi-rs read these tables as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mainstem
from benchmarks import data
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.timeline.commit_metadata import WriteStat, encode_commit

FAST = {
    "hoodie.mainstem.fsync": "false",
    "hoodie.mainstem.exclusive": "true",
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
}
BATCH = 500_000
# Java flushes a row group at 120 MiB of encoded bytes, several times what these rows take on disk.
JAVA_GROUP_ROWS = 1_000_000


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


def compacted(
    table: mainstem.Table,
    *,
    group_rows: int = JAVA_GROUP_ROWS,
    sort_by: str | None = None,
    compression: str = "gzip",
) -> None:
    """Turn all logs into base files, as a compaction that nobody wrote beside does."""
    base = Path(table.path)
    newest = max(i.completion or i.requested for i in table.timeline())
    time, done = str(int(newest) + 1), str(int(newest) + 2)
    stats, old = [], []
    for split in table.scan().splits():
        rows = pa.concat_tables(list(split.read(LocalStorage(table.path))))
        if sort_by is not None:
            rows = rows.sort_by(sort_by)
        name = paths.base_name(split.file_id, "0-1-0", time)
        at = rows.schema.get_field_index("_hoodie_file_name")
        rows = rows.set_column(at, rows.schema.field(at), pa.repeat(name, rows.num_rows))
        target = base / paths.in_partition(split.partition, name)
        pq.write_table(
            rows, target, compression=compression, row_group_size=group_rows, store_schema=False,
            compression_level=6 if compression == "gzip" else None,
        )  # fmt: skip
        stat = WriteStat(split.partition, split.file_id, name, time, 1, writes=rows.num_rows)
        stat.size_bytes = target.stat().st_size
        stats.append(stat)
        old += [base / path for path in split.log_files]
    timeline = base / paths.TIMELINE
    (timeline / f"{time}_{done}.commit").write_bytes(encode_commit(stats, {}, "COMPACT"))
    for path in old:
        path.unlink()


def data_bytes(folder: Path) -> int:
    """Bytes of base and log files."""
    files = [f for f in folder.rglob("*") if f.is_file() and ".hoodie" not in f.parts]
    return sum(f.stat().st_size for f in files)
