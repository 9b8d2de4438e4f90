"""Clustering: what a range query reads before and after it, and a writer beside it.

Rows lie in a random order of both columns before. Row groups have the same size before and after, so their
number tells what is read. The writer upserts small batches into the table that another process clusters
again and again, by one column and by the other, at the lowest priority (``nice -n 19``), turn by turn with
the writer alone. It works in as many threads as there are cores, so each core that the writer has is one that
it asks for: Linux gives it a seventieth of that (of ``nice -n 10`` a tenth, all that may be lost). On two
cores that others use too, the writer's processor time says more than its seconds. What no clustering could
leave to it is measured bare: the same writer beside a process of the same ``nice`` that takes as much
processor time and writes as many bytes, and knows nothing of the table.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from benchmarks import FOLDER, Row, asked, bound, data, read_tables, row, work_folder
from mainstem.readers.rows.base_rows import BaseFile

SCHEMA = data.SCHEMA.append(pa.field("distance", pa.float64()))
ROWS, BUCKETS, BATCH, _QUERIES = 10_000_000, 4, 1_000, 5
# Of 10,000,000 rows and row groups of clustered files as they are by default, some 120 groups a file.
_GROUP_BYTES = 4 << 20
_CLUSTER = """
import json, os, resource, sys, threading, time
import mainstem
os.nice(19)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
table = mainstem.open_table(sys.argv[1], json.loads(sys.argv[2]))
print("ready", flush=True)
turn, began, before = 0, time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
while not ended.is_set():
    for done in table.cluster(("fare", "distance")[turn % 2]):
        print(done.rows, flush=True)
    turn += 1
used, seconds = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
print(json.dumps({"seconds": seconds, "cpu": cpu, "written": 512 * (used.ru_oublock - before.ru_oublock)}))
"""


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("clustering")
    part = 16 if reduced else 1
    seconds, turns = (12.0, 3) if reduced else (40.0, 5)
    try:
        path = _table(folder / "t", ROWS // part, _GROUP_BYTES // part)
        return _read(path, part) + _beside(path, ROWS // part, part, seconds, turns)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _options(part: int) -> dict[str, str]:
    return {
        **read_tables.FAST, "hoodie.parquet.block.size": str(_GROUP_BYTES // part),
        "hoodie.mainstem.services": "off",
    }  # fmt: skip


def _rows(numbers: np.ndarray, version: int = 0) -> pa.Table:
    """Fares and distances that have nothing to do with keys or each other, all of them different."""
    made = data.rows(numbers, version=version)
    random = np.random.default_rng(int(numbers[0]) + version)
    fares, distances = random.random((2, len(numbers)))
    at = made.schema.get_field_index("fare")
    return made.set_column(at, "fare", pa.array(fares)).append_column("distance", pa.array(distances))


def _table(path: Path, count: int, group_bytes: int) -> Path:
    read_tables.create(path, buckets=BUCKETS, schema=SCHEMA)
    table = mainstem.open_table(str(path), {**_options(1), "hoodie.parquet.block.size": str(group_bytes)})
    with table.begin("bulk_insert") as load:
        for first in range(0, count, read_tables.BATCH):
            load.write(_rows(np.arange(first, min(first + read_tables.BATCH, count))))
        load.commit()
    return path


# -- what a query reads ----------------------------------------------------------------------------------


def _read(path: Path, part: int) -> list[Row]:
    fare, distance = pc.field("fare"), pc.field("distance")
    places = np.random.default_rng(7).random((_QUERIES, 2)) * 0.97
    one = [(fare >= a) & (fare < a + 0.001) for a, _ in places]
    two = [(fare >= a) & (fare < a + 0.03) & (distance >= b) & (distance < b + 0.03) for a, b in places]
    table = mainstem.open_table(str(path), _options(part))
    before = {id(filters): _groups_read(path, filters) for filters in (one, two)}
    found = []
    for what, columns, strategy, filters in (
        ("a range of the clustered column", ["fare"], "linear", one),
        ("ranges of both columns", ["fare", "distance"], "z-order", two),
        ("ranges of both columns", ["fare", "distance"], "hilbert", two),
    ):  # fmt: skip
        began, used = time.perf_counter(), time.process_time()
        (done,) = table.cluster(columns, strategy=strategy)
        taken, used = time.perf_counter() - began, time.process_time() - used
        after, rows, ms = _groups_read(path, filters)
        every, rows_before, ms_before = before[id(filters)]
        if rows != rows_before:
            raise RuntimeError(f"{rows} rows after clustering, {rows_before} before")
        found.append(
            row(f"row groups that {what} reads, {strategy}", every / after, "x fewer",
                against="all of them", baseline=1.0, target=20.0,
                note=f"{after:.1f} of {every:.1f} on average, {rows:,.0f} rows in {ms:.0f} ms,"
                     f" {ms_before:.0f} before; {done.rows:,} rows clustered in {taken:.1f} s,"
                     f" {used:.1f} s of processor time")
        )  # fmt: skip
    return found


def _groups_read(path: Path, filters: Sequence[pc.Expression]) -> tuple[float, float, float]:
    """Row groups of base files that a query decodes, its rows, and its milliseconds, on average."""
    read: set[tuple[int, str, int]] = set()
    real = BaseFile._group

    def noted(self: BaseFile, source: object, number: int, names: Sequence[str]) -> object:
        read.add((query, self.path, number))
        return real(self, source, number, names)

    query = 0
    BaseFile._group = noted
    try:
        rows, began = 0, time.perf_counter()
        for query, filter in enumerate(filters):  # noqa: B007 - ``noted`` reads it
            found = mainstem.open_table(str(path)).scan(columns=[data.KEY, "fare"], filter=filter)
            rows += found.to_arrow().num_rows
        ms = 1000 * (time.perf_counter() - began)
        return len(read) / len(filters), rows / len(filters), ms / len(filters)
    finally:
        BaseFile._group = real


# -- a writer beside it ----------------------------------------------------------------------------------


def _beside(path: Path, count: int, part: int, seconds: float, turns: int) -> list[Row]:
    runs: dict[str, list[tuple[float, float]]] = {"alone": [], "beside": [], "load": []}
    clustered, share = 0, []
    for turn in range(turns):
        runs["alone"].append(_written(path, count, part, seconds, 3 * turn))
        command = [sys.executable, "-c", _CLUSTER, str(path), json.dumps(_options(part))]
        with subprocess.Popen(
            command, cwd=FOLDER.parent, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            if other.stdout.readline() != "ready\n":
                raise RuntimeError("the process that clusters did not start")
            runs["beside"].append(_written(path, count, part, seconds, 3 * turn + 1))
            # What is under way is finished: a plan of a process that was killed would rest for its heartbeat.
            *done, used = other.communicate()[0].splitlines()
            clustered += len(done)
        spec = {**json.loads(used), "folder": str(path.parent), "nice": 19}
        share.append(spec["cpu"] / spec["seconds"])
        load = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.index_writers", "burn", json.dumps(spec)], cwd=FOLDER.parent
        )
        try:
            runs["load"].append(_written(path, count, part, seconds, 3 * turn + 2))
        finally:
            load.kill()
            load.wait()
    if not clustered:
        raise RuntimeError("nothing was clustered beside the writer")
    rates = {name: statistics.median(rate for rate, _ in some) for name, some in runs.items()}
    costs = {name: statistics.median(cost for _, cost in some) for name, some in runs.items()}
    work = f"a writer of {BATCH:,}-row batches, its table clustered in another process"
    least = rates["load"] / rates["alone"]
    return [
        row(work, rates["beside"], "rows/s", against="the writer alone", baseline=rates["alone"],
            target=asked(0.9, least),
            note=f"{clustered} clusterings in {turns} runs of {seconds:.0f} s; bound {least:.2f}x: beside a"
                 f" process that takes as much, {statistics.median(share):.2f} of a core"),
        row(f"{work}, against that load", rates["beside"], "rows/s",
            against="beside a bare process of the same load", baseline=rates["load"]),
        bound(f"processor time a row, {work}", costs["beside"] / costs["alone"], "x", most=1 / 0.9,
              note=f"{1e6 * costs['beside']:.1f} us, alone {1e6 * costs['alone']:.1f} us, beside the bare"
                   f" process {1e6 * costs['load']:.1f} us"),
    ]  # fmt: skip


def _written(path: Path, count: int, part: int, seconds: float, turn: int) -> tuple[float, float]:
    """Rows per second of upserts, and seconds of processor time per row."""
    table = mainstem.open_table(str(path), _options(part))
    random = np.random.default_rng(turn)
    batches = [
        _rows(random.choice(count, BATCH, replace=False), version=20 * turn + n + 1) for n in range(20)
    ]
    table.upsert(batches[0])
    done, began, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        table.upsert(batches[done % len(batches)])
        done += 1
    written = BATCH * done
    return written / (time.perf_counter() - began), (time.process_time() - used) / written
