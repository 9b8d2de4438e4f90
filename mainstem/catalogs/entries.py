"""The entry of a Hudi table, field by field as ``HiveSyncTool`` of Hudi 1.2.0 makes it.

Types are those of ``HiveSchemaUtil``, Spark's schema that of ``SparkDataSourceTableUtils`` (a JSON text with
its blanks). Hive's names are in lower case, Spark's as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mainstem.catalogs.protocol import Column, Entry
from mainstem.catalogs.sync_options import SyncOptions
from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import META_FIELDS, AvroType, record_type
from mainstem.options.catalogs import READ_OPTIMIZED

PROVIDER = "spark.sql.sources.provider"
LAST_TIME, LAST_COMPLETION = "last_commit_time_sync", "last_commit_completion_time_sync"
WRITER_VERSION = "hudi_writer_version"
PART = "spark.sql.sources.schema.part."
# The release whose entries these are.
_HUDI = "1.2.0"
_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
_REALTIME_INPUT = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_HIVE = {
    "boolean": "boolean", "int": "int", "long": "bigint", "float": "float", "double": "double",
    "string": "string", "enum": "string", "bytes": "binary", "fixed": "binary",
}  # fmt: skip
_SPARK = {
    "boolean": "boolean", "int": "integer", "long": "long", "float": "float", "double": "double",
    "string": "string", "enum": "string", "bytes": "binary", "fixed": "binary",
}  # fmt: skip


@dataclass(frozen=True)
class Look:
    """A table as one sync sees it. ``schema``: Avro JSON of the user columns; ``partition_columns``: their
    names; ``last``: requested time of the newest completed write and the newest completion time, "" before
    the first."""

    location: str
    schema: str
    partition_columns: tuple[str, ...]
    merge_on_read: bool
    last: tuple[str, str]


@dataclass(frozen=True)
class Role:
    """One of the names of a table: what is read under it."""

    name: str
    realtime: bool
    read_optimized: bool


def roles(look: Look, options: SyncOptions, name: str) -> list[Role]:
    """The names of a table, in the order in which Hudi makes them."""
    if not look.merge_on_read:
        return [Role(name, False, False)]
    if options.strategy == "RO":
        return [Role(name, False, True)]
    if options.strategy == "RT":
        return [Role(name, True, False)]
    snapshot = Role(f"{name}_rt", True, False)
    if options.skip_ro_suffix:
        return [Role(name, False, True), snapshot]
    return [Role(f"{name}_ro", False, True), snapshot, Role(name, True, False)]


def entry_of(look: Look, options: SyncOptions, role: Role, timestamps: bool) -> Entry:
    """What the entry must say; the times of the last sync are not in it.

    ``timestamps``: whether Hive sees them as such. Raises ``Unsupported`` for a partition column that is none
    of the table's.
    """
    fields = _fields(look, options)
    of_table = {name: hive_type(kind, timestamps) for name, kind in fields}
    parts = look.partition_columns
    return Entry(
        options.database, role.name, look.location,
        tuple((name.lower(), kind) for name, kind in of_table.items() if name not in parts),
        tuple((name.lower(), of_table.get(name, "string")) for name in parts),
        {"EXTERNAL": "TRUE", **options.table_properties, **_of_spark(fields, parts, options)},
        {
            **options.serde_properties,
            **({str(READ_OPTIMIZED): str(role.read_optimized).lower(), "path": look.location}
               if options.as_datasource else {}),
            "serialization.format": "1",
        },
        _SERDE, _REALTIME_INPUT if role.realtime else _INPUT, _OUTPUT,
    )  # fmt: skip


def marks(look: Look) -> dict[str, str]:
    """The properties that say up to when the entry is true."""
    requested, completion = look.last
    found = {WRITER_VERSION: _HUDI}
    if requested:
        found |= {LAST_TIME: requested, LAST_COMPLETION: completion}
    return found


def shows_timestamps(entry: Entry, look: Look) -> bool:
    """Whether an entry that is there has timestamps as such: a table without timestamps tells neither."""
    known = dict((*entry.columns, *entry.partition_columns))
    for name, kind in record_type(look.schema).fields:
        if kind.kind == "long" and "timestamp" in kind.logical and name.lower() in known:
            return known[name.lower()] == "timestamp"
    return True


def _fields(look: Look, options: SyncOptions) -> list[tuple[str, AvroType]]:
    user = [(n, kind) for n, kind in record_type(look.schema).fields if n not in META_FIELDS]
    if options.omit_meta_fields:
        return user
    return [*((name, AvroType("string", null_branch=0)) for name in META_FIELDS), *user]


def _of_spark(
    fields: Sequence[tuple[str, AvroType]], parts: Sequence[str], options: SyncOptions
) -> Mapping[str, str]:
    if not options.as_datasource:
        return {}
    last = [(name, kind) for part in parts for name, kind in fields if name == part]
    text = _struct([*((name, kind) for name, kind in fields if name not in parts), *last])
    size = options.schema_length
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    found = {PROVIDER: "hudi", "spark.sql.sources.schema.numParts": str(len(pieces))}
    if options.spark_version:
        found["spark.sql.create.version"] = options.spark_version
    found |= {f"{PART}{number}": piece for number, piece in enumerate(pieces)}
    if parts:
        found["spark.sql.sources.schema.numPartCols"] = str(len(parts))
        found |= {f"spark.sql.sources.schema.partCol.{number}": name for number, name in enumerate(parts)}
    return found


def hive_type(kind: AvroType, timestamps: bool) -> str:
    """``HiveSchemaUtil``'s type, in lower case, without blanks."""
    if kind.kind == "array":
        return f"array<{hive_type(kind.fields[0][1], timestamps)}>"
    if kind.kind == "map":
        return f"map<string,{hive_type(kind.fields[0][1], timestamps)}>"
    if kind.kind == "record":
        inner = ",".join(
            f"{name.lower().replace('$', '_dollar_')}:{hive_type(child, timestamps)}" for name, child in
            kind.fields
        )
        return f"struct<{inner}>".replace("-", "_")
    if kind.logical == "decimal":
        return f"decimal({kind.precision},{kind.scale})"
    if kind.logical == "date":
        return "date"
    if timestamps and kind.kind == "long" and "timestamp" in kind.logical:
        return "timestamp"
    return _HIVE[kind.kind]


def _struct(fields: Sequence[tuple[str, AvroType]]) -> str:
    inner = ",".join(
        f'{{"name":{json.dumps(name, ensure_ascii=False)},"type":{_spark_type(kind)}'
        f',"nullable":{json.dumps(kind.nullable)},"metadata":{{}}}}'
        for name, kind in fields
    )
    return f'{{"type":"struct","fields":[{inner}]}}'


def _spark_type(kind: AvroType) -> str:
    if kind.kind == "record":
        return _struct(kind.fields)
    if kind.kind in ("array", "map"):
        child = kind.fields[0][1]
        element, contains = _spark_type(child), json.dumps(child.nullable)
        if kind.kind == "array":
            return f'{{"type":"array", "elementType":{element},"containsNull":{contains}}}'
        return f'{{"type":"map", "keyType":"string","valueType":{element},"valueContainsNull":{contains}}}'
    if kind.logical == "decimal":
        return f'"decimal({kind.precision},{kind.scale})"'
    if kind.logical == "date":
        return '"date"'
    if kind.logical.startswith("timestamp"):
        return '"timestamp"'
    if kind.logical.startswith("local-timestamp"):
        return '"timestamp_ntz"'
    return f'"{_SPARK[kind.kind]}"'


def check_type_change(entry: Entry, wanted: Sequence[Column]) -> None:
    """Raises ``Unsupported`` where a column became what Hive cannot make of it
    (``isSchemaTypeUpdateAllowed``)."""
    known = dict((*entry.columns, *entry.partition_columns))
    for name, kind in wanted:
        found = known.get(name, kind).lower().replace(" ", "")
        if found != kind and (found, kind) not in _WIDER and not ("struct" in found and "struct" in kind):
            raise Unsupported(
                f"{entry.full_name} has the column {name} as {found} in the catalog, and the table has it as"
                f" {kind},"
                " which Hive's partitions do not follow: drop the entry (the table stays) and sync again"
            )


_WIDER = (("int", "bigint"), ("float", "double"))
