"""A Spark driver process with one streaming query into the table; its argument is JSON.

The source is Spark's own ``rate-micro-batch``: batch b holds the rows b*size to (b+1)*size - 1, so the
journal of batch numbers says which rows were committed. A query that fails is started again from its
checkpoint, as the whole process is when it dies.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress

from tests.chaos.rows import sql_columns
from tests.multiprocess.writer_worker import Journal

_OURS = re.compile(r"mainstem\.errors\.(\w+)")
#: exit codes: the JVM is gone, or the query failed for a reason that is none of ours
NO_JVM, BROKEN = 7, 8


def main(given: dict) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        f"--driver-memory {given['memory']} --driver-java-options"
        ' "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" pyspark-shell'
    )
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", given["checkpoint"] + "-warehouse")
        .getOrCreate()
    )
    jvm = session.sparkContext._gateway.proc
    stream = Stream(given)
    while True:
        try:
            stream.run(session)
        except Exception as error:
            with suppress(subprocess.TimeoutExpired):
                jvm.wait(timeout=2)  # a JVM that is killed needs a moment to be gone
                os._exit(NO_JVM)
            stream.failed(error)
            time.sleep(0.2)


class Stream:
    """The query, and what became of its batches."""

    def __init__(self, given: dict) -> None:
        self.given = given
        self.done, self.trouble = Journal(given["journal"]), Journal(given["journal"] + ".errors")

    def run(self, session) -> None:
        """Until the query fails or the process ends."""
        from mainstem.spark import write_stream

        given = self.given
        source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", given["rows"]).load()
        query = write_stream(
            source.selectExpr("value AS n").selectExpr(*_split(sql_columns(given["source"], "n"))),
            given["path"], options=given["options"], checkpoint=given["checkpoint"],
            trigger=f"{given['pause_ms']} milliseconds", on_outcome=self.told,
        )  # fmt: skip
        query.awaitTermination()

    def told(self, batch: int, outcome) -> None:
        self.done.add(batch=batch, status=outcome.status, instant=outcome.instant,
                      completion=outcome.completion_time, attempts=outcome.attempts)  # fmt: skip
        if os.path.exists(self.given["stop"]):
            # From within the batch, so that no later one can begin.
            os._exit(0)

    def failed(self, error: Exception) -> None:
        text = str(error)
        ours = _OURS.findall(text)
        self.trouble.add(error=ours[-1] if ours else type(error).__name__, message=text[-3000:])
        if not ours:
            sys.stderr.write(text + "\n")
            os._exit(BROKEN)


def _split(columns: str) -> list[str]:
    """A select list at its commas outside of parentheses."""
    parts, depth = [""], 0
    for sign in columns:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
