"""Evolves a table's schema to hold the rows that are written: new columns, wider numbers.

As in Hudi without schema on read (AvroSchemaCompatibility, HoodieSchemaUtils.deduceWriterSchema): columns
match by name, new ones are nullable and go to the end, ``int`` may become ``long`` and numbers ``double``,
also when nested. Nothing is dropped or renamed. A column keeps its type while the values fit it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.formats.avro_schema import KAFKA_FIELDS, META_FIELDS, arrow_to_avro, avro_to_arrow, value_type
from mainstem.formats.vectors import check_same, vector_of
from mainstem.layout.schema_fit import misfit

_OWN = ("_hoodie_is_deleted", "_hoodie_operation", *KAFKA_FIELDS)


def needed_fields(
    schema: pa.Schema, batch: pa.Table, *, fixed: Collection[str], whole: Collection[str] = (), fill: bool
) -> list[pa.Field]:
    """Columns that the table must add or widen to hold the batch.

    Empty if the batch fits, or if it lacks columns and ``fill`` is not set; with ``fill`` a batch may lack
    columns and still bring new ones. Raises ``Invalid`` if one of the ``fixed`` columns (keys, partitions,
    ordering) would be widened, or one of the ``whole`` columns to fractions.
    """
    given: dict[str, int] = {}  # a column that is given twice is refused later
    for i, name in enumerate(batch.column_names):
        if name not in META_FIELDS:
            given.setdefault(name, i)
    if not fill and not given.keys() >= set(schema.names):
        return []
    needed = []
    for name, at in given.items():
        column = batch.column(at)
        place = schema.get_field_index(name)
        if place < 0:
            vector = vector_of(batch.schema.field(at))
            kind = value_type(column.type) if vector is None else vector.arrow
            if not pa.types.is_null(kind) and (not name.startswith("_hoodie_") or name in _OWN):
                needed.append(pa.field(name, kind) if vector is None else vector.field(name))
            continue
        field = schema.field(place)
        wider = _type_for(field.type, column)
        if wider != field.type:
            if name in fixed:
                raise Invalid(
                    f"column {name!r} of type {column.type} has values that the table's {field.type} cannot"
                    f" hold{_first(column, field.type)}. Key, partition and ordering columns are never"
                    " widened: their texts and order would change; nor are columns with partition_stats, of"
                    " which Java cannot merge rows of two types. Cast the column before writing, or drop that"
                    " index first"
                )
            if name in whole and pa.types.is_floating(wider):
                raise Invalid(
                    f"column {name!r} of type {column.type} has values that the table's {field.type} cannot"
                    f" hold{_first(column, field.type)}, and it has a secondary index, which holds no"
                    " fractions; cast it before writing, or drop that index first"
                )
            needed.append(field.with_type(wider))
    return needed


def _first(column: pa.ChunkedArray, kind: pa.DataType) -> str:
    row = misfit(column, kind)
    return "" if row is None else f" (first in row {row})"


def declared_fields(
    schema: pa.Schema, declared: pa.Schema, *, fixed: Collection[str], whole: Collection[str] = (), fill: bool
) -> list[pa.Field]:
    """Like ``needed_fields``, but from the declared types of rows still to come.

    What the table cannot hold is left for the rows themselves to show, except a VECTOR type other than
    the column's, which is refused (``Invalid``).
    """
    given = [f for f in declared if f.name not in META_FIELDS and not pa.types.is_null(f.type)]
    if not fill and any(declared.get_field_index(name) < 0 for name in schema.names):
        return []
    needed = []
    for field in given:
        place = schema.get_field_index(field.name)
        if place < 0:
            if not field.name.startswith("_hoodie_") or field.name in _OWN:
                needed.append(field.with_nullable(True))
            continue
        check_same(field, schema.field(place))
        if field.name not in fixed:
            wider = _meeting(schema.field(place).type, field.type)
            broken = field.name in whole and wider is not None and pa.types.is_floating(wider)
            if wider not in (None, schema.field(place).type) and not broken:
                needed.append(schema.field(place).with_type(wider))
    return needed


def asked_fields(schema: pa.Schema, asked: pa.Schema, *, fixed: Collection[str]) -> list[pa.Field]:
    """Columns of ``asked`` that the table lacks, or has in a narrower type.

    Raises ``Invalid`` for one that cannot become what is asked for: a type that is not wider, a name of
    Hudi's own, one of the ``fixed`` columns (keys, partitions, ordering, indexed ones).
    """
    needed = []
    for field in asked:
        place = schema.get_field_index(field.name)
        if place < 0:
            if pa.types.is_null(field.type) or (field.name.startswith("_hoodie_") and field.name not in _OWN):
                raise Invalid(f"the column {field.name!r} of type {field.type} cannot be added")
            needed.append(field.with_nullable(True))
            continue
        ours = schema.field(place)
        if ours.type == field.type:
            continue
        if _meeting(ours.type, field.type) != field.type or field.name in fixed:
            raise Invalid(
                f"the column {field.name!r} is {ours.type} and cannot become {field.type}: integers become"
                " long or double and float becomes double, but for columns of the record key, of partitions,"
                " of the ordering, and with an index that needs the type. Make a column of another name"
            )
        needed.append(ours.with_type(field.type))
    return needed


def merged_fields(schema: pa.Schema, other: pa.Schema) -> list[pa.Field]:
    """Columns that ``schema`` must add or widen to hold all that ``other`` holds.

    Raises ``Invalid`` if a column has two types with no common one.
    """
    needed = []
    for theirs in other:
        place = schema.get_field_index(theirs.name)
        if place < 0:
            needed.append(theirs.with_nullable(True))
            continue
        ours = schema.field(place)
        wider = _meeting(ours.type, theirs.type)
        if wider is None:
            raise Invalid(
                f"another writer has meanwhile made column {theirs.name!r} a {theirs.type}, but here it is a"
                f" {ours.type}: nothing was published; cast the column and write the data again"
            )
        if wider != ours.type:
            needed.append(ours.with_type(wider))
    return needed


def evolved(text: str, fields: Iterable[pa.Field], table_name: str) -> str:
    """The schema's Avro JSON with these columns added or widened; all others stay word for word."""
    record = json.loads(text)
    places = {field["name"]: place for place, field in enumerate(record["fields"])}
    named = _vector_types(record)
    for field in fields:
        one = arrow_to_avro(pa.schema([field]), table_name=table_name, meta_fields=False)
        made = json.loads(one)["fields"][0]
        if field.name not in places:
            vectors = _vector_types({"fields": [made]})
            if vectors & named:  # Avro defines a named type once, and refers to it by name after that
                made["type"] = ["null", *vectors]
            named |= vectors
            record["fields"].append(made)
            continue
        old = record["fields"][places[field.name]]
        kind = next(branch for branch in made["type"] if branch != "null")
        union = old["type"]
        old["type"] = [b if b == "null" else kind for b in union] if isinstance(union, list) else kind
    result = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    avro_to_arrow(result)  # refuse names that differ only by case, depth or size here, not in every reader
    return result


def _vector_types(record: dict) -> set[str]:
    """Names of the vector types that a record defines."""
    branches = (
        branch
        for field in record["fields"]
        for branch in (field["type"] if isinstance(field["type"], list) else [field["type"]])
    )
    return {
        branch["name"]
        for branch in branches
        if isinstance(branch, dict)
        and branch.get("logicalType") == "vector"
        and branch.get("namespace") == ""  # in another namespace it is another type
    }


def _type_for(kind: pa.DataType, column: pa.Array | pa.ChunkedArray) -> pa.DataType:
    """The type that holds the column's old and new values: ``kind`` itself if it can."""
    found, types = value_type(column.type), pa.types
    if found == kind or types.is_null(found):
        return kind
    if types.is_struct(kind) and types.is_struct(found):
        column = _plain(column)
        known = {kind.field(i).name: kind.field(i) for i in range(kind.num_fields)}
        for i in range(found.num_fields):
            field = found.field(i)
            if field.name in known:
                inner = _type_for(known[field.name].type, pc.struct_field(column, [i]))
                known[field.name] = known[field.name].with_type(inner)
            elif not types.is_null(field.type):
                known[field.name] = pa.field(field.name, value_type(field.type))
        return pa.struct(list(known.values()))
    if types.is_list(kind) and _is_list(found):
        inner = _type_for(kind.value_type, pc.list_flatten(_plain(column)))
        return pa.list_(kind.value_field.with_type(inner))
    if types.is_map(kind) and types.is_map(found):
        chunks = _plain(column).chunks if isinstance(column, pa.ChunkedArray) else [column]
        items = pa.chunked_array([chunk.items for chunk in chunks], found.item_type)
        return pa.map_(kind.key_type, kind.item_field.with_type(_type_for(kind.item_type, items)))
    if not (_is_number(kind) and _is_number(found)) or _fits(column, found, kind):
        return kind
    return _wider(kind, found)


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    kind = value_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _fits(column: pa.Array | pa.ChunkedArray, found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether every value comes back from ``kind`` unchanged."""
    column = _plain(column)
    try:
        cast = column.cast(kind, safe=True)
    except pa.ArrowInvalid:
        return False
    cut = pa.types.is_floating(kind) and pa.types.is_floating(found) and kind.bit_width < found.bit_width
    if not cut:
        return True
    same = pc.or_(pc.equal(cast.cast(found), column), pc.is_nan(column))
    return pc.all(same).as_py() is not False  # nulls are ignored


def _wider(kind: pa.DataType, found: pa.DataType) -> pa.DataType:
    """``long`` for integers; with a fraction ``double``, which holds every ``int`` exactly."""
    if pa.types.is_integer(kind) and pa.types.is_integer(found):
        return pa.int64()
    return pa.float64()


def _meeting(ours: pa.DataType, theirs: pa.DataType) -> pa.DataType | None:
    """The narrowest type as which both can be read; None if there is none."""
    types = pa.types
    if ours == theirs:
        return ours
    if _is_number(ours) and _is_number(theirs):
        return _wider(ours, theirs)
    if types.is_struct(ours) and types.is_struct(theirs):
        fields = {ours.field(i).name: ours.field(i) for i in range(ours.num_fields)}
        for i in range(theirs.num_fields):
            field = theirs.field(i)
            known = fields.get(field.name)
            kind = field.type if known is None else _meeting(known.type, field.type)
            if kind is None:
                return None
            fields[field.name] = pa.field(field.name, kind) if known is None else known.with_type(kind)
        return pa.struct(list(fields.values()))
    if types.is_list(ours) and types.is_list(theirs):
        inner = _meeting(ours.value_type, theirs.value_type)
        return None if inner is None else pa.list_(ours.value_field.with_type(inner))
    if types.is_map(ours) and types.is_map(theirs):
        inner = _meeting(ours.item_type, theirs.item_type)
        return None if inner is None else pa.map_(ours.key_type, ours.item_field.with_type(inner))
    return None
