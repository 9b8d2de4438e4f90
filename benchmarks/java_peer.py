"""Java Hudi 1.2.0 on Spark 3.5 with the rows of the other suites: the baselines they are compared
with.

Non-blocking writers with Hudi's own 200 ms clock wait, the file-system lock looked at every 20 ms,
without metadata table, cleaning, archival and compaction, on a warm JVM: all in Java's favour.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

import numpy as np

from benchmarks import Missing, Row, data, java_hudi, row, work_folder

BATCHES, ROWS = 20, 50_000
SMALL = 100
SINK_ROWS = 1_000_000
WARM = 2
TABLE = java_hudi.JavaTable((data.KEY,), (data.ORDERING,), buckets=8)


def run(reduced: bool) -> list[Row]:
    """Rows with the ids ``java.upsert``, ``java.commits.<writers>`` and ``java.sink``."""
    if not java_hudi.is_available():
        raise Missing("Java Hudi is not installed (scripts/environment.py install interop)")
    folder = work_folder("java")
    try:
        rows = [_upserts(folder)]
        for writers, commits in (
            ((1, 10), (2, 8), (4, 5)) if reduced else ((1, 20), (2, 15), (4, 10))
        ):
            rows.append(_commits(folder / f"w{writers}", writers, commits))
        rows.append(_sink(folder, SINK_ROWS // 2 if reduced else SINK_ROWS))
        return rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _upserts(folder: Path) -> Row:
    figures = java_hudi.upsert_batches(list(data.batches(BATCHES, ROWS)), folder, TABLE)
    return row(
        f"Java Hudi: {BATCHES} upserts of {ROWS:,} rows, 8 buckets, 2 cores",
        figures.rows_per_second, "rows/s", id="java.upsert",
        note=f"{figures.bytes / figures.rows:.0f} bytes per row",
    )  # fmt: skip


def _commits(folder: Path, writers: int, commits: int) -> Row:
    folder.mkdir()
    batches = [
        [data.repeated(SMALL, version=100 * w + i) for i in range(commits)] for w in range(writers)
    ]
    figures = java_hudi.commits_per_second(batches, folder, TABLE, warm=WARM)
    return row(
        f"Java Hudi: {writers} writer{'s' if writers > 1 else ''}, same keys, {SMALL}-row upserts",
        figures.commits_per_second, "commits/s", id=f"java.commits.{writers}",
        note=f"p50 {1000 * statistics.median(figures.latencies):.0f} ms;"
        f" slowest writer {figures.slowest_writer / figures.mean_writer:.2f} of the mean",
    )  # fmt: skip


def _sink(folder: Path, count: int) -> Row:
    figures = java_hudi.streaming_sink(data.rows(np.arange(count)), folder, TABLE)
    return row(
        f"Java Hudi: streaming sink, {count:,} rows in {figures.batches} micro-batches, 2 cores",
        figures.rows_per_second, "rows/s", id="java.sink",
    )  # fmt: skip
