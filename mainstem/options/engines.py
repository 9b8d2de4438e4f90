"""Options of jobs: what an engine's job writes, and how a Spark stream is exactly once."""

from __future__ import annotations

from mainstem.limits import MIB
from mainstem.options.declaration import Choice, Flag, Text, Whole

_STREAM, _WAYS = "spark.sink", "spark.jobs"

OPERATION = Choice(
    "hoodie.datasource.write.operation", "upsert",
    (
        "upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table",
        "delete_partition",
    ),
    read_by="jobs of engines", says="What a job does with its rows.",
)  # fmt: skip
OVERWRITE_MODE = Choice(
    "hoodie.datasource.overwrite.mode", "", ("STATIC", "DYNAMIC"), engines=True, read_by="spark.options",
    says='What mode("overwrite") replaces: the table, or the partitions of the rows.',
)  # fmt: skip
PARTITIONS_TO_DELETE = Text(
    "hoodie.datasource.write.partitions.to.delete", like="paths, separated by commas", engines=True,
    read_by="spark.options", says="The partitions of operation delete_partition.",
)  # fmt: skip
INSERT_OPERATION = Choice(
    "hoodie.spark.sql.insert.into.operation", "INSERT", ("INSERT", "UPSERT", "BULK_INSERT"), engines=True,
    read_by="spark.insert_statements", says="The operation of INSERT INTO.",
)  # fmt: skip
COW_AS_MOR = Flag(
    "hoodie.mainstem.spark.sql.cow.as.mor", False, engines=True, read_by="spark.table_statements",
    says="CREATE TABLE with type = 'cow' makes a merge on read table; else it is refused.",
)  # fmt: skip
MERGE_PARTIAL = Flag(
    "hoodie.spark.sql.merge.into.partial.updates", True, engines=True, read_by="spark.row_statements",
    says="UPDATE and MERGE write only the columns that they set, on a table with partial updates.",
)  # fmt: skip
IDENTIFIER = Text(
    "hoodie.datasource.write.streaming.checkpoint.identifier", like="name", engines=True, read_by=_STREAM,
    says="Identifies a stream among others that write the table.",
)  # fmt: skip
RETRY_COUNT = Whole(
    "hoodie.datasource.write.streaming.retry.count", 3, 0, 1_000, "retries", engines=True, read_by=_STREAM,
    says="How often a failed batch is tried again.",
)  # fmt: skip
RETRY_MS = Whole(
    "hoodie.datasource.write.streaming.retry.interval.ms", 2_000, 0, 3_600_000, "ms", engines=True,
    read_by=_STREAM, says="The pause before that.",
)  # fmt: skip
ORDINAL = Whole(
    "hoodie.mainstem.stream.ordinal", 0, 0, 2**62, read_by=_STREAM,
    says="Number of a write in its micro-batch, where several threads write.",
)  # fmt: skip
BATCH_ID = Whole(
    "hoodie.mainstem.stream.batch.id", 0, 0, 2**62, engines=True, read_by=_STREAM,
    says="Number of the micro-batch, where the sink cannot know it.",
)  # fmt: skip
GUARD = Choice(
    "hoodie.mainstem.stream.guard", "ON", ("ON", "OFF"), engines=True, read_by=_STREAM,
    says="OFF writes a micro-batch again when it is replayed.",
)  # fmt: skip
DRIVER_ROWS = Whole(
    "hoodie.mainstem.spark.driver.rows.max", 100_000, 0, 10**9, "rows", read_by=_WAYS,
    says="The driver writes smaller batches itself.",
)  # fmt: skip
DRIVER_BYTES = Whole(
    "hoodie.mainstem.spark.driver.bytes.max", 64 * MIB, 0, 2**40, "bytes", read_by=_WAYS,
    says="The driver writes smaller batches itself.",
)  # fmt: skip
SHUFFLE = Choice(
    "hoodie.mainstem.spark.shuffle", "AUTO", ("AUTO", "ON", "OFF"), engines=True, read_by=_WAYS,
    says="Whether rows are shuffled by bucket before they are written.",
)  # fmt: skip
