"""Every option of Hudi's Flink connector (``FlinkOptions``): names, defaults, and how mainstem treats it.

An option works, or is accepted without any effect here, or is accepted only with the value that mainstem
follows anyway. docs/flink.md prints this list, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.options.catalogs import HIVE_SYNC, METASTORE_URIS, SYNC_DATABASE, SYNC_MODE, SYNC_TABLE
from mainstem.options.engines import OPERATION
from mainstem.options.metadata import METADATA
from mainstem.options.placing import (
    BUCKET_ENGINE,
    BUCKET_EXPRESSIONS,
    BUCKET_RULE,
    BUCKETS,
    HASH_FIELD,
    HIVE_STYLE,
    INDEX_TYPE,
    KEY_GENERATOR_CLASS_OPTION,
    KEY_GENERATOR_OPTION,
    PARTITION_FIELDS,
    PARTITION_OPTION,
    RECORD_KEY_FIELDS,
    RECORD_KEY_OPTION,
    URL_ENCODE,
    VECTOR_COLUMNS,
)
from mainstem.options.reading import MERGE_TYPE, QUERY_TYPE
from mainstem.options.services import (
    ARCHIVE_MAX,
    ARCHIVE_MIN,
    CLEAN_ASYNC,
    CLEAN_COMMITS,
    CLEAN_HOURS,
    CLEAN_POLICY,
    CLEAN_VERSIONS,
    COMPACTION_COMMITS,
    COMPACTION_SECONDS,
    COMPACTION_TRIGGER,
    FLINK_CLEAN,
    FLINK_COMPACT,
    FLINK_SCHEDULE,
    METADATA_COMMITS,
    SORT_COLUMNS,
    TARGET_IO,
)
from mainstem.options.tables import (
    CDC_ENABLED,
    CDC_MODE,
    MERGE_MODE,
    ORDERING_FIELDS,
    ORDERING_OPTION,
    PAYLOAD_CLASS,
    STORAGE_LAYOUT,
    STRATEGY_ID,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    TABLE_VERSION_OPTION,
)
from mainstem.options.writing import CONCURRENCY, GROUP_BYTES

#: how mainstem treats an option
WORKS, NO_EFFECT, FIXED = "works", "no effect", "fixed"


@dataclass(frozen=True)
class Option:
    """``note``: what it does, why it has no effect, or why other values are refused and what to do instead.

    ``only``: the values of a ``FIXED`` option, in lower case. ``key``: the ``hoodie.*`` property under which
    the value goes on, where it has another name there. ``default`` is Hudi's ("" for none).
    """

    name: str
    default: str
    what: str
    note: str
    aliases: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    key: str = ""


def _works(name: str, default: str, note: str, *aliases: str, key: str = "") -> Option:
    return Option(name, default, WORKS, note, aliases, key=key)


def _idle(name: str, default: str, note: str, *aliases: str) -> Option:
    return Option(name, default, NO_EFFECT, note, aliases)


def _fixed(name: str, default: str, only: str, note: str, *aliases: str) -> Option:
    return Option(name, default, FIXED, note, aliases, only=(only,))


_OTHER_INDEX = "belongs to another index than BUCKET"
_BATCHES = "rows are staged batch by batch; memory is bounded by the Arrow batch"
_COW = "belongs to COPY_ON_WRITE tables"
_BULK = "belongs to bulk_insert"
_CLUSTERING = "clustering breaks non-blocking writers; run it with Hudi while no writer is open"

_TABLE = (
    _works("connector", "", "`hudi` or `mainstem`"),
    _works("path", "", "base path; required"),
    _works(TABLE_TYPE.flink, "COPY_ON_WRITE",
           "INSERT needs MERGE_ON_READ, which a new table is where nothing is said", key=TABLE_TYPE),
    _works(TABLE_NAME, "the table's name in SQL", "of a new table"),
    _works(ORDERING_FIELDS.flink, "ts", "of a new table, where the column exists; `no_precombine` for none",
           "precombine.field", "write.precombine.field", ORDERING_OPTION,
           key=ORDERING_FIELDS),
    _works(PAYLOAD_CLASS.flink, "org.apache.hudi.common.model.EventTimeAvroPayload",
           "Hudi's classes by event time, by commit time and for partial updates",
           "write.payload.class", *PAYLOAD_CLASS.aliases),
    _works("record.merger.impls", "org.apache.hudi.client.model.EventTimeFlinkRecordMerger",
           "Hudi's Flink mergers: the same three"),
    _works(STRATEGY_ID.flink, "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
           "the ids of event time and commit time ordering", *STRATEGY_ID.aliases),
    _works(MERGE_MODE, "", "inferred from the ordering fields", "RECORD_MERGE_MODE"),
    _works(RECORD_KEY_OPTION, "uuid", "PRIMARY KEY wins",
           key=RECORD_KEY_FIELDS),
    _works(PARTITION_OPTION, "", "PARTITIONED BY wins",
           key=PARTITION_FIELDS),
    _works(VECTOR_COLUMNS, "", "of a new table: arrays that are vectors, `embedding:384,codes:16`"),
    _works(HIVE_STYLE, "false", "folders `city=Rome`"),
    _works(URL_ENCODE, "false", "escapes in folders"),
    _works(KEY_GENERATOR_OPTION, "SIMPLE", "inferred from key and partition fields"),
    _works(KEY_GENERATOR_CLASS_OPTION, "", "Hudi's classes"),
    _fixed("partition.default_name", "__HIVE_DEFAULT_PARTITION__", "__hive_default_partition__",
           "the folder of null is what all Hudi writers call it"),
    _works(INDEX_TYPE.flink, "FLINK_STATE",
           "INSERT needs BUCKET, which a new table has where nothing is said, or one of Hudi's indexes"
           " without buckets (SIMPLE, BLOOM, record indexes, and their global kinds)", INDEX_TYPE,
           key=INDEX_TYPE),
    _works(BUCKET_ENGINE, "SIMPLE",
           "SIMPLE, or CONSISTENT_HASHING: the committer puts a checkpoint's rows into the file groups that"
           " are there by then"),
    _works(BUCKETS, "4", "per partition, of a new table; another number by mainstem resize"),
    _works(HASH_FIELD, "", "the record key's fields"),
    _works(BUCKET_EXPRESSIONS, "", "of a new table: bucket counts of partitions, `2024-.*,32;2023-.*,16`"),
    _works(BUCKET_RULE, "regex", "the one kind that Hudi has", *BUCKET_RULE.aliases),
    _works(CONCURRENCY, "SINGLE_WRITER",
           "NON_BLOCKING_CONCURRENCY_CONTROL, here the default too; other modes are refused"),
    _works(TABLE_VERSION_OPTION, "9", "9, 8 for Hudi 1.0, or 10, which no release of Hudi has yet",
           key=TABLE_VERSION),
    _works(STORAGE_LAYOUT, "", "of a new table of version 10: `default`, here the default too, or `lsm_tree`,"
           " which Hudi's own Flink jobs make at that version"),
)  # fmt: skip

_WRITE = (
    _works("write.operation", "upsert",
           "upsert or insert; bulk_insert of a query that ends: one commit, by this process", OPERATION),
    _works("write.tasks", "the environment's parallelism", "parallelism of the writers"),
    _idle("write.bucket_assign.tasks", "the environment's parallelism", _OTHER_INDEX),
    _idle("write.index_bootstrap.tasks", "the environment's parallelism", _OTHER_INDEX),
    _idle("write.batch.size", "256", _BATCHES),
    _idle("write.task.max.size", "1024", _BATCHES),
    _idle("write.log_block.size", "128", _BATCHES),
    _idle("write.log.max.size", "1024", _BATCHES),
    _works(GROUP_BYTES.flink, "120", "MB; of the base files that a compaction writes"),
    _idle("write.parquet.max.file.size", "120", "a bucket has one base file"),
    _idle("write.parquet.page.size", "1", "reading is the same"),
    _idle("write.merge.max_memory", "100", "merging is by columns"),
    _idle("write.precombine", "false", "rows of one key are merged when they are read"),
    _fixed("write.ignore.failed", "false", "false", "rows that cannot be written would be lost"),
    _idle("write.fail.fast", "false", "the first error ends the job"),
    _idle("write.retry.times", "3", "a checkpoint's files are committed sooner or later, by whom ever"),
    _idle("write.retry.interval.ms", "2000", "as above"),
    _fixed("write.rate.limit", "0", "0",
           "rows are not held back: limit the source (`rows-per-second`, or its own option)"),
    _idle("write.commit.ack.timeout", "300000", "no coordinator is waited for"),
    _works("write.client.id", "", "name of the pipeline; the table's name in SQL if not given"),
    _fixed("write.utc-timezone", "true", "true",
           "a TIMESTAMP is stored as if it were UTC: shift it in the query, "
           "`TO_TIMESTAMP(CONVERT_TZ(CAST(ts AS STRING), 'Asia/Shanghai', 'UTC'))`"),
    _works("write.partition.overwrite.mode", "STATIC",
           "of INSERT OVERWRITE: `STATIC` overwrites the table, or with a PARTITION clause the partitions"
           " that get rows; `DYNAMIC` always these"),
    _idle("write.insert.cluster", "false", _COW),
    _idle("write.bulk_insert.shuffle_input", "true", _BULK),
    _idle("write.bulk_insert.sort_input", "true", _BULK),
    _fixed("changelog.enabled", "false", "false",
           "intermediate changes are not kept: a table holds the newest row of a key"),
    _fixed("cdc.enabled", "false", "false",
           "tables with change data are made elsewhere (create_table, version 10)", CDC_ENABLED),
    _idle(CDC_MODE.flink, "DATA_BEFORE_AFTER", "cdc is off",
          CDC_MODE),
    _works(METADATA.flink, "false", "`true`: a table without a metadata table gets one before the job"
           " writes, beside running writers; one that it has is maintained whatever this says",
           METADATA, key=METADATA),
    _works(METADATA_COMMITS.flink, "10", "of the metadata table",
           METADATA_COMMITS, key=METADATA_COMMITS),
    _idle("index.bootstrap.enabled", "false", _OTHER_INDEX),
    _idle("index.state.ttl", "0", _OTHER_INDEX),
    _idle("index.global.enabled", "true", _OTHER_INDEX),
)  # fmt: skip

_SERVICES = (
    _works(FLINK_SCHEDULE, "true", "false on all pipelines of a table but one"),
    _works(FLINK_COMPACT, "true", "false on all pipelines of a table but one"),
    _idle("compaction.tasks", "write.tasks", "compactions run in the client, or wherever services run"),
    _works(COMPACTION_TRIGGER.flink, "num_commits", "Hudi's five",
           key=COMPACTION_TRIGGER),
    _works(COMPACTION_COMMITS.flink, "5", "", key=COMPACTION_COMMITS),
    _works(COMPACTION_SECONDS.flink, "3600", "", key=COMPACTION_SECONDS),
    _idle("compaction.timeout.seconds", "1200", "a compaction is taken over when its heartbeat has ended"),
    _idle("compaction.max_memory", "100", "merging is by columns"),
    _works(TARGET_IO.flink, "512000", "MB", key=TARGET_IO),
    _works(FLINK_CLEAN, "true", "false on all pipelines of a table but one",
           CLEAN_ASYNC),
    _works(CLEAN_POLICY.flink, "KEEP_LATEST_COMMITS", "", CLEAN_POLICY, key=CLEAN_POLICY),
    _works(CLEAN_COMMITS.flink, "30", "", key=CLEAN_COMMITS),
    _works(CLEAN_HOURS.flink, "24", "", key=CLEAN_HOURS),
    _works(CLEAN_VERSIONS.flink, "5", "", key=CLEAN_VERSIONS),
    _works(ARCHIVE_MAX.flink, "50", "", key=ARCHIVE_MAX),
    _works(ARCHIVE_MIN.flink, "40", "", key=ARCHIVE_MIN),
    _works(SORT_COLUMNS.flink, "", "compactions write rows in this order", key=SORT_COLUMNS),
    _fixed("clustering.schedule.enabled", "false", "false", _CLUSTERING),
    _fixed("clustering.async.enabled", "false", "false", _CLUSTERING),
    _idle("clustering.delta_commits", "4", "clustering is off"),
    _works(HIVE_SYNC.flink, "false", "each commit registers the table in a Hive Metastore: catalogs.md",
           "hive_sync.enable", key=HIVE_SYNC),
    _works(SYNC_MODE.flink, "hms", "hms or glue", key=SYNC_MODE),
    _works(SYNC_DATABASE.flink, "default", "", key=SYNC_DATABASE),
    _works(SYNC_TABLE.flink, "the table's name", "", key=SYNC_TABLE),
    _works(METASTORE_URIS.flink, "thrift://localhost:9083", "", key=METASTORE_URIS),
)  # fmt: skip

_READ = (
    _works("read.tasks", "the environment's parallelism", "parallelism of the readers"),
    _works(QUERY_TYPE, "snapshot", "snapshot, read_optimized, incremental"),
    _works("read.streaming.enabled", "false", "the table as an unbounded source"),
    _works("read.streaming.check-interval", "60", "seconds between looks at the timeline"),
    _idle("read.streaming.skip_compaction", "true", "a compaction adds no rows"),
    _idle("read.streaming.skip_clustering", "true", "clustering adds no rows"),
    _fixed("read.streaming.skip_insertoverwrite", "false", "false", "what was overwritten is a change"),
    _works("read.start-commit", "", "completion time; `earliest` for all", "read.streaming.start-commit"),
    _works("read.end-commit", "", "completion time"),
    _works("read.commits.limit", "", "most commits of one look"),
    _idle("read.splits.limit", "2147483647", "file groups are read one after the other"),
    _idle("read.cdc.from.changelog", "true", "cdc is off"),
    _idle("read.data.skipping.enabled", "false", "the rows are the same"),
    _fixed("read.utc-timezone", "true", "true",
           "a TIMESTAMP is read as it was stored: shift it in the query"),
    _fixed(MERGE_TYPE, "payload_combine", "payload_combine",
           "unmerged rows are not shown: read.start-commit shows what each commit wrote"),
    _idle("lookup.join.cache.ttl", "60 min", "lookup joins are refused, other joins need no cache"),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = (*_TABLE, *_WRITE, *_SERVICES, *_READ)
#: every name, including older ones -> its option
BY_NAME = {name: option for option in OPTIONS for name in (option.name, *option.aliases)}
