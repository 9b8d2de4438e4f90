"""The table that an INSERT writes: opened at its path, or created as Hudi's Flink writer would."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from mainstem.client import Table
from mainstem.flink.options import FlinkOptions


@dataclass(frozen=True)
class Target:
    """Where rows of one INSERT go.

    ``sink``: the name of its staging folders and of its guard identifier (``flink/<sink>``). ``columns``:
    the DDL's physical columns in order, as the table stores them (``flink_to_arrow``); the query's columns
    come in the same order, whatever they are called. ``key`` and ``partition``: column names.
    """

    table: Table
    sink: str
    columns: pa.Schema
    key: tuple[str, ...]
    partition: tuple[str, ...]
    options: FlinkOptions
