"""Indexes in use: point queries by record key and by secondary key, look-ups in a record index, and a range
of a clustered column by column statistics.

Tables of 200 file groups with base files, all of it in the page cache. Times are of whole queries: open the
table, plan, read to Arrow. Ours and the full read take turns; medians are compared. hudi-rs is given the same
range; the note says if it returns other rows. The targets are those of 10 million rows; the reduced run has a
tenth of them, of which planning takes a larger part.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from benchmarks import Row, data, index_keys, median_seconds, read_tables, row, work_folder
from mainstem.errors import Unsupported

ROWS, GROUPS, DAYS = 10_000_000, 200, 50
# What is asked at full size and at a tenth of it.
KEY_TARGETS, RANGE_TARGETS, SECONDARY_TARGETS = (100.0, 30.0), (20.0, 10.0), (20.0, 6.0)
_DAY_MS = 86_400_000
_OFF = {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("indexes")
    rows, repeats = (ROWS // 10, 5) if reduced else (ROWS, 7)
    try:
        found = _by_key(folder / "keys", rows, repeats, KEY_TARGETS[reduced])
        found += index_keys.lookups(folder, repeats)
        found.append(
            index_keys.by_secondary_key(folder, rows, GROUPS, repeats, SECONDARY_TARGETS[reduced])
        )
        return found + _by_range(folder / "range", rows, repeats, RANGE_TARGETS[reduced])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path, options: dict[str, str] | None = None, **query) -> int:
    return mainstem.open_table(str(path), options).scan(**query).to_arrow().num_rows


def _by_key(path: Path, rows: int, repeats: int, target: float) -> list[Row]:
    table = read_tables.create(path, buckets=GROUPS)
    read_tables.insert(table, 0, rows)
    read_tables.compacted(table)
    key = data.keys(np.array([rows // 2]))[0]
    some = data.keys(np.arange(0, rows, rows // 100))
    found = median_seconds(
        {
            "full": lambda: _read(path, _OFF),
            "one": lambda: _read(path, filter=pc.field(data.KEY) == key),
            "some": lambda: _read(path, filter=pc.field(data.KEY).isin(some)),
        },
        repeats,
    )
    what = f"of {rows:,} rows in {GROUPS} file groups, by bucket hash"
    return [
        _beside(f"one key {what}", found["one"], found["full"], "full scan", target),
        _beside(f"{len(some)} keys {what}", found["some"], found["full"], "full scan", None),
    ]


def _beside(work: str, ours: float, theirs: float, against: str, target: float | None, note: str = "") -> Row:
    said = f"{1000 * ours:.1f} ms, {against} {1000 * theirs:.0f} ms"
    return row(work, 1 / ours, "queries/s", against=against, baseline=1 / theirs, target=target,
               note="; ".join(filter(None, (said, note))))  # fmt: skip


def _by_range(path: Path, rows: int, repeats: int, target: float) -> list[Row]:
    """Rows arrive day by day; a query asks for an hour of one day, without naming the day's partition."""
    table = _day_by_day(path, rows)
    first = 20 * _DAY_MS + _DAY_MS // 2
    end = first + _DAY_MS // 24
    asked = (pc.field("ts") >= first) & (pc.field("ts") < end)
    work = f"an hour of {DAYS} days, {rows:,} rows in {GROUPS} file groups, by column statistics"
    try:
        table.create_index("column_stats", ["ts"])
    except Unsupported as error:
        return [row(work, None, "", note=str(error)[:120])]
    expected = _read(path, filter=asked)
    if expected != _read(path, _OFF, filter=asked):
        raise RuntimeError("the range has other rows with the index than without")
    works: dict[str, Callable[[], object]] = {
        "full": lambda: _read(path, _OFF),
        "ours": lambda: _read(path, filter=asked),
    }
    peer, note = _hudi_rs(path, first, end, expected)
    if peer is not None:
        works["hudi-rs"] = peer
    found = median_seconds(works, repeats)
    made = [_beside(work, found["ours"], found["full"], "full scan", target)]
    if peer is None:
        return [*made, row(work, 1 / found["ours"], "queries/s", against="hudi-rs 0.5", note=note)]
    return [*made, _beside(work, found["ours"], found["hudi-rs"], "hudi-rs 0.5", 1.0, note)]


def _day_by_day(path: Path, rows: int) -> mainstem.Table:
    schema = data.SCHEMA.append(pa.field("day", pa.string()))
    table = read_tables.create(path, buckets=GROUPS // DAYS, partition_by=["day"], schema=schema)
    per_day = rows // DAYS
    for day in range(DAYS):
        batch = data.rows(np.arange(day * per_day, (day + 1) * per_day))
        times = pa.array(day * _DAY_MS + np.arange(per_day) * (_DAY_MS // per_day))
        days = pa.array([f"{day:03d}"] * per_day)
        table.bulk_insert(batch.set_column(0, "ts", times).append_column("day", days).cast(schema))
    return table


def _hudi_rs(path: Path, first: int, end: int, expected: int) -> tuple[Callable[[], object] | None, str]:
    try:
        from hudi import HudiReadOptions, HudiTableBuilder
    except ImportError:
        return None, "hudi is not installed (extra 'dev')"
    options = HudiReadOptions(filters=[("ts", ">=", str(first)), ("ts", "<", str(end))])

    def read() -> int:
        table = HudiTableBuilder.from_base_uri(str(path)).build()
        return sum(pa.record_batch(batch).num_rows for batch in table.read(options))

    try:
        count = read()
    except Exception as error:
        return None, f"it fails: {str(error)[:80]}"
    return read, "" if count == expected else f"it returns {count:,} rows instead of {expected:,}"
