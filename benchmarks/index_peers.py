"""Tables without buckets beside Java Hudi 1.2.0 and hudi-rs 0.6: upserts of known keys, and keys looked for.

mainstem makes a table of each index; every engine writes the same rows into a copy of its own, once, and the
rows that are there afterwards are compared. Java runs on Spark with two cores, warmed up on a small table of
the same kind; hudi-rs is a program of one process (``hudi_rs_peer``), with SIMPLE and the record index.
Figures are processor time, since other work on the machine changes seconds, which stand in the note; what
starts a process, and reads the rows that are given, counts for nobody.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import mainstem
from benchmarks import Row, data, java_hudi, read_tables, row, work_folder

ROWS, UPSERTED, ASKED, _WARM = 5_000_000, 1_000_000, 100_000, 20_000
#: index -> what Java's jobs say for it
KINDS = {
    "SIMPLE": {"hoodie.metadata.enable": "false"},
    "BLOOM": {"hoodie.metadata.enable": "false"},
    "GLOBAL_RECORD_LEVEL_INDEX": {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.auto.delete.partitions": "false",
    },
}
#: where the program of hudi-rs is, which nobody builds here: see its Cargo.toml
PEER = Path(
    os.environ.get("MAINSTEM_HUDI_RS_PEER", Path.home() / ".cache/hudi-rs-peer/release/hudi-rs-peer")
)
_TICKS = os.sysconf("SC_CLK_TCK")

Figures = tuple[float, float]
"""Seconds of processor time, and of the clock."""


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    part = 10 if reduced else 1
    folder = work_folder("index-peers")
    try:
        sizes = ROWS // part, UPSERTED // part
        return [line for kind in KINDS for line in _beside(folder / kind, kind, *sizes)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _beside(folder: Path, kind: str, stored: int, upserted: int) -> list[Row]:
    numbers = np.random.default_rng(1).choice(stored, upserted, replace=False)
    rows = data.rows(numbers, version=1)
    folder.mkdir()
    pq.write_table(rows, folder / "rows.parquet")
    made = _table(folder / "made", kind, stored)
    meant = _content(made.path)
    works: dict[str, Callable[[Path], Figures]] = {"mainstem": lambda path: _ours(path, kind, rows)}
    if java_hudi.is_available():
        works["Java Hudi 1.2.0, Spark, 2 cores"] = lambda path: _by_java(path, kind, rows)
    if PEER.exists() and kind != "BLOOM":
        works["hudi-rs 0.6.0-rc.1"] = lambda path: _by_hudi_rs("upsert", path, folder / "rows.parquet")[:2]
    figures, contents = {}, {}
    for name, work in works.items():
        path = folder / "copy"
        shutil.copytree(made.path, path)
        figures[name] = work(path)
        contents[name] = _content(str(path))
        shutil.rmtree(path)
    if len(set(contents.values())) > 1 or meant in contents.values():
        raise RuntimeError(f"the engines wrote other rows: {contents}")
    ours, seconds = figures.pop("mainstem")
    work = f"upsert {upserted:,} known keys of {stored:,}, {kind}"
    peers: list[tuple[str | None, Figures | None]] = [*figures.items()] or [(None, None)]
    found = [
        row(work, upserted / ours, "rows/s of processor time", against=name, target=2.0,
            baseline=upserted / theirs[0] if theirs else None,
            note=f"{ours:.2f} s of processor time ({seconds:.2f} s)"
                 + (f", theirs {theirs[0]:.2f} s ({theirs[1]:.2f} s)" if theirs else ""))
        for name, theirs in peers
    ]  # fmt: skip
    return found + _looked_for(folder, made, kind, numbers[:ASKED])


def _table(path: Path, kind: str, stored: int) -> mainstem.Table:
    options = {**read_tables.FAST, "hoodie.index.type": kind, "hoodie.mainstem.services": "off"}
    options["hoodie.mainstem.exclusive"] = "false"  # others write it, too
    table = mainstem.create_table(
        path, data.SCHEMA, record_key=data.KEY, ordering=data.ORDERING, properties=options
    )
    if "RECORD" in kind:
        table.create_index("record_index")
    table = mainstem.open_table(str(path), options)
    for first in range(0, stored, read_tables.BATCH):
        table.upsert(data.rows(np.arange(first, min(first + read_tables.BATCH, stored))))
    return table


def _content(path: str) -> tuple[int, int, int]:
    """Rows, the sum of their fares, the sum of their ordering values."""
    found = mainstem.open_table(path).scan(columns=[data.KEY, "fare", data.ORDERING]).to_arrow()
    if pc.count_distinct(found[data.KEY]).as_py() != found.num_rows:
        raise RuntimeError(f"a key is doubled in {path}")
    # Whole numbers: sums of others depend on the order of the rows.
    fares = pc.sum(pc.cast(pc.round(pc.multiply(found["fare"], 1e6)), pa.int64())).as_py()
    return found.num_rows, fares, pc.sum(found[data.ORDERING]).as_py()


def _ours(path: Path, kind: str, rows: pa.Table) -> Figures:
    table = mainstem.open_table(str(path), {"hoodie.index.type": kind, "hoodie.mainstem.services": "off",
                                            "hoodie.mainstem.fsync": "false"})  # fmt: skip
    began, used = time.perf_counter(), time.process_time()
    table.upsert(rows)
    return time.process_time() - used, time.perf_counter() - began


def _by_java(path: Path, kind: str, rows: pa.Table) -> Figures:
    warm = path.with_name("warm")
    _table(warm, kind, _WARM)
    with java_hudi.session() as java:
        for version in (1, 2):
            java.write(warm, data.rows(np.arange(_WARM), version=version), _java_options("warm", kind))
        name = java.rows_file(rows)
        used = _processor_seconds(java)
        options = _java_options("made", kind)
        answer = java.call("write", path=str(path), rows=name, options=options, mode="append")
        used = _processor_seconds(java) - used
    shutil.rmtree(warm)
    return used, answer["seconds"]


def _java_options(name: str, kind: str) -> dict[str, str]:
    options = java_hudi.JavaTable((data.KEY,), (data.ORDERING,)).options(name)
    # The table says how often the lock is looked for.
    mine = {key: value for key, value in options.items() if "bucket" not in key and "lock.client" not in key}
    return {
        **mine, "hoodie.index.type": kind,
        "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL", **KINDS[kind],
    }  # fmt: skip


def _processor_seconds(java: Any) -> float:
    """Of the JVM and of all that it started."""
    return sum(_ticks(pid) for pid in java.processes()) / _TICKS


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _by_hudi_rs(what: str, path: Path, *more: Path | str) -> tuple[float, float, dict]:
    done = subprocess.run(
        [str(PEER), what, str(path), *map(str, more)], capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"hudi-rs: {done.stderr.strip()[-500:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return told["processor"], told["seconds"], told


def _looked_for(folder: Path, table: mainstem.Table, kind: str, numbers: np.ndarray) -> list[Row]:
    """Nothing is kept in memory from one look to the next."""
    keys = data.keys(numbers)
    taken = []
    for _ in range(3):
        began, used = time.perf_counter(), time.process_time()
        look = mainstem.open_table(table.path, table.properties).writer_context().look_for_keys
        assert look is not None
        found, _ = look().find("", keys)
        taken.append((time.process_time() - used, time.perf_counter() - began))
        if (found < 0).any():
            raise RuntimeError(f"{(found < 0).sum()} keys were not found")
    used, seconds = min(taken)
    work, note = f"look for {len(keys):,} keys, {kind}", f"{used:.2f} s of processor time ({seconds:.2f} s)"
    if not PEER.exists() or kind == "BLOOM":
        lacks = "" if PEER.exists() else "; hudi-rs is not built here: benchmarks/README.md says how"
        return [row(work, len(keys) / used, "keys/s of processor time", note=note + lacks)]
    asked = folder / "asked.parquet"
    pq.write_table(pa.table({data.KEY: keys}), asked)
    theirs = min(_by_hudi_rs("find", Path(table.path), asked, data.KEY) for _ in range(3))
    if theirs[2]["found"] != len(keys):
        raise RuntimeError(f"hudi-rs found {theirs[2]['found']} of {len(keys)} keys")
    return [
        row(work, len(keys) / used, "keys/s of processor time", against="hudi-rs 0.6.0-rc.1",
            baseline=len(keys) / theirs[0], target=1.0,
            note=f"{note}, theirs {theirs[0]:.2f} s ({theirs[1]:.2f} s)")
    ]  # fmt: skip
