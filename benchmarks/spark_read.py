"""Spark SQL reads two of twenty columns and a hundredth of the rows of a compacted table, beside Spark's own
Parquet source on the same files.

Both run in turns in one session of two cores. The filter's column is in no order, so no file and no row group
can be left out: what is measured is reading, filtering and handing rows to Spark. The first turn, of a JVM
that is cold, is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import FOLDER, Missing, Row, row, work_folder

ROWS, BUCKETS, TURNS = 5_000_000, 8, 5
QUERY = "SELECT n3, d2 FROM {} WHERE n3 < 10"


def run(reduced: bool) -> list[Row]:
    """Rows of the table that are passed in a second, and the same of Parquet's source."""
    folder = work_folder("spark_read")
    rows = ROWS // 10 if reduced else ROWS
    try:
        _table(folder, rows)
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.spark_read", str(folder)]
        done = subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True, timeout=2000)
        if done.returncode:
            raise Missing((done.stderr.strip().splitlines() or ["no output"])[-1][:300])
        found = json.loads(done.stdout.strip().splitlines()[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (ours, our_time), (theirs, their_time) = found["ours"], found["parquet"]
    return [
        row(f"Spark reads 2 of 20 columns and 1 % of {rows:,} rows, compacted", rows / ours, "rows/s",
            against="Spark's Parquet source, same files", baseline=rows / theirs,
            target=None if reduced else 0.5,
            note=f"processor time {our_time:.2f} s against {their_time:.2f} s")
    ]  # fmt: skip


def _table(folder: Path, rows: int) -> None:
    import mainstem

    random = np.random.default_rng(1)
    names = pa.array([f"name-{number:06d}" for number in range(50_000)])
    schema = pa.schema(
        [("id", pa.string()), ("ts", pa.int64())]
        + [(f"n{i}", pa.int64()) for i in range(6)]
        + [(f"d{i}", pa.float64()) for i in range(6)]
        + [(f"s{i}", pa.string()) for i in range(6)]
    )
    table = mainstem.create_table(str(folder / "table"), schema, record_key="id", ordering="ts",
                                  buckets=BUCKETS)  # fmt: skip
    with table.begin("bulk_insert") as txn:
        for start in range(0, rows, 500_000):
            count = min(500_000, rows - start)
            ids = pa.array([f"key-{number:09d}" for number in range(start, start + count)])
            columns = [ids, pa.array(np.full(count, 1))]
            columns += [pa.array(random.integers(0, 1000, count)) for _ in range(6)]
            columns += [pa.array(random.random(count)) for _ in range(6)]
            columns += [names.take(pa.array(random.integers(0, len(names), count))) for _ in range(6)]
            txn.write(pa.table(columns, schema=schema))
        txn.commit()


def main(folder: Path) -> None:
    """Reads in turns; prints (seconds, processor seconds) of each, the median of the turns."""
    from benchmarks.merge_peer import processor_seconds, session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(FOLDER.parent)
    spark = session("ours", folder)
    from mainstem import spark as ms

    ms.register(spark)
    path = folder / "table"
    spark.read.parquet(f"{path}/*.parquet").createOrReplaceTempView("files")
    asked = {
        "ours": lambda: ms.sql(spark, QUERY.format(f"mainstem.`{path}`")),
        "parquet": lambda: spark.sql(QUERY.format("files")),
    }
    counts = {name: ask().count() for name, ask in asked.items()}
    assert counts["ours"] == counts["parquet"] > 0, counts
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for _ in range(TURNS + 1):
        for name, ask in asked.items():
            began, before = time.perf_counter(), processor_seconds()
            ask().write.format("noop").mode("overwrite").save()
            times[name].append((time.perf_counter() - began, processor_seconds() - before))
    print(times, file=sys.stderr)
    found = {name: list(map(statistics.median, zip(*of[1:], strict=True))) for name, of in times.items()}
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
