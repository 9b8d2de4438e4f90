"""Runs several writer processes against one table for a fixed time, from a common start."""

from __future__ import annotations

import atexit
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import data, together, work_folder
from benchmarks.systems import SYSTEMS

_READY_TIMEOUT_S = 120
_SMALL = 1_000


@dataclass(frozen=True)
class Race:
    """What one race gave, of all writers; ``latencies`` and ``ends`` (since the start) in
    seconds.
    """

    seconds: float
    commits: list[int]
    aborts: int
    abort: str
    latencies: list[float]
    ends: list[float]
    held_ms: list[float]
    bytes: int
    peak_mib: float
    rows: int
    #: processor time of all writers a commit, user and system
    cpu_ms: float

    @property
    def rate(self) -> float:
        """Commits per second of all writers together."""
        return sum(self.commits) / self.seconds

    @property
    def steady_rate(self) -> float:
        """Commits per second from the first to the last commit: without start and cut-off end."""
        return (len(self.ends) - 1) / (self.ends[-1] - self.ends[0]) if len(self.ends) > 1 else 0.0

    @property
    def evenness(self) -> float:
        """Slowest writer's commits over the mean."""
        mean = statistics.mean(self.commits)
        return min(self.commits) / mean if mean else 0.0

    def latency_ms(self, quantile: float) -> float:
        """A quantile of the commit latency; infinite when nobody committed anything."""
        ordered = sorted(self.latencies)
        if not ordered:
            return float("inf")
        return 1000 * ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


def race(
    system: str,
    writers: int,
    *,
    rows: int,
    seconds: float,
    cpus: Sequence[int] | None = None,
    loaded: int = 0,
) -> Race:
    """A new table, one warming commit of the racing keys (and ``loaded`` more rows), then the race.

    Raises ``RuntimeError`` with the writer's own text when a writer fails, and when the table does
    not hold each key exactly once afterwards (peers: only reported in ``rows``).
    """
    folder = work_folder(f"race-{system}")
    try:
        kind = SYSTEMS[system]()
        kind.create(folder / "t")
        kind.open(folder / "t").upsert(data.repeated(max(rows, loaded), version=0))
        results = _run(system, folder / "t", writers, rows, seconds, cpus)
        found = kind.rows(folder / "t")
        if system.startswith("mainstem") and found != max(rows, loaded):
            raise RuntimeError(f"{system}: {found} rows for {max(rows, loaded)} keys")
    finally:
        # A file system without a journal (ext4) makes a file the slower the more were removed in the last
        # minutes: forty times after a race's ten thousand. So small tables stay until the races are over.
        if max(rows, loaded) > _SMALL:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Race(
        seconds,
        [r["commits"] for r in results],
        sum(r["aborts"] for r in results),
        next((r["abort"] for r in results if r["abort"]), ""),
        [x for r in results for x in r["latencies"]],
        sorted(x for r in results for x in r["ends"]),
        [x for r in results for x in r["held_ms"]],
        sum(r["bytes"] for r in results),
        max(r["peak_mib"] for r in results),
        found,
        1000 * sum(r["cpu_s"] for r in results) / max(1, sum(r["commits"] for r in results)),
    )


def _run(
    system: str, table: Path, writers: int, rows: int, seconds: float, cpus: Sequence[int] | None
) -> list[dict]:
    specs = [
        {
            "system": system, "folder": str(table), "rows": rows, "seconds": seconds,
            "number": number, "cpu": cpus[number % len(cpus)] if cpus else None,
        }
        for number in range(writers)
    ]  # fmt: skip
    return together.run("writer_loop", specs, name=system, patience_s=seconds + _READY_TIMEOUT_S)
