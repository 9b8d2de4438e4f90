"""Options of a Spark read or write, under Hudi's own names (DataSourceWriteOptions,
HoodieTableConfig).

Every ``hoodie.*`` option is either followed or refused by name: an option that is silently ignored could
change what a job writes. Names are case-insensitive, as in Spark's data sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from mainstem.api.given_options import operation, shared_location, sorted_out, texts_of
from mainstem.errors import Invalid, Unsupported
from mainstem.layout.properties import TableConfig
from mainstem.options.engines import (
    BATCH_ID,
    COW_AS_MOR,
    DRIVER_BYTES,
    DRIVER_ROWS,
    GUARD,
    IDENTIFIER,
    INSERT_OPERATION,
    MERGE_PARTIAL,
    OPERATION,
    ORDINAL,
    OVERWRITE_MODE,
    PARTITIONS_TO_DELETE,
    RETRY_COUNT,
    RETRY_MS,
    SHUFFLE,
)
from mainstem.options.metadata import METADATA
from mainstem.options.reading import (
    AS_OF,
    AS_OF_COMPLETION,
    BEGIN,
    CHANGE_FORMAT,
    DELETES,
    END,
    IMAGES,
    MAX_INSTANTS,
    QUERY_TYPE,
    START_OFFSET,
)
from mainstem.storage.location import Location
from mainstem.writers.write_spec import (
    DELETE,
    DELETE_PARTITION,
    INSERT,
    INSERT_OVERWRITE,
    INSERT_OVERWRITE_TABLE,
    OVERWRITES,
)

#: Spark's own option of one write, above the session's ``spark.sql.sources.partitionOverwriteMode``
_OF_WRITE = "partitionoverwritemode"
_SPARK_OWN = ("path", "checkpointlocation", "queryname", "outputmode", "trigger", "mode", _OF_WRITE)
_STREAM = (IDENTIFIER, ORDINAL, BATCH_ID, GUARD, RETRY_COUNT, RETRY_MS)
_WAYS = (DRIVER_ROWS, DRIVER_BYTES, SHUFFLE)
_KNOWN = (*_SPARK_OWN, *_STREAM, *_WAYS, OPERATION, OVERWRITE_MODE, PARTITIONS_TO_DELETE, MERGE_PARTIAL,
          INSERT_OPERATION, COW_AS_MOR)  # fmt: skip

COLUMNS = "columns"
FILTER = "filter"
_READ = (
    QUERY_TYPE, BEGIN, END, AS_OF, COLUMNS, FILTER, CHANGE_FORMAT, START_OFFSET, AS_OF_COMPLETION, DELETES,
    IMAGES, MAX_INSTANTS,
)  # fmt: skip
#: read options with which a view does not show all rows and columns of its table as they are
PARTS_OF_TABLE = _READ
_NONE: Mapping[str, str] = MappingProxyType({})
INCREMENTAL, CDC = "INCREMENTAL", "CDC"


_CATALOG = (
    "Spark gives a Python source neither name nor path of a table of its catalog (saveAsTable, writeTo,"
    " CREATE TABLE ... USING): write with save(path), or let mainstem.spark.sql carry out CREATE TABLE,"
    " SELECT and INSERT"
)


@dataclass(frozen=True)
class WriteOptions:
    """Checked options of one write.

    ``table``: properties that an existing table must have or a new one gets; ``passed``: settings for
    opening it (locks, clock, heartbeat); ``given``: table property -> option name as the user wrote
    it. ``partitions``: those of ``delete_partition``. ``overwrite_mode``: STATIC, DYNAMIC or "".
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
    retries: int = RETRY_COUNT.default
    retry_ms: int = RETRY_MS.default
    driver_rows: int = DRIVER_ROWS.default
    driver_bytes: int = DRIVER_BYTES.default
    shuffle: str = SHUFFLE.default
    partitions: tuple[str, ...] = ()
    overwrite_mode: str = ""
    #: whether the operation was said
    chosen: bool = True

    @classmethod
    def parse(
        cls, options: Mapping[str, object], *, path: str | None = None, below: Mapping[str, str] = _NONE
    ) -> WriteOptions:
        """Raises ``Invalid`` (unknown name, wrong value), ``Unsupported`` (known, but refused).

        ``below``: the session's options of stores.
        """
        texts = texts_of(options)
        target = path or texts.get("path")
        if not target:
            raise Invalid(f'option "path" is missing: the folder of the table. {_CATALOG}')
        table, given, passed = sorted_out(texts, known=_KNOWN)
        asked = operation(texts, partitions=True)
        return cls(
            location=shared_location(target, texts, below),
            operation=asked,
            table=table,
            given=given,
            passed=passed,
            identifier=texts.get(IDENTIFIER) or None,
            ordinal=ORDINAL.read_if_given(texts),
            batch_id=BATCH_ID.read_if_given(texts),
            guarded=GUARD.read(texts) == "ON",
            retries=RETRY_COUNT.read(texts),
            retry_ms=RETRY_MS.read(texts),
            driver_rows=DRIVER_ROWS.read(texts),
            driver_bytes=DRIVER_BYTES.read(texts),
            shuffle=SHUFFLE.read(texts),
            partitions=_partitions(texts, asked),
            overwrite_mode=_overwrite_mode(texts),
            chosen=OPERATION in texts,
        )

    def for_table(self, config: TableConfig) -> WriteOptions:
        """These options for this table: where its keys are made up, rows are inserted unless the operation
        is said (``HoodieSparkSqlWriter.deduceOperation``)."""
        return self if self.chosen or config.record_key else replace(self, operation=INSERT)

    def overwriting(self, session_mode: str | None, *, partitioned: bool) -> WriteOptions:
        """These options for ``mode("overwrite")``: an operation that overwrites and keeps the table.

        Which one, Hudi's SQL decides alike: the operation that is given; else the whole table, or in mode
        DYNAMIC the partitions of the rows. ``session_mode``: the session's. Raises ``Unsupported`` for
        operations that are for mode append only.
        """
        if self.operation in (DELETE, DELETE_PARTITION):
            raise Unsupported(
                f'{OPERATION}={self.operation} with mode("overwrite"): deletes are for mode("append"), as in'
                " Hudi",
                table=self.location.base,
            )
        if self.operation in OVERWRITES:
            return self
        mode = self.overwrite_mode or (session_mode or "").upper()
        dynamic = mode == "DYNAMIC" and partitioned
        return replace(self, operation=INSERT_OVERWRITE if dynamic else INSERT_OVERWRITE_TABLE)


def _overwrite_mode(texts: Mapping[str, str]) -> str:
    name = OVERWRITE_MODE if OVERWRITE_MODE in texts else _OF_WRITE
    found = texts.get(name, "").upper()
    if found and found not in OVERWRITE_MODE.allowed:
        raise Invalid(f"{name}={texts[name]!r}, expected {' or '.join(OVERWRITE_MODE.allowed)}")
    return found


def _partitions(texts: Mapping[str, str], asked: str) -> tuple[str, ...]:
    """The partitions of ``delete_partition``, as paths below the table."""
    text = texts.get(PARTITIONS_TO_DELETE, "")
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if asked != DELETE_PARTITION:
        if found:
            raise Invalid(
                f"{PARTITIONS_TO_DELETE}={text!r} needs {OPERATION}={DELETE_PARTITION}, found {asked}"
            )
        return ()
    if not found:
        raise Invalid(
            f"{OPERATION}={DELETE_PARTITION} needs {PARTITIONS_TO_DELETE}: the partitions' paths below the"
            " table, separated by commas; they are not taken from the rows"
        )
    if "*" in text:
        raise Unsupported(
            f"{PARTITIONS_TO_DELETE}={text!r}: wildcards are not resolved; name each partition, as in"
            " _hoodie_partition_path"
        )
    return found


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
    start_offset: str = START_OFFSET.default
    max_instants: int | None = None
    filter: str | None = None

    @classmethod
    def parse(
        cls, options: Mapping[str, object], *, lenient: bool = False, below: Mapping[str, str] = _NONE
    ) -> ReadOptions:
        """Raises ``Invalid`` for an unknown name, a wrong value or options that exclude each
        other. ``lenient``: accept the options of a stream, which sets no range. ``below``: the session's
        options of stores."""
        texts = texts_of(options)
        if not texts.get("path"):
            raise Invalid(f'option "path" is missing: the folder of the table. {_CATALOG}')
        _, _, passed = sorted_out(texts, known=(*_KNOWN, *_READ))
        passed |= {METADATA: texts[METADATA]} if METADATA in texts else {}
        kind = QUERY_TYPE.read(texts)
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
            shared_location(texts["path"], texts, below),
            kind,
            names,
            as_of,
            begin,
            end,
            passed,
            as_of_completion=texts.get(AS_OF_COMPLETION),
            change_format=CHANGE_FORMAT.read(texts),
            images=IMAGES.read(texts).lower(),
            deletes=DELETES.read(texts) == "TRUE",
            start_offset=START_OFFSET.read(texts),
            max_instants=MAX_INSTANTS.read_if_given(texts),
            filter=texts.get(FILTER) or None,
        )
        found._check_changes(texts, lenient)
        return found

    def _check_changes(self, texts: Mapping[str, str], lenient: bool) -> None:
        """Refuses options for changes in other queries, and combinations that exclude each other."""
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
