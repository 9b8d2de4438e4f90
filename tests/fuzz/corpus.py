"""Valid inputs for the fuzz targets: files of the golden tables that Java wrote, and small ones of ours."""

from __future__ import annotations

import fnmatch
import json
import zipfile
from functools import cache

import pyarrow as pa

from mainstem.formats.avro_container import encode_container
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.log_file import (
    BlockKind,
    LogBlock,
    data_block,
    delete_block,
    read_blocks,
    rollback_block,
)
from tests.formats.golden_logs import GOLDEN

INSTANT = "20261120100406890"
_TABLES = (
    "all_types.logs", "log_parquet.logs", "merge_delete_marker.logs", "archive_lsm", "killed_nbcc",
    "merge_multi_ordering.logs", "savepoint_restore", "clustering_mor.scheduled", "nbcc_commit_time.crossed",
    "schema_evolution.logs", "log_compaction.scheduled",
)  # fmt: skip
TABLE = pa.table(
    {
        "_hoodie_commit_time": [INSTANT] * 3,
        "k": ["a", "b", "cé"],
        "n": [1, None, -5],
        "d": [0.5, None, 2.5],
        "l": pa.array([["x", None], None, []], pa.list_(pa.string())),
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
        "s": pa.array([{"a": 1, "b": True}, None, {"a": None, "b": None}]),
    }
)
TEXT = arrow_to_avro(TABLE.schema, table_name="t", meta_fields=True)


@cache
def golden(pattern: str, most: int = 12, bytes_max: int = 30_000) -> tuple[bytes, ...]:
    """Files of the golden tables whose path matches, not empty and not large."""
    found = []
    for table in _TABLES:
        with zipfile.ZipFile(GOLDEN / f"{table}.zip") as archive:
            for info in sorted(archive.infolist(), key=lambda i: i.filename):
                ours = ".hoodie/metadata" not in info.filename and not info.filename.endswith(".crc")
                if ours and 0 < info.file_size <= bytes_max and fnmatch.fnmatch(info.filename, pattern):
                    found.append(archive.read(info))
    return tuple(dict.fromkeys(found))[:most]


@cache
def names() -> tuple[str, ...]:
    """Names of files in the golden tables."""
    found = set()
    for table in _TABLES:
        with zipfile.ZipFile(GOLDEN / f"{table}.zip") as archive:
            found |= {name.rsplit("/", 1)[-1] for name in archive.namelist()}
    return tuple(sorted(found - {""}))


def small_log() -> bytes:
    """One block of each kind that we write."""
    parts = [
        data_block(INSTANT, TEXT, TABLE),
        delete_block(INSTANT, TEXT, pa.array(["a"]), "p", [pa.array([7])]),
        rollback_block("20261120100406891", INSTANT),
        data_block(INSTANT, TEXT, TABLE, block_format="parquet"),
    ]
    return b"".join(b"".join(map(bytes, part)) for part in parts)


@cache
def blocks(kind: BlockKind) -> tuple[LogBlock, ...]:
    """Blocks of one kind out of all golden logs and the small one."""
    logs = (*golden("*.log.*", most=40), small_log())
    found = [block for log in logs for block in read_blocks(memoryview(log), path="f")]
    return tuple(block for block in found if block.kind == kind)


@cache
def strange() -> tuple[bytes, ...]:
    """Containers whose records have the names of Hudi's, and other types behind them."""
    text, number = "string", "long"
    strings = {"type": "array", "items": text}
    nothing = ["null", text]
    fields: list[tuple[str, object, object]] = [
        ("partitionToWriteStats", text, "x"),
        ("partitionToWriteStats", strings, ["x"]),
        ("partitionToWriteStats", {"type": "map", "values": text}, {"p": "x"}),
        ("partitionToWriteStats", {"type": "map", "values": strings}, {"p": ["x"]}),
        ("partitionToWriteStats", {"type": "map", "values": number}, {"p": 7}),
        ("partitionToReplaceFileIds", {"type": "map", "values": number}, {"p": 7}),
        ("partitionToReplaceFileIds", text, "x"),
        ("extraMetadata", number, 7),
        ("extraMetadata", {"type": "map", "values": number}, {"schema": 7, "latest_schema": 7}),
        ("operationType", number, 7),
        ("operations", number, 7),
        ("operations", strings, ["x"]),
        ("operations", {"type": "map", "values": text}, {"x": "y"}),
        ("instantToRollback", text, "x"),
        ("instantToRollback", {"type": "map", "values": text}, {"commitTime": "1"}),
        ("clusteringPlan", text, "x"),
        ("clusteringPlan", {"type": "map", "values": strings}, {"inputGroups": ["x"]}),
        ("earliestCommitToRetain", number, 7),
        ("partitionMetadata", text, "x"),
        ("partitionMetadata", {"type": "map", "values": text}, {"p": "x"}),
        ("savepointedAt", text, "x"),
        ("instantsToRollback", text, "x"),
        ("instantsToRollback", strings, ["x"]),
        ("savepointToRestoreTimestamp", number, 7),
        ("indexPartitionInfos", text, "x"),
        ("indexPartitionInfos", strings, ["x"]),
        ("nothing", nothing, None),
    ]
    made = []
    for name, kind, value in fields:
        record = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind}]}
        made.append(encode_container(json.dumps(record), {name: value}))
    return tuple(made)
