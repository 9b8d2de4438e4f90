"""Reads: snapshots against hudi-rs and Java, filters and columns against the full read, opening, memory.

What decoding alone takes (base files and log blocks, nothing matched or merged) is measured beside them:
no merge can be faster.

All times are of whole queries on files that the page cache holds: open the table, plan, read to Arrow.
Repeats of ours and of the peers take turns; medians are compared, and the numbers of rows must agree.
Java reads into Spark's ``noop`` sink on a warm session, so its start-up is in no figure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import mainstem
from benchmarks import (
    FOLDER,
    Row,
    bound,
    data,
    java_hudi,
    median_seconds,
    read_tables,
    row,
    work_folder,
)  # fmt: skip
from mainstem.readers.rows.base_rows import open_base
from mainstem.readers.rows.split import Split, log_entries
from mainstem.storage.local import LocalStorage
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.commit_metadata import encode_commit

# Of the size in the targets; the reduced run takes a part of it.
BASE_ROWS, LOG_ROWS, BATCH_ROWS = 2_000_000, 1_000_000, 50_000
# The smaller table of the memory rows: it too fills row groups and batches, else it is no measure.
STREAMED_ROWS, STREAMED_GROUP = 100_000, 50_000
INSTANTS = FILES = 10_000
# What allocators keep for later is not what reading needs.
_FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
_PEAK = """
import re, sys
import mainstem
rows = sum(b.num_rows for b in mainstem.open_table(sys.argv[1]).scan().to_batches())
print(rows, int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("read")
    part, repeats = (4, 3) if reduced else (1, 5)
    try:
        mor = _mor(folder / "mor", BASE_ROWS // part, LOG_ROWS // part)
        logs = _logs(folder / "logs", LOG_ROWS // part)
        rows = _snapshots({"base and log files": mor, "log files alone": logs}, repeats)
        rows += _less(mor, folder, BASE_ROWS // part, repeats)
        rows += _base_files(folder / "base", BASE_ROWS // part, repeats)
        rows += _memory(folder)
        return rows + _opening(folder, repeats)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _mor(path: Path, base: int, logs: int) -> Path:
    """Base files of ``base`` keys, then four batches of logs, half of them updates."""
    table = read_tables.create(path)
    read_tables.insert(table, 0, base)
    read_tables.compacted(table)
    random, half = np.random.default_rng(0), logs // 8
    for version in range(1, 5):
        old = random.choice(base, size=half, replace=False)
        new = np.arange(base + (version - 1) * half, base + version * half)
        table.upsert(data.rows(np.concatenate([old, new]), version=version))
    return path


def _logs(path: Path, rows: int) -> Path:
    table = read_tables.create(path)
    for batch in data.batches(rows // BATCH_ROWS, BATCH_ROWS):
        table.upsert(batch)
    return path


def _ours(path: Path, **query) -> int:
    return mainstem.open_table(str(path)).scan(**query).to_arrow().num_rows


def _decoded(path: Path, **query) -> None:
    """Decoding alone: the columns of base files and log blocks that a query needs, slices side by side."""
    storage = LocalStorage(str(path))
    splits = mainstem.open_table(str(path)).scan(**query).splits()
    side_by_side(storage, lambda split: decode(storage, split), splits)


def decode(storage: LocalStorage, split: Split) -> None:
    """The columns of a split's base file and log blocks, decoded and let go."""
    if split.base_file is not None:
        with open_base(storage, split.base_file) as base:
            for _ in base.batches(split.spec.wanted if split.log_files else split.spec.plain):
                pass
    log_entries(storage, split)


def _asked(target: float, reach: float, alone: str = "decoding alone") -> tuple[float, str]:
    """The least ratio, and what is said of it: what the bound shows to be out of reach is judged by 70 % of
    that bound."""
    if reach >= target:
        return target, f"{alone} would be {reach:.3g}x"
    return 0.7 * reach, f"asked for {target:g}x, or 70 % of the {reach:.3g}x of {alone}"


def _hudi_rs(path: Path, version: int) -> int:
    from hudi import HudiTableBuilder

    table = HudiTableBuilder.from_base_uri(str(path))
    table = table.with_option("hoodie.read.file.group.reader.version", str(version)).build()
    return sum(pa.record_batch(batch).num_rows for batch in table.read())


def _snapshots(tables: Mapping[str, Path], repeats: int) -> list[Row]:
    rows = []
    java = _java_seconds(tables, repeats)
    for name, path in tables.items():
        expected = _ours(path)
        works: dict[str, Callable[[], object]] = {
            "ours": lambda p=path: _ours(p),
            "decoded": lambda p=path: _decoded(p),
        }
        note = ""
        for version in (1, 2):
            try:
                same = _hudi_rs(path, version) == expected
            except ImportError:
                note = "hudi is not installed (extra 'dev')"
            except Exception as error:  # its reader of version 1 fails on slices without a base file
                note = f"its reader {version} fails: {str(error)[:60]}"
            else:
                works[f"reader {version}"] = lambda p=path, v=version: _hudi_rs(p, v)
                note = note if same else f"{note} its reader {version} finds another number of rows"
        found = median_seconds(works, repeats)
        peers = {k: v for k, v in found.items() if k.startswith("reader")}
        best = min(peers, key=peers.get, default=None)
        target, said = _asked(2, peers[best] / found["decoded"]) if best else (2, "")
        work = f"snapshot of {expected:,} rows, {name}"
        rows.append(
            row(work, expected / found["ours"], "rows/s", against=f"hudi-rs 0.5, {best}",
                baseline=expected / peers[best] if best else None, target=target,
                note="; ".join(filter(None, (note, said))))
        )  # fmt: skip
        seconds = java.get(name)
        rows.append(
            row(work, expected / found["ours"], "rows/s", against="Java Hudi (noop sink)",
                baseline=expected / seconds if seconds else None, target=4,
                note="" if seconds else "Java Hudi was not measured")
        )  # fmt: skip
    return rows


def _java_seconds(tables: Mapping[str, Path], repeats: int) -> dict[str, float]:
    return java_hudi.snapshot_seconds(tables, repeats=repeats) if java_hudi.is_available() else {}


def _less(mor: Path, folder: Path, rows: int, repeats: int) -> list[Row]:
    """Fewer rows or columns against all of them."""
    wide = folder / "grouped"
    table = read_tables.create(wide, buckets=2)
    step = max(1, rows // 10)
    for number in range(10):  # the order in which rows come is that of their times
        batch = data.rows(np.arange(number * step, (number + 1) * step), version=number)
        table.upsert(batch.sort_by(data.ORDERING))
    read_tables.compacted(table, group_rows=max(1, rows // 200))
    table.upsert(data.rows(np.arange(9 * step, 10 * step), version=20))
    early = pc.field(data.ORDERING) < 1_700_000_000_100
    cheap = pc.field("fare") < 1.0
    two = ["rider", "fare"]
    works: dict[str, Callable[[], object]] = {
        "all": lambda: _ours(mor),
        "two": lambda: _ours(mor, columns=two),
        "decoded": lambda: _decoded(mor),
        "two, decoded": lambda: _decoded(mor, columns=two),
        "scattered": lambda: _ours(mor, filter=cheap),
        "scattered, two": lambda: _ours(mor, filter=cheap, columns=two),
        "all, grouped": lambda: _ours(wide),
        "together": lambda: _ours(wide, filter=early),
    }
    found = median_seconds(works, repeats)

    def line(work: str, less: str, whole: str, target: float | None, note: str = "") -> Row:
        return row(work, 1 / found[less], "/s", against="the full read", baseline=1 / found[whole],
                   target=target, note=note)  # fmt: skip

    share = _ours(wide, filter=early) / _ours(wide)
    target, said = _asked(2.5, found["decoded"] / found["two, decoded"])
    return [
        line("2 of 11 columns, base and log files", "two", "all", target, said),
        line("a filter that keeps 1 %, rows of a time that lie together", "together", "all, grouped", 5,
             f"keeps {100 * share:.2f} %"),
        line("a filter that keeps 1 %, rows scattered, 2 of 11 columns", "scattered, two", "all", None),
        line("a filter that keeps 1 %, rows scattered, all columns", "scattered", "all", None,
             "every page of the base files holds a row that is kept"),
    ]  # fmt: skip


def _base_files(path: Path, rows: int, repeats: int) -> list[Row]:
    """A compacted table: its count, and Polars on its dataset against Polars on its Parquet files."""
    table = read_tables.create(path)
    read_tables.insert(table, 0, rows)
    read_tables.compacted(table)
    plan = mainstem.open_table(str(path)).scan()
    files = [str(path / split.base_file) for split in plan.splits()]
    two = ["rider", "fare"]
    works: dict[str, Callable[[], object]] = {
        "count": plan.count_rows,
    }
    note = ""
    try:
        import polars as pl
    except ImportError:
        note = "polars is not installed (extra 'dev')"
    else:
        less = pl.col("fare") < 1.0
        works |= {
            "two": lambda: pl.scan_pyarrow_dataset(plan.to_dataset()).select(two).collect(),
            "two, bare": lambda: pl.scan_parquet(files).select(two).collect(),
            "two, Arrow": lambda: pl.scan_pyarrow_dataset(ds.dataset(files)).select(two).collect(),
            "filtered": lambda: pl.scan_pyarrow_dataset(plan.to_dataset()).filter(less).select(two).collect(),
            "filtered, bare": lambda: pl.scan_parquet(files).filter(less).select(two).collect(),
            "filtered, Arrow": lambda: (
                pl.scan_pyarrow_dataset(ds.dataset(files)).filter(less).select(two).collect()
            ),
        }
        same = works["filtered"]().height == works["filtered, bare"]().height  # type: ignore[attr-defined]
        note = "" if same else "bare Polars finds another number of rows"
    found = median_seconds(works, 2 * repeats)
    shown = [
        bound(f"count of {plan.count_rows():,} rows in base files", found["count"], "s", most=0.1)
    ]
    for work, what in (("two", "2 of 11 columns"), ("filtered", "a filter that keeps 1 %, 2 of 11 columns")):
        if work not in found:
            shown.append(row(f"Polars on a dataset, {what}", None, "/s", against="bare Polars", note=note))
            continue
        bare = found[f"{work}, bare"]
        target, said = _asked(0.8, bare / found[f"{work}, Arrow"], "pyarrow's own dataset of the files")
        shown.append(
            row(f"Polars on a dataset, {what}", 1 / found[work], "/s", against="bare Polars",
                baseline=1 / bare, target=target, note="; ".join(filter(None, (note, said))))
        )  # fmt: skip
    return shown


def _memory(folder: Path) -> list[Row]:
    """Peak memory of a process that streams a table, and one of ten times its base rows."""
    peaks = []
    for name, count in (("small", STREAMED_ROWS), ("large", 10 * STREAMED_ROWS)):
        table = read_tables.create(folder / name, buckets=1)
        read_tables.insert(table, 0, count)
        read_tables.compacted(table, group_rows=STREAMED_GROUP, compression="snappy")
        read_tables.insert(table, 0, STREAMED_ROWS // 10, version=1)
        done = subprocess.run(
            [sys.executable, "-c", _PEAK, str(folder / name)], cwd=FOLDER.parent, check=True, text=True,
            capture_output=True, env={**os.environ, **_FRUGAL},
        )  # fmt: skip
        found, peak = map(int, re.findall(r"\d+", done.stdout))
        if found != count:
            raise RuntimeError(f"{found} rows were streamed, expected {count}")
        peaks.append(peak)
    return [
        bound(
            "peak memory of a stream, 10x the base rows over 1x", peaks[1] / peaks[0], "x", most=1.25,
            note=f"{peaks[0] >> 20} and {peaks[1] >> 20} MiB, Python and pyarrow included",
        )
    ]  # fmt: skip


def _opening(folder: Path, repeats: int) -> list[Row]:
    return [
        *_opened(_many_instants(folder / "instants"), f"{INSTANTS:,} active instants", 0.3, repeats),
        *_opened(_many_files(folder / "files"), f"{FILES:,} files", 1.0, repeats),
    ]


def _opened(path: Path, what: str, most: float, repeats: int) -> list[Row]:
    folders = (path, path / ".hoodie" / "timeline")
    works: dict[str, Callable[[], int]] = {
        "open": lambda: len(mainstem.open_table(str(path)).scan().splits()),
        "list": lambda: sum(1 for folder in folders for _ in os.scandir(folder)),
    }
    found = median_seconds(works, 2 * repeats)
    note = f"one listing takes {1000 * found['list']:.0f} ms"
    return [bound(f"open and plan a table with {what}", found["open"], "s", most=most, note=note)]


def _many_instants(path: Path) -> Path:
    table = read_tables.create(path, buckets=1)
    table.upsert(data.rows(np.arange(10)))
    timeline = path / ".hoodie" / "timeline"
    content = encode_commit([], {}, "UPSERT")
    for number in range(INSTANTS):
        time_ = 20250101000000000 + 2 * number
        (timeline / f"{time_}.deltacommit.requested").write_bytes(b"")
        (timeline / f"{time_}.deltacommit.inflight").write_bytes(b"")
        (timeline / f"{time_}_{time_ + 1}.deltacommit").write_bytes(content)
    return path


def _many_files(path: Path) -> Path:
    table = read_tables.create(path, buckets=1)
    table.upsert(data.rows(np.arange(10)))
    log = next(f for f in path.iterdir() if ".log." in f.name)
    for number in range(1, FILES):
        os.link(log, path / log.name.replace("00000000-", f"{number:08}-", 1))
    return path
