"""The schema of a query, and the columns that have to be read for it.

Order of TableSchemaResolver: newest completed commit with a schema, then
``hoodie.table.create.schema``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.readers.state import TableState

_NO_DATA_OPERATIONS = ("CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT")


def schema_text(state: TableState, until: str | None = None) -> str:
    """Avro JSON of the table's user schema as of requested time ``until`` (None: newest)."""
    for instant in reversed(state.writes):
        if until is not None and instant.requested > until:
            continue
        metadata = state.metadata(instant.requested)
        if metadata is None or metadata.operation in _NO_DATA_OPERATIONS:
            continue
        if "latest_schema" in metadata.extra:
            raise Unsupported(
                "schema on read (hoodie.schema.on.read.enable): columns of old files must be"
                " found by"
                " id, by name renamed columns would read as null; read this table with Java Hudi",
                table=state.storage.base,
                instant=instant.requested,
            )
        if metadata.schema:
            return metadata.schema
    text = state.config.create_schema or _any_schema(state)
    if not text:
        raise Invalid(
            "the table has no schema yet: no completed commit records one and"
            " hoodie.table.create.schema is not set; write a first batch",
            table=state.storage.base,
        )
    return text


def _any_schema(state: TableState) -> str | None:
    """Compactions record the schema too: what is left once all delta commits are archived."""
    for instant in reversed(state.writes):
        metadata = state.metadata(instant.requested)
        if metadata is not None and metadata.schema:
            return metadata.schema
    return None


def full_schema(text: str) -> pa.Schema:
    """Meta columns, then the table's columns; all nullable, as old files may lack a column."""
    user = avro_to_arrow(text)
    meta = [pa.field(name, pa.string()) for name in META_FIELDS]
    own = [pa.field(f.name, f.type) for f in user if f.name not in META_FIELDS]
    return pa.schema(meta + own)


def column_defaults(text: str) -> dict[str, Any]:
    """Non-null plain Avro defaults per column (what IGNORE_DEFAULTS takes for "not set")."""
    found = {}
    for field in json.loads(text).get("fields", []):
        default = field.get("default")
        if isinstance(default, (bool, int, float, str)):
            found[field["name"]] = default
    return found


def output_columns(schema: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    """The asked columns, each checked; all if None. Raises ``Invalid`` naming an unknown one."""
    if columns is None:
        return list(schema.names)
    if isinstance(columns, str):
        raise Invalid(f"columns={columns!r}; expected a list of names, such as [{columns!r}]")
    for name in columns:
        if name not in schema.names:
            raise Invalid(f"no column {name!r}; the table has {', '.join(schema.names)}")
    return list(dict.fromkeys(columns))


def filter_columns(schema: pa.Schema, expression: pc.Expression | None) -> Iterable[str]:
    """Columns that a filter may look at: every column whose name occurs in its text."""
    if expression is None:
        return []
    if not isinstance(expression, pc.Expression):
        raise Invalid(
            f"filter={expression!r}; expected a pyarrow.compute.Expression, such as"
            " pyarrow.compute.field('price') > 10"
        )
    text = str(expression)
    if "FieldPath" in text:  # a field by number
        return list(schema.names)
    return [name for name in schema.names if name in text]
