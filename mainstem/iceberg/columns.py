"""A table's columns as Iceberg's, with field ids that stay.

Hudi's files have no field ids: Iceberg finds a column by its name, through ``schema.name-mapping.default``.
The ids of columns that were there keep, new columns get new ones; a column that went and came back under its
name is a new column that is found in older files, as Hudi finds it. Every column may be null. Hudi's meta
columns are left out: the files hold them, and no Iceberg schema names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping, create_mapping_from_schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import META_FIELDS

#: above all ids of columns, and below those that Iceberg reserves
_HIDDEN = 2_000_000_000
_NextId = Callable[[str], int]
_PLAIN: dict[pa.DataType, PrimitiveType] = {
    pa.bool_(): BooleanType(), pa.int8(): IntegerType(), pa.int16(): IntegerType(),
    pa.int32(): IntegerType(), pa.int64(): LongType(), pa.float32(): FloatType(), pa.float64(): DoubleType(),
    pa.string(): StringType(), pa.large_string(): StringType(), pa.binary(): BinaryType(),
    pa.large_binary(): BinaryType(), pa.date32(): DateType(), pa.time64("us"): TimeType(),
}  # fmt: skip


def iceberg_schema(schema: pa.Schema, before: Schema | None, last_id: int) -> Schema:
    """The user's columns. ``before``: the schema whose ids are kept; ``last_id``: the highest id ever given.

    Raises ``Unsupported``, with the column's name, for a type that Iceberg (version 2) has not.
    """
    known: dict[str, int] = {} if before is None else paths_of(before)
    ids = _Ids(known, last_id)
    fields = [field for field in schema if field.name not in META_FIELDS]
    return Schema(*_fields(fields, "", ids), schema_id=0 if before is None else before.schema_id)


def paths_of(schema: Schema) -> dict[str, int]:
    """Path of every field, nested ones too -> its id."""
    found: dict[str, int] = {}

    def visit(kind: IcebergType, at: str) -> None:
        if isinstance(kind, StructType):
            for field in kind.fields:
                found[f"{at}\0{field.name}"] = field.field_id
                visit(field.field_type, f"{at}\0{field.name}")
        elif isinstance(kind, ListType):
            found[f"{at}\0\1element"] = kind.element_id
            visit(kind.element_type, f"{at}\0\1element")
        elif isinstance(kind, MapType):
            found[f"{at}\0\1key"], found[f"{at}\0\1value"] = kind.key_id, kind.value_id
            visit(kind.value_type, f"{at}\0\1value")

    visit(schema.as_struct(), "")
    return found


class _Ids:
    def __init__(self, known: Mapping[str, int], last: int) -> None:
        self._known, self._last = known, last

    def __call__(self, path: str) -> int:
        found = self._known.get(path)
        if found is None:
            self._last += 1
            found = self._last
        return found


def _fields(fields: list[pa.Field], at: str, ids: _NextId) -> list[NestedField]:
    own = [(field, ids(f"{at}\0{field.name}")) for field in fields]
    return [
        NestedField(number, field.name, _type(field.type, f"{at}\0{field.name}", ids), required=False)
        for field, number in own
    ]


def _type(kind: pa.DataType, at: str, ids: _NextId) -> IcebergType:
    if pa.types.is_dictionary(kind):
        return _type(kind.value_type, at, ids)
    if pa.types.is_struct(kind):
        return StructType(*_fields([kind.field(i) for i in range(kind.num_fields)], at, ids))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = f"{at}\0\1element"
        number = ids(inner)
        return ListType(number, _type(kind.value_type, inner, ids), element_required=False)
    if pa.types.is_map(kind):
        key, value = f"{at}\0\1key", f"{at}\0\1value"
        key_id, value_id = ids(key), ids(value)
        key_type, value_type = _type(kind.key_type, key, ids), _type(kind.item_type, value, ids)
        return MapType(key_id, key_type, value_id, value_type, value_required=False)
    found = _primitive(kind)
    if found is None:
        name = ".".join(part.removeprefix("\1") for part in at.split("\0")[1:])
        raise Unsupported(f"the column {name} is of the type {kind}, which Iceberg (version 2) has not")
    return found


def _primitive(kind: pa.DataType) -> PrimitiveType | None:
    if pa.types.is_decimal128(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return TimestampType() if kind.tz is None else TimestamptzType()
    if pa.types.is_fixed_size_binary(kind):
        return FixedType(kind.byte_width)
    return _PLAIN.get(kind)


def name_mapping(schema: Schema, before: str | None, others: Mapping[str, pa.Field]) -> str:
    """By which a column of a file without field ids is found (``schema.name-mapping.default``).

    pyiceberg refuses a file with a column that the mapping lacks, so it also names what no schema has: meta
    columns, columns that went (of the mapping ``before``) and ``others``, by ids that no column ever gets.
    """
    found = create_mapping_from_schema(schema).root
    if before is not None:
        found = _merged(found, NameMapping.model_validate_json(before).root)
    known = {name for field in found for name in field.names}
    ids = _Ids({}, max([_HIDDEN, *(field.field_id or 0 for field in found)]))
    meta = {name: pa.field(name, pa.string()) for name in META_FIELDS}
    hidden = [one for name, one in {**others, **meta}.items() if name not in known]
    if hidden:
        found = [*found, *create_mapping_from_schema(Schema(*_fields(hidden, "", ids))).root]
    return NameMapping(found).model_dump_json()


def _merged(now: list[MappedField], before: list[MappedField]) -> list[MappedField]:
    """All names of both; of those in both the ids of ``now``."""
    old = {name: field for field in before for name in field.names}
    made = []
    for field in now:
        inner = [one for name in field.names if name in old for one in old.pop(name).fields]
        made.append(MappedField(field_id=field.field_id, names=field.names, fields=_merged(field.fields,
        inner)))
    return [*made, *old.values()]


def unfit(wanted: Schema, file: pa.Schema) -> str | None:
    """A column of a file that readers of Iceberg could not read as the table's, with both types; None if all
    fit.

    Iceberg widens int to long and decimals of one scale. It also widens float to double, but to other digits
    than Hudi does, which shows 0.1 as 0.1 and not as 0.10000000149011612: such a file does not fit.
    """
    names = {name: at for at, name in enumerate(file.names)}
    for field in wanted.fields:
        at = names.get(field.name)
        if at is None:
            continue
        kind = file.field(at).type
        try:
            found = _type(kind, f"\0{field.name}", _Ids({}, 0))
        except Unsupported:
            return f"{field.name} as {kind}, not {field.field_type}"
        if not _fits(found, field.field_type):
            return f"{field.name} as {kind}, not {field.field_type}"
    return None


def _fits(found: IcebergType, wanted: IcebergType) -> bool:
    if isinstance(wanted, StructType):
        if not isinstance(found, StructType):
            return False
        inner: dict[str, Any] = {field.name: field.field_type for field in found.fields}
        own = [(inner[f.name], f.field_type) for f in wanted.fields if f.name in inner]
        return all(_fits(one, other) for one, other in own)
    if isinstance(wanted, ListType):
        return isinstance(found, ListType) and _fits(found.element_type, wanted.element_type)
    if isinstance(wanted, MapType):
        return (
            isinstance(found, MapType)
            and _fits(found.key_type, wanted.key_type)
            and _fits(found.value_type, wanted.value_type)
        )
    if isinstance(wanted, DecimalType) and isinstance(found, DecimalType):
        return found.scale == wanted.scale and found.precision <= wanted.precision
    return found == wanted or (isinstance(found, IntegerType) and isinstance(wanted, LongType))


def same_columns(one: Schema, other: Schema) -> bool:
    """Whether two schemas say the same, apart from their numbers."""
    return one.as_struct() == other.as_struct()


def still_readable(now: Schema, before: Schema) -> bool:
    """Whether files that fitted the schema before fit this one, so that their footers need not be read
    again."""
    return _fits(before.as_struct(), now.as_struct())
