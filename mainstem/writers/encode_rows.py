"""Encodes a batch as log blocks: fits its rows to the table, sorts them by bucket, adds Hudi's meta columns.

Nothing here touches storage, but for rings (``layout/stored_rings.py``). ``append`` writes the blocks into
log files, ``staged_rows`` into private files. From table version 10 on a block is a file of its own, which
``open_logs`` encodes; here its rows are laid out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro
from mainstem.formats.base_file import FEW_ROWS, BaseFileFormat
from mainstem.formats.log_file import Header, data_blocks, delete_block
from mainstem.formats.native_log import deletes_table
from mainstem.formats.vectors import taken
from mainstem.layout.buckets import bucket_ids
from mainstem.layout.hash_rings import ring_hashes
from mainstem.layout.keys import KeyColumns
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.layout.stored_rings import Rings
from mainstem.metadata.commits.written_rows import WrittenRows
from mainstem.writers.fit_rows import delete_flags, fit_rows, without_mark
from mainstem.writers.made_up_keys import carried, with_column
from mainstem.writers.row_order import (
    FIRST_SEQUENCE,
    repeated,
    same_width,
    sequence_texts,
    slabs,
    stable_order,
)
from mainstem.writers.write_spec import DELETE, DELETES, OF_BASE_FILES, WriteSpec

Place = tuple[str, int]
"""(partition path, bucket)"""

Placed = tuple[np.ndarray, list[str], np.ndarray, int]
"""For each row the number of its partition; the partitions; for each row its bucket; more than any bucket"""


@dataclass(frozen=True)
class Slab:
    """Rows sorted by place: ``bounds[i]:bounds[i + 1]`` go to ``places[i]``."""

    places: list[Place]
    bounds: list[int]
    rows: pa.Table
    keys: pa.Array
    #: mask of the rows that are deletes; None if there are none
    deleted: np.ndarray | None = None


@dataclass(frozen=True)
class Keyed:
    """Rows in the table's columns with their record keys; row i belongs to ``partitions[codes[i]]``.

    ``deleted``: mask of the rows that are deletes, None if there are none. Of a delete only the ordering
    fields count.
    """

    rows: pa.Table
    keys: pa.Array
    codes: np.ndarray
    partitions: list[str]
    deleted: np.ndarray | None = None


@dataclass(frozen=True)
class Part:
    """Rows for a native log file: with Hudi's columns, or of a deletes file (``native_log.deletes_table``).

    ``schema``: that of the rows with Hudi's columns, or of the table. ``partial``: the rows hold only the
    columns that an update set. ``size``: about so many bytes in memory, None: as the rows say.
    """

    rows: pa.Table
    schema: str
    deletes: bool = False
    partial: bool = False
    size: int | None = None


@dataclass(frozen=True)
class Blocks:
    """The log blocks of one place: ``count`` blocks with ``writes`` rows and ``deletes`` keys.

    ``buffers`` are their bytes, to be written one after another; where log files are native, ``parts`` are
    their rows instead, in the order in which they are merged.
    """

    buffers: list[bytes | memoryview]
    writes: int
    deletes: int
    count: int
    #: the rows of the data block
    rows: WrittenRows | None = None
    parts: tuple[Part, ...] = ()


def _check_texts(rows: pa.Table, base: str) -> None:
    """Raises ``Invalid`` for text that is not UTF-8: Parquet would accept it and make an unreadable file. The
    Avro encoder checks texts itself."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not (pa.types.is_string(field.type) or pa.types.is_nested(field.type)):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise Invalid(
                f"column {field.name!r} holds text that is not UTF-8: {error}", table=base
            ) from error


def _no_text(error: UnicodeDecodeError, base: str) -> Invalid:
    return Invalid(f"a record key or partition value is text that is not UTF-8: {error}", table=base)


class BucketEncoder:
    """Encodes the batches of one writer.

    A row's sequence number is made of the instant, ``task`` and a number that counts this writer's rows.
    ``rings``: under consistent hashing.
    """

    def __init__(self, spec: WriteSpec, task: str, rings: Rings | None = None) -> None:
        self.spec = spec
        self.rings = rings
        self.schema = arrow_user_schema(spec.user_schema)
        self.layout = BaseFileFormat.from_properties(spec.layout)
        self._task = task
        self._sequence = FIRST_SEQUENCE
        #: the numbers, within their batch, of the rows of slabs that nobody asked about yet
        self._came = np.zeros(0, np.int64)

    def adopt(self, spec: WriteSpec) -> None:
        """Uses ``spec`` from the next batch on. Each block records its own schema."""
        self.spec = spec
        self.schema = arrow_user_schema(spec.user_schema)

    def checked(self, batch: pa.Table) -> pa.Table:
        """The batch in the table's columns and types, for a commit to write. Raises ``Invalid`` for what
        ``split`` would refuse, wherever the rows go."""
        try:
            rows = fit_rows(batch, self.spec, self.schema)
            _check_texts(rows, self.spec.base)
            if self.spec.keys.made_up:  # the commit makes those of new rows
                rows = with_column(rows, carried(batch, self.spec))
            else:
                self.spec.keys.record_keys(rows)
            self.spec.keys.partitions(rows)
            return rows
        except UnicodeDecodeError as error:
            raise _no_text(error, self.spec.base) from error

    def split(self, batch: pa.Table, more_deleted: np.ndarray | None = None) -> Iterator[Slab]:
        """Splits a batch into slabs of bounded size. Checks all rows before it returns.

        ``more_deleted``: mask of rows that are deletes whatever their columns say. Raises ``Invalid`` for
        rows that do not fit the table.
        """
        try:
            return self._split(batch, more_deleted)
        except UnicodeDecodeError as error:
            raise _no_text(error, self.spec.base) from error

    def _split(self, batch: pa.Table, more_deleted: np.ndarray | None) -> Iterator[Slab]:
        spec = self.spec
        batch, marked = without_mark(batch, spec)
        rows = fit_rows(batch, spec, self.schema)
        if spec.block_format == "parquet" or spec.native_logs or spec.operation in OF_BASE_FILES:
            _check_texts(rows, spec.base)
        keys = spec.keys.record_keys(batch if spec.keys.made_up else rows)
        codes, partitions = spec.keys.partitions(rows)
        codes, partitions, buckets, width = self._placed(keys, codes, partitions)
        deleted = _either(_either(delete_flags(rows, spec), marked), more_deleted)
        group = codes * width + buckets
        order = self._came = stable_order(group)
        rows = taken(rows.combine_chunks(), pa.array(order))
        texts = self._sorted_texts(rows, keys.texts, order)
        if deleted is not None:
            deleted = deleted[order]
        return self.cut(group[order], width, partitions, rows, texts, deleted)

    def split_keyed(self, batch: Keyed) -> Iterator[Slab]:
        """As ``split``, of rows that a write has fitted and keyed before."""
        codes, partitions, buckets, width = self._placed(
            KeyColumns(batch.keys, None), batch.codes, list(batch.partitions)
        )
        group = codes * width + buckets
        order = self._came = stable_order(group)
        rows = taken(batch.rows.combine_chunks(), pa.array(order))
        deleted = None if batch.deleted is None else batch.deleted[order]
        return self.cut(group[order], width, partitions, rows, batch.keys.take(pa.array(order)), deleted)

    def _placed(self, keys: KeyColumns, codes: np.ndarray, partitions: list[str]) -> Placed:
        """The buckets of these keys. Raises ``Invalid`` for a key that Java cannot hash."""
        spec = self.spec
        if spec.operation not in DELETES:
            spec.keys.check_for_java(keys, spec.hash_fields)
        buckets, width = buckets_of(spec, keys, codes, partitions, self.rings)
        return codes, partitions, buckets, width

    def arrived(self, count: int) -> np.ndarray:
        """The numbers, within their batch, of the next so many rows of its slabs."""
        found, self._came = self._came[:count], self._came[count:]
        return found

    def cut(
        self,
        group: np.ndarray,
        width: int,
        partitions: list[str],
        rows: pa.Table,
        texts: pa.Array,
        deleted: np.ndarray | None,
    ) -> Iterator[Slab]:
        """Slabs of rows that are sorted by ``group``: number of the partition * ``width`` + bucket."""
        for cuts in slabs(group):
            places = [divmod(int(group[start]), width) for start in cuts[:-1]]
            start, end = cuts[0], cuts[-1]
            yield Slab(
                [(partitions[code], bucket) for code, bucket in places],
                [cut - start for cut in cuts],
                rows.slice(start, end - start),
                texts.slice(start, end - start),
                None if deleted is None else deleted[start:end],
            )

    def _sorted_texts(self, rows: pa.Table, texts: pa.Array, order: np.ndarray) -> pa.Array:
        """Key texts in the order of ``rows``. A plain text key is a column of ``rows``, sorted already."""
        plain = self.spec.keys.plain_key
        if plain is not None:
            column = rows.column(plain)
            if column.type == pa.string() and column.num_chunks == 1:
                return column.chunk(0)
        return texts.take(pa.array(order))

    def blocks(self, slab: Slab, file_id: Callable[[str, int], str]) -> list[Blocks]:
        """For each place of a slab, a data block and then a DELETE block, each only if it has rows or keys.

        ``file_id(partition, bucket)`` names the file group. As in Java, deletes follow their batch's rows.
        """
        rows, keys, bounds = slab.rows, slab.keys, slab.bounds
        if slab.deleted is not None:
            kept = pa.array(~slab.deleted)
            rows, keys = rows.filter(kept), keys.filter(kept)
            before = np.concatenate(([0], np.cumsum(~slab.deleted)))
            bounds = before[np.array(bounds)].tolist()
        data: list[list[bytes | memoryview]] = [[] for _ in slab.places]
        written: list[WrittenRows | None] = [None for _ in slab.places]
        row_bytes = 0.0
        if rows.num_rows:
            file_ids = [file_id(*place) for place in slab.places]
            table = self.with_meta(slab.places, file_ids, bounds, rows, keys)
            schema = self._schema_of(table)
            native = self.spec.native_logs
            if native and rows.num_rows < FEW_ROWS * len(slab.places):
                table = _without_dictionaries(table)  # which small files do not have
            if native or self.spec.block_format == "avro":
                written = [
                    WrittenRows(table, low, high - low, schema, self.spec.partial_blocks)
                    for low, high in pairwise(bounds)
                ]
            if not native:
                data = self._data_blocks(table, bounds, schema)
            else:  # to ask each of hundreds of small tables takes longer
                row_bytes = table.nbytes / table.num_rows
        return [self._joined(slab, i, data[i], written[i], row_bytes) for i in range(len(slab.places))]

    def _joined(
        self,
        slab: Slab,
        i: int,
        data: list[bytes | memoryview],
        rows: WrittenRows | None,
        row_bytes: float,
    ) -> Blocks:
        """The rows of one place, then its deletes."""
        gone = self._delete_block(slab, i)
        writes = slab.bounds[i + 1] - slab.bounds[i] - gone.deletes
        rows = rows if writes else None
        parts = gone.parts
        if self.spec.native_logs and rows is not None:
            table = rows.batch.slice(rows.low, rows.count)
            # Of few rows the size is taken to be that of as many rows of their batch.
            size = int(rows.count * row_bytes) if rows.count < FEW_ROWS else None
            parts = (Part(table, rows.schema_text, partial=rows.partial, size=size), *parts)
        return Blocks(
            [*data, *gone.buffers], writes, gone.deletes, (writes > 0) + gone.count, rows, parts
        )

    def _schema_of(self, table: pa.Table) -> str:
        spec = self.spec
        if not spec.partial_blocks:
            return spec.log_schema
        return arrow_to_avro(table.schema, table_name=spec.table_name, meta_fields=True)

    def _data_blocks(
        self, table: pa.Table, bounds: list[int], schema: str
    ) -> list[list[bytes | memoryview]]:
        spec = self.spec
        return data_blocks(
            spec.instant,
            schema,
            table,
            bounds,
            block_format=spec.block_format,
            compression=self.layout.compression,
            extra={Header.IS_PARTIAL: "true"} if spec.partial_blocks else {},
        )

    def _delete_block(self, slab: Slab, i: int) -> Blocks:
        """The deletes of one place.

        The operation ``delete`` deletes unconditionally (Java's ordering value 0). A row that is flagged or
        marked as deleted keeps its own ordering value.
        """
        spec = self.spec
        if slab.deleted is None:
            return Blocks([], 0, 0, 0)
        part = slice(slab.bounds[i], slab.bounds[i + 1])
        gone = pa.array(slab.deleted[part])
        keys, rows = slab.keys[part].filter(gone), slab.rows[part]
        if not len(keys):
            return Blocks([], 0, 0, 0)
        ordering = None
        if spec.operation != DELETE and spec.ordering:
            ordering = [rows.column(n).filter(gone).combine_chunks() for n in spec.ordering]
        return self.deletes(slab.places[i][0], keys, ordering)

    def deletes(self, partition: str, keys: pa.Array, ordering: Sequence[pa.Array] | None) -> Blocks:
        """Deletes of these keys, with the values of their ordering fields; None: whatever the values of the
        rows."""
        spec, count = self.spec, len(keys)
        if not spec.native_logs:
            buffers = delete_block(spec.instant, spec.log_schema, keys, partition, ordering)
            return Blocks(buffers, 0, count, 1)
        fields = spec.deletes_ordered_by
        if ordering is None and len(fields) > 1:
            raise Unsupported(
                f"deletes without ordering values in a table of version 10 ordered by {', '.join(fields)}:"
                " Hudi 1.3 could not read the file group any more. Delete by rows with _hoodie_is_deleted,"
                " or by SQL, which keep the rows' values",
                table=spec.base,
            )
        rows = deletes_table(spec.log_schema, fields, keys, ordering)
        return Blocks([], 0, count, 1, parts=(Part(rows, spec.log_schema, deletes=True),))

    def with_meta(
        self,
        places: list[Place],
        files: list[str],
        bounds: list[int],
        rows: pa.Table,
        keys: pa.Array,
    ) -> pa.Table:
        """The rows with Hudi's five meta columns in front. ``files``: per place, the file id (in log files)
        or the base file's name."""
        count = rows.num_rows
        spec = self.spec
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
        fields = [pa.field(name, column.type) for name, column in zip(META_FIELDS, meta, strict=True)]
        return pa.table([*meta, *rows.columns], schema=pa.schema([*fields, *rows.schema]))


def _without_dictionaries(rows: pa.Table) -> pa.Table:
    for place, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            texts = column.cast(column.type.value_type)
            rows = rows.set_column(place, rows.schema.names[place], texts)
    return rows


def buckets_of(
    spec: WriteSpec, keys: KeyColumns, codes: np.ndarray, partitions: list[str], rings: Rings | None = None
) -> tuple[np.ndarray, int]:
    """For each row its bucket, int32, and a number that none reaches. ``codes``: each row's partition."""
    if rings is not None:
        hashes = ring_hashes(keys.texts, hash_fields=spec.hash_fields, parts=keys.parts)
        return rings.find(hashes, codes, partitions)
    counts: int | np.ndarray = spec.buckets
    width = spec.buckets
    if spec.bucket_rules is not None:
        each = spec.bucket_rules.counts(partitions)
        counts, width = each[codes], int(each.max(initial=1))
    return bucket_ids(keys.texts, buckets=counts, hash_fields=spec.hash_fields, parts=keys.parts), width


def _either(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    return one if other is None else other if one is None else one | other
