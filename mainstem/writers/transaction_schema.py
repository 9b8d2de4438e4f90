"""The schema of a transaction: it follows the rows, and takes in what other writers added meanwhile.

Readers take the schema of the newest completed delta commit *by requested time* (TableSchemaResolver). So
under the lock a commit makes sure that this schema holds everything: its own schema takes in that of the
newest commit, and where a commit that was requested later is complete already without our columns, a
commit without rows, requested later still, says them first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
from mainstem.layout.schema_evolution import declared_fields, evolved, merged_fields, needed_fields
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options.tables import COLUMN_DROP
from mainstem.options.writing import RECONCILE, SET_NULL
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import DELTACOMMIT
from mainstem.writers.write_spec import BULK_INSERT, INSERT, UPSERT, WriteSpec, complete_rules

# Instants whose metadata says nothing about the schema of new rows (TableSchemaResolver).
_LOOKED_AT_MAX = 8
_NO_DATA = ("CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT")


def fills_missing(properties: Mapping[str, str]) -> bool:
    """Whether columns that a batch lacks are written as nulls. Raises ``Invalid`` or ``Unsupported``."""
    if COLUMN_DROP.read(properties):
        raise Unsupported(
            f"{COLUMN_DROP}=true: a column that one writer drops would hide what others write to it at the"
            f" same time; write nulls ({SET_NULL}=true)"
        )
    return SET_NULL.read(properties) or RECONCILE.read(properties)


def follow(spec: WriteSpec, batch: pa.Table) -> WriteSpec:
    """The spec whose schema holds the batch; the same one where nothing has to change."""
    if spec.operation not in (UPSERT, INSERT, BULK_INSERT):
        return spec
    fixed = {*spec.keys.needed_columns, *spec.ordering, *spec.never_widened}
    schema = arrow_user_schema(spec.user_schema)
    fields = needed_fields(schema, batch, fixed=fixed, whole=spec.whole_numbers, fill=spec.fill_missing)
    if not fields:
        return spec
    return with_schema(spec, evolved(spec.user_schema, fields, spec.table_name))


def declare(spec: WriteSpec, schema: pa.Schema) -> WriteSpec:
    """The spec whose schema holds rows of these columns and types, whatever their values."""
    if spec.operation not in (UPSERT, INSERT, BULK_INSERT):
        return spec
    stored = avro_to_arrow(arrow_to_avro(schema, table_name=spec.table_name, meta_fields=False))
    fixed = {*spec.keys.needed_columns, *spec.ordering, *spec.never_widened}
    ours = arrow_user_schema(spec.user_schema)
    fields = declared_fields(ours, stored, fixed=fixed, whole=spec.whole_numbers, fill=spec.fill_missing)
    return with_schema(spec, evolved(spec.user_schema, fields, spec.table_name)) if fields else spec


def taken_in(spec: WriteSpec, block_schema: str) -> WriteSpec:
    """The spec whose schema holds rows that were encoded before with this Avro schema.

    ``Invalid`` where the table gave a column another type meanwhile, one that does not meet theirs.
    """
    fields = merged_fields(arrow_user_schema(spec.user_schema), arrow_user_schema(block_schema))
    return with_schema(spec, evolved(spec.user_schema, fields, spec.table_name)) if fields else spec


def with_schema(spec: WriteSpec, text: str) -> WriteSpec:
    """The spec with another user schema."""
    log_schema = arrow_to_avro(arrow_user_schema(text), table_name=spec.table_name, meta_fields=True)
    rules = complete_rules(spec.rules, text, log_schema)
    return replace(spec, user_schema=text, log_schema=log_schema, rules=rules)


@dataclass(frozen=True)
class Moved:
    """A commit must not complete as it is: ``text`` is the schema that it needs.

    ``announce``: a later requested commit is complete without it, so it must be said first.
    """

    text: str
    announce: bool


def newer_schema(
    storage: Storage, timeline: ActiveTimeline, spec: WriteSpec, known: tuple[str, str] = ("", "")
) -> Moved | None:
    """Under the lock: what the schemas of others ask of the commit of ``spec``; None: nothing.

    Reads one commit in the usual case, none if it is the ``known`` (file, schema), and looks no further if
    it has our very schema. Raises ``Invalid`` where two writers gave a column types that do not meet.
    """
    for name in _newest_first(timeline):
        if known == (name, spec.user_schema):
            return None
        path = paths.timeline_file(name)
        try:
            data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:
            continue  # archived since the listing
        if spec.user_schema.encode() in bytes(data):
            return None
        metadata = decode_commit(data, path=path)
        if metadata.schema and metadata.operation not in _NO_DATA:
            return _compared(spec, metadata.schema, later=name.partition("_")[0] > spec.instant)
    return None


def newest_schema(storage: Storage, timeline: ActiveTimeline) -> str:
    """The schema of the newest completed delta commit that has one; "" where there is none."""
    for name in _newest_first(timeline):
        path = paths.timeline_file(name)
        try:
            metadata = decode_commit(storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path)
        except FileNotFoundError:
            continue  # archived since the listing
        if metadata.schema and metadata.operation not in _NO_DATA:
            return metadata.schema
    return ""


def _compared(spec: WriteSpec, newest: str, *, later: bool) -> Moved | None:
    ours, theirs = arrow_user_schema(spec.user_schema), arrow_user_schema(newest)
    missing_here = merged_fields(ours, theirs)
    missing_there = merged_fields(theirs, ours)
    if not (missing_there if later else missing_here):
        return None
    # Columns in the order in which they became visible.
    return Moved(evolved(newest, missing_there, spec.table_name), announce=later)


def _newest_first(timeline: ActiveTimeline) -> list[str]:
    """Files of the newest completed delta commits."""
    found = (i.file_name for i in reversed(timeline.completed) if i.action == DELTACOMMIT)
    return list(islice(found, _LOOKED_AT_MAX))
