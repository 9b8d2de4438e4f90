"""Rows of the partitions other than statistics: files, bloom filters, the record and secondary indexes.

Each function returns one of the flat tables of ``metadata.records.flat_rows.SCHEMAS``. Partitions are given
as paths, "" for a non-partitioned table. Writers, builders of indexes and ``validate`` call the same
functions, so that they agree on the content of the metadata table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, tzinfo

import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import value_type
from mainstem.formats.base_file import BLOOM_KEY
from mainstem.formats.bloom_filter import DYNAMIC, SIMPLE, TYPE_CODE_KEY
from mainstem.metadata.metadata_partitions import ALL_PARTITIONS, Content, in_keys
from mainstem.metadata.records.file_ids import encoding_of
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.metadata.records.row_keys import bloom_keys, secondary_keys
from mainstem.storage import paths
from mainstem.truetime.instant_times import parse_wall


def files_rows(
    files: Mapping[str, Mapping[str, int]],
    deleted: Mapping[str, Collection[str]] | None = None,
    deleted_partitions: Collection[str] = (),
) -> pa.Table:
    """Rows of ``files``: partition -> file name -> size in bytes; ``deleted`` names removed files.

    The row that names all partitions has those of ``files``, and tombstones for ``deleted_partitions``.
    Raises ``Invalid`` for an empty file, at which Java's readers fail, and for a partition with the same name
    as the row of all partitions, since the two rows would become one.
    """
    if ALL_PARTITIONS in {*files, *(deleted or {})}:
        raise Invalid(
            f"the partition {ALL_PARTITIONS!r} of the data: Hudi's metadata table means all partitions by"
            " this name; write its rows to another partition, or do without a metadata table"
        )
    empty = [f"{p}/{name}" for p, names in files.items() for name, size in names.items() if size <= 0]
    if empty:
        raise Invalid(f"{empty[0]} is empty, so Java could no longer read the table: remove the file")
    rows: list[tuple[str, str | None, int, bool]] = [
        (ALL_PARTITIONS, in_keys(p), 0, False) for p in sorted(files)
    ]
    rows += [(ALL_PARTITIONS, in_keys(p), 0, True) for p in sorted(deleted_partitions)]
    rows = rows or [(ALL_PARTITIONS, None, 0, False)]
    for partition in sorted({*files, *(deleted or {})}):
        key = in_keys(partition)
        here = files.get(partition, {})
        rows += [(key, name, size, False) for name, size in sorted(here.items())]
        gone = (deleted or {}).get(partition, ())
        rows += [(key, name, 0, True) for name in sorted(gone) if name not in here]
    schema = SCHEMAS[Content.FILES]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def bloom_rows(partition: str, blooms: Iterable[tuple[str, str, bytes, str]]) -> pa.Table:
    """Rows of ``bloom_filters`` (or of an expression index of that type) for one partition.

    ``blooms``: file name, filter type, base64 text of the filter, requested time of the file.
    """
    found = list(blooms)
    names, kinds, texts, times = zip(*found, strict=True) if found else ((), (), (), ())
    partitions = pa.array([partition] * len(found), pa.string())
    columns = [
        bloom_keys(partitions, pa.array(names, pa.string())),
        pa.array(kinds, pa.string()),
        pa.array(times, pa.string()),
        pa.array(texts, pa.binary()),
        pa.array([False] * len(found)),
    ]
    return pa.table(columns, SCHEMAS[Content.BLOOM])


def bloom_rows_of_files(partition: str, blooms: Iterable[tuple[str, tuple[str, bytes] | None]]) -> pa.Table:
    """Rows for base files of one partition, given as (name, type and text of its footer's filter, if any)."""
    found = []
    for name, bloom in blooms:
        base = paths.parse_base_name(name)
        if base is not None and bloom is not None:
            found.append((name, *bloom, base.instant))
    return bloom_rows(partition, found)


def removed_blooms(partition: str, names: Collection[str]) -> pa.Table:
    """Tombstones of removed base files."""
    rows = bloom_rows(partition, [(name, "", b"", "") for name in sorted(names)])
    gone = pa.array([True] * len(rows), pa.bool_())
    return rows.set_column(4, SCHEMAS[Content.BLOOM].field("deleted"), gone)


def bloom_of_footer(notes: Mapping[bytes, bytes] | None) -> tuple[str, bytes] | None:
    """Type and text of the filter in a base file's footer; None without one."""
    notes = notes or {}
    text = notes.get(BLOOM_KEY.encode())
    if text is None:
        return None
    kind = notes.get(TYPE_CODE_KEY.encode(), SIMPLE.encode()).decode("ascii", "replace")
    return (kind, text) if kind in (SIMPLE, DYNAMIC) else None


def record_index_rows(
    keys: pa.Array | pa.ChunkedArray,
    partition: str,
    file_id: str,
    instant: str,
    *,
    zone: tzinfo = UTC,
) -> pa.Table:
    """Rows of ``record_index``: these keys are in this file group since ``instant``.

    A file id that is a UUID is stored as one, any other as text (for those, Java's
    ``hoodie.writes.fileid.encoding`` must be 1). Raises ``Invalid`` for a null key.
    """
    if keys.null_count:
        raise Invalid(f"{keys.null_count} of {len(keys)} record keys are null: an index needs all of them")
    rows = len(keys)
    columns = [
        keys.cast(pa.string()),
        pa.repeat(pa.scalar(partition), rows),  # "" in a non-partitioned table, unlike in other partitions
        pa.repeat(pa.scalar(file_id), rows),
        pa.repeat(pa.scalar(instant_ms(instant, zone), pa.int64()), rows),
        pa.repeat(pa.scalar(id_encoding(file_id), pa.int32()), rows),
        pa.nulls(rows, pa.int64()),
    ]
    return pa.table(columns, SCHEMAS[Content.RECORDS])


def id_encoding(file_id: str) -> int:
    """The encoding in which a row of ``record_index`` holds this file id."""
    return encoding_of(file_id)


def instant_ms(instant: str, zone: tzinfo = UTC) -> int:
    """Epoch milliseconds of an instant time. Only a hint: Java uses its process's time zone."""
    wall = parse_wall(instant).replace(tzinfo=zone)
    return round(wall.timestamp() * 1000)


def secondary_rows(
    values: pa.Array | pa.ChunkedArray, keys: pa.Array | pa.ChunkedArray, *, deleted: bool = False
) -> pa.Table:
    """Rows of a secondary index from the indexed column's values and the record keys of the same rows.

    ``deleted``: the pairs no longer exist. ``Unsupported`` for a column whose type cannot have such an index.
    """
    stored = secondary_keys(_whole(secondary_texts(values)), _whole(keys).cast(pa.string()))
    return pa.table([stored, pa.repeat(pa.scalar(deleted), len(stored))], SCHEMAS[Content.SECONDARY])


def secondary_texts(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Values as Java prints what Avro stores: dates as days, times and timestamps as numbers in their unit.

    ``Unsupported`` for types whose text Hudi does not index (SecondaryIndexRecordGenerationUtils).
    """
    kind, types = value_type(values.type), pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return values.cast(pa.string())
    if types.is_integer(kind):
        return values.cast(pa.string())
    if types.is_date32(kind) or types.is_time32(kind):
        return values.cast(pa.int32()).cast(pa.string())
    if types.is_timestamp(kind) or types.is_time64(kind):
        return values.cast(pa.int64()).cast(pa.string())
    raise Unsupported(
        f"a secondary index on a column of type {kind}: texts, whole numbers, dates and times have one"
    )


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])
