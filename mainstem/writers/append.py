"""Appending rows: split a batch by bucket, one new log file per bucket and writer, blocks appended.

Order per file: partition metafile, marker, log file (HoodieAppendHandle; protocols 3.2). A log file
belongs to one instant and is invisible until that instant completes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid, MainstemError, RolledBack, Unavailable
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.java_properties import format_properties
from mainstem.formats.log_file import data_blocks, delete_block
from mainstem.storage import paths
from mainstem.storage.protocol import LogSink, Storage
from mainstem.table.bucket import bucket_ids, file_id_bucket, nbcc_file_id
from mainstem.table.keygen import KeyGenerator
from mainstem.table.properties import EVENT_TIME
from mainstem.table.schema import arrow_user_schema, fit_batch
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.timeline.instant import DELTACOMMIT, REQUESTED

_OPEN_FILES_MAX = 400
# Sequence numbers need only be unique within an instant. They begin here, and not at 1, because texts
# of one length cost a fraction of others to make and to encode.
_FIRST_SEQUENCE = 1_000_000
# Rows that are encoded in one go: few calls for many small buckets, bounded memory for large batches.
_SLAB_ROWS = 131_072
_THREE_DIGITS = np.array([b"%03d" % number for number in range(1000)], "V3")
IS_DELETED = "_hoodie_is_deleted"
DELETE = "delete"
UPDATE_COLUMNS = "update_columns"


@dataclass(frozen=True)
class WriteSpec:
    """All that a worker needs to append for one transaction; picklable, no live objects."""

    base: str
    instant: str
    operation: str
    table_name: str
    keys: KeyGenerator
    hash_fields: tuple[str, ...]
    buckets: int
    merge_mode: str
    ordering: tuple[str, ...]
    user_schema: str
    log_schema: str
    fsync: bool
    log_bytes_max: int
    #: (partition, bucket) -> file id, where a table already has one that is not the constant NBCC id
    file_ids: dict[tuple[str, int], str] = field(default_factory=dict)


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
        self._logs: dict[tuple[str, int], _OpenLog] = {}
        self._versions: dict[tuple[str, int], int] = {}
        self._known_ids: dict[str, dict[int, str]] = {}
        self._known_buckets = {} if known_buckets is None else known_buckets
        self._closed: list[WriteStat] = []
        self._folders: set[str] = set()
        self._sequence = _FIRST_SEQUENCE
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

    @property
    def wrote(self) -> bool:
        """Whether any file was made."""
        return bool(self._versions)

    def _write(self, batch: pa.Table) -> int:
        if batch.num_rows == 0:
            return 0
        rows = self._fit(batch)
        keys = self._spec.keys.record_keys(rows)
        partition_codes, partitions = self._spec.keys.partitions(rows)
        buckets = bucket_ids(
            keys.texts,
            buckets=self._spec.buckets,
            hash_fields=self._spec.hash_fields,
            parts=keys.parts,
        )
        deleted = self._deleted_rows(rows)
        group = partition_codes * self._spec.buckets + buckets
        order = _stable_order(group)
        sorted_group = group[order]
        rows = rows.combine_chunks().take(pa.array(order))
        texts = self._sorted_texts(rows, keys.texts, order)
        if deleted is not None:
            deleted = deleted[order]
        self._check_alive()
        for cuts in _slabs(sorted_group):
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

    def _fit(self, batch: pa.Table) -> pa.Table:
        spec = self._spec
        if spec.operation == DELETE:
            needed = [n for n in self._schema.names if n in spec.keys.needed_columns]
            given = [n for n in batch.column_names if self._schema.get_field_index(n) >= 0]
            return fit_batch(batch.select(given), self._schema, required=needed, table=spec.base)
        if spec.operation == UPDATE_COLUMNS:
            rows = self._widen(batch)
        else:
            rows = fit_batch(batch, self._schema, table=spec.base)
        if spec.merge_mode == EVENT_TIME:
            for name in spec.ordering:
                column = rows.column(name)
                if column.null_count:
                    row = int(np.flatnonzero(column.is_null().to_numpy())[0])
                    raise Invalid(
                        f"ordering field {name!r} is null in {column.null_count} rows, first in row"
                        f" {row}; EVENT_TIME_ORDERING needs a value in every row: fill or filter them",
                        table=spec.base,
                    )
        return rows

    def _widen(self, batch: pa.Table) -> pa.Table:
        spec = self._spec
        given = [n for n in batch.column_names if n not in META_FIELDS]
        needed = set(spec.keys.needed_columns)
        if spec.merge_mode == EVENT_TIME:
            needed |= set(spec.ordering)
        required = [n for n in self._schema.names if n in needed or n in given]
        part = fit_batch(batch, self._schema, required=required, table=spec.base)
        for name in part.column_names:
            nulls = part.column(name).null_count
            if nulls and name not in needed:
                raise Invalid(
                    f"column {name!r} has {nulls} nulls: update_columns cannot set a cell to null"
                    " (under IGNORE_DEFAULTS a null means 'keep the older value'); leave the column"
                    " out for these rows, or upsert full rows if keeping the older value is meant",
                    table=spec.base,
                )
        columns = [
            part.column(f.name) if f.name in part.column_names else pa.nulls(part.num_rows, f.type)
            for f in self._schema
        ]
        return pa.table(columns, schema=self._schema)

    def _deleted_rows(self, rows: pa.Table) -> np.ndarray | None:
        if self._spec.operation == DELETE:
            return np.ones(rows.num_rows, bool)
        if IS_DELETED not in rows.column_names:
            return None
        flags = rows.column(IS_DELETED)
        if flags.type != pa.bool_():
            return None
        flags = flags.combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)
        return flags if flags.any() else None

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
            table = self._with_meta(places, kept_bounds, kept_rows, kept_keys)
            blocks = data_blocks(spec.instant, spec.log_schema, table, kept_bounds)
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
        self, places: list[tuple[str, int]], bounds: list[int], rows: pa.Table, keys: pa.Array
    ) -> pa.Table:
        count = rows.num_rows
        spec = self._spec
        first = _same_width(self._sequence, count)
        self._sequence = first + count
        lengths = np.diff(np.array(bounds))
        meta = [
            _repeated([spec.instant], np.array([count])),
            _sequence_texts(f"{spec.instant}_{self._task}_", first, count),
            keys,
            _repeated([partition for partition, _ in places], lengths),
            _repeated([self._file_id(*place) for place in places], lengths),
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
        spec, storage = self._spec, self._storage
        self._ensure_partition(partition)
        file_id = self._file_id(partition, bucket)
        version = self._versions.get((partition, bucket), 0)
        while True:
            version += 1
            name = paths.log_name(file_id, spec.instant, version, self._token)
            path = paths.in_partition(partition, name)
            # The marker first: a file without one survives Java's rollback and comes back later.
            try:
                storage.create(paths.marker(spec.instant, partition, name), b"", durable=False)
                sink = storage.open_sink(path)
                break
            except FileExistsError:
                continue  # another attempt of this task has the name: take the next version
        self._versions[(partition, bucket)] = version
        self._folders.add(partition)
        stat = WriteStat(partition, file_id, name, spec.instant, version)
        return _OpenLog(sink, stat)

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


def as_table(rows: object) -> pa.Table:
    """Rows of a caller as a table; ``Invalid`` for anything but Arrow data."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    raise Invalid(
        f"rows are a {type(rows).__name__}, expected a pyarrow.Table or RecordBatch: convert them"
        " first (pyarrow.Table.from_pylist, from_pandas)"
    )


def _repeated(values: list[str], lengths: np.ndarray) -> pa.Array:
    """Each value so many times, as a dictionary array (encoded once per value)."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    codes = np.array([places[value] for value in values], np.int32)
    indices = pa.array(np.repeat(codes, lengths))
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(places), pa.string()))


def _same_width(first: int, count: int) -> int:
    """``first``, or the next power of ten if the numbers from there on would differ in length."""
    longer = 10 ** len(str(first))
    return first if first + count <= longer else longer


def _sequence_texts(prefix: str, first: int, count: int) -> pa.Array:
    """``<prefix><number>`` for ``count`` numbers of one length (four digits at least)."""
    head = prefix.encode()
    low, high = first // 1000, (first + count - 1) // 1000
    heads = [head + str(n).encode() for n in range(low, high + 1)]
    width = len(heads[0])
    # Items of a void type are copied as a whole, thousand by thousand.
    texts = np.empty((high - low + 1, 1000), [("head", f"V{width}"), ("tail", "V3")])
    texts["head"] = np.array(heads, f"V{width}")[:, None]
    texts["tail"] = _THREE_DIGITS
    texts = texts.reshape(-1)[first - 1000 * low :][:count]
    offsets = np.arange(0, (width + 3) * count + 1, width + 3, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _stable_order(groups: np.ndarray) -> np.ndarray:
    """Stable argsort; small numbers as 16-bit ones, which numpy sorts by radix."""
    small = len(groups) and int(groups.max()) < 2**16
    return np.argsort(groups.astype(np.uint16) if small else groups, kind="stable")


def _slabs(groups: np.ndarray) -> Iterator[list[int]]:
    """Cuts of sorted groups, in slabs of whole groups of about ``_SLAB_ROWS`` rows each."""
    cuts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    slab = [cuts[0]]
    for cut in cuts[1:]:
        slab.append(cut)
        if cut - slab[0] >= _SLAB_ROWS:
            yield slab
            slab = [cut]
    if len(slab) > 1:
        yield slab


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
