"""Decodes values of metadata files to the flat tables of ``flat_rows``, by columns.

All values of a file lie side by side, one Avro datum each; one cursor per row moves over them, column by
column. A union of wrapper records is read branch by branch, each for all rows that have it: a file's rows use
few branches. At the end, each cursor must stand at the next row.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.avro_cursors import Cursors, branches, read_numbers
from mainstem.formats.avro_put_flat import validity
from mainstem.formats.avro_read import read_column
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.avro_schema import AvroType
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.file_ids import texts_of
from mainstem.metadata.records.record_schema import (
    PAYLOADS,
    TYPES,
    UNIONS,
    WRAPPED,
    RecordSchema,
    parse_record_schema,
)
from mainstem.metadata.records.typed_bounds import ARRAY, Storing, packed

# Rows decoded together: few enough that their bytes stay in the processor's cache between columns.
_ROWS = 16_384

Columns = dict[str, "pa.Array"]


def decode_rows(
    content: Content, keys: pa.Array, values: pa.Array, schema_text: str, schema: pa.Schema, path: str
) -> pa.Table:
    """Rows of one file or log block as a table of ``schema``; see ``flat_rows.decode``."""
    layout = parse_record_schema(schema_text, path)
    if layout.payload(content) is None:
        raise Unsupported(f"metadata written without {PAYLOADS[content]}, by a Hudi that had no such index"
                          f" (file {path})")  # fmt: skip
    texts = _key_texts(keys, path)
    made = []
    for low in range(0, len(keys), _ROWS):
        part = values.slice(low, _ROWS)
        try:
            columns = _decode_chunk(content, part, layout)
        except (Malformed, IndexError, pa.ArrowException, ValueError, OverflowError) as error:
            raise CorruptTable(
                f"a damaged row among those from {low} on: {error}; restore the file from a copy, or delete"
                " the metadata table and read without it",
                path=path,
            ) from None
        made.append(_table(content, texts.slice(low, _ROWS), columns, schema, path))
    return pa.concat_tables(made) if made else schema.empty_table()


def _key_texts(keys: pa.Array, path: str) -> pa.Array:
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        raise CorruptTable("a key that is not UTF-8", path=path) from None


def _decode_chunk(content: Content, values: pa.Array, layout: RecordSchema) -> Columns:
    if values.null_count:
        raise Malformed("a row without value")
    starts = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    cursors = Cursors(memoryview(values.buffers()[2] or b""), starts, header=0)
    columns: Columns = {}
    for name, kind in layout.record.fields:
        if name == PAYLOADS[content]:
            columns |= _payload(content, cursors, kind, layout.branches)
        elif name == "type":
            columns["type"] = _types(content, cursors, kind)
        elif name in PAYLOADS.values():
            _nothing(cursors, kind, name)
        else:
            read_column(cursors, kind, False)
    cursors.check_end()
    return columns


def _types(content: Content, cursors: Cursors, kind: AvroType) -> pa.Array:
    found = read_column(cursors, kind, True)
    wrong = pc.invert(pc.is_in(found, value_set=pa.array(TYPES[content], pa.int32())))
    if pc.any(wrong, min_count=0).as_py():
        row = found.filter(wrong)[0].as_py()
        raise Malformed(f"a row of type {row}, expected {' or '.join(map(str, TYPES[content]))}")
    return found


def _nothing(cursors: Cursors, kind: AvroType, name: str) -> None:
    """Check that the field of another kind of rows is null."""
    valid = branches(cursors, kind) if kind.nullable else None
    if valid is None or valid.any():
        raise Malformed(f"{name} in a row of another type")


def _payload(
    content: Content, cursors: Cursors, kind: AvroType, unions: Mapping[str, tuple[int, ...]]
) -> Columns:
    if content == Content.FILES:
        return {"files": read_column(cursors, kind, True)}
    valid = branches(cursors, kind)
    if valid is not None:
        raise Malformed(f"a row without {PAYLOADS[content]}")
    columns: Columns = {}
    for name, child in kind.fields:
        if name in UNIONS and name in unions:
            columns[f"{name}Kind"], columns[name] = _union(cursors, unions[name])
        else:
            columns[name] = read_column(cursors, child, True)
    return columns


def _union(cursors: Cursors, kinds: tuple[int, ...]) -> tuple[pa.Array, pa.Array]:
    """(kind, packed value) per row; moves the cursors past the union."""
    numbers = read_numbers(cursors, None)
    if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < len(kinds):
        raise Malformed(f"a union branch beyond the last of {len(kinds)}")
    found = np.asarray(kinds, np.int8)[numbers]
    made = pa.nulls(cursors.rows, pa.binary())
    for kind in np.unique(found).tolist():
        if kind == 0:
            continue
        if kind < 0 or kind == ARRAY:
            raise Unsupported("statistics values in a wrapper that Hudi 1.2 does not write for columns")
        rows = np.flatnonzero(found == kind)
        some = cursors.others(cursors.at[rows], cursors.ends[rows])
        values = _packed(read_column(some, WRAPPED[kind], True), kind)
        cursors.at = cursors.at.copy()
        cursors.at[rows] = some.at
        if len(rows) == cursors.rows:
            made = values
        else:
            made = pc.replace_with_mask(made, pa.array(found == kind), values)
    return pa.array(found), made


def _packed(values: pa.Array, kind: int) -> pa.Array:
    if pa.types.is_binary(values.type):  # decimals too: their stored bytes are the packed form
        return values
    return packed(values, Storing(kind, None, None))


def _table(content: Content, keys: pa.Array, columns: Columns, schema: pa.Schema, path: str) -> pa.Table:
    try:
        if content == Content.FILES:
            arrays = _files(keys, columns["files"])
        else:
            arrays = [_column(name, keys, columns, schema) for name in schema.names]
        fitted = [a.cast(f.type) if a.type != f.type else a for a, f in zip(arrays, schema, strict=True)]
        return pa.Table.from_arrays(fitted, schema=schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise CorruptTable(f"metadata rows of another shape than Hudi's: {error}", path=path) from None


# Flat column -> field of the payload; columns not listed here have the field's name.
_FIELDS = {
    "file": "fileName", "column": "columnName", "min_kind": "minValueKind", "min": "minValue",
    "max_kind": "maxValueKind", "max": "maxValue", "value_count": "valueCount", "null_count": "nullCount",
    "total_size": "totalSize", "total_uncompressed_size": "totalUncompressedSize", "deleted": "isDeleted",
    "bloom": "bloomFilter", "partition": "partitionName", "instant_ms": "instantTime",
    "encoding": "fileIdEncoding",
}  # fmt: skip
# Fields that older writers do not write.
_DEFAULTS = {"tight": False, "ordinal": None, "type_info": None, "encoding": 0, "position": None}


def _column(name: str, keys: pa.Array, columns: Columns, schema: pa.Schema) -> pa.Array:
    if name == "key":
        return keys
    if name == "tight" and "isTightBound" in columns:
        return columns["isTightBound"]
    if name in ("ordinal", "type_info") and "valueType" in columns:
        field = "typeOrdinal" if name == "ordinal" else "additionalInfo"
        inner = pc.struct_field(columns["valueType"], field)
        return pc.if_else(columns["valueType"].is_valid(), inner, pa.scalar(None, inner.type))
    if name == "file_id":
        return texts_of(columns)
    found = columns.get(_FIELDS.get(name, name))
    if found is None and name in _DEFAULTS:
        return pa.array([_DEFAULTS[name]] * len(keys), schema.field(name).type)
    if found is None:
        raise KeyError(name)
    if found.null_count and not schema.field(name).nullable:
        raise pa.ArrowInvalid(f"a null in {name}")
    return found


def _files(keys: pa.Array, maps: pa.Array) -> list[pa.Array]:
    """One row per map entry; for an empty or missing map, one row without a name."""
    if not pa.types.is_map(maps.type):
        raise pa.ArrowInvalid(f"a list of files of type {maps.type}")
    offsets = np.frombuffer(maps.buffers()[1], np.int32, len(maps) + 1, 4 * maps.offset).astype(np.int64)
    counts = np.diff(offsets)
    valid = validity(maps)
    if valid is not None:
        counts = np.where(valid, counts, 0)
    taken = np.maximum(counts, 1)
    rows = np.repeat(np.arange(len(maps)), taken)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(taken) - taken, taken)
    empty = counts[rows] == 0
    places = pa.array(np.where(empty, 0, offsets[rows] + within), mask=empty)
    info = maps.items
    names = maps.keys.take(places)
    sizes = pc.struct_field(info, "size").take(places).fill_null(0)
    deleted = pc.struct_field(info, "isDeleted").take(places).fill_null(False)
    return [keys.take(pa.array(rows)), names, sizes, deleted]
