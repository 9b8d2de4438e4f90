"""A record index built and asked by Java Hudi 1.2.0 on Spark 3.5 with two cores, and by mainstem.

Both build it on a copy of one table, which mainstem wrote and compacted (on log files Java's ``CREATE INDEX``
ends with an error) and which has its list of files in a metadata table: Java by ``CREATE INDEX``, warmed up
by a small table, ours by ``create_index`` in a process of its own.

Both look up keys in the record index that Java has built, opened anew each time: ours and
``HoodieBackedTableMetadata``, which is asked by its local engine, without Spark's jobs, and warmed up, too.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np

from benchmarks import (
    Missing,
    Row,
    data,
    hfile,
    index_build,
    index_keys,
    java_hudi,
    read_tables,
    row,
    work_folder,
)

ROWS, ASKED = 1_000_000, 100_000
_BUCKETS = 8
_TIMES, _WARM = 9, 4
_OPTIONS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.auto.delete.partitions": "false",
}


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    if not java_hudi.is_available():
        raise Missing("Java Hudi is not installed (scripts/environment.py install interop)")
    folder = work_folder("index-java")
    rows = ROWS // 4 if reduced else ROWS
    try:
        theirs = _built_by_java(folder, rows)
        ours = index_build.alone("build", folder / "ours")
        return [
            row(
                f"build a record index on {rows:,} rows in {_BUCKETS} file groups", rows / ours["seconds"],
                "rows/s", against="Java Hudi's CREATE INDEX on Spark, 2 cores", baseline=rows / theirs,
                target=3.0,
                note=f"{ours['seconds']:.1f} s and {ours['peak_mib']:.0f} MiB, Java {theirs:.1f} s",
            ),
            *_asked(folder, rows),
        ]  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _built_by_java(folder: Path, rows: int) -> float:
    """Seconds that Java's CREATE INDEX takes on ``folder/theirs``, of which ``folder/ours`` is a copy."""
    with java_hudi.session() as java:
        for name, count in (("warm", 20_000), ("theirs", rows)):
            _made(folder / name, count)
            if name == "theirs":
                shutil.copytree(folder / name, folder / "ours")
            java.call("sql", text=f"create table {name} using hudi location '{folder / name}'")
            table = java_hudi.JavaTable((data.KEY,), (data.ORDERING,), buckets=_BUCKETS)
            began = time.monotonic()
            java.call(
                "sql", text=f"create index record_index on {name} ({data.KEY})",
                conf={**table.options(name), **_OPTIONS},
            )  # fmt: skip
            seconds = time.monotonic() - began
    return seconds


def _made(path: Path, rows: int) -> None:
    table = read_tables.create(path, buckets=_BUCKETS)
    read_tables.insert(table, 0, rows)
    read_tables.compacted(table)
    table.create_index("files")


def _asked(folder: Path, rows: int) -> list[Row]:
    path, chance = folder / "theirs", np.random.default_rng(7)
    numbers = chance.choice(rows, min(ASKED, rows // 2), replace=False)
    keys = data.keys(numbers)
    file = folder / "keys"
    file.write_text("\n".join(keys.to_pylist()) + "\n")
    source = Path(__file__).with_name("RecordIndexPeer.java")
    command = ["java", "-Xmx2g", "-cp", hfile.class_path(), str(source), str(path), str(file), str(_TIMES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise Missing(f"Java's look-ups did not run: {done.stderr.strip()[-300:]}")
    theirs: dict[str, list[float]] = {"many": [], "one": []}
    for line in done.stdout.splitlines():
        what, _, figure = line.partition(" ")
        if what in theirs:
            theirs[what].append(float(figure))
    ours = {
        "many": [index_keys.look_up(path, keys) for _ in range(_TIMES)],
        "one": [index_keys.look_up(path, keys.slice(n, 1)) for n in range(_TIMES)],
    }
    found = []
    for what, asked in (("many", keys), ("one", keys[:1])):
        own, peer = (statistics.median(seconds[what][_WARM:]) for seconds in (ours, theirs))
        found.append(
            row(
                f"look up {len(asked):,} of {rows:,} keys in a record index that Java built, opened anew",
                1 / own, "look-ups/s", against="Java Hudi, same table",
                baseline=1 / peer, target=1.0, note=f"{1000 * own:.1f} ms, Java {1000 * peer:.1f} ms",
            )
        )  # fmt: skip
    return found
