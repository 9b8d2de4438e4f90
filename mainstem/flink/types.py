"""Flink SQL's types <-> Arrow, as Hudi's Flink writer stores them (``AvroSchemaConverter``).

| Flink                     | Avro                          | Arrow                       |
|---------------------------|-------------------------------|-----------------------------|
| BOOLEAN                   | boolean                       | bool                        |
| TINYINT, SMALLINT, INT    | int                           | int32                       |
| BIGINT                    | long                          | int64                       |
| FLOAT, DOUBLE             | float, double                 | float32, float64            |
| CHAR(n), VARCHAR(n)       | string                        | string                      |
| BINARY(n), VARBINARY(n)   | bytes                         | binary                      |
| DECIMAL(p, s)             | fixed, logical type decimal   | decimal128(p, s)            |
| DATE                      | int, date                     | date32                      |
| TIME(0..3)                | int, time-millis              | time32(ms)                  |
| TIMESTAMP(0..3)           | long, timestamp-millis        | timestamp(ms, UTC)          |
| TIMESTAMP(4..6)           | long, timestamp-micros        | timestamp(us, UTC)          |
| TIMESTAMP_LTZ(0..3)       | long, local-timestamp-millis  | timestamp(ms)               |
| TIMESTAMP_LTZ(4..6)       | long, local-timestamp-micros  | timestamp(us)               |
| ARRAY, MAP, MULTISET, ROW | array, map, map of int, record | list, map, map, struct     |

The two kinds of timestamps are the other way round than their names say. That is what Hudi stores, and
what its Flink reader expects: a TIMESTAMP's wall clock is stored as if it were UTC
(``write.utc-timezone=true``), a TIMESTAMP_LTZ as its instant's wall clock in UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from mainstem.errors import Unsupported

if TYPE_CHECKING:
    from pyflink.table import DataType

_PLAIN: dict[str, pa.DataType] = {
    "BooleanType": pa.bool_(),
    "TinyIntType": pa.int32(),
    "SmallIntType": pa.int32(),
    "IntType": pa.int32(),
    "BigIntType": pa.int64(),
    "FloatType": pa.float32(),
    "DoubleType": pa.float64(),
    "CharType": pa.string(),
    "VarCharType": pa.string(),
    "BinaryType": pa.binary(),
    "VarBinaryType": pa.binary(),
    "DateType": pa.date32(),
}


def flink_to_arrow(rows: DataType) -> pa.Schema:
    """The Arrow schema that a table stores for a Flink ROW type; every column is nullable, as in Hudi.

    Raises ``Unsupported`` naming the column for types that a Hudi table cannot hold.
    """
    return pa.schema([pa.field(f.name, _arrow(f.data_type, f.name)) for f in rows.fields])


def _arrow(kind: DataType, column: str) -> pa.DataType:
    name = type(kind).__name__
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "DecimalType":
        return pa.decimal128(kind.precision, kind.scale)
    if name == "TimeType":
        _check_precision(kind, column, 3, "TIME")
        return pa.time32("ms")
    if name in ("TimestampType", "LocalZonedTimestampType"):
        label = "TIMESTAMP" if name == "TimestampType" else "TIMESTAMP_LTZ"
        _check_precision(kind, column, 6, label)
        unit = "ms" if kind.precision <= 3 else "us"
        return pa.timestamp(unit, "UTC") if name == "TimestampType" else pa.timestamp(unit)
    if name == "ArrayType":
        return pa.list_(pa.field("element", _arrow(kind.element_type, f"{column}.element")))
    if name == "MapType":
        _check_key(kind.key_type, column)
        return pa.map_(pa.string(), _arrow(kind.value_type, f"{column}.value"))
    if name == "MultisetType":
        _check_key(kind.element_type, column)
        return pa.map_(pa.string(), pa.int32())
    if name == "RowType":
        return pa.struct([pa.field(f.name, _arrow(f.data_type, f"{column}.{f.name}")) for f in kind.fields])
    raise Unsupported(
        f"column {column!r} has the Flink type {kind}, which a Hudi table cannot hold; cast it, for example"
        " an interval to BIGINT, a raw value to STRING or BYTES"
    )


def _check_precision(kind: DataType, column: str, most: int, label: str) -> None:
    if kind.precision > most:
        raise Unsupported(
            f"column {column!r} is {label}({kind.precision}); Hudi's Flink tables hold at most"
            f" {label}({most}): cast it"
        )


def _check_key(kind: DataType, column: str) -> None:
    if type(kind).__name__ not in ("CharType", "VarCharType"):
        raise Unsupported(
            f"column {column!r}: the keys of its map are {kind}, Hudi's Flink tables hold maps with string"
            " keys only; cast them to STRING"
        )
