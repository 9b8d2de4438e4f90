"""Rows of ``column_stats``, ``partition_stats`` and expression indexes, built from ranges of columns.

A column with an unknown range (``Range.is_bounded``) gets no row; readers keep every file without one. Long
texts get shorter bounds (``short_bounds``), except in a partition's row if no short value is above the text.
In ``partition_stats`` a column with an unknown range gets a tombstone if its row would be tight, since an
older row of the partition would otherwise still count. A loose row cannot express that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.formats.bloom_filter import BloomFilter, BloomSize
from mainstem.metadata.derive.column_ranges import Range, column_at, joined, ranges_of
from mainstem.metadata.derive.expression_functions import Expression
from mainstem.metadata.derive.short_bounds import lower_bound, upper_bound
from mainstem.metadata.metadata_partitions import Content, in_keys
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.metadata.records.listed_rows import ListedRows
from mainstem.metadata.records.row_keys import (
    V2,
    column_stats_keys,
    expression_partition_keys,
    file_hash,
    name_hash,
    partition_hash,
    partition_stats_keys,
)
from mainstem.metadata.records.typed_bounds import NULL_TYPE, Storing, packed, packed_plainly, storing

_FILE, _PARTITION = 3, 6
_SCHEMA = SCHEMAS[Content.STATS]
#: partition, what the row is of, and the column's range
_Entry = tuple[str, str, Range]


def column_stats_rows(
    partition: str,
    file: str,
    rows: pa.Table | Iterable[pa.Table],
    columns: Sequence[str],
    *,
    version: str = V2,
) -> pa.Table:
    """Rows of ``column_stats`` for one file, from its rows (of a log file: those of all data blocks).

    ``version``: that of the index definition. A file without rows gets an empty row per column, as Java
    writes for log files that only delete.
    """
    found = {made.column: made for made in ranges_of(rows, columns)}
    nothing = [Range(name, pa.null(), None, None, 0, 0) for name in columns]
    ranges = list(found.values()) if any(r.rows for r in found.values()) else nothing
    return stats_rows([(partition, file, ranges)], version=version)


def stats_rows(files: Iterable[tuple[str, str, Sequence[Range]]], *, version: str = V2) -> pa.Table:
    """Rows of ``column_stats`` for many files: (partition, file name, ranges of its columns)."""
    entries = _of_files(files, version)
    return _table(_file_keys(entries), entries, _FILE, version, tight=False)


def few_stats_rows(
    files: Iterable[tuple[str, str, Sequence[Range]]], *, version: str = V2
) -> ListedRows:
    """``stats_rows`` of a few files, as lists."""
    entries = _of_files(files, version)
    hashes = {file: file_hash(file) for _, file, _ in entries}
    keys = [name_hash(r.column) + partition_hash(p) + hashes[file] for p, file, r in entries]
    return _listed(keys, entries, _FILE, version, tight=False)


def _of_files(files: Iterable[tuple[str, str, Sequence[Range]]], version: str) -> list[_Entry]:
    return [(p, file, s) for p, file, ranges in files for r in ranges if (s := _storable(r, version))]


def _file_keys(entries: Sequence[_Entry]) -> pa.Array:
    return column_stats_keys(_names(entries), _texts(e[0] for e in entries), _texts(e[1] for e in entries))


def partition_stats_rows(
    partitions: Iterable[tuple[str, Sequence[Range]]],
    *,
    version: str = V2,
    tight: bool,
    expression: bool = False,
) -> pa.Table:
    """Rows of ``partition_stats``, or the partitions' rows of an ``expression`` index.

    ``partitions``: (partition, ranges of its columns over all its files). ``tight`` rows replace what is
    stored; loose ones only widen it (isTightBound). A loose row names the column's type even if all values
    are null: Java merges into the newer row's type, and a null type holds no range. ``Unsupported`` for loose
    rows of a column whose values have no common order.
    """
    entries, unknown = [], []
    for partition, ranges in partitions:
        stored = [(r, _storable(r, version, whole=True)) for r in ranges if r.rows or tight]
        entries += [(partition, in_keys(partition), s) for _, s in stored if s is not None]
        unknown += [(partition, r.column) for r, s in stored if s is None and _has_type(r, version)]
    if unknown and not tight:
        partition, column = unknown[0]
        raise Unsupported(
            f"statistics of the partition {in_keys(partition)!r}: the column {column!r} has values of types"
            " without an order in common; create column statistics without this column"
        )
    make = expression_partition_keys if expression else partition_stats_keys
    keys = make(_names(entries), _texts(e[0] for e in entries))
    made = _table(keys, entries, _PARTITION, version, tight=tight)
    if not unknown or expression:
        return made
    return pa.concat_tables([made, removed_partition_stats(unknown, version=version)])


def partition_ranges(files: Iterable[Sequence[Range]]) -> list[Range]:
    """The joined ranges of all files of a partition, column by column."""
    found: dict[str, Range] = {}
    for ranges in files:
        for r in ranges:
            found[r.column] = joined(found[r.column], r) if r.column in found else r
    return list(found.values())


def removed_stats(
    partition: str, files: Collection[str], columns: Sequence[str], *, version: str = V2
) -> pa.Table:
    """Tombstones in ``column_stats`` for removed files.

    They are alike but for their names: a clean removes hundreds of files, each with a tombstone per column.
    """
    entries = [(partition, "", Range("", pa.null(), None, None, 0, 0))]
    one = _deleted(_table(pa.array([""]), entries, _FILE, version, tight=False))
    names, known = _texts(sorted(files)), _texts(columns)
    rows = one.take(pa.array(np.zeros(len(names) * len(known), np.int64)))
    files_at, columns_at = np.divmod(np.arange(rows.num_rows), max(1, len(known)))
    name, column = names.take(pa.array(files_at)), known.take(pa.array(columns_at))
    keys = column_stats_keys(column, pa.repeat(pa.scalar(partition), rows.num_rows), name)
    for field, texts in (("key", keys), ("file", name), ("column", column)):
        at = _SCHEMA.get_field_index(field)
        rows = rows.set_column(at, _SCHEMA.field(at), texts)
    return rows


def removed_partition_stats(gone: Iterable[tuple[str, str]], *, version: str = V2) -> pa.Table:
    """Tombstones in ``partition_stats`` for (partition, column)."""
    entries = [(p, in_keys(p), Range(column, pa.null(), None, None, 0, 0)) for p, column in gone]
    keys = partition_stats_keys(_names(entries), _texts(e[0] for e in entries))
    return _deleted(_table(keys, entries, _PARTITION, version, tight=False))


# ----------------------------------------------------------------------------- expression indexes


def expression_range(
    rows: pa.Table | Iterable[pa.Table], column: str, expression: Expression, *, file_size: int
) -> Range | None:
    """Range of an expression over one file's rows; nulls if the file lacks the column.

    None if there are no rows, or if the file lacks the column and the type of the expression's values is that
    of the column. As in Java, the sizes are the file's size and, for uncompressed, twice that.
    """
    batches = [rows] if isinstance(rows, pa.Table) else rows
    found = ranges_of((_evaluated(batch, column, expression) for batch in batches), [column])
    return replace(found[0], size=file_size, plain_size=2 * file_size) if found else None


def _evaluated(batch: pa.Table, column: str, expression: Expression) -> pa.Table:
    values = column_at(batch, column)
    if values is not None:
        return pa.table({column: expression.values(values)})
    known = expression.result
    return pa.table({} if known is None else {column: pa.nulls(batch.num_rows, known)})


def expression_rows(
    files: Iterable[tuple[str, str, Range]],
    partitions: Iterable[tuple[str, Range]] = (),
    *,
    tight: bool = True,
) -> pa.Table:
    """Rows of a column statistics expression index, for files and for partitions (ranges over all files)."""
    of_files = stats_rows([(partition, file, [r]) for partition, file, r in files])
    of_partitions = partition_stats_rows([(p, [r]) for p, r in partitions], tight=tight, expression=True)
    return pa.concat_tables([of_files, of_partitions])


def expression_bloom(
    rows: pa.Table | Iterable[pa.Table], column: str, expression: Expression, size: BloomSize
) -> tuple[str, bytes]:
    """Type and text of a bloom filter of an expression's non-null values in one base file.

    ``size``: in Java's tables from the writer's ``hoodie.index.bloom.*`` or the index definition.
    """
    made = BloomFilter(size)
    for batch in [rows] if isinstance(rows, pa.Table) else rows:
        values = column_at(batch, column)
        if values is not None:
            made.add(expression.values(values).drop_null().cast(pa.string()))
    return size.kind, made.text().encode()


# ------------------------------------------------------------------------------------------- tables


def _storable(found: Range, version: str, *, whole: bool = False) -> Range | None:
    """The range with short bounds; None if it gets no row. ``whole``: keep a high without a short bound."""
    if found.low is None:
        return found if found.is_bounded else None
    high = upper_bound(found.high)
    high = found.high if high is None and whole else high
    if high is None or not _has_type(found, version):
        return None
    low = lower_bound(found.low)
    return found if low is found.low and high is found.high else replace(found, low=low, high=high)


def _has_type(found: Range, version: str) -> bool:
    return pa.types.is_null(found.type) or storing(found.type, version) is not None


def _names(entries: Sequence[tuple[str, str, Range]]) -> pa.Array:
    return _texts(r.column for _, _, r in entries)


def _texts(texts: Iterable[str]) -> pa.Array:
    return pa.array(list(texts), pa.string())


def _table(
    keys: pa.Array, entries: Sequence[_Entry], row_type: int, version: str, *, tight: bool
) -> pa.Table:
    listed = _listed([""] * len(entries), entries, row_type, version, tight=tight)
    return listed.table(_SCHEMA).set_column(0, _SCHEMA.field(0), keys)


def _listed(
    keys: Sequence[str], entries: Sequence[_Entry], row_type: int, version: str, *, tight: bool
) -> ListedRows:
    count, ranges = len(entries), [r for _, _, r in entries]
    how = [_storing(r, version, typed=row_type == _PARTITION and not tight) for r in ranges]
    kinds = [s.kind for s in how]
    return ListedRows({
        "key": keys,
        "type": [row_type] * count,
        "file": [file for _, file, _ in entries],
        "column": [r.column for r in ranges],
        "min_kind": kinds,
        "min": _packed([r.low for r in ranges], ranges, how),
        "max_kind": kinds,
        "max": _packed([r.high for r in ranges], ranges, how),
        "value_count": [r.rows for r in ranges],
        "null_count": [r.nulls for r in ranges],
        "total_size": [r.size for r in ranges],
        "total_uncompressed_size": [r.plain_size for r in ranges],
        "deleted": [False] * count,
        "tight": [tight] * count,
        "ordinal": [s.ordinal for s in how],
        "type_info": [s.type_info for s in how],
    })  # fmt: skip


def _storing(found: Range, version: str, *, typed: bool) -> Storing:
    """How to store a range's values; ``typed``: name the type even if there is no value."""
    known = found.low is not None or (typed and not pa.types.is_null(found.type))
    how = storing(found.type, version) if known else None
    how = how or Storing(0, NULL_TYPE if version == V2 else None, None)
    return replace(how, kind=0) if found.low is None else how


def _packed(
    values: Sequence[Any], ranges: Sequence[Range], how: Sequence[Storing]
) -> list[bytes | None]:
    """All values as bytes; values of one type are packed together."""
    made: list[bytes | None] = [None] * len(values)
    places: dict[pa.DataType, list[int]] = {}
    for at, (value, r) in enumerate(zip(values, ranges, strict=True)):
        if value is not None:
            places.setdefault(r.type, []).append(at)
    for kind, alike in places.items():
        some, stores = [values[n] for n in alike], how[alike[0]]
        stored = packed_plainly(some, kind, stores) or packed(typed_values(some, kind), stores).to_pylist()
        for place, data in zip(alike, stored, strict=True):
            made[place] = data
    return made


def typed_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Plain values of a ``Range`` as an array of the column's type."""
    types = pa.types
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if types.is_decimal(kind):
        digits = [Decimal((v < 0, tuple(map(int, str(abs(v)))), -kind.scale)) for v in values]
        return pa.array(digits, kind)
    return pa.array(values, kind)


def _deleted(rows: pa.Table) -> pa.Table:
    at = rows.schema.get_field_index("deleted")
    return rows.set_column(at, _SCHEMA.field(at), pa.array([True] * len(rows), pa.bool_()))
