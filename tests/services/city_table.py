"""The small table of the services' tests: two cities as partitions, two buckets in each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

import mainstem
from mainstem.storage import paths

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])
QUICK = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}


def rows(keys: Iterable[int], ts: int, value: str = "v") -> pa.Table:
    keys = list(keys)
    return pa.table(
        {
            "id": [f"k{k:02d}" for k in keys],
            "city": ["ab"[k % 2] for k in keys],
            "ts": [ts] * len(keys),
            "value": [f"{value}{k}" for k in keys],
        },
        schema=SCHEMA,
    )


def make(path: Path, *, ordering: str = "ts", **properties: str) -> mainstem.Table:
    """A new table; properties with __ for each dot."""
    given = {**QUICK, **{key.replace("__", "."): value for key, value in properties.items()}}
    return mainstem.create_table(
        path,
        SCHEMA,
        record_key="id",
        ordering=ordering or (),
        partition_by="city",
        buckets=2,
        properties=given,
    )


def content(table: mainstem.Table, **options: str) -> pa.Table:
    """Everything but the file names, which a compaction rewrites."""
    found = table.scan(**options).to_arrow()
    return found.drop_columns(["_hoodie_file_name"]).sort_by("_hoodie_record_key")


def base_files(table: mainstem.Table) -> list[Path]:
    return sorted(Path(table.path).rglob("*.parquet"))


def aged(table: mainstem.Table) -> None:
    """Every heartbeat, private file and base file looks an hour older: whoever has them died long ago."""
    old = time.time() - 3600
    for folder in (paths.HEARTBEATS, paths.PREPARED):
        for file in (Path(table.path) / folder).glob("*"):
            os.utime(file, (old, old))
    for file in base_files(table):
        os.utime(file, (old, old))


def layered(table: mainstem.Table) -> mainstem.Table:
    """The table with base files, log files on them and beside them, and files that a clean may remove."""
    table.upsert(rows(range(10), 1))
    table.compact()
    table.upsert(rows(range(5), 2))
    table.compact()
    table.upsert(rows(range(3), 3))
    return table
