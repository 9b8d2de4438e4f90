"""The Flink SQL sink: rows per second, commits per second of two jobs on the same keys, time to visible.

Rows per second: unbounded ``datagen`` of eleven columns as fast as it goes, two slots, eight buckets,
checkpoints every two seconds, stopped by a savepoint. Counted from the first seconds of output on, so that
neither the start of the JVM nor that of the Python workers is part of it. Beside it, in turn: the same
way to a Python function that counts the rows of each Arrow batch and writes nothing, and Flink's own file
sink writing CSV; and ours with an updating query. Every job is a process of its own
(``benchmarks.flink_job``).

Commits per second: the rows come at an even pace, so that every checkpoint has some. How many checkpoints two
jobs complete that write nothing bounds how many commits there can be.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import FOLDER, Missing, Row, row, work_folder

CHECKPOINT_MS = 2000
COMMITS_CHECKPOINT_MS = 200
# The source makes the rows of a second at once: with 1,000 ms all would meet one phase of the checkpoints.
VISIBLE_CHECKPOINT_MS = 950
_JOB_MOST_S = 300
# Of the first output, Python workers are still coming up; they are not counted.
_FIRST_S = 4.0


def _python() -> str:
    """A Python that has Flink: this one, or that of the demos (Flink needs an older pyarrow than peers)."""
    for python in (sys.executable, str(FOLDER.parent / ".venv" / "bin" / "python")):
        if Path(python).exists():
            asked = [python, "-c", "import pyflink, mainstem"]
            if not subprocess.run(asked, cwd=FOLDER.parent, capture_output=True, check=False).returncode:
                return python
    raise Missing("apache-flink is not installed: make setup, with Python 3.11 or 3.12")


def job(python: str, kind: str, folder: Path, **spec: Any) -> dict[str, Any]:
    """Run one job in a process of its own; what it says."""
    place = folder / f"{kind}-{len(list(folder.iterdir()))}"
    place.mkdir()
    asked = json.dumps({"kind": kind, "folder": str(place), **spec})
    done = subprocess.run(
        [python, "-W", "ignore", "-m", "benchmarks.flink_job", asked],
        cwd=FOLDER.parent, capture_output=True, text=True, timeout=_JOB_MOST_S, check=False,
    )  # fmt: skip
    shutil.rmtree(place, ignore_errors=True)
    if done.returncode:
        raise RuntimeError(f"{kind}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def rate(events: list[list[float]]) -> float:
    """Rows per second from the last output of the first seconds to the very last."""
    ordered = sorted(events)
    warm = ordered[0][0] + _FIRST_S
    start = max(at for at, _ in ordered if at <= warm)
    end = ordered[-1][0]
    if end <= warm:
        raise RuntimeError(f"all output came within {end - ordered[0][0]:.2f} s: run longer")
    return sum(rows for at, rows in ordered if at > start) / (end - start)


def quantile(values: list[float], share: float) -> float:
    """The value below which ``share`` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _rows_per_second(python: str, folder: Path, reduced: bool) -> list[Row]:
    seconds = 16 if reduced else 40
    measured: dict[str, list[float]] = {}
    for _ in range(1 if reduced else 3):
        for kind in ("counted", "hudi", "csv", "updating"):
            said = job(python, kind, folder, seconds=seconds, checkpoint_ms=CHECKPOINT_MS)
            measured.setdefault(kind, []).append(rate(said["events"]))
    found: Mapping[str, float] = {kind: statistics.median(rates) for kind, rates in measured.items()}
    work = "Flink SQL sink, 2 slots, 8 buckets, 11 columns"
    # CSV is written in the JVM; what the way of our rows through Python leaves is judged by 70 % of that way.
    way = found["counted"] / found["csv"]
    return [
        row(work, found["hudi"], "rows/s", against="the same Python path that writes nothing",
            baseline=found["counted"], target=0.6),
        row(work, found["hudi"], "rows/s", against="Flink's file sink, CSV", baseline=found["csv"],
            target=min(1.0, 0.7 * way),
            note=f"asked for 1x, or 70 % of the {way:.3g}x of the Python path that writes nothing"),
        row("Flink SQL sink, changes of 10,000 groups (GROUP BY)", found["updating"], "rows/s"),
    ]  # fmt: skip


def _commits(python: str, folder: Path, reduced: bool) -> list[Row]:
    asked = {"seconds": 15 if reduced else 60, "checkpoint_ms": COMMITS_CHECKPOINT_MS}
    nothing = job(python, "two_counted", folder, **asked)
    said = job(python, "two", folder, **asked)
    bound = sum(nothing["checkpoints"]) / nothing["seconds"]
    seconds, counts = said["seconds"], said["commits"]
    slower, faster = sorted(counts)
    work = "two Flink jobs on the same keys, 200 ms checkpoints"
    return [
        row(work, sum(counts) / seconds, "commits/s", against="4 commits/s (Java: 1.0 to 1.25)",
            baseline=4.0, target=1.0, note=f"{said['aborts']} aborts"),
        row(work, sum(counts) / seconds, "commits/s", against="checkpoints of the same jobs into nothing",
            baseline=bound, target=0.7, note=f"{sum(said['checkpoints']) / seconds:.1f} checkpoints/s"),
        row("slower of the two jobs", slower / seconds, "commits/s", against="the faster",
            baseline=faster / seconds, target=0.7),
    ]  # fmt: skip


def _visible(python: str, folder: Path, reduced: bool) -> list[Row]:
    said = job(python, "visible", folder, seconds=25 if reduced else 60, checkpoint_ms=VISIBLE_CHECKPOINT_MS)
    latencies = said["latencies_ms"]
    p50, p99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
    line = row("from a row's birth to its being visible, 1 s checkpoints, p50", p50, "ms",
               against="the checkpoint interval", baseline=float(VISIBLE_CHECKPOINT_MS),
               note=f"p99 {p99:.0f} ms of {len(latencies):,} rows")  # fmt: skip
    return [{**line, "target": "<= 2.5", "ok": p50 <= 2.5 * VISIBLE_CHECKPOINT_MS}]


def run(reduced: bool) -> list[Row]:
    """Rows of the table: throughput, contended commits, latency."""
    python = _python()
    folder = work_folder("flink")
    try:
        return [
            *_rows_per_second(python, folder, reduced),
            *_commits(python, folder, reduced),
            *_visible(python, folder, reduced),
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
