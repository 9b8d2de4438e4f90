"""20 upsert batches of 50,000 rows into 8 buckets (first all inserts, then half updates): rows/s.

Ours with and without fsync and delta-rs take turns in one process; medians of the repeats, ratios
of the medians. Java's figure comes from ``benchmarks.java_hudi`` in the same run.
"""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks import Missing, Row, data, row, work_folder
from benchmarks.systems import Delta, Mainstem

BATCHES = 20
ROWS = 50_000


@dataclass
class Run:
    """One system over all batches."""

    seconds: float
    bytes: int
    batch_ms: list[float]


def _one(system: Mainstem | Delta, batches: list[pa.Table], keys: int) -> Run:
    folder = work_folder("upsert")
    try:
        system.create(folder / "t")
        writer = system.open(folder / "t")
        batch_ms = []
        for batch in batches:
            began = time.perf_counter()
            writer.upsert(batch)
            batch_ms.append(1000 * (time.perf_counter() - began))
        found = system.rows(folder / "t")
        if found != keys:
            raise RuntimeError(f"{system.name}: {found} rows for {keys} keys")
        return Run(sum(batch_ms) / 1000, _size(folder), batch_ms)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _size(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def run(reduced: bool) -> list[Row]:
    """Rows of the table; both modes use 20 batches, the reduced one fewer repeats."""
    batches = list(data.batches(BATCHES, ROWS))
    total = sum(b.num_rows for b in batches)
    keys = len(pa.concat_tables([b.select([data.KEY]) for b in batches])[data.KEY].unique())
    systems: dict[str, Mainstem | Delta] = {
        "fsync": Mainstem(), "no fsync": Mainstem(fsync=False),
    }  # fmt: skip
    note = ""
    try:
        systems["delta"] = Delta()
    except Missing as missing:
        note = str(missing)
    runs: dict[str, list[Run]] = {name: [] for name in systems}
    _one(Mainstem(fsync=False), batches[:2], ROWS + ROWS // 2)  # imports and first touches
    for _ in range(3 if reduced else 5):
        for name, system in systems.items():
            runs[name].append(_one(system, batches, keys))
    rate = {name: total / statistics.median(r.seconds for r in rs) for name, rs in runs.items()}
    delta = rate.get("delta")
    work = f"{BATCHES} upserts of {ROWS:,} rows, 8 buckets"
    rows = [
        row(f"{work}, fsync", rate["fsync"], "rows/s", against="delta-rs merge (no fsync)",
            baseline=delta, target=3, note=note),
        row(f"{work}, no fsync", rate["no fsync"], "rows/s", against="delta-rs merge",
            baseline=delta, target=5, note=note),
        row(f"{work}, no fsync", rate["no fsync"], "rows/s", against="Java Hudi (no fsync either)",
            baseline_id="java.upsert", target=25),
        row(f"{work}, fsync", rate["fsync"], "rows/s", against="Java Hudi (no fsync)",
            baseline_id="java.upsert"),
    ]  # fmt: skip
    rows += [_detail(name, rs, total) for name, rs in runs.items()]
    return rows


def _detail(name: str, runs: list[Run], total: int) -> Row:
    best = sorted(runs, key=lambda r: r.seconds)[len(runs) // 2]
    ours = name != "delta"
    typical, last = statistics.median(best.batch_ms), best.batch_ms[-1]
    return row(
        f"bytes per row on disk, {'ours, ' + name if ours else 'delta-rs'}",
        best.bytes / total,
        "B/row",
        note=f"batch p50 {typical:.0f} ms, last {last:.0f} ms",
    )
