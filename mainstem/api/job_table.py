"""Opens the table that an engine's job writes, or creates it from Hudi's options, with the indexes that the
options ask for.

The table decides which indexes are maintained, whatever a job's options say. An option can only add an index,
beside the table's writers, before the job writes. Unlike in Hudi, ``false`` drops nothing
(apache/hudi#18180).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from mainstem.api.create import create_table
from mainstem.api.given_options import for_opening
from mainstem.api.real_seams import reach_lock
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, Unsupported
from mainstem.forks import Mutex
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.indexing.index_lists import ready
from mainstem.indexing.status import BUILDING, PLANNED, READY
from mainstem.layout.key_index import key_index
from mainstem.layout.properties import WRITABLE_VERSIONS, TableConfig, has_table, load_config
from mainstem.options import METADATA, flag
from mainstem.options.engines import OPERATION
from mainstem.options.metadata import INDEX_SWITCHES
from mainstem.options.placing import (
    BUCKET_ENGINE,
    BUCKET_EXPRESSIONS,
    BUCKET_RULE,
    BUCKETS,
    HASH_FIELD,
    HIVE_STYLE,
    INDEX_TYPE,
    KEY_GENERATOR,
    PARTITION_FIELDS,
    PARTITION_OPTION,
    RECORD_KEY_FIELDS,
    RECORD_KEY_OPTION,
    SLASH_DATES,
    URL_ENCODE,
)
from mainstem.options.tables import (
    EXCLUSIVE,
    MERGE_MODE,
    ORDERING_FIELDS,
    ORDERING_OPTION,
    STORAGE_LAYOUT,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_TYPE_OPTION,
    TABLE_VERSION,
    TABLE_VERSION_OPTION,
    TIMEZONE,
)
from mainstem.storage import paths
from mainstem.storage.backends import is_local, storage_of
from mainstem.storage.location import Location
from mainstem.storage.swaps import has_swaps, swappable
from mainstem.writers.write_spec import BULK_INSERT, DELETE, DELETE_PARTITION, INSERT

_ARGUMENTS = (RECORD_KEY_FIELDS, ORDERING_FIELDS, PARTITION_FIELDS, BUCKETS, TABLE_NAME, TABLE_VERSION,
              TABLE_TYPE)  # fmt: skip
# What these say when a table's file does not: what Hudi assumes for a missing key, and the one
# index that mainstem writes.
_DEFAULTS: dict[str, str] = {
    TABLE_TYPE: "COPY_ON_WRITE",
    TIMEZONE: "LOCAL",
    HIVE_STYLE: "false",
    URL_ENCODE: "false",
    EXCLUSIVE: "false",
    INDEX_TYPE: "BUCKET",
    BUCKET_ENGINE: "SIMPLE",
    BUCKET_RULE: "regex",
    STORAGE_LAYOUT: STORAGE_LAYOUT.default,
}
_UPPER = (TABLE_TYPE, MERGE_MODE, INDEX_TYPE, BUCKET_ENGINE, TIMEZONE, KEY_GENERATOR, STORAGE_LAYOUT)
# A foreign table may lack it; then the option tells it (checked against its files).
_GIVEN_WHERE_MISSING = (BUCKETS, BUCKET_EXPRESSIONS, BUCKET_ENGINE, SLASH_DATES, INDEX_TYPE)


# Open tables of this process: a table remembers which instants it has read, so that a guard costs
# one new instant per commit and not the whole timeline. Spark's workers and a driver's threads
# share it.
_OPEN_MAX = 16
_open: dict[tuple[object, ...], Table] = {}
_open_guard = Mutex()


class Wanted(Protocol):
    """What a job's options say about its table.

    ``table``: properties that the table must have, or is created with; ``given``: table property -> option
    name as the user wrote it; ``passed``: settings for opening it.
    """

    @property
    def location(self) -> Location: ...
    @property
    def operation(self) -> str: ...
    @property
    def table(self) -> Mapping[str, str]: ...
    @property
    def given(self) -> Mapping[str, str]: ...
    @property
    def passed(self) -> Mapping[str, str]: ...


def open_or_create(options: Wanted, schema: pa.Schema) -> Table:
    """The table at ``options.location.base``. A missing one is created from the options and this schema.

    Raises ``Invalid`` for an option that contradicts the table, and, naming them, for the options that
    creating the table would need.
    """
    if not exists(options.location):
        created = _create(options, schema)
        if created is not None:
            return created
    key = _key(options)
    with _open_guard.held:
        known = _open.get(key)
    if known is not None:
        return known
    table = _opened(options)
    with _open_guard.held:
        while len(_open) >= _OPEN_MAX:
            del _open[next(iter(_open))]
        return _open.setdefault(key, table)


def open_for_job(options: Wanted, schema: pa.Schema) -> Table:
    """``open_or_create``, for the process that begins a job: the table has the indexes that are asked for.

    A missing index is built (``Table.create_index``): writers go on, those of other engines that are in
    flight are waited for. One that a living process builds is left to it. Raises what ``create_index``
    raises; the table is as before then.
    """
    table = open_or_create(options, schema)
    for kind in asked_indexes(options.passed):
        _provide(table, kind)
    return table


def asked_indexes(passed: Mapping[str, str]) -> list[str]:
    """Kinds of the indexes that options switch on, the listing of files first; [] where
    ``hoodie.metadata.enable=false`` switches all off. Raises ``Invalid`` for values that do not parse."""
    kinds = [kind for name, kind in INDEX_SWITCHES.items() if flag(passed, name, False)]
    if not METADATA.read(passed, bool(kinds)):
        return []
    return list(dict.fromkeys(["files", *kinds]))


def _provide(table: Table, kind: str) -> None:
    if kind in ready(load_config(table.opened.seams.storage)):
        return
    try:
        table.indexes.create(kind)
    except Invalid:
        states = {index.partition: index.state for index in table.indexes()}
        if states.get(kind) not in (READY, BUILDING, PLANNED):
            raise


def _key(options: Wanted) -> tuple[object, ...]:
    """What an open table depends on: its options and this very ``hoodie.properties`` file."""
    location = options.location
    try:
        if is_local(location):
            found = os.stat(os.path.join(location.path, paths.PROPERTIES))
            state: tuple[object, ...] = (found.st_ino, found.st_mtime_ns, found.st_size)
        else:
            storage = storage_of(location)
            if has_swaps(storage):
                tagged = swappable(storage).read_tagged(paths.PROPERTIES)
                state = (object(),) if tagged is None else tagged
            else:
                info = storage.stat(paths.PROPERTIES)
                state = (object(),) if info is None else (info.mtime_ms, info.size)
    except OSError:  # being replaced by another writer: do not share what is read now
        state = (object(),)
    settings = tuple(sorted({**for_opening(options.passed), **options.table}.items()))
    return (os.getpid(), location, settings, *state)


def _opened(options: Wanted) -> Table:
    table = open_table(options.location, properties=for_opening(options.passed))
    wrong = contradiction(options, table.config)
    if wrong:
        raise Invalid(wrong, table=table.path)
    missing: dict[str, str] = {
        key: options.table[key]
        for key in _GIVEN_WHERE_MISSING
        if key in options.table and not table.properties.get(key)
    }
    if _is_newer(options.table.get(TABLE_VERSION, ""), table.properties.get(TABLE_VERSION)):
        missing[TABLE_VERSION_OPTION] = options.table[TABLE_VERSION]
    if key_index(options.table) is None:
        missing.pop(INDEX_TYPE, None)  # buckets are what a table has that says nothing
    given = {**for_opening(options.passed), **missing}
    return open_table(options.location, properties=given) if missing else table


def exists(location: Location) -> bool:
    """Whether a table lies there."""
    return has_table(storage_of(location))


def _create(options: Wanted, schema: pa.Schema) -> Table | None:
    """None if another writer created it meanwhile."""
    wanted = dict(options.table)
    if options.operation in (DELETE, DELETE_PARTITION):
        raise Invalid(
            f"there is no table at {options.location.base}: nothing can be deleted from it",
            table=options.location.base,
        )
    needed = [(RECORD_KEY_OPTION, RECORD_KEY_FIELDS), (TABLE_NAME, TABLE_NAME)]
    if options.operation in (INSERT, BULK_INSERT):
        del needed[0]  # keys are made up
    missing = [name for name, key in needed if not wanted.get(key)]
    if missing:
        raise Invalid(
            f"there is no table at {options.location.base}; to create one, give {' and '.join(missing)}"
            f" (with {ORDERING_OPTION}, {PARTITION_OPTION} and {BUCKETS} as needed)"
            + (f"; or {OPERATION}={INSERT}, and keys are made up" if RECORD_KEY_OPTION in missing else ""),
            table=options.location.base,
        )
    if wanted.get(TABLE_TYPE, "MERGE_ON_READ").upper() != "MERGE_ON_READ":
        raise Unsupported(
            f"{TABLE_TYPE_OPTION}={wanted[TABLE_TYPE]!r}: non-blocking"
            " writers need MERGE_ON_READ",
            table=options.location.base,
        )
    version = wanted.get(TABLE_VERSION, "9")
    if version not in map(str, WRITABLE_VERSIONS):
        raise Unsupported(
            f"{TABLE_VERSION_OPTION}={version!r}: tables are created with version 8, 9 or 10",
            table=options.location.base,
        )
    listed = (RECORD_KEY_FIELDS, ORDERING_FIELDS, PARTITION_FIELDS)
    fields = {str(key): _names(wanted.get(key, "")) for key in listed}
    columns = pa.schema([f for f in schema if f.name not in META_FIELDS])
    more = {k: v for k, v in wanted.items() if k not in _ARGUMENTS}
    reach_lock(options.location, {**options.passed, **wanted})
    try:
        table = create_table(
            options.location,
            columns,
            record_key=fields[RECORD_KEY_FIELDS],
            ordering=fields[ORDERING_FIELDS],
            partition_by=fields[PARTITION_FIELDS],
            table_version=int(version),
            buckets=int(wanted[BUCKETS]) if wanted.get(BUCKETS, "").isdecimal() else None,
            name=wanted[TABLE_NAME],
            properties={**for_opening(options.passed), **more},
        )
    except Invalid:
        if exists(options.location):
            return None
        raise
    wrong = contradiction(options, table.config)
    if wrong:
        raise Invalid(wrong, table=table.path)
    return table


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def contradiction(options: Wanted, config: TableConfig) -> str | None:
    """The error if the options contradict the table."""
    for key, wanted in options.table.items():
        found = _found(config, key)
        if found is None and key in _GIVEN_WHERE_MISSING:
            continue
        if key == TABLE_VERSION and _is_newer(wanted, found):
            continue  # the first write upgrades it, or writes by the table's (``api.opened_table``)
        if key == BUCKETS and config.was_resized_from(wanted):
            continue  # a job that began before, or is started again with its old options
        if key == TABLE_VERSION and config.was_upgraded_from(wanted):
            continue  # the same
        if _comparable(key, wanted) != _comparable(key, found or ""):
            return (
                f"option {options.given.get(key, key)}={wanted!r} contradicts the table, whose {key} is"
                f" {found or 'not set'!r}; drop the option or write to another table"
            )
    return None


def _is_newer(wanted: str, found: str | None) -> bool:
    return wanted.isdecimal() and (found or "").isdecimal() and int(wanted) > int(found or 0)


def _found(config: TableConfig, key: str) -> str | None:
    if key == ORDERING_FIELDS:
        return ",".join(config.ordering)
    if key == PARTITION_FIELDS:
        return ",".join(config.partition_fields)
    if key == MERGE_MODE:
        return config.merge_mode
    if key == HASH_FIELD:
        return ",".join(config.hash_fields)
    if key == KEY_GENERATOR:
        return config.key_generator
    if key in (INDEX_TYPE, BUCKET_ENGINE) and BUCKETS not in config.raw:
        return config.raw.get(key)  # Hudi stores none, whichever it is
    return config.raw.get(key) or _DEFAULTS.get(key)


def _comparable(key: str, text: str) -> str:
    if key in (RECORD_KEY_FIELDS, ORDERING_FIELDS, PARTITION_FIELDS, HASH_FIELD):
        return ",".join(part.partition(":")[0] for part in _names(text))
    text = text.strip()
    if key == KEY_GENERATOR:
        return text.upper().removesuffix("_AVRO")
    return text.upper() if key in _UPPER else text.lower() if text.lower() in ("true", "false") else text
