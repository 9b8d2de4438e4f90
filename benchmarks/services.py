"""A writer while table services run in another process, against the same writer alone.

The writer upserts batches into one table for a fixed time; beside it a process runs rounds of compaction,
cleaning and archiving as soon as they are due, at a lower priority (``nice``), as somebody would who cares
for the writers. With and without take turns. Both fsync. Each run beside services must see several
compactions, or it would show nothing.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import mainstem
from benchmarks import FOLDER, Row, bound, data, read_tables, row, work_folder

KEYS, BATCH = 200_000, 1_000
PAUSE_S = 0.5
COMPACTIONS_MIN = 5
_OPTIONS = {
    **read_tables.FAST,
    "hoodie.mainstem.fsync": "true",
    "hoodie.keep.min.commits": "40",
    "hoodie.keep.max.commits": "60",
    "hoodie.clean.commits.retained": "20",
}
_SERVICES = """
import json, os, sys, time
import mainstem
os.nice(10)
table = mainstem.open_table(sys.argv[1], json.loads(sys.argv[2]))
print("ready", flush=True)
while True:
    for run in table.run_services("compact,clean,archive"):
        if run.error is not None:
            print(f"{run.service}: {run.error}", flush=True)
        for done in run.results:
            if run.service == "compact" and done.completion is not None:
                print("compacted", flush=True)
    time.sleep(float(sys.argv[3]))
"""


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("services")
    keys, seconds, repeats = (KEYS // 4, 15.0, 2) if reduced else (KEYS, 60.0, 3)
    alone: list[list[float]] = []
    beside: list[list[float]] = []
    compactions: list[int] = []
    try:
        for turn in range(repeats):
            alone.append(_written(_table(folder / f"alone{turn}", keys), keys, seconds))
            path = _table(folder / f"beside{turn}", keys)
            with _Services(path) as services:
                beside.append(_written(path, keys, seconds))
            compactions.append(services.compactions)
        if min(compactions) < COMPACTIONS_MIN:
            raise RuntimeError(
                f"{compactions} compactions were completed, expected {COMPACTIONS_MIN} in each run"
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rates = [statistics.median(len(t) / sum(t) for t in runs) * BATCH for runs in (beside, alone)]
    slowest = [statistics.median(_p99_ms(t) for t in runs) for runs in (beside, alone)]
    work = f"a writer of {BATCH:,}-row batches, services in another process"
    note = f"{sum(compactions)} compactions in {repeats} runs of {seconds:.0f} s"
    return [
        row(work, rates[0], "rows/s", against="the writer alone", baseline=rates[1], target=0.8, note=note),
        bound(f"p99 commit latency, {work}", slowest[0] / slowest[1], "x", most=1.5,
              note=f"{slowest[0]:.1f} ms, alone {slowest[1]:.1f} ms"),
    ]  # fmt: skip


def _table(path: Path, keys: int) -> Path:
    table = read_tables.create(path)
    table.bulk_insert(data.rows(np.arange(keys)))
    return path


class _Services:
    """A process that runs the services of a table until the block ends, and how many compactions it made."""

    def __init__(self, path: Path) -> None:
        self.compactions = 0
        command = [sys.executable, "-c", _SERVICES, str(path), json.dumps(_OPTIONS), str(PAUSE_S)]
        self._process = subprocess.Popen(
            command, cwd=FOLDER.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> _Services:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the process that runs services did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        said = self._process.communicate()[0].splitlines()
        self.compactions = said.count("compacted")
        failed = [line for line in said if line != "compacted"]
        if failed:
            raise RuntimeError(f"a service failed: {failed[0][:500]}")


def _written(path: Path, keys: int, seconds: float) -> list[float]:
    """Seconds of each commit."""
    table = mainstem.open_table(str(path), _OPTIONS)
    random = np.random.default_rng(0)
    batches = [data.rows(random.choice(keys, BATCH, replace=False), version=n + 1) for n in range(20)]
    table.upsert(batches[0])
    taken = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        table.upsert(batches[len(taken) % len(batches)])
        taken.append(time.perf_counter() - began)
    return taken


def _p99_ms(taken: list[float]) -> float:
    return 1000 * sorted(taken)[int(0.99 * len(taken))]
