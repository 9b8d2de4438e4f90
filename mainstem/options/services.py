"""Options of table services: when each runs (``services.service_switches`` says what they mean), and how."""

from __future__ import annotations

from mainstem.limits import GIB, MIB
from mainstem.options.declaration import Choice, Flag, Option, Text, Whole

_RUN, _COMPACTION, _CLEANING = "services.service_switches", "services.compaction_plan", "services.clean_plan"
_ORDER, _CLUSTERING = "services.clustering_order", "services.clustering_plan"
_LOGS, _ARCHIVING, _LEVELS = "services.log_compaction_plan", "services.archive_plan", "lsm_archive"
_METADATA = "services.metadata"
_TRIGGERS = (
    "NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_OR_TIME", "NUM_AND_TIME",
)  # fmt: skip

# -- when ----------------------------------------------------------------------------------------------

ENABLED = Flag("hoodie.table.services.enabled", True, read_by=_RUN, says="false switches all services off.")
BESIDE_COMMITS = Choice(
    "hoodie.mainstem.services", "AUTO", ("AUTO", "ON", "OFF"), read_by=_RUN,
    says="Whether services that nobody asked for run in a thread beside commits. AUTO: while no other engine"
    " writes the table; ON, the default of streams: as Hudi's defaults say; OFF: they are left to others.",
)  # fmt: skip
COMPACT_INLINE = Flag(
    "hoodie.compact.inline", False, read_by=_RUN, says="A commit compacts if that is due, and waits for it."
)
SCHEDULE_INLINE = Flag(
    "hoodie.compact.schedule.inline", False, read_by=_RUN,
    says="A commit plans a compaction if that is due, and leaves it to others.",
)  # fmt: skip
COMPACT_ASYNC = Flag(
    "hoodie.datasource.compaction.async.enable", True, read_by=_RUN,
    says="Compactions run beside commits, and in rounds.",
)  # fmt: skip
STREAMING_OFF = Flag(
    "hoodie.datasource.write.streaming.disable.compaction", False, read_by=_RUN,
    says="true: no compactions in streams.",
)  # fmt: skip
FLINK_SCHEDULE = Flag(
    "compaction.schedule.enabled", True, read_by=_RUN, says="Flink's: whether compactions are planned."
)
FLINK_COMPACT = Flag(
    "compaction.async.enabled", True, read_by=_RUN, says="Flink's: whether planned compactions are executed."
)
CLEAN = Flag("hoodie.clean.automatic", True, read_by=_RUN, says="Cleaning runs after or beside commits.")
CLEAN_ASYNC = Flag(
    "hoodie.clean.async.enabled", False, aliases=("hoodie.clean.async",), read_by=_RUN,
    says="Cleaning runs beside commits, not after them.",
)  # fmt: skip
FLINK_CLEAN = Flag("clean.async.enabled", True, read_by=_RUN, says="Flink's: whether cleaning runs.")
ARCHIVE = Flag("hoodie.archive.automatic", True, read_by=_RUN, says="Archiving runs after or beside commits.")
ARCHIVE_ASYNC = Flag(
    "hoodie.archive.async", False, read_by=_RUN, says="Archiving runs beside commits, not after them."
)
LOG_COMPACT = Flag(
    "hoodie.log.compaction.enable",
    False,
    read_by=_RUN,
    says="Log compactions run beside commits and in rounds.",
)
LOG_COMPACT_INLINE = Flag(
    "hoodie.log.compaction.inline",
    False,
    read_by=_RUN,
    says="A commit compacts logs if that is due, and waits for it.",
)

#: the switches, which decide what runs when
RUN_KEYS: tuple[Flag, ...] = (
    ENABLED, COMPACT_INLINE, SCHEDULE_INLINE, COMPACT_ASYNC, STREAMING_OFF, FLINK_SCHEDULE, FLINK_COMPACT,
    CLEAN, CLEAN_ASYNC, FLINK_CLEAN, ARCHIVE, ARCHIVE_ASYNC, LOG_COMPACT, LOG_COMPACT_INLINE,
)  # fmt: skip

# -- compaction ------------------------------------------------------------------------------------------

COMPACTION_TRIGGER = Choice(
    "hoodie.compact.inline.trigger.strategy", "NUM_COMMITS", _TRIGGERS, flink="compaction.trigger.strategy",
    read_by=_COMPACTION, says="What makes a compaction due.",
)  # fmt: skip
COMPACTION_COMMITS = Whole(
    "hoodie.compact.inline.max.delta.commits", 5, 1, 10**9, "commits", flink="compaction.delta_commits",
    read_by=_COMPACTION, says="How many commits since the last one make it due.",
)  # fmt: skip
COMPACTION_SECONDS = Whole(
    "hoodie.compact.inline.max.delta.seconds", 3600, 1, 10**9, "seconds", flink="compaction.delta_seconds",
    read_by=_COMPACTION, says="How much time since the last one makes it due.",
)  # fmt: skip
COMPACTION_STRATEGY = Text(
    "hoodie.compaction.strategy",
    "org.apache.hudi.table.action.compact.strategy.LogFileSizeBasedCompactionStrategy",
    like="class of Hudi's", read_by=_COMPACTION, says="Which file groups a plan takes, and in which order.",
)  # fmt: skip
TARGET_IO = Whole(
    "hoodie.compaction.target.io", 500 * 1024, 1, 10**12, "MB", flink="compaction.target_io",
    read_by=_COMPACTION, says="The most that one plan reads and writes.",
)  # fmt: skip
LOG_BYTES_MIN = Whole(
    "hoodie.compaction.logfile.size.threshold", 0, 0, 2**62, "bytes", read_by=_COMPACTION,
    says="File groups with smaller logs wait.",
)  # fmt: skip
LOG_FILES_MIN = Whole(
    "hoodie.compaction.logfile.num.threshold", 0, 0, 10**9, "files", read_by=_COMPACTION,
    says="File groups with fewer log files wait.",
)  # fmt: skip
MERGE_MEMORY = Whole(
    "hoodie.memory.merge.max.size", GIB, MIB, 2**50, "bytes", read_by=_COMPACTION, says="Memory of a merge."
)
COMPACTION_MEMORY = Whole(
    "hoodie.memory.compaction.max.size", GIB, MIB, 2**50, "bytes", read_by=_COMPACTION,
    says="Memory of a compaction's merge; by default that of any merge.",
)  # fmt: skip

# -- the order of rows in base files ---------------------------------------------------------------------

SORT_COLUMNS = Text(
    "hoodie.clustering.plan.strategy.sort.columns", like="columns, with commas between them",
    flink="clustering.plan.strategy.sort.columns", read_by=_ORDER,
    says="Compactions write the rows of each base file in the order of these columns; create_table keeps it.",
)  # fmt: skip
LAYOUT_STRATEGY = Choice(
    "hoodie.layout.optimize.strategy", "LINEAR", ("LINEAR", "Z-ORDER", "ZORDER", "HILBERT"), read_by=_ORDER,
    says="How several columns make one order: one after the other, or along a curve through all of them."
    " create_table keeps it.",
)  # fmt: skip
CURVE_METHOD = Choice(
    "hoodie.layout.optimize.curve.build.method", "DIRECT", ("DIRECT",), read_by=_ORDER, only=("direct",),
    why="the curve is built from the ranks of a file group's own values, which needs no sample of the table",
    says="Always this value.",
)  # fmt: skip

# -- clustering of tables without buckets ------------------------------------------------------------------

CLUSTER_SMALL_FILE = Whole(
    "hoodie.clustering.plan.strategy.small.file.limit", 300 * MIB, 0, 2**62, "bytes",
    read_by=_CLUSTERING,
    says="File groups with a smaller base file are put together; tables without buckets only.",
)  # fmt: skip
CLUSTER_TARGET = Whole(
    "hoodie.clustering.plan.strategy.target.file.max.bytes", GIB, 1, 2**62, "bytes",
    read_by=_CLUSTERING,
    says="Size of the files that they become; one of twice that size is split.",
)  # fmt: skip
CLUSTER_GROUP = Whole(
    "hoodie.clustering.plan.strategy.max.bytes.per.group", 2 * GIB, 1, 2**62, "bytes", read_by=_CLUSTERING,
    says="How much of a partition is rewritten together.",
)  # fmt: skip
CLUSTER_GROUPS = Whole(
    "hoodie.clustering.plan.strategy.max.num.groups", 30, 1, 10**6, "groups",
    read_by=_CLUSTERING, says="How many such groups one plan has.",
)  # fmt: skip

# -- splits and merges of file groups under consistent hashing --------------------------------------------

_RINGS = "services.ring_plan"
MAX_BUCKETS = Whole(
    "hoodie.bucket.index.max.num.buckets", 0, 0, 100_000, "buckets", read_by=_RINGS,
    says="Most file groups of a partition after splits; by default as many as it begins with.",
)  # fmt: skip
MIN_BUCKETS = Whole(
    "hoodie.bucket.index.min.num.buckets", 0, 0, 100_000, "buckets", read_by=_RINGS,
    says="Fewest file groups of a partition after merges; by default as many as it begins with.",
)  # fmt: skip
SPLIT_THRESHOLD = Text(
    "hoodie.bucket.index.split.threshold", "2.0", like="number", read_by=_RINGS,
    says="A file group of more than so many times the size of a file is split.",
)  # fmt: skip
MERGE_THRESHOLD = Text(
    "hoodie.bucket.index.merge.threshold", "0.2", like="number", read_by=_RINGS,
    says="Neighbours of together less than so many times the size of a file are merged.",
)  # fmt: skip
OF_RINGS = (MAX_BUCKETS, MIN_BUCKETS, SPLIT_THRESHOLD, MERGE_THRESHOLD)

# -- log compaction --------------------------------------------------------------------------------------

LOG_BLOCKS_MIN = Whole(
    "hoodie.log.compaction.blocks.threshold", 5, 1, 10**6, "blocks", read_by=_LOGS,
    says="How many blocks in a file group's logs make it due.",
)  # fmt: skip
BESIDE_WRITERS = Flag(
    "hoodie.mainstem.log.compaction.beside.writers", False, read_by=_LOGS,
    says="No reader is older than Hudi 1.2: log compactions may be planned while writes are in flight.",
)  # fmt: skip

# -- cleaning --------------------------------------------------------------------------------------------

CLEAN_POLICY = Choice(
    "hoodie.clean.policy", "KEEP_LATEST_COMMITS",
    ("KEEP_LATEST_COMMITS", "KEEP_LATEST_BY_HOURS", "KEEP_LATEST_FILE_VERSIONS"), flink="clean.policy",
    aliases=("hoodie.cleaner.policy",), read_by=_CLEANING, says="What cleans keep.",
)  # fmt: skip
CLEAN_COMMITS = Whole(
    "hoodie.clean.commits.retained", 10, 1, 10**9, "commits", flink="clean.retain_commits",
    aliases=("hoodie.cleaner.commits.retained",), read_by=_CLEANING, says="How many commits' views are kept.",
)  # fmt: skip
CLEAN_VERSIONS = Whole(
    "hoodie.clean.fileversions.retained", 3, 1, 10**9, "file slices", flink="clean.retain_file_versions",
    aliases=("hoodie.cleaner.fileversions.retained",), read_by=_CLEANING,
    says="How many file slices of each group are kept.",
)  # fmt: skip
CLEAN_HOURS = Whole(
    "hoodie.clean.hours.retained", 24, 1, 10**6, "hours", flink="clean.retain_hours",
    aliases=("hoodie.cleaner.hours.retained",), read_by=_CLEANING, says="For how many hours views are kept.",
)  # fmt: skip
CLEAN_TRIGGER = Choice(
    "hoodie.clean.trigger.strategy", "NUM_COMMITS", ("NUM_COMMITS",), read_by=_CLEANING,
    says="What makes a clean due.",
)  # fmt: skip
CLEAN_TRIGGER_COMMITS = Whole(
    "hoodie.clean.trigger.max.commits", 1, 1, 10**9, "commits", aliases=("hoodie.clean.max.commits",),
    read_by=_CLEANING, says="How many commits since the last one make it due.",
)  # fmt: skip
CLEAN_INCREMENTAL = Flag(
    "hoodie.clean.incremental.enabled", True, aliases=("hoodie.cleaner.incremental.mode",),
    read_by=_CLEANING, says="A clean examines only partitions written since the last one.",
)  # fmt: skip
METADATA_CLEAN_DERIVED = Flag(
    "hoodie.metadata.derive.from.datatable.clean.policy", True, read_by=_CLEANING,
    says="The metadata table's policy follows the data table's.",
)  # fmt: skip

# -- archiving -------------------------------------------------------------------------------------------

ARCHIVE_MIN = Whole(
    "hoodie.keep.min.commits", 20, 1, 10**9, "commits", flink="archive.min_commits", read_by=_ARCHIVING,
    says="How many commits archiving leaves on the active timeline.",
)  # fmt: skip
ARCHIVE_MAX = Whole(
    "hoodie.keep.max.commits", 30, 1, 10**9, "commits", flink="archive.max_commits", read_by=_ARCHIVING,
    says="More commits than this make archiving due.",
)  # fmt: skip
BEYOND_SAVEPOINT = Flag(
    "hoodie.archive.beyond.savepoint", False, read_by=_ARCHIVING,
    says="Instants after the oldest savepoint are archived too.",
)  # fmt: skip
BLOCK_ON_CLEAN = Flag(
    "hoodie.archive.block.on.latest.clean.ectr", False, read_by=_ARCHIVING,
    says="Instants that the last clean has not passed are not archived.",
)  # fmt: skip
ARCHIVE_REST_MS = Whole(
    "hoodie.mainstem.archive.rest_ms", 1_800_000, 0, 86_400_000, "milliseconds", read_by=_ARCHIVING,
    says="On an object store that another engine may write too, instants younger than this stay active: a put"
    " that travels for long cannot bring an archived one back, which would hide rows from that engine.",
)  # fmt: skip
LEVEL_FILES = Whole(
    "hoodie.timeline.compaction.batch.size", 10, 2, 10_000, "files", read_by=_LEVELS,
    says="How many files of one level of the archive are merged into one of the next.",
)  # fmt: skip
LEVEL_BYTES = Whole(
    "hoodie.timeline.compaction.target.file.max.bytes", 1_048_576_000, 1, 2**62, "bytes", read_by=_LEVELS,
    says="Larger files of the archive are not merged again.",
)  # fmt: skip
MANIFESTS = Whole(
    "hoodie.timeline.manifest.retained.versions", 3, 1, 10_000, "versions", read_by=_LEVELS,
    says="How many versions of the archive are kept for readers.",
)  # fmt: skip

# -- the metadata table's ----------------------------------------------------------------------------------

METADATA_COMMITS = Whole(
    "hoodie.metadata.compact.max.delta.commits", 10, 1, 10**9, "commits",
    flink="metadata.compaction.delta_commits", read_by=_METADATA,
    says="How many commits since its last compaction make the next due.",
)  # fmt: skip
METADATA_SECONDS = Whole(
    "hoodie.metadata.compact.max.delta.seconds", 7200, 1, 10**9, "seconds", read_by=_METADATA,
    says="How much time since its last compaction makes the next due.",
)  # fmt: skip
METADATA_TRIGGER = Choice(
    "hoodie.metadata.compact.trigger.strategy", "NUM_COMMITS", _TRIGGERS, read_by=_METADATA,
    says="What makes a compaction of the metadata table due.",
)  # fmt: skip

METADATA_GROWTH = Whole(
    "hoodie.mainstem.metadata.compact.growth.percent", 50, 0, 1000, "percent", read_by=_METADATA,
    says="A due compaction of the metadata table waits until the new rows are so many percent of those below,"
    " for at most four times as many commits; not where their number is set.",
)  # fmt: skip

#: every option of a table service: all of the above
OPTIONS: tuple[Option, ...] = tuple(one for one in list(globals().values()) if isinstance(one, Option))
