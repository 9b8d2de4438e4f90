"""Fits a batch of rows to the table's schema."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro, avro_to_arrow
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
    doubled = sorted(name for name, times in Counter(names).items() if times > 1)
    fields = {field.name: field for field in schema}
    unknown = [n for n in names if n not in fields]
    wanted = list(fields if required is None else required)
    given, left = set(names), set(fill)
    absent = {
        name: pa.nulls(batch.num_rows, field.type)
        for name, field in fields.items()
        if name in left and field.nullable and name not in given
    }
    missing = [n for n in wanted if n not in given and n not in absent]
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
    chosen = set(wanted)
    kept = [f for name, f in fields.items() if name in chosen and (name in given or name in absent)]
    places = {name: i for i, name in enumerate(batch.column_names)}
    columns = []
    for field in kept:
        if field.name in absent:
            columns.append(absent[field.name])
            continue
        check_same(batch.schema.field(places[field.name]), field)
        columns.append(_fit_column(batch.column(places[field.name]), field, table))
    return pa.table(columns, schema=pa.schema(kept))


def _fit_column(column: pa.ChunkedArray, field: pa.Field, table: str) -> pa.ChunkedArray:
    if not field.nullable and column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise Invalid(
            f"column {field.name!r} has {column.null_count} nulls, first in row {row}, but the table's schema"
            " allows none; fill them, or leave these rows out",
            table=table,
        )
    vector = vector_of(field)
    if vector is not None:
        return fitted(column, vector, field.name)
    if column.type == field.type:
        return column
    if (extra := extra_field(column.type, field.type)) is not None:  # a cast drops it without a word
        raise Invalid(
            f"column {field.name!r} of type {column.type} has the field {extra!r}, which the table's"
            f" {field.type} lacks; add it to the table's schema first (evolve, or ALTER TABLE), or leave it"
            " out",
            table=table,
        )
    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column.cast(field.type, safe=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        row = misfit(column, field.type)
        at = "" if row is None else f", row {row},"
        raise Invalid(
            f"column {field.name!r}{at} of type {column.type} does not fit the table's {field.type}:"
            f" {error}; cast it before writing",
            table=table,
        ) from error


def extra_field(found: pa.DataType, kind: pa.DataType, within: str = "") -> str | None:
    """The first nested field that a type has and another one lacks, by its path; None if there is none."""
    if pa.types.is_struct(found) and pa.types.is_struct(kind):
        there = {field.name: field.type for field in kind}
        for field in found:
            if field.name not in there:
                return f"{within}{field.name}"
            if (extra := extra_field(field.type, there[field.name], f"{within}{field.name}.")) is not None:
                return extra
        return None
    if pa.types.is_map(found) and pa.types.is_map(kind):
        return extra_field(found.item_type, kind.item_type, f"{within}value.")
    if pa.types.is_map(found) or pa.types.is_map(kind):
        return None
    if hasattr(found, "value_type") and hasattr(kind, "value_type"):
        return extra_field(found.value_type, kind.value_type, f"{within}element.")
    return None


def misfit(column: pa.ChunkedArray, kind: pa.DataType) -> int | None:
    """The first row whose value this type cannot hold; None if the trouble is with the types themselves."""

    def fits(part: pa.ChunkedArray) -> bool:
        try:
            part.cast(kind, safe=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            return False
        return True

    if fits(column) or not fits(column.slice(0, 0)):
        return None
    return bisect_left(range(len(column)), True, key=lambda row: not fits(column.slice(0, row + 1)))


@lru_cache(maxsize=64)
def arrow_user_schema(text: str, path: str = "") -> pa.Schema:
    """Arrow schema of the user columns."""
    schema = avro_to_arrow(text, path=path)
    return pa.schema([f for f in schema if f.name not in META_FIELDS])


@lru_cache(maxsize=64)
def log_schema(text: str, table_name: str) -> str:
    """Avro schema text of log blocks, meta columns included, of a table with this schema."""
    return arrow_to_avro(arrow_user_schema(text), table_name=table_name, meta_fields=True)
