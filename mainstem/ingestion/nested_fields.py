"""Columns whose nested fields differ: what one record knows more than another, or than the table.

Arrow's cast drops nested fields that the target lacks, without a word, and fails where it has more.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.layout.schema_fit import extra_field


def knows_more(found: pa.Schema, known: pa.Schema) -> bool:
    """Whether a schema has columns, or nested fields in them, that another one lacks."""
    types = {field.name: field.type for field in known}
    return any(f.name not in types or has_more(f.type, types[f.name]) for f in found)


def wider(known: pa.Schema | None, found: pa.Schema) -> pa.Schema:
    """The columns that are known, with columns and nested fields that were found since."""
    if known is None:
        return found
    for field in found:
        at = known.get_field_index(field.name)
        if at < 0:
            known = known.append(field)
        elif has_more(field.type, known.field(at).type):
            known = known.set(at, field)
    return known


def has_more(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a type has nested fields that another one lacks."""
    return extra_field(found, kind) is not None


def fitted(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """The column in this type, and with what it knows more of nested fields. Raises ``ArrowInvalid``."""
    if column.type == kind:
        return column
    if pa.types.is_struct(column.type) and pa.types.is_struct(kind):
        found = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
        parts = {}
        for field in kind:
            part = found.pop(field.name, None)
            known = pa.nulls(len(column), field.type) if part is None else part
            parts[field.name] = fitted(known, field.type, f"{name}.{field.name}")
        parts |= {field: new for field, part in found.items() if (new := without_nulls(part)) is not None}
        return pa.StructArray.from_arrays([*parts.values()], [*parts], mask=pc.is_null(column))
    if pa.types.is_list(column.type) and pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
        values = fitted(column.flatten(), kind.value_type, name)
        return pa.ListArray.from_arrays(ends.cast(pa.int32()), values, mask=pc.is_null(column))
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise pa.ArrowInvalid(f"field ({name}): {error}") from error


def without_nulls(column: pa.Array) -> pa.Array | None:
    """The column without nested fields of which nothing is known; None if nothing is left."""
    kind = column.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind) and without_nulls(column.values) is None:
        return None
    if pa.types.is_struct(kind):
        parts = [(f.name, without_nulls(column.field(i))) for i, f in enumerate(kind)]
        kept = [(name, part) for name, part in parts if part is not None]
        if not kept:
            return None
        if len(kept) < len(parts) or any(part.type != kind.field(name).type for name, part in kept):
            mask = pc.is_null(column)
            arrays = [part for _, part in kept]
            return pa.StructArray.from_arrays(arrays, [name for name, _ in kept], mask=mask)
    return column
