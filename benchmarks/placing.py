"""Tables without buckets: what it costs to find the file groups of keys, and upserts of known keys.

The bound of finding is reading the stored keys and nothing else. Figures are processor time, of finding also
what a clock shows. Memory is what a process of its own needs beyond what it needed before it looked.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

import mainstem
from benchmarks import Row, bound, data, least_processor_seconds, read_tables, row, work_folder

if TYPE_CHECKING:
    from mainstem.writers.transaction import Transaction

_KEY = "_hoodie_record_key"
#: index -> options of its table
KINDS = {"BUCKET": {}, "SIMPLE": {}, "RECORD_INDEX": {}}
_COMMIT = 4_000_000


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    stored, asked = (2_000_000, 100_000) if reduced else (50_000_000, 1_000_000)
    folder = work_folder("placing")
    try:
        keys = np.random.default_rng(1).choice(stored, asked, replace=False)
        tables = {kind: _table(folder / kind, kind, stored) for kind in KINDS}
        kinds = ("SIMPLE", "RECORD_INDEX")
        found = [line for kind in kinds for line in _found(kind, tables[kind], keys, stored)]
        return found + _upserted(tables, keys, stored)
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
    step = stored if kind == "BUCKET" else _COMMIT  # else new keys are held until their commit
    for first in range(0, stored, step):
        with table.begin("bulk_insert" if kind == "BUCKET" else "upsert") as load:
            _load(load, first, min(first + step, stored))
    return table


def _load(load: Transaction, first: int, last: int) -> None:
    for low in range(first, last, read_tables.BATCH):
        load.write(data.rows(np.arange(low, min(low + read_tables.BATCH, last))))
    load.commit()


def _found(kind: str, table: mainstem.Table, keys: np.ndarray, stored: int) -> list[Row]:
    wanted = data.rows(keys).column(data.KEY).combine_chunks()
    files = sorted(Path(table.path).glob("*.parquet"))

    def find() -> None:
        look = mainstem.open_table(table.path, table.properties).writer_context().look_for_keys
        assert look is not None
        found, _ = look().find("", wanted)
        if (found < 0).any():
            raise RuntimeError(f"{(found < 0).sum()} keys were not found")

    def read() -> None:
        for file in files:
            pq.read_table(file, columns=[_KEY])

    turns = [(*_seconds(read), *_seconds(find)) for _ in range(5)]
    bare, bare_wall, taken, wall = (min(seconds) for seconds in zip(*turns, strict=True))
    held = _peak_mib(find)
    work, unit = f"find {len(wanted):,} of {stored:,} keys, {kind}", "times the reading of all keys"
    return [
        bound(work, taken / bare, unit, most=2.0,
              note=f"{taken:.2f} s of processor time, reading {bare:.2f} s; nothing was kept in memory;"
                   f" {held:.0f} MiB at most"),
        row(f"{work}, by the clock", wall / bare_wall, unit,
            note=f"{wall:.2f} s, reading {bare_wall:.2f} s, {len(os.sched_getaffinity(0))} cores"),
    ]  # fmt: skip


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Processor time, and what a clock shows."""
    began = time.perf_counter()
    taken = least_processor_seconds(work, 1)
    return taken, time.perf_counter() - began


def _peak_mib(work: Callable[[], None]) -> float:
    """What a forked child needs at most beyond what it began with, in MiB."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak begins here
        before = _status("VmRSS")
        work()
        os.write(write, str((_status("VmHWM") - before) / 1024).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as told:
        return float(told.read() or "nan")


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {name}")


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
