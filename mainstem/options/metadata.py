"""Options of the metadata table and of the indexes in it: which a job asks for, and how they are built."""

from __future__ import annotations

from mainstem.options.declaration import Flag, Text, Whole

_GROUPS_MAX = 10_000
_BUILDS, _JOBS = "indexing", "jobs of engines"
_LISTED = "layout.properties"

METADATA = Flag(
    "hoodie.metadata.enable", True, flink="metadata.enabled",
    read_by="readers, create_table, jobs of engines",
    says="Reads ask the metadata table; a new table or that of a job gets one (there by default not). In"
    " `hoodie.properties` it is for Java's writers.",
)  # fmt: skip
INDEX_TIMEOUT = Whole(
    "hoodie.metadata.index.check.timeout.seconds", 900, 0, 10**6, "seconds", read_by=_BUILDS,
    says="How long the build of an index waits for writers of other engines.",
)  # fmt: skip
STATS_GROUPS = Whole(
    "hoodie.metadata.index.column.stats.file.group.count", 2, 1, _GROUPS_MAX, "file groups", read_by=_BUILDS,
    says="File groups of column statistics.",
)  # fmt: skip
STATS_COLUMNS = Text(
    "hoodie.metadata.index.column.stats.column.list", like="column,...", read_by=_BUILDS,
    says="The columns to keep statistics of.",
)  # fmt: skip
STATS_COLUMNS_MAX = Whole(
    "hoodie.metadata.index.column.stats.max.columns.to.index", 32, 1, 10_000, "columns", read_by=_BUILDS,
    says="If none are named: how many of the first columns that can have statistics.",
)  # fmt: skip
PARTITION_STATS_GROUPS = Whole(
    "hoodie.metadata.index.partition.stats.file.group.count", 1, 1, _GROUPS_MAX, "file groups",
    read_by=_BUILDS, says="File groups of partition statistics.",
)  # fmt: skip
BLOOM_GROUPS = Whole(
    "hoodie.metadata.index.bloom.filter.file.group.count", 4, 1, _GROUPS_MAX, "file groups", read_by=_BUILDS,
    says="File groups of Bloom filters.",
)  # fmt: skip
EXPRESSION_GROUPS = Whole(
    "hoodie.metadata.index.expression.file.group.count", 2, 1, _GROUPS_MAX, "file groups", read_by=_BUILDS,
    says="File groups of an expression index.",
)  # fmt: skip
RECORD_GROUPS_MIN = Whole(
    "hoodie.metadata.global.record.level.index.min.filegroup.count", 10, 1, _GROUPS_MAX, "file groups",
    aliases=("hoodie.metadata.record.index.min.filegroup.count",), read_by=_BUILDS,
    says="Least file groups of a record index for the whole table, and of a secondary index.",
)  # fmt: skip
RECORD_GROUPS_MAX = Whole(
    "hoodie.metadata.global.record.level.index.max.filegroup.count", 10_000, 1, _GROUPS_MAX, "file groups",
    aliases=("hoodie.metadata.record.index.max.filegroup.count",), read_by=_BUILDS,
    says="Most file groups of the same.",
)  # fmt: skip
PARTITION_GROUPS_MIN = Whole(
    "hoodie.metadata.record.level.index.min.filegroup.count", 1, 1, _GROUPS_MAX, "file groups",
    aliases=("hoodie.metadata.partitioned.record.index.min.filegroup.count",), read_by=_BUILDS,
    says="Least file groups per partition of a partitioned table's record index.",
)  # fmt: skip
PARTITION_GROUPS_MAX = Whole(
    "hoodie.metadata.record.level.index.max.filegroup.count", 10, 1, _GROUPS_MAX, "file groups",
    aliases=("hoodie.metadata.partitioned.record.index.max.filegroup.count",), read_by=_BUILDS,
    says="Most file groups of the same.",
)  # fmt: skip
RECORD_GROUP_BYTES = Whole(
    "hoodie.metadata.record.index.max.filegroup.size", 1024**3, 48, 2**40, "bytes", read_by=_BUILDS,
    says="Size that a file group of a record index is planned for.",
)  # fmt: skip
RECORD_GROWTH = Text(
    "hoodie.metadata.record.index.growth.factor", "2.0", like="number", read_by=_BUILDS,
    says="By which factor a record index is expected to grow.",
)  # fmt: skip
UNSAFE_FOR_JAVA = Flag(
    "hoodie.mainstem.index.unsafe.for.java", False, read_by="indexing.unsafe_for_java",
    says="Allows indexes that make Java's readers fail or lose rows.",
)  # fmt: skip

# -- which a job asks for -------------------------------------------------------------------------------

COLUMN_STATS = Flag(
    "hoodie.metadata.index.column.stats.enable", False, read_by=_JOBS,
    says="A job's table gets column statistics. In `hoodie.properties` it is for Java's writers.",
)  # fmt: skip
PARTITION_STATS = Flag(
    "hoodie.metadata.index.partition.stats.enable", False, read_by=_JOBS,
    says="A job's table gets partition statistics.",
)  # fmt: skip
BLOOM_FILTERS = Flag(
    "hoodie.metadata.index.bloom.filter.enable", False, read_by=_JOBS,
    says="A job's table gets Bloom filters in its metadata table.",
)  # fmt: skip
RECORD_INDEX = Flag(
    "hoodie.metadata.record.index.enable", False, read_by=_JOBS, says="A job's table gets a record index."
)
RECORD_INDEX_OF_TABLE = Flag(
    "hoodie.metadata.global.record.level.index.enable", False, read_by=_JOBS, says="The same."
)
RECORD_INDEX_OF_PARTITIONS = Flag(
    "hoodie.metadata.record.level.index.enable", False, read_by=_JOBS, says="The same."
)

# -- what the table itself says ---------------------------------------------------------------------------

PARTITIONS = Text(
    "hoodie.table.metadata.partitions", like="partition,...", read_by=_LISTED,
    says="Partitions of the metadata table that readers use.",
)  # fmt: skip
PARTITIONS_INFLIGHT = Text(
    "hoodie.table.metadata.partitions.inflight", like="partition,...", read_by=_LISTED,
    says="Partitions that are being built; every writer already maintains them.",
)  # fmt: skip
DEFINITIONS_PATH = Text(
    "hoodie.table.index.defs.path", like="path", read_by="metadata.index_definitions",
    says="Path of the index definitions.",
)  # fmt: skip
AUTO_DELETE = Flag(
    "hoodie.metadata.auto.delete.partitions", False, read_by="Java's writers",
    says="False tells Java's writers not to remove indexes that their options do not name.",
)  # fmt: skip
LAYOUT_CLASS = Text(
    "hoodie.metadata.layout.class", like="class of Hudi's", read_by="metadata.metadata_table",
    says="Other layouts of the metadata table are refused.",
)  # fmt: skip

#: options that ask for an index of the metadata table -> its kind. A partitioned table always gets the
#: partitioned record index, whichever was asked for.
INDEX_SWITCHES: dict[str, str] = {
    COLUMN_STATS: "column_stats",
    PARTITION_STATS: "partition_stats",
    BLOOM_FILTERS: "bloom_filters",
    RECORD_INDEX: "record_index",
    RECORD_INDEX_OF_TABLE: "record_index",
    RECORD_INDEX_OF_PARTITIONS: "record_index",
}
#: least and most file groups, each with its older name, of a global record index and of one per partition.
#: Secondary indexes use those of the global one.
GLOBAL_GROUPS = (RECORD_GROUPS_MIN.names, RECORD_GROUPS_MAX.names)
PARTITION_GROUPS = (PARTITION_GROUPS_MIN.names, PARTITION_GROUPS_MAX.names)
INDEX_KEYS: tuple[str, ...] = (
    UNSAFE_FOR_JAVA, INDEX_TIMEOUT, STATS_GROUPS, STATS_COLUMNS, STATS_COLUMNS_MAX, PARTITION_STATS_GROUPS,
    BLOOM_GROUPS, EXPRESSION_GROUPS, RECORD_GROUP_BYTES, RECORD_GROWTH,
    *(key for names in (*GLOBAL_GROUPS, *PARTITION_GROUPS) for key in names),
)  # fmt: skip
