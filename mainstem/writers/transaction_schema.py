"""The schema of a transaction: it grows with the rows, and with columns that other writers add meanwhile.

Readers use the schema of the completed delta commit with the *latest requested time*
(``TableSchemaResolver``). So a commit ensures, under the lock, that this schema has every column. It merges
the newest commit's schema into its own. If a commit requested later has already completed without this
transaction's columns, a commit without rows, requested later still, declares them first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

import pyarrow as pa

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro, avro_to_arrow
from mainstem.layout.schema_evolution import (
    asked_fields,
    declared_fields,
    evolved,
    merged_fields,
    needed_fields,
)
from mainstem.layout.schema_fit import arrow_user_schema, log_schema
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options.tables import COLUMN_DROP
from mainstem.options.writing import RECONCILE, SET_NULL
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import DELTACOMMIT
from mainstem.writers.write_spec import INSERT, OF_BASE_FILES, UPSERT, WriteSpec, complete_rules

_LOOKED_AT_MAX = 8
# Operations whose metadata says nothing about the schema of new rows (TableSchemaResolver).
_NO_DATA = ("CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT")


def fills_missing(properties: Mapping[str, str]) -> bool:
    """Whether columns that a batch lacks are written as nulls.

    Raises ``Invalid`` for an option that does not parse, ``Unsupported`` if dropping columns is asked for.
    """
    if COLUMN_DROP.read(properties):
        raise Unsupported(
            f"{COLUMN_DROP}=true: dropping a column would hide what other writers write to it at the same"
            f" time; write nulls instead ({SET_NULL}=true)"
        )
    return SET_NULL.read(properties) or RECONCILE.read(properties)


def follow(spec: WriteSpec, batch: pa.Table) -> WriteSpec:
    """The spec with a schema that can hold the batch: ``spec`` itself if its schema can."""
    if spec.operation not in {UPSERT, INSERT, *OF_BASE_FILES}:
        return spec
    fixed = {*spec.keys.needed_columns, *spec.ordering, *spec.never_widened}
    schema = arrow_user_schema(spec.user_schema)
    fields = needed_fields(schema, batch, fixed=fixed, whole=spec.whole_numbers, fill=spec.fill_missing)
    if not fields:
        return spec
    return with_schema(spec, evolved(spec.user_schema, fields, spec.table_name))


def declare(spec: WriteSpec, schema: pa.Schema) -> WriteSpec:
    """The spec with a schema that can hold rows of these columns and types, whatever their values."""
    if spec.operation not in {UPSERT, INSERT, *OF_BASE_FILES}:
        return spec
    stored = avro_to_arrow(arrow_to_avro(schema, table_name=spec.table_name, meta_fields=False))
    fixed = {*spec.keys.needed_columns, *spec.ordering, *spec.never_widened}
    ours = arrow_user_schema(spec.user_schema)
    fields = declared_fields(ours, stored, fixed=fixed, whole=spec.whole_numbers, fill=spec.fill_missing)
    return with_schema(spec, evolved(spec.user_schema, fields, spec.table_name)) if fields else spec


def asked(spec: WriteSpec, columns: pa.Schema) -> WriteSpec:
    """The spec with a schema that has these columns, in these types. Raises ``Invalid`` if it cannot."""
    if own := [name for name in columns.names if name in META_FIELDS]:
        raise Invalid(f"{', '.join(own)}: columns of Hudi's own")
    stored = avro_to_arrow(arrow_to_avro(columns, table_name=spec.table_name, meta_fields=False))
    fixed = {*spec.keys.needed_columns, *spec.ordering, *spec.never_widened, *spec.whole_numbers}
    fields = asked_fields(arrow_user_schema(spec.user_schema), stored, fixed=fixed)
    return with_schema(spec, evolved(spec.user_schema, fields, spec.table_name)) if fields else spec


def taken_in(spec: WriteSpec, block_schema: str) -> WriteSpec:
    """The spec with a schema that can hold rows encoded earlier with the Avro schema ``block_schema``.

    Raises ``Invalid`` if a column of the table has a type by now that cannot be merged with theirs.
    """
    fields = merged_fields(arrow_user_schema(spec.user_schema), arrow_user_schema(block_schema))
    return with_schema(spec, evolved(spec.user_schema, fields, spec.table_name)) if fields else spec


def with_schema(spec: WriteSpec, text: str) -> WriteSpec:
    """The spec with another user schema."""
    blocks = log_schema(text, spec.table_name)
    rules = complete_rules(spec.rules, text, blocks)
    return replace(spec, user_schema=text, log_schema=blocks, rules=rules)


@dataclass(frozen=True)
class Moved:
    """A commit must not complete as it is: ``text`` is the Avro schema that it needs.

    ``announce``: a commit requested later has completed without this schema, so a commit without rows must
    declare it first.
    """

    text: str
    announce: bool


def newer_schema(
    storage: Storage,
    timeline: ActiveTimeline,
    spec: WriteSpec,
    known: tuple[str, str] = ("", ""),
    decided: Mapping[str, bytes] = MappingProxyType({}),
) -> Moved | None:
    """The schema that the commit of ``spec`` needs because of other commits; None: its own will do.

    Call it under the lock. It usually reads one commit, and none if the newest file and the schema of
    ``spec`` are ``known`` (file, schema). It stops at a commit with the same schema. ``decided``: contents of
    files that may not be there yet. Raises ``Invalid`` if two writers gave a column types that cannot be
    merged.
    """
    for name in _newest_first(timeline):
        if known == (name, spec.user_schema):
            return None
        path = paths.timeline_file(name)
        try:
            data = decided.get(name) or storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:
            continue  # archived since the listing
        if spec.user_schema.encode() in bytes(data):
            return None
        metadata = decode_commit(data, path=path)
        if metadata.schema and metadata.operation not in _NO_DATA:
            return _compared(spec, metadata.schema, later=name.partition("_")[0] > spec.instant)
    return None


def newest_schema(storage: Storage, timeline: ActiveTimeline) -> str:
    """The schema of the newest completed delta commit that has one; "" if none has."""
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
    # The newest schema comes first, so that columns keep the order in which they became visible.
    return Moved(evolved(newest, missing_there, spec.table_name), announce=later)


def _newest_first(timeline: ActiveTimeline) -> list[str]:
    """File names of the ``_LOOKED_AT_MAX`` newest completed delta commits, newest first."""
    found = (i.file_name for i in reversed(timeline.completed) if i.action == DELTACOMMIT)
    return list(islice(found, _LOOKED_AT_MAX))
