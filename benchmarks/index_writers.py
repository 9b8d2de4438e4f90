"""A writer's rows per second while three indexes are built beside it, by another process, all three at once.

The builder yields to the writer (``nice``), as one on a machine that has nothing else to do would: what is
measured is what a build takes of a writer by locks, files and the rows that it has to add. The writer
upserts new batches of the same keys without a pause. Its commits while the builder works are compared with
those into a twin of the table that has no metadata, in turn: the builder stands still meanwhile (SIGSTOP),
for what a commit takes drifts by a half within minutes. Services of the metadata table, too, run in the
builder's process.

Two bounds are measured with the twin, in turn too: the writer beside a process of the same ``nice`` that
takes as much processor time and writes as many bytes per second as the builder did, and touches no table;
and the same with the unavoidable parts of the rows that a writer must add for an index that is being built
(``bare_metadata``: sorting, compressing and the files).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

import mainstem
from benchmarks import FOLDER, Row, asked, bare_metadata, bound, data, index_keys, read_tables, row
from mainstem.errors import MainstemError

FIRST, OTHERS = ("record_index", []), (("column_stats", ["ts", "fare"]), ("secondary_index", ["ticket"]))
BATCH = 10_000
_BESIDE_S, _ALONE_S = 3.0, 1.5
_NICE = 15
_TURNS = 6


def run(folder: Path, rows: int) -> list[Row]:
    """Rows of the suite ``index_build`` about writers."""
    path = folder / "written"
    table = read_tables.create(path, buckets=8, schema=index_keys.SCHEMA)
    for first in range(0, rows, read_tables.BATCH):
        table.upsert(index_keys.rows_of(first, min(read_tables.BATCH, rows - first)))
    read_tables.compacted(table)
    twin = folder / "twin"
    shutil.copytree(path, twin)
    os.sync()  # what is written back later would slow down the first commits
    without = {**read_tables.FAST, "hoodie.table.services.enabled": "false"}
    writer, plain = (_Writer(mainstem.open_table(str(place), without)) for place in (path, twin))
    for one in (writer, plain):
        one.commits(lambda one=one: len(one.taken) < 5)  # what is opened once
    alone, beside = [], []
    command = [sys.executable, "-m", "benchmarks.index_writers", "build", str(path)]
    builder = subprocess.Popen(command, cwd=FOLDER.parent, text=True, stdout=subprocess.PIPE)
    try:
        while builder.poll() is None:
            beside += writer.commits(_until(time.monotonic() + _BESIDE_S, lambda: builder.poll() is None))
            builder.send_signal(signal.SIGSTOP)
            alone += plain.commits(_until(time.monotonic() + _ALONE_S))
            builder.send_signal(signal.SIGCONT)
        built = json.loads(builder.stdout.read())
    finally:
        builder.kill()
        builder.wait()
    if builder.returncode:
        raise RuntimeError("the builder failed")
    built["seconds"] -= sum(alone)  # in which it stood still
    limits = _bounds(plain, twin, bare_metadata.Pattern.of_newest(path), built)
    before, meanwhile = _rate(alone), _rate(beside)
    what = f"upserts of {BATCH:,} rows while three indexes are built on {rows:,} rows"
    target = asked(0.85, limits["rows"])
    return [
        row(
            what, meanwhile, "rows/s", against="without, in turn", baseline=before, target=target,
            note=f"{len(beside)} commits in {sum(beside):.1f} s, p50 {_ms(beside)} after {_ms(alone)}; builds"
            f" took {built['seconds']:.1f} s and {built['cpu']:.1f} s of processor time; bounds: beside a"
            f" process that takes as much {limits['load']:.2f}x, with the bare files of the index rows"
            f" {limits['rows']:.2f}x",
        ),
        bound(f"aborts of these {what}", writer.aborts, "aborts", most=0),
    ]  # fmt: skip


def _bounds(
    plain: _Writer, twin: Path, pattern: bare_metadata.Pattern, built: dict[str, float]
) -> dict[str, float]:
    """Rates beside such a load, without and with the bare part of index rows, over those alone; in turn."""
    table, give = bare_metadata.opened(twin, read_tables.FAST)
    give(pattern)
    bare = _Writer(table)
    taken: dict[str, list[float]] = {"alone": [], "load": [], "rows": []}
    spec = json.dumps({**built, "folder": str(twin.parent)})
    for _ in range(_TURNS):
        taken["alone"] += plain.commits(_until(time.monotonic() + _ALONE_S))
        burner = subprocess.Popen([sys.executable, "-m", "benchmarks.index_writers", "burn", spec],
                                  cwd=FOLDER.parent)  # fmt: skip
        try:
            time.sleep(1.0)
            for name, writer in (("load", plain), ("rows", bare)):
                taken[name] += writer.commits(_until(time.monotonic() + _ALONE_S))
        finally:
            burner.kill()
            burner.wait()
    return {name: _rate(taken[name]) / _rate(taken["alone"]) for name in ("load", "rows")}


def _rate(taken: list[float]) -> float:
    return BATCH * len(taken) / sum(taken)


class _Writer:
    def __init__(self, table: mainstem.Table) -> None:
        self._table = table
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


def _until(end: float, going_on: Callable[[], bool] = lambda: True) -> Callable[[], bool]:
    return lambda: time.monotonic() < end and going_on()


def build(path: str) -> dict[str, float]:
    """Build all three at once, each by a thread."""
    os.nice(_NICE)
    began = time.monotonic()
    table = mainstem.open_table(path, read_tables.FAST)
    table.create_index("files")

    def create(kind: str, columns: list[str]) -> None:
        mainstem.open_table(path, read_tables.FAST).create_index(kind, columns)

    with ThreadPoolExecutor(1 + len(OTHERS)) as pool:
        building = [pool.submit(create, *FIRST)]
        while len(table.indexes()) < 2 and not building[0].done():  # the secondary index rests on it
            time.sleep(0.01)
        building += [pool.submit(create, *index) for index in OTHERS]
        while any(not made.done() for made in building):
            table.run_services("metadata")
            time.sleep(0.5)
        for made in building:
            made.result()
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = time.monotonic() - began
    return {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "written": 512 * used.ru_oublock}


def burn(spec: dict) -> None:
    """Take processor time and write bytes at these rates, until somebody ends this process."""
    os.nice(_NICE)
    began, written = time.monotonic(), 0
    keys = data.keys(np.arange(50_000))
    text = b"".join(keys.cast("binary").to_pylist())

    def work() -> None:
        while True:
            if time.process_time() * spec["seconds"] < (time.monotonic() - began) * spec["cpu"]:
                keys.take(pc.sort_indices(keys))
                zlib.compress(text[: 1 << 18])
            else:
                time.sleep(0.002)

    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    file = Path(spec["folder"]) / "burnt"
    while True:
        time.sleep(0.02)
        due = int((time.monotonic() - began) * spec["written"] / spec["seconds"]) - written
        if due > 1 << 20:
            with open(file, "wb") as out:
                out.write(os.urandom(1 << 16) * (due >> 16))
                out.flush()
                os.fsync(out.fileno())
            written += due


if __name__ == "__main__":
    if sys.argv[1] == "build":
        print(json.dumps(build(sys.argv[2])))
    else:
        burn(json.loads(sys.argv[2]))
