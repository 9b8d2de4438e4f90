"""The schema of a query, and the columns that must be read for it.

The schema is that of the newest completed commit that records one, else ``hoodie.table.create.schema`` (the
order of Java's TableSchemaResolver). Queries of the past also look at archived commits: archiving must not
change which columns a past view has. Where columns have ids (``hoodie.schema.on.read.enable``), that commit's
``latest_schema`` holds them, and the history in ``.hoodie/.schema`` holds those of older files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.filters.expression_tree import names
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.layout.field_ids import FieldIds, VersionedSchema, check_names, parse_history, parse_schema
from mainstem.layout.properties import MERGE_ON_READ
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options.tables import CREATE_SCHEMA, SCHEMA_ON_READ
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import CommitMetadata
from mainstem.timeline.instant import COMMIT

_NO_DATA_OPERATIONS = ("CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT")
_LATEST = "latest_schema"

Found = tuple[str, CommitMetadata]
"""Requested time and metadata of a completed write."""


@dataclass(frozen=True)
class TableSchema:
    """Avro JSON of the user schema; ``ids`` if files must be read by column id."""

    text: str
    ids: FieldIds | None = None


def schema_text(state: TableState) -> str:
    """Avro JSON of the newest user schema, for writers.

    Raises ``Unsupported`` if columns have ids: mainstem would write files without them.
    """
    found = table_schema(state)
    if found.ids is not None:
        raise Unsupported(
            f"the columns of this table have ids ({SCHEMA_ON_READ}), which mainstem reads and"
            " does not write; write it with Java Hudi",
            table=state.storage.base,
        )
    return found.text


def table_schema(state: TableState, until: str | None = None) -> TableSchema:
    """The schema as of requested time ``until`` (None: newest). Raises ``Invalid`` if there is none yet, or
    if the schema of that time can no longer be determined."""
    found = _newest_write(state, until)
    if found is not None:
        return TableSchema(found[1].schema or "", _field_ids(state, *found, until))
    # Compactions record the schema too: the last resort where no delta commit recorded one.
    service = next(_active(state, None, lambda _: True), None)
    ids = None if service is None else _field_ids(state, *service, until)
    text = None if ids is not None else state.config.create_schema
    text = text or (service[1].schema if service is not None else None)
    if not text:
        raise Invalid(
            "the table has no schema yet: no completed commit records one and"
            f" {CREATE_SCHEMA} is not set; write a first batch",
            table=state.storage.base,
        )
    return TableSchema(text, ids)


def _newest_write(state: TableState, until: str | None) -> Found | None:
    """The newest write of rows that records a schema.

    For the present, the active timeline is enough: we never archive the newest such write. For an earlier
    moment the archive is read as well, so that archiving does not change the answer.
    """
    # The newest commits of a merge-on-read table are compactions with large metadata: try without them first.
    ways = (COMMIT, "") if state.config.table_type == MERGE_ON_READ else ("",)
    past = until is not None or state.is_past
    if not past:
        for leave_out in ways:
            found = next(_active(state, None, _has_data, leave_out), None)
            if found is not None:
                return found
    for leave_out in ways:
        found = next(_active(state, until, _has_data, leave_out), None)
        archived = _newest_archived(state, found[0] if found else "", until, leave_out, past=past)
        if archived is not None or found is not None:
            return archived or found
    return None


def _newest_archived(
    state: TableState, after: str, until: str | None, leave_out: str, *, past: bool
) -> Found | None:
    """The newest archived write of rows requested after ``after`` that records a schema.

    Raises ``Invalid`` for an earlier moment if a write was archived without its metadata: it may have
    changed the columns.
    """
    for requested, metadata in state.archived_writes(after, until, leave_out):
        if metadata is None:
            if not past:
                return None
            raise Invalid(
                f"the columns at that time are unknown: the instant {requested} was archived without its"
                " metadata; ask for a later time, after the next commit that is still on the timeline",
                table=state.storage.base,
                instant=requested,
            )
        if metadata.schema and _has_data(metadata):
            return requested, metadata
    return None


def _has_data(metadata: CommitMetadata) -> bool:
    return metadata.operation not in _NO_DATA_OPERATIONS


def _active(
    state: TableState, until: str | None, suits: Callable[[CommitMetadata], bool], leave_out: str = ""
) -> Iterator[Found]:
    """Requested time and metadata of active completed writes that record a schema, newest request first;
    instants of action ``leave_out`` are skipped."""
    for instant in reversed(state.writes):
        if (until is None or instant.requested <= until) and instant.action != leave_out:
            metadata = state.metadata(instant.requested)
            if metadata is not None and metadata.schema and suits(metadata):
                yield instant.requested, metadata


def _field_ids(
    state: TableState, newest: str, metadata: CommitMetadata, until: str | None
) -> FieldIds | None:
    """Ids of the columns of the schema that instant ``newest`` recorded; None if it has none.

    A commit by a writer unaware of ids gets the ids of the history, matched by name (Java reads such a
    table by name, so renamed columns are null in older files).
    """
    history = _history(state, until)
    where = f"instant {newest}"
    own = metadata.extra.get(_LATEST)
    if not own and not history:
        return None
    query = parse_schema(own, where) if own else max(history, key=lambda schema: schema.version)
    ids = FieldIds.of(query, history, _written(state))
    check_names(ids, avro_to_arrow(metadata.schema or "", path=where).names, where)
    return ids


def _history(state: TableState, until: str | None) -> list[VersionedSchema]:
    """All versions up to the newest completed schema change (FileBasedInternalSchemaStorageManager)."""
    found = []
    for name in state.storage.names(paths.SCHEMAS):
        requested = paths.parse_schema_commit(name)
        if requested is not None and (until is None or requested <= until) and state.completion(requested):
            found.append(name)
    if not found:
        return []
    path = paths.in_partition(paths.SCHEMAS, max(found))
    data = state.storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    return parse_history(data.decode("utf-8", "replace"), path)


def _written(state: TableState) -> dict[str, VersionedSchema]:
    """Instant -> schema recorded in its own metadata, for instants on the active timeline."""
    parsed: dict[str, VersionedSchema] = {}
    found = {}
    for instant in state.writes:
        metadata = state.metadata(instant.requested)
        text = metadata.extra.get(_LATEST) if metadata is not None else None
        if text:
            if text not in parsed:
                parsed[text] = parse_schema(text, f"instant {instant.requested}")
            found[instant.requested] = parsed[text]
    return found


def full_schema(text: str) -> pa.Schema:
    """Meta columns, then the table's columns; all nullable, because old files may lack a column."""
    user = avro_to_arrow(text)
    meta = [pa.field(name, pa.string()) for name in META_FIELDS]
    own = [f.with_nullable(True) for f in user if f.name not in META_FIELDS]  # keeps vectors' metadata
    return pa.schema(meta + own)


def both_filters(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    """What passes both filters; None passes everything."""
    if one is None or other is None:
        return one if other is None else other
    return one & other


def output_columns(schema: pa.Schema, columns: Sequence[str] | None) -> list[str]:
    """The requested columns without duplicates, or all if None. Raises ``Invalid`` for an unknown name."""
    if columns is None:
        return list(schema.names)
    if isinstance(columns, str):
        raise Invalid(f"columns={columns!r}; expected a list of names, such as [{columns!r}]")
    for name in columns:
        if schema.get_field_index(name) < 0:
            raise Invalid(f"no column {name!r}; the table has {', '.join(schema.names)}")
    return list(dict.fromkeys(columns))


def filter_columns(schema: pa.Schema, expression: pc.Expression | None) -> Iterable[str]:
    """Columns that a filter may use: all if that is unknown. Raises ``Invalid`` if it is no expression."""
    if expression is None:
        return []
    if not isinstance(expression, pc.Expression):
        raise Invalid(
            f"filter={expression!r}; expected a pyarrow.compute.Expression, such as"
            " pyarrow.compute.field('price') > 10"
        )
    used = names(expression)
    return [name for name in schema.names if used is None or name in used]
