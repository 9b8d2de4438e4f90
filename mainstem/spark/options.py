"""Options of a Spark read or write, under Hudi's own names (DataSourceWriteOptions,
HoodieTableConfig).

Every ``hoodie.*`` option is understood, or refused by name: one that is ignored in silence could
change what a job writes. Names are compared without case, as Spark's data sources see them.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstem import options as core
from mainstem.errors import Invalid, Unsupported
from mainstem.table import keygen_time
from mainstem.table.keygen import named_kind
from mainstem.table.properties import SLASH_DATES
from mainstem.writers.schemas import RECONCILE, SET_NULL
from mainstem.writers.spec import LAYOUT_OPTIONS, UNSAFE

OPERATION = "hoodie.datasource.write.operation"
RECORD_KEY = "hoodie.datasource.write.recordkey.field"
ORDERING = "hoodie.datasource.write.precombine.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"
TABLE_NAME = "hoodie.table.name"
BUCKETS = "hoodie.bucket.index.num.buckets"
IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"
RETRY_COUNT = "hoodie.datasource.write.streaming.retry.count"
RETRY_MS = "hoodie.datasource.write.streaming.retry.interval.ms"
IGNORE_FAILED = "hoodie.datasource.write.streaming.ignore.failed.batch"

ORDINAL = "hoodie.mainstem.stream.ordinal"
BATCH_ID = "hoodie.mainstem.stream.batch.id"
GUARD = "hoodie.mainstem.stream.guard"
DRIVER_ROWS = "hoodie.mainstem.spark.driver.rows.max"
DRIVER_BYTES = "hoodie.mainstem.spark.driver.bytes.max"
SHUFFLE = "hoodie.mainstem.spark.shuffle"

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
    "hoodie.table.partial.update.mode": ("hoodie.table.partial.update.mode",),
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
    **{option: (option, keygen_time.old_name(option)) for option in keygen_time.OPTIONS},
    BUCKETS: (BUCKETS,),
    "hoodie.bucket.index.hash.field": ("hoodie.bucket.index.hash.field",),
    "hoodie.index.type": ("hoodie.index.type",),
    "hoodie.index.bucket.engine": ("hoodie.index.bucket.engine",),
    "hoodie.table.timeline.timezone": ("hoodie.table.timeline.timezone",),
    "hoodie.mainstem.exclusive": ("hoodie.mainstem.exclusive",),
}  # fmt: skip
_KEY_GENERATOR = "hoodie.table.keygenerator.type"
_TABLE_ALIASES = {alias: key for key, aliases in _TABLE_PROPERTIES.items() for alias in aliases}

#: options whose one acceptable value is what mainstem does anyway; others are refused by name
_FIXED: dict[str, tuple[tuple[str, ...], str]] = {
    "hoodie.metadata.enable": (("false",), "mainstem does not maintain Hudi's metadata table yet"),
    "hoodie.populate.meta.fields": (("true",), "rows without meta columns cannot be written"),
    "hoodie.combine.before.upsert": (("true",), "a batch is always combined when it is read"),
    "hoodie.combine.before.insert": (("true",), "inserts are upserts: a key is never there twice"),
    "hoodie.combine.before.delete": (("true",), "a key is deleted once"),
    "hoodie.datasource.write.insert.drop.duplicates": (("false",), "rows would be dropped"),
    "hoodie.datasource.insert.dup.policy": (("none",), "inserts are upserts"),
    IGNORE_FAILED: (("false",), "rows of a failed batch would be lost"),
    "hoodie.schema.on.read.enable": (("false",), "schema on read is not supported"),
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": (
        ("false",), "columns that other writers fill at the same time would be hidden",
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
    "hoodie.datasource.write.streaming.disable.", "hoodie.memory.", "compaction.", "clean.",
)  # fmt: skip
_PASSED = (core.CONCURRENCY, core.FAILED_WRITES, core.FAILED_WRITES_OLD, core.LOG_MAX, core.BLOCK_FORMAT,
           SET_NULL, RECONCILE, *LAYOUT_OPTIONS)  # fmt: skip
_SPARK_OWN = ("path", "checkpointlocation", "queryname", "outputmode", "trigger", "mode")
_STREAM = (IDENTIFIER, ORDINAL, BATCH_ID, GUARD, RETRY_COUNT, RETRY_MS)
_WAYS = (DRIVER_ROWS, DRIVER_BYTES, SHUFFLE)

QUERY_TYPE = "hoodie.datasource.query.type"
BEGIN = "hoodie.datasource.read.begin.instanttime"
END = "hoodie.datasource.read.end.instanttime"
AS_OF = "as.of.instant"
COLUMNS = "columns"
FILTER = "filter"
CHANGE_FORMAT = "hoodie.datasource.query.incremental.format"
START_OFFSET = "hoodie.datasource.streaming.startoffset"  # startOffset, without case
AS_OF_COMPLETION = "hoodie.mainstem.read.as.of.completion"
DELETES = "hoodie.mainstem.read.deletes"
IMAGES = "hoodie.mainstem.read.cdc.images"
MAX_INSTANTS = "hoodie.mainstem.read.max.instants.per.trigger"
_READ = (
    QUERY_TYPE, BEGIN, END, AS_OF, COLUMNS, FILTER, CHANGE_FORMAT, START_OFFSET, AS_OF_COMPLETION, DELETES,
    IMAGES, MAX_INSTANTS,
)  # fmt: skip
INCREMENTAL, CDC = "INCREMENTAL", "CDC"


_CATALOG = (
    "A catalog table (CREATE TABLE ... USING) loses its path: use a temporary view, or"
    " SELECT ... FROM t WITH (path='...') and INSERT INTO t WITH (path='...')"
)


def local_path(path: str) -> str:
    """A local path without scheme. Raises ``Unsupported`` for another file system than
    ``file:``."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme.isalnum() and "/" not in scheme:
        if scheme.lower() != "file":
            raise Unsupported(
                f"path {path!r}: tables lie on a local POSIX file system (that all Spark workers"
                f" see), found the scheme {scheme}:"
            )
        path = "/" + rest.lstrip("/")
    if not path.startswith("/"):
        raise Invalid(
            f"path {path!r} is relative; expected an absolute path: driver and workers have"
            " different working folders"
        )
    return path.rstrip("/") or "/"


@dataclass(frozen=True)
class WriteOptions:
    """Checked options of one write.

    ``table``: properties that the table must have, or is created with; ``passed``: settings for
    opening it (locks, clock, heartbeat); ``given``: table property -> option name as the user wrote
    it.
    """

    path: str
    operation: str = "upsert"
    table: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    passed: Mapping[str, str] = field(default_factory=dict)
    identifier: str | None = None
    ordinal: int | None = None
    batch_id: int | None = None
    guarded: bool = True
    retries: int = 3
    retry_ms: int = 2_000
    driver_rows: int = 100_000
    driver_bytes: int = 64 * 1024 * 1024
    shuffle: str = "AUTO"

    @classmethod
    def parse(cls, options: Mapping[str, object], *, path: str | None = None) -> WriteOptions:
        """Raises ``Invalid`` (unknown name, wrong value), ``Unsupported`` (known, but refused)."""
        texts = _texts(options)
        target = path or texts.get("path")
        if not target:
            raise Invalid(f'option "path" is missing: the folder of the table. {_CATALOG}')
        table, given, passed = _sorted_out(texts)
        return cls(
            path=local_path(target),
            operation=_operation(texts),
            table=table,
            given=given,
            passed=passed,
            identifier=texts.get(IDENTIFIER) or None,
            ordinal=_number(texts, ORDINAL),
            batch_id=_number(texts, BATCH_ID),
            guarded=core.one_of(texts, GUARD, "ON", ("ON", "OFF")) == "ON",
            retries=core.whole_number(texts, RETRY_COUNT, 3, 0, 1_000),
            retry_ms=core.whole_number(texts, RETRY_MS, 2_000, 0, 3_600_000),
            driver_rows=core.whole_number(texts, DRIVER_ROWS, 100_000, 0, 10**9),
            driver_bytes=core.whole_number(texts, DRIVER_BYTES, 64 * 1024 * 1024, 0, 2**40),
            shuffle=core.one_of(texts, SHUFFLE, "AUTO", ("AUTO", "ON", "OFF")),
        )


@dataclass(frozen=True)
class ReadOptions:
    """Checked options of one read."""

    path: str
    query_type: str = "SNAPSHOT"
    columns: tuple[str, ...] | None = None
    as_of: str | None = None
    begin: str | None = None
    end: str | None = None
    passed: Mapping[str, str] = field(default_factory=dict)
    as_of_completion: str | None = None
    change_format: str = "LATEST_STATE"
    images: str = "json"
    deletes: bool = False
    start_offset: str = "earliest"
    max_instants: int | None = None
    filter: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, object], *, lenient: bool = False) -> ReadOptions:
        """Raises ``Invalid`` for an unknown name, a wrong value or options that exclude each
        other. ``lenient``: the options may be a stream's, which names no range of its own."""
        texts = _texts(options)
        if not texts.get("path"):
            raise Invalid(f'option "path" is missing: the folder of the table. {_CATALOG}')
        _, _, passed = _sorted_out({k: v for k, v in texts.items() if k not in _READ})
        kind = core.one_of(texts, QUERY_TYPE, "SNAPSHOT", ("SNAPSHOT", "READ_OPTIMIZED", "INCREMENTAL"))
        begin, end, as_of = texts.get(BEGIN), texts.get(END), texts.get(AS_OF)
        if kind != "INCREMENTAL" and (begin or end):
            raise Invalid(f"{BEGIN} and {END} need {QUERY_TYPE}=incremental, found {kind.lower()}")
        if kind == "INCREMENTAL" and not begin and not lenient:
            raise Invalid(
                f"{BEGIN} is missing: the completion time after which to read, 000 or earliest for all"
            )
        if as_of and kind != "SNAPSHOT":
            raise Invalid(f"{AS_OF} needs {QUERY_TYPE}=snapshot, found {kind.lower()}")
        columns = texts.get(COLUMNS)
        names = tuple(part.strip() for part in columns.split(",")) if columns else None
        if begin and begin.lower() in ("earliest", "000", "0"):
            begin = "0"
        found = cls(
            local_path(texts["path"]),
            kind,
            names,
            as_of,
            begin,
            end,
            passed,
            as_of_completion=texts.get(AS_OF_COMPLETION),
            change_format=core.one_of(texts, CHANGE_FORMAT, "LATEST_STATE", ("LATEST_STATE", CDC)),
            images=core.one_of(texts, IMAGES, "JSON", ("JSON", "STRUCT")).lower(),
            deletes=core.one_of(texts, DELETES, "FALSE", ("TRUE", "FALSE")) == "TRUE",
            start_offset=texts.get(START_OFFSET, "earliest"),
            max_instants=_number(texts, MAX_INSTANTS),
            filter=texts.get(FILTER) or None,
        )
        found._check_changes(texts, lenient)
        return found

    def _check_changes(self, texts: Mapping[str, str], lenient: bool) -> None:
        """Options of changes belong to incremental queries and streams, each to its own kind."""
        if not lenient:
            ours = (CHANGE_FORMAT, DELETES, IMAGES)
            stray = [n for n in ours if n in texts and self.query_type != INCREMENTAL]
            streams = [n for n in (START_OFFSET, MAX_INSTANTS) if n in texts]
            if stray:
                raise Invalid(f"{stray[0]} needs {QUERY_TYPE}=incremental, or readStream")
            if streams:
                raise Invalid(f"{streams[0]} is for readStream; a batch read has {BEGIN} and {END}")
        start = self.start_offset
        if start.lower() not in ("earliest", "latest") and not start.isdigit():
            raise Invalid(f"{START_OFFSET}={start!r}; expected earliest, latest or a completion time")
        if self.filter and self.change_format == CDC:
            raise Invalid(f"{FILTER} is for rows; change data has none, filter the DataFrame")
        if self.max_instants == 0:
            raise Invalid(f"{MAX_INSTANTS}=0 would never read anything; expected 1 or more")
        if self.deletes and self.change_format == CDC:
            raise Invalid(f"{DELETES} is for latest_state: change data always has the deletes (op d)")


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    """Lower-case names; booleans and numbers as Hudi writes them."""
    texts = {}
    for name, value in options.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        texts[str(name).lower()] = text
    return texts


def _number(texts: Mapping[str, str], name: str) -> int | None:
    return core.whole_number(texts, name, 0, 0, 2**62) if name in texts else None


def _operation(texts: Mapping[str, str]) -> str:
    name = texts.get(OPERATION, "upsert").lower()
    if name in OPERATIONS:
        return name
    if name in UNSAFE:
        raise Unsupported(f"{OPERATION}={name!r} under non-blocking concurrency control: {UNSAFE[name]}")
    if name in _OTHER_OPERATIONS:
        raise Unsupported(
            f"{OPERATION}={name!r} is not supported by non-blocking writers; expected"
            f" {' or '.join(OPERATIONS)}"
        )
    raise Invalid(f"{OPERATION}={name!r}, expected {' or '.join(OPERATIONS)}")


def _sorted_out(
    texts: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """(table properties, the option each came from, settings for opening)."""
    table: dict[str, str] = {}
    given: dict[str, str] = {}
    passed: dict[str, str] = {}
    harmless: list[str] = []
    own = {name.lower(): name for name in core.OWN_KEYS}
    for name, text in texts.items():
        if name in _SPARK_OWN or name in _STREAM or name in _WAYS or name == OPERATION:
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
        elif name in own or name in _PASSED or name.startswith(_PASSED_PREFIXES):
            passed[own.get(name, name)] = text
        elif name.startswith(_SERVICE_PREFIXES) and name in _service_keys():
            passed[name] = text
        elif name.startswith(_SERVICE_PREFIXES) and _service_option_meant(name):
            raise _unknown(name)
        elif name.startswith(_HARMLESS_PREFIXES):
            harmless.append(name)
        else:
            raise _unknown(name)
    if harmless:
        warnings.warn(
            f"these options have no effect in mainstem: {', '.join(sorted(harmless))}", stacklevel=4
        )
    return table, given, passed


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


def _unknown(name: str) -> Exception:
    known = (
        *_TABLE_ALIASES, *_FIXED, *_PASSED, *_STREAM, *_WAYS, *_READ, *_service_keys(), OPERATION, "path",
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
