"""The driver of the cluster test: two writes; tasks of the second wait in the middle for a sign.

python cluster_driver.py MASTER FOLDER
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem import spark as ms

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 480_000
PARTITIONS = 4
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.mainstem.spark.driver.rows.max": 0,
}


def waiting(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """After 110,000 rows a task waits until ``go`` is there; 100,000 reach the log files."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from pyspark import TaskContext

        rows = 0
        shown = False
        for batch in batches:
            if rows >= 110_000 and not shown:
                shown = True
                context = TaskContext.get()
                name = f"task-{context.partitionId()}-{context.taskAttemptId()}-{os.getpid()}"
                (Path(folder) / name).touch()
                end = time.monotonic() + 400
                while not (Path(folder) / "go").exists() and time.monotonic() < end:
                    time.sleep(0.05)
            rows += batch.num_rows
            yield batch

    return run


def main() -> None:
    """Writes through the executors, then through the data source."""
    master, folder = sys.argv[1:]
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.executorEnv.PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        .getOrCreate()
    )
    ms.register(session)
    small = session.range(0, 2_000, 1, PARTITIONS).selectExpr("id", "id as v")
    outcome = ms.write_batch(small, f"{folder}/t", options=OPTIONS)
    print(json.dumps({"executors": outcome.status, "rows": outcome.rows}), flush=True)
    large = session.range(0, ROWS, 1, PARTITIONS).selectExpr("id", "id + 1 as v")
    held = large.mapInArrow(waiting(folder), large.schema)
    held.write.format("mainstem").mode("append").options(**OPTIONS).save(f"{folder}/t")
    read = session.read.format("mainstem").option("columns", "id,v").load(f"{folder}/t")
    count, total = read.selectExpr("count(*)", "sum(v - id)").collect()[0]
    print(json.dumps({"source": "saved", "count": count, "changed": total}), flush=True)
    session.stop()


if __name__ == "__main__":
    main()
