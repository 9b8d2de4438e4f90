"""Rows of the metadata table: ``HoodieMetadataRecord`` and its flat Arrow schemas, one per ``Content``.

A row is a key and an Avro datum without header. It is decoded with the schema text embedded in its file.
Three variants of the record exist (table version 8, version 9 without ``valueType``, version 9 with it), so
each field is looked up by name. The ``key`` inside the datum is always empty; the real one is the file
entry's.

=========  ==================================================================================================
FILES      one row per file name. ``key``: partition (``.``: not partitioned) or ``__all_partitions__`` (then
           ``name`` is a partition); ``size`` in bytes, 0 for partitions and tombstones; ``deleted``:
           tombstone. A record without names is one row whose ``name`` is null.
STATS      ``key``; ``type`` 3 for a file, 6 for a partition; ``file`` (for type 6 the partition); ``column``;
           ``min_kind``, ``min``, ``max_kind``, ``max`` as ``typed_bounds`` packs them (kind 0: null);
           ``value_count`` (rows including nulls), ``null_count``, ``total_size``,
           ``total_uncompressed_size``; ``deleted``; ``tight`` (isTightBound); ``ordinal``, ``type_info``
           (valueType, index version V2)
BLOOM      ``key``, ``type`` (DYNAMIC_V0, SIMPLE), ``timestamp``, ``bloom`` (the stored text), ``deleted``
RECORDS    ``key``: record key; ``partition``; ``file_id`` (whatever its encoding); ``instant_ms``: epoch
           milliseconds of the instant in the *writer's* time zone, a hint; ``encoding`` 0 or 1; ``position``
SECONDARY  ``key`` as stored (see ``row_keys.split_secondary``), ``deleted``
=========  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records import encoding
from mainstem.metadata.records.decoding import decode_rows
from mainstem.metadata.records.keyed_rows import KeyedRows
from mainstem.metadata.records.listed_rows import ListedRows
from mainstem.metadata.records.record_schema import schema_of_version

__all__ = [
    "SCHEMAS", "decode", "encode", "encode_keyed", "encode_listed", "encode_values", "schema_of_version",
]  # fmt: skip

_KEY = pa.field("key", pa.string(), nullable=False)
_DELETED = pa.field("deleted", pa.bool_(), nullable=False)

SCHEMAS: dict[Content, pa.Schema] = {
    Content.FILES: pa.schema(
        [_KEY, pa.field("name", pa.string()), pa.field("size", pa.int64(), nullable=False), _DELETED]
    ),
    Content.STATS: pa.schema(
        [
            _KEY,
            pa.field("type", pa.int32(), nullable=False),
            pa.field("file", pa.string()),
            pa.field("column", pa.string()),
            pa.field("min_kind", pa.int8(), nullable=False),
            pa.field("min", pa.binary()),
            pa.field("max_kind", pa.int8(), nullable=False),
            pa.field("max", pa.binary()),
            pa.field("value_count", pa.int64()),
            pa.field("null_count", pa.int64()),
            pa.field("total_size", pa.int64()),
            pa.field("total_uncompressed_size", pa.int64()),
            _DELETED,
            pa.field("tight", pa.bool_(), nullable=False),
            pa.field("ordinal", pa.int32()),
            pa.field("type_info", pa.string()),
        ]
    ),
    Content.BLOOM: pa.schema(
        [
            _KEY,
            pa.field("type", pa.string(), nullable=False),
            pa.field("timestamp", pa.string(), nullable=False),
            pa.field("bloom", pa.binary(), nullable=False),
            _DELETED,
        ]
    ),
    Content.RECORDS: pa.schema(
        [
            _KEY,
            pa.field("partition", pa.string()),
            pa.field("file_id", pa.string()),
            pa.field("instant_ms", pa.int64()),
            pa.field("encoding", pa.int32(), nullable=False),
            pa.field("position", pa.int64()),
        ]
    ),
    Content.SECONDARY: pa.schema([_KEY, _DELETED]),
}


def decode(
    content: Content, keys: pa.Array, values: pa.Array, schema_text: str, *, path: str = ""
) -> pa.Table:
    """Rows of a base file or an HFILE block as a table of ``SCHEMAS[content]``, in file order.

    ``keys`` and ``values`` are binary arrays without nulls; ``schema_text`` is the one embedded in their
    file; ``path`` appears in errors. Raises ``CorruptTable`` for values that do not parse or belong to
    another content, ``Unsupported`` for a schema or a value that Hudi 1.2 does not write.
    """
    return decode_rows(content, keys, values, schema_text, SCHEMAS[content], path)


def encode(
    content: Content, rows: pa.Table, schema_text: str, *, file_name: str | None = None
) -> tuple[pa.Array, pa.Array]:
    """``(keys, values)`` as binary arrays sorted by key, for ``write_hfile``.

    ``rows`` have the columns of ``SCHEMAS[content]`` in any order; in a ``files`` table, all rows of a key
    become one value. ``schema_text``: ``schema_of_version`` of the table's version, or that of the file the
    rows come from. ``file_name``: name of a compacted base file, which its rows hold. Raises ``Invalid`` for
    repeated keys and for a value that the schema cannot hold.
    """
    there = set(rows.column_names)
    missing = [name for name in SCHEMAS[content].names if name not in there]
    if missing:
        raise Invalid(f"rows of metadata without the columns {', '.join(missing)}")
    return encoding.encode_rows(content, rows.select(SCHEMAS[content].names), schema_text, file_name)


def encode_values(content: Content, rows: pa.Table, schema_text: str) -> pa.Array:
    """The values of ``rows`` alone, in their order; for all contents but ``files``."""
    return encoding.in_order(content, rows, schema_text)


def encode_listed(content: Content, rows: ListedRows, schema_text: str) -> tuple[pa.Array, pa.Array]:
    """``encode`` for a few rows (one or more) as lists."""
    return encoding.encode_listed(content, rows, schema_text)


def encode_keyed(
    content: Content, groups: Sequence[KeyedRows], schema_text: str
) -> tuple[pa.Array, pa.Array]:
    """``encode`` for the rows of several file groups of an index of keys, one group after another.

    The values are a dictionary array, since few differ.
    """
    return encoding.encode_keyed(content, groups, schema_text)
