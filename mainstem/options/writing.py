"""Options of writers: clocks, heartbeats, log files, base files, new columns."""

from __future__ import annotations

from mainstem.limits import MIB, TIMELINE_AHEAD_MS_DEFAULT
from mainstem.options.declaration import Choice, Flag, Text, Whole

NBCC = "NON_BLOCKING_CONCURRENCY_CONTROL"
OCC = "OPTIMISTIC_CONCURRENCY_CONTROL"
_OPEN = "writers"

SKEW_MS = Whole(
    "hoodie.time.generator.max_expected_clock_skew_ms", 200, 0, 600_000, "ms", read_by="publish",
    says="How far two writers' clocks may differ: times lie half as far again in the past.",
)  # fmt: skip
HEARTBEAT_MS = Whole(
    "hoodie.client.heartbeat.interval_in_ms", 60_000, 100, 86_400_000, "ms", read_by="truetime.heartbeats",
    says="How often a writer updates its heartbeat.",
)  # fmt: skip
HEARTBEAT_MISSES = Whole(
    "hoodie.client.heartbeat.tolerable.misses", 2, 1, 1_000, "heartbeats", read_by="truetime.heartbeats",
    says="How many heartbeats a writer may miss before it counts as dead.",
)  # fmt: skip
CONCURRENCY = Choice(
    "hoodie.write.concurrency.mode", NBCC, (NBCC, "SINGLE_WRITER", OCC),
    read_by=_OPEN,
    says="Writers accept the first; on tables without buckets the last, too, as Java has no other there.",
)  # fmt: skip
#: the older name
FAILED_WRITES_OLD = "hoodie.cleaner.policy.failed.writes"
FAILED_WRITES = Choice(
    "hoodie.clean.failed.writes.policy", "LAZY", ("LAZY", "NEVER", "EAGER"), aliases=(FAILED_WRITES_OLD,),
    read_by="writers.rollback", says="Whether dead writers are rolled back; EAGER is refused.",
)  # fmt: skip
FSYNC = Flag(
    "hoodie.mainstem.fsync", True, read_by="storage.local",
    says="Files and folders are made durable before a commit shows them.",
)  # fmt: skip
AHEAD_MS = Whole(
    "hoodie.mainstem.timeline.ahead.max.ms", TIMELINE_AHEAD_MS_DEFAULT, 0, 10**12, "ms", read_by="truetime",
    says="How far the newest instant may lie ahead of this clock before writing is refused.",
)  # fmt: skip
CLOCK_OFFSET = Whole(
    "hoodie.mainstem.clock.offset_ms", 0, -(10**12), 10**12, "ms", read_by="truetime.clock",
    says="Shifts this process's clock, for tests and demos of skew.",
)  # fmt: skip
WRITER_NAME = Text(
    "hoodie.mainstem.writer.name", read_by=_OPEN, says="Put into the metadata of each commit of this process."
)
_CALLBACK = "writers.commit_callback"
CALLBACK_ON = Flag(
    "hoodie.write.commit.callback.on", False, read_by=_CALLBACK,
    says="Tells a web server of each write that this process committed.",
)  # fmt: skip
HTTP_CLASS = "org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback"
KAFKA_CLASS = "org.apache.hudi.utilities.callback.kafka.HoodieWriteCommitKafkaCallback"
CALLBACK_CLASS = Text(
    "hoodie.write.commit.callback.class", HTTP_CLASS,
    like=f"{HTTP_CLASS} or {KAFKA_CLASS}", read_by=_CALLBACK,
    says="Which kind of callback: Hudi's by HTTP, or its one to Kafka.",
)  # fmt: skip
KAFKA_SERVERS = Text(
    "hoodie.write.commit.callback.kafka.bootstrap.servers", like="host:port,host:port", read_by=_CALLBACK,
    says="Kafka's brokers.",
)  # fmt: skip
KAFKA_TOPIC = Text(
    "hoodie.write.commit.callback.kafka.topic", read_by=_CALLBACK, says="The topic that takes the messages."
)
KAFKA_PARTITION = Text(
    "hoodie.write.commit.callback.kafka.partition", like="whole number", read_by=_CALLBACK,
    says="Its partition; if it is not given, Kafka chooses by the table's name.",
)  # fmt: skip
KAFKA_ACKS = Text(
    "hoodie.write.commit.callback.kafka.acks", "all", like="all, 0 or 1", read_by=_CALLBACK,
    says="How many brokers must have a message.",
)  # fmt: skip
KAFKA_RETRIES = Whole(
    "hoodie.write.commit.callback.kafka.retries", 3, 0, 1_000, read_by=_CALLBACK,
    says="How often a message is sent again.",
)  # fmt: skip
CALLBACK_URL = Text(
    "hoodie.write.commit.callback.http.url", like="http:// or https://", read_by=_CALLBACK,
    says="Where commits are told, by POST.",
)  # fmt: skip
CALLBACK_KEY = Text(
    "hoodie.write.commit.callback.http.api.key", "hudi_write_commit_http_callback", like="text or env:NAME",
    read_by=_CALLBACK, says="Sent as the header HUDI-CALLBACK-KEY.",
)  # fmt: skip
CALLBACK_TIMEOUT = Whole(
    "hoodie.write.commit.callback.http.timeout.seconds", 30, 1, 3_600, "seconds", read_by=_CALLBACK,
    says="How long the committing process waits for an answer.",
)  # fmt: skip
CALLBACK_HEADERS = Text(
    "hoodie.write.commit.callback.http.custom.headers", like="Name:value;Name:value", read_by=_CALLBACK,
    says="More headers.",
)  # fmt: skip
_VALIDATORS = "services.pre_commit"
VALIDATORS = Text(
    "hoodie.precommit.validators", like="class names", read_by=_VALIDATORS,
    says="Hudi's SQL validators, which may refuse a commit before it is published.",
)  # fmt: skip
VALIDATORS_EQUAL = Text(
    "hoodie.precommit.validators.equality.sql.queries", like="query;query", read_by=_VALIDATORS,
    says="Queries whose result on `<TABLE_NAME>` must be the same before and after a commit.",
)  # fmt: skip
VALIDATORS_DIFFER = Text(
    "hoodie.precommit.validators.inequality.sql.queries", like="query;query", read_by=_VALIDATORS,
    says="Queries whose result must be another one after a commit.",
)  # fmt: skip
VALIDATORS_VALUE = Text(
    "hoodie.precommit.validators.single.value.sql.queries", like="query#result;query#result",
    read_by=_VALIDATORS, says="Queries on `<TABLE_NAME>` or `<ADDED_ROWS>`, each with its value.",
)  # fmt: skip
VALIDATORS_FAILURE = Choice(
    "hoodie.precommit.validators.failure.policy", "FAIL", ("FAIL", "WARN_LOG"), read_by=_VALIDATORS,
    says="Whether a query that is not satisfied ends the transaction, or is a warning in the log.",
)  # fmt: skip
VALIDATOR_OPTIONS = (
    VALIDATORS, VALIDATORS_EQUAL, VALIDATORS_DIFFER, VALIDATORS_VALUE, VALIDATORS_FAILURE,
)  # fmt: skip
CALLBACK_OPTIONS = (
    CALLBACK_ON, CALLBACK_CLASS, CALLBACK_URL, CALLBACK_KEY, CALLBACK_TIMEOUT, CALLBACK_HEADERS,
    KAFKA_SERVERS, KAFKA_TOPIC, KAFKA_PARTITION, KAFKA_ACKS, KAFKA_RETRIES,
)  # fmt: skip
LOG_MAX = Whole(
    "hoodie.logfile.max.size", 1024**3, 1024, 2**40, "bytes", read_by="writers.append",
    says="A log file that has grown beyond this is followed by a new one.",
)  # fmt: skip
BLOCK_FORMAT = Choice(
    "hoodie.logfile.data.block.format", "AVRO", ("AVRO", "PARQUET"), read_by="writers.append",
    says="Format of the blocks of log files.",
)  # fmt: skip
PARTIAL_BLOCKS = Flag(
    "hoodie.mainstem.write.partial.blocks", False, read_by="writers.append",
    says="`update_columns` of any table writes IS_PARTIAL blocks; Hudi's Java readers fail on some of them.",
)  # fmt: skip

# -- columns --------------------------------------------------------------------------------------------

SET_NULL = Flag(
    "hoodie.write.set.null.for.missing.columns", False, read_by="writers.transaction_schema",
    says="Columns that a batch lacks are written as nulls.",
)  # fmt: skip
RECONCILE = Flag(
    "hoodie.datasource.write.reconcile.schema", False, read_by="writers.transaction_schema",
    says="Hudi's older name for the same.",
)  # fmt: skip

# -- base files -----------------------------------------------------------------------------------------

COMPRESSION = Text(
    "hoodie.parquet.compression.codec", "gzip", like="gzip, snappy, zstd, lz4, brotli, none",
    read_by="formats.base_file",
    says="Codec of base files, and of native log files (version 10), whose default is snappy where it pays.",
)  # fmt: skip
GROUP_BYTES = Whole(
    "hoodie.parquet.block.size", 120 * MIB, 1024, 2**40, "bytes", flink="write.parquet.block.size",
    read_by="formats.base_file", says="A row group ends when its rows take this much memory.",
)  # fmt: skip
SMALL_FILE = Whole(
    "hoodie.parquet.small.file.limit", 100 * MIB, 0, 2**40, "bytes", read_by="readers.queries.key_places",
    says="Under a record index, and on tables that only mainstem writes, new keys go to a file group that is"
    " smaller; 0: always to a new one.",
)  # fmt: skip
LOG_RATIO = Text(
    "hoodie.logfile.to.parquet.compression.ratio", "0.35", like="number", read_by="writers.file_sizes",
    says="What a byte of a log file takes in a base file, for the size of a file group that is filled up.",
)  # fmt: skip
MAX_FILE = Whole(
    "hoodie.parquet.max.file.size", 120 * MIB, 1, 2**40, "bytes", read_by="writers.file_sizes",
    says="Of a table without buckets: new keys go to files of about this size. Under consistent hashing: the"
    " size by which file groups are split and merged.",
)  # fmt: skip
AUTO_SPLIT = Flag(
    "hoodie.copyonwrite.insert.auto.split", True, read_by="writers.file_sizes",
    says="Of a table without buckets: the size of new files decides how many new keys each gets.",
)  # fmt: skip
SPLIT_ROWS = Whole(
    "hoodie.copyonwrite.insert.split.size", 500_000, 1, 2**40, "rows", read_by="writers.file_sizes",
    says="How many each gets otherwise.",
)  # fmt: skip
ROW_BYTES = Whole(
    "hoodie.copyonwrite.record.size.estimate", 1024, 1, 2**40, "bytes", read_by="writers.file_sizes",
    says="What a row takes in a file. If it is not given, the rows themselves tell.",
)  # fmt: skip
GZIP_LEVEL = Whole(
    "hoodie.mainstem.parquet.gzip.level", 3, 1, 9, read_by="formats.base_file",
    says="zlib's, if it is given; Java's is 6, with up to 16 % fewer bytes of texts than 3. Without it ISA-L"
    " compresses, in an eighth of the time of 3, to about as many bytes.",
)  # fmt: skip
BLOOM = Text(
    "hoodie.parquet.bloom.filter.enabled", "true", like="true or false", read_by="formats.base_file",
    says="Base files have a Bloom filter of their record keys.",
)  # fmt: skip
BLOOM_ENTRIES = Text(
    "hoodie.index.bloom.num_entries", "60000", like="whole number", read_by="formats.base_file",
    says="How many keys a filter is made for.",
)  # fmt: skip
BLOOM_ERROR = Text(
    "hoodie.index.bloom.fpp", "0.000000001", like="number", read_by="formats.base_file",
    says="Share of absent keys that a filter wrongly reports as present.",
)  # fmt: skip
BLOOM_TYPE = Text(
    "hoodie.bloom.index.filter.type", "DYNAMIC_V0", like="SIMPLE, DYNAMIC_V0", read_by="formats.base_file",
    says="Whether a filter grows with its keys.",
)  # fmt: skip
BLOOM_ENTRIES_MAX = Text(
    "hoodie.bloom.index.filter.dynamic.max.entries", "100000", like="whole number",
    read_by="formats.base_file", says="How many keys it may grow to.",
)  # fmt: skip

#: options that a table's properties supply to writers that were given none; Hudi's Spark writers do the same
SHARED = (HEARTBEAT_MS, HEARTBEAT_MISSES)
#: layout of files; sent to the workers as given
LAYOUT_OPTIONS = (
    COMPRESSION, BLOOM, BLOOM_ENTRIES, BLOOM_ERROR, BLOOM_TYPE, BLOOM_ENTRIES_MAX, GROUP_BYTES, GZIP_LEVEL,
    MAX_FILE, AUTO_SPLIT, SPLIT_ROWS, ROW_BYTES,
)  # fmt: skip
