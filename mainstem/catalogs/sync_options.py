"""Hudi's options of a sync, checked and read into one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstem.catalogs.table_names import checked
from mainstem.errors import Invalid, Unsupported
from mainstem.options.catalogs import (
    AS_DATASOURCE,
    AUTO_DATABASE,
    BATCH_PARTITIONS,
    CONDITIONAL_SYNC,
    DECODE_PARTITION,
    EXTRACTOR,
    GLUE_LISTING,
    GLUE_SKIP_ARCHIVE,
    GLUE_TOOL,
    HIVE_TOOL,
    IGNORE_EXCEPTIONS,
    MANAGED_TABLE,
    METASTORE_URIS,
    OMIT_META_FIELDS,
    SCHEMA_LENGTH,
    SERDE_PROPERTIES,
    SKIP_RO_SUFFIX,
    SUPPORT_TIMESTAMP,
    SYNC_BASE_PATH,
    SYNC_DATABASE,
    SYNC_MODE,
    SYNC_PARTITION_FIELDS,
    SYNC_SPARK_VERSION,
    SYNC_TABLE,
    SYNC_TOOL,
    TABLE_PROPERTIES,
    TABLE_STRATEGY,
)

GLUE = "glue:"


@dataclass(frozen=True)
class SyncOptions:
    """``table``: "" for the table's own name; ``timestamps``: None where nobody said; ``place``: the
    catalog."""

    place: str
    database: str
    table: str
    base: str = ""
    auto_database: bool = True
    ignore_exceptions: bool = False
    strategy: str = "ALL"
    skip_ro_suffix: bool = False
    timestamps: bool | None = None
    as_datasource: bool = True
    schema_length: int = 4_000
    omit_meta_fields: bool = False
    table_properties: Mapping[str, str] = field(default_factory=dict)
    serde_properties: Mapping[str, str] = field(default_factory=dict)
    partition_columns: tuple[str, ...] | None = None
    extractor: str = ""
    decode_partition: bool = False
    conditional: bool = False
    spark_version: str = ""
    batch: int = 1_000
    glue_listing: bool = False
    glue_skip_archive: bool = True

    @classmethod
    def of(cls, properties: Mapping[str, str], place: str = "") -> SyncOptions:
        """``place``: the catalog, where it is not the options that say it. Raises ``Invalid`` and
        ``Unsupported``."""
        if MANAGED_TABLE.read(properties):
            raise Unsupported(f"{MANAGED_TABLE}=true: {MANAGED_TABLE.why}; leave it out")
        fields = SYNC_PARTITION_FIELDS.read(properties)
        given = SYNC_PARTITION_FIELDS in properties
        table = SYNC_TABLE.read(properties)
        return cls(
            place=place or _place(properties),
            database=checked(SYNC_DATABASE.read(properties), "database"),
            table=checked(table, "table") if table else "",
            base=SYNC_BASE_PATH.read(properties).rstrip("/"),
            auto_database=AUTO_DATABASE.read(properties),
            ignore_exceptions=IGNORE_EXCEPTIONS.read(properties),
            strategy=TABLE_STRATEGY.read(properties),
            skip_ro_suffix=SKIP_RO_SUFFIX.read(properties),
            timestamps=SUPPORT_TIMESTAMP.read(properties) if SUPPORT_TIMESTAMP in properties else None,
            as_datasource=AS_DATASOURCE.read(properties),
            schema_length=SCHEMA_LENGTH.read(properties),
            omit_meta_fields=OMIT_META_FIELDS.read(properties),
            table_properties=_pairs(properties, TABLE_PROPERTIES),
            serde_properties=_pairs(properties, SERDE_PROPERTIES),
            partition_columns=tuple(filter(None, map(str.strip, fields.split(",")))) if given else None,
            extractor=EXTRACTOR.read(properties),
            decode_partition=DECODE_PARTITION.read(properties),
            conditional=CONDITIONAL_SYNC.read(properties),
            spark_version=SYNC_SPARK_VERSION.read(properties),
            batch=BATCH_PARTITIONS.read(properties),
            glue_listing=GLUE_LISTING.read(properties),
            glue_skip_archive=GLUE_SKIP_ARCHIVE.read(properties),
        )


def _place(properties: Mapping[str, str]) -> str:
    tool = SYNC_TOOL.read(properties)
    if tool not in (HIVE_TOOL, GLUE_TOOL):
        raise Unsupported(
            f"{SYNC_TOOL}={tool!r}: expected {SYNC_TOOL.like}; run Hudi's own tool for other catalogs"
        )
    if tool == GLUE_TOOL or SYNC_MODE.read(properties) == "GLUE":
        return GLUE
    return METASTORE_URIS.read(properties)


def _pairs(properties: Mapping[str, str], option: str) -> dict[str, str]:
    """``key=value`` on each line (Hudi's ``ConfigUtils.toMap``)."""
    found = {}
    for line in filter(None, map(str.strip, properties.get(option, "").split("\n"))):
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise Invalid(f"{option}: the line {line!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found
