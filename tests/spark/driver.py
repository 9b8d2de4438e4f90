"""A driver process for tests: one stream into one table, in a way that the test names.

    python driver.py '{"table": ..., "checkpoint": ..., "way": ..., ...}'

It prints one JSON line per event. ``kill_after``: [batch, write] after whose commit the whole
driver, JVM included, dies by SIGKILL, before Spark notes the batch. ``meet``: a folder where two
drivers wait for each other inside batch 0. ``stop_after``: the batch after which the query stops.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

import mainstem
from mainstem import spark as ms

ROWS = 20
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.time.generator.max_expected_clock_skew_ms": 5,
}


def say(**event: object) -> None:
    """One event, at once."""
    print(json.dumps(event), flush=True)


def main() -> None:
    """Runs the query until it stops, fails or dies."""
    task = json.loads(sys.argv[1])
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    ms.register(session)
    jvm = session.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    table, checkpoint = task["table"], task["checkpoint"]
    kill_after = task.get("kill_after")
    stop_after = task.get("stop_after", 2)
    last = [-1]

    def wrote(batch: int, number: int, status: str) -> None:
        say(batch=batch, write=number, status=status)
        if kill_after == [batch, number]:
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        last[0] = batch

    def meet(batch: int) -> None:
        if not task.get("meet") or batch != 0:
            return
        folder = Path(task["meet"])
        (folder / f"here-{os.getpid()}").touch()
        end = time.monotonic() + 150
        while len(list(folder.glob("here-*"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)

    def several(df: DataFrame, batch: int) -> None:
        meet(batch)
        for number in (0, 1):
            rows = df.selectExpr(f"id + {number} * 1000000 as id", "v")
            if task["way"] == "source":
                rows.write.format("mainstem").mode("append").options(**OPTIONS).save(table)
                wrote(batch, number, "saved")
            else:
                wrote(batch, number, ms.write_batch(rows, table, options=OPTIONS).status)

    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    df = source.selectExpr("value as id", "value * 10 as v")
    if task["way"] == "write_stream":
        query = ms.write_stream(
            df, table, options=OPTIONS, checkpoint=checkpoint, trigger="100 milliseconds",
            on_outcome=lambda batch, outcome: wrote(batch, 0, outcome.status),
        )  # fmt: skip
    else:
        stream = df.writeStream.foreachBatch(several).option("checkpointLocation", checkpoint)
        query = stream.trigger(processingTime="100 milliseconds").start()
    say(started=mainstem.__version__)
    while query.isActive and last[0] < stop_after:
        time.sleep(0.05)
    failure = query.exception()
    query.stop()
    say(ended=True, error=str(failure)[:2000] if failure else None)
    session.stop()


if __name__ == "__main__":
    main()
