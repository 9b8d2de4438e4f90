"""Looks for record keys in the file groups of a table without buckets, a Spark task for each.

The keys of a batch are broadcast once per look. A task reads the keys of its file slice and nothing else, and
returns which of the batch's keys it met: four bytes for each. So memory is that of one file's keys per task,
and of the batch's keys everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.readers.queries.key_places import met_keys
from mainstem.spark.in_tasks import driver_context, in_tasks
from mainstem.storage.backends import storage_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from mainstem.api.table import Table
    from mainstem.readers.rows.split import Split
    from mainstem.storage.location import Location

# Below that a job of Spark's takes longer than looking.
_SPLITS_MIN, _KEYS_MIN = 2, 1000


@contextmanager
def looking_in_tasks(table: Table, session: SparkSession) -> Iterator[None]:
    """A block in which transactions of this process look for keys by tasks, where that is possible: a table
    with buckets looks for none, and the driver of Spark Connect is elsewhere."""
    ctx = table.writer_context()
    try:
        context = None if ctx.look_for_keys is None else driver_context(session, "looking for keys")
    except Unsupported:
        context = None
    before = ctx.look_elsewhere
    if context is not None:
        ctx.look_elsewhere = _Tasks(context, ctx.seams.storage.location)
    try:
        yield
    finally:
        ctx.look_elsewhere = before


class _Tasks:
    def __init__(self, context: SparkContext, location: Location) -> None:
        self._context = context
        self._location = location

    def __call__(self, splits: Sequence[Split], keys: pa.Array) -> list[np.ndarray | None] | None:
        """For each file slice the numbers of the keys that it has, None if a file is gone; None at all where
        looking here is faster."""
        if len(splits) < _SPLITS_MIN or len(keys) < _KEYS_MIN:
            return None
        table = pa.table({"key": keys})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        sent = self._context.broadcast(sink.getvalue().to_pybytes())
        location = self._location

        def met(split: Split) -> bytes | None:
            keys = pa.ipc.open_stream(sent.value).read_all().column("key").combine_chunks()
            try:
                return met_keys(storage_of(location), split, keys).astype("<i4").tobytes()
            except FileNotFoundError:
                return None

        try:
            called = f"write into {location}: look for record keys"
            found = in_tasks(self._context, met, splits, lambda _: None, "write the batch again", called)
        finally:
            sent.destroy()
        return [None if one is None else np.frombuffer(one, "<i4") for one in found]
