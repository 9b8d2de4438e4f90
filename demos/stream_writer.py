"""One of the demo's writers: a process with one Spark streaming query that writes both tables.

    python -m demos.stream_writer STREAM PLACE CLOCK_OFFSET_MS [MASTER]

PLACE is a folder or a prefix of a bucket (``demos.places``). With MASTER its tasks run on that Spark cluster,
which does the services, too (``demos.spark_services``); without it they run in this process.

Says what it does on standard output, one JSON object per line: {"writing": table, "batch": id},
{"wrote": table, "batch": id, "rows": n, "status": s}, {"ended": true}.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from demos.flights import (
    KEY,
    PARTITION,
    STATUS_SCHEMA,
    WIDE_SCHEMA,
    event_schema,
    event_time_column,
    wide_columns,
)
from demos.places import Place
from demos.sent_before import SentBefore
from demos.speaking import end_with_parent, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WIDE, STATUS = "wide", "status"
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: Services run beside every stream, which is the default; so that a short job sees much of them:
SERVICES = {
    "hoodie.compact.inline.max.delta.commits": 5,
    "hoodie.clean.commits.retained": 3,
    "hoodie.keep.min.commits": 6,
    "hoodie.keep.max.commits": 10,
    # In a store instants of the status table, which others might write too, stay for half an hour otherwise.
    "hoodie.mainstem.archive.rest_ms": 3_000,
}


def options(stream: str, clock_offset_ms: int) -> dict[str, object]:
    """Options of every write: all but the clock and the names as a user would choose them."""
    return {
        **table_options(stream, clock_offset_ms),
        "hoodie.datasource.write.streaming.checkpoint.identifier": stream,
        # The demo promises that nothing fails, so nothing may be tried again in silence.
        "hoodie.datasource.write.streaming.retry.count": 0,
    }


def table_options(name: str, clock_offset_ms: int) -> dict[str, object]:
    """Those of them that say how a process works with a table, Spark or not."""
    return {
        "hoodie.mainstem.writer.name": name,
        "hoodie.mainstem.clock.offset_ms": clock_offset_ms,
        # A writer that is silent for 2 s x (3 + 1) is dead.
        "hoodie.client.heartbeat.interval_in_ms": 2000,
        "hoodie.client.heartbeat.tolerable.misses": 3,
        **SERVICES,
    }


def start_spark(
    name: str, place: Place, master: str = "", *, executors: int = 2, host: str = "127.0.0.1"
) -> SparkSession:
    """A small Spark: three of them share two cores. On a cluster of two hosts each has one executor, and if a
    host is lost, the other one has both; ``host``: the driver's address there."""
    from pyspark.sql import SparkSession

    settings = {
        **place.spark_settings(),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.cores.max": str(executors),
    }
    builder = SparkSession.builder.master(master or "local[1,4]").appName(name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class BatchWriter:
    """The function of ``foreachBatch``: every event to one table, the newest to the other."""

    def __init__(self, stream: str, place: Place, given: Mapping[str, object]) -> None:
        self._stream = stream
        self._place = place
        self._options = given
        self._sent = SentBefore(place.files("sent", stream))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        events = batch.toArrow()
        fresh = full_width(self._sent.keep(events, batch_id), self._stream)
        # One table on each way: the executors write the wide one, the driver the status table.
        on_executors = {"hoodie.mainstem.spark.driver.rows.max": 0}
        self._write(batch.sparkSession.createDataFrame(fresh), WIDE, batch_id, on_executors)
        self._write(batch.select(*STATUS_SCHEMA.names), STATUS, batch_id, {})

    def _write(self, rows: DataFrame, table: str, batch_id: int, more: Mapping[str, object]) -> None:
        from mainstem import spark as ms

        say(writing=table, batch=batch_id)
        outcome = ms.write_batch(rows, self._place.path(table), options={**self._options, **more})
        say(wrote=table, batch=batch_id, rows=outcome.rows, status=outcome.status)


def full_width(events: pa.Table, stream: str) -> pa.Table:
    """Rows of the wide table that fill only the columns of ``stream``; the others are null."""
    events = events.append_column(event_time_column(stream), events["event_time"])
    filled = {*KEY, PARTITION, *wide_columns(stream)}
    columns = [
        events[field.name].cast(field.type) if field.name in filled else pa.nulls(len(events), field.type)
        for field in WIDE_SCHEMA
    ]
    return pa.table(columns, schema=WIDE_SCHEMA)


def main(stream: str, place: Place, clock_offset_ms: int, master: str = "") -> None:
    from mainstem.spark.types import spark_schema

    end_with_parent()
    spark = start_spark(stream, place, master)
    given = options(stream, clock_offset_ms) | {"hoodie.table.services.enabled": str(not master).lower()}
    source = spark.readStream.schema(spark_schema(event_schema(stream)))
    events = source.option("maxFilesPerTrigger", 1).parquet(place.for_spark("events", stream))
    query = (
        events.writeStream.foreachBatch(BatchWriter(stream, place, given))
        .option("checkpointLocation", place.for_spark("checkpoints", stream))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    say(ended=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Place(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
