"""The table that an engine's job writes: opened, or created from Hudi's options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from mainstem.api.create import create_table
from mainstem.api.hoodie_options import ORDERING, PARTITION, RECORD_KEY, TABLE_NAME, for_opening
from mainstem.api.opening import reach_lock
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, Unsupported
from mainstem.forks import Mutex
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.layout.properties import SLASH_DATES, TableConfig
from mainstem.merge import modes
from mainstem.storage import paths
from mainstem.storage.backends import storage_of
from mainstem.storage.location import Location

_KEYS = "hoodie.table.recordkey.fields"
_ORDERING = modes.ORDERING
_PARTITION = "hoodie.table.partition.fields"
_BUCKETS = "hoodie.bucket.index.num.buckets"
_ARGUMENTS = (_KEYS, _ORDERING, _PARTITION, _BUCKETS, "hoodie.table.name", "hoodie.table.version",
              "hoodie.table.type")  # fmt: skip
# What these say when a table's file does not: what Hudi assumes for a missing key, and the one
# index that mainstem writes.
_DEFAULTS = {
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.timeline.timezone": "LOCAL",
    "hoodie.datasource.write.hive_style_partitioning": "false",
    "hoodie.datasource.write.partitionpath.urlencode": "false",
    "hoodie.mainstem.exclusive": "false",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "SIMPLE",
}
_UPPER = ("hoodie.table.type", modes.MODE, "hoodie.index.type", "hoodie.index.bucket.engine",
          "hoodie.table.timeline.timezone", "hoodie.table.keygenerator.type")  # fmt: skip
# A foreign table may lack it; then the option tells it (checked against its files).
_GIVEN_WHERE_MISSING = (_BUCKETS, SLASH_DATES)


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

    Raises ``Invalid`` for an option that contradicts the table, and, naming them, for the options
    that creating the table would need.
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


def _key(options: Wanted) -> tuple[object, ...]:
    """What an open table depends on: its options and this very ``hoodie.properties`` file."""
    try:
        found = os.stat(os.path.join(options.location.base, paths.PROPERTIES))
        state: tuple[object, ...] = (found.st_ino, found.st_mtime_ns, found.st_size)
    except OSError:  # being replaced by another writer: do not share what is read now
        state = (object(),)
    settings = tuple(sorted({**for_opening(options.passed), **options.table}.items()))
    return (os.getpid(), options.location.base, settings, *state)


def _opened(options: Wanted) -> Table:
    table = open_table(options.location, properties=for_opening(options.passed))
    wrong = contradiction(options, table.config)
    if wrong:
        raise Invalid(wrong, table=table.path)
    missing = {
        key: options.table[key]
        for key in _GIVEN_WHERE_MISSING
        if key in options.table and not table.properties.get(key)
    }
    given = {**for_opening(options.passed), **missing}
    return open_table(options.location, properties=given) if missing else table


def exists(location: Location) -> bool:
    """Whether a table lies there."""
    storage = storage_of(location)
    names = (paths.PROPERTIES, paths.PROPERTIES_BACKUP)  # the backup while a writer replaces it
    return any(storage.stat(name) is not None for name in names)


def _create(options: Wanted, schema: pa.Schema) -> Table | None:
    """None if another writer created it meanwhile."""
    wanted = dict(options.table)
    if options.operation == "delete":
        raise Invalid(
            f"there is no table at {options.location.base}: nothing can be deleted from it",
            table=options.location.base,
        )
    needed = ((RECORD_KEY, _KEYS), (TABLE_NAME, "hoodie.table.name"))
    missing = [name for name, key in needed if not wanted.get(key)]
    if missing:
        raise Invalid(
            f"there is no table at {options.location.base}, and to create one {' and '.join(missing)} must"
            f" be given (with {ORDERING}, {PARTITION} and {_BUCKETS} as needed)",
            table=options.location.base,
        )
    if wanted.get("hoodie.table.type", "MERGE_ON_READ").upper() != "MERGE_ON_READ":
        raise Unsupported(
            f"hoodie.datasource.write.table.type={wanted['hoodie.table.type']!r}: non-blocking"
            " writers need MERGE_ON_READ",
            table=options.location.base,
        )
    version = wanted.get("hoodie.table.version", "9")
    if version not in ("8", "9"):
        raise Unsupported(
            f"hoodie.write.table.version={version!r}: tables are created with version 8 or 9",
            table=options.location.base,
        )
    fields = {key: _names(wanted.get(key, "")) for key in (_KEYS, _ORDERING, _PARTITION)}
    columns = pa.schema([f for f in schema if f.name not in META_FIELDS])
    more = {k: v for k, v in wanted.items() if k not in _ARGUMENTS}
    reach_lock(options.location, {**options.passed, **wanted})
    try:
        table = create_table(
            options.location,
            columns,
            record_key=fields[_KEYS],
            ordering=fields[_ORDERING],
            partition_by=fields[_PARTITION],
            table_version=int(version),
            buckets=int(wanted[_BUCKETS]) if wanted.get(_BUCKETS, "").isdecimal() else None,
            name=wanted["hoodie.table.name"],
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
    """What is wrong if the options say something else than the table."""
    for key, wanted in options.table.items():
        found = _found(config, key)
        if found is None and key in _GIVEN_WHERE_MISSING:
            continue
        if _comparable(key, wanted) != _comparable(key, found or ""):
            return (
                f"option {options.given.get(key, key)}={wanted!r} contradicts the table, whose {key} is"
                f" {found or 'not set'!r}; drop the option or write to another table"
            )
    return None


def _found(config: TableConfig, key: str) -> str | None:
    if key == _ORDERING:
        return ",".join(config.ordering)
    if key == _PARTITION:
        return ",".join(config.partition_fields)
    if key == modes.MODE:
        return config.merge_mode
    if key == "hoodie.bucket.index.hash.field":
        return ",".join(config.hash_fields)
    if key == "hoodie.table.keygenerator.type":
        return config.key_generator
    return config.raw.get(key) or _DEFAULTS.get(key)


def _comparable(key: str, text: str) -> str:
    if key in (_KEYS, _ORDERING, _PARTITION, "hoodie.bucket.index.hash.field"):
        return ",".join(part.partition(":")[0] for part in _names(text))
    text = text.strip()
    if key == "hoodie.table.keygenerator.type":
        return text.upper().removesuffix("_AVRO")
    return text.upper() if key in _UPPER else text.lower() if text.lower() in ("true", "false") else text
