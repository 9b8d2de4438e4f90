"""Appending rows: split a batch by bucket, one new log file per bucket and writer, blocks appended.

Order per file: partition metafile, marker, log file (HoodieAppendHandle; protocols 3.2). A log file
belongs to one instant and is invisible until that instant completes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid, MainstemError, RolledBack, Unavailable
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro
from mainstem.formats.base_file import BaseFileFormat
from mainstem.formats.java_properties import format_properties
from mainstem.formats.log_file import Header, data_blocks, delete_block
from mainstem.storage import paths
from mainstem.storage.protocol import LogSink, Storage
from mainstem.table.bucket import bucket_ids, file_id_bucket, nbcc_file_id
from mainstem.table.schema import arrow_user_schema
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.timeline.instant import DELTACOMMIT, REQUESTED
from mainstem.writers.arrange import (
    FIRST_SEQUENCE,
    repeated,
    same_width,
    sequence_texts,
    slabs,
    stable_order,
)
from mainstem.writers.fit import as_table, delete_flags, fit_rows
from mainstem.writers.spec import DELETE, WriteSpec

_OPEN_FILES_MAX = 400


@dataclass
class _OpenLog:
    sink: LogSink
    stat: WriteStat


class BucketAppender:
    """Writes batches of one transaction (or of one task of it). Not thread-safe.

    ``token`` is the write token ``<task partition>-<stage>-<attempt>``; the instant makes names unique
    across writers, the token within the instant. ``known_buckets`` (partition -> buckets that were seen
    with the constant NBCC file id) may be shared by the transactions of a table and saves listings.
    """

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        token: str,
        known_buckets: dict[str, set[int]] | None = None,
    ) -> None:
        self._storage = storage
        self._spec = spec
        self._token = token
        self._task = token.split("-", 1)[0]
        self._schema = arrow_user_schema(spec.user_schema)
        self._layout = BaseFileFormat.from_properties(spec.layout)
        self._logs: dict[tuple[str, int], _OpenLog] = {}
        self._versions: dict[tuple[str, int], int] = {}
        self._known_ids: dict[str, dict[int, str]] = {}
        self._known_buckets = {} if known_buckets is None else known_buckets
        self._closed: list[WriteStat] = []
        self._folders: set[str] = set()
        self._sequence = FIRST_SEQUENCE
        self.rows = 0
        #: a batch was left half-written (full disk, interrupt): these files must not be published
        self.torn = False

    # -- batches ---------------------------------------------------------------------------------

    def write(self, batch: pa.Table | pa.RecordBatch) -> int:
        """Append a batch; returns the number of rows. Nothing is written when a row is refused."""
        try:
            return self._write(as_table(batch))
        except MainstemError as error:
            error.table = error.table or self._spec.base
            raise

    def adopt(self, spec: WriteSpec) -> None:
        """Write what follows in the schema of ``spec``; each block says its own."""
        self._spec = spec
        self._schema = arrow_user_schema(spec.user_schema)

    @property
    def wrote(self) -> bool:
        """Whether any file was made."""
        return bool(self._versions)

    def _write(self, batch: pa.Table) -> int:
        if batch.num_rows == 0:
            return 0
        rows = fit_rows(batch, self._spec, self._schema)
        keys = self._spec.keys.record_keys(rows)
        if self._spec.operation != DELETE:
            self._spec.keys.check_for_java(keys, self._spec.hash_fields)
        partition_codes, partitions = self._spec.keys.partitions(rows)
        buckets = bucket_ids(
            keys.texts,
            buckets=self._spec.buckets,
            hash_fields=self._spec.hash_fields,
            parts=keys.parts,
        )
        deleted = delete_flags(rows, self._spec)
        group = partition_codes * self._spec.buckets + buckets
        order = stable_order(group)
        sorted_group = group[order]
        rows = rows.combine_chunks().take(pa.array(order))
        texts = self._sorted_texts(rows, keys.texts, order)
        if deleted is not None:
            deleted = deleted[order]
        self._check_alive()
        for cuts in slabs(sorted_group):
            places = [divmod(int(sorted_group[start]), self._spec.buckets) for start in cuts[:-1]]
            start, end = cuts[0], cuts[-1]
            self._append(
                [(partitions[code], bucket) for code, bucket in places],
                [cut - start for cut in cuts],
                rows.slice(start, end - start),
                texts.slice(start, end - start),
                None if deleted is None else deleted[start:end],
            )
        self.torn = False
        self.rows += batch.num_rows
        return batch.num_rows

    def _sorted_texts(self, rows: pa.Table, texts: pa.Array, order: np.ndarray) -> pa.Array:
        """Key texts in the order of ``rows``; a plain text key is there already."""
        plain = self._spec.keys.plain_key
        if plain is not None:
            column = rows.column(plain)
            if column.type == pa.string() and column.num_chunks == 1:
                return column.chunk(0)
        return texts.take(pa.array(order))

    # -- files -----------------------------------------------------------------------------------

    def _append(
        self,
        places: list[tuple[str, int]],
        bounds: list[int],
        rows: pa.Table,
        keys: pa.Array,
        deleted: np.ndarray | None,
    ) -> None:
        """Rows ``bounds[i]:bounds[i + 1]`` go to ``places[i]`` (partition, bucket)."""
        spec = self._spec
        kept_rows, kept_keys, kept_bounds = rows, keys, bounds
        if deleted is not None:
            kept = pa.array(~deleted)
            kept_rows, kept_keys = rows.filter(kept), keys.filter(kept)
            before = np.concatenate(([0], np.cumsum(~deleted)))
            kept_bounds = before[np.array(bounds)].tolist()
        blocks: list[list[bytes | memoryview]] = [[] for _ in places]
        if kept_rows.num_rows:
            file_ids = [self._file_id(*place) for place in places]
            table = self._with_meta(places, file_ids, kept_bounds, kept_rows, kept_keys)
            blocks = self._data_blocks(table, kept_bounds)
        self.torn = True  # until the whole batch is appended: a half-written block must not commit
        for i, (partition, bucket) in enumerate(places):
            log = self._log(partition, bucket)
            if blocks[i]:
                log.sink.append(blocks[i])
                log.stat.writes += kept_bounds[i + 1] - kept_bounds[i]
                log.stat.blocks += 1
            if deleted is not None:
                part = slice(bounds[i], bounds[i + 1])
                self._append_deletes(
                    log, partition, rows[part], keys[part], pa.array(deleted[part])
                )
            log.stat.size_bytes = log.sink.size
            if log.sink.size >= spec.log_bytes_max:
                self._close_log((partition, bucket))

    def _data_blocks(self, table: pa.Table, bounds: list[int]) -> list[list[bytes | memoryview]]:
        spec = self._spec
        schema, extra = spec.log_schema, {}
        if spec.partial_blocks:
            schema = arrow_to_avro(table.schema, table_name=spec.table_name, meta_fields=True)
            extra = {Header.IS_PARTIAL: "true"}
        return data_blocks(
            spec.instant,
            schema,
            table,
            bounds,
            block_format=spec.block_format,  # type: ignore[arg-type]
            compression=self._layout.compression,
            extra=extra,
        )

    def _append_deletes(
        self, log: _OpenLog, partition: str, rows: pa.Table, keys: pa.Array, gone: pa.Array
    ) -> None:
        """Java turns such rows into DELETE blocks behind the data blocks.

        ``delete`` itself is unconditional (IntWrapper 0), a row flag keeps its ordering value.
        """
        spec = self._spec
        gone_keys = keys.filter(gone)
        if not len(gone_keys):
            return
        ordering = None
        if spec.operation != DELETE and spec.ordering:
            ordering = [rows.column(n).filter(gone).combine_chunks() for n in spec.ordering]
        log.sink.append(delete_block(spec.instant, spec.log_schema, gone_keys, partition, ordering))
        log.stat.deletes += len(gone_keys)
        log.stat.blocks += 1

    def _with_meta(
        self,
        places: list[tuple[str, int]],
        files: list[str],
        bounds: list[int],
        rows: pa.Table,
        keys: pa.Array,
    ) -> pa.Table:
        """Hudi's meta columns in front; ``files``: file id (in logs) or base file name per place."""
        count = rows.num_rows
        spec = self._spec
        first = same_width(self._sequence, count)
        self._sequence = first + count
        lengths = np.diff(np.array(bounds))
        meta = [
            repeated([spec.instant], np.array([count])),
            sequence_texts(f"{spec.instant}_{self._task}_", first, count),
            keys,
            repeated([partition for partition, _ in places], lengths),
            repeated(files, lengths),
        ]
        return pa.table([*meta, *rows.columns], names=[*META_FIELDS, *rows.column_names])

    def _log(self, partition: str, bucket: int) -> _OpenLog:
        key = (partition, bucket)
        log = self._logs.get(key)
        if log is None:
            if len(self._logs) >= _OPEN_FILES_MAX:
                self._close_log(next(iter(self._logs)))
            log = self._logs[key] = self._open_log(partition, bucket)
        return log

    def _open_log(self, partition: str, bucket: int) -> _OpenLog:
        spec = self._spec
        file_id = self._file_id(partition, bucket)
        version = self._versions.get((partition, bucket), 0)
        while True:
            version += 1
            name = paths.log_name(file_id, spec.instant, version, self._token)
            try:
                sink = self._open_file(partition, name)
                break
            except FileExistsError:
                continue  # another attempt of this task has the name: take the next version
        self._versions[(partition, bucket)] = version
        stat = WriteStat(partition, file_id, name, spec.instant, version)
        return _OpenLog(sink, stat)

    def _open_file(self, partition: str, name: str) -> LogSink:
        """A new data file. Raises ``FileExistsError`` if the name is taken."""
        self._ensure_partition(partition)
        # The marker first: a file without one survives Java's rollback and comes back later.
        self._storage.create(paths.marker(self._spec.instant, partition, name), b"", durable=False)
        sink = self._storage.open_sink(paths.in_partition(partition, name))
        self._folders.add(partition)
        return sink

    def _ensure_partition(self, partition: str) -> None:
        if partition in self._folders:
            return
        metafile = paths.partition_metafile(partition)
        if self._storage.stat(metafile) is not None:
            return
        depth = len(partition.split("/")) if partition else 0
        text = format_properties(
            {"commitTime": self._spec.instant, "partitionDepth": str(depth)},
            comments=("partition metadata", self._spec.instant),
        )
        # Whole or not at all: Java fails on the half-written one of a writer that was killed, for ever.
        private = paths.prepared(self._spec.instant, f"{self._token}-partition")
        self._storage.delete(private)  # an attempt of the same name that was killed
        self._storage.create(private, text, durable=True)
        try:
            if partition:
                self._storage.make_folder(partition)
            self._storage.link(private, metafile)
        except FileExistsError:
            return
        finally:
            self._storage.delete(private)

    def _file_id(self, partition: str, bucket: int) -> str:
        if bucket in self._known_buckets.get(partition, ()):
            return nbcc_file_id(bucket)
        known = self._known_ids.get(partition)
        if known is None or bucket not in known:
            known = self._known_ids[partition] = existing_file_ids(self._storage, partition)
            # Only what a listing showed, and only the constant id: whoever writes that bucket later
            # sees the same file group. A bucket without a file is looked up again each time.
            constant = {b for b, file_id in known.items() if file_id == nbcc_file_id(b)}
            self._known_buckets.setdefault(partition, set()).update(constant)
        return known.setdefault(bucket, nbcc_file_id(bucket))

    def _check_alive(self) -> None:
        """A rolled-back writer must not leave files behind that nobody will ever remove."""
        spec = self._spec
        # Not the inflight file, which a writer stopped inside begin may make after its rollback.
        requested = paths.timeline_file(f"{spec.instant}.{DELTACOMMIT}.{REQUESTED}")
        if self._storage.stat(requested) is None:
            self.discard()
            # Markers made since the rollback removed the folder; no live writer can have this instant.
            self._storage.delete_folder(paths.marker_folder(spec.instant))
            raise RolledBack(
                "the transaction's instant is gone from the timeline: another writer found its"
                " heartbeat expired and rolled it back; write the data again in a new transaction"
                " (raise hoodie.client.heartbeat.interval_in_ms if the process pauses for long)",
                table=spec.base,
                instant=spec.instant,
            )

    def _close_log(self, key: tuple[str, int]) -> None:
        log = self._logs.pop(key)
        log.sink.close(durable=self._spec.fsync)
        log.stat.size_bytes = log.sink.size
        self._closed.append(log.stat)

    def close(self) -> list[WriteStat]:
        """Make all files durable; returns one stat per log file. Raises ``RolledBack`` if undone."""
        if self.torn:
            raise Invalid(
                "an earlier write of this transaction failed halfway: its files hold part of a batch."
                " Abort it and write all batches again in a new transaction",
                table=self._spec.base,
                instant=self._spec.instant,
            )
        logs = list(self._logs.values())
        self._logs.clear()
        for log in logs:
            log.stat.size_bytes = log.sink.size
            self._closed.append(log.stat)
        folders = set(self._folders)
        # Up to the base: another writer may have made the folder and not yet synced its name.
        for partition in self._folders:
            while partition:
                partition = partition.rpartition("/")[0]
                folders.add(partition)
        try:
            self._storage.settle(
                [log.sink for log in logs], sorted(folders), durable=self._spec.fsync
            )
        except OSError as error:
            raise Unavailable(
                f"closing log files failed: {error}; nothing was published",
                table=self._spec.base,
                instant=self._spec.instant,
            ) from error
        self._check_alive()
        return list(self._closed)

    def discard(self) -> None:
        """Close and remove every file of this appender (abort; rolled back meanwhile)."""
        for key in list(self._logs):
            log = self._logs.pop(key)
            log.sink.close(durable=False)
            self._closed.append(log.stat)
        for stat in self._closed:
            self._storage.delete(stat.path)
        self._closed.clear()


def existing_file_ids(storage: Storage, partition: str) -> dict[int, str]:
    """Bucket -> file id of the file groups that a partition already has.

    Raises ``CorruptTable`` when one bucket has two: rows written to either would be doubled.
    """
    found: dict[int, str] = {}
    for name in storage.names(partition):
        parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
        bucket = file_id_bucket(parsed.file_id) if parsed else None
        if parsed is None or bucket is None:
            continue
        other = found.setdefault(bucket, parsed.file_id)
        if other != parsed.file_id:
            raise CorruptTable(
                f"bucket {bucket} of partition {partition!r} has two file groups, {other!r} and"
                f" {parsed.file_id!r}; a bucket index allows one. Writing would double rows: remove the"
                " duplicate with the engine that made it",
                path=paths.in_partition(partition, name),
                table=storage.base,
            )
    return found
