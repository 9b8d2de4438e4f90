"""The metadata table: what a table of many files gains by it.

Tables are made by mainstem on disk; every figure is measured with and without the metadata table in turn.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import mainstem
from benchmarks import Row, metadata_commits, metadata_means, row, work_folder

_PARTITIONS, _BUCKETS = 100, 100
_COMMITS = 10  # Hudi compacts the metadata table after so many


def run(reduced: bool) -> list[Row]:
    """All rows of the suite."""
    return [*opening(5 if reduced else 15), *metadata_commits.run(reduced), *metadata_means.run(reduced)]


def opening(times: int) -> list[Row]:
    """Planning a query of 10,000 files: listed through ``files``, and folder by folder."""
    folder = work_folder("metadata")
    try:
        path = folder / "t"
        _many_files(path)
        metadata, folders = (_planner(path, flag) for flag in ("true", "false"))
        files = len(metadata())
        assert files == len(folders()) == _PARTITIONS * _BUCKETS
        pairs = [(_seconds(metadata), _seconds(folders)) for _ in range(times)]
        ours, theirs = (statistics.median(found) for found in zip(*pairs, strict=True))
        return [
            row(
                f"plan a query of {files:,} files in {_PARTITIONS} partitions", 1 / ours, "plans/s",
                against="folders listed", baseline=1 / theirs,
                note=f"{ours * 1000:.0f} ms through the metadata table, {theirs * 1000:.0f} ms by folders of"
                " a local disk, everything cached",
            )
        ]  # fmt: skip
    finally:
        shutil.rmtree(folder)


def _many_files(path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("part", pa.string()), ("ts", pa.int64())])
    table = mainstem.create_table(
        path, schema, record_key="id", partition_by="part", ordering="ts", buckets=_BUCKETS,
        properties={"hoodie.metadata.enable": "true", "hoodie.mainstem.fsync": "false"},
    )  # fmt: skip
    rows = 30 * _BUCKETS  # enough for one in every bucket
    per_commit = _PARTITIONS // _COMMITS
    for commit in range(_COMMITS):
        parts = [f"p{commit * per_commit + i:03d}" for i in range(per_commit) for _ in range(rows)]
        ids = [*range(rows)] * per_commit
        table.upsert(pa.table({"id": ids, "part": parts, "ts": [1] * len(ids)}, schema=schema))


def _planner(path: Path, metadata: str) -> Callable[[], list]:
    table = mainstem.open_table(path, properties={"hoodie.metadata.enable": metadata})
    return lambda: table.scan().splits()


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
