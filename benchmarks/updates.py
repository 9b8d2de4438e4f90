"""Batches of updates on a large table, against delta-rs, which rewrites the files that a batch touches.

Updates are of rows all over the table, so that they touch all of its files: the larger the table, the
more is rewritten, while a log grows by the updates. The targets are judged at full size only.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

import numpy as np

from benchmarks import Missing, Row, data, read_tables, row, work_folder
from benchmarks.systems import Delta, Mainstem

ROWS, UPDATES, BATCH_ROWS = 5_000_000, 10, 50_000


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("updates")
    rows = ROWS // 4 if reduced else ROWS
    try:
        return _updates(folder, rows, judged=not reduced)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _updates(folder: Path, rows: int, *, judged: bool) -> list[Row]:
    random = np.random.default_rng(1)
    batches = [
        data.rows(random.choice(rows, BATCH_ROWS, replace=False), version=v + 1) for v in range(UPDATES)
    ]
    systems: dict[str, Mainstem | Delta] = {"ours": Mainstem(fsync=False)}
    with contextlib.suppress(Missing):
        systems["delta"] = Delta()
    seconds: dict[str, float] = {}
    written: dict[str, int] = {}
    for name, system in systems.items():
        path = folder / f"updates-{name}"
        system.create(path)
        writer = system.open(path)
        for first in range(0, rows, read_tables.BATCH):
            writer.upsert(data.rows(np.arange(first, min(first + read_tables.BATCH, rows))))
        before, began = _bytes(path), time.perf_counter()
        for batch in batches:
            writer.upsert(batch)
        seconds[name], written[name] = time.perf_counter() - began, _bytes(path) - before
        shutil.rmtree(path)
    work = f"{UPDATES} batches of {BATCH_ROWS:,} updates on {rows:,} rows"
    delta = "delta" in systems
    total = UPDATES * BATCH_ROWS
    return [
        row(work, total / seconds["ours"], "rows/s", against="delta-rs merge",
            baseline=total / seconds["delta"] if delta else None, target=20 if judged else None,
            note="neither fsyncs; nothing is compacted meanwhile"),
        row(f"bytes written, {work}", total / written["ours"], "rows/B", against="delta-rs merge",
            baseline=total / written["delta"] if delta else None, target=15 if judged else None),
    ]  # fmt: skip


def _bytes(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
