"""The peer of ``ingest``: Spark's own Kafka source, and our sink behind it, in a process of its own.

    python -m benchmarks.ingest_spark JARS SERVERS TOPIC PATH

JSON is parsed by Spark (``from_json``, whose columns must be told), in micro-batches of ``_BATCH`` records at
most. The first query warms JVM and workers up and counts for nothing. Of the second one it prints rows,
seconds, and seconds of processor of all its processes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

_COLUMNS = (
    "id bigint, customer string, city string, fare double, paid boolean, at_ms bigint, seats bigint, distance"
    " double, state string, note string"
)
_BATCH = 200_000


def processor_s(root: int) -> float:
    """Seconds of processor of a process and all that descend from it, as far as they live."""
    parents: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        number = int(stat.parent.name)
        parents.setdefault(int(fields[1]), []).append(number)
        spent[number] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # with children that ended
    found, left = 0.0, [root]
    while left:
        one = left.pop()
        found += spent.get(one, 0.0)
        left += parents.get(one, [])
    return found


def main(jars: str, servers: str, topic: str, path: str) -> None:
    """Run it, and print the figures as one line of JSON."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col, from_json

    import mainstem
    from mainstem.spark import write_stream

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(sorted(str(jar) for jar in Path(jars).glob("*.jar"))))
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1500m")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .getOrCreate()
    )
    options = {
        "hoodie.table.name": "peer",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": 4,
        "hoodie.table.services.enabled": False,
        "hoodie.mainstem.exclusive": True,
    }
    for turn in ("warm", "peer"):
        source = session.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        rows = source.option("maxOffsetsPerTrigger", _BATCH).load()
        rows = rows.select(from_json(col("value").cast("string"), _COLUMNS).alias("v")).select("v.*")
        began, cpu = time.monotonic(), processor_s(os.getpid())
        query = write_stream(
            rows, f"{path}-{turn}", options=options, checkpoint=f"{path}-{turn}-checkpoint",
            trigger={"availableNow": True},
        )  # fmt: skip
        query.awaitTermination()
        taken = time.monotonic() - began, processor_s(os.getpid()) - cpu
    count = mainstem.open_table(f"{path}-peer").scan().count_rows()
    print(json.dumps({"rows": count, "seconds": taken[0], "cpu": taken[1]}))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
