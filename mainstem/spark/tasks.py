"""Code that runs in Spark's task workers: writes Arrow batches as log files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from mainstem.layout.schema_fit import arrow_user_schema, fit_batch
from mainstem.layout.stored_rings import Rings
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location
from mainstem.writers.encode_rows import buckets_of
from mainstem.writers.write_spec import WriteSpec
from mainstem.writers.write_task import write_task

# Spark passes 10,000 rows at a time; larger blocks encode faster, and files have fewer of them.
_ROWS_TOGETHER = 100_000
_BYTES_TOGETHER = 64 * 1024 * 1024


def write_partition(spec: WriteSpec, batches: Iterable[pa.RecordBatch]) -> tuple[bytes, int]:
    """Writes one Spark partition; returns the task's result and the size of its Arrow batches in bytes."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "write_partition runs inside a Spark task"
    size = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal size
        for table in gathered(batches):
            size += table.nbytes
            yield table

    result = write_task(
        spec,
        counted(),
        task_partition=context.partitionId(),
        stage=context.stageId(),
        # Unique within the application: retries and speculative copies never write the same file.
        attempt=context.taskAttemptId(),
    )
    return result, size


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Joins small batches into tables of bounded size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


@lru_cache(maxsize=8)
def _schema(text: str) -> pa.Schema:
    return arrow_user_schema(text)


@lru_cache(maxsize=1)
def _rings(location: Location, instant: str, buckets: int, history: str) -> Rings:
    """Those of one transaction."""
    return Rings(storage_of(location), buckets, history)


def bucket_numbers(spec: WriteSpec, batch: pa.RecordBatch) -> np.ndarray:
    """Hudi's bucket of each row, int32."""
    names = list(dict.fromkeys(spec.keys.key_fields))
    if spec.bucket_rules is not None or spec.rings is not None:
        names = list(dict.fromkeys([*names, *spec.keys.partition_fields]))
    table = pa.Table.from_batches([batch]).select(names)
    rows = fit_batch(table, _schema(spec.user_schema), required=names, table=spec.base)
    keys = spec.keys.record_keys(rows)
    if spec.rings is not None:
        rings = _rings(spec.location, spec.instant, spec.buckets, spec.rings)
        return buckets_of(spec, keys, *spec.keys.partitions(rows), rings)[0]
    if spec.bucket_rules is None:
        return buckets_of(spec, keys, np.zeros(0, np.int64), [])[0]
    return buckets_of(spec, keys, *spec.keys.partitions(rows))[0]
