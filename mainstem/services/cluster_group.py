"""Writes one of the new files that a group of a clustering's plan becomes, in any process.

``services.executor`` explains why any number of attempts may run at once: the name of the file follows from
the plan alone, and so do its rows. Where a group becomes several files, which row goes into which must not
depend on who divides them:

- without an order, a hash of its key tells a row's file, under consistent hashing by the new ring;
- with one, its number among all rows does. Rows of one place are put in the order of their keys, or, along a
  curve, everybody computes the same curve, with the same memory.

Each file costs a reading of its group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.base_file import BaseFileFormat, write_base_file
from mainstem.layout.buckets import java_string_hash
from mainstem.layout.hash_rings import Ring, ring_hashes
from mainstem.limits import MIB
from mainstem.lsm_archive.reader import Archive
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.bounded_merge import read_bounded
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.services.clustering_order import RowOrder
from mainstem.services.planned_files import Kind, make_file
from mainstem.services.sorted_rows import put_in_order, read_in_order
from mainstem.storage import paths
from mainstem.storage.protocol import Storage, Upload
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.clustering_plans import CLUSTER, ClusteringGroup
from mainstem.timeline.instant import CLUSTERING, REPLACECOMMIT
from mainstem.writers.bulk_insert import BaseFileStat

FILE_NAME = META_FIELDS[4]
CLUSTERINGS = Kind("clustering", CLUSTERING, REPLACECOMMIT, CLUSTER, paths.parse_base_name)
# Of a group that becomes several files: whoever divides it reads it in the same pieces.
_DIVIDING_BYTES = 512 * MIB


def pending(timeline: ActiveTimeline) -> list[str]:
    """Requested times of the planned clusterings, oldest first."""
    return sorted({i.requested for i in timeline.pending if i.action == CLUSTERING})


def new_file_id(time: str, group: int, number: int) -> str:
    """Id of the new file group with this number, determined by the plan alone."""
    digest = hashlib.sha256(f"clustering {time} {group} {number}".encode()).digest()
    return f"{UUID(bytes=digest[:16], version=4)}-0"


@dataclass(frozen=True)
class OutputTask:
    """Everything needed to write the file ``number`` of the plan's group ``at``.

    ``spec``: what is read, all columns but the file's name; ``schema``: Avro schema of the new file;
    ``memory_bytes``: roughly what the task may use; ``durable``: fsync what is written; ``history``: folder
    of the archive.
    """

    time: str
    at: int
    number: int
    group: ClusteringGroup
    spec: ReadSpec = field(repr=False)
    schema: str = field(repr=False)
    how: BaseFileFormat
    memory_bytes: int
    durable: bool
    history: str
    order: RowOrder | None = None
    #: under consistent hashing: the new file group, the ring that tells which rows are its own, and by what
    given_id: str = ""
    ring: Ring | None = None
    hash_fields: tuple[str, ...] = ()

    @property
    def file_id(self) -> str:
        """The new file group."""
        return self.given_id or new_file_id(self.time, self.at, self.number)

    @property
    def file_name(self) -> str:
        """Name of its base file."""
        return paths.base_name(self.file_id, f"{self.at}-{self.number}-0", self.time)

    @property
    def target(self) -> str:
        """Path of its base file."""
        return paths.in_partition(self.group.partition, self.file_name)

    def run(self, storage: Storage, identity: str) -> BaseFileStat:
        """Make the file, or find it already made.

        ``identity``: hexadecimal text unique to this attempt. Raises ``CorruptTable`` for damaged files,
        ``Unavailable`` where another process ended the plan, ``OSError`` for trouble with storage.
        """

        def write(sink: Upload) -> None:
            write_base_file(self._named(storage), self.schema, sink, self.how)

        info = make_file(
            storage,
            self.time,
            self.target,
            identity,
            lambda: write,
            what=CLUSTERINGS.what,
            wanted=lambda: self.time in pending(load_timeline(storage)),
            durable=self.durable,
            marker=paths.marker(self.time, self.group.partition, self.file_name),
            then=lambda: self._remove_if_taken_back(storage),
        )
        with pq.ParquetFile(storage.open_input(self.target)) as source:
            rows = source.metadata.num_rows
        return BaseFileStat(
            self.group.partition, self.file_id, self.file_name, self.time, 0,
            writes=rows, size_bytes=info.size, blocks=1,
        )  # fmt: skip

    def _remove_if_taken_back(self, storage: Storage) -> None:
        """This process may have been suspended while the plan was taken back. Its file would then belong to
        no instant, and Java would show it once the active timeline starts later."""
        shown = any(i.requested == self.time for i in load_timeline(storage).instants)
        if not shown and not Archive.load(storage, self.history).is_archived(self.time):
            storage.delete(self.target)
            storage.delete_tree(paths.marker_folder(self.time))

    def _named(self, storage: Storage) -> Iterator[pa.Table]:
        for table in self._rows(storage):
            yield table.append_column(FILE_NAME, pa.repeat(self.file_name, table.num_rows))

    def _rows(self, storage: Storage) -> Iterator[pa.Table]:
        order, parts, splits = self.order, self.group.outputs, self._splits()
        if parts == 1:
            if order is None:
                return self._as_stored(storage, splits)
            return read_in_order(storage, splits, order, self.memory_bytes)
        if order is None or self.ring is not None:
            rows = self._by_hash(self._as_stored(storage, splits))
            return rows if order is None else put_in_order(rows, order.columns, self.memory_bytes)
        if not order.is_curve and KEY_COLUMN not in order.columns:
            order = replace(order, columns=(*order.columns, KEY_COLUMN))
        narrow = [replace(s, spec=replace(s.spec, columns=(KEY_COLUMN,))) for s in splits]
        total = sum(table.num_rows for table in self._as_stored(storage, narrow))
        low, high = total * self.number // parts, total * (self.number + 1) // parts
        return _between(read_in_order(storage, splits, order, _DIVIDING_BYTES), low, high)

    def _as_stored(self, storage: Storage, splits: list[Split]) -> Iterator[pa.Table]:
        for split in splits:
            yield from read_bounded(storage, split, self.memory_bytes)

    def _by_hash(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            if self.ring is not None:
                texts = table.column(KEY_COLUMN).cast(pa.string()).combine_chunks()
                nodes = self.ring.find(ring_hashes(texts, hash_fields=self.hash_fields, parts=None))
                yield table.filter(pa.array(nodes == self.ring.nodes[self.file_id]))
                continue
            keys = table.column(KEY_COLUMN).cast(pa.string()).combine_chunks()
            hashed = java_string_hash(keys).astype(np.int64) & 0x7FFFFFFF
            yield table.filter(pa.array(hashed % self.group.outputs == self.number))

    def _splits(self) -> list[Split]:
        found = []
        for one in self.group.slices:
            base, logs = split_paths(one.partition, one.base_file, one.log_files)
            found.append(Split(one.partition, one.file_id, base, logs, self.spec))
        return found


def _between(tables: Iterator[pa.Table], low: int, high: int) -> Iterator[pa.Table]:
    """The rows from number ``low`` to before ``high``."""
    at = 0
    for table in tables:
        start, end = max(low - at, 0), min(high - at, table.num_rows)
        at += table.num_rows
        if start < end:
            yield table.slice(start, end - start)
