"""Prefixes of option names: which names belong together, and which have no effect on rows."""

from __future__ import annotations

OWN = "hoodie.mainstem."

#: prefixes of service options, Flink's included; other options may share them
SERVICES = (
    "hoodie.compact.", "hoodie.compaction.", "hoodie.clean.", "hoodie.cleaner.", "hoodie.archive.",
    "hoodie.keep.", "hoodie.commits.archival.", "hoodie.timeline.compaction.", "hoodie.timeline.manifest.",
    "hoodie.log.compaction.", "hoodie.optimized.log.blocks.", "hoodie.table.services.",
    "hoodie.datasource.compaction.", "hoodie.datasource.write.streaming.disable.", "hoodie.clustering.",
    "hoodie.memory.", "hoodie.metadata.compact.", "hoodie.metadata.derive.", "compaction.", "clean.",
    "archive.", "clustering.", "hoodie.layout.optimize.",
)  # fmt: skip
#: of the one service of Hudi's that is here only as an order of rows
CLUSTERING = "hoodie.clustering."
#: those that jobs of engines pass on if a service reads them; the others are harmless or unknown
SERVICES_OF_JOBS = (
    "hoodie.compact", "hoodie.clean",
    *(prefix for prefix in SERVICES if prefix not in ("archive.", "clustering.")),
)  # fmt: skip
#: always passed on to the table; the code that reads them refuses unknown ones
PASSED = ("hoodie.write.lock.", "hoodie.time.generator.", "hoodie.client.heartbeat.")
#: speed and size of Spark jobs and files: no effect on the rows. Warned about once, then left alone.
HARMLESS = (
    "hoodie.upsert.shuffle.", "hoodie.insert.shuffle.", "hoodie.delete.shuffle.",
    "hoodie.bulkinsert.", "hoodie.parquet.", "hoodie.finalize.write.",
    "hoodie.rollback.parallelism", "hoodie.markers.", "hoodie.compact.", "hoodie.clean.",
    "hoodie.cleaner.", "hoodie.keep.", "hoodie.commits.", "hoodie.archive.", "hoodie.memory.",
    "hoodie.metrics.", "hoodie.filesystem.", "hoodie.bloom.", "hoodie.consistency.",
    "hoodie.write.status.",
    # Of the metadata table's insides, of other indexes, of blocks' sizes.
    "hoodie.metadata.", "hoodie.index.bloom.", "hoodie.bucket.index.min.", "hoodie.bucket.index.max.",
    "hoodie.logfile.data.block.max.", "hoodie.write.record.positions", "hoodie.merge.small.file.",
    CLUSTERING, "hoodie.layout.optimize.",
)  # fmt: skip
LOCKS = "hoodie.write.lock."
#: kept in ``hoodie.properties`` where a table is made with them
OF_NEW_TABLES = ("hoodie.table.", "hoodie.datasource.write.", "hoodie.record.merge.")
#: under which a table stores the properties of payload classes
MERGE_PROPERTY = "hoodie.record.merge.property."
TIME_PARTITIONS, TIME_PARTITIONS_OLD = "hoodie.keygen.timebased.", "hoodie.deltastreamer.keygen.timebased."
VECTOR = "hoodie.mainstem.vector."
