"""Transports columns from Flink's rows to the Python worker without changing any value.

Flink sends flat values and arrays of them as Arrow. Its Arrow writer corrupts maps (from the second batch on)
and rows inside arrays. So the query splits them: a map is sent as an array of its keys and an array of its
values, a row as one column per field and a flag for null. ``taken_apart`` plans this; ``assembled`` puts the
columns together again, with the types that the table stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported

FLAT, MAP, ROW = "flat", "map", "row"


@dataclass(frozen=True)
class Shape:
    """How a column is sent: as one column, as two for a map, or as a flag and its ``fields`` for a row."""

    name: str
    type: pa.DataType
    how: str
    fields: tuple[Shape, ...] = ()


def taken_apart(schema: pa.Schema, quoted: Callable[[str], str]) -> tuple[list[Shape], list[str]]:
    """The shapes of a table's columns, and the SQL expressions of the columns that are sent, in order.

    Raises ``Unsupported`` for nestings that Flink cannot send.
    """
    shapes, expressions = [], []
    for field in schema:
        shape, texts = _apart(field, quoted(field.name), quoted, field.name)
        shapes.append(shape)
        expressions += texts
    return shapes, expressions


def _apart(field: pa.Field, text: str, quoted: Callable[[str], str], where: str) -> tuple[Shape, list[str]]:
    kind = field.type
    if pa.types.is_map(kind):
        _check_flat(kind.item_type, where, f"a map of {kind.item_type}")
        return Shape(field.name, kind, MAP), [f"MAP_KEYS({text})", f"MAP_VALUES({text})"]
    if pa.types.is_struct(kind):
        parts = [_apart(part, f"{text}.{quoted(part.name)}", quoted, f"{where}.{part.name}") for part in kind]
        fields = tuple(shape for shape, _ in parts)
        return Shape(field.name, kind, ROW, fields), [
            f"{text} IS NULL",
            *(text for _, texts in parts for text in texts),
        ]
    if pa.types.is_list(kind):
        _check_flat(kind.value_type, where, f"an array of {kind.value_type}")
    return Shape(field.name, kind, FLAT), [text]


def _check_flat(kind: pa.DataType, where: str, what: str) -> None:
    if pa.types.is_list(kind):
        return _check_flat(kind.value_type, where, what)
    if pa.types.is_nested(kind):
        raise Unsupported(
            f"column {where!r} is {what}: PyFlink cannot send rows and maps inside arrays or maps to"
            " Python; flatten it, or write it with Spark or mainstem.open_table(path).upsert"
        )
    return None


def assembled(columns: Sequence[pa.Array], shapes: Sequence[Shape]) -> pa.Table:
    """Rows put together from the columns that were sent."""
    sent = iter(columns)
    return pa.table([_joined(sent, shape) for shape in shapes], names=[shape.name for shape in shapes])


def _joined(sent: Iterator[pa.Array], shape: Shape) -> pa.Array:
    if shape.how == MAP:
        return _map(next(sent), next(sent), shape.type)
    if shape.how == ROW:
        missing = next(sent)
        fields = [_joined(sent, part) for part in shape.fields]
        return pa.StructArray.from_arrays(
            fields, fields=[shape.type.field(i) for i in range(len(fields))], mask=missing
        )
    return _cast(next(sent), shape.type)


def _map(keys: pa.Array, values: pa.Array, kind: pa.MapType) -> pa.Array:
    offsets = _offsets(keys)
    items = _cast(values.flatten(), kind.item_type)
    return pa.MapArray.from_arrays(offsets, _cast(keys.flatten(), kind.key_type), items).cast(kind)


def _offsets(lists: pa.ListArray) -> pa.Array:
    """Offsets into the flattened values; null where the list is null."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    if not lists.null_count:
        return offsets
    there = pa.concat_arrays([lists.is_valid(), pa.array([True])])
    return pc.if_else(there, offsets, pa.scalar(None, pa.int32()))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(_offsets(column), _cast(column.flatten(), kind.value_type)).cast(kind)
    if pa.types.is_timestamp(kind):
        # Keep Flink's count since 1970, whatever time zone the type declares.
        return column.cast(pa.timestamp(kind.unit)).view(pa.int64()).view(kind)
    return column.cast(kind)
