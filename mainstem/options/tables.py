"""Properties of a table (``hoodie.properties``, HoodieTableConfig): what it is, how its rows merge.

With ``table=True`` a job's options may repeat one: the table must agree, or is made with it. Keys, partitions
and buckets are in ``placing``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.options.declaration import Choice, Flag, Text, Whole

_TABLE = "layout.properties"
_ENGINES = "jobs of engines"

#: what jobs call them
TABLE_NAME_OPTION = "hoodie.datasource.write.table.name"
TABLE_TYPE_OPTION = "hoodie.datasource.write.table.type"
TABLE_VERSION_OPTION = "hoodie.write.table.version"

TABLE_NAME = Text(
    "hoodie.table.name", table=True, aliases=(TABLE_NAME_OPTION,), read_by=_TABLE,
    says="The table's name; part of its checksum, and of the ZooKeeper lock where no lock key is given.",
)  # fmt: skip
DATABASE_NAME = Text(
    "hoodie.database.name", table=True, aliases=("hoodie.datasource.write.database.name",), read_by=_TABLE,
    says="The name of its database; part of the checksum too.",
)  # fmt: skip
TABLE_TYPE = Choice(
    "hoodie.table.type", "COPY_ON_WRITE", ("COPY_ON_WRITE", "MERGE_ON_READ"), flink="table.type", table=True,
    aliases=(TABLE_TYPE_OPTION,), read_by=_TABLE,
    says="Both are read; only MERGE_ON_READ tables are created and written.",
)  # fmt: skip
TABLE_VERSION = Whole(
    "hoodie.table.version", 9, 8, 10, table=True, aliases=(TABLE_VERSION_OPTION,), read_by=_TABLE,
    says="Hudi's table version: 9, 8 for Hudi 1.0, or 10, which no release of Hudi has yet.",
)  # fmt: skip
INITIAL_VERSION = Whole(
    "hoodie.table.initial.version", 9, 8, 10, read_by="nobody",
    says="The version that the table was created with.",
)  # fmt: skip
TABLE_CHECKSUM = Text(
    "hoodie.table.checksum", read_by=_TABLE,
    says="CRC32 of `database.name`; a table whose checksum is wrong is refused as damaged.",
)  # fmt: skip
CREATE_SCHEMA = Text(
    "hoodie.table.create.schema", like="Avro schema", read_by=_TABLE,
    says="The schema until the first commit records one.",
)  # fmt: skip
LAYOUT_VERSION = Whole(
    "hoodie.timeline.layout.version", 2, 2, 2, read_by=_TABLE, says="Layout of the timeline's folder."
)
TIMELINE_PATH = Text(
    "hoodie.timeline.path",
    "timeline",
    read_by=_TABLE,
    says="Folder of the active timeline; no other is read.",
)
HISTORY_PATH = Text(
    "hoodie.timeline.history.path", "history", read_by=_TABLE,
    says="Folder of the archived timeline, inside the timeline's.",
)  # fmt: skip
ARCHIVE_FOLDER = Text(
    "hoodie.archivelog.folder",
    "archived",
    read_by="nobody",
    says="Hudi's older archive; written as Hudi does.",
)
TIMEZONE = Choice(
    "hoodie.table.timeline.timezone", "LOCAL", ("LOCAL", "UTC"), table=True, read_by=_TABLE,
    says="Zone of instant times; tables are created with UTC.",
)  # fmt: skip
TABLE_FORMAT = Choice(
    "hoodie.table.format", "native", ("NATIVE",), read_by=_TABLE, says="Tables of other formats are refused."
)
BASE_FILE_FORMAT = Choice(
    "hoodie.table.base.file.format", "PARQUET", ("PARQUET", "HFILE"), read_by=_TABLE,
    says="Base files of data are Parquet; the metadata table's are HFile.",
)  # fmt: skip
LOG_FILE_FORMAT = Choice(
    "hoodie.table.log.file.format", "HOODIE_LOG", ("HOODIE_LOG",), read_by=_TABLE,
    says="Log files of other formats are refused.",
)  # fmt: skip
STORAGE_LAYOUT = Choice(
    "hoodie.table.storage.layout", "default", ("DEFAULT", "LSM_TREE"), table=True, read_by=_TABLE,
    says="Of tables of version 10: in LSM_TREE, the rows of each file are sorted by record key.",
)  # fmt: skip
#: the table version from which on log files are native: Parquet, a file for each block
NATIVE_LOGS_FROM = 10
MANY_FILE_FORMATS = Flag(
    "hoodie.table.multiple.base.file.formats.enable", False, read_by=_TABLE,
    says="Tables with several formats of base files are refused.",
)  # fmt: skip
BOOTSTRAP_PATH = Text("hoodie.bootstrap.base.path", read_by=_TABLE, says="Bootstrapped tables are refused.")

# -- merging -----------------------------------------------------------------------------------------

MERGE_MODE = Choice(
    "hoodie.record.merge.mode", "", ("EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING", "CUSTOM"), table=True,
    aliases=("hoodie.write.record.merge.mode",), read_by="merge.rules",
    says="Which row of a key wins; by default event time where the table has ordering fields.",
)  # fmt: skip
#: the spelling of Hudi 1.0
PRECOMBINE = Text(
    "hoodie.table.precombine.field", read_by="merge.rules",
    says="Hudi 1.0's name of the ordering field; tables of version 8 have it beside the newer one.",
)  # fmt: skip
#: what jobs call them
ORDERING_OPTION = "hoodie.datasource.write.precombine.field"
ORDERING_FIELDS = Text(
    "hoodie.table.ordering.fields", like="column,...", table=True, flink="ordering.fields",
    aliases=(PRECOMBINE, ORDERING_OPTION, "hoodie.datasource.write.ordering.fields"), read_by="merge.rules",
    says="The row with the greatest values of these columns wins.",
)  # fmt: skip
PARTIAL_UPDATES = Choice(
    "hoodie.table.partial.update.mode", "", ("IGNORE_DEFAULTS", "FILL_UNAVAILABLE"), table=True,
    aliases=("hoodie.write.partial.update.mode",), read_by="merge.rules",
    says='Which values in a new row mean "keep the older value"; version 9 only.',
)  # fmt: skip
PAYLOAD_CLASS = Text(
    "hoodie.compaction.payload.class", like="class of Hudi's", read_by="merge.rules",
    aliases=("hoodie.datasource.write.payload.class",), flink="payload.class",
    says="Hudi's older way to choose the merge mode; classes that mainstem does not know are refused.",
)  # fmt: skip
LEGACY_PAYLOAD = Text(
    "hoodie.table.legacy.payload.class", like="Java class", read_by="nobody",
    says="The payload class of a table that was upgraded from version 8; its merge mode has taken its place.",
)  # fmt: skip
STRATEGY_ID = Text(
    "hoodie.record.merge.strategy.id", like="UUID", read_by="merge.rules",
    aliases=("hoodie.write.record.merge.strategy.id",), flink="record.merger.strategy",
    says="Names the merger of a CUSTOM table, see `mainstem.register_merger`.",
)  # fmt: skip
DELETE_FIELD = Text(
    "hoodie.payload.delete.field", like="column", read_by="merge.rules",
    aliases=("hoodie.record.merge.property.hoodie.payload.delete.field",),
    says="The column whose value marks a row as a delete.",
)  # fmt: skip
DELETE_MARKER = Text(
    "hoodie.payload.delete.marker", read_by="merge.rules",
    aliases=("hoodie.record.merge.property.hoodie.payload.delete.marker",),
    says="The value that marks a row as a delete.",
)  # fmt: skip
UNAVAILABLE = Text(
    "hoodie.write.partial.update.unavailable.value", read_by="merge.rules",
    aliases=("hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value",),
    says='The text that means "keep the older value" under FILL_UNAVAILABLE.',
)  # fmt: skip

# -- what is followed anyway, and refused otherwise -----------------------------------------------------

POPULATE_META_FIELDS = Flag(
    "hoodie.populate.meta.fields", True, read_by=_TABLE, only=("true",),
    why="rows without meta columns cannot be written",
    says="Tables without Hudi's five meta columns can only be read.",
)  # fmt: skip
DROP_PARTITION_COLUMNS = Flag(
    "hoodie.datasource.write.drop.partition.columns", False, read_by=_TABLE, only=("false",),
    why="columns would be dropped",
    says="Partition columns that no file holds are read from paths; such tables are not written.",
)  # fmt: skip
CDC_ENABLED = Flag(
    "hoodie.table.cdc.enabled", False, table=True, read_by="readers.changes, services.change_files",
    says="Whether the table records change data. Such tables are written from table version 10 on.",
)  # fmt: skip
CDC_MODE = Choice(
    "hoodie.table.cdc.supplemental.logging.mode", "DATA_BEFORE_AFTER",
    ("DATA_BEFORE_AFTER", "DATA_BEFORE", "OP_KEY_ONLY"), table=True,
    read_by="readers.changes, services.change_files",
    flink="cdc.supplemental.logging.mode", says="What the table's change data files hold.",
)  # fmt: skip
SCHEMA_ON_READ = Flag(
    "hoodie.schema.on.read.enable", False, read_by=_TABLE, only=("false",),
    why="schema on read is not supported", says="Tables with schema on read are not written.",
)  # fmt: skip
COLUMN_DROP = Flag(
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop", False, read_by="writers",
    only=("false",), why="columns that other writers fill at the same time would be hidden"
    " (hoodie.write.set.null.for.missing.columns=true writes nulls into them)",
    says="Columns are never dropped by leaving them out of a batch.",
)  # fmt: skip
AUTO_UPGRADE = Flag(
    "hoodie.write.auto.upgrade", True, read_by="api.opened_table",
    says="The first write of a job upgrades the table to the job's `hoodie.write.table.version`, if that is"
    " higher; tables that mainstem makes say false.",
)  # fmt: skip
COMBINE_UPSERTS = Flag(
    "hoodie.combine.before.upsert", True, read_by=_ENGINES, only=("true",),
    why="a batch is always combined when it is read", says="Always this value.",
)  # fmt: skip
COMBINE_INSERTS = Flag(
    "hoodie.combine.before.insert", True, read_by=_ENGINES, only=("true",),
    why="inserts are upserts, so no key occurs twice", says="Always this value.",
)  # fmt: skip
COMBINE_DELETES = Flag(
    "hoodie.combine.before.delete", True, read_by=_ENGINES, only=("true",), why="a key is deleted once",
    says="Always this value.",
)  # fmt: skip
DROP_DUPLICATES = Flag(
    "hoodie.datasource.write.insert.drop.duplicates", False, read_by=_ENGINES, only=("false",),
    why="rows would be dropped", says="Always this value.",
)  # fmt: skip
DUPLICATES_POLICY = Choice(
    "hoodie.datasource.insert.dup.policy", "none", ("none",), read_by=_ENGINES, only=("none",),
    why="inserts are upserts", says="Always this value.",
)  # fmt: skip
IGNORE_FAILED = Flag(
    "hoodie.datasource.write.streaming.ignore.failed.batch", False, read_by=_ENGINES, only=("false",),
    why="rows of a failed batch would be lost", says="Always this value.",
)  # fmt: skip
_INSTEAD = "; compactions order rows where the sort columns of clustering are set"
CLUSTER_INLINE = Flag(
    "hoodie.clustering.inline", False, read_by=_ENGINES, only=("false",),
    why=f"clustering breaks non-blocking writers{_INSTEAD}", says="Always this value.",
)  # fmt: skip
CLUSTER_ASYNC = Flag(
    "hoodie.clustering.async.enabled", False, read_by=_ENGINES, only=("false",),
    why=f"clustering breaks non-blocking writers{_INSTEAD}", says="Always this value.",
)  # fmt: skip
ADJUST_LOCK = Flag(
    "hoodie.auto.adjust.lock.configs", False, read_by=_ENGINES, only=("false",),
    why="it would replace the table lock with one that holds in one process only", says="Always this value.",
)  # fmt: skip
MARKERS_TYPE = Choice(
    "hoodie.write.markers.type", "direct", ("direct",), read_by=_ENGINES, only=("direct",),
    why="mainstem has DIRECT markers, or one file of them for a single write of many files",
    says="Always this value.",
)  # fmt: skip
TIMELINE_SERVER = Flag(
    "hoodie.embed.timeline.server", True, read_by=_ENGINES, only=("true", "false"),
    says="No effect: there is no timeline server.",
)  # fmt: skip
EXCLUSIVE = Flag(
    "hoodie.mainstem.exclusive", False, table=True, read_by="publish",
    says="Declares that all writers are mainstem's: commits wait for no clock; on stores they take no lock;"
    " without buckets new keys fill up small file groups.",
)  # fmt: skip
KEEP_TOMBSTONES = Whole(
    "hoodie.mainstem.keep.tombstones", 0, 0, 87_600, "hours", table=True, read_by="services.kept_deletes",
    says="How long compactions remember deletes with ordering values; 0: not at all. mainstem makes tables"
    " with 24 where they have ordering fields and buckets.",
)  # fmt: skip
LOCAL_ZONE = Text(
    "hoodie.mainstem.timeline.zone", like="IANA name", read_by="writers",
    says="Zone of the instants if the table's timeline zone is LOCAL.",
)  # fmt: skip
REBUILD = Text(
    "hoodie.mainstem.metadata.rebuild", like="partition,...", read_by="metadata",
    says="Set by mainstem in a table: partitions of its metadata table that must be rebuilt.",
)  # fmt: skip


def is_lsm_tree(properties: Mapping[str, str]) -> bool:
    """Whether the rows of each file are sorted by record key."""
    return (properties.get(STORAGE_LAYOUT) or "").strip().upper() == "LSM_TREE"
