"""Rows of older or narrower schemas brought to the schema of a query, by column name."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Exactly the columns of ``schema``: missing ones null, others promoted (int -> long, ...).

    Raises ``Unsupported`` naming the column where a stored type cannot be read as the wanted one.
    """
    if table.schema.equals(schema):
        return table
    names = set(table.schema.names)
    columns = [
        promote(table.column(f.name), f.type, f.name)
        if f.name in names
        else pa.chunked_array([pa.nulls(table.num_rows, f.type)])
        for f in schema
    ]
    if not columns:
        return table.select([])
    return pa.table(columns, schema=_nullable(schema))


def promote(column: pa.ChunkedArray, kind: pa.DataType, name: str) -> pa.ChunkedArray:
    """Schema evolution of one column (Avro promotions and numbers or dates to text)."""
    have = column.type
    if have.equals(kind):
        return column
    try:
        if pa.types.is_floating(kind) and have == pa.float32() and kind == pa.float64():
            return column.cast(kind)
        if _is_text(kind) and pa.types.is_decimal(have):
            return column.cast(pa.string()).cast(kind)
        if _is_text(kind) and pa.types.is_boolean(have):
            return pc.if_else(column, "true", "false").cast(kind)
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unsupported(
            f"column {name!r} is stored as {have} and cannot be read as {kind}: {error}"
        ) from error


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return schema
