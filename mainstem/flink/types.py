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
| ARRAY that is a vector    | fixed, vector                 | list, marked                |

The two kinds of timestamps are the other way round than their names say. That is what Hudi stores, and
what its Flink reader expects: a TIMESTAMP's wall clock is stored as if it were UTC
(``write.utc-timezone=true``), a TIMESTAMP_LTZ as its instant's wall clock in UTC.

Types are read from Java's own (``LogicalType``): PyFlink's classes lose the precision of timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.vectors import VECTOR_MARK, Vector
from mainstem.options.placing import VECTOR_COLUMNS

_PLAIN: dict[str, tuple[pa.DataType, str]] = {
    "BOOLEAN": (pa.bool_(), "BOOLEAN"),
    "TINYINT": (pa.int32(), "TINYINT"),
    "SMALLINT": (pa.int32(), "SMALLINT"),
    "INTEGER": (pa.int32(), "INT"),
    "BIGINT": (pa.int64(), "BIGINT"),
    "FLOAT": (pa.float32(), "FLOAT"),
    "DOUBLE": (pa.float64(), "DOUBLE"),
    "CHAR": (pa.string(), "STRING"),
    "VARCHAR": (pa.string(), "STRING"),
    "BINARY": (pa.binary(), "BYTES"),
    "VARBINARY": (pa.binary(), "BYTES"),
    "DATE": (pa.date32(), "DATE"),
}
_ELEMENTS = {"FLOAT": "FLOAT", "DOUBLE": "DOUBLE", "TINYINT": "INT8"}
_WALL_CLOCK, _INSTANT = "TIMESTAMP_WITHOUT_TIME_ZONE", "TIMESTAMP_WITH_LOCAL_TIME_ZONE"


def flink_to_arrow(row: Any) -> pa.Schema:
    """The Arrow schema that a table stores for Java's ``RowType``; every column is nullable, as in Hudi.

    Raises ``Unsupported`` naming the column for types that a Hudi table cannot hold.
    """
    return pa.schema([pa.field(f.getName(), _arrow(f.getType(), f.getName())) for f in row.getFields()])


def with_vectors(columns: pa.Schema, row: Any, vectors: Mapping[str, int]) -> pa.Schema:
    """The columns with those marked that are VECTORs of these dimensions, by their names in lower case.

    As in Hudi's connector the elements say the type. Raises ``Invalid`` for other columns.
    """
    kinds = {f.getName().lower(): (place, f.getType()) for place, f in enumerate(row.getFields())}
    for name, dimension in vectors.items():
        place, kind = kinds.get(name, (-1, None))
        array = kind is not None and kind.getTypeRoot().name() == "ARRAY"
        element = _ELEMENTS.get(kind.getElementType().getTypeRoot().name()) if array else None
        if element is None:
            found = "no such column" if kind is None else kind.asSummaryString()
            raise Invalid(
                f"{VECTOR_COLUMNS} names {name!r}: {found}; expected a column ARRAY<FLOAT>,"
                " ARRAY<DOUBLE> or ARRAY<TINYINT>"
            )
        mark = {VECTOR_MARK: str(Vector(dimension, element))}
        columns = columns.set(place, columns.field(place).with_metadata(mark))
    return columns


def cast_type(kind: Any) -> str:
    """A ``LogicalType`` as it stands in a CAST that neither cuts nor pads texts, as sinks do not."""
    root = kind.getTypeRoot().name()
    if root in _PLAIN:
        return _PLAIN[root][1]
    if root == "ARRAY":
        return f"ARRAY<{cast_type(kind.getElementType())}>"
    if root == "MAP":
        return f"MAP<{cast_type(kind.getKeyType())}, {cast_type(kind.getValueType())}>"
    if root == "MULTISET":
        return f"MULTISET<{cast_type(kind.getElementType())}>"
    if root == "ROW":
        fields = (f"`{f.getName()}` {cast_type(f.getType())}" for f in kind.getFields())
        return f"ROW<{', '.join(fields)}>"
    return kind.copy(True).asSerializableString()


def _arrow(kind: Any, column: str) -> pa.DataType:
    root = kind.getTypeRoot().name()
    if root in _PLAIN:
        return _PLAIN[root][0]
    if root == "DECIMAL":
        return pa.decimal128(kind.getPrecision(), kind.getScale())
    if root == "TIME_WITHOUT_TIME_ZONE":
        _check_precision(kind, column, 3, "TIME")
        return pa.time32("ms")
    if root in (_WALL_CLOCK, _INSTANT):
        _check_precision(kind, column, 6, "TIMESTAMP" if root == _WALL_CLOCK else "TIMESTAMP_LTZ")
        unit = "ms" if kind.getPrecision() <= 3 else "us"
        return pa.timestamp(unit, "UTC") if root == _WALL_CLOCK else pa.timestamp(unit)
    if root == "ARRAY":
        return pa.list_(pa.field("element", _arrow(kind.getElementType(), f"{column}.element")))
    if root == "MAP":
        _check_key(kind.getKeyType(), column)
        return pa.map_(pa.string(), _arrow(kind.getValueType(), f"{column}.value"))
    if root == "MULTISET":
        _check_key(kind.getElementType(), column)
        return pa.map_(pa.string(), pa.int32())
    if root == "ROW":
        fields = [(f.getName(), _arrow(f.getType(), f"{column}.{f.getName()}")) for f in kind.getFields()]
        return pa.struct([pa.field(name, arrow) for name, arrow in fields])
    raise Unsupported(
        f"column {column!r} has the Flink type {kind.asSummaryString()}, which a Hudi table cannot hold; cast"
        " it, for example an interval to BIGINT, a raw value to STRING or BYTES"
    )


def _check_precision(kind: Any, column: str, most: int, label: str) -> None:
    if kind.getPrecision() > most:
        raise Unsupported(
            f"column {column!r} is {label}({kind.getPrecision()}); Hudi's Flink tables hold at most"
            f" {label}({most}): declare it so"
        )


def _check_key(kind: Any, column: str) -> None:
    if kind.getTypeRoot().name() not in ("CHAR", "VARCHAR"):
        raise Unsupported(
            f"column {column!r}: the keys of its map are {kind.asSummaryString()}, Hudi's Flink tables hold"
            " maps with string keys only; cast them to STRING"
        )
