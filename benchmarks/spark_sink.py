"""1 million rows through our Spark sink, against the same way that only counts, and Java's sink.

Ten Parquet files of 100,000 rows, one per micro-batch, ``local[2]``. "Only counts" is a
``foreachBatch`` sink that brings the same batches to the same place (the driver as Arrow, or Python
tasks) and counts them: what is left is the price of keys, buckets, log files, fsync and two
commits. Sinks take turns; medians of the repeats.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import FOLDER, Missing, Row, data, row, work_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
FILES = 10
BUCKETS = 8
JAVA = "java.sink"


def _source(folder: Path, rows: int, files: int) -> Path:
    folder.mkdir(parents=True)
    table = data.rows(np.arange(rows))
    step = rows // files
    for number in range(files):
        pq.write_table(table.slice(number * step, step), folder / f"{number:04}.parquet")
    return folder


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(FOLDER.parent)
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Missing("pyspark is not installed") from error
    return (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
        .getOrCreate()
    )


def _options(*, executors: bool) -> dict[str, Any]:
    return {
        "hoodie.table.name": "sink",
        "hoodie.datasource.write.recordkey.field": data.KEY,
        "hoodie.datasource.write.precombine.field": data.ORDERING,
        "hoodie.bucket.index.num.buckets": BUCKETS,
        # The sink alone is measured here, and its table is removed as soon as the query has ended.
        "hoodie.table.services.enabled": False,
        "hoodie.mainstem.spark.driver.rows.max": 0 if executors else 10_000_000,
        "hoodie.mainstem.spark.driver.bytes.max": 0 if executors else 2**40,
    }


def _count_in_driver(df: DataFrame, batch: int) -> None:
    df.toArrow().num_rows  # noqa: B018


def _count_in_tasks(df: DataFrame, batch: int) -> None:
    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([sum(b.num_rows for b in batches)])})

    df.mapInArrow(count, "n bigint").collect()


class _Bench:
    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._turn = 0

    def _stream(self, source: Path) -> DataFrame:
        schema = self._session.read.parquet(str(source)).schema
        stream = self._session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return stream.parquet(str(source))

    def count(self, source: Path, function: Callable[[DataFrame, int], None]) -> float:
        """Seconds for all files through a sink that only counts."""
        self._turn += 1
        writer = self._stream(source).writeStream.foreachBatch(function)
        writer = writer.option("checkpointLocation", str(self._folder / f"c{self._turn}"))
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return time.perf_counter() - began

    def write(self, source: Path, rows: int, *, executors: bool) -> float:
        """Seconds for all files into a new table."""
        import mainstem
        from mainstem.spark import write_stream

        self._turn += 1
        table = self._folder / f"t{self._turn}"
        df = self._stream(source)
        began = time.perf_counter()
        query = write_stream(
            df, str(table), options=_options(executors=executors),
            checkpoint=str(self._folder / f"c{self._turn}"), trigger={"availableNow": True},
        )  # fmt: skip
        query.awaitTermination()
        seconds = time.perf_counter() - began
        found = mainstem.open_table(table).scan(columns=[data.KEY]).to_arrow().num_rows
        if found != rows:
            raise RuntimeError(f"the sink's table has {found} rows, expected {rows}")
        shutil.rmtree(table)
        return seconds


def run(reduced: bool) -> list[Row]:
    """Rows of the table: two ways, each against its own counting sink, and Java's."""
    folder = work_folder("spark-sink")
    session = _session()
    try:
        source = _source(folder / "source", ROWS, FILES)
        warm = _source(folder / "warm", 20_000, 2)
        bench = _Bench(session, folder)
        ways: dict[str, tuple[Callable[[DataFrame, int], None], bool]] = {
            "driver": (_count_in_driver, False),
            "executors": (_count_in_tasks, True),
        }
        seconds: dict[tuple[str, str], list[float]] = {}
        for count, executors in ways.values():
            bench.count(warm, count)
            bench.write(warm, 20_000, executors=executors)
        for _ in range(2 if reduced else 5):
            for way, (count, executors) in ways.items():
                counted = bench.count(source, count)
                written = bench.write(source, ROWS, executors=executors)
                seconds.setdefault((way, "count"), []).append(counted)
                seconds.setdefault((way, "write"), []).append(written)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    rate = {key: ROWS / statistics.median(values) for key, values in seconds.items()}
    work = f"Spark sink, {ROWS:,} rows in {FILES} micro-batches, fsync"
    best = max(rate["driver", "write"], rate["executors", "write"])
    return [
        row(f"{work}, through the driver", rate["driver", "write"], "rows/s",
            against="df.toArrow() that only counts", baseline=rate["driver", "count"], target=0.4),
        row(f"{work}, on executors", rate["executors", "write"], "rows/s",
            against="mapInArrow that only counts", baseline=rate["executors", "count"], target=0.4),
        row(f"{work}, the better way", best, "rows/s", against="Java Hudi's streaming sink",
            baseline_id=JAVA, target=5),
    ]  # fmt: skip
