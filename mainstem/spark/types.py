"""Converts between Spark's ``StructType`` and Arrow schemas, as HoodieSparkSchemaConverters does with Avro.

This does not use pyspark's internal functions, whose signatures change between releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from mainstem.errors import Invalid
from mainstem.formats.vectors import VECTOR_MARK, vector_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

_SCALARS: tuple[tuple[type[T.DataType], pa.DataType], ...] = (
    (T.BooleanType, pa.bool_()),
    (T.ByteType, pa.int8()),
    (T.ShortType, pa.int16()),
    (T.IntegerType, pa.int32()),
    (T.LongType, pa.int64()),
    (T.FloatType, pa.float32()),
    (T.DoubleType, pa.float64()),
    (T.StringType, pa.string()),
    (T.BinaryType, pa.binary()),
    (T.DateType, pa.date32()),
    (T.TimestampType, pa.timestamp("us", "UTC")),
    (T.TimestampNTZType, pa.timestamp("us")),
)


def arrow_schema(schema: T.StructType, *, nullable: bool = False) -> pa.Schema:
    """Arrow schema of a Spark schema; timestamps are microseconds, ``TimestampType`` in UTC.

    ``nullable=True`` makes every column nullable, as Hudi stores them. Arrays whose column has the
    metadata ``hudi_type`` stay marked as vectors. Raises ``Invalid`` naming the column for types
    that a Hudi table cannot hold (intervals, time of day, variants, void, UDTs).
    """
    return pa.schema(
        [
            pa.field(f.name, _arrow_type(f.dataType, f.name), nullable or f.nullable, _mark(f.metadata))
            for f in schema.fields
        ]
    )


def _mark(metadata: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The metadata that marks a vector, as Hudi's Spark writer reads it (HoodieSparkSchemaConverters)."""
    text = (metadata or {}).get(VECTOR_MARK)
    return None if text is None else {VECTOR_MARK: str(text)}


def _arrow_type(kind: T.DataType, column: str) -> pa.DataType:
    for spark, arrow in _SCALARS:
        if isinstance(kind, spark):
            return arrow
    if isinstance(kind, T.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, T.ArrayType):
        item = _arrow_type(kind.elementType, f"{column}.element")
        return pa.list_(pa.field("element", item, nullable=kind.containsNull))
    if isinstance(kind, T.MapType):
        key = pa.field("key", _arrow_type(kind.keyType, f"{column}.key"), nullable=False)
        value = _arrow_type(kind.valueType, f"{column}.value")
        return pa.map_(key, pa.field("value", value, nullable=kind.valueContainsNull))
    if isinstance(kind, T.StructType):
        return pa.struct(
            [
                pa.field(f.name, _arrow_type(f.dataType, f"{column}.{f.name}"), nullable=f.nullable)
                for f in kind.fields
            ]
        )
    raise Invalid(
        f"column {column!r} has the Spark type {kind.simpleString()}, which a Hudi table cannot"
        " hold; cast it, for example an interval to bigint, a time or variant to string, void to"
        " the type that is meant"
    )


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], columns: str) -> DataFrame:
    """A few rows as a frame; ``columns`` as DDL. By Arrow: else a Python worker would make them, in 0.5 s."""
    schema = arrow_schema(T.StructType.fromDDL(columns))
    given = list(rows)
    arrays = [pa.array([row[n] for row in given], field.type) for n, field in enumerate(schema)]
    return spark.createDataFrame(pa.table(arrays, schema=schema))


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Spark schema of a table's Arrow schema; every column is nullable, as Hudi stores them.

    As in Hudi, a vector is an array of non-null elements with the column metadata ``hudi_type``.
    """
    return T.StructType([_spark_field(f) for f in schema])


def _spark_field(field: pa.Field) -> T.StructField:
    vector = vector_of(field)
    if vector is None:
        return T.StructField(field.name, _spark_type(field.type, field.name), True)
    element = _spark_type(field.type.value_type, field.name)
    return T.StructField(field.name, T.ArrayType(element, False), True, {VECTOR_MARK: str(vector)})


def _spark_type(kind: pa.DataType, column: str) -> T.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return _spark_type(kind.value_type, column)
    if types.is_timestamp(kind):
        return T.TimestampType() if kind.tz else T.TimestampNTZType()
    if types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if types.is_date(kind):
        return T.DateType()
    if types.is_time(kind):  # Hudi's Spark reader shows the plain number
        return T.IntegerType() if kind.unit in ("s", "ms") else T.LongType()
    if types.is_string(kind) or types.is_large_string(kind) or "string_view" in str(kind):
        return T.StringType()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return T.BinaryType()
    for spark, arrow in _SCALARS:
        if kind == arrow:
            return spark()
    if types.is_map(kind):
        key = _spark_type(kind.key_type, f"{column}.key")
        return T.MapType(key, _spark_type(kind.item_type, f"{column}.value"), True)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return T.ArrayType(_spark_type(kind.value_type, f"{column}.element"), True)
    if types.is_struct(kind):
        children = [kind.field(i) for i in range(kind.num_fields)]
        return T.StructType(
            [T.StructField(c.name, _spark_type(c.type, f"{column}.{c.name}"), True) for c in children]
        )
    raise Invalid(
        f"column {column!r} has the Arrow type {kind}, for which Spark has no type; leave it out with"
        ' option("columns", "...")'
    )


def fit_for_spark(table: pa.Table | pa.RecordBatch, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The columns of ``target``, as batches with exactly its types and nullability.

    Spark 4.2 and newer compare both and refuse any difference; older releases misread the buffers.
    """
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    columns = []
    for field in target:
        column = table.column(field.name)
        if column.type != field.type:
            column = _fit_column(column, field.type)
        columns.append(column)
    yield from pa.table(columns, schema=target).to_batches()


def _fit_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_time(column.type):
        return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()).cast(kind)
    return column.cast(kind)
