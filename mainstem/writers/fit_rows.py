"""Fits a caller's rows to the table's columns and types, and tells which of them are deletes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.vectors import VectorRefused
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.layout.schema_fit import fit_batch
from mainstem.merge.log_entries import deleted_rows
from mainstem.merge.modes import EVENT_TIME, FILL_UNAVAILABLE
from mainstem.merge.rules import DELETED_COLUMN, OPERATION_COLUMN
from mainstem.writers.write_spec import DELETE, DELETE_MARK, DELETES, MERGE_ROWS, UPDATE_COLUMNS, WriteSpec

_GONE = "D"
_MARKS = pa.field(OPERATION_COLUMN, pa.string())


def fit_rows(batch: pa.Table, spec: WriteSpec, schema: pa.Schema) -> pa.Table:
    """Returns the batch in the columns and types that the operation writes.

    ``schema``: the table's user columns. A delete needs only the key and partition columns.
    ``update_columns`` results in rows with all columns, or with ``partial_blocks`` in the given columns.
    Raises ``Invalid`` for a column that does not fit, and for a null ordering value in an event-time table.
    """
    if spec.operation in DELETES:
        ordering = spec.ordering if spec.operation != DELETE else ()
        needed = [n for n in schema.names if n in {*spec.keys.needed_columns, *ordering}]
        given = [n for n in batch.column_names if schema.get_field_index(n) >= 0]
        if not needed and spec.keys.made_up:
            return batch.select([KEY_COLUMN])  # a table without columns would have no rows
        return fit_batch(batch.select(given), schema, required=needed, table=spec.base)
    try:
        rows = _fitted(batch, spec, schema)
    except VectorRefused as error:
        raise error.with_key(_key_of(batch, error.row, spec, schema)) from None
    if spec.rules.ordering:
        _check_ordering(rows, spec)
    return rows


def _fitted(batch: pa.Table, spec: WriteSpec, schema: pa.Schema) -> pa.Table:
    if spec.operation == UPDATE_COLUMNS:
        return _updated_columns(batch, spec, schema)
    needed = {*spec.keys.needed_columns, *spec.ordering}
    fill = [n for n in schema.names if n not in needed] if spec.fill_missing else ()
    return fit_batch(batch, schema, fill=fill, table=spec.base)


def _key_of(batch: pa.Table, row: int, spec: WriteSpec, schema: pa.Schema) -> str:
    """The record key of one row, for an error message. Raises ``Invalid`` if the key is wrong, too."""
    if spec.keys.made_up:
        return str(batch.column(KEY_COLUMN)[row]) if KEY_COLUMN in batch.column_names else "made up"
    needed = [n for n in schema.names if n in spec.keys.needed_columns]
    given = batch.slice(row, 1).select([n for n in batch.column_names if n in needed])
    return spec.keys.record_keys(fit_batch(given, schema, required=needed, table=spec.base)).texts[0].as_py()


def without_mark(batch: pa.Table, spec: WriteSpec) -> tuple[pa.Table, np.ndarray | None]:
    """The rows of a ``merge_rows`` without their mark, and the mask of those that it marks as deletes. Rows
    that a task handed over have no mark any more."""
    if spec.operation != MERGE_ROWS or DELETE_MARK not in batch.column_names:
        return batch, None
    if batch.column_names.count(DELETE_MARK) != 1 or batch.column(DELETE_MARK).type != pa.bool_():
        raise Invalid(f"{MERGE_ROWS} needs the column {DELETE_MARK} of booleans", table=spec.base)
    mark = batch.column(DELETE_MARK).fill_null(False).to_numpy()
    return batch.drop_columns([DELETE_MARK]), mark if mark.any() else None


def delete_flags(rows: pa.Table, spec: WriteSpec) -> np.ndarray | None:
    """Mask of the rows that are deletes; None if there are none.

    Every row of the operations ``delete`` and ``delete_rows`` is one. Otherwise, as in Java, a row is one if
    ``_hoodie_is_deleted`` is true, if ``_hoodie_operation`` is ``D`` or ``-U``, or if the table's delete
    field holds its delete marker.
    """
    if spec.operation in DELETES:
        return np.ones(rows.num_rows, bool)
    return deleted_rows(rows, spec.rules)


def marked(rows: pa.Table, deleted: np.ndarray | None) -> pa.Table:
    """The rows with a column that tells which of them are deletes, for merges that go by columns."""
    if deleted is None:
        return rows
    marks = pa.array(np.where(deleted, _GONE, None), pa.string())
    at = rows.schema.get_field_index(OPERATION_COLUMN)
    if at < 0:
        return rows.append_column(_MARKS, marks)
    field = rows.schema.field(at)
    return rows.set_column(at, field, pc.coalesce(marks, rows.column(at).cast(pa.string())).cast(field.type))


def with_marks(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Schema:
    """The schema, with the column of ``marked`` if one of the tables has it."""
    there = OPERATION_COLUMN in schema.names
    if there or not any(OPERATION_COLUMN in table.column_names for table in tables):
        return schema
    return schema.append(_MARKS)


def without_marks(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows without the column of ``marked``, unless it is one of the table's."""
    if OPERATION_COLUMN in schema.names or OPERATION_COLUMN not in rows.column_names:
        return rows
    return rows.drop_columns([OPERATION_COLUMN])


def _check_ordering(rows: pa.Table, spec: WriteSpec) -> None:
    for name in spec.rules.ordering:
        column = rows.column(name)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy())[0])
            raise Invalid(
                f"ordering field {name!r} is null in {column.null_count} rows, first in row"
                f" {row}; {EVENT_TIME} needs a value in every row: fill or filter them",
                table=spec.base,
            )


def _updated_columns(batch: pa.Table, spec: WriteSpec, schema: pa.Schema) -> pa.Table:
    given = {n for n in batch.column_names if n not in META_FIELDS}
    needed = set(spec.keys.needed_columns)
    if spec.rules.ordering:
        needed |= set(spec.rules.ordering)
    required = [n for n in schema.names if n in needed or n in given]
    part = fit_batch(batch, schema, required=required, table=spec.base)
    if spec.partial_blocks:
        if spec.native_logs and DELETED_COLUMN in schema.names and DELETED_COLUMN not in given:
            raise Unsupported(
                f"update_columns with partial blocks without {DELETED_COLUMN}, which is a column of this"
                " table of version 10: Hudi 1.3 would leave out the updated rows. Give it, too (false)",
                table=spec.base,
            )
        return part
    there = dict(zip(part.column_names, part.columns, strict=True))
    if spec.rules.partial == FILL_UNAVAILABLE:
        columns = [there[f.name] if f.name in there else _markers(part.num_rows, f, spec) for f in schema]
    else:
        _check_no_nulls(part, needed, spec)
        columns = [there[f.name] if f.name in there else pa.nulls(part.num_rows, f.type) for f in schema]
    return pa.table(columns, schema=schema)


def _check_no_nulls(part: pa.Table, needed: set[str], spec: WriteSpec) -> None:
    for name in part.column_names:
        nulls = part.column(name).null_count
        if nulls and name not in needed:
            row = int(np.flatnonzero(part.column(name).is_null().to_numpy())[0])
            raise Invalid(
                f"column {name!r} has {nulls} nulls, first in row {row}: update_columns cannot set a cell to"
                " null (under IGNORE_DEFAULTS a null means 'keep the older value'); leave the column"
                " out for these rows, or upsert full rows if the older value is to be kept",
                table=spec.base,
            )


def _markers(rows: int, field: pa.Field, spec: WriteSpec) -> pa.Array:
    """A column of markers, which mean "keep the older value"."""
    if not (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
        raise Invalid(
            f"column {field.name!r} of type {field.type} is left out: under FILL_UNAVAILABLE only string"
            " and binary columns can keep their older value (Hudi compares them with the marker"
            f" {spec.rules.unavailable!r}); give all other columns",
            table=spec.base,
        )
    assert spec.rules.unavailable is not None, "begin refuses update_columns without a marker"
    return pa.repeat(pa.scalar(spec.rules.unavailable).cast(field.type), rows)
