"""Every option that mainstem reads, declared once: name, Hudi's other names, default, bounds, who reads it.

``declaration`` defines what a declaration is; the other modules hold the declarations, in groups. Code that
reads an option, or names it in a message, refers to its declaration; docs/options.md is generated from them.
Reading several options into one validated value belongs to the package that needs it.

A value that does not parse is refused with key, value and what was expected. An unknown ``hoodie.mainstem.*``
key is refused too (a typing error could silently weaken a guarantee); other unknown keys are kept for the
components that read them (locks, engines).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.errors import Invalid
from mainstem.options import catalogs, engines, families, locks, placing
from mainstem.options.declaration import every_option, flag, one_of, whole_number
from mainstem.options.metadata import (
    BLOOM_GROUPS,
    EXPRESSION_GROUPS,
    GLOBAL_GROUPS,
    INDEX_KEYS,
    INDEX_TIMEOUT,
    METADATA,
    PARTITION_GROUPS,
    PARTITION_GROUPS_MAX,
    PARTITION_GROUPS_MIN,
    PARTITION_STATS_GROUPS,
    RECORD_GROUP_BYTES,
    RECORD_GROUPS_MAX,
    RECORD_GROUPS_MIN,
    RECORD_GROWTH,
    STATS_COLUMNS,
    STATS_COLUMNS_MAX,
    STATS_GROUPS,
    UNSAFE_FOR_JAVA,
)
from mainstem.options.placing import INDEX_TYPE, uses_rings
from mainstem.options.reading import (
    DATA_SKIPPING,
)
from mainstem.options.services import (
    BESIDE_COMMITS,
)
from mainstem.options.tables import (
    LOCAL_ZONE,
    REBUILD,
)
from mainstem.options.vectors import (
    VECTOR_AFTER_COMPACTION,
    VECTOR_CLUSTERS,
    VECTOR_ENGINE,
    VECTOR_FRESH_PERCENT,
    VECTOR_METRIC,
)
from mainstem.options.writing import (
    AHEAD_MS,
    BLOCK_FORMAT,
    CLOCK_OFFSET,
    CONCURRENCY,
    FAILED_WRITES,
    FAILED_WRITES_OLD,
    FSYNC,
    GZIP_LEVEL,
    HEARTBEAT_MISSES,
    HEARTBEAT_MS,
    LOG_MAX,
    NBCC,
    OCC,
    PARTIAL_BLOCKS,
    SHARED,
    SKEW_MS,
    WRITER_NAME,
)

__all__ = [
    "AHEAD_MS",
    "BESIDE_COMMITS",
    "BLOCK_FORMAT",
    "BLOOM_GROUPS",
    "CLOCK_OFFSET",
    "CONCURRENCY",
    "DATA_SKIPPING",
    "EXPRESSION_GROUPS",
    "FAILED_WRITES",
    "FAILED_WRITES_OLD",
    "FSYNC",
    "GLOBAL_GROUPS",
    "GZIP_LEVEL",
    "HEARTBEAT_MISSES",
    "HEARTBEAT_MS",
    "INDEX_KEYS",
    "INDEX_TIMEOUT",
    "LOCAL_ZONE",
    "LOG_MAX",
    "METADATA",
    "NBCC",
    "OCC",
    "OWN_KEYS",
    "PARTIAL_BLOCKS",
    "PARTITION_GROUPS",
    "PARTITION_GROUPS_MAX",
    "PARTITION_GROUPS_MIN",
    "PARTITION_STATS_GROUPS",
    "REBUILD",
    "RECORD_GROUPS_MAX",
    "RECORD_GROUPS_MIN",
    "RECORD_GROUP_BYTES",
    "RECORD_GROWTH",
    "SHARED",
    "SKEW_MS",
    "STATS_COLUMNS",
    "STATS_COLUMNS_MAX",
    "STATS_GROUPS",
    "UNSAFE_FOR_JAVA",
    "VECTOR",
    "VECTOR_AFTER_COMPACTION",
    "VECTOR_CLUSTERS",
    "VECTOR_ENGINE",
    "VECTOR_FRESH_PERCENT",
    "VECTOR_METRIC",
    "WRITER_NAME",
    "WriterOptions",
    "catalogs",
    "engines",
    "every_option",
    "families",
    "flag",
    "locks",
    "one_of",
    "placing",
    "record_index_groups",
    "whole_number",
]

VECTOR = families.VECTOR
#: keys under hoodie.mainstem. that some component reads of an open table's options
OWN_KEYS = frozenset(
    str(option) for option in every_option() if option.startswith(families.OWN) and not option.engines
)


@dataclass(frozen=True)
class WriterOptions:
    """Validated options of one open table."""

    skew_ms: int = SKEW_MS.default
    heartbeat_ms: int = HEARTBEAT_MS.default
    heartbeat_misses: int = HEARTBEAT_MISSES.default
    #: interval and misses that the table asks for, or Hudi's: what writers of other engines go by
    table_heartbeat: tuple[int, int] = (HEARTBEAT_MS.default, HEARTBEAT_MISSES.default)
    lazy_rollback: bool = True
    fsync: bool = FSYNC.default
    ahead_ms_max: int = AHEAD_MS.default
    clock_offset_ms: int = 0
    writer_name: str = ""
    log_bytes_max: int = LOG_MAX.default
    block_format: str = BLOCK_FORMAT.default.lower()
    partial_blocks: bool = False
    zone: str | None = None

    @classmethod
    def from_properties(
        cls, given: Mapping[str, str], table: Mapping[str, str] | None = None
    ) -> WriterOptions:
        """Options ``given`` to this process; the ``table`` supplies those in ``SHARED`` that were not given.

        Raises ``Invalid`` for a wrong value, an unsafe choice or an unknown own key.
        """
        shared = {str(key): table[key] for key in SHARED if key in table} if table else {}
        properties = {**shared, **given}
        for key in properties:
            if key.startswith(families.OWN) and key not in OWN_KEYS:
                raise Invalid(f"unknown option {key!r}; known ones are {', '.join(sorted(OWN_KEYS))}")
        mode = CONCURRENCY.read(properties)
        placing = {**(table or {}), **given}
        bucketed = INDEX_TYPE.read(placing) == INDEX_TYPE.default and not uses_rings(placing)
        if mode != NBCC and (bucketed or mode != OCC):
            raise Invalid(
                f"{CONCURRENCY}={mode}: mainstem writes with {NBCC} only; set it, here and on every"
                f" Java writer of the table ({OCC} there if the table has no buckets; a SINGLE_WRITER job"
                " would roll our open instants back)"
            )
        policy = FAILED_WRITES.read(properties)
        if policy == "EAGER":
            name = FAILED_WRITES.found_as(properties)
            raise Invalid(f"{name}=EAGER would roll back other live writers; expected LAZY or NEVER")
        return cls(
            skew_ms=SKEW_MS.read(properties),
            heartbeat_ms=HEARTBEAT_MS.read(properties),
            heartbeat_misses=HEARTBEAT_MISSES.read(properties),
            table_heartbeat=(HEARTBEAT_MS.read(shared), HEARTBEAT_MISSES.read(shared)),
            lazy_rollback=policy == "LAZY",
            fsync=FSYNC.read(properties),
            ahead_ms_max=AHEAD_MS.read(properties),
            clock_offset_ms=CLOCK_OFFSET.read(properties),
            writer_name=str(properties.get(WRITER_NAME, "")),
            log_bytes_max=LOG_MAX.read(properties),
            block_format=BLOCK_FORMAT.read(properties).lower(),
            partial_blocks=PARTIAL_BLOCKS.read(properties),
            zone=properties.get(LOCAL_ZONE),
        )


def record_index_groups(properties: Mapping[str, str], *, partitioned: bool) -> tuple[int, int]:
    """Least and greatest number of file groups of a record index (per partition, if it is partitioned)."""
    bounds = (RECORD_GROUPS_MIN, RECORD_GROUPS_MAX)
    if partitioned:
        bounds = (PARTITION_GROUPS_MIN, PARTITION_GROUPS_MAX)
    filled = {key: text for key, text in properties.items() if str(text).strip()}
    least, most = (one.read(filled if one.found_as(filled) in filled else properties) for one in bounds)
    return least, max(least, most)
