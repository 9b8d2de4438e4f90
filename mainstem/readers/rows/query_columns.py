"""Turns columns as files hold them into columns as a query sees them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Unsupported
from mainstem.layout.keys import record_keys
from mainstem.merge.rules import KEY_COLUMN
from mainstem.options.tables import DROP_PARTITION_COLUMNS
from mainstem.readers.rows.slice_query import TIME_COLUMN, ReadSpec, SliceQuery

_ROW = "\0row"


def with_keys(table: pa.Table, spec: ReadSpec, where: str) -> pa.Table:
    """The table with a record key column: the file's, or built from the key fields (virtual keys)."""
    if spec.virtual_key:
        keys = record_keys(table, spec.virtual_key, composite=spec.composite_key).texts
        if KEY_COLUMN in table.schema.names:
            table = table.drop_columns([KEY_COLUMN])
        return table.append_column(KEY_COLUMN, keys)
    if KEY_COLUMN not in table.schema.names:
        raise CorruptTable(f"file without the column {KEY_COLUMN}", path=where)
    return table


def written_in(table: pa.Table, spec: ReadSpec, where: str) -> pa.Table:
    """Only the rows of ``spec.instants``, if given. Like Java, filter before the merge: a base row from
    outside the range must neither hide a late row of the range nor fill its absent columns."""
    if spec.instants is None or not table.num_rows:
        return table
    if TIME_COLUMN not in table.schema.names:
        raise CorruptTable(
            f"file without the column {TIME_COLUMN}, by which the rows of an instant are told; restore it"
            " from a copy",
            path=where,
        )
    column = table.column(TIME_COLUMN)
    mask = pc.is_in(column, value_set=pa.array(sorted(spec.instants), column.type))
    return table.filter(mask)


def with_path_values(table: pa.Table, split: SliceQuery) -> pa.Table:
    """The table with the partition columns whose value comes from the path filled in."""
    for name, text in split.path_values:
        at = table.schema.get_field_index(name)
        if at >= 0:
            field = table.schema.field(at)
            values = _repeated(text, field.type, table.num_rows, split.partition)
            table = table.set_column(at, field, values)
    return table


def matching_rows(table: pa.Table, expression: pc.Expression) -> np.ndarray:
    """Numbers of the rows that pass a filter, ascending."""
    numbered = table.append_column(_ROW, pa.array(np.arange(table.num_rows, dtype=np.int64)))
    return np.sort(numbered.filter(expression).column(_ROW).to_numpy())


def _repeated(text: str | None, kind: pa.DataType, rows: int, partition: str) -> pa.Array:
    if text is None:
        return pa.nulls(rows, kind)
    try:
        return pa.repeat(pa.scalar(text).cast(kind), rows)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unsupported(
            f"partition {partition!r}: {text!r} does not read as {kind}, and the files hold no"
            f" partition columns ({DROP_PARTITION_COLUMNS}=true)"
        ) from error
