"""What a metadata table costs a writer: the same commits with and without one, in turn.

Tables with synced files on the local disk; nobody else writes. ``held`` is the time with the table lock
held, begin and commit together. Medians are compared; a service of the metadata table runs after one
commit in ten. Commits without metadata that do its unavoidable work bare (``bare_metadata``) take turns
with them: where these hardly reach what is asked for, 70 % of what they reach is.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from pathlib import Path

import pyarrow as pa

import mainstem
from benchmarks import Row, asked, bare_metadata, row, work_folder

_KINDS = ("none", "files", "files and column statistics", "three indexes")
_BARE = "bare: "
_WARM = 3


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
    patterns = {}
    for number, kind in enumerate(_KINDS[1:], 1):
        _made(folder / f"bare{number}", _KINDS[0])
        tables[_BARE + kind], patterns[kind] = bare_metadata.opened(folder / f"bare{number}")
    seconds: dict[str, list[float]] = {kind: [] for kind in tables}
    held: dict[str, list[float]] = {kind: [] for kind in tables}
    order = random.Random(9)  # no kind always comes behind the same one, whose files are still written back
    for turn in range(times + _WARM):
        for kind in order.sample(list(tables), len(tables)):
            table, batch = tables[kind], _rows(rows, turn)
            began = time.perf_counter()
            outcome = table.upsert(batch)
            if turn >= _WARM:  # the first ones open what stays open
                seconds[kind].append(time.perf_counter() - began)
                held[kind].append(outcome.lock_held_ms)
        if turn == _WARM - 1:
            for number, kind in enumerate(_KINDS[1:], 1):
                patterns[kind](bare_metadata.Pattern.of_newest(folder / str(number)))
    mean = {kind: statistics.mean(some) for kind, some in seconds.items()}
    took = {kind: statistics.median(some) for kind, some in seconds.items()}
    locked = {kind: statistics.median(some) for kind, some in held.items()}
    what, per_commit = f"upserts of {rows:,} rows", rows if unit == "rows/s" else 1
    found = []
    for kind in _KINDS[1:]:
        bound = took["none"] / took[_BARE + kind]
        found.append(
            row(
                f"{what}, metadata table with {kind}", per_commit / took[kind], unit,
                against="no metadata table", baseline=per_commit / took["none"],
                target=asked(0.85, bound) if kind == _KINDS[1] else None,
                note=f"{took[kind] * 1000:.1f} ms a commit, {took['none'] * 1000:.1f} ms without, bound"
                f" {bound:.2f}x: {took[_BARE + kind] * 1000:.1f} ms without and the same files bare; on"
                f" average, with the metadata table's own services, {mean[kind] * 1000:.1f} ms",
            )
        )  # fmt: skip
        bound = locked["none"] / locked[_BARE + kind]
        found.append(
            row(
                f"{what} that one lock can order, metadata table with {kind}", 1000 / locked[kind],
                "commits/s", against="no metadata table", baseline=1000 / locked["none"],
                target=asked(1 / 1.3, bound),
                note=f"held for {locked[kind]:.1f} ms, {locked['none']:.1f} ms without, bound {bound:.2f}x:"
                f" {locked[_BARE + kind]:.1f} ms without and the same files bare",
            )
        )  # fmt: skip
    return found


def _made(path: Path, kind: str) -> mainstem.Table:
    table = mainstem.create_table(
        path, _rows(1, 0).schema, record_key="id", ordering="ts", buckets=4,
        properties={"hoodie.metadata.enable": kind != "none"},
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
