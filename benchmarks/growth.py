"""Growth: what commits, reads, services and indexes cost as one size of a table grows.

Each row gives the exponent of the steepest step from one size to the next (1: in proportion to the size,
0: not at all), and all costs in its note. Costs are processor time, which a busy machine disturbs least, the
least of some turns; memory is the peak of a process of its own. Where both costs of a step are too small to
say anything, the step is left out.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from benchmarks import FOLDER, Row, bound, data, read_tables, work_folder
from benchmarks import least_processor_seconds as _least
from benchmarks.race import race

#: The steepest growth that docs/benchmarks.md need not explain.
MOST = 1.1
_NOISE_S = 0.008
_ALONE = {**read_tables.FAST, "hoodie.mainstem.services": "off"}
_PEAK = """
import re, sys
import mainstem
for batch in mainstem.open_table(sys.argv[1]).scan().to_batches(): pass
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024)
"""

Costs = Iterator[tuple[str, float]]


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("growth")
    try:
        return [
            line
            for axis, (make, small, full) in AXES.items()
            for line in _grown(axis, make, small if reduced else full, folder)
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _grown(axis: str, make: Callable[[Path, int], Costs], sizes: tuple[int, ...], folder: Path) -> list[Row]:
    found: dict[str, dict[int, float]] = {}
    for size in sizes:
        place = folder / f"{axis}-{size}".replace(" ", "-")
        for work, cost in make(place, size):
            found.setdefault(work, {})[size] = cost
        shutil.rmtree(place, ignore_errors=True)
    return [_line(f"{work}, {axis}", costs) for work, costs in found.items()]


def _line(work: str, costs: dict[int, float]) -> Row:
    is_memory = work.startswith("memory")
    shown = (f"{s:,}: {c:.0f} MiB" if is_memory else f"{s:,}: {c * 1000:,.1f} ms" for s, c in costs.items())
    note = "; ".join(shown)
    steps = [
        math.log(costs[large] / costs[small]) / math.log(large / small)
        for small, large in zip(costs, list(costs)[1:], strict=False)
        if is_memory or costs[large] > _NOISE_S
    ]
    return bound(work, max(steps, default=0.0), "exponent", most=MOST, note=note)


def _streamed(path: Path, **query: object) -> int:
    plan = mainstem.open_table(str(path)).scan(**query)  # type: ignore[arg-type]
    return sum(batch.num_rows for batch in plan.to_batches())


def _reads(path: Path, **filters: pc.Expression) -> Costs:
    yield "open", _least(lambda: mainstem.open_table(str(path)).scan().splits())
    yield "scan", _least(lambda: _streamed(path))
    for work, filter in filters.items():
        yield work.replace("_", " "), _least(partial(_streamed, path, filter=filter))


def _key(number: int) -> pc.Expression:
    return pc.field(data.KEY) == data.keys(np.array([number]))[0]


def _of_rows(path: Path, size: int) -> Costs:
    table = read_tables.create(path)
    read_tables.insert(table, 0, size)
    read_tables.compacted(table)
    table = mainstem.open_table(str(path), _ALONE)
    few, many = data.repeated(100, version=1), data.repeated(size // 20, version=2)
    yield "commit of 100 rows", _least(lambda: table.upsert(few))
    yield "commit of 5 % of the rows", _least(lambda: table.upsert(many), 1)
    yield from _reads(path, filtered_scan=pc.field("fare") < 1.0, look_up=_key(size // 2))
    yield "compaction", _least(table.compact, 1)
    yield "record index built", _least(lambda: table.create_index("record_index"), 1)
    indexed = mainstem.open_table(str(path), _ALONE)
    yield "commit of 100 rows, record index", _least(lambda: indexed.upsert(few))
    frugal = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, str(path)], cwd=FOLDER.parent, check=True, text=True,
        capture_output=True, env=frugal,
    )  # fmt: skip
    yield "memory of a scan", float(re.findall(r"[\d.]+", done.stdout)[0])


def _of_file_groups(path: Path, size: int) -> Costs:
    table = read_tables.create(path, buckets=size)
    table = mainstem.open_table(str(path), _ALONE)
    rows = data.repeated(20 * size, version=0)
    table.upsert(rows)
    table.compact()
    one, few = data.repeated(1, version=1), data.repeated(20 * size, version=2)
    yield "commit of one row", _least(lambda: table.upsert(one))
    yield "commit of 20 rows each", _least(lambda: table.upsert(few), 1)
    yield from _reads(path, look_up=_key(0))
    yield "compaction", _least(table.compact, 1)


def _of_partitions(path: Path, size: int) -> Costs:
    read_tables.create(path, buckets=1, partition_by=["city"])
    table = mainstem.open_table(str(path), _ALONE)

    def rows(version: int) -> pa.Table:
        found = data.repeated(20 * size, version=version)
        names = pa.array([f"p{n % size}" for n in range(20 * size)])
        return found.set_column(found.schema.get_field_index("city"), "city", names)

    first = rows(0)
    table.upsert(first)
    table.compact()
    one = first.slice(0, 1)
    yield "commit of one row", _least(lambda: table.upsert(one))
    yield "commit of 20 rows each", _least(lambda: table.upsert(rows(1)), 1)
    yield from _reads(path, one_partition=pc.field("city") == "p0")
    yield "compaction", _least(table.compact, 1)


def _of_commits(path: Path, size: int) -> Costs:
    read_tables.create(path)
    table = mainstem.open_table(str(path), read_tables.FAST)
    row = data.repeated(8, version=0)
    began = time.process_time()
    for _ in range(size):
        table.upsert(row)
    yield "commit, in the mean of all, services included", (time.process_time() - began) / size
    table = mainstem.open_table(str(path), _ALONE)
    yield "commit", _least(lambda: table.upsert(row))
    yield "first commit of a process", _least(lambda: mainstem.open_table(str(path), _ALONE).upsert(row))
    yield from _reads(path, look_up=_key(0))


def _of_instants(path: Path, size: int) -> Costs:
    """Active instants that nobody archives."""
    table = read_tables.create(path)
    row = data.repeated(8, version=0)
    table.upsert(row)
    timeline = path / ".hoodie" / "timeline"
    made = {f.name.partition(".")[2]: f for f in timeline.iterdir() if f.is_file()}
    for number in range(size):
        time_ = 20250101000000000 + 2 * number
        for kind, file in made.items():
            name = f"{time_}_{time_ + 1}" if kind == "deltacommit" else f"{time_}"
            os.link(file, timeline / f"{name}.{kind}")
            if os.stat(file).st_nlink > 50_000:  # a file has so many names at most
                made[kind] = Path(shutil.copy(file, path / f"{kind}-{number}"))
    table = mainstem.open_table(str(path), _ALONE)
    table.upsert(row)
    yield "commit", _least(lambda: table.upsert(row))
    yield "first commit of a process", _least(lambda: mainstem.open_table(str(path), _ALONE).upsert(row))


def _of_columns(path: Path, size: int) -> Costs:
    wide = pa.schema([*data.SCHEMA, *((f"c{n}", pa.float64()) for n in range(size - len(data.SCHEMA)))])
    read_tables.create(path, buckets=4, schema=wide)
    table = mainstem.open_table(str(path), _ALONE)
    random = np.random.default_rng(size)

    def rows(count: int, version: int) -> pa.Table:
        known = data.repeated(count, version=version)
        more = [pa.array(random.random(count)) for _ in range(size - len(data.SCHEMA))]
        return pa.Table.from_arrays([*known.columns, *more], schema=wide)

    table.upsert(rows(5000, 0))
    table.compact()
    few, many = rows(100, 1), rows(2500, 2)
    yield "commit of 100 rows", _least(lambda: table.upsert(few))
    yield "commit of 2,500 rows", _least(lambda: table.upsert(many), 1)
    yield from _reads(path)
    yield "scan of two columns", _least(lambda: _streamed(path, columns=["ts", "fare"]))
    yield "compaction", _least(table.compact, 1)


def _of_logs(path: Path, size: int) -> Costs:
    read_tables.create(path, buckets=1)
    table = mainstem.open_table(str(path), _ALONE)
    table.upsert(data.repeated(5000, version=0))
    table.compact()
    for version in range(1, size + 1):
        table.upsert(data.repeated(100, version=version))
    yield "commit of 100 rows", _least(lambda: table.upsert(data.repeated(100, version=size + 1)))
    yield from _reads(path, look_up=_key(0))
    yield "compaction", _least(table.compact, 1)


def _of_writers(path: Path, size: int) -> Costs:
    yield "commit, in time", 1 / race("mainstem", size, rows=100, seconds=4).rate


#: what grows -> how a table of one size is made and measured, sizes of the reduced run, full sizes
AXES: dict[str, tuple[Callable[[Path, int], Costs], tuple[int, ...], tuple[int, ...]]] = {
    "rows": (_of_rows, (30_000, 300_000), (1_000_000, 10_000_000, 100_000_000)),
    "file groups": (_of_file_groups, (8, 256), (8, 256, 4096)),
    "partitions": (_of_partitions, (10, 300), (10, 1000, 10_000)),
    "commits": (_of_commits, (30, 300), (100, 1000, 10_000, 100_000)),
    "active instants": (_of_instants, (100, 3000), (100, 3000, 30_000)),
    "columns": (_of_columns, (10, 200), (10, 100, 1000)),
    "logs per slice": (_of_logs, (1, 60), (1, 10, 100, 1000)),
    "writers": (_of_writers, (1, 4), (1, 4, 16)),
}
