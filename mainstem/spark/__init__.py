"""mainstem in Apache Spark 4.1 to 4.3: a streaming sink, a batch writer, table services, indexes,
a data source.

    from mainstem import spark as ms
    query = ms.write_stream(df, "/data/trips", options={...}, checkpoint="/chk/trips")
    ms.write_batch(df, "/data/trips")
    ms.run_services(spark, "/data/trips")
    ms.create_index(spark, "/data/trips", "column_stats", ["fare"])
    ms.sql(spark, "SHOW INDEXES FROM mainstem.`/data/trips`")
    ms.register(spark); spark.read.format("mainstem").load("/data/trips")

Four kinds of Spark's Python workers import this module, so it loads its parts only on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.lazy import lazily
from mainstem.spark.worker_repairs import speed_up_workers

if TYPE_CHECKING:
    from mainstem.spark.indexes import create_index
    from mainstem.spark.nearest_join import vector_join
    from mainstem.spark.services import run_services
    from mainstem.spark.sink import use_session, write_batch, write_stream
    from mainstem.spark.source import HudiSource, MainstemSource, register
    from mainstem.spark.source_readers import explain
    from mainstem.spark.sql_statements import sql
    from mainstem.spark.stream_metrics import stream_metrics

__all__ = [
    "HudiSource",
    "MainstemSource",
    "create_index",
    "explain",
    "register",
    "run_services",
    "sql",
    "stream_metrics",
    "use_session",
    "vector_join",
    "write_batch",
    "write_stream",
]

_PLACES = {
    "HudiSource": "mainstem.spark.source",
    "MainstemSource": "mainstem.spark.source",
    "create_index": "mainstem.spark.indexes",
    "explain": "mainstem.spark.source_readers",
    "register": "mainstem.spark.source",
    "run_services": "mainstem.spark.services",
    "sql": "mainstem.spark.sql_statements",
    "stream_metrics": "mainstem.spark.stream_metrics",
    "use_session": "mainstem.spark.sink",
    "vector_join": "mainstem.spark.nearest_join",
    "write_batch": "mainstem.spark.sink",
    "write_stream": "mainstem.spark.sink",
}

if not TYPE_CHECKING:  # a type checker must not believe that every name is there
    __getattr__, __dir__ = lazily(__name__, _PLACES)

speed_up_workers()
