"""Schemas whose columns have ids: ``hoodie.schema.on.read.enable`` (Hudi's InternalSchema).

A column keeps its id when it is renamed or moved. A new column gets a new id, even under a name used before.
Readers therefore find a table's column in an older file by id. The file's schema is that of its instant,
taken from the history in ``.hoodie/.schema`` (InternalSchemaCache, InternalSchemaMerger). Without ids, an old
file would give nulls for a renamed column, and a dropped column's old values for a new one of the same name.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable
from mainstem.limits import SCHEMA_DEPTH_MAX, SCHEMA_FIELDS_MAX

_NO_FIELDS = "\0none"


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a record; ``inner`` is the record inside it, also inside its lists and maps."""

    id: int
    name: str
    inner: Record | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a record, in order."""

    columns: tuple[Column, ...]

    def by_id(self) -> dict[int, Column]:
        return {column.id: column for column in self.columns}

    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}


@dataclass(frozen=True, slots=True)
class VersionedSchema:
    """One version of a schema; ``version`` is the requested time of its instant, as a number."""

    version: int
    record: Record


def parse_schema(text: str, path: str) -> VersionedSchema:
    """A schema as commit metadata holds it (``latest_schema``). Raises ``CorruptTable``."""
    return _versioned(_json(text, path), path)


def parse_history(text: str, path: str) -> list[VersionedSchema]:
    """All versions of a ``schemacommit`` file. Raises ``CorruptTable``."""
    tree = _json(text, path)
    found = tree.get("schemas") if isinstance(tree, dict) else None
    if not isinstance(found, list):
        raise CorruptTable('schema history without a list "schemas"', path=path)
    return [_versioned(node, path) for node in found]


def _json(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"schema with column ids is not JSON ({error})", path=path) from error


def _versioned(node: Any, path: str) -> VersionedSchema:
    version = node.get("version_id", 0) if isinstance(node, dict) else None
    if type(version) is not int:
        raise CorruptTable(f"schema with column ids has the version {version!r:.40}", path=path)
    return VersionedSchema(version, _Parser(path).record(node, 0))


class _Parser:
    """Parses SerDeHelper's JSON. Only ids, names and nesting matter here; types are in the Avro schema."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fields = 0

    def record(self, node: Any, depth: int) -> Record:
        fields = node.get("fields") if isinstance(node, dict) else None
        if not isinstance(fields, list) or depth > SCHEMA_DEPTH_MAX:
            raise self._damaged(node)
        self._fields += len(fields)
        if self._fields > SCHEMA_FIELDS_MAX:
            raise self._damaged(node)
        found = Record(tuple(self._column(item, depth) for item in fields))
        if len(found.by_id()) != len(fields) or len(found.by_name()) != len(fields):
            raise self._damaged(node)
        return found

    def _column(self, node: Any, depth: int) -> Column:
        name = node.get("name") if isinstance(node, dict) else None
        if not isinstance(name, str) or type(node.get("id")) is not int:
            raise self._damaged(node)
        return Column(node["id"], name, self._inner(node.get("type"), depth + 1))

    def _inner(self, kind: Any, depth: int) -> Record | None:
        if isinstance(kind, str):
            return None
        word = kind.get("type") if isinstance(kind, dict) else None
        if word not in ("record", "array", "map") or depth > SCHEMA_DEPTH_MAX:
            raise self._damaged(kind)
        if word == "record":
            return self.record(kind, depth)
        return self._inner(kind.get("element" if word == "array" else "value"), depth + 1)

    def _damaged(self, node: Any) -> CorruptTable:
        return CorruptTable(
            f"schema with column ids has {str(node)[:80]!r} where a field with id, name and type is"
            " expected (or too many of them, or one twice)",
            path=self._path,
        )


@dataclass(frozen=True)
class FieldIds:
    """The schema of a query, and the schemas with which files may have been written."""

    query: Record
    history: tuple[VersionedSchema, ...]
    written: Mapping[str, VersionedSchema] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        query: VersionedSchema,
        history: Iterable[VersionedSchema],
        written: Mapping[str, VersionedSchema],
    ) -> FieldIds:
        """``written``: instant -> schema in its own metadata, which takes precedence over the history."""
        versions = {schema.version: schema for schema in (*history, *written.values(), query)}
        ordered = tuple(versions[number] for number in sorted(versions))
        return cls(query.record, ordered, written)

    def file(self, instant: str) -> FileColumns:
        """The names that the query's columns have in files of this instant."""
        found = self.written.get(instant)
        if found is None and instant.isdecimal():
            at = bisect_right([schema.version for schema in self.history], int(instant))
            found = self.history[at - 1] if at else None
        return FileColumns(self.query, self.query if found is None else found.record)


@dataclass(frozen=True)
class FileColumns:
    """The query's columns in the files of one schema version."""

    query: Record
    stored: Record

    @property
    def same(self) -> bool:
        """Whether every name means the same column on both sides."""
        return self.query == self.stored

    def names(self, wanted: Iterable[str]) -> list[str]:
        """Names in the file of the wanted columns; columns that the file cannot have are left out."""
        known, ids = self.query.by_name(), self.stored.by_id()
        columns = ((name, known.get(name)) for name in wanted)
        found = [name if c is None else ids[c.id].name for name, c in columns if c is None or c.id in ids]
        return list(dict.fromkeys(found))

    def shown(self, table: pa.Table) -> pa.Table:
        """The file's rows under the query's names, also inside structs; types are unchanged."""
        if self.same:
            return table
        ids, known = self.query.by_id(), self.stored.by_name()
        arrays, names = [], []
        for name, column in zip(table.schema.names, table.columns, strict=True):
            stored = known.get(name)
            target = None if stored is None else ids.get(stored.id)
            if stored is not None and target is None:
                continue  # dropped since the file was written
            names.append(name if target is None else target.name)
            inner = None if stored is None else stored.inner
            query = None if target is None else target.inner
            if inner is not None and query is not None and inner != query:
                chunks = [_renamed(chunk, inner, query) for chunk in column.chunks]
                column = pa.chunked_array(chunks, chunks[0].type if chunks else column.type)
            arrays.append(column)
        if not arrays:
            return table.select([])
        return pa.table(arrays, names=names)


def _renamed(array: pa.Array, stored: Record, query: Record) -> pa.Array:
    """A nested column with its structs' fields renamed and without fields dropped since."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _struct(array, stored, query)
    if pa.types.is_map(kind):
        items = _renamed(array.items, stored, query)
        entry = pa.field(kind.item_field.name, items.type, kind.item_field.nullable)
        made = pa.map_(kind.key_field, entry)
        entries = pa.StructArray.from_arrays([array.keys, items], fields=[made.key_field, made.item_field])
        return _around(array, entries, made)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        values = _renamed(array.values, stored, query)
        element = kind.value_field.with_type(values.type)
        return _around(array, values, pa.list_(element) if pa.types.is_list(kind) else pa.large_list(element))
    return array  # not the type in the schema: promoting it to the table's type raises, naming it


def _around(array: pa.Array, child: pa.Array, kind: pa.DataType) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], -1, array.offset, children=[child]
    )


def _struct(array: pa.Array, stored: Record, query: Record) -> pa.Array:
    ids, known = query.by_id(), stored.by_name()
    children: list[pa.Array] = []
    names: list[str] = []
    for at in range(array.type.num_fields):
        column = known.get(array.type.field(at).name)
        target = None if column is None else ids.get(column.id)
        if column is None or target is None:
            continue
        child = array.field(at)
        if column.inner is not None and target.inner is not None:
            child = _renamed(child, column.inner, target.inner)
        children.append(child)
        names.append(target.name)
    if not children:  # a struct needs a field to keep its nulls
        children, names = [pa.nulls(len(array))], [_NO_FIELDS]
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(children, names=names, mask=mask)


def check_names(ids: FieldIds, names: Sequence[str], where: str) -> None:
    """Raise ``CorruptTable`` if a column has no id: it could not be found in old files."""
    known = ids.query.by_name()
    missing = [name for name in names if name not in known]
    if missing:
        raise CorruptTable(
            f"column {missing[0]!r} has no id in the latest_schema of the same commit, which has"
            f" {', '.join(list(known)[:20])}",
            path=where,
        )
