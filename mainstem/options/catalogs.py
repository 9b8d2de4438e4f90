"""Catalogs

What a sync registers, where, and what happens if it fails (HoodieSyncConfig, HiveSyncConfigHolder).
"""

from __future__ import annotations

from mainstem.options.declaration import Choice, Flag, Text, Whole

_SYNC = "catalogs.sync_options"
HIVE_TOOL = "org.apache.hudi.hive.HiveSyncTool"
GLUE_TOOL = "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool"
_EXTRACTORS = "org.apache.hudi.hive."

META_SYNC = Flag(
    "hoodie.datasource.meta.sync.enable", False, read_by="api.opened_table",
    says="Each commit of this process registers the table and its new partitions in a catalog.",
)  # fmt: skip
HIVE_SYNC = Flag(
    "hoodie.datasource.hive_sync.enable", False, flink="hive_sync.enabled", read_by="api.opened_table",
    says="The same, in a Hive Metastore.",
)  # fmt: skip
SYNC_TOOL = Text(
    "hoodie.meta.sync.client.tool.class", HIVE_TOOL, read_by=_SYNC, like=f"{HIVE_TOOL} or {GLUE_TOOL}",
    aliases=("hoodie.datasource.meta.sync.client.tool.class",),
    says="Where: a Hive Metastore, or AWS Glue.",
)  # fmt: skip
SYNC_MODE = Choice(
    "hoodie.datasource.hive_sync.mode", "HMS", ("HMS", "GLUE"), flink="hive_sync.mode", read_by=_SYNC,
    says="HMS speaks to the metastore itself (Hudi's JDBC and HIVEQL need a Hive server), GLUE to AWS Glue.",
)  # fmt: skip
METASTORE_URIS = Text(
    "hoodie.datasource.hive_sync.metastore.uris", "thrift://localhost:9083",
    flink="hive_sync.metastore.uris", read_by=_SYNC, like="thrift://host:port, separated by commas",
    says="The Hive Metastore; of several the first that answers.",
)  # fmt: skip
SYNC_DATABASE = Text(
    "hoodie.datasource.hive_sync.database", "default", flink="hive_sync.db", read_by=_SYNC, like="name",
    says="The database to register in.",
)  # fmt: skip
SYNC_TABLE = Text(
    "hoodie.datasource.hive_sync.table", flink="hive_sync.table", read_by=_SYNC, like="name",
    says="The name to register; without it `hoodie.table.name`.",
)  # fmt: skip
SYNC_BASE_PATH = Text(
    "hoodie.datasource.meta.sync.base.path", read_by=_SYNC, like="the table's place as others spell it",
    says="The table's location in the catalog, such as s3a://... of a table that was opened as s3://...",
)  # fmt: skip
AUTO_DATABASE = Flag(
    "hoodie.datasource.hive_sync.auto_create_database", True, read_by=_SYNC,
    says="Makes a database that is missing.",
)  # fmt: skip
IGNORE_EXCEPTIONS = Flag(
    "hoodie.datasource.hive_sync.ignore_exceptions", False, read_by=_SYNC,
    says="A sync that fails is a warning; else an error ends the write. The commit stands in both cases.",
)  # fmt: skip
TABLE_STRATEGY = Choice(
    "hoodie.datasource.hive_sync.table.strategy", "ALL", ("ALL", "RO", "RT"), read_by=_SYNC,
    says="Of a merge on read table: NAME, NAME_ro and NAME_rt, or NAME alone as one of the two.",
)  # fmt: skip
SKIP_RO_SUFFIX = Flag(
    "hoodie.datasource.hive_sync.skip_ro_suffix", False, read_by=_SYNC,
    says="The read optimized table is called NAME. It takes the place of the snapshot of that name.",
)  # fmt: skip
SUPPORT_TIMESTAMP = Flag(
    "hoodie.datasource.hive_sync.support_timestamp", True, read_by=_SYNC,
    says="Timestamps are timestamp, else bigint. Not given: as the entry that is there has them, else true.",
)  # fmt: skip
AS_DATASOURCE = Flag(
    "hoodie.datasource.hive_sync.sync_as_datasource", True, read_by=_SYNC,
    says="The entry says how Spark reads the table.",
)  # fmt: skip
SCHEMA_LENGTH = Whole(
    "hoodie.datasource.hive_sync.schema_string_length_thresh", 4_000, 64, 1_000_000, "characters",
    read_by=_SYNC, says="Spark's schema is cut into properties of this length.",
)  # fmt: skip
OMIT_META_FIELDS = Flag(
    "hoodie.datasource.hive_sync.omit_metadata_fields", False, read_by=_SYNC,
    says="Leaves out Hudi's five meta columns.",
)  # fmt: skip
MANAGED_TABLE = Flag(
    "hoodie.datasource.hive_sync.create_managed_table", False, read_by=_SYNC, only=("false",),
    why="a DROP TABLE of a managed table deletes its files below other writers", says="Always this value.",
)  # fmt: skip
TABLE_PROPERTIES = Text(
    "hoodie.datasource.hive_sync.table_properties", read_by=_SYNC, like="key=value, a line each",
    says="More properties of the entry.",
)  # fmt: skip
SERDE_PROPERTIES = Text(
    "hoodie.datasource.hive_sync.serde_properties", read_by=_SYNC, like="key=value, a line each",
    says="More properties of its SerDe.",
)  # fmt: skip
SYNC_PARTITION_FIELDS = Text(
    "hoodie.datasource.hive_sync.partition_fields", read_by=_SYNC, like="columns, separated by commas",
    says="The entry's partition columns; without it the table's.",
)  # fmt: skip
EXTRACTOR = Text(
    "hoodie.datasource.hive_sync.partition_extractor_class", read_by=_SYNC,
    like=", ".join(
        f"{_EXTRACTORS}{name}"
        for name in (
            "MultiPartKeysValueExtractor", "HiveStylePartitionValueExtractor", "NonPartitionedExtractor",
            "SinglePartPartitionValueExtractor", "SlashEncodedDayPartitionValueExtractor",
            "SlashEncodedHourPartitionValueExtractor",
        )
    ),
    says="How a partition's path becomes its values; without it as Hudi infers it.",
)  # fmt: skip
DECODE_PARTITION = Flag(
    "hoodie.meta.sync.decode_partition", False, read_by=_SYNC,
    says="Values of partitions are unescaped, for tables with URL encoding.",
)  # fmt: skip
CONDITIONAL_SYNC = Flag(
    "hoodie.datasource.meta_sync.condition.sync", False, read_by=_SYNC,
    says="The time of the last sync is noted only if something else changed.",
)  # fmt: skip
SYNC_SPARK_VERSION = Text(
    "hoodie.meta_sync.spark.version", read_by=_SYNC, like="a version",
    says="Noted as `spark.sql.create.version`.",
)  # fmt: skip
BATCH_PARTITIONS = Whole(
    "hoodie.datasource.hive_sync.batch_num", 1_000, 1, 100_000, "partitions", read_by=_SYNC,
    says="How many partitions go into one request.",
)  # fmt: skip
GLUE_LISTING = Flag(
    "hoodie.datasource.meta.sync.glue.metadata_file_listing", False, read_by=_SYNC,
    says="Athena lists files by the metadata table.",
)  # fmt: skip
GLUE_SKIP_ARCHIVE = Flag(
    "hoodie.datasource.meta.sync.glue.skip_table_archive", True, read_by=_SYNC,
    says="Glue keeps no older versions of the entry.",
)  # fmt: skip
ICEBERG = Flag(
    "hoodie.mainstem.iceberg.enable", False, read_by="iceberg.after_changes", table=True,
    says="Iceberg's metadata beside the base files follows each compaction, clustering, bulk insert and"
    " overwrite.",
)  # fmt: skip
ICEBERG_CATALOG = Text(
    "hoodie.mainstem.iceberg.catalog", read_by="api.opened_table", table=True, like="rest:http://host:port",
    says="With the option before: the Iceberg catalog in which a name follows each publication.",
)  # fmt: skip
ICEBERG_NAME = Text(
    "hoodie.mainstem.iceberg.catalog.table", read_by="api.opened_table", table=True, like="DATABASE.TABLE",
    says="That name; without it `hoodie.table.name`, in the database `default`.",
)  # fmt: skip
ICEBERG_SNAPSHOTS = Whole(
    "hoodie.mainstem.iceberg.snapshots", 10, 1, 1_000, "snapshots", read_by="iceberg.after_changes",
    table=True, says="How many snapshots Iceberg's readers may travel back to, while their files are there.",
)  # fmt: skip
ICEBERG_OPTIONS = (ICEBERG, ICEBERG_CATALOG, ICEBERG_NAME, ICEBERG_SNAPSHOTS)
READ_OPTIMIZED = Flag(
    "hoodie.query.as.ro.table", False, read_by="catalogs.belief",
    says="Of an entry in a catalog: it shows the base files alone. A sync writes it.",
)  # fmt: skip
SYNC_OPTIONS = (
    META_SYNC, HIVE_SYNC, *SYNC_TOOL.names, SYNC_MODE, METASTORE_URIS, SYNC_DATABASE, SYNC_TABLE,
    SYNC_BASE_PATH, AUTO_DATABASE, IGNORE_EXCEPTIONS, TABLE_STRATEGY, SKIP_RO_SUFFIX, SUPPORT_TIMESTAMP,
    AS_DATASOURCE, SCHEMA_LENGTH, OMIT_META_FIELDS, TABLE_PROPERTIES, SERDE_PROPERTIES,
    SYNC_PARTITION_FIELDS, EXTRACTOR, DECODE_PARTITION, CONDITIONAL_SYNC, SYNC_SPARK_VERSION,
    BATCH_PARTITIONS, GLUE_LISTING, GLUE_SKIP_ARCHIVE,
)  # fmt: skip
