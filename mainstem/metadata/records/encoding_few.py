"""Encodes a few rows of the metadata table by lists, into the same bytes as ``encoding`` does by columns.

A small commit adds a few rows to each file group of the metadata table; setting up columns would cost more
than the rows. A field's values become pieces of bytes, of equal values one piece, and the pieces of each row
are joined. What makes the pieces is built once per schema, content and file name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_put import missing
from mainstem.formats.avro_rows import writer_of, zigzag
from mainstem.formats.avro_schema import AvroType
from mainstem.metadata.metadata_partitions import ALL_PARTITIONS, Content
from mainstem.metadata.records.file_ids import ID_FIELDS, id_fields
from mainstem.metadata.records.listed_rows import ListedRows
from mainstem.metadata.records.record_schema import TYPES, parse_record_schema
from mainstem.metadata.records.typed_bounds import ARRAY, BOOLEAN, BYTES, DECIMAL, DOUBLE, FLOAT, STRING
from mainstem.metadata.records.value_layout import lay_out

#: up to this many rows, this is faster than columns
FEW = 64
Columns = dict[str, Sequence[Any]]
#: makes the pieces of one field, or of several, of each row
Part = Callable[[Columns], list[bytes]]


def encode_few(
    content: Content, rows: pa.Table, schema_text: str, file_name: str | None
) -> tuple[pa.Array, pa.Array]:
    """Keys and values of one or more ``rows``, sorted by key; see ``flat_rows.encode``.

    Does not check for repeated keys; the caller does.
    """
    return _in_order(_pairs(content, _lists(rows), schema_text, file_name))


def encode_listed(content: Content, rows: ListedRows, schema_text: str) -> tuple[pa.Array, pa.Array]:
    """``encode_few`` for rows that are lists already."""
    return _in_order(_pairs(content, dict(rows.columns), schema_text, None))


def _in_order(made: Iterable[tuple[bytes, bytes]]) -> tuple[pa.Array, pa.Array]:
    keys, values = zip(*sorted(made), strict=True)
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary())


def _lists(rows: pa.Table) -> Columns:
    return {name: rows.column(name).to_pylist() for name in rows.column_names}


def values_in_order(content: Content, rows: pa.Table, schema_text: str) -> pa.Array:
    """The values of ``rows``, in their order; for all contents except ``files``."""
    return pa.array([value for _, value in _pairs(content, _lists(rows), schema_text, None)], pa.binary())


def _pairs(
    content: Content, columns: Columns, schema_text: str, file_name: str | None
) -> Iterable[tuple[bytes, bytes]]:
    if content == Content.FILES:
        columns = _grouped_files(columns)
    elif content == Content.RECORDS:
        columns |= _id_columns(columns["file_id"])
    values = _encoder(content, frozenset(columns), schema_text, file_name)
    return zip([key.encode() for key in columns["key"]], values(columns), strict=True)


def _id_columns(texts: Sequence[str]) -> Columns:
    found = [id_fields(text) for text in texts]
    return {name: [fields[name] for fields in found] for name in ID_FIELDS}


def _grouped_files(rows: Columns) -> Columns:
    """Group the rows of each key into one map, sorted by name; a row without a name makes an empty map."""
    maps: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for key, name, size, deleted in zip(
        rows["key"], rows["name"], rows["size"], rows["deleted"], strict=True
    ):
        entries = maps.setdefault(key, [])
        if name is not None:
            entries.append((name, {"size": size, "isDeleted": deleted}))
    all_type, one_type = TYPES[Content.FILES]
    return {
        "key": list(maps),
        "type": [all_type if key == ALL_PARTITIONS else one_type for key in maps],
        "files": [sorted(entries, key=lambda entry: entry[0].encode()) for entries in maps.values()],
    }


# ------------------------------------------------------------------------------------------- pieces


class _Parts:
    """The parts of a row, in order; constants are put before the part that follows them."""

    def __init__(self, columns: frozenset[str]) -> None:
        self.columns = columns
        self._parts: list[Part] = []
        self._constant = b""

    def constant(self, data: bytes) -> None:
        self._constant += data

    def null(self, kind: AvroType, name: str) -> None:
        if not kind.nullable:
            raise missing(name)
        self.constant(bytes((kind.null_tag,)))

    def column(self, kind: AvroType, name: str, column: str) -> None:
        write, prefix = writer_of(kind, name), self._before()

        def piece(value: Any) -> bytes:
            out = bytearray(prefix)
            write(value, out)
            return bytes(out)

        if kind.kind in ("map", "record", "array"):
            self._parts.append(lambda columns: [piece(value) for value in columns[column]])
        else:
            self._parts.append(lambda columns: _each(columns[column], piece))

    def union(self, which: str, known: tuple[int, ...]) -> None:
        prefix = self._before()

        def piece(value: tuple[int, bytes | None]) -> bytes:
            return prefix + _branch(*value, known)

        self._parts.append(
            lambda columns: _each(zip(columns[f"{which}_kind"], columns[which], strict=True), piece)
        )

    def value_type(self, kind: AvroType, name: str) -> None:
        write, prefix = writer_of(kind, name), self._before()

        def piece(value: tuple[int | None, str | None]) -> bytes:
            out = bytearray(prefix)
            write(None if value[0] is None else {"typeOrdinal": value[0], "additionalInfo": value[1]}, out)
            return bytes(out)

        self._parts.append(
            lambda columns: _each(zip(columns["ordinal"], columns["type_info"], strict=True), piece)
        )

    def _before(self) -> bytes:
        data, self._constant = self._constant, b""
        return data

    def whole(self) -> Part:
        parts, rest = self._parts, self._constant

        def values(columns: Columns) -> list[bytes]:
            last = [rest] * len(columns["key"])
            return [b"".join(row) for row in zip(*(part(columns) for part in parts), last, strict=True)]

        return values


def _each(values: Iterable[Any], piece: Callable[[Any], bytes]) -> list[bytes]:
    """The piece of each value, made once of equal ones; there are no floats among them."""
    values = list(values)
    made = {value: piece(value) for value in dict.fromkeys(values)}
    return [made[value] for value in values]


@lru_cache(maxsize=64)
def _encoder(content: Content, columns: frozenset[str], schema_text: str, file_name: str | None) -> Part:
    parts = _Parts(columns)
    lay_out(content, parse_record_schema(schema_text), file_name, parts)
    return parts.whole()


def _branch(kind: int, value: bytes | None, known: tuple[int, ...]) -> bytes:
    """Branch number and wrapped value of a bound; ``typed_bounds`` defines the bytes of each kind."""
    if kind not in known or kind == ARRAY:
        raise Invalid(f"a statistics value of kind {kind}, which this schema does not have")
    branch = zigzag(known.index(kind))
    if kind == 0:
        return branch
    if value is None:
        raise Invalid(f"a statistics value of kind {kind} that is null")
    if kind in (BYTES, STRING, DECIMAL):
        return branch + zigzag(len(value)) + value
    if kind in (BOOLEAN, FLOAT, DOUBLE):
        return branch + value
    return branch + zigzag(int.from_bytes(value, "little", signed=True))
