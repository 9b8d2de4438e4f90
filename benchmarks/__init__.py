"""Benchmarks: one command, one table with ratios measured in one run (``python -m benchmarks``).

Absolute figures depend on the machine; the targets are ratios against peers that ran minutes before
or after on the same one. Suites live in modules with ``run(reduced) -> list[Row]``; a row says what
was measured (``work``, ``value``, ``unit``), against whom (``against``, ``baseline``, ``ratio``)
and what is asked for (``target``: the least ratio; ``ok``). ``None`` means "does not apply".
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Row = dict[str, Any]

FOLDER = Path(__file__).resolve().parent


class Missing(Exception):
    """A peer is not installed or not reachable; the rows that need it say so instead of a
    figure.
    """


def row(
    work: str,
    value: float | None,
    unit: str,
    *,
    against: str | None = None,
    baseline: float | None = None,
    target: float | None = None,
    id: str | None = None,
    baseline_id: str | None = None,
    note: str = "",
) -> Row:
    """One line of the table; ``target`` is the least ``value / baseline``."""
    ratio = value / baseline if value is not None and baseline else None
    return {
        "work": work, "value": value, "unit": unit, "against": against, "baseline": baseline,
        "ratio": ratio, "target": target,
        "ok": ratio >= target if ratio is not None and target is not None else None,
        "id": id, "baseline_id": baseline_id, "note": note,
    }  # fmt: skip


def bound(work: str, value: float, unit: str, *, most: float, note: str = "") -> Row:
    """A line whose value must not exceed ``most``."""
    return {**row(work, value, unit, note=note), "target": f"<= {most:g}", "ok": value <= most}


def work_folder(name: str) -> Path:
    """A new empty folder for tables, on the project's own disk (fsync means nothing on a tmpfs)."""
    root = Path(os.environ.get("MAINSTEM_BENCHMARK_FOLDER", FOLDER / ".tables"))
    root.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))


def median_seconds(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median wall seconds of each work; they take turns, so that what else goes on meets all of them."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def least_processor_seconds(work: Callable[[], object], turns: int = 3) -> float:
    """Seconds of processor time of the best turn, of all threads of this process."""
    taken = []
    for _ in range(turns):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def asked(least: float, bound: float) -> float:
    """The least ratio that is asked for; where the bare work leaves a tenth or less of it, 70 % of what the
    bare work reaches."""
    return least if 0.9 * bound >= least else 0.7 * bound
