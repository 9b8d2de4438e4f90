"""Fits a batch of rows to the table's schema."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.formats.vectors import check_same, fitted, vector_of


def fit_batch(
    batch: pa.Table,
    schema: pa.Schema,
    *,
    required: Sequence[str] | None = None,
    fill: Collection[str] = (),
    table: str = "",
) -> pa.Table:
    """Columns of ``batch`` in the order and types of ``schema``; Hudi's meta columns are dropped.

    ``required`` names the columns to keep (a delete needs only the key, ``update_columns`` a few); None
    keeps all. Nullable columns in ``fill`` that the batch lacks become null. Raises ``Invalid`` for unknown,
    missing or repeated columns and for values that do not fit the column's type, ``VectorRefused``, which
    names the row, for a vector that does not.
    """
    names = [n for n in batch.column_names if n not in META_FIELDS]
    doubled = sorted({n for n in names if names.count(n) > 1})
    unknown = [n for n in names if schema.get_field_index(n) < 0]
    wanted = schema.names if required is None else list(required)
    absent = [f for f in schema if f.name in fill and f.nullable and f.name not in names]
    for field in absent:
        batch = batch.append_column(field, pa.nulls(batch.num_rows, field.type))
        names.append(field.name)
    missing = [n for n in wanted if n not in names]
    if doubled or unknown or missing:
        found = [
            text
            for text, items in (
                ("columns given twice: ", doubled),
                ("columns the table does not have: ", unknown),
                ("columns missing: ", missing),
            )
            if items
            for text in [text + ", ".join(map(repr, items))]
        ]
        raise Invalid(
            f"the batch does not fit the table's schema; {'; '.join(found)}. The table has"
            f" {', '.join(schema.names)}. Add or drop columns (update_columns writes some of them)",
            table=table,
        )
    kept = [f for f in schema if f.name in names and (required is None or f.name in wanted)]
    for field in kept:
        check_same(batch.schema.field(field.name), field)
    return pa.table([_fit_column(batch.column(f.name), f, table) for f in kept], schema=pa.schema(kept))


def _fit_column(column: pa.ChunkedArray, field: pa.Field, table: str) -> pa.ChunkedArray:
    if not field.nullable and column.null_count:
        raise Invalid(
            f"column {field.name!r} has {column.null_count} nulls, but the table's schema allows none",
            table=table,
        )
    vector = vector_of(field)
    if vector is not None:
        return fitted(column, vector, field.name)
    if column.type == field.type:
        return column
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column.cast(field.type, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Invalid(
            f"column {field.name!r} of type {column.type} does not fit the table's {field.type}:"
            f" {error}; cast it before writing",
            table=table,
        ) from error


@lru_cache(maxsize=64)
def arrow_user_schema(text: str, path: str = "") -> pa.Schema:
    """Arrow schema of the user columns."""
    schema = avro_to_arrow(text, path=path)
    return pa.schema([f for f in schema if f.name not in META_FIELDS])
