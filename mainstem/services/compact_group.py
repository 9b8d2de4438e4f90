"""Compacts one file group of a plan, in any process that reaches the table.

A ``GroupTask`` is picklable and needs no writer: the process that claimed the plan (``compaction.executing``)
runs the tasks in its own threads or on the workers of a cluster, and completes the plan with their results.
``services.executor`` explains why this is safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.base_file import BaseFileFormat, write_base_file
from mainstem.readers.rows.bounded_merge import read_bounded
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.services.clustering_order import RowOrder
from mainstem.services.compaction_plan import measured
from mainstem.services.planned_files import Kind, make_file
from mainstem.services.sorted_rows import read_in_order
from mainstem.storage import paths
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage, Upload
from mainstem.timeline.active import load_timeline
from mainstem.timeline.commit_metadata import CompactionStat
from mainstem.timeline.compaction_trigger import pending
from mainstem.timeline.instant import COMMIT, COMPACTION
from mainstem.timeline.plans import CompactionOperation
from mainstem.truetime.clock import Clock, SystemClock

FILE_NAME = META_FIELDS[4]
COMPACTIONS = Kind("compaction", COMPACTION, COMMIT, "COMPACT", paths.parse_base_name)


def final_name(time: str, number: int, operation: CompactionOperation) -> str:
    """Name of the new base file, determined by the plan alone."""
    return paths.base_name(operation.file_id, f"{number}-0-0", time)


@dataclass(frozen=True)
class GroupTask:
    """Everything needed to compact one file group; ``location`` is the table's.

    ``number``: place in the plan; ``spec``: what is read, all columns but the file's name; ``schema``: Avro
    schema of the new base file; ``log_rows``: rows and deleted keys in the logs, as their commits counted
    them; ``memory_bytes``: roughly what the task may use; ``durable``: fsync what is written; ``order``: of
    the rows, None for that of the old base file, then of the logs.
    """

    location: Location
    time: str
    number: int
    operation: CompactionOperation
    spec: ReadSpec = field(repr=False)
    schema: str = field(repr=False)
    how: BaseFileFormat
    log_rows: int
    memory_bytes: int
    durable: bool
    order: RowOrder | None = None

    @property
    def base(self) -> str:
        """The table's location as text."""
        return self.location.base

    @property
    def file_name(self) -> str:
        return final_name(self.time, self.number, self.operation)

    @property
    def target(self) -> str:
        """Path of the new base file."""
        return paths.in_partition(self.operation.partition, self.file_name)

    def run(
        self, identity: str, *, storage: Storage | None = None, clock: Clock | None = None
    ) -> CompactionStat:
        """Make the new base file, or find it already made; any number of attempts may run at once.

        ``identity``: hexadecimal text unique to this attempt (it names the private file). ``storage`` and
        ``clock`` default to those of this machine. Raises ``CorruptTable`` for damaged files,
        ``Unavailable`` where another executor completed the plan, ``OSError`` for trouble with storage.
        """
        storage = storage or storage_of(self.location, sync=self.durable)
        clock = clock or SystemClock()
        began = clock.monotonic_ms()

        def write(sink: Upload) -> None:
            write_base_file(self._rows(storage), self.schema, sink, self.how)

        info = make_file(
            storage,
            self.time,
            self.target,
            identity,
            lambda: write,
            what=COMPACTIONS.what,
            wanted=lambda: self.time in pending(load_timeline(storage)),
            durable=self.durable,
            marker=paths.marker(self.time, self.operation.partition, self.file_name),
        )
        operation = self.operation
        return CompactionStat(
            operation.partition,
            operation.file_id,
            self.file_name,
            operation.base_instant,
            operation.base_file,
            rows=_row_count(storage.open_input(self.target)),
            size_bytes=info.size,
            log_files=len(operation.log_files),
            log_bytes=measured(storage, operation).log_bytes,
            log_rows=self.log_rows,
            taken_ms=int(clock.monotonic_ms() - began),
        )

    def _rows(self, storage: Storage) -> Iterator[pa.Table]:
        operation = self.operation
        base, logs = split_paths(operation.partition, operation.base_file, operation.log_files)
        split = Split(operation.partition, operation.file_id, base, logs, self.spec)
        memory = self.memory_bytes
        if self.order is None:
            tables = read_bounded(storage, split, memory)
        else:
            tables = read_in_order(storage, [split], self.order, memory)
        for table in tables:
            yield table.append_column(FILE_NAME, pa.repeat(self.file_name, table.num_rows))


def _row_count(file: Any) -> int:
    with pq.ParquetFile(file) as source:
        return source.metadata.num_rows
