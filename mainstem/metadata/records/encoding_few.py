"""Encodes a few rows of the metadata table row by row, into the same bytes as ``encoding`` does by columns.

A small commit adds a few rows to each file group of the metadata table; setting up columns would cost more
than the rows. Writers are built once per schema, content and file name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_put import missing
from mainstem.formats.avro_rows import Writer, writer_of, zigzag
from mainstem.formats.avro_schema import AvroType
from mainstem.metadata.metadata_partitions import ALL_PARTITIONS, Content
from mainstem.metadata.records.file_ids import ID_FIELDS, id_fields
from mainstem.metadata.records.record_schema import TYPES, parse_record_schema
from mainstem.metadata.records.typed_bounds import ARRAY, BOOLEAN, BYTES, DECIMAL, DOUBLE, FLOAT, STRING
from mainstem.metadata.records.value_layout import lay_out

#: up to this many rows, this is faster than columns
FEW = 64
Row = dict[str, Any]
Put = Callable[[Row, bytearray], None]


def encode_few(
    content: Content, rows: pa.Table, schema_text: str, file_name: str | None
) -> tuple[pa.Array, pa.Array]:
    """Keys and values of one or more ``rows``, sorted by key; see ``flat_rows.encode``.

    Does not check for repeated keys; the caller does.
    """
    made = sorted(_pairs(content, rows, schema_text, file_name))
    return tuple(pa.array(column, pa.binary()) for column in zip(*made, strict=True))


def values_in_order(content: Content, rows: pa.Table, schema_text: str) -> pa.Array:
    """The values of ``rows``, in their order; for all contents except ``files``."""
    return pa.array([value for _, value in _pairs(content, rows, schema_text, None)], pa.binary())


def _pairs(
    content: Content, rows: pa.Table, schema_text: str, file_name: str | None
) -> list[tuple[bytes, bytes]]:
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
    return made


def _grouped_files(rows: list[Row]) -> list[Row]:
    """Group the rows of each key into one map, sorted by name; a row without a name makes an empty map."""
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
    """The parts of a row, in order; consecutive constants are joined."""

    def __init__(self, columns: frozenset[str]) -> None:
        self.columns = columns
        self._puts: list[Put] = []
        self._constant = b""

    def constant(self, data: bytes) -> None:
        self._constant += data

    def null(self, kind: AvroType, name: str) -> None:
        if not kind.nullable:
            raise missing(name)
        self.constant(bytes((kind.null_tag,)))

    def column(self, kind: AvroType, name: str, column: str) -> None:
        write = writer_of(kind, name)
        self._add(lambda row, out: write(row[column], out))

    def union(self, which: str, known: tuple[int, ...]) -> None:
        self._add(_union_put(which, known))

    def value_type(self, kind: AvroType, name: str) -> None:
        self._add(_value_type_put(writer_of(kind, name)))

    def _add(self, put: Put) -> None:
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
    parts = _Parts(columns)
    lay_out(content, parse_record_schema(schema_text), file_name, parts)
    return parts.whole()


def _value_type_put(write: Writer) -> Put:
    def put(row: Row, out: bytearray) -> None:
        ordinal = row["ordinal"]
        found = {"typeOrdinal": ordinal, "additionalInfo": row["type_info"]}
        write(None if ordinal is None else found, out)

    return put


def _union_put(which: str, known: tuple[int, ...]) -> Put:
    """Writes branch number and wrapped value; ``typed_bounds`` defines the bytes of each kind."""

    def put(row: Row, out: bytearray) -> None:
        kind, value = row[f"{which}_kind"], row[which]
        if kind not in known or kind == ARRAY:
            raise Invalid(f"a statistics value of kind {kind}, which this schema does not have")
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
