"""Hudi's table functions in Spark SQL that tell of a table: ``hudi_query_timeline``, ``hudi_table_changes``,
``hudi_filesystem_view``, ``hudi_metadata``, with the arguments and columns of Hudi 1.2.

Timeline and file slices are told by the driver when the statement is analysed, changes are an incremental
query, and tasks read the metadata table.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid
from mainstem.layout.slicing import FileSlice
from mainstem.options.reading import BEGIN, CHANGE_FORMAT, END, QUERY_TYPE
from mainstem.spark.metadata_rows import metadata_rows
from mainstem.spark.relations_in_sql import shown
from mainstem.spark.session_options import location_in
from mainstem.storage import paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMELINE = pa.schema([
    ("Timestamp", pa.string()), ("Action", pa.string()), ("State", pa.string()),
    ("Completion_Time", pa.string()), ("File_Name", pa.string()),
    *((name, pa.int64()) for name in (
        "Total_Bytes_Written", "Total_Files_Updated", "Total_Partitions_Written", "Total_Records_Written",
        "Total_Updated_Records_Written", "Total_Write_Errors",
    )),
])  # fmt: skip
_FILES = pa.schema([
    ("File_ID", pa.string()), ("Partition_Path", pa.string()), ("Base_Instant_Time", pa.string()),
    ("Base_File_Path", pa.string()),
    *((name, pa.int64()) for name in (
        "Base_File_Size", "Log_File_Count", "Log_File_Size", "Log_File_Scheduled", "Log_File_Unscheduled",
    )),
])  # fmt: skip


def query_timeline(spark: SparkSession, path: str, given: list[Any]) -> DataFrame:
    """``hudi_query_timeline(table [, archived])``: a row for each instant; ``archived`` is 'true' or 'false',
    the default."""
    archived = _flag("hudi_query_timeline", given)
    rows = []
    for one in _table(spark, path).history().to_pylist():
        if one["archived"] and not archived:
            continue
        times = f"{one['requested']}_{one['completion']}" if one["completion"] else one["requested"]
        suffix = "" if one["completion"] else f".{one['state'].lower()}"
        rows.append({
            "Timestamp": one["requested"], "Action": one["action"], "State": one["state"].upper(),
            "Completion_Time": one["completion"], "File_Name": f"{times}.{one['action']}{suffix}",
            "Total_Bytes_Written": one["bytes"], "Total_Files_Updated": one["files"],
            "Total_Partitions_Written": None if one["partitions"] is None else len(one["partitions"]),
            "Total_Records_Written": one["rows"], "Total_Updated_Records_Written": one["updates"],
            "Total_Write_Errors": one["errors"],
        })  # fmt: skip
    return spark.createDataFrame(pa.Table.from_pylist(rows, _TIMELINE))


def filesystem_view(spark: SparkSession, path: str, given: list[Any]) -> DataFrame:
    """``hudi_filesystem_view(table [, partition])``: a row for each file slice. ``partition``: its path below
    the table, * for any characters. Log bytes are scheduled if a compaction is planned that takes them in."""
    wanted = str(given[0]).strip("/") if given and given[0] else ""
    table = _table(spark, path)
    slices = [s for s in table.file_slices() if not wanted or fnmatchcase(s.partition, wanted)]
    planned = {(s.partition, s.file_id) for s in slices if s.pending}
    rows = [_slice(table, one, planned) for one in slices]
    return spark.createDataFrame(pa.Table.from_pylist(rows, _FILES))


def _slice(table: Table, one: FileSlice, planned: set[tuple[str, str]]) -> dict[str, Any]:
    storage = table.opened.seams.storage

    def size(name: str) -> int:
        info = storage.stat(paths.in_partition(one.partition, name))
        return 0 if info is None else info.size

    logs = sum(map(size, one.log_files))
    scheduled = logs if (one.partition, one.file_id) in planned and not one.pending else 0
    base = one.base_file
    return {
        "File_ID": one.file_id, "Partition_Path": one.partition, "Base_Instant_Time": one.base_instant,
        "Base_File_Path": f"{table.path}/{paths.in_partition(one.partition, base)}" if base else "",
        "Base_File_Size": size(base) if base else 0, "Log_File_Count": len(one.log_files),
        "Log_File_Size": logs, "Log_File_Scheduled": scheduled, "Log_File_Unscheduled": logs - scheduled,
    }  # fmt: skip


def table_changes(spark: SparkSession, path: str, given: list[Any]) -> DataFrame:
    """``hudi_table_changes(table, 'latest_state' | 'cdc', begin [, end])``: completion times, begin not
    included, 'earliest' for all."""
    what = "hudi_table_changes(table, 'latest_state' or 'cdc', begin [, end])"
    if len(given) not in (2, 3) or str(given[0]).lower() not in ("latest_state", "cdc"):
        raise Invalid(f"{what}: found {', '.join(map(repr, given)) or 'the table alone'}")
    options: dict[str, str] = {QUERY_TYPE: "incremental", CHANGE_FORMAT: str(given[0]), BEGIN: str(given[1])}
    if len(given) == 3:
        options[END] = str(given[2])
    return shown(spark, path, options)


def metadata(spark: SparkSession, path: str, given: list[Any]) -> DataFrame:
    """``hudi_metadata(table)``: the records of the metadata table."""
    if given:
        raise Invalid(f"hudi_metadata(table): found {', '.join(map(repr, given))} besides")
    return metadata_rows(spark, path)


def _flag(what: str, given: Sequence[Any]) -> bool:
    text = str(given[0]).lower() if given else "false"
    if text not in ("true", "false") or len(given) > 1:
        raise Invalid(f"{what}(table [, 'true' or 'false']): found {', '.join(map(repr, given))}")
    return text == "true"


def _table(spark: SparkSession, path: str) -> Table:
    return open_table(location_in(spark, path))


FUNCTIONS = {
    "hudi_query_timeline": query_timeline,
    "hudi_filesystem_view": filesystem_view,
    "hudi_table_changes": table_changes,
    "hudi_metadata": metadata,
}
