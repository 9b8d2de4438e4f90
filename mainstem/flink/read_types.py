"""Types for reading: stored Arrow types -> Flink's types -> the Arrow types that PyFlink's workers send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyflink.java_gateway import get_gateway
from pyflink.table import DataTypes
from pyflink.table.types import (
    ArrayType,
    MapType,
    RowType,
    _from_java_data_type,
    to_arrow_type,
)

from mainstem.errors import Unsupported

if TYPE_CHECKING:
    from pyflink.table import DataType

_PLAIN = {
    pa.bool_(): DataTypes.BOOLEAN,
    pa.int8(): DataTypes.TINYINT,  # elements of Hudi's vectors
    pa.int32(): DataTypes.INT,
    pa.int64(): DataTypes.BIGINT,
    pa.float32(): DataTypes.FLOAT,
    pa.float64(): DataTypes.DOUBLE,
    pa.string(): DataTypes.STRING,
    pa.binary(): DataTypes.BYTES,
    pa.date32(): DataTypes.DATE,
    pa.time32("ms"): lambda: DataTypes.TIME(3),
    pa.time64("us"): DataTypes.BIGINT,  # Flink's TIME has milliseconds at most
}


def flink_type(kind: pa.DataType, column: str) -> DataType:
    """The Flink type that shows a stored type, the inverse of ``types.flink_to_arrow``.

    Raises ``Unsupported`` naming the column where there is none.
    """
    if pa.types.is_dictionary(kind):
        return flink_type(kind.value_type, column)
    if kind in _PLAIN:
        return _PLAIN[kind]()
    if pa.types.is_decimal(kind):
        return DataTypes.DECIMAL(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        precision = {"s": 0, "ms": 3, "us": 6}[kind.unit]
        return DataTypes.TIMESTAMP(precision) if kind.tz else DataTypes.TIMESTAMP_LTZ(precision)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        return DataTypes.BYTES()
    if pa.types.is_large_string(kind):
        return DataTypes.STRING()
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return DataTypes.ARRAY(flink_type(kind.value_type, f"{column}.element"))
    if pa.types.is_map(kind):
        return DataTypes.MAP(DataTypes.STRING(), flink_type(kind.item_type, f"{column}.value"))
    if pa.types.is_struct(kind):
        fields = [DataTypes.FIELD(f.name, flink_type(f.type, f"{column}.{f.name}")) for f in kind]
        return DataTypes.ROW(fields)
    raise Unsupported(f"column {column!r} has the type {kind}, which Flink has no type for; leave it out")


def python_row_type(row: Any) -> RowType:
    """PyFlink's type of a Java ``RowType``. (Its own conversion forgets the precision of timestamps.)"""
    fields = [DataTypes.FIELD(f.getName(), _python_type(f.getType())) for f in row.getFields()]
    return DataTypes.ROW(fields, row.isNullable())


def _python_type(kind: Any) -> DataType:
    root, null = kind.getTypeRoot().name(), kind.isNullable()
    if root == "TIMESTAMP_WITHOUT_TIME_ZONE":
        return DataTypes.TIMESTAMP(kind.getPrecision(), null)
    if root == "TIMESTAMP_WITH_LOCAL_TIME_ZONE":
        return DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(kind.getPrecision(), null)
    if root == "ROW":
        return python_row_type(kind)
    if root == "ARRAY":
        return DataTypes.ARRAY(_python_type(kind.getElementType()), null)
    if root == "MAP":
        return DataTypes.MAP(_python_type(kind.getKeyType()), _python_type(kind.getValueType()), null)
    conversions = get_gateway().jvm.org.apache.flink.table.types.utils.TypeConversions
    return _from_java_data_type(conversions.fromLogicalToDataType(kind))


def transport_schema(kinds: Mapping[str, DataType]) -> pa.Schema:
    """Arrow whose values are what PyFlink's workers send for these types.

    Raises ``Unsupported`` naming a column.
    """
    return pa.schema([pa.field(name, _transport(kind, name)) for name, kind in kinds.items()])


def _transport(kind: DataType, column: str) -> pa.DataType:
    if isinstance(kind, ArrayType):
        return pa.list_(_transport(kind.element_type, column))
    if isinstance(kind, MapType):
        return pa.map_(_transport(kind.key_type, column), _transport(kind.value_type, column))
    if isinstance(kind, RowType):
        return pa.struct([pa.field(f.name, _transport(f.data_type, column)) for f in kind])
    try:
        return to_arrow_type(kind)
    except ValueError as error:
        raise Unsupported(
            f"column {column!r} has the Flink type {kind}, which PyFlink's workers cannot send; declare a"
            " MULTISET as MAP<STRING, INT>, or leave the column out of the DDL that reads the table"
        ) from error
