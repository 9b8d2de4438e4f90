"""Streams of PyFlink's DataStream API into Hudi tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import Unsupported
from mainstem.flink.environment import Environment

if TYPE_CHECKING:
    from pyflink.datastream import DataStream
    from pyflink.table import Schema

    from mainstem.flink.job import InsertResult


def sink_to(env: Environment, stream: DataStream, table: str, schema: Schema | None = None) -> InsertResult:
    """Write a stream of rows (with a ``Types.ROW_NAMED`` type) into a Hudi table that ``env`` declares.

    Columns are taken by position. ``schema``: types that the stream's own do not say, as for
    ``StreamTableEnvironment.from_data_stream``. The job is submitted when this returns. Raises as an INSERT
    does, and ``Unsupported`` for an environment without streams.
    """
    if not hasattr(env, "from_data_stream"):
        raise Unsupported("streams need a StreamTableEnvironment: connect one that was made with it")
    rows = env.from_data_stream(stream) if schema is None else env.from_data_stream(stream, schema)
    return env.create_statement_set().add_insert(table, rows).execute()
