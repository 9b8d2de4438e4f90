"""MERGE INTO of a few rows into a large table in Spark's SQL, beside Delta's and Java Hudi's.

Rows are spread over the whole table, nine in ten change a row and one in ten is new. Each system runs alone
in Spark of two cores: ours in the newest Spark, Delta and Hudi in Spark 3.5, the newest that Hudi 1.2 runs
on. Delta has deletion vectors; Hudi is merge on read with the bucket index of ours, without metadata table
and compaction. The first MERGE, of a JVM that is cold, is left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import FOLDER, Missing, Row, data, java_hudi, row, work_folder
from benchmarks.merge_peer import STATEMENTS

ROWS, MERGED, TURNS = 5_000_000, 100_000, 3
PEER = FOLDER / "merge_peer.py"


def run(reduced: bool) -> list[Row]:
    """A row for each system that we are compared with."""
    folder = work_folder("merge")
    rows, merged = (ROWS // 10, MERGED // 10) if reduced else (ROWS, MERGED)
    random = np.random.default_rng(1)
    try:
        parts = range(0, rows, 500_000)
        _write(folder / "rows", [data.rows(np.arange(n, min(n + 500_000, rows))) for n in parts])
        for turn in range(len(STATEMENTS) * (TURNS + 1)):
            old = random.choice(rows, merged * 9 // 10, replace=False)
            new = np.arange(merged // 10) + rows + turn * merged
            _write(folder / f"merged-{turn}", [data.rows(np.concatenate([old, new]), version=turn + 1)])
        found = {name: _measured(name, folder, rows, merged) for name in ("ours", "delta", "hudi")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    against = {"delta": ("Delta 3.3 MERGE", 2), "hudi": ("Java Hudi MERGE", 5)}
    work = f"MERGE of {merged:,} rows into {rows:,} in Spark SQL"
    return [
        _compared(f"{work}, {what}", merged, kind, name, found[key], found["ours"],
                  None if reduced else target)
        for kind, what in (("whole", "whole rows"), ("added", "adding to the older row"))
        for key, (name, target) in against.items()
    ]  # fmt: skip


_Times = dict[str, dict[str, list[float]]]


def _compared(
    work: str, merged: int, kind: str, name: str, peer: _Times | None, ours: _Times | None,
    target: float | None,
) -> Row:  # fmt: skip
    assert ours is not None
    seconds, processor = _least(ours[kind])
    if peer is None or not peer[kind]["seconds"][1:]:
        why = "not installed" if peer is None else "refused"
        return row(work, merged / seconds, "rows/s", against=name, note=why)
    theirs = _least(peer[kind])
    note = f"processor time {processor:.1f} s against {theirs[1]:.1f} s"
    return row(work, merged / seconds, "rows/s", against=name, baseline=merged / theirs[0], target=target,
               note=note)  # fmt: skip


def _least(times: dict[str, list[float]]) -> tuple[float, float]:
    """(by the clock, of all processors) without the first, of a JVM that is cold."""
    return min(times["seconds"][1:]), min(times["processor"][1:])


def _write(folder: Path, tables: list) -> None:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet")


def _measured(name: str, folder: Path, rows: int, merged: int) -> _Times | None:
    """Seconds of each MERGE, by the clock and of all processors; None where the peer is missing."""
    python = sys.executable if name == "ours" else str(java_hudi.python())
    if name != "ours" and not java_hudi.is_available():
        return None
    done = subprocess.run(
        [python, "-W", "ignore", str(PEER), name, str(folder), str(TURNS)],
        cwd=FOLDER.parent, capture_output=True, text=True, timeout=2000,
    )  # fmt: skip
    if done.returncode:
        raise Missing(f"{name}: {(done.stderr.strip().splitlines() or ['no output'])[-1][:300]}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    merges = sum(len(times["seconds"]) for times in found["found"].values())
    expected = rows + merges * (merged // 10)
    if found["rows"] != expected:
        raise AssertionError(f"{name}: {found['rows']} rows, expected {expected}")
    print(f"{name}: {found} {done.stderr.strip()[-300:]}", file=sys.stderr)
    return dict(found["found"])
