"""A writer's rows per second while three indexes are built beside it, by another process, all three at once.

The builder yields to the writer (``nice``), as one on a machine that has nothing else to do would: what is
measured is what a build takes of a writer by locks, files and the rows that it has to add. The writer
upserts new batches of the same keys without a pause. Services of the metadata table, too, run in the
builder's process.

What a commit takes drifts by a half within minutes, so all is measured in turn, every few seconds: the writer
beside the builder, and while the builder stands still (SIGSTOP), a writer of a twin of the table without
metadata: alone; beside a process of the same ``nice`` that takes as much processor time and writes as many
bytes per second as a builder did, and touches no table; and the same with the unavoidable parts of the rows
that a writer must add for an index that is being built (``bare_metadata``: sorting, compressing, the files).
The last two are bounds of the first. A first build, which is not counted, says what a builder takes.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

import mainstem
from benchmarks import FOLDER, Row, asked, bare_metadata, bound, data, index_keys, read_tables, row
from mainstem.errors import MainstemError

FIRST, OTHERS = ("record_index", []), (("column_stats", ["ts", "fare"]), ("secondary_index", ["ticket"]))
BATCH = 10_000
_BESIDE_S, _TURN_S = 3.0, 1.0
_NICE = 15
_ROUNDS = 3
_OPTIONS = {**read_tables.FAST, "hoodie.table.services.enabled": "false"}


def run(folder: Path, rows: int) -> list[Row]:
    """Rows of the suite ``index_build`` about writers."""
    table = read_tables.create(folder / "origin", buckets=8, schema=index_keys.SCHEMA)
    for first in range(0, rows, read_tables.BATCH):
        table.upsert(index_keys.rows_of(first, min(read_tables.BATCH, rows - first)))
    read_tables.compacted(table)
    taken: dict[str, list[float]] = {"beside": [], "alone": [], "load": [], "rows": []}
    path, _ = _copies(folder)
    writer = _Writer(mainstem.open_table(str(path), _OPTIONS))
    built = _built(path, lambda builds, _: writer.commits(builds))
    pattern, aborts = bare_metadata.Pattern.of_newest(path), writer.aborts
    burner = _process("burn", json.dumps({**built, "folder": str(folder)}))
    burner.send_signal(signal.SIGSTOP)
    try:
        for _ in range(_ROUNDS):
            path, twin = _copies(folder)
            writer, plain = (_Writer(mainstem.open_table(str(place), _OPTIONS)) for place in (path, twin))
            bare_table, give = bare_metadata.opened(twin, _OPTIONS)
            give(pattern)
            turns = _Turns(writer, plain, _Writer(bare_table), burner, taken)
            _built(path, turns.one)
            aborts += writer.aborts
    finally:
        burner.kill()
        burner.wait()
    rates = {name: _rate(some) for name, some in taken.items()}
    load, bare_rows = (rates[name] / rates["alone"] for name in ("load", "rows"))
    what = f"upserts of {BATCH:,} rows while three indexes are built on {rows:,} rows"
    return [
        row(
            what, rates["beside"], "rows/s", against="without, in turn", baseline=rates["alone"],
            target=asked(0.85, bare_rows),
            note=f"{len(taken['beside'])} commits in {sum(taken['beside']):.1f} s, p50 {_ms(taken['beside'])}"
            f" where {_ms(taken['alone'])} alone; a build took {built['seconds']:.1f} s and"
            f" {built['cpu']:.1f} s of processor time; bounds: beside a process that takes as much"
            f" {load:.2f}x, with the bare files of the index rows {bare_rows:.2f}x",
        ),
        bound(f"aborts of these {what}", aborts, "aborts", most=0),
    ]  # fmt: skip


def _copies(folder: Path) -> tuple[Path, Path]:
    """The table to write and its twin, as they were at first."""
    places = folder / "written", folder / "twin"
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder / "origin", place)
    os.sync()  # what is written back later would slow down the first commits
    return places


@dataclass(frozen=True)
class _Turns:
    writer: _Writer
    plain: _Writer
    bare: _Writer
    burner: subprocess.Popen
    taken: dict[str, list[float]]

    def one(self, builds: Callable[[], bool], builder: subprocess.Popen) -> None:
        """Some commits of each kind."""
        self.taken["beside"] += self.writer.commits(_for(_BESIDE_S, builds))
        builder.send_signal(signal.SIGSTOP)
        self.taken["alone"] += self.plain.commits(_for(_TURN_S))
        self.burner.send_signal(signal.SIGCONT)
        for name, one in (("load", self.plain), ("rows", self.bare)):
            self.taken[name] += one.commits(_for(_TURN_S))
        self.burner.send_signal(signal.SIGSTOP)
        builder.send_signal(signal.SIGCONT)


def _built(path: Path, turn: Callable[[Callable[[], bool], subprocess.Popen], Any]) -> dict[str, float]:
    """What it took to build three indexes; ``turn(builds, builder)`` is called again and again meanwhile."""
    builder = _process("build", str(path))
    try:
        while builder.poll() is None:
            turn(lambda: builder.poll() is None, builder)
        found = json.loads(builder.stdout.read())
    finally:
        builder.kill()
        builder.wait()
    if builder.returncode:
        raise RuntimeError("the builder failed")
    return found


def _process(*command: str) -> subprocess.Popen:
    arguments = [sys.executable, "-m", "benchmarks.index_writers", *command]
    return subprocess.Popen(arguments, cwd=FOLDER.parent, text=True, stdout=subprocess.PIPE)


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


def _for(seconds: float, going_on: Callable[[], bool] = lambda: True) -> Callable[[], bool]:
    end = time.monotonic() + seconds
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
    """Take processor time and write bytes at these rates, until somebody ends this process; time in which it
    stood still does not count. ``nice``: how nice it is to others."""
    os.nice(spec.get("nice", _NICE))
    passed, last, written = 0.0, time.monotonic(), 0
    keys = data.keys(np.arange(50_000))
    text = b"".join(keys.cast("binary").to_pylist())
    used = time.process_time()

    def work() -> None:
        while True:
            if (time.process_time() - used) * spec["seconds"] < passed * spec["cpu"]:
                keys.take(pc.sort_indices(keys))
                zlib.compress(text[: 1 << 18])
            else:
                time.sleep(0.002)

    for _ in range(2):
        threading.Thread(target=work, daemon=True).start()
    file = Path(spec["folder"]) / "burnt"
    while True:
        time.sleep(0.02)
        now = time.monotonic()
        passed, last = passed + min(now - last, 0.1), now
        due = int(passed * spec["written"] / spec["seconds"]) - written
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
