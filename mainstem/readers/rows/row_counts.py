"""How many rows of a file slice a query finds, as far as the footer of its base file tells.

Without log files every row of the base file is a row of the table: base rows never count as deletes. A filter
is decided by the footer if each of its columns has one value in a whole row group, as partition columns do.
In doubt, rows are read.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from mainstem.errors import MainstemError
from mainstem.filters.expression_tree import Call, Node, tree
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.base_rows import BaseFile, open_base_of
from mainstem.readers.rows.query_columns import with_path_values
from mainstem.readers.rows.slice_query import SliceQuery
from mainstem.storage.protocol import Storage

# Writers may shorten the bounds of long texts.
_WHOLE_TEXT_MAX = 32


def told_count(storage: Storage, split: object) -> int | None:
    """Number of rows that the split's query finds; None if only its rows tell.

    Raises what reading the split raises for a base file that is gone, cut off or no Parquet file.
    """
    if not isinstance(split, SliceQuery) or split.base_file is None or split.log_files:
        return None
    spec = split.spec
    if spec.instants is not None or spec.virtual_key:
        return None  # rows are told apart, or their keys are computed, which may fail
    if spec.filter is not None and (spec.ids is not None or not _is_fixed(tree(spec.filter))):
        return None
    with open_base_of(storage, split) as base:
        return _told(base, split)


def _told(base: BaseFile, split: SliceQuery) -> int | None:
    described = base.source.metadata
    groups = [described.row_group(number).num_rows for number in range(base.group_count)]
    if sum(groups) != described.num_rows or not _is_readable(base, split):
        return None
    rows = 0
    for number, count in enumerate(groups):
        passes = not count or split.spec.filter is None or _passes(base, number, split)
        if passes is None:
            return None
        rows += count if passes else 0
    return rows


def _is_readable(base: BaseFile, split: SliceQuery) -> bool:
    """Whether the column that is read where none is asked for is as expected, or is not there."""
    schema = base.source.schema_arrow
    at = schema.get_field_index(KEY_COLUMN)
    return at < 0 or schema.field(at).type == split.spec.schema.field(KEY_COLUMN).type


def _is_fixed(node: Node | None) -> bool:
    """Whether a filter gives one answer for all rows that have the same values."""
    if isinstance(node, Call):
        return node.function != "random" and all(_is_fixed(argument) for argument in node.arguments)
    return node is not None


def _passes(base: BaseFile, group: int, split: SliceQuery) -> bool | None:
    """Whether all rows of a row group pass the filter (True), or none (False); None if only they tell."""
    spec = split.spec
    from_path = {name for name, _ in split.path_values}
    columns = []
    for name in spec.extra:
        kind = spec.schema.field(name).type
        value = pa.scalar(None, kind) if name in from_path else _only_value(base, group, name, kind)
        if value is None:
            return None
        columns.append(pa.repeat(value, 1))
    if not columns:
        return None
    row = pa.table(columns, schema=pa.schema([spec.schema.field(name) for name in spec.extra]))
    try:
        return bool(with_path_values(row, split).filter(spec.filter).num_rows)
    except (pa.ArrowException, MainstemError):  # reading will report it, if it reads any row
        return None


def _only_value(base: BaseFile, group: int, name: str, kind: pa.DataType) -> pa.Scalar[Any] | None:
    """The value that a column has in every row of a row group; None if it has several, or may have."""
    at = base.source.schema_arrow.get_field_index(name)
    chunk = base.column_of(group, name)
    if at < 0 or chunk is None or base.source.schema_arrow.field(at).type != kind:
        return None
    exact = pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind)
    told = chunk.statistics
    if not exact or told is None or not told.has_null_count:
        return None
    if told.null_count == base.source.metadata.row_group(group).num_rows:
        return pa.scalar(None, kind)
    if told.null_count or not told.has_min_max:
        return None
    try:
        least, greatest = told.min, told.max
    except OverflowError:  # a day that Python's dates do not have
        return None
    if least != greatest:
        return None
    text = least if pa.types.is_string(kind) else ""
    if not isinstance(text, str) or len(text) > _WHOLE_TEXT_MAX or (pa.types.is_string(kind) and not text):
        return None
    try:
        return pa.scalar(least, kind)
    except pa.ArrowException:
        return None
