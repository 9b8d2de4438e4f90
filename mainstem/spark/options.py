"""Options of a Spark read or write, under Hudi's own names (DataSourceWriteOptions,
HoodieTableConfig).

Every ``hoodie.*`` option is understood, or refused by name: one that is ignored in silence could
change what a job writes. Names are compared without case, as Spark's data sources see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstem import options as core
from mainstem.api.hoodie_options import OPERATION, operation, shared_location, sorted_out, texts_of
from mainstem.errors import Invalid
from mainstem.storage.location import Location

IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"
RETRY_COUNT = "hoodie.datasource.write.streaming.retry.count"
RETRY_MS = "hoodie.datasource.write.streaming.retry.interval.ms"
ORDINAL = "hoodie.mainstem.stream.ordinal"
BATCH_ID = "hoodie.mainstem.stream.batch.id"
GUARD = "hoodie.mainstem.stream.guard"
DRIVER_ROWS = "hoodie.mainstem.spark.driver.rows.max"
DRIVER_BYTES = "hoodie.mainstem.spark.driver.bytes.max"
SHUFFLE = "hoodie.mainstem.spark.shuffle"

_SPARK_OWN = ("path", "checkpointlocation", "queryname", "outputmode", "trigger", "mode")
_STREAM = (IDENTIFIER, ORDINAL, BATCH_ID, GUARD, RETRY_COUNT, RETRY_MS)
_WAYS = (DRIVER_ROWS, DRIVER_BYTES, SHUFFLE)
_KNOWN = (*_SPARK_OWN, *_STREAM, *_WAYS, OPERATION)

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


@dataclass(frozen=True)
class WriteOptions:
    """Checked options of one write.

    ``table``: properties that the table must have, or is created with; ``passed``: settings for
    opening it (locks, clock, heartbeat); ``given``: table property -> option name as the user wrote
    it.
    """

    location: Location
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
        texts = texts_of(options)
        target = path or texts.get("path")
        if not target:
            raise Invalid(f'option "path" is missing: the folder of the table. {_CATALOG}')
        table, given, passed = sorted_out(texts, known=_KNOWN)
        return cls(
            location=shared_location(target),
            operation=operation(texts),
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

    location: Location
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
        texts = texts_of(options)
        if not texts.get("path"):
            raise Invalid(f'option "path" is missing: the folder of the table. {_CATALOG}')
        _, _, passed = sorted_out(texts, known=(*_KNOWN, *_READ))
        passed |= {core.METADATA: texts[core.METADATA]} if core.METADATA in texts else {}
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
            shared_location(texts["path"]),
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


def _number(texts: Mapping[str, str], name: str) -> int | None:
    return core.whole_number(texts, name, 0, 0, 2**62) if name in texts else None
