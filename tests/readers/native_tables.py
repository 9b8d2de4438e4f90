"""Tables of version 10 made of tables that mainstem wrote: each block of a log becomes a native log file.

Rows, deletes, instants and their order stay as they are, so every query must give the same rows as before.
The files have the footers of Java's, seen in tests/golden (v10_*).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.formats.avro_container import decode_container, encode_container
from mainstem.formats.avro_schema import avro_to_arrow
from mainstem.formats.base_file import Collected, SinkFile
from mainstem.formats.log_file import BlockKind, Header, LogBlock, read_blocks
from mainstem.formats.native_log import HEADER_KEY, KEY_COLUMN
from mainstem.formats.parquet_footer import close_with_notes
from mainstem.layout.committed_files import forget
from mainstem.layout.properties import load_config
from mainstem.merge.ordering_values import align
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text

TIMELINE = ".hoodie/timeline"


def native_name(log: paths.LogName, kind: str, version: int) -> str:
    return f"{log.file_id}_{log.token}_{log.instant}_{version}.{kind}.parquet"


def write_native(
    path: Path, rows: pa.Table, header: dict[str, Any] | str, *, group_rows: int | None = None
) -> int:
    """A native log file with this header; returns its size."""
    collected = Collected()
    output = SinkFile(collected)
    file = pa.PythonFile(output, mode="w")
    with pq.ParquetWriter(file, rows.schema, compression="gzip", store_schema=False) as writer:
        writer.write_table(rows, row_group_size=group_rows)
        text = header if isinstance(header, str) else json.dumps(header)
        close_with_notes(writer, output, {HEADER_KEY: text})
    output.flush()
    path.write_bytes(collected.stream.getvalue())
    return path.stat().st_size


def header_of(block: LogBlock) -> dict[str, str]:
    return {"VERSION": "2", **{Header(number).name: text for number, text in block.headers.items()}}


def deletes_of(block: LogBlock, ordering: tuple[str, ...]) -> pa.Table:
    """A delete block's rows as a native deletes file has them."""
    found = block.deletes().combine_chunks()
    columns: dict[str, Any] = {KEY_COLUMN: found["record_key"]}
    given = found["ordering"].combine_chunks()
    parts = given.flatten() if pa.types.is_struct(given.type) else [given]
    schema = avro_to_arrow(block.schema_text)
    unconditional = found["ordering_is_default"].combine_chunks()
    for at, name in enumerate(ordering):
        kind = schema.field(name).type
        part = align(parts[at], kind, block.path) if at < len(parts) else pa.nulls(found.num_rows, kind)
        columns[name] = pc.if_else(unconditional, pa.scalar(None, kind), part)
    return pa.table(columns)


def to_version_10(
    path: Path, *, layout: str = "default", group_rows: int | None = None, only_after: str = ""
) -> None:
    """Turn the log files of instants later than ``only_after`` into native ones, and the table's version."""
    config = load_config(LocalStorage(str(path)))
    ordering = () if config.merge_mode == "COMMIT_TIME_ORDERING" else config.ordering
    for file in sorted((path / TIMELINE).glob("*.deltacommit")):
        if file.name > only_after:
            _convert(path, file, ordering, layout, group_rows)
    properties = path / ".hoodie/hoodie.properties"
    lines = [x for x in properties.read_text().splitlines() if not x.startswith("hoodie.table.version=")]
    lines += ["hoodie.table.version=10", f"hoodie.table.storage.layout={layout}"]
    properties.write_text("\n".join(lines) + "\n")
    forget()


def _convert(
    path: Path, file: Path, ordering: tuple[str, ...], layout: str, group_rows: int | None
) -> None:
    record, _ = decode_container(file.read_bytes(), path=file.name)
    for partition, stats in record["partitionToWriteStats"].items():
        made = []
        for stat in stats:
            log = paths.parse_log_name(stat["path"].rpartition("/")[2])
            if log is None or log.is_native:
                made.append(stat)
                continue
            old = path / stat["path"]
            for version, block in enumerate(read_blocks(memoryview(old.read_bytes()), path=stat["path"]), 1):
                deletes = block.kind is BlockKind.DELETE
                rows = deletes_of(block, ordering) if deletes else block.table()
                if layout == "lsm_tree":
                    order = pc.sort_indices(rows[KEY_COLUMN].cast(pa.binary()))
                    rows = rows.take(order)
                name = native_name(log, "deletes" if deletes else "log", 100 * log.version + version)
                size = write_native(old.parent / name, rows, header_of(block), group_rows=group_rows)
                made.append({
                    **stat, "path": paths.in_partition(partition, name), "fileSizeInBytes": size,
                    "logFiles": [name], "totalWriteBytes": size,
                })  # fmt: skip
            old.unlink()
        record["partitionToWriteStats"][partition] = made
    file.write_bytes(encode_container(schema_text("HoodieCommitMetadata"), record, VERSION_MARK))
