"""Compacts one file group of a plan, in any process that reaches the table.

A ``GroupTask`` is picklable and needs no writer: the process that claimed the plan (``compaction.executing``)
runs the tasks in its own threads or on the workers of a cluster, and completes the plan with their results.
``services.executor`` explains why this is safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.base_file import BaseFileFormat, BaseFileWriter, OlderFile, write_base_file
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.merge.in_place import KeyTwice
from mainstem.publish.staging import Content
from mainstem.readers.rows.bounded_merge import read_bounded, read_updated
from mainstem.readers.rows.sorted_merge import Unsorted, merges_sorted, read_sorted
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.services.change_files import ChangeFile
from mainstem.services.clustering_order import RowOrder
from mainstem.services.compaction_plan import measured
from mainstem.services.kept_deletes import DeletesSeen, KeptDeletes
from mainstem.services.native_files import NativeFiles
from mainstem.services.planned_files import Kind, make_file
from mainstem.services.sorted_rows import read_in_order
from mainstem.storage import paths
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location
from mainstem.storage.protocol import FileInfo, Storage, Upload
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.commit_metadata import CompactionStat, WriteStat, decode_commit
from mainstem.timeline.compaction_trigger import pending
from mainstem.timeline.instant import COMMIT, COMPACTION
from mainstem.timeline.plans import CompactionOperation
from mainstem.truetime.clock import Clock, SystemClock
from mainstem.writers.row_order import repeated

FILE_NAME = META_FIELDS[4]
_log = logging.getLogger(__name__)


def _made_name(name: str) -> paths.BaseName | paths.LogName | None:
    return paths.parse_base_name(name) or paths.parse_log_name(name)


COMPACTIONS = Kind("compaction", COMPACTION, COMMIT, "COMPACT", _made_name)


def final_name(time: str, number: int, operation: CompactionOperation) -> str:
    """Name of the new base file, determined by the plan alone."""
    return paths.base_name(operation.file_id, f"{number}-0-0", time)


@dataclass(frozen=True)
class GroupTask:
    """Everything needed to compact one file group; ``location`` is the table's.

    ``number``: place in the plan; ``spec``: what is read, all columns but the file's name; ``schema``: Avro
    schema of the new base file; ``log_rows``: rows and deleted keys in the logs, as their commits counted
    them; ``memory_bytes``: roughly what the task may use; ``durable``: fsync what is written; ``order``: of
    the rows, None for that of the old base file, then of the logs; ``keep_hours``: for how long deletes are
    kept beside the base file (``services.kept_deletes``), 0: they are not; ``native``: how native log files
    are written, None: the table has none. In an ``lsm_tree`` table ``order`` is that of record keys.
    ``changes``: the logging mode of a table that records change data.
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
    keep_hours: int = 0
    native: NativeFiles | None = None
    changes: str | None = None

    @property
    def base(self) -> str:
        """The table's location as text."""
        return self.location.base

    @property
    def has_sorted_files(self) -> bool:
        """Whether the table is an LSM tree."""
        return self.native is not None and self.native.sorted_files

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

        seen = DeletesSeen(self.spec)

        def write(
            sink: Upload, side_by_side: bool = self.has_sorted_files, in_place: bool = self.order is None
        ) -> None:
            if in_place:
                self._write_in_place(storage, seen, sink)
            else:
                write_base_file(self._rows(storage, seen, side_by_side), self.schema, sink, self.how)

        try:
            info = self._make(storage, self.file_name, identity, lambda: write)
        except Unsorted as error:
            _log.warning(
                "%s: %s is not sorted by record key, as readers of such a table (lsm_tree) expect; it is"
                " sorted now", self.base, error.path,
            )  # fmt: skip
            again = partial(write, side_by_side=False)
            info = self._make(storage, self.file_name, identity, lambda: again)
        except KeyTwice:
            again = partial(write, in_place=False)
            info = self._make(storage, self.file_name, identity, lambda: again)
        kept = None if seen.none else self._keep(storage, identity)
        changes = self._tell_changes(storage, identity)
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
            kept=kept,
            changes=changes,
        )

    def _tell_changes(self, storage: Storage, identity: str) -> tuple[str, int] | None:
        """Make the file of change data; its path and size. None where the table records none."""
        if self.changes is None or self.native is None:
            return None
        file = ChangeFile(
            self.time, self.operation, self.spec, self.schema, self.file_name, self.changes, self.native.how,
            self.memory_bytes,
        )  # fmt: skip
        info = self._make(storage, file.file_name, identity, lambda: partial(file.write, storage))
        return file.target, info.size

    def _make(
        self,
        storage: Storage,
        name: str,
        identity: str,
        content: Callable[[], Content],
        then: Callable[[], None] = lambda: None,
    ) -> FileInfo:
        return make_file(
            storage,
            self.time,
            paths.in_partition(self.operation.partition, name),
            identity,
            content,
            what=COMPACTIONS.what,
            wanted=lambda: self.time in pending(load_timeline(storage)),
            durable=self.durable,
            marker=paths.marker(self.time, self.operation.partition, name),
            then=then,
        )

    def _keep(self, storage: Storage, identity: str) -> WriteStat | None:
        """Make the log file of the deletes that outlive the compaction, unless there is nothing to keep."""
        if not self.keep_hours:
            return None
        operation = self.operation
        kept = KeptDeletes(
            self.time, operation, self.spec, self.schema, self.file_name, self.keep_hours, self.memory_bytes,
            self.native,
        )  # fmt: skip
        if storage.stat(kept.target) is None:
            content = kept.content(storage)
            if content is None:
                return None

            def remove_if_too_late() -> None:
                """Another executor, which had nothing to keep, may have completed the plan meanwhile."""
                if _is_left_out(storage, load_timeline(storage), self.time, kept):
                    storage.delete(kept.target)
                    storage.delete_tree(paths.marker_folder(self.time))

            self._make(storage, kept.file_name, identity, lambda: content, remove_if_too_late)
        count, blocks_made, size = kept.measured(storage)
        return WriteStat(
            operation.partition, operation.file_id, kept.file_name, self.time, 1,
            deletes=count, size_bytes=size, blocks=blocks_made,
        )  # fmt: skip

    def _write_in_place(self, storage: Storage, seen: DeletesSeen, sink: Upload) -> None:
        """Write the rows in the places that they have in the old base file, where the logs delete none: keys
        and Bloom filter are then taken over."""
        groups = read_updated(storage, self._split(), self.memory_bytes, self.how.group_bytes, seen.note)
        first = next(groups, None)
        older = None if first is None or first.older is None else first.older
        if first is None or older is None:
            rows = () if first is None else (one.rows for one in chain([first], groups))
            write_base_file(map(self._named, rows), self.schema, sink, self.how)
            return
        about = older.source.metadata
        replaced = OlderFile(older.file, about.num_rows, about.metadata or {})
        file = BaseFileWriter(self.schema, sink, self.how, older=replaced)
        try:
            for group in chain([first], groups):
                file.write(self._named(group.rows), group.known, group.same)
            file.close()
        finally:
            file.give_up()

    def _split(self) -> Split:
        operation = self.operation
        base, logs = split_paths(operation.partition, operation.base_file, operation.log_files)
        return Split(operation.partition, operation.file_id, base, logs, self.spec)

    def _named(self, table: pa.Table) -> pa.Table:
        """The rows with the name of their file, which takes no memory for each."""
        return table.append_column(FILE_NAME, repeated([self.file_name], np.array([table.num_rows])))

    def _rows(self, storage: Storage, seen: DeletesSeen, side_by_side: bool) -> Iterator[pa.Table]:
        split, memory = self._split(), self.memory_bytes
        blocks = [log for log in split.log_files if self.has_sorted_files and not paths.is_native_log(log)]
        if blocks and side_by_side:
            _log.warning(
                "%s: %s is a log file of blocks, which Hudi's readers of such a table (lsm_tree) do not know;"
                " it is compacted as in other tables", self.base, blocks[0],
            )  # fmt: skip
        if side_by_side and merges_sorted(split, memory):
            tables = read_sorted(storage, split, memory, seen.note)
        elif self.order is None:
            tables = read_bounded(storage, split, memory, seen.note)
        else:
            tables = read_in_order(storage, [split], self.order, memory, seen.note)
        for table in tables:
            yield self._named(table)


def _is_left_out(storage: Storage, timeline: ActiveTimeline, time: str, kept: KeptDeletes) -> bool:
    """Whether the compaction is completed and its commit does not name the file of its kept deletes."""
    for instant in timeline.completed:
        if instant.requested == time and instant.action == COMMIT:
            path = paths.timeline_file(instant.file_name)
            data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
            return kept.target not in decode_commit(data, path=path).files()
    return False


def _row_count(file: Any) -> int:
    with pq.ParquetFile(file) as source:
        return source.metadata.num_rows
