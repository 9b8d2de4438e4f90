"""A writer's rows per second while three indexes are built beside it, by another process, all three at once.

The builder yields to the writer (``nice``), as one on a machine that has nothing else to do would: what is
measured is what a build takes of a writer by locks, files and the rows that it has to add. The writer upserts
new batches of the same keys without a pause; commits before the builder's first step and those while it works
are compared.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mainstem
from benchmarks import FOLDER, Row, bound, index_keys, read_tables, row
from mainstem.errors import MainstemError

FIRST, OTHERS = ("record_index", []), (("column_stats", ["ts", "fare"]), ("secondary_index", ["ticket"]))
BATCH = 10_000
_ALONE_S = 5.0
_NICE = 15


def run(folder: Path, rows: int) -> list[Row]:
    """Rows of the suite ``index_build`` about writers."""
    path = folder / "written"
    table = read_tables.create(path, buckets=8, schema=index_keys.SCHEMA)
    for first in range(0, rows, read_tables.BATCH):
        table.upsert(index_keys.rows_of(first, min(read_tables.BATCH, rows - first)))
    read_tables.compacted(table)
    writer = _Writer(path)
    writer.commits(lambda: len(writer.taken) < 5)  # what is opened once
    alone = writer.commits(_until(time.monotonic() + _ALONE_S))
    command = [sys.executable, "-m", "benchmarks.index_writers", str(path)]
    builder = subprocess.Popen(command, cwd=FOLDER.parent, text=True, stdout=subprocess.PIPE)
    try:
        beside = writer.commits(lambda: builder.poll() is None)
        built = json.loads(builder.stdout.read())
    finally:
        builder.kill()
        builder.wait()
    if builder.returncode:
        raise RuntimeError("the builder failed")
    before, meanwhile = (BATCH * len(taken) / sum(taken) for taken in (alone, beside))
    what = f"upserts of {BATCH:,} rows while three indexes are built on {rows:,} rows"
    return [
        row(
            what, meanwhile, "rows/s", against="before", baseline=before, target=0.85,
            note=f"{len(beside)} commits in {sum(beside):.1f} s, p50 {_ms(beside)} after {_ms(alone)};"
            f" builds took {built['seconds']:.1f} s",
        ),
        bound(f"aborts of these {what}", writer.aborts, "aborts", most=0),
    ]  # fmt: skip


class _Writer:
    def __init__(self, path: Path) -> None:
        self._table = mainstem.open_table(str(path), read_tables.FAST)
        self.taken: list[float] = []
        self.aborts = 0

    def commits(self, going_on: Callable[[], bool]) -> list[float]:
        """Seconds of each commit, as long as ``going_on()``; at least one."""
        found = []
        while going_on() or not found:
            batch = index_keys.rows_of(BATCH * (len(self.taken) % 8), BATCH)
            began = time.perf_counter()
            try:
                self._table.upsert(batch)
            except MainstemError:
                self.aborts += 1
            found.append(time.perf_counter() - began)
            self.taken.append(found[-1])
        return found


def _ms(seconds: list[float]) -> str:
    return f"{1000 * statistics.median(seconds):.0f} ms"


def _until(end: float) -> Callable[[], bool]:
    return lambda: time.monotonic() < end


def build(path: str) -> dict[str, float]:
    """Build all three at once, each by a thread."""
    os.nice(_NICE)
    began = time.monotonic()
    table = mainstem.open_table(path)
    table.create_index("files")

    def create(kind: str, columns: list[str]) -> None:
        mainstem.open_table(path).create_index(kind, columns)

    with ThreadPoolExecutor(1 + len(OTHERS)) as pool:
        building = [pool.submit(create, *FIRST)]
        while len(table.indexes()) < 2 and not building[0].done():  # the secondary index rests on it
            time.sleep(0.01)
        building += [pool.submit(create, *index) for index in OTHERS]
        for made in building:
            made.result()
    return {"seconds": time.monotonic() - began}


if __name__ == "__main__":
    print(json.dumps(build(sys.argv[1])))
