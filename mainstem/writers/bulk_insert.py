"""Bulk insert: writes rows of new buckets directly to base files, rows of other buckets to log files.

Under a bucket index, a (partition, bucket) keeps one file group forever. If it has no file yet, the rows
become its base file. Otherwise they are appended as log blocks, as Hudi's
``RDDSimpleBucketBulkInsertPartitioner`` does: a second base file would hide the logs before it. Rows with
the same key are merged by the table's rules before they are written, because a base file must hold each
key once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.formats.base_file import write_base_file
from mainstem.formats.lsm_order import sorted_by_key
from mainstem.formats.schema_resolution import project_to
from mainstem.merge.file_slice import merge_slice
from mainstem.merge.log_entries import DataRows, deleted_rows
from mainstem.options.engines import SHUFFLE
from mainstem.publish.showing import unshown_names
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.writers.append import BucketAppender
from mainstem.writers.encode_rows import Place, Slab
from mainstem.writers.fit_rows import with_marks, without_marks
from mainstem.writers.write_spec import BULK_INSERT, OF_BASE_FILES, WriteSpec

_KEY = META_FIELDS[2]

class BaseFileStat(WriteStat):
    """A new base file, as Java's HoodieCreateHandle reports it."""

    def record(self) -> dict[str, object]:
        """The Avro record. For a new file group Java writes the text ``"null"`` as the previous commit."""
        return super().record() | {
            "prevCommit": "null",
            "numInserts": self.writes,
            "numUpdateWrites": 0,
            "logVersion": None,
            "logOffset": None,
            "baseFile": None,
            "logFiles": None,
        }


def appender_for(
    storage: Storage,
    spec: WriteSpec,
    token: str,
    known_buckets: dict[str, set[int]] | None = None,
    known_partitions: set[str] | None = None,
    surely_alive: Callable[[], bool] = lambda: False,
) -> BucketAppender:
    """The writer of a transaction's rows: ``BulkInserter`` for bulk inserts, ``Overwriter`` for overwrites,
    else ``BucketAppender``."""
    kind: type[BucketAppender] = BucketAppender
    if spec.operation in OF_BASE_FILES:
        kind = BulkInserter if spec.operation == BULK_INSERT else Overwriter
    return kind(storage, spec, token, known_buckets, known_partitions, surely_alive)


def stat_of(**fields: Any) -> WriteStat:
    """A write stat for a base file or a log file, by its file name."""
    is_base = paths.parse_base_name(str(fields["file_name"])) is not None
    return (BaseFileStat if is_base else WriteStat)(**fields)


def check_one_base_file_each(stats: list[WriteStat], table: str, instant: str) -> None:
    """Raises ``Invalid`` for two base files of one file group: readers would show only one of them."""
    seen: set[tuple[str, str]] = set()
    for stat in (stat for stat in stats if isinstance(stat, BaseFileStat)):
        place = (stat.partition, stat.file_id)
        if place in seen:
            raise Invalid(
                f"two tasks wrote a base file for bucket {stat.file_id[:8]} of partition"
                f" {stat.partition!r}: bulk inserts need all rows of a bucket in one task"
                f" (in Spark, write_stream and write_batch ensure this unless {SHUFFLE}=OFF; with"
                ' format("mainstem") use df.coalesce(1)); nothing was published',
                table=table,
                instant=instant,
            )
        seen.add(place)


def check_names_differ(stats: list[WriteStat], table: str, instant: str) -> None:
    """Raises ``Invalid`` for one file name in two partitions: Java looks up statistics by bare file name
    (``FileTokens``)."""
    seen: dict[str, str] = {}
    for stat in stats:
        other = seen.setdefault(stat.file_name, stat.partition)
        if other != stat.partition:
            raise Invalid(
                f"partitions {other!r} and {stat.partition!r} both have a file {stat.file_name}: two tasks"
                " were given the same numbers (task_partition, stage, attempt); give each task its own."
                " Nothing was published",
                table=table,
                instant=instant,
            )


class BulkInserter(BucketAppender):
    """Holds the rows of new buckets in memory until ``finish``, which writes their base files."""

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        token: str,
        known_buckets: dict[str, set[int]] | None = None,
        known_partitions: set[str] | None = None,
        surely_alive: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(storage, spec, token, known_buckets, known_partitions, surely_alive)
        self._waiting: dict[Place, list[pa.Table]] = {}
        self._occupied: dict[str, set[int]] = {}

    @property
    def wrote(self) -> bool:
        """Whether this writer has made a file, or holds rows that will make one."""
        return super().wrote or bool(self._waiting) or bool(self._closed)

    @property
    def groups_written(self) -> frozenset[tuple[str, str]]:
        """With those whose rows wait."""
        return super().groups_written | {(place[0], self.file_id(*place)) for place in self._waiting}

    def _append(self, slab: Slab) -> None:
        self.torn = True  # until the whole batch is held or written
        for place, low, high in zip(slab.places, slab.bounds[:-1], slab.bounds[1:], strict=True):
            count = high - low
            rows, keys = slab.rows.slice(low, count), slab.keys.slice(low, count)
            if self._has_files(*place):
                flags = None if slab.deleted is None else slab.deleted[low:high]
                super()._append(Slab([place], [0, count], rows, keys, flags))
                continue
            named = self._encoder.with_meta([place], [self._base_name(*place)], [0, count], rows, keys)
            self._waiting.setdefault(place, []).append(named)

    def _has_files(self, partition: str, bucket: int) -> bool:
        """Whether the file group has files of other instants, completed or not.

        Each partition is listed once, after this instant was requested. The listing shows the files of
        every instant completed by then. Logs of an instant that completes later merge over the base file.
        """
        found = self._occupied.get(partition)
        if found is None:
            found = self._occupied[partition] = self._buckets_of_others(partition)
        return bucket in found

    def _buckets_of_others(self, partition: str) -> set[int]:
        found: set[int] = set()
        for name in (*unshown_names(self._storage, partition), *self._storage.names(partition)):
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            bucket = self.bucket_of(partition, parsed.file_id) if parsed else None
            if parsed is not None and bucket is not None and parsed.instant != self._spec.instant:
                found.add(bucket)
        return found

    def _base_name(self, partition: str, bucket: int) -> str:
        file_id = self.file_id(partition, bucket)
        return paths.base_name(file_id, self._tokens(partition), self._spec.instant)

    def finish(self) -> list[WriteStat]:
        """Writes the base files, then finishes the log files as ``BucketAppender.finish`` does."""
        self._put(sorted(self._waiting))
        return super().finish()

    def _put(self, places: list[Place]) -> None:
        self._check_whole()
        self.torn = True  # until all base files are written
        for place in places:
            self._write_base(place, self._waiting[place])
        for place in places:
            del self._waiting[place]
        self.torn = False

    def _write_base(self, place: Place, tables: list[pa.Table]) -> None:
        rows = self._merged(pa.concat_tables(tables))
        if rows.num_rows:
            self._put_base(place[0], self.file_id(*place), rows, late=True)

    def _put_base(
        self,
        partition: str,
        file_id: str,
        rows: pa.Table,
        deletes: int = 0,
        *,
        small: bool = False,
        late: bool = False,
    ) -> None:
        """``small``: with a Bloom filter for these rows and no more, as there will be many such files.
        ``late``: others may write to the file group meanwhile (``publish.showing``)."""
        how = self._encoder.layout
        if how.bloom is not None and (small or not rows.num_rows):  # else 400 KB for a few keys
            entries = min(how.bloom.entries, max(rows.num_rows, 1))
            how = replace(how, bloom=replace(how.bloom, entries=entries))
        if self._spec.sorted_files:
            rows = sorted_by_key(rows)
        name = paths.base_name(file_id, self._tokens(partition), self._spec.instant)
        unshown = late and self._spec.shown_late
        sink = self._open_file(partition, name, unshown=unshown)
        stat = BaseFileStat(
            partition, file_id, name, self._spec.instant, 0, deletes=deletes, blocks=1, unshown=unshown
        )
        self._closed.append(stat)
        try:
            stat.writes = write_base_file([rows], self._spec.log_schema, sink, how)
        finally:
            self._put_markers()
            sink.close(durable=self._spec.fsync)
        stat.size_bytes = sink.size

    def _merged(self, rows: pa.Table) -> pa.Table:
        """Merges rows of one key by the table's rules, so that each key stands once; drops deleted rows."""
        rules = self._spec.rules
        keys = rows.column(_KEY)
        once = pc.count_distinct(keys).as_py() == len(keys)
        stored = avro_to_arrow(self._spec.log_schema)
        if once and deleted_rows(rows, rules) is None:
            return without_marks(rows, stored)
        schema = with_marks(stored, [rows])
        kinds = rules.ordering_types(schema)
        entry = DataRows(project_to(rows, schema))
        merged = merge_slice([], [entry], schema, rules, kinds)
        return pa.concat_tables([schema.empty_table(), *merged]).select(stored.names)


class Overwriter(BulkInserter):
    """Rows become base files of all buckets, also of those that have files (``writers.overwriting``)."""

    #: Other tasks may hold rows of the same keys: files keep the rows that are deletes, and their stats count
    #: them, so that the commit merges all of a bucket at once.
    of_a_part = False

    def _write_base(self, place: Place, tables: list[pa.Table]) -> None:
        rows = pa.concat_tables(tables)
        deleted = deleted_rows(rows, self._spec.rules) if self.of_a_part else None
        if deleted is None:
            rows = self._merged(rows)
        # Without a row, too: the partition is one of those that the rows name.
        deletes = 0 if deleted is None else int(deleted.sum())
        self._put_base(place[0], self.file_id(*place), rows, deletes, late=True)

    def _has_files(self, partition: str, bucket: int) -> bool:
        return False

    @property
    def held(self) -> frozenset[tuple[str, str]]:
        """(partition, file id) of the buckets whose rows wait for ``finish``."""
        return frozenset((place[0], self.file_id(*place)) for place in self._waiting)

    def put_held(self, partition: str, file_id: str) -> None:
        """Writes the base file of one bucket whose rows wait."""
        asked = (partition, file_id)
        self._put([place for place in self._waiting if (place[0], self.file_id(*place)) == asked])

    def put_empty(self, partition: str, file_id: str) -> None:
        """An empty base file: no row of the file group is left."""
        self.torn = True
        self._put_base(partition, file_id, avro_to_arrow(self._spec.log_schema).empty_table(), late=True)
        self.torn = False
