"""Parts of other engines' filters that mean the same in Arrow, so that they may reach the files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COMPARED: Mapping[str, Callable[[pc.Expression, Any], pc.Expression]] = {
    "Eq": lambda field, value: field == value,
    "NotEq": lambda field, value: field != value,
    "Lt": lambda field, value: field < value,
    "LtEq": lambda field, value: field <= value,
    "Gt": lambda field, value: field > value,
    "GtEq": lambda field, value: field >= value,
}
#: what a comparison is with its sides exchanged
TURNED = {"Eq": "Eq", "NotEq": "NotEq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
#: for Polars and Daft NaN is greater than all numbers, for Arrow it is not
_OF_NAN = ("Gt", "GtEq")


def compared(operator: str, column: str, value: Any, schema: pa.Schema) -> pc.Expression | None:
    """``column operator value`` (an operator of ``TURNED``) as Arrow tells it; None where that may pass fewer
    rows than another engine does."""
    kind = schema.field(column).type
    if pa.types.is_floating(kind) and (operator in _OF_NAN or value != value):
        return None
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        return None  # 0.1 is rounded as the column is for Polars, and the column widened for Arrow
    if operator not in _COMPARED or not _comparable(value, kind):
        return None
    return _COMPARED[operator](pc.field(column), value)


def _comparable(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, bool):
        return pa.types.is_boolean(kind)
    if isinstance(value, int):
        return pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if isinstance(value, float):
        return pa.types.is_floating(kind)
    if isinstance(value, str):
        return pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if isinstance(value, datetime.datetime):
        return False
    return isinstance(value, datetime.date) and pa.types.is_date32(kind)
