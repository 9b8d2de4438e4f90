"""Converts rows from the schema in which they were written to the table's schema (Avro resolution).

Columns match by name. A column that the writer did not know is null. If the table's column has that type by
now, numbers are widened (int, long, float, double, decimal), bytes and strings are exchanged, numbers, dates
and decimals become text, and text becomes a date or a decimal, as in
``HoodieAvroUtils.rewriteRecordWithNewSchema``. Everything else is refused.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import META_FIELDS, value_type
from mainstem.formats.conversions import float_to_double, real_to_text, to_decimal
from mainstem.formats.vectors import as_bytes, as_lists, vector_bytes


def project_to(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """``table`` with exactly the columns of ``schema``, in its order and types.

    Raises ``Unsupported``, naming the column, if Hudi has no promotion between two types, or if a column is
    missing although the schema declares it as not null.
    """
    if table.schema.equals(schema, check_metadata=True):
        return table
    names = set(table.schema.names)
    made = []
    for field in schema:
        if field.name in names:
            made.append(promote(table.column(field.name), field))
        elif field.nullable or field.name in META_FIELDS:
            made.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)]))
        else:
            raise Unsupported(
                f"column {field.name!r} is declared as not null, but these rows were written "
                "without it"
            )
    if not made:
        return table.select([])
    return pa.Table.from_arrays(made, schema=schema)


def promote(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The column in the type of ``field``. Raises ``Unsupported`` if there is no promotion."""
    source, target = column.type, field.type
    if source == target:
        return column
    if pa.types.is_null(source):
        return pa.chunked_array([pa.nulls(len(column), target)])
    if not promotes(source, target):
        raise Unsupported(
            f"column {field.name!r} was written as {source} and the table has {target}: there is "
            "no promotion between the two"
        )
    if pa.types.is_fixed_size_list(target):
        if pa.types.is_fixed_size_list(source):
            column = pa.chunked_array([as_bytes(chunk) for chunk in column.chunks], vector_bytes(target))
        return pa.chunked_array([as_lists(chunk, target) for chunk in column.chunks], target)
    if pa.types.is_nested(target):
        chunks = [_nested(chunk, target, field.name) for chunk in column.chunks]
        return pa.chunked_array(chunks, target)
    try:
        return _converted(column, value_type(source), target)
    except pa.ArrowException as error:
        raise Unsupported(
            f"column {field.name!r} was written as {source} and has values that {target} cannot "
            f"hold: {error}"
        ) from error


def _converted(column: pa.ChunkedArray, source: pa.DataType, target: pa.DataType) -> pa.ChunkedArray:
    types = pa.types
    column = column if column.type == source else column.cast(source)
    if types.is_floating(source):
        if types.is_floating(target):
            return float_to_double(column)
        if _is_string(target):
            return real_to_text(column)
    if types.is_decimal(target) and not types.is_decimal(source):
        return to_decimal(column, target)
    if types.is_integer(source) and types.is_floating(target):
        return column.cast(target, safe=False)  # Java rounds too
    return pc.cast(column, target)


def promotes(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether rows written with one type can be read as another; single values may still not fit."""
    source, types = value_type(source), pa.types
    if source == target:
        return True
    if types.is_integer(target):
        return types.is_integer(source)
    if types.is_floating(target):
        narrower = types.is_floating(source) and source.bit_width <= target.bit_width
        return types.is_integer(source) or narrower
    if _is_string(target):
        textual = _is_string(source) or _is_binary(source)
        number = types.is_integer(source) or types.is_floating(source) or types.is_decimal(source)
        return textual or number or types.is_date(source)
    if types.is_fixed_size_list(target):  # a VECTOR column
        if types.is_fixed_size_list(source):  # pickling loses the name of the elements: compare without it
            return (source.list_size, source.value_type) == (target.list_size, target.value_type)
        return types.is_fixed_size_binary(source) and source == vector_bytes(target)
    if _is_binary(target):
        return _is_string(source) or _is_binary(source)
    if types.is_decimal(target):
        if types.is_decimal(source):
            return source.scale <= target.scale
        return types.is_integer(source) or types.is_floating(source) or _is_string(source)
    if types.is_timestamp(target):
        return types.is_timestamp(source) and (source.tz is None) == (target.tz is None)
    if types.is_date(target):
        return types.is_date(source) or _is_string(source)
    if types.is_time(target):
        return types.is_time(source)
    return _nested_promotes(source, target)


def _nested_promotes(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(target) and types.is_struct(source):
        known = {source.field(i).name: source.field(i).type for i in range(source.num_fields)}
        fields = [target.field(i) for i in range(target.num_fields)]
        return all(f.name not in known or promotes(known[f.name], f.type) for f in fields)
    if types.is_map(target) and types.is_map(source):
        return promotes(source.key_type, target.key_type) and promotes(
            source.item_type, target.item_type
        )
    if types.is_list(target) and (types.is_list(source) or types.is_large_list(source)):
        inner = source.value_type
        if _is_two_level(inner, target.value_type):
            inner = inner.field(0).type
        return promotes(inner, target.value_type)
    return False


def _is_two_level(source: pa.DataType, target: pa.DataType) -> bool:
    """Java's two-level list of lists, whose inner list pyarrow before 18 reads as a struct."""
    wrapped = pa.types.is_struct(source) and source.num_fields == 1
    return wrapped and source.field(0).name == "array" and pa.types.is_list(target)


def _is_string(kind: pa.DataType) -> bool:
    return "string" in str(kind) and not pa.types.is_nested(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return "binary" in str(kind) and not pa.types.is_nested(kind)


def _nested(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    if array.type == target:
        return array
    if not pa.types.is_nested(target):
        return promote(pa.chunked_array([array]), pa.field(name, target)).combine_chunks()
    if pa.types.is_struct(target):
        return _struct(array, target, name)
    if pa.types.is_map(target):
        entries = pa.StructArray.from_arrays(
            [
                _nested(array.keys, target.key_type, f"{name}.key"),
                _nested(array.items, target.item_type, name),
            ],
            fields=[target.key_field, target.item_field],
        )
        return _with_child(array, entries, target)
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    values = array.values
    if _is_two_level(values.type, target.value_type):
        values = values.field(0)
    return _with_child(array, _nested(values, target.value_type, name), target)


def _with_child(array: pa.Array, child: pa.Array, target: pa.DataType) -> pa.Array:
    """The same lists or maps with other values; ``child`` covers the array as it was before slicing."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(array), [validity, offsets], -1, array.offset, children=[child]
    )


def _struct(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    known = {array.type.field(i).name: i for i in range(array.type.num_fields)}
    fields = [target.field(i) for i in range(target.num_fields)]
    children = [
        _nested(array.field(known[f.name]), f.type, f"{name}.{f.name}")
        if f.name in known
        else pa.nulls(len(array), f.type)
        for f in fields
    ]
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
