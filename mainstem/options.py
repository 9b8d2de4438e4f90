"""Options of an open table: Hudi's names and defaults, checked once, plus a few of mainstem's own.

A value that does not parse is refused with key, value and what was expected. An unknown
``hoodie.mainstem.*`` key is refused too (a typing error would silently change a promise); other
unknown keys are kept for the components that read them (locks, engines).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.errors import Invalid
from mainstem.limits import TIMELINE_AHEAD_MS_DEFAULT

SKEW_MS = "hoodie.time.generator.max_expected_clock_skew_ms"
HEARTBEAT_MS = "hoodie.client.heartbeat.interval_in_ms"
HEARTBEAT_MISSES = "hoodie.client.heartbeat.tolerable.misses"
CONCURRENCY = "hoodie.write.concurrency.mode"
FAILED_WRITES = "hoodie.clean.failed.writes.policy"
FAILED_WRITES_OLD = "hoodie.cleaner.policy.failed.writes"
NBCC = "NON_BLOCKING_CONCURRENCY_CONTROL"

FSYNC = "hoodie.mainstem.fsync"
AHEAD_MS = "hoodie.mainstem.timeline.ahead.max.ms"
CLOCK_OFFSET = "hoodie.mainstem.clock.offset_ms"
WRITER_NAME = "hoodie.mainstem.writer.name"
LOG_MAX = "hoodie.logfile.max.size"
BLOCK_FORMAT = "hoodie.logfile.data.block.format"
PARTIAL_BLOCKS = "hoodie.mainstem.write.partial.blocks"
GZIP_LEVEL = "hoodie.mainstem.parquet.gzip.level"
#: whether reads leave files out by indexes at all, and whether they use the metadata table (Hudi's names)
DATA_SKIPPING = "hoodie.enable.data.skipping"
METADATA = "hoodie.metadata.enable"
#: of indexes that are built: how long writers of other engines are waited for, and what statistics are on
INDEX_TIMEOUT = "hoodie.metadata.index.check.timeout.seconds"
STATS_GROUPS = "hoodie.metadata.index.column.stats.file.group.count"
STATS_COLUMNS = "hoodie.metadata.index.column.stats.column.list"
STATS_COLUMNS_MAX = "hoodie.metadata.index.column.stats.max.columns.to.index"
PARTITION_STATS_GROUPS = "hoodie.metadata.index.partition.stats.file.group.count"
BLOOM_GROUPS = "hoodie.metadata.index.bloom.filter.file.group.count"
EXPRESSION_GROUPS = "hoodie.metadata.index.expression.file.group.count"
#: file groups of a record index for the whole table, and of one per partition (there: per partition): least
#: and most, each with its older name. Secondary indexes have those of the first.
GLOBAL_GROUPS, PARTITION_GROUPS = (
    tuple((f"hoodie.metadata.{new}.{end}.filegroup.count", f"hoodie.metadata.{old}.{end}.filegroup.count")
          for end in ("min", "max"))
    for new, old in (("global.record.level.index", "record.index"),
                     ("record.level.index", "partitioned.record.index"))
)  # fmt: skip
RECORD_GROUP_BYTES = "hoodie.metadata.record.index.max.filegroup.size"
RECORD_GROWTH = "hoodie.metadata.record.index.growth.factor"
#: indexes are built of which Java's readers fail or lose rows (indexing/java_readers.py)
UNSAFE_FOR_JAVA = "hoodie.mainstem.index.unsafe.for.java"
INDEX_KEYS = (
    UNSAFE_FOR_JAVA, INDEX_TIMEOUT, STATS_GROUPS, STATS_COLUMNS, STATS_COLUMNS_MAX, PARTITION_STATS_GROUPS,
    BLOOM_GROUPS, EXPRESSION_GROUPS,
    RECORD_GROUP_BYTES, RECORD_GROWTH,
    *(key for names in (*GLOBAL_GROUPS, *PARTITION_GROUPS) for key in names),
)  # fmt: skip
#: services run beside commits as Hudi's defaults say (services/run_options.py)
SERVICES_AUTOMATIC = "hoodie.mainstem.services.automatic"
#: a table's own: partitions of the metadata table that are to be built again
#: (metadata/commits/setting_aside.py)
REBUILD = "hoodie.mainstem.metadata.rebuild"

#: of vector indexes: what they are made with unless told otherwise, and when rounds refresh them
VECTOR = "hoodie.mainstem.vector."
VECTOR_ENGINE, VECTOR_METRIC, VECTOR_CLUSTERS = f"{VECTOR}engine", f"{VECTOR}metric", f"{VECTOR}clusters"
VECTOR_AFTER_COMPACTION = f"{VECTOR}refresh.after.compaction"
VECTOR_FRESH_PERCENT = f"{VECTOR}refresh.fresh.percent"

#: what a table says about its writers' heartbeats, for those who were given nothing else: Hudi's Spark
#: writers take it from the table, too
SHARED = (HEARTBEAT_MS, HEARTBEAT_MISSES)
#: keys under hoodie.mainstem. that some component reads
OWN_KEYS = frozenset(
    (
        FSYNC, AHEAD_MS, CLOCK_OFFSET, WRITER_NAME, PARTIAL_BLOCKS, GZIP_LEVEL, SERVICES_AUTOMATIC, REBUILD,
        VECTOR_ENGINE, VECTOR_METRIC, VECTOR_CLUSTERS, VECTOR_AFTER_COMPACTION, VECTOR_FRESH_PERCENT,
        UNSAFE_FOR_JAVA, "hoodie.mainstem.exclusive",
        "hoodie.mainstem.timeline.zone", "hoodie.mainstem.lock.expire_ms",
        "hoodie.mainstem.log.compaction.beside.writers",
        "hoodie.mainstem.lock.zookeeper.auth",
        "hoodie.mainstem.stream.ordinal", "hoodie.mainstem.spark.driver.rows.max",
        "hoodie.mainstem.spark.driver.bytes.max",
    )
)  # fmt: skip


def whole_number(
    properties: Mapping[str, str], key: str, default: int, low: int, high: int
) -> int:
    """An integer option within bounds; ``Invalid`` names key, value and bounds."""
    text = str(properties.get(key, default)).strip()
    if not text.lstrip("-").isdecimal() or not low <= int(text) <= high:
        raise Invalid(f"{key}={text!r}, expected a whole number from {low} to {high}")
    return int(text)


def flag(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """A boolean option."""
    text = str(properties.get(key, default)).strip().lower()
    if text not in ("true", "false"):
        raise Invalid(f"{key}={text!r}, expected true or false")
    return text == "true"


def one_of(properties: Mapping[str, str], key: str, default: str, allowed: tuple[str, ...]) -> str:
    """An enumeration option, upper case as Hudi parses it."""
    text = str(properties.get(key, default)).strip().upper()
    if text not in allowed:
        raise Invalid(f"{key}={text!r}, expected {' or '.join(allowed)}")
    return text


@dataclass(frozen=True)
class WriterOptions:
    """Checked options of one open table."""

    skew_ms: int = 200
    heartbeat_ms: int = 60_000
    heartbeat_misses: int = 2
    #: interval and misses that the table asks for, or Hudi's: what writers of other engines go by
    table_heartbeat: tuple[int, int] = (60_000, 2)
    lazy_rollback: bool = True
    fsync: bool = True
    ahead_ms_max: int = TIMELINE_AHEAD_MS_DEFAULT
    clock_offset_ms: int = 0
    writer_name: str = ""
    log_bytes_max: int = 1024**3
    block_format: str = "avro"
    partial_blocks: bool = False
    zone: str | None = None

    @classmethod
    def from_properties(
        cls, given: Mapping[str, str], table: Mapping[str, str] | None = None
    ) -> WriterOptions:
        """What a process was given, and what the ``table`` says for those who were given nothing
        (``SHARED``).

        Raises ``Invalid`` for a wrong value, an unsafe choice or an unknown own key.
        """
        shared = {key: table[key] for key in SHARED if key in table} if table else {}
        properties = {**shared, **given}
        for key in properties:
            if key.startswith("hoodie.mainstem.") and key not in OWN_KEYS:
                raise Invalid(
                    f"unknown option {key!r}; known ones are {', '.join(sorted(OWN_KEYS))}"
                )
        mode = one_of(
            properties,
            CONCURRENCY,
            NBCC,
            (NBCC, "SINGLE_WRITER", "OPTIMISTIC_CONCURRENCY_CONTROL"),
        )
        if mode != NBCC:
            raise Invalid(
                f"{CONCURRENCY}={mode}: mainstem writes with {NBCC} only; set it, here and on every"
                " Java writer of the table (a SINGLE_WRITER job would roll our open instants back)"
            )
        name = FAILED_WRITES if FAILED_WRITES in properties else FAILED_WRITES_OLD
        policy = one_of(properties, name, "LAZY", ("LAZY", "NEVER", "EAGER"))
        if policy == "EAGER":
            raise Invalid(
                f"{name}=EAGER would roll back other live writers; expected LAZY or NEVER"
            )
        return cls(
            skew_ms=whole_number(properties, SKEW_MS, 200, 0, 600_000),
            heartbeat_ms=_interval(properties),
            heartbeat_misses=_misses(properties),
            table_heartbeat=(_interval(shared), _misses(shared)),
            lazy_rollback=policy == "LAZY",
            fsync=flag(properties, FSYNC, True),
            ahead_ms_max=whole_number(
                properties, AHEAD_MS, TIMELINE_AHEAD_MS_DEFAULT, 0, 10**12
            ),
            clock_offset_ms=whole_number(properties, CLOCK_OFFSET, 0, -(10**12), 10**12),
            writer_name=str(properties.get(WRITER_NAME, "")),
            log_bytes_max=whole_number(properties, LOG_MAX, 1024**3, 1024, 2**40),
            block_format=one_of(properties, BLOCK_FORMAT, "AVRO", ("AVRO", "PARQUET")).lower(),
            partial_blocks=flag(properties, PARTIAL_BLOCKS, False),
            zone=properties.get("hoodie.mainstem.timeline.zone"),
        )


def _interval(properties: Mapping[str, str]) -> int:
    return whole_number(properties, HEARTBEAT_MS, 60_000, 100, 86_400_000)


def _misses(properties: Mapping[str, str]) -> int:
    return whole_number(properties, HEARTBEAT_MISSES, 2, 1, 1_000)


def record_index_groups(properties: Mapping[str, str], *, partitioned: bool) -> tuple[int, int]:
    """Least and greatest number of file groups of a record index, of a partitioned one per partition."""
    names, defaults = (PARTITION_GROUPS, (1, 10)) if partitioned else (GLOBAL_GROUPS, (10, 10_000))
    found = []
    for keys, default in zip(names, defaults, strict=True):
        key = next((key for key in keys if str(properties.get(key, "")).strip()), keys[0])
        found.append(whole_number(properties, key, default, 1, 10_000))
    return found[0], max(found)
