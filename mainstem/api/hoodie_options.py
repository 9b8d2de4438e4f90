"""Hudi's ``hoodie.*`` options as users give them (DataSourceWriteOptions, HoodieTableConfig): to an engine,
to ``open_table`` or to ``create_table``.

Every option is understood, told to have no effect, or refused by name: one that is ignored in silence could
change what is written.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping

from mainstem import options as core
from mainstem.errors import Invalid, Unsupported
from mainstem.layout import time_partitions
from mainstem.layout.key_generator import named_kind
from mainstem.layout.properties import (
    CONSISTENT_TIMESTAMP,
    ENCODING_VALIDATION,
    KEY_ENCODING,
    NEW_ENCODING,
    SLASH_DATES,
)
from mainstem.services.run_options import SERVICE_PREFIXES
from mainstem.storage.backends import location_of
from mainstem.storage.location import Location
from mainstem.writers.transaction_schema import RECONCILE, SET_NULL
from mainstem.writers.write_spec import LAYOUT_OPTIONS, UNSAFE

OPERATION = "hoodie.datasource.write.operation"
RECORD_KEY = "hoodie.datasource.write.recordkey.field"
ORDERING = "hoodie.datasource.write.precombine.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
TABLE_NAME = "hoodie.table.name"
BUCKETS = "hoodie.bucket.index.num.buckets"
IGNORE_FAILED = "hoodie.datasource.write.streaming.ignore.failed.batch"

OPERATIONS = ("upsert", "insert", "bulk_insert", "delete")
_OTHER_OPERATIONS = (
    "bootstrap", "upsert_prepped", "insert_prepped", "bulk_insert_prepped", "delete_prepped", "boostrap",
)  # fmt: skip

#: several names of one table property; the first is the one that the table stores
_TABLE_PROPERTIES: dict[str, tuple[str, ...]] = {
    "hoodie.table.name": ("hoodie.table.name", "hoodie.datasource.write.table.name"),
    "hoodie.database.name": ("hoodie.database.name", "hoodie.datasource.write.database.name"),
    "hoodie.table.type": ("hoodie.table.type", "hoodie.datasource.write.table.type"),
    "hoodie.table.version": ("hoodie.table.version", "hoodie.write.table.version"),
    "hoodie.table.recordkey.fields": ("hoodie.table.recordkey.fields", RECORD_KEY),
    "hoodie.table.ordering.fields": (
        "hoodie.table.ordering.fields", "hoodie.table.precombine.field", ORDERING,
        "hoodie.datasource.write.ordering.fields",
    ),
    "hoodie.table.partition.fields": ("hoodie.table.partition.fields", PARTITION),
    "hoodie.record.merge.mode": ("hoodie.record.merge.mode", "hoodie.write.record.merge.mode"),
    "hoodie.table.partial.update.mode": (
        "hoodie.table.partial.update.mode", "hoodie.write.partial.update.mode",
    ),
    "hoodie.datasource.write.hive_style_partitioning": (
        "hoodie.datasource.write.hive_style_partitioning",
    ),
    "hoodie.datasource.write.partitionpath.urlencode": (
        "hoodie.datasource.write.partitionpath.urlencode",
    ),
    "hoodie.table.keygenerator.type": (
        "hoodie.table.keygenerator.type", "hoodie.datasource.write.keygenerator.type",
    ),
    SLASH_DATES: (SLASH_DATES,),
    **{option: (option, time_partitions.old_name(option)) for option in time_partitions.OPTIONS},
    BUCKETS: (BUCKETS,),
    "hoodie.bucket.index.hash.field": ("hoodie.bucket.index.hash.field",),
    "hoodie.index.type": ("hoodie.index.type",),
    "hoodie.index.bucket.engine": ("hoodie.index.bucket.engine",),
    "hoodie.table.timeline.timezone": ("hoodie.table.timeline.timezone",),
    "hoodie.mainstem.exclusive": ("hoodie.mainstem.exclusive",),
}  # fmt: skip
_KEY_GENERATOR = "hoodie.table.keygenerator.type"
_TABLE_ALIASES = {alias: key for key, aliases in _TABLE_PROPERTIES.items() for alias in aliases}

#: options that ask for an index of the metadata table -> its kind. Of a partitioned table the record index
#: is the partitioned one, whichever was asked for.
INDEX_SWITCHES = {
    "hoodie.metadata.index.column.stats.enable": "column_stats",
    "hoodie.metadata.index.partition.stats.enable": "partition_stats",
    "hoodie.metadata.index.bloom.filter.enable": "bloom_filters",
    "hoodie.metadata.record.index.enable": "record_index",
    "hoodie.metadata.global.record.level.index.enable": "record_index",
    "hoodie.metadata.record.level.index.enable": "record_index",
}

#: options whose one acceptable value is what mainstem does anyway; others are refused by name
_FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "hoodie.populate.meta.fields": (("true",), "rows without meta columns cannot be written"),
    "hoodie.combine.before.upsert": (("true",), "a batch is always combined when it is read"),
    "hoodie.combine.before.insert": (("true",), "inserts are upserts: a key is never there twice"),
    "hoodie.combine.before.delete": (("true",), "a key is deleted once"),
    "hoodie.datasource.write.insert.drop.duplicates": (("false",), "rows would be dropped"),
    "hoodie.datasource.insert.dup.policy": (("none",), "inserts are upserts"),
    IGNORE_FAILED: (("false",), "rows of a failed batch would be lost"),
    "hoodie.schema.on.read.enable": (("false",), "schema on read is not supported"),
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": (
        ("false",), "columns that other writers fill at the same time would be hidden"
        f" ({SET_NULL}=true writes nulls into them)",
    ),
    "hoodie.datasource.write.drop.partition.columns": (("false",), "columns would be dropped"),
    "hoodie.table.cdc.enabled": (("false",), "change data capture files are not written"),
    "hoodie.datasource.hive_sync.enable": (("false",), "no catalog is synchronised"),
    "hoodie.datasource.meta.sync.enable": (("false",), "no catalog is synchronised"),
    "hoodie.clustering.inline": (("false",), "clustering breaks non-blocking writers"),
    "hoodie.clustering.async.enabled": (("false",), "clustering breaks non-blocking writers"),
    "hoodie.write.auto.upgrade": (("false",), "tables are never upgraded by mainstem"),
    "hoodie.auto.adjust.lock.configs": (
        ("false",), "it would replace the table lock by one that holds in one process only",
    ),
    "hoodie.write.markers.type": (("direct",), "markers are DIRECT"),
    "hoodie.embed.timeline.server": (("true", "false"), ""),
}  # fmt: skip

#: speed and size of Spark jobs and files: no effect on the rows. Warned about once, then left
#: alone.
_HARMLESS_PREFIXES = (
    "hoodie.upsert.shuffle.", "hoodie.insert.shuffle.", "hoodie.delete.shuffle.",
    "hoodie.bulkinsert.", "hoodie.parquet.", "hoodie.finalize.write.",
    "hoodie.rollback.parallelism", "hoodie.markers.", "hoodie.compact.", "hoodie.clean.",
    "hoodie.cleaner.", "hoodie.keep.", "hoodie.commits.", "hoodie.archive.", "hoodie.memory.",
    "hoodie.metrics.", "hoodie.filesystem.", "hoodie.bloom.", "hoodie.consistency.",
    "hoodie.write.status.",
    # Of the metadata table's insides, of other indexes, of blocks' sizes.
    "hoodie.metadata.", "hoodie.index.bloom.", "hoodie.bucket.index.min.", "hoodie.bucket.index.max.",
    "hoodie.logfile.data.block.max.", "hoodie.write.record.positions", "hoodie.merge.small.file.",
    "hoodie.clustering.",
)  # fmt: skip
_PASSED_PREFIXES = (
    "hoodie.write.lock.", "hoodie.time.generator.", "hoodie.client.heartbeat.",
)  # fmt: skip
# Options of table services: those that a service reads are passed on, the others are harmless or unknown.
_SERVICE_PREFIXES = (
    "hoodie.compact", "hoodie.clean", "hoodie.archive.", "hoodie.keep.", "hoodie.commits.archival.",
    "hoodie.timeline.compaction.", "hoodie.timeline.manifest.", "hoodie.log.compaction.",
    "hoodie.optimized.log.blocks.",
    "hoodie.table.services.", "hoodie.datasource.compaction.",
    "hoodie.datasource.write.streaming.disable.", "hoodie.memory.", "hoodie.metadata.compact.",
    "hoodie.metadata.derive.", "compaction.",
    "clean.",
)  # fmt: skip
_PASSED = (core.DATA_SKIPPING, core.CONCURRENCY, core.FAILED_WRITES, core.FAILED_WRITES_OLD, core.LOG_MAX,
           core.BLOCK_FORMAT, SET_NULL, RECONCILE, KEY_ENCODING, NEW_ENCODING, ENCODING_VALIDATION,
           *LAYOUT_OPTIONS)  # fmt: skip

_INDEXES = (core.METADATA, *INDEX_SWITCHES, *core.INDEX_KEYS)

# Read where a table is opened or made; jobs of engines have no use for them.
_OPENING = (
    core.METADATA, *core.INDEX_KEYS, "mainstem.read.damaged", "hoodie.base.path",
    "hoodie.compaction.payload.class",
    "hoodie.record.merge.strategy.id", "hoodie.payload.delete.field", "hoodie.payload.delete.marker",
    "hoodie.table.keygenerator.class", CONSISTENT_TIMESTAMP,
    "hoodie.table.initial.version", "hoodie.timeline.layout.version", "hoodie.table.checksum",
    "hoodie.table.create.schema",
)  # fmt: skip
_OPENING_PREFIXES = ("hoodie.record.merge.property.",)


def shared_location(path: str) -> Location:
    """Where a job's table lies, for all of its processes. Raises ``Invalid`` for a relative path,
    ``Unsupported`` for storage that is not supported."""
    return location_of(path, absolute=True)


def texts_of(options: Mapping[str, object]) -> dict[str, str]:
    """Lower-case names; booleans and numbers as Hudi writes them."""
    texts = {}
    for name, value in options.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        texts[str(name).lower()] = text
    return texts


def operation(texts: Mapping[str, str], option: str = OPERATION) -> str:
    """The write operation that ``option`` names; refused by name where it would lose rows."""
    name = texts.get(option, "upsert").lower()
    if name in OPERATIONS:
        return name
    if name in UNSAFE:
        raise Unsupported(f"{option}={name!r} under non-blocking concurrency control: {UNSAFE[name]}")
    if name in _OTHER_OPERATIONS:
        raise Unsupported(
            f"{option}={name!r} is not supported by non-blocking writers; expected {' or '.join(OPERATIONS)}"
        )
    raise Invalid(f"{option}={name!r}, expected {' or '.join(OPERATIONS)}")


def sorted_out(
    texts: Mapping[str, str], *, known: Iterable[str] = ()
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """(table properties, the option each came from, settings for opening).

    ``known``: the engine's own options, which are left out here and named where one is mistyped.
    """
    elsewhere = frozenset(known)
    table: dict[str, str] = {}
    given: dict[str, str] = {}
    passed: dict[str, str] = {}
    harmless: list[str] = []
    own = {name.lower(): name for name in core.OWN_KEYS}
    for name, text in texts.items():
        if name in elsewhere:
            continue
        if name in _TABLE_ALIASES:
            key = _TABLE_ALIASES[name]
            if key in table and table[key] != text:
                raise Invalid(f"{name}={text!r} contradicts {given[key]}={table[key]!r}")
            table[key], given[key] = text, name
        elif name in _FIXED:
            _check_fixed(name, text)
        elif name == "hoodie.datasource.write.keygenerator.class":
            key, kind = _KEY_GENERATOR, named_kind({name: text})
            if kind and table.setdefault(key, kind).upper().removesuffix("_AVRO") != kind:
                raise Invalid(f"{name}={text!r} contradicts {given[key]}={table[key]!r}")
            given.setdefault(key, name)
        elif name in own or name in _PASSED or name in _INDEXES or name.startswith(_PASSED_PREFIXES):
            passed[own.get(name, name)] = text
        elif name.startswith(_SERVICE_PREFIXES) and name in _service_keys():
            passed[name] = text
        elif name.startswith(_SERVICE_PREFIXES) and _service_option_meant(name):
            raise unknown(name, elsewhere)
        elif name.startswith(_HARMLESS_PREFIXES):
            harmless.append(name)
        else:
            raise unknown(name, elsewhere)
    if harmless:
        warnings.warn(
            f"these options have no effect in mainstem: {', '.join(sorted(harmless))}", stacklevel=4
        )
    return table, given, passed


def for_opening(passed: Mapping[str, str]) -> dict[str, str]:
    """What ``open_table`` is given of a job's settings: which indexes it asks for is no business of an open
    table, and that it asks for none no reason to read without them."""
    return {k: v for k, v in passed.items() if k not in (core.METADATA, *INDEX_SWITCHES)}


def for_reading(passed: Mapping[str, str]) -> dict[str, str]:
    """The same for a query, which may be told to do without the metadata table."""
    return {k: v for k, v in passed.items() if k not in INDEX_SWITCHES}


def check_given(given: Mapping[str, str], table: Mapping[str, str] | None = None) -> None:
    """What ``open_table`` and ``create_table`` accept: as engines do, and what a table is made with.

    ``table``: its own properties, which may be repeated. Raises ``Invalid`` for unknown names, for values of
    services' options that do not parse and for bounds that exclude each other, ``Unsupported`` for what would
    lose rows or is not there; warns of options without effect.
    """
    table = table or {}
    if OPERATION in given:
        operation(given)
    of_services = [name for name in given if name.startswith(SERVICE_PREFIXES)]
    if of_services:
        from mainstem.services.option_names import check_service_names, check_service_values

        check_service_names(of_services)
        check_service_values({**table, **given})
    others = {
        name: text for name, text in given.items() if name not in of_services and table.get(name) != text
    }
    prefixed = [name for name in others if name.startswith(_OPENING_PREFIXES)]
    switches = sorted(name for name in others if name in INDEX_SWITCHES)
    if switches:
        warnings.warn(
            f"these options ask for indexes when a job begins: {', '.join(switches)}; of an open table it is"
            " Table.create_index that makes one",
            stacklevel=4,
        )
    sorted_out(others, known=(OPERATION, *_OPENING, *prefixed))


def _service_keys() -> frozenset[str]:
    from mainstem.services.option_names import SERVICE_KEYS

    return SERVICE_KEYS


def _service_option_meant(name: str) -> str | None:
    from mainstem.services.option_names import name_meant

    return name_meant(name)


def _check_fixed(name: str, text: str) -> None:
    allowed, reason = _FIXED[name]
    if text.lower() not in allowed:
        raise Unsupported(f"{name}={text!r}: {reason}; expected {' or '.join(allowed)}")


def unknown(name: str, known: Iterable[str] = ()) -> Exception:
    """The error for an option that nobody reads, with the name that was perhaps meant."""
    known = (
        *known, *_TABLE_ALIASES, *_FIXED, *_PASSED, *_INDEXES, *_service_keys(), *core.OWN_KEYS,
        "hoodie.write.lock.provider", "hoodie.time.generator.max_expected_clock_skew_ms",
    )  # fmt: skip
    meant = _service_option_meant(name)
    near = [meant] if meant else difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if name.startswith("hoodie.") and not near and not name.startswith("hoodie.mainstem."):
        return Unsupported(
            f"option {name!r} is not supported by mainstem: leave it out if the rows do not depend on it"
        )
    return Invalid(f"unknown option {name!r}{hint}")
