"""A few rows of the metadata table to values, row by row: the same bytes as ``encoding`` makes by columns.

A small commit adds some rows to each file group of the metadata table; laying out columns would cost more
than the rows. Writers are made once per schema, content and file name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_put import missing
from mainstem.formats.avro_put_flat import branch
from mainstem.formats.avro_rows import Writer, writer_of, zigzag
from mainstem.formats.avro_schema import AvroType
from mainstem.metadata.file_ids import ID_FIELDS, id_fields
from mainstem.metadata.partitions import ALL_PARTITIONS, Content
from mainstem.metadata.record_schema import (
    FILE_NAME,
    FLAT_COLUMNS,
    PAYLOADS,
    TYPES,
    UNIONS,
    RecordSchema,
    parse_record_schema,
)
from mainstem.metadata.statistics import ARRAY, BOOLEAN, BYTES, DECIMAL, DOUBLE, FLOAT, STRING

#: rows up to which this is quicker than columns
FEW = 64
Row = dict[str, Any]
Put = Callable[[Row, bytearray], None]


def encode_few(
    content: Content, rows: pa.Table, schema_text: str, file_name: str | None
) -> tuple[pa.Array, pa.Array]:
    """Keys and values of one or more ``rows``, sorted by key; see ``records.encode``.

    Two rows of one key are left for the caller to find.
    """
    found, columns = rows.to_pylist(), frozenset(rows.column_names)
    if content == Content.FILES:
        found = _grouped_files(found)
    elif content == Content.RECORDS:
        found, columns = [row | id_fields(row["file_id"]) for row in found], columns | ID_FIELDS
    write = _writer(content, columns, schema_text, file_name)
    made = []
    for row in found:
        out = bytearray()
        write(row, out)
        made.append((row["key"].encode(), bytes(out)))
    made.sort()
    return tuple(pa.array(column, pa.binary()) for column in zip(*made, strict=True))


def _grouped_files(rows: list[Row]) -> list[Row]:
    """Rows of one key as the entries of one map, by name; a row without name makes an empty one."""
    maps: dict[str, list[tuple[str, Row]]] = {}
    for row in rows:
        entries = maps.setdefault(row["key"], [])
        if row["name"] is not None:
            entries.append((row["name"], {"size": row["size"], "isDeleted": row["deleted"]}))
    all_type, one_type = TYPES[Content.FILES]
    return [
        {"key": key, "type": all_type if key == ALL_PARTITIONS else one_type,
         "files": sorted(entries, key=lambda entry: entry[0].encode())}
        for key, entries in maps.items()
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------- writers


class _Parts:
    """What makes up a row, in its order; constants that follow one another are one."""

    def __init__(self) -> None:
        self._puts: list[Put] = []
        self._constant = b""

    def constant(self, data: bytes) -> None:
        self._constant += data

    def null(self, kind: AvroType, name: str) -> None:
        if not kind.nullable:
            raise missing(name)
        self.constant(bytes((2 * kind.null_branch,)))

    def column(self, write: Writer, column: str) -> None:
        self.add(lambda row, out: write(row[column], out))

    def add(self, put: Put) -> None:
        data, self._constant = self._constant, b""
        if data:
            self._puts.append(lambda row, out: out.extend(data))
        self._puts.append(put)

    def whole(self) -> Put:
        puts, rest = self._puts, self._constant

        def write(row: Row, out: bytearray) -> None:
            for put in puts:
                put(row, out)
            out += rest

        return write


@lru_cache(maxsize=64)
def _writer(content: Content, columns: frozenset[str], schema_text: str, file_name: str | None) -> Put:
    layout = parse_record_schema(schema_text)
    parts = _Parts()
    for name, kind in layout.record.fields:
        if name == PAYLOADS[content]:
            _put_payload(parts, content, columns, kind, layout)
        elif name == "type" and content in (Content.FILES, Content.STATS):
            parts.column(writer_of(kind, name), name)
        elif name == "type":
            parts.constant(zigzag(TYPES[content][0]))
        elif name == FILE_NAME and file_name is not None:
            text = file_name.encode()
            parts.constant(branch(kind) + zigzag(len(text)) + text)
        elif kind.kind == "string" and not kind.nullable:  # `key`: the true one is the file's
            parts.constant(b"\0")
        else:
            parts.null(kind, name)
    return parts.whole()


def _put_payload(
    parts: _Parts, content: Content, columns: frozenset[str], kind: AvroType, layout: RecordSchema
) -> None:
    if content == Content.FILES:
        parts.column(writer_of(kind, "files"), "files")
        return
    parts.constant(branch(kind))
    for name, child in kind.fields:
        column = name if name in columns else FLAT_COLUMNS.get(name, name)
        if name in UNIONS and name in layout.branches:
            parts.add(_union_put(name.removesuffix("Value"), layout.branches[name]))
        elif name == "valueType":
            parts.add(_value_type_put(writer_of(child, name)))
        elif column in columns:
            parts.column(writer_of(child, name), column)
        else:
            parts.null(child, name)


def _value_type_put(write: Writer) -> Put:
    def put(row: Row, out: bytearray) -> None:
        ordinal = row["ordinal"]
        found = {"typeOrdinal": ordinal, "additionalInfo": row["type_info"]}
        write(None if ordinal is None else found, out)

    return put


def _union_put(which: str, known: tuple[int, ...]) -> Put:
    """Branch number and wrapped value; ``statistics`` says what the bytes of each kind are."""

    def put(row: Row, out: bytearray) -> None:
        kind, value = row[f"{which}_kind"], row[which]
        if kind not in known or kind == ARRAY:
            raise Invalid(f"a statistics value of kind {kind}, which this schema has not")
        out += zigzag(known.index(kind))
        if kind == 0:
            return
        if value is None:
            raise Invalid(f"a statistics value of kind {kind} that is null")
        if kind in (BYTES, STRING, DECIMAL):
            out += zigzag(len(value)) + value
        elif kind in (BOOLEAN, FLOAT, DOUBLE):
            out += value
        else:
            out += zigzag(int.from_bytes(value, "little", signed=True))

    return put
