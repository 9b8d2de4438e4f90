"""Converts between Arrow schemas and the Avro schema text of Spark and Hudi 1.x (``HoodieSchemaConverters``).

What Hudi stores: record ``<table>_record`` in namespace ``hoodie.<table>``, every column ``["null", T]`` with
default null, decimals as ``fixed`` types in namespaces of their own, structs as records named after their
field. Reading accepts more: ``[T, "null"]`` (Spark SQL DDL of 1.0 and 1.1), plain ``T`` (Flink), named types
used twice, enums, decimals of type ``bytes``.

Schema text may come from a hostile table: its size, depth and number of fields are bounded before any
recursion, and recursive types are refused (fastavro overflows the C stack on them).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.vectors import BACKING, ELEMENTS, VECTOR_MARK, Vector, vector_of

META_FIELDS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)

#: what Hudi's streamer adds to rows that come from Kafka (KafkaOffsetPostProcessor)
KAFKA_FIELDS = (
    "_hoodie_kafka_source_offset",
    "_hoodie_kafka_source_partition",
    "_hoodie_kafka_source_timestamp",
    "_hoodie_kafka_source_key",
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_FIRST = re.compile(r"[^A-Za-z_]")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")
_PRIMITIVES = frozenset(("boolean", "int", "long", "float", "double", "string", "bytes"))
_LONG_LOGICAL = {
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "time-micros": pa.time64("us"),
}
_INT_LOGICAL = {"date": pa.date32(), "time-millis": pa.time32("ms")}
_PLAIN_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}


@dataclass(frozen=True, slots=True)
class AvroType:
    """One resolved Avro type; names are replaced by the types they stand for.

    ``null_branch`` is the position of ``"null"`` in the union with this type, None outside a union.
    ``fields`` holds the fields of a record; for an array or a map it has one entry, named ``item`` or
    ``value``. ``leaves`` counts the scalar columns below.
    """

    kind: str
    null_branch: int | None = None
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[tuple[str, AvroType], ...] = ()
    leaves: int = 1

    @property
    def nullable(self) -> bool:
        return self.null_branch is not None

    @property
    def null_tag(self) -> int:
        """The encoded union branch of null, one byte."""
        if self.null_branch is None:
            raise TypeError(f"an Avro {self.kind} that is not nullable has no byte for null")
        return 2 * self.null_branch

    @property
    def value_tag(self) -> int:
        """The encoded union branch of a value, one byte; meaningful only if ``nullable``."""
        return 2 * (1 - (self.null_branch or 0))


def sanitise(name: str) -> str:
    """A table name in Avro's alphabet: every illegal character becomes ``__`` (HoodieAvroUtils)."""
    if not name:
        raise Invalid("the table name is empty: give a name with at least one character")
    if _NOT_FIRST.match(name):
        name = _NOT_FIRST.sub("__", name, count=1)
    return _NOT_IN_NAME.sub("__", name)


def record_name(table_name: str) -> tuple[str, str]:
    """``(name, namespace)`` of a table's Avro record."""
    table = sanitise(table_name)
    return f"{table}_record", f"hoodie.{table}"


# ---------------------------------------------------------------------------------- Arrow to Avro


def arrow_to_avro(schema: pa.Schema, *, table_name: str, meta_fields: bool) -> str:
    """The Avro schema text of a table with these columns, byte for byte as Spark writes it.

    Every column is nullable on storage, whatever the Arrow flag says: partial updates and schema evolution
    need nulls. Meta columns in ``schema`` are left out; with ``meta_fields`` they come first, in Hudi's
    order. Raises ``Invalid``, naming the column, for a type that Hudi cannot hold.
    """
    name, namespace = record_name(table_name)
    columns = [field for field in schema if field.name not in META_FIELDS]
    if not columns:
        raise Invalid("the schema has no columns: a table needs at least its record key")
    if len(columns) > limits.SCHEMA_FIELDS_MAX:
        raise Invalid(
            f"the schema has {len(columns)} columns, at most {limits.SCHEMA_FIELDS_MAX} are "
            "possible"
        )
    _check_names([field.name for field in columns], "the schema")
    parent = f"{namespace}.{name}"
    fields = [_META_JSON[f] for f in META_FIELDS] if meta_fields else []
    vectors: set[str] = set()
    fields += [_column_json(field, parent, vectors) for field in columns]
    record = {"type": "record", "name": name, "namespace": namespace, "fields": fields}
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=False)
    if len(text) > limits.SCHEMA_BYTES_MAX:
        raise Invalid(
            f"the Avro schema has {len(text)} characters, at most {limits.SCHEMA_BYTES_MAX} are "
            "possible: use fewer or shorter nested columns"
        )
    return text


_META_JSON = {
    name: {"name": name, "type": ["null", "string"], "doc": "", "default": None}
    for name in META_FIELDS
}


def _column_json(field: pa.Field, parent: str, vectors: set[str]) -> dict:
    """A column's JSON; ``vectors``: vector types already defined, which later columns refer to by name."""
    vector = vector_of(field)
    if vector is None:
        return _field_json(field.name, field.type, parent, field.name, 1)
    known = vector.avro_name in vectors
    vectors.add(vector.avro_name)
    kind = vector.avro_name if known else vector.node()
    return {"name": field.name, "type": ["null", kind], "default": None}


def _field_json(name: str, kind: pa.DataType, parent: str, column: str, depth: int) -> dict:
    return {
        "name": name,
        "type": ["null", _type_json(kind, name, parent, column, depth)],
        "default": None,
    }


def _type_json(kind: pa.DataType, name: str, parent: str, column: str, depth: int) -> str | dict:
    if depth > limits.SCHEMA_DEPTH_MAX:
        raise Invalid(f"column {column!r} is nested deeper than {limits.SCHEMA_DEPTH_MAX} levels")
    plain = value_type(kind)
    scalar = _scalar_json(plain, name, parent)
    if scalar is not None:
        return scalar
    if _is_list(plain):
        items = _type_json(plain.value_type, name, parent, column, depth + 1)
        return {"type": "array", "items": ["null", items]}
    if pa.types.is_map(plain):
        if not _is_text(value_type(plain.key_type)):
            raise Invalid(
                f"column {column!r}: a map with keys of type {plain.key_type}; "
                "Hudi holds maps with string keys only"
            )
        values = _type_json(plain.item_type, name, parent, column, depth + 1)
        return {"type": "map", "values": ["null", values]}
    if pa.types.is_struct(plain):
        return _struct_json(plain, name, parent, column, depth)
    raise Invalid(
        f"column {column!r} has the Arrow type {kind}, which a Hudi table cannot hold; cast it, "
        "for example uint64 to decimal(20,0), time and duration to int64, null to the type that is "
        "meant"
    )


def _struct_json(kind: pa.DataType, name: str, parent: str, column: str, depth: int) -> dict:
    children = [kind.field(i) for i in range(kind.num_fields)]
    if not children:
        raise Invalid(f"column {column!r} is a struct without fields, which Hudi cannot hold")
    _check_names([child.name for child in children], f"column {column!r}")
    marked = [child.name for child in children if VECTOR_MARK.encode() in (child.metadata or {})]
    if marked:
        raise Unsupported(f"column {column!r} has a VECTOR inside, {marked[0]!r}; Hudi has none but columns")
    inner = f"{parent}.{name}"
    fields = [_field_json(c.name, c.type, inner, f"{column}.{c.name}", depth + 1) for c in children]
    return {"type": "record", "name": name, "namespace": parent, "fields": fields}


def _scalar_json(kind: pa.DataType, name: str, parent: str) -> str | dict | None:
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return _integer_json(kind)
    if types.is_float16(kind) or types.is_float32(kind):
        return "float"
    if types.is_float64(kind):
        return "double"
    if _is_text(kind):
        return "string"
    if _is_bytes(kind):
        return "bytes"
    if types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if kind == pa.time32("ms"):  # Flink's TIME; Spark has no such type
        return {"type": "int", "logicalType": "time-millis"}
    if types.is_timestamp(kind):
        unit = "millis" if kind.unit == "ms" else "micros"
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-{unit}"}
    if types.is_decimal(kind):
        return _decimal_json(kind, name, parent)
    return None


def _integer_json(kind: pa.DataType) -> str | None:
    if pa.types.is_uint64(kind):
        return None
    return "long" if kind.bit_width == 64 or pa.types.is_uint32(kind) else "int"


def _decimal_json(kind: pa.DataType, name: str, parent: str) -> dict | None:
    if kind.precision > 38 or not 0 <= kind.scale <= kind.precision:
        return None
    return {
        "type": "fixed",
        "name": "fixed",
        "namespace": f"{parent}.{name}",
        "size": decimal_bytes(kind.precision),
        "logicalType": "decimal",
        "precision": kind.precision,
        "scale": kind.scale,
    }


def decimal_bytes(precision: int) -> int:
    """Bytes of the smallest two's complement number that holds ``precision`` decimal digits."""
    size = 1
    while 2 ** (8 * size - 1) < 10**precision:
        size += 1
    return size


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values under dictionary and run-end encoding."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view"


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    fixed = types.is_fixed_size_binary(kind) and not types.is_decimal(kind)
    return (
        fixed or types.is_binary(kind) or types.is_large_binary(kind) or str(kind) == "binary_view"
    )


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _check_names(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not _NAME.match(name):
            raise Invalid(
                f"{where} has a column named {name!r}: Avro names consist of letters, digits and "
                "underscores and do not begin with a digit; rename it"
            )
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if other is not None:
            raise Invalid(
                f"{where} has the columns {other!r} and {name!r}: Spark does not tell names apart "
                "by case; rename one"
            )


# ---------------------------------------------------------------------------------- Avro to Arrow


def parse_schema(text: str, path: str = "") -> dict:
    """The JSON of a record schema, bounded in size; ``CorruptTable`` if the text is not one."""
    if len(text) > limits.SCHEMA_BYTES_MAX:
        raise CorruptTable(
            f"an Avro schema of {len(text)} characters; at most {limits.SCHEMA_BYTES_MAX} are read",
            path=path,
        )
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"the Avro schema is not JSON: {error}", path=path) from error
    if not isinstance(found, dict) or found.get("type") != "record":
        raise CorruptTable("the Avro schema is not a record", path=path)
    record_type(text, path)
    return found


def avro_to_arrow(text: str, *, path: str = "") -> pa.Schema:
    """The Arrow schema of a table or log block; a plain ``T`` becomes a non-nullable field.

    Raises ``CorruptTable`` if the text is not a schema and ``Unsupported``, naming the column, for a type
    without a counterpart (unions of several types, recursive records). A VECTOR column of Hudi 1.2 becomes a
    fixed-size list with Spark's column metadata ``hudi_type``.
    """
    return pa.schema([arrow_field(name, kind) for name, kind in record_type(text, path).fields])


def arrow_field(name: str, kind: AvroType) -> pa.Field:
    """The Arrow field of one Avro field."""
    if kind.logical == "vector":
        return _vector_type(kind).field(name, nullable=kind.nullable)
    return pa.field(name, arrow_type(kind), nullable=kind.nullable)


def _vector_type(kind: AvroType) -> Vector:
    return Vector(kind.precision, kind.symbols[0])


def arrow_type(kind: AvroType) -> pa.DataType:
    """The Arrow type of one Avro type, without its nullability."""
    if kind.kind == "array":
        return pa.list_(arrow_field("element", kind.fields[0][1]))
    if kind.kind == "map":
        return pa.map_(pa.string(), arrow_field("value", kind.fields[0][1]))
    if kind.kind == "record":
        return pa.struct([arrow_field(name, child) for name, child in kind.fields])
    if kind.logical == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.logical == "vector":
        return _vector_type(kind).arrow
    if kind.kind == "long" and kind.logical:
        return _LONG_LOGICAL[kind.logical]
    if kind.kind == "int" and kind.logical:
        return _INT_LOGICAL[kind.logical]
    return _PLAIN_ARROW[kind.kind]


def record_type(text: str, path: str = "") -> AvroType:
    """The resolved type of a record schema; each text is parsed once."""
    try:
        return _parsed(text)
    except (CorruptTable, Unsupported) as error:
        if isinstance(error, CorruptTable):
            raise CorruptTable(error.message, path=path) from None
        raise Unsupported(f"{error.message}{f' (file {path})' if path else ''}") from None


@lru_cache(maxsize=64)
def _parsed(text: str) -> AvroType:
    if len(text) > limits.SCHEMA_BYTES_MAX:
        raise CorruptTable(
            f"an Avro schema of {len(text)} characters; at most {limits.SCHEMA_BYTES_MAX} are read"
        )
    try:
        node = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"the Avro schema is not JSON: {error}") from error
    if not isinstance(node, dict) or node.get("type") != "record":
        raise CorruptTable("the Avro schema is not a record")
    return _Resolver().resolve(node, "", "", 0)


class _Resolver:
    """Resolves names to types, and counts the results: names let a short text grow without bound."""

    def __init__(self) -> None:
        self.named: dict[str, AvroType | None] = {}
        self.made = 0

    def resolve(self, node: object, namespace: str, column: str, depth: int) -> AvroType:
        if depth > limits.SCHEMA_DEPTH_MAX:
            raise CorruptTable(
                f"the Avro schema is nested deeper than {limits.SCHEMA_DEPTH_MAX} levels, at "
                f"{column!r}"
            )
        self._count(1)
        if isinstance(node, str):
            return self._by_name(node, namespace, column)
        if isinstance(node, list):
            return self._union(node, namespace, column, depth)
        if isinstance(node, dict):
            return self._object(node, namespace, column, depth)
        raise CorruptTable(
            f"the Avro schema has {node!r:.40} where a type is expected, at {column!r}"
        )

    def _count(self, more: int) -> None:
        self.made += more
        if self.made > 2 * limits.SCHEMA_FIELDS_MAX:
            raise CorruptTable(f"the Avro schema has more than {limits.SCHEMA_FIELDS_MAX} fields")

    def _by_name(self, name: str, namespace: str, column: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        if name == "null":
            raise Unsupported(
                f"column {column!r} has the Avro type null; only unions with it are read"
            )
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self.named.get(full, self.named.get(name))
        if found is not None:
            self._count(found.leaves)
            return found
        if full in self.named:
            raise Unsupported(
                f"column {column!r} is a recursive record {full!r}, which is not read"
            )
        raise CorruptTable(f"the Avro schema names the unknown type {name!r:.80} at {column!r}")

    def _union(self, node: list, namespace: str, column: str, depth: int) -> AvroType:
        if len(node) != 2 or node.count("null") != 1:
            raise Unsupported(
                f"column {column!r} is a union of {len(node)} types; only unions of null and one "
                "other type are read"
            )
        branch = node.index("null")
        if isinstance(node[1 - branch], list):
            raise CorruptTable(f"the Avro schema has a union inside a union at {column!r}")
        return _with_null(self.resolve(node[1 - branch], namespace, column, depth + 1), branch)

    def _object(self, node: dict, namespace: str, column: str, depth: int) -> AvroType:
        kind = node.get("type")
        if kind == "record":
            return self._record(node, namespace, column, depth)
        if kind == "array":
            return _container("array", self._inner(node.get("items"), namespace, column, depth))
        if kind == "map":
            return _container("map", self._inner(node.get("values"), namespace, column, depth))
        if kind == "fixed":
            return self._fixed(node, namespace, column)
        if kind == "enum":
            return self._enum(node, namespace, column)
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return _logical(node, kind, column)
        return self.resolve(kind, namespace, column, depth + 1)

    def _inner(self, node: object, namespace: str, column: str, depth: int) -> AvroType:
        """A type inside another; no vector, since Hudi supports them only as columns."""
        found = self.resolve(node, namespace, column, depth + 1)
        if found.logical == "vector":
            raise Unsupported(f"column {column!r} has a VECTOR inside another type, which is not read")
        return found

    def _declare(self, node: dict, namespace: str, column: str) -> tuple[str, str]:
        name, space = node.get("name"), node.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(space or "", str):
            raise CorruptTable(
                f"the Avro schema has a {node.get('type')} without a name at {column!r}"
            )
        if "." in name:
            space = name.rpartition(".")[0]
            full = name
        else:
            full = f"{space}.{name}" if space else name
        if full in self.named:
            raise CorruptTable(f"the Avro schema defines {full!r:.80} twice")
        self.named[full] = None
        return full, space or ""

    def _record(self, node: dict, namespace: str, column: str, depth: int) -> AvroType:
        full, space = self._declare(node, namespace, column)
        fields = node.get("fields")
        if not isinstance(fields, list) or not fields:
            raise CorruptTable(f"the Avro record {full!r:.80} has no fields")
        made = tuple(self._fields(fields, space, column, depth))
        if len({name for name, _ in made}) != len(made):
            raise CorruptTable(f"the Avro record {full!r:.80} has two fields of one name")
        found = AvroType("record", fields=made, leaves=sum(kind.leaves for _, kind in made))
        self.named[full] = found
        return found

    def _fields(
        self, fields: list, space: str, column: str, depth: int
    ) -> Iterator[tuple[str, AvroType]]:
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str) or not _NAME.match(name):
                raise CorruptTable(f"the Avro schema has a field with the name {name!r:.80}")
            inner = f"{column}.{name}" if column else name
            resolve = self._inner if column else self.resolve
            yield name, resolve(field.get("type"), space, inner, depth + 1)

    def _fixed(self, node: dict, namespace: str, column: str) -> AvroType:
        full, _ = self._declare(node, namespace, column)
        size = node.get("size")
        if type(size) is not int or not 1 <= size <= limits.VALUE_BYTES_MAX:
            raise CorruptTable(f"the Avro schema has a fixed of size {size!r:.40} at {column!r}")
        found = _logical(node, "fixed", column, size)
        self.named[full] = found
        return found

    def _enum(self, node: dict, namespace: str, column: str) -> AvroType:
        full, _ = self._declare(node, namespace, column)
        symbols = node.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(s, str) for s in symbols):
            raise CorruptTable(f"the Avro schema has an enum without symbols at {column!r}")
        if not symbols:
            raise CorruptTable(f"the Avro schema has an enum without symbols at {column!r}")
        found = AvroType("enum", symbols=tuple(symbols))
        self.named[full] = found
        return found


def _with_null(kind: AvroType, branch: int) -> AvroType:
    return replace(kind, null_branch=branch)


def _container(kind: str, item: AvroType) -> AvroType:
    name = "item" if kind == "array" else "value"
    return AvroType(kind, fields=((name, item),), leaves=item.leaves + (kind == "map"))


def _logical(node: dict, kind: str, column: str, size: int = 0) -> AvroType:
    logical = node.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision:
            raise CorruptTable(
                f"the Avro schema has a decimal({precision!r:.20},{scale!r:.20}) at {column!r}"
            )
        if not 1 <= precision <= 38 or size > 64:
            raise Unsupported(
                f"column {column!r} is a decimal({precision},{scale}); at most 38 digits are read"
            )
        return AvroType(kind, logical="decimal", size=size, precision=precision, scale=scale)
    if kind == "fixed" and logical == "vector":
        return _vector(node, column, size)
    if kind == "fixed" and logical == "duration":
        raise Unsupported(
            f"column {column!r} has the Avro logical type {logical!r}, which is not read"
        )
    known = _INT_LOGICAL if kind == "int" else _LONG_LOGICAL if kind == "long" else {}
    return AvroType(kind, logical=logical if logical in known else "", size=size)


def _vector(node: dict, column: str, size: int) -> AvroType:
    """VECTOR(n[, DOUBLE|INT8]): ``precision`` holds the dimension, ``symbols`` the element type."""
    dimension, element = node.get("dimension"), node.get("elementType", "FLOAT")
    backing = node.get("storageBacking", BACKING)
    known = isinstance(element, str) and element in ELEMENTS and backing == BACKING
    if not known or type(dimension) is not int:
        raise Unsupported(
            f"column {column!r} is a vector({dimension!r:.20}, {element!r:.40}) in {backing!r:.40};"
            f" expected a dimension and {', '.join(ELEMENTS)} stored as {BACKING}"
        )
    if dimension * (ELEMENTS[element].bit_width // 8) != size:
        raise CorruptTable(
            f"the Avro schema has a VECTOR of {dimension!r:.20} {element} in {size} bytes at {column!r}"
        )
    return AvroType("fixed", logical="vector", size=size, precision=dimension, symbols=(element,))
