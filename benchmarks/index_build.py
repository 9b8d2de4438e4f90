"""The record index of a whole table, from its files to the bytes of its HFiles, in a process of its own.

What is measured is the content alone: record keys are read as a snapshot reads them, sorted into file groups
(runs on disk) and encoded. Nothing is published. The process's peak of memory counts what it mapped, too.
Then a writer beside builds (``index_writers``).
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import Row, bound, index_writers, read_tables, row, work_folder
from mainstem.formats.hfile_write import write_hfile
from mainstem.indexing.contents import Contents
from mainstem.indexing.spill import spilled
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.build.bootstrap import Place, record_index_groups
from mainstem.metadata.records import schema_of_version
from mainstem.readers.state import TableState
from mainstem.storage.local import LocalStorage
from mainstem.table.properties import load_config

ROWS, GROUPS, INDEX_GROUPS = 10_000_000, 200, 10
PEAK_MIB = 1024


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("index-build")
    rows = ROWS // 10 if reduced else ROWS
    try:
        table = read_tables.create(folder / "t", buckets=GROUPS)
        read_tables.insert(table, 0, rows)
        read_tables.compacted(table)
        command = [sys.executable, "-m", "benchmarks.index_build", str(folder / "t")]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(told.stdout)
        beside = index_writers.run(folder, ROWS // 10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found["keys"] != rows:
        raise RuntimeError(f"the index has {found['keys']} keys of {rows}")
    what = f"a record index on {rows:,} rows in {GROUPS} file groups"
    size = found["bytes"] / rows
    return [
        row(f"build {what}", rows / found["seconds"], "rows/s", note=f"{found['seconds']:.1f} s"),
        bound(f"peak memory of that, {what}", found["peak_mib"], "MiB", most=PEAK_MIB),
        bound(f"bytes per key of {what}", size, "bytes", most=48),
        *beside,
    ]


def build(path: str) -> dict[str, float]:
    """Make the content of the index; what it took."""
    began = time.perf_counter()
    storage = LocalStorage(path)
    contents = Contents(TableState.load(storage, load_config(storage)))
    read = contents.merged()
    slices = [s for here in contents.slices.values() for s in here]
    keyed = (
        (Place(s.partition, s.file_id, s.base_instant), (batch.column(KEY_COLUMN) for batch in read(s)))
        for s in slices
    )
    schema = schema_of_version(9)
    keys = size = 0
    with spilled(str(Path(path).parent)) as keep:
        for _, sorted_keys, values in record_index_groups(
            keyed, INDEX_GROUPS, schema_text=schema, keep=keep
        ):
            keys += len(sorted_keys)
            made = write_hfile(
                sorted_keys, values, schema_text=schema, base_file=True, run=storage.side_by_side
            )
            size += len(made)
    return {
        "keys": keys,
        "bytes": size,
        "seconds": time.perf_counter() - began,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    print(json.dumps(build(sys.argv[1])))
