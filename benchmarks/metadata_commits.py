"""What a metadata table costs a writer: the same commits with and without one, in turn.

Tables with synced files on the local disk; nobody else writes. ``held`` is the time with the table lock held,
begin and commit together. Medians are compared; a service of the metadata table runs after one commit in ten.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path

import pyarrow as pa

import mainstem
from benchmarks import Row, row, work_folder

_KINDS = ("none", "files", "files and column statistics", "three indexes")


def run(reduced: bool) -> list[Row]:
    """Rows of the suite ``metadata`` about writers."""
    folder = work_folder("metadata_commits")
    try:
        small, large = (20, 3) if reduced else (100, 15)
        return [
            *_compared(folder / "small", rows=100, times=small, unit="commits/s"),
            *_compared(folder / "large", rows=100_000, times=large, unit="rows/s"),
        ]
    finally:
        shutil.rmtree(folder)


def _compared(folder: Path, *, rows: int, times: int, unit: str) -> list[Row]:
    tables = {kind: _made(folder / str(number), kind) for number, kind in enumerate(_KINDS)}
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    held: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for turn in range(times + 2):
        for kind, table in tables.items():
            batch = _rows(rows, turn)
            began = time.perf_counter()
            outcome = table.upsert(batch)
            if turn >= 2:  # the first ones open what stays open
                seconds[kind].append(time.perf_counter() - began)
                held[kind].append(outcome.lock_held_ms)
    per_commit = rows if unit == "rows/s" else 1
    base_s, base_held = statistics.median(seconds["none"]), statistics.median(held["none"])
    found = []
    for kind in _KINDS[1:]:
        took, locked = statistics.median(seconds[kind]), statistics.median(held[kind])
        found += [
            row(
                f"upserts of {rows:,} rows, metadata table with {kind}", per_commit / took, unit,
                against="no metadata table", baseline=per_commit / base_s,
                target=None if kind == _KINDS[3] else 0.85,
                note=f"{took * 1000:.1f} ms a commit, {base_s * 1000:.1f} ms without; on average, with the"
                f" metadata table's own services, {statistics.mean(seconds[kind]) * 1000:.1f} ms",
            ),
            row(
                f"upserts of {rows:,} rows that one lock can order, metadata table with {kind}",
                1000 / locked, "commits/s", against="no metadata table", baseline=1000 / base_held,
                target=1 / 1.3, note=f"held for {locked:.1f} ms, {base_held:.1f} ms without",
            ),
        ]  # fmt: skip
    return found


def _made(path: Path, kind: str) -> mainstem.Table:
    table = mainstem.create_table(
        path, _rows(1, 0).schema, record_key="id", ordering="ts", buckets=4,
        properties={"hoodie.metadata.enable": kind != "none", "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    if kind in _KINDS[2:]:
        table.create_index("column_stats")
    if kind == _KINDS[3]:
        table.create_index("record_index")
        table.create_index("secondary_index", ["text"])
    return table


def _rows(count: int, turn: int) -> pa.Table:
    ids = range(turn * count, (turn + 1) * count)
    columns = {"id": [f"key-{i:012d}" for i in ids], "ts": [turn] * count}
    columns |= {"amount": [i / 7 for i in ids], "text": [f"some text of row {i}" for i in ids]}
    return pa.table(columns)
