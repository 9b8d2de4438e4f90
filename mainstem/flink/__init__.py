"""mainstem in Apache Flink 2.3: the SQL of Hudi's Flink connector in PyFlink, without a connector jar.

    from mainstem.flink import connect
    t = connect(table_env)
    t.execute_sql("CREATE TABLE t1 (...) WITH ('connector' = 'hudi', 'path' = '/data/t1', ...)")
    t.execute_sql("INSERT INTO t1 SELECT ...")

PyFlink is imported when a table environment is connected, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.lazy import lazily

if TYPE_CHECKING:
    from mainstem.flink.environment import Environment, connect
    from mainstem.flink.insert_target import Target
    from mainstem.flink.options import FlinkOptions
    from mainstem.flink.streams import sink_to

__all__ = ["Environment", "FlinkOptions", "Target", "connect", "sink_to"]

_PLACES = {
    "Environment": "mainstem.flink.environment",
    "FlinkOptions": "mainstem.flink.options",
    "Target": "mainstem.flink.insert_target",
    "connect": "mainstem.flink.environment",
    "sink_to": "mainstem.flink.streams",
}

if not TYPE_CHECKING:  # a type checker must not believe that every name is there
    __getattr__, __dir__ = lazily(__name__, _PLACES)
