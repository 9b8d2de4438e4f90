"""Table version 10 (native Parquet log files) beside version 9 (Avro blocks), on the same rows.

Encoding, decoding, upserts, scans and compaction of both versions take turns in one process, with what
version 10 cannot leave out: bare pyarrow, which writes or reads the same rows in as many Parquet files of the
same settings, and for scans the merge, as version 9 does it. Speeds are rows per second of processor time, of
all threads: what else runs moves them least. Each note has the medians and means of both times.

Where 70 % of what bare Parquet reaches is less than what is asked for, that is asked for.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mainstem
from benchmarks import Row, data, row, work_folder
from benchmarks.codec import log_rows
from benchmarks.read import decode
from benchmarks.read_tables import BATCH, FAST
from mainstem.formats.avro_columns import decode_records, encode_records
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro
from mainstem.formats.base_file import FEW_ROWS, BaseFileFormat, BaseFileWriter, encode_base_file
from mainstem.formats.native_log import LOG, header_note
from mainstem.formats.quick_parquet import quick_choice
from mainstem.readers.rows.native_logs import open_native
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage

LARGE, BUCKETS = 200_000, 8
SMALL_FILES, SMALL_ROWS = 256, 40
BASE, LOGS, LOG_BATCHES = 400_000, 200_000, 8
#: what is asked of every work, and of a scan of few columns
EQUAL, FEW = 1.0, 2.0
OPTIONS = {**FAST, "hoodie.table.services.enabled": "false"}
_INSTANT = "20260102030405678"
_KEY = META_FIELDS[2]


@dataclass(frozen=True)
class Times:
    """Seconds of one work, turn by turn."""

    processor: list[float]
    clock: list[float]

    @property
    def median(self) -> float:
        """Of processor time."""
        return statistics.median(self.processor)

    def add(self, work: Callable[[], object]) -> None:
        """Once more."""
        processor, clock = time.process_time(), time.perf_counter()
        work()
        self.processor.append(time.process_time() - processor)
        self.clock.append(time.perf_counter() - clock)

    def said(self) -> str:
        """Medians and means, in milliseconds."""
        found = (1000 * of(times) for times in (self.processor, self.clock) for of in _MIDDLES)
        return "{:.1f} and {:.1f} ms of processor time, {:.1f} and {:.1f} by the clock".format(*found)


_MIDDLES = (statistics.median, statistics.mean)
Works = Mapping[str, Callable[[], object]]


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    part, turns = (2, 3) if reduced else (1, 11)
    folder = work_folder("version-10")
    try:
        rows = _formats(folder, LARGE // part, turns)
        rows += _upserts(folder / "large", LARGE // part, BUCKETS, turns)
        rows += _upserts(folder / "small", SMALL_FILES // part * SMALL_ROWS, SMALL_FILES // part, turns)
        rows += _scans("in logs", *_scanned(folder / "logs", 0, LOGS, part), turns)
        base = _scanned(folder / "both", BASE, LOGS, part)
        rows += _scans("in base files and logs", *base, turns)
        return rows + _compactions(*base, turns)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(works: Works, turns: int) -> dict[str, Times]:
    """The times of each work; they take turns, after one that does not count."""
    found = {name: Times([], []) for name in works}
    for work in works.values():
        work()
    for _ in range(turns):
        for name, work in works.items():
            found[name].add(work)
    return found


def compared(work: str, count: int, times: Mapping[str, Times], least: float) -> list[Row]:
    """Rows of the table: version 10 beside version 9, and beside its bound. ``least``: what is asked for,
    or 70 % of the bound where that is less."""
    old, new, bare = (times[name] for name in ("9", "10", "bare"))
    speed, bound = count / new.median, old.median / bare.median
    asked = min(least, 0.7 * bound)
    note = f"version 9 {old.said()}; version 10 {new.said()}; bare Parquet {bare.said()}"
    return [
        row(work, speed, "rows/s", against="version 9", baseline=count / old.median, target=asked, note=note),
        row(work, speed, "rows/s", against="bound: bare Parquet", baseline=count / bare.median,
            note=f"bare Parquet reaches {bound:.2f} of version 9"),
    ]  # fmt: skip


# -- the formats alone ---------------------------------------------------------------------------


def _formats(folder: Path, count: int, turns: int) -> list[Row]:
    rows = log_rows(count)
    schema = arrow_to_avro(data.SCHEMA, table_name="trips", meta_fields=True)
    some = [_KEY, "fare"]
    name = paths.native_log_name("0", _INSTANT, 1, "0-0-0", LOG)
    storage, told = LocalStorage(str(folder), sync=False), paths.parse_log_name(name)
    sink = storage.upload(name)
    _native(rows, schema, sink)
    sink.close(durable=False)
    block = memoryview(b"".join(encode_records(rows, schema)))
    bare = pa.BufferOutputStream()
    how = _encodings(rows)
    _bare_file(rows, bare, how)
    plain = bare.getvalue()
    works: dict[str, tuple[Works, float]] = {
        "encode": (
            {"9": lambda: encode_records(rows, schema), "10": lambda: _native(rows, schema, _Memory()),
             "bare": lambda: _bare_file(rows, pa.BufferOutputStream(), how)}, EQUAL,
        ),
        "decode": (
            {"9": lambda: decode_records(block, count, schema),
             "10": lambda: open_native(storage, name, told, final=True).table(),
             "bare": lambda: pq.read_table(pa.BufferReader(plain))}, EQUAL,
        ),
        "decode 2 of 11 columns:": (
            {"9": lambda: decode_records(block, count, schema, some),
             "10": lambda: open_native(storage, name, told, final=True).table(some),
             "bare": lambda: pq.read_table(pa.BufferReader(plain), columns=some)}, FEW,
        ),
    }  # fmt: skip
    found = []
    for work, (each, least) in works.items():
        found += compared(f"{work} {count:,} log rows", count, measured(each, turns), least)
    return found


class _Memory:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []

    def append(self, buffers: list[bytes | memoryview]) -> None:
        self.parts += buffers


def _native(rows: pa.Table, schema: str, sink: object) -> None:
    how = BaseFileFormat.of_logs({})
    file = BaseFileWriter(schema, sink, how, said=header_note(_INSTANT, schema))
    file.write(rows)
    file.close()


def _bare_file(rows: pa.Table, sink: object, how: Mapping[str, object]) -> None:
    pq.write_table(rows, sink, version="2.6", write_page_checksum=True, store_schema=False, **how)


def _encodings(rows: pa.Table) -> Mapping[str, object]:
    """Codecs and dictionaries as version 10 has them."""
    if rows.num_rows < FEW_ROWS:
        return {"compression": "snappy", "use_dictionary": False}
    return quick_choice(rows).encodings


# -- tables --------------------------------------------------------------------------------------


def _table(path: Path, version: int, buckets: int) -> mainstem.Table:
    """An empty table without services, which would compact it meanwhile."""
    mainstem.create_table(
        str(path), data.SCHEMA, record_key=[data.KEY], ordering=[data.ORDERING], buckets=buckets,
        table_version=version, properties=OPTIONS,
    )  # fmt: skip
    return mainstem.open_table(str(path), OPTIONS)


def _upserts(folder: Path, count: int, buckets: int, turns: int) -> list[Row]:
    batch = data.rows(np.arange(count))
    tables = {str(version): _table(folder / str(version), version, buckets) for version in (9, 10)}
    for table in tables.values():
        table.upsert(batch)
    parts = [part.combine_chunks() for part in _buckets(log_rows(count), buckets)]
    works = {name: (lambda table=table: table.upsert(batch)) for name, table in tables.items()}
    how = _encodings(parts[0])
    works["bare"] = lambda: _bare_files(folder / "bare", parts, how)
    work = f"upsert of {count:,} rows into {buckets} file groups"
    return compared(work, count, measured(works, turns), EQUAL)


def _buckets(rows: pa.Table, buckets: int) -> Iterator[pa.Table]:
    size = -(-rows.num_rows // buckets)
    return (rows.slice(at, size) for at in range(0, rows.num_rows, size))


def _bare_files(folder: Path, parts: list[pa.Table], how: Mapping[str, object]) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    for number, part in enumerate(parts):
        made = pa.BufferOutputStream()
        _bare_file(part, made, how)
        (folder / f"{number}.parquet").write_bytes(made.getvalue())


def _scanned(path: Path, base: int, logs: int, part: int = 1) -> tuple[dict[str, mainstem.Table], int]:
    """A table of each version with base files of ``base`` keys, and logs of as many rows, half of them
    updates; and the number of their rows. ``part``: so much smaller, by fewer commits."""
    tables, base, commits = {}, base // part, LOG_BATCHES // part
    half = logs // LOG_BATCHES // 2
    for version in (9, 10):
        table = tables[str(version)] = _table(path / str(version), version, BUCKETS)
        for first in range(0, base, BATCH):
            table.bulk_insert(data.rows(np.arange(first, min(first + BATCH, base))))
        for turn in range(commits):
            new = np.arange(base + turn * half, base + (turn + 1) * half)
            # Without base files, the updates are of the first batch.
            old = np.arange(half) * (base // half) + turn if base else np.arange(half)
            table.upsert(data.rows(np.concatenate([old, new]), version=turn + 1))
    return tables, base + commits * half


def _scans(where: str, tables: Mapping[str, mainstem.Table], count: int, turns: int) -> list[Row]:
    found = []
    for what, names, least in (
        ("all columns", None, EQUAL),
        ("2 of 11 columns, the key one of them", [data.KEY, "fare"], FEW),
        ("2 of 11 columns", ["city", "fare"], FEW),
    ):
        files = _files(Path(tables["10"].path))
        works: dict[str, Callable[[], object]] = {
            name: (lambda table=table, names=names: _scan(table, names, count))
            for name, table in tables.items()
        }
        works["bare"] = lambda files=files, names=names: _bare_read(files, names)
        works["decoded"] = lambda names=names: _decoded(tables["9"], names)
        times = measured(works, turns)
        times["bare"] = _merged(times["bare"], times["9"], times["decoded"])
        found += compared(f"scan of {what}, {count:,} rows {where}", count, times, least)
    return found


def _decoded(table: mainstem.Table, names: list[str] | None) -> None:
    storage = LocalStorage(table.path, sync=False)
    for split in table.scan(columns=names).splits():
        decode(storage, split)


def _merged(bare: Times, scan: Times, decoded: Times) -> Times:
    """Bare reading, and what a scan of version 9 does beside decoding: no version can leave out the merge."""
    beside = (scan.median - decoded.median, statistics.median(scan.clock) - statistics.median(decoded.clock))
    more = [max(0.0, seconds) for seconds in beside]
    return Times([one + more[0] for one in bare.processor], [one + more[1] for one in bare.clock])


def _scan(table: mainstem.Table, names: list[str] | None, count: int) -> None:
    rows = table.scan(columns=names).to_arrow().num_rows
    if rows != count:
        raise RuntimeError(f"{rows} rows, expected {count}")


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*.parquet") if ".hoodie" not in file.parts)


def _bare_read(files: list[Path], names: list[str] | None) -> None:
    """What a scan cannot leave out: its columns, and those by which the rows are merged."""
    columns = None if names is None else list(dict.fromkeys([_KEY, data.ORDERING, *names]))
    for file in files:
        pq.ParquetFile(file).read(columns=columns)


def _compactions(tables: Mapping[str, mainstem.Table], count: int, turns: int) -> list[Row]:
    """Each turn compacts a copy of its own."""
    times = {name: Times([], []) for name in ("9", "10", "bare")}
    for _ in range(min(turns, 5)):
        for name, table in tables.items():
            copy = Path(table.path).parent / f"copy-{name}"
            shutil.copytree(table.path, copy)
            before = _files(copy)
            times[name].add(mainstem.open_table(str(copy), OPTIONS).compact)
            if name == "10":
                made = [pq.read_table(file) for file in _files(copy) if file not in before]
                times["bare"].add(lambda before=before, made=made: _bare_compaction(before, made))
            shutil.rmtree(copy)
    return compared(f"compaction into {count:,} rows", count, times, EQUAL)


def _bare_compaction(files: list[Path], made: list[pa.Table]) -> None:
    """The rows read, and as many encoded as base files: nothing is merged."""
    schema = arrow_to_avro(data.SCHEMA, table_name="trips", meta_fields=True)
    for file in files:
        pq.read_table(file)
    for rows in made:
        encode_base_file(rows, schema, BaseFileFormat(bloom=None))
