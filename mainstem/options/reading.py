"""Options of reads: on an open table, and in queries of engines under Hudi's names."""

from __future__ import annotations

from mainstem.options.declaration import Choice, Flag, Text, Whole

_QUERIES = "spark"

DAMAGED = Choice(
    "mainstem.read.damaged", "ERROR", ("ERROR", "SKIP"), read_by="readers",
    says="Whether a damaged file fails the read, or is left out with a warning.",
)  # fmt: skip
DATA_SKIPPING = Flag(
    "hoodie.enable.data.skipping", True, read_by="readers.skipping",
    says="Reads skip files in which no row passes the filter.",
)  # fmt: skip
QUERY_TYPE = Choice(
    "hoodie.datasource.query.type", "SNAPSHOT", ("SNAPSHOT", "READ_OPTIMIZED", "INCREMENTAL"), engines=True,
    read_by="spark, flink", says="All rows, those of base files only, or those that some commits wrote.",
)  # fmt: skip
MERGE_TYPE = Text(
    "hoodie.datasource.merge.type", "payload_combine", engines=True, read_by="flink",
    says="Only merged rows are shown.",
)  # fmt: skip
BEGIN = Text(
    "hoodie.datasource.read.begin.instanttime", like="completion time, or earliest", engines=True,
    read_by=_QUERIES, says="An incremental query begins after this completion time.",
)  # fmt: skip
END = Text(
    "hoodie.datasource.read.end.instanttime", like="completion time", engines=True, read_by=_QUERIES,
    says="An incremental query ends with this completion time.",
)  # fmt: skip
AS_OF = Text(
    "as.of.instant",
    like="instant time",
    engines=True,
    read_by=_QUERIES,
    says="The table as of a requested time.",
)
CHANGE_FORMAT = Choice(
    "hoodie.datasource.query.incremental.format", "LATEST_STATE", ("LATEST_STATE", "CDC"), engines=True,
    read_by=_QUERIES, says="Each row's latest state in a range of commits, or each change with both images.",
)  # fmt: skip
START_OFFSET = Text(
    # startOffset, without case
    "hoodie.datasource.streaming.startoffset", "earliest", like="earliest, latest or a completion time",
    engines=True, read_by=_QUERIES, says="Where a stream begins.",
)  # fmt: skip
AS_OF_COMPLETION = Text(
    "hoodie.mainstem.read.as.of.completion", like="completion time", engines=True, read_by=_QUERIES,
    says="The table with exactly the instants completed at or before this time.",
)  # fmt: skip
DELETES = Choice(
    "hoodie.mainstem.read.deletes", "FALSE", ("TRUE", "FALSE"), engines=True, read_by=_QUERIES,
    says="Changes include a row for each deleted key.",
)  # fmt: skip
IMAGES = Choice(
    "hoodie.mainstem.read.cdc.images", "JSON", ("JSON", "STRUCT"), engines=True, read_by=_QUERIES,
    says="The form of a row before and after a change.",
)  # fmt: skip
MAX_INSTANTS = Whole(
    "hoodie.mainstem.read.max.instants.per.trigger", 0, 0, 2**62, "instants", engines=True, read_by=_QUERIES,
    says="Commits that one batch of a stream reads at most; by default all.",
)  # fmt: skip
