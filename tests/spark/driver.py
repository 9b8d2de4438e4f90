"""A driver process for tests: streams into tables of their own, one per way that the test names.

    python driver.py '{"folder": ..., "ways": [...], ...}'

The table of a way is in ``folder/<way>/t``, its checkpoint in ``folder/<way>/c``. It prints one JSON
line per event. ``kill_after``: way -> [batch, write]; when all ways have committed that write, and none
has returned from it, the whole driver, JVM included, dies by SIGKILL, before Spark notes the batches.
``meet``: a folder where two drivers wait for each other inside batch 0. ``stop_after``: the batch after
which a query stops.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """One event, at once; streams speak from threads."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Runs the queries until they stop, fail or die."""
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

    def die() -> None:
        os.kill(jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    here = threading.Barrier(len(task["ways"]), action=die)
    streams = [Stream(session, task, way, here) for way in task["ways"]]
    say(started=mainstem.__version__)
    stop_after = task.get("stop_after", 2)
    while streams:
        for stream in [s for s in streams if s.last >= stop_after or not s.query.isActive]:
            stream.end()
            streams.remove(stream)
        time.sleep(0.05)
    session.stop()


class Stream:
    """One query. ``last``: the newest batch of which a write was committed."""

    def __init__(self, session: SparkSession, task: dict, way: str, here: threading.Barrier) -> None:
        self.way, self.here = way, here
        self.kill_after, self.meeting = task.get("kill_after", {}).get(way), task.get("meet")
        self.table = str(Path(task["folder"], way, "t"))
        self.last = -1
        checkpoint = str(Path(task["folder"], way, "c"))
        source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        df = source.selectExpr("value as id", "value * 10 as v")
        if way == "write_stream":
            self.query = ms.write_stream(
                df, self.table, options=OPTIONS, checkpoint=checkpoint, trigger="100 milliseconds",
                on_outcome=lambda batch, outcome: self.wrote(batch, 0, outcome.status),
            )  # fmt: skip
        else:
            stream = df.writeStream.foreachBatch(self.several).option("checkpointLocation", checkpoint)
            self.query = stream.trigger(processingTime="100 milliseconds").start()

    def several(self, df: DataFrame, batch: int) -> None:
        if self.meeting and batch == 0:
            meet(Path(self.meeting))
        for number in (0, 1):
            rows = df.selectExpr(f"id + {number} * 1000000 as id", "v")
            if self.way == "source":
                rows.write.format("mainstem").mode("append").options(**OPTIONS).save(self.table)
                self.wrote(batch, number, "saved")
            else:
                self.wrote(batch, number, ms.write_batch(rows, self.table, options=OPTIONS).status)

    def wrote(self, batch: int, number: int, status: str) -> None:
        say(way=self.way, batch=batch, write=number, status=status)
        if self.kill_after == [batch, number]:
            self.here.wait(400)
        self.last = batch

    def end(self) -> None:
        failure = self.query.exception()
        self.query.stop()
        say(way=self.way, ended=True, error=str(failure)[:2000] if failure else None)


def meet(folder: Path) -> None:
    """Wait for another driver."""
    (folder / f"here-{os.getpid()}").touch()
    end = time.monotonic() + 400
    while len(list(folder.glob("here-*"))) < 2 and time.monotonic() < end:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
