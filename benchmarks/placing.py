"""Tables without buckets: what it costs to find the file groups of keys, and upserts of known keys.

The bound of finding is reading the stored keys and nothing else. Figures are processor time: the work is one
thread's.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import mainstem
from benchmarks import Row, bound, data, least_processor_seconds, read_tables, row, work_folder

_KEY = "_hoodie_record_key"
#: index -> options of its table
KINDS = {"BUCKET": {}, "SIMPLE": {}, "RECORD_INDEX": {}}


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    stored, asked = (2_000_000, 100_000) if reduced else (50_000_000, 1_000_000)
    folder = work_folder("placing")
    try:
        keys = np.random.default_rng(1).choice(stored, asked, replace=False)
        tables = {kind: _table(folder / kind, kind, stored) for kind in KINDS}
        return _found(tables["SIMPLE"], keys, stored) + _upserted(tables, keys, stored)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _table(path: Path, kind: str, stored: int) -> mainstem.Table:
    options = {**read_tables.FAST, "hoodie.index.type": kind, "hoodie.mainstem.services": "off"}
    table = mainstem.create_table(
        path, data.SCHEMA, record_key=data.KEY, ordering=data.ORDERING,
        buckets=4 if kind == "BUCKET" else None, properties=options,
    )  # fmt: skip
    if kind == "RECORD_INDEX":
        table.create_index("record_index")
    table = mainstem.open_table(str(path), options)
    with table.begin("bulk_insert" if kind == "BUCKET" else "upsert") as load:
        for first in range(0, stored, read_tables.BATCH):
            load.write(data.rows(np.arange(first, min(first + read_tables.BATCH, stored))))
        load.commit()
    return table


def _found(table: mainstem.Table, keys: np.ndarray, stored: int) -> list[Row]:
    wanted = data.rows(keys).column(data.KEY).combine_chunks()
    files = sorted(Path(table.path).glob("*.parquet"))
    bare = least_processor_seconds(lambda: [pq.read_table(file, columns=[_KEY]) for file in files])

    def find() -> None:
        look = mainstem.open_table(table.path, table.properties).writer_context().look_for_keys
        assert look is not None
        found, _ = look().find("", wanted)
        if (found < 0).any():
            raise RuntimeError(f"{(found < 0).sum()} keys were not found")

    taken = least_processor_seconds(find)
    return [
        bound(f"find {len(wanted):,} of {stored:,} keys, by files", taken / bare,
              "times the reading of all keys", most=2.0,
              note=f"{taken:.2f} s of processor time, reading {bare:.2f} s; nothing was kept in memory")
    ]  # fmt: skip


def _upserted(tables: dict[str, mainstem.Table], keys: np.ndarray, stored: int) -> list[Row]:
    found, times = [], {}
    for kind, table in tables.items():
        for size in (len(keys), 100):
            rows = data.rows(keys[:size], version=1)
            times[kind, size] = least_processor_seconds(lambda rows=rows, table=table: table.upsert(rows))
            found.append(
                row(f"upsert {size:,} known keys of {stored:,}, {kind}", times[kind, size] * 1000, "ms",
                    against="BUCKET", baseline=times["BUCKET", size] * 1000, note="processor time")
            )  # fmt: skip
    return found
