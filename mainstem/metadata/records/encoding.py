"""Encodes the flat tables of ``flat_rows`` as values of metadata files, by columns: the inverse of
``decoding``.

The bytes equal Java's for the same rows, except for the order of names in a ``files`` row (a hash map in
Java).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import Invalid
from mainstem.formats.avro_pieces import Pieces, TooLarge, binary, offsets_of
from mainstem.formats.avro_put import encode_column, put, put_nulls
from mainstem.formats.avro_rows import zigzag
from mainstem.formats.avro_schema import AvroType
from mainstem.metadata.metadata_partitions import ALL_PARTITIONS, Content
from mainstem.metadata.records.encoding_few import FEW, encode_few, values_in_order
from mainstem.metadata.records.encoding_few import encode_listed as encode_lists
from mainstem.metadata.records.file_ids import fields_of
from mainstem.metadata.records.keyed_rows import KeyedRows, joined
from mainstem.metadata.records.listed_rows import ListedRows
from mainstem.metadata.records.record_schema import TYPES, WRAPPED, RecordSchema, parse_record_schema
from mainstem.metadata.records.typed_bounds import ARRAY, typed
from mainstem.metadata.records.value_layout import lay_out

Columns = dict[str, "pa.Array"]
Encoded = tuple["pa.Array", "pa.Array"]


def encode_rows(
    content: Content, rows: pa.Table, schema_text: str, file_name: str | None
) -> tuple[pa.Array, pa.Array]:
    """Keys and values of ``rows``, sorted by key; see ``flat_rows.encode``."""
    if 0 < rows.num_rows <= FEW:
        keys, values = encode_few(content, rows, schema_text, file_name)
        _check_once(keys)
        return keys, values
    layout = parse_record_schema(schema_text)
    rows = rows.combine_chunks()
    keys, columns = _grouped_files(rows) if content == Content.FILES else _sorted(rows)
    _check_once(keys)
    if content == Content.RECORDS:
        columns |= fields_of(columns["file_id"].cast(pa.string()))
    return keys.cast(pa.binary()), _values(content, keys, columns, layout, file_name)


def encode_listed(content: Content, rows: ListedRows, schema_text: str) -> Encoded:
    """Keys and values of one or more ``rows``, sorted by key."""
    keys, values = encode_lists(content, rows, schema_text)
    _check_once(keys)
    return keys, values


def encode_keyed(content: Content, groups: Sequence[KeyedRows], schema_text: str) -> Encoded:
    """Keys and values of all groups' rows; see ``flat_rows.encode_keyed``."""
    first: dict[int, int] = {}
    kinds: list[pa.Table] = []
    keys: list[pa.Array] = []
    which: list[np.ndarray] = []
    for rows in joined(groups):
        if id(rows.kinds) not in first:
            first[id(rows.kinds)] = sum(some.num_rows for some in kinds)
            kinds.append(rows.kinds)
        which.append(rows.which[rows.low : rows.end] + first[id(rows.kinds)])
        keys.append(rows.keys.slice(rows.low, rows.num_rows))
    values = in_order(content, pa.concat_tables(kinds) if len(kinds) > 1 else kinds[0], schema_text)
    numbers = pa.array(np.concatenate(which) if len(which) > 1 else which[0], pa.int32())
    whole = pa.concat_arrays(keys) if len(keys) > 1 else keys[0]
    return whole.cast(pa.binary()), pa.DictionaryArray.from_arrays(numbers, values)


def in_order(content: Content, rows: pa.Table, schema_text: str) -> pa.Array:
    """See ``flat_rows.encode_values``."""
    if rows.num_rows <= FEW:
        return values_in_order(content, rows, schema_text)
    rows = rows.combine_chunks()
    columns = {name: _one(rows[name]) for name in rows.column_names}
    if content == Content.RECORDS:
        columns |= fields_of(columns["file_id"].cast(pa.string()))
    return _values(content, columns["key"], columns, parse_record_schema(schema_text), None)


def _values(
    content: Content, keys: pa.Array, columns: Columns, layout: RecordSchema, file_name: str | None
) -> pa.Array:
    parts = []
    for low in range(0, len(keys), limits.CHUNK_ROWS):
        some = {name: column.slice(low, limits.CHUNK_ROWS) for name, column in columns.items()}
        size = min(limits.CHUNK_ROWS, len(keys) - low)
        parts += _encoded(content, some, size, layout, file_name)
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _check_once(keys: pa.Array) -> None:
    if len(keys) < 2:
        return
    same = pc.equal(keys[1:], keys[:-1])
    if pc.any(same).as_py():
        twice = keys[1:].filter(same)[0].cast(pa.string())
        raise Invalid(f"two rows of metadata have the key {twice.as_py()!r:.100}; a file holds each key once")


def _sorted(rows: pa.Table) -> tuple[pa.Array, Columns]:
    # Sort bytes, not texts: files are sorted by unsigned UTF-8 bytes.
    order = pc.sort_indices(rows["key"].cast(pa.binary()))
    rows = rows.take(order).combine_chunks()
    columns = {name: _one(rows[name]) for name in rows.column_names}
    return columns["key"], columns


def _one(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _grouped_files(rows: pa.Table) -> tuple[pa.Array, Columns]:
    """Group the rows of each key into one map; a row without a name makes an empty map."""
    order = pc.sort_indices(rows, [("key", "ascending"), ("name", "ascending")])
    rows = rows.take(order).combine_chunks()
    keys = _one(rows["key"])
    if not len(keys):
        return keys, {}
    new = np.append(True, pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False))
    named = _one(rows["name"]).is_valid().to_numpy(zero_copy_only=False)
    counts = np.add.reduceat(named, np.flatnonzero(new), dtype=np.int64)
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    entries = rows.filter(pa.array(named)).combine_chunks()
    info = pa.StructArray.from_arrays(
        [_one(entries["size"]), _one(entries["deleted"])], names=["size", "isDeleted"]
    )
    maps = pa.MapArray.from_arrays(pa.array(offsets), _one(entries["name"]), info)
    keys = keys.filter(pa.array(new))
    types = pc.if_else(pc.equal(keys, ALL_PARTITIONS), TYPES[Content.FILES][0], TYPES[Content.FILES][1])
    return keys, {"files": maps, "type": types.cast(pa.int32())}


def _encoded(
    content: Content, columns: Columns, rows: int, layout: RecordSchema, file_name: str | None
) -> list[pa.Array]:
    pieces = Pieces(rows, framed=False)
    lay_out(content, layout, file_name, _ByColumns(pieces, columns))
    try:
        data, starts = pieces.joined()
    except TooLarge:
        if rows == 1:
            raise Invalid("one row of metadata takes more than a file of it should hold") from None
        half = rows // 2
        low = {name: column.slice(0, half) for name, column in columns.items()}
        high = {name: column.slice(half) for name, column in columns.items()}
        first = _encoded(content, low, half, layout, file_name)
        return first + _encoded(content, high, rows - half, layout, file_name)
    return [binary(starts.astype(np.int32), data, rows)]


@dataclass(frozen=True)
class _ByColumns:
    pieces: Pieces
    columns: Columns

    def constant(self, data: bytes) -> None:
        self.pieces.constant(data)

    def null(self, kind: AvroType, name: str) -> None:
        put_nulls(self.pieces, kind, name)

    def column(self, kind: AvroType, name: str, column: str) -> None:
        put(self.pieces, self.columns[column], kind, name)

    def union(self, which: str, known: tuple[int, ...]) -> None:
        _put_union(self.pieces, self.columns[f"{which}_kind"], self.columns[which], known)

    def value_type(self, kind: AvroType, name: str) -> None:
        put(self.pieces, _value_types(self.columns), kind, name)


def _value_types(columns: Columns) -> pa.Array:
    ordinals, infos = columns["ordinal"], columns["type_info"]
    return pa.StructArray.from_arrays(
        [ordinals.fill_null(0).cast(pa.int32()), infos],
        names=["typeOrdinal", "additionalInfo"],
        mask=ordinals.is_null(),
    )


def _put_union(pieces: Pieces, kinds: pa.Array, values: pa.Array, known: tuple[int, ...]) -> None:
    """Append each row's branch number and wrapped value: encoded kind by kind, then put in row order."""
    found = kinds.to_numpy(zero_copy_only=False)
    places, made, count = np.zeros(len(found), np.int64), [], 0
    for kind in np.unique(found).tolist():
        rows = np.flatnonzero(found == kind)
        if kind not in known or kind == ARRAY:
            raise Invalid(f"a statistics value of kind {kind}, which this schema does not have")
        prefix = zigzag(known.index(kind))
        if kind == 0:
            made.append(pa.array([prefix], pa.binary()))
            places[rows] = count
            count += 1
            continue
        raw = values.take(pa.array(rows))
        plain = raw if WRAPPED[kind].kind == "bytes" else _as_integers(typed(raw, kind), WRAPPED[kind])
        if plain.null_count:
            raise Invalid(f"a statistics value of kind {kind} that is null")
        data, starts = encode_column(plain, WRAPPED[kind], "statistics value")
        body = binary(starts.astype(np.int32), data, len(rows))
        made.append(pc.binary_join_element_wise(pa.scalar(prefix), body, b""))
        places[rows] = count + np.arange(len(rows))
        count += len(rows)
    whole = pa.concat_arrays(made).take(pa.array(places))
    pieces.varying(whole, np.diff(offsets_of(whole)))


def _as_integers(values: pa.Array, kind: AvroType) -> pa.Array:
    """Dates and times as the plain integers of their wrappers."""
    if not pa.types.is_temporal(values.type):
        return values
    return values.cast(pa.int32() if kind.kind == "int" else pa.int64())
