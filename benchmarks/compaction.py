"""Compaction: against Java Hudi on the same tables, its memory, and what reads gain by it.

Each table is written once by mainstem and copied; one copy is compacted by us, one by Java on a warm JVM
with two cores. Neither fsyncs. The number of rows afterwards must agree. Our times are of ``Table.compact``
in this process: planning, merging, gzip, publication. Beside them stands what no compaction can leave out:
the log blocks (and base files) decoded, and as many rows encoded and written, nothing matched or merged,
without plan, filter of keys and commit.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mainstem
from benchmarks import FOLDER, Missing, Row, bound, data, java_hudi, read, read_tables, row, work_folder
from benchmarks.java_peer import TABLE
from mainstem.formats.base_file import SCHEMA_KEY, BaseFileFormat, encode_base_file
from mainstem.storage.local import LocalStorage
from mainstem.storage.side_by_side import side_by_side

BATCHES, BATCH_ROWS = 20, 50_000
BASE_ROWS, LOG_ROWS = 2_000_000, 1_000_000
LARGE_BASE, LARGE_LOG = 8_000_000, 4_000_000
_COMPACT = """
import re, sys
import mainstem
table = mainstem.open_table(sys.argv[1], {"hoodie.memory.compaction.max.size": sys.argv[2]})
(done,) = table.compact()
print(done.rows, int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("compaction")
    part, repeats = (4, 3) if reduced else (1, 5)
    try:
        logs = _logs(folder / "logs")
        merged = mor(folder / "mor", BASE_ROWS // part, LOG_ROWS // part, buckets=8)
        tables = {
            f"{BATCHES} batches of {BATCH_ROWS:,} log rows, 8 file groups": (logs, 6.0),
            f"{BASE_ROWS // part:,} base and {LOG_ROWS // part:,} log rows, 8 file groups": (merged, 3.0),
        }
        rows = _against_java(tables, repeats)
        rows += reads_after(merged, repeats)
        return rows + _memory(folder / "large", 16 if reduced else 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _logs(path: Path) -> Path:
    table = read_tables.create(path)
    for batch in data.batches(BATCHES, BATCH_ROWS):
        table.upsert(batch)
    return path


def mor(path: Path, base: int, logs: int, *, buckets: int) -> Path:
    """Base files of ``base`` keys, then eight commits of logs, half of their rows updates."""
    table = read_tables.create(path, buckets=buckets)
    with table.begin("bulk_insert") as load:
        for first in range(0, base, read_tables.BATCH):
            load.write(data.rows(np.arange(first, min(first + read_tables.BATCH, base))))
        load.commit()
    old, half = np.random.default_rng(0).permutation(base), logs // 16
    for version in range(8):
        span = slice(version * half, (version + 1) * half)
        new = np.arange(base + span.start, base + span.stop)
        table.upsert(data.rows(np.concatenate([old[span], new]), version=version + 1))
    return path


def _against_java(tables: Mapping[str, tuple[Path, float]], repeats: int) -> list[Row]:
    ours, bare, counts = {}, {}, {}
    for name, (path, _) in tables.items():
        taken, least = [], []
        for _ in range(repeats):
            with _copied(path, "ours") as copy:
                table = mainstem.open_table(str(copy), read_tables.FAST)
                began = time.perf_counter()
                (done,) = table.compact()
                taken.append(time.perf_counter() - began)
                counts[name] = done.rows
                least.append(_bare_seconds(path, [copy / file for file in done.files]))
        ours[name], bare[name] = statistics.median(taken), statistics.median(least)
    java, note = {}, "Java Hudi is not installed"
    if java_hudi.is_available():
        java = _java_seconds({name: path for name, (path, _) in tables.items()}, counts)
        note = ""
    rows = []
    for name, (_, target) in tables.items():
        work, rate = f"compaction of {name}", counts[name] / ours[name]
        rows += [
            row(work, rate, "rows/s", against="Java Hudi, 2 cores",
                baseline=counts[name] / java[name] if name in java else None, target=target,
                note=note or f"{ours[name]:.2f} s, Java {java[name]:.1f} s"),
            row(work, rate, "rows/s", against="bound: bare decoding and encoding",
                baseline=counts[name] / bare[name], note=f"{bare[name]:.2f} s"),
        ]  # fmt: skip
    return rows


def _bare_seconds(path: Path, files: list[Path]) -> float:
    """Seconds to decode all files of the table at ``path`` and to encode the rows of ``files``."""
    storage = LocalStorage(str(path), sync=False)
    splits = mainstem.open_table(str(path)).scan().splits()
    rows = [pq.read_table(file) for file in files]
    schemas = [pq.read_metadata(file).metadata[SCHEMA_KEY.encode()].decode() for file in files]

    def make(number: int) -> None:
        read.decode(storage, splits[number])
        made = encode_base_file(rows[number], schemas[number], BaseFileFormat(bloom=None))
        Path(f"{files[number]}.bare").write_bytes(made)

    began = time.perf_counter()
    side_by_side(storage, make, range(len(files)))
    return time.perf_counter() - began


@contextmanager
def _copied(path: Path, name: str) -> Iterator[Path]:
    """A copy of a table in a folder beside it, for as long as the block lasts."""
    target = path.parent / name / path.name
    shutil.copytree(path, target)
    try:
        yield target
    finally:
        shutil.rmtree(target.parent)


def _java_seconds(tables: Mapping[str, Path], counts: Mapping[str, int]) -> dict[str, float]:
    """Seconds of Java's planning and execution, after it compacted another copy of the first table."""
    found = {}
    warm = next(iter(tables.values()))
    with java_hudi.session() as java:
        with _copied(warm, "warm") as copy:
            java.compact(copy, TABLE.options(copy.name))
        for name, path in tables.items():
            with _copied(path, "java") as copy:
                began = time.perf_counter()
                java.compact(copy, TABLE.options(copy.name))
                found[name] = time.perf_counter() - began
                rows = _base_rows(copy)
                if rows != counts[name]:
                    raise RuntimeError(f"Java's compaction leaves {rows} rows, ours {counts[name]}")
    return found


def _base_rows(path: Path) -> int:
    return mainstem.open_table(str(path)).scan(mode="read_optimized").to_arrow().num_rows


def reads_after(path: Path, repeats: int) -> list[Row]:
    """A snapshot of a table that was just compacted, against its parquet files alone and hudi-rs."""
    table = mainstem.open_table(str(path), read_tables.FAST)
    (done,) = table.compact()
    files = [path / name for name in done.files]
    works: dict[str, Callable[[], int]] = {
        "ours": lambda: mainstem.open_table(str(path)).scan().to_arrow().num_rows,
        "pyarrow": lambda: pq.read_table([str(f) for f in files]).num_rows,
        "hudi-rs": lambda: _hudi_rs(path),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    note = ""
    for _ in range(repeats + 1):
        for name, work in list(works.items()):
            began = time.perf_counter()
            try:
                count = work()
            except (ImportError, Missing) as error:
                works.pop(name)
                note = str(error)
                continue
            taken[name].append(time.perf_counter() - began)
            if count != done.rows:
                raise RuntimeError(f"{name} reads {count} rows of {done.rows}")
    found = {name: statistics.median(seconds[1:]) for name, seconds in taken.items() if seconds}
    work_name = f"snapshot of {done.rows:,} rows after compaction"

    def line(peer: str, target: float) -> Row:
        baseline = done.rows / found[peer] if peer in found else None
        return row(work_name, done.rows / found["ours"], "rows/s", against=peer, baseline=baseline,
                   target=target, note="" if baseline else note)  # fmt: skip

    return [line("pyarrow", round(1 / 1.5, 3)), line("hudi-rs", 0.9)]


def _hudi_rs(path: Path) -> int:
    from hudi import HudiTableBuilder

    table = HudiTableBuilder.from_base_uri(str(path)).build()
    return sum(pa.record_batch(batch).num_rows for batch in table.read())


def _memory(path: Path, part: int) -> list[Row]:
    """Peak memory of a process that compacts one large file group; a smaller table has less to spend."""
    base, logs = LARGE_BASE // part, LARGE_LOG // part
    allowed = 1024 if part == 1 else 128
    mor(path, base, logs, buckets=1)
    done = subprocess.run(
        [sys.executable, "-c", _COMPACT, str(path), str(allowed << 20)], cwd=FOLDER.parent, check=True,
        text=True, capture_output=True,
    )  # fmt: skip
    rows, peak = map(int, re.findall(r"\d+", done.stdout))
    if rows != base + logs // 2:
        raise RuntimeError(f"{rows} rows after the compaction, expected {base + logs // 2}")
    most = 1024 if part == 1 else allowed + 256
    return [
        bound(
            f"peak memory, compaction of one file group of {base:,} base and {logs:,} log rows", peak, "MiB",
            most=most, note=f"hoodie.memory.compaction.max.size {allowed} MiB; Python and pyarrow included",
        )
    ]  # fmt: skip
