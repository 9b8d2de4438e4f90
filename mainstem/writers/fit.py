"""Rows of a caller made rows of the table: columns, types, and which of them are deletes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.merge.entries import deleted_rows
from mainstem.merge.rules import FILL_UNAVAILABLE
from mainstem.table.properties import EVENT_TIME
from mainstem.table.schema import fit_batch
from mainstem.writers.spec import DELETE, UPDATE_COLUMNS, WriteSpec


def as_table(rows: object) -> pa.Table:
    """Rows of a caller as a table; ``Invalid`` for anything but Arrow data."""
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows
    raise Invalid(
        f"rows are a {type(rows).__name__}, expected a pyarrow.Table or RecordBatch: convert them"
        " first (pyarrow.Table.from_pylist, from_pandas)"
    )


def fit_rows(batch: pa.Table, spec: WriteSpec, schema: pa.Schema) -> pa.Table:
    """The batch in the columns and types that the operation writes.

    ``schema``: the table's user columns. A delete needs the key and partition columns only;
    ``update_columns`` gives full-width rows, or with ``partial_blocks`` the given columns. Raises
    ``Invalid`` for what does not fit, and for a null ordering value in an event-time table.
    """
    if spec.operation == DELETE:
        needed = [n for n in schema.names if n in spec.keys.needed_columns]
        given = [n for n in batch.column_names if schema.get_field_index(n) >= 0]
        return fit_batch(batch.select(given), schema, required=needed, table=spec.base)
    if spec.operation == UPDATE_COLUMNS:
        rows = _updated_columns(batch, spec, schema)
    else:
        needed = {*spec.keys.needed_columns, *spec.ordering}
        fill = [n for n in schema.names if n not in needed] if spec.fill_missing else ()
        rows = fit_batch(batch, schema, fill=fill, table=spec.base)
    if spec.merge_mode == EVENT_TIME:
        _check_ordering(rows, spec)
    return rows


def delete_flags(rows: pa.Table, spec: WriteSpec) -> np.ndarray | None:
    """Which rows are deletes; None if none is.

    All of a ``delete``; else, as in Java, rows with ``_hoodie_is_deleted`` true, with ``D`` or
    ``-U`` in ``_hoodie_operation``, or with the table's delete marker in its delete field.
    """
    if spec.operation == DELETE:
        return np.ones(rows.num_rows, bool)
    return deleted_rows(rows, spec.rules)


def _check_ordering(rows: pa.Table, spec: WriteSpec) -> None:
    for name in spec.ordering:
        column = rows.column(name)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            raise Invalid(
                f"ordering field {name!r} is null in {column.null_count} rows, first in row"
                f" {row}; EVENT_TIME_ORDERING needs a value in every row: fill or filter them",
                table=spec.base,
            )


def _updated_columns(batch: pa.Table, spec: WriteSpec, schema: pa.Schema) -> pa.Table:
    given = [n for n in batch.column_names if n not in META_FIELDS]
    needed = set(spec.keys.needed_columns)
    if spec.merge_mode == EVENT_TIME:
        needed |= set(spec.ordering)
    required = [n for n in schema.names if n in needed or n in given]
    part = fit_batch(batch, schema, required=required, table=spec.base)
    if spec.partial_blocks:
        return part
    if spec.partial_mode == FILL_UNAVAILABLE:
        columns = [_or_marker(part, field, spec) for field in schema]
    else:
        _check_no_nulls(part, needed, spec)
        columns = [
            part.column(f.name) if f.name in part.column_names else pa.nulls(part.num_rows, f.type)
            for f in schema
        ]
    return pa.table(columns, schema=schema)


def _check_no_nulls(part: pa.Table, needed: set[str], spec: WriteSpec) -> None:
    for name in part.column_names:
        nulls = part.column(name).null_count
        if nulls and name not in needed:
            raise Invalid(
                f"column {name!r} has {nulls} nulls: update_columns cannot set a cell to null"
                " (under IGNORE_DEFAULTS a null means 'keep the older value'); leave the column"
                " out for these rows, or upsert full rows if keeping the older value is meant",
                table=spec.base,
            )


def _or_marker(part: pa.Table, field: pa.Field, spec: WriteSpec) -> pa.ChunkedArray | pa.Array:
    """A given column, or the marker that stands for "keep the older value" in each row."""
    if field.name in part.column_names:
        return part.column(field.name)
    if not (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
        raise Invalid(
            f"column {field.name!r} of type {field.type} is left out: under FILL_UNAVAILABLE only string"
            " and binary columns can keep their older value (Hudi compares them with the marker"
            f" {spec.unavailable!r}); give all other columns",
            table=spec.base,
        )
    assert spec.unavailable is not None, "begin refuses update_columns without a marker"
    return pa.repeat(pa.scalar(spec.unavailable).cast(field.type), part.num_rows)
