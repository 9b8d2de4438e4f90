"""mainstem in Apache Spark 4.1 to 4.3: a streaming sink, a batch writer, table services, a data source.

    from mainstem import spark as ms
    query = ms.write_stream(df, "/data/trips", options={...}, checkpoint="/chk/trips")
    ms.write_batch(df, "/data/trips")
    ms.run_services(spark, "/data/trips")
    ms.register(spark); spark.read.format("mainstem").load("/data/trips")

This module is imported in four kinds of Spark's Python workers, so it loads nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.spark.workers import speed_up_workers

if TYPE_CHECKING:
    from mainstem.spark.services import run_services
    from mainstem.spark.sink import use_session, write_batch, write_stream
    from mainstem.spark.source import HudiSource, MainstemSource, register

__all__ = [
    "HudiSource",
    "MainstemSource",
    "register",
    "run_services",
    "use_session",
    "write_batch",
    "write_stream",
]

_HOMES = {
    "HudiSource": "source",
    "MainstemSource": "source",
    "register": "source",
    "run_services": "services",
    "use_session": "sink",
    "write_batch": "sink",
    "write_stream": "sink",
}

speed_up_workers()


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
