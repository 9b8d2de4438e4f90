"""A Spark writer of the collision: a streaming query, one micro-batch per batch of the load.

    python -m demos.collision_spark FOLDER LOAD WRITER FIRST_BATCH

FIRST_BATCH is not needed: Spark's checkpoint knows where to go on. Says what ``collision_writer`` says.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow.parquet as pq

from demos.collision_load import BUCKETS, GATE, KEY, ORDERING, SCHEMA, Load
from demos.collision_systems import mainstem_options
from demos.speaking import end_with_parent, say, wait_for_the_start
from demos.stream_writer import start_spark


def source(folder: Path, load: Load, writer: int) -> Path:
    """The writer's batches as files, made once; Spark takes them by their times."""
    path = folder / "sources" / f"writer-{writer}"
    if not path.exists():
        making = path.with_name(path.name + ".making")
        making.mkdir(parents=True, exist_ok=True)
        for batch in range(load.batches):
            file = making / f"batch-{batch:04d}.parquet"
            pq.write_table(load.rows(writer, batch), file)
            os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))
        making.rename(path)
    return path


def main(folder: Path, load: Load, writer: int) -> None:
    from mainstem import spark as ms
    from mainstem.spark.types import spark_schema

    end_with_parent()
    name = f"writer-{writer}"
    files = source(folder, load, writer)
    spark = start_spark(name)
    wait_for_the_start(folder / GATE)
    stream = spark.readStream.schema(spark_schema(SCHEMA)).option("maxFilesPerTrigger", 1)
    query = ms.write_stream(
        stream.parquet(str(files)),
        str(folder / "table"),
        checkpoint=str(folder / "checkpoints" / name),
        trigger={"availableNow": True},
        on_outcome=lambda batch, _: say(**{"in": batch, "repeated": 0}),
        options={
            **mainstem_options(name),
            "hoodie.datasource.write.recordkey.field": KEY,
            "hoodie.datasource.write.precombine.field": ORDERING,
            "hoodie.bucket.index.num.buckets": BUCKETS,
            "hoodie.datasource.write.streaming.checkpoint.identifier": name,
            # Nothing may be tried again in silence.
            "hoodie.datasource.write.streaming.retry.count": 0,
        },
    )
    query.awaitTermination()
    say(ended=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Load.from_json(sys.argv[2]), int(sys.argv[3]))
