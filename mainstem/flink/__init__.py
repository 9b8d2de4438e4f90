"""mainstem in Apache Flink 2.3: the SQL of Hudi's Flink connector in PyFlink, without a connector jar.

    from mainstem.flink import connect
    t = connect(table_env)
    t.execute_sql("CREATE TABLE t1 (...) WITH ('connector' = 'hudi', 'path' = '/data/t1', ...)")
    t.execute_sql("INSERT INTO t1 SELECT ...")

PyFlink is imported when a table environment is connected, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem.flink.environment import Environment, connect
    from mainstem.flink.options import FlinkOptions
    from mainstem.flink.streams import sink_to
    from mainstem.flink.target import Target

__all__ = ["Environment", "FlinkOptions", "Target", "connect", "sink_to"]

_HOMES = {
    "Environment": "environment",
    "FlinkOptions": "options",
    "Target": "target",
    "connect": "environment",
    "sink_to": "streams",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
