"""Rows computed from a table's data, in the encoding of ``mdt_records`` of the golden tables."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa

from mainstem.formats.bloom_filter import BloomSize
from mainstem.indexing.expected_contents import Contents
from mainstem.layout.properties import load_config
from mainstem.metadata.derive.expression_functions import Expression
from mainstem.metadata.derive.index_rows import bloom_rows, files_rows, record_index_rows, secondary_rows
from mainstem.metadata.derive.statistics_rows import (
    column_stats_rows,
    expression_bloom,
    expression_rows,
    partition_ranges,
    partition_stats_rows,
    stats_rows,
)
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from tests.storage.steps import storage_at

_FIXED = {1: "?", 2: "<i", 3: "<q", 4: "<f", 5: "<d", 8: "<i"}


def contents_of(path: Path) -> Contents:
    """The data of a table on disk, damaged blocks skipped as Java does."""
    storage = storage_at(path)
    return Contents(TableState.load(storage, load_config(storage)), damaged="skip")


def definitions(path: Path) -> dict[str, dict[str, Any]]:
    """``index.json`` as it is."""
    file = path / ".hoodie/.index_defs/index.json"
    return json.loads(file.read_text("utf-8"))["indexDefinitions"] if file.exists() else {}


def statistics(contents: Contents, columns: list[str], version: str) -> pa.Table:
    """``column_stats`` of every file."""
    files = [f for here in contents.files.values() for f in here.values() if f.holds_rows]
    ranges = [(f.partition, f.name, contents.ranges(f, columns)) for f in files]
    bare = [(p, name) for p, name, found in ranges if not found]
    empty = [column_stats_rows(p, name, [], columns, version=version) for p, name in bare]
    return pa.concat_tables([stats_rows(ranges, version=version), *empty])


def partition_statistics(contents: Contents, columns: list[str], version: str) -> pa.Table:
    """``partition_stats`` over the newest slices."""
    found = []
    for partition, slices in contents.slices.items():
        files = [f for s in slices for f in contents.slice_files(s)]
        found.append((partition, partition_ranges(contents.ranges(f, columns) for f in files)))
    return partition_stats_rows(found, version=version, tight=True)


def expression_statistics(contents: Contents, column: str, expression: Expression) -> pa.Table:
    """A column-statistics expression index: files, and partitions over all their files."""
    files, partitions = [], []
    for partition, here in contents.files.items():
        made = {f.name: contents.expression_range(f, column, expression) for f in here.values()}
        files += [(partition, name, r) for name, r in made.items() if r is not None]
        newest = {f.name for s in contents.slices[partition] for f in contents.slice_files(s)}
        ranges = [r for name, r in made.items() if r is not None and name in newest]
        partitions += [(partition, r) for r in partition_ranges([r] for r in ranges)]
    return expression_rows(files, partitions)


def blooms(contents: Contents) -> pa.Table:
    """``bloom_filters`` of every base file that has one."""
    tables = [SCHEMAS[Content.BLOOM].empty_table()]
    for partition, here in contents.files.items():
        found = [(f, contents.bloom(f)) for f in here.values() if f.is_base]
        rows = [
            (f.name, b[0], b[1], paths.parse_base_name(f.name).instant) for f, b in found if b is not None
        ]
        tables.append(bloom_rows(partition, rows))
    return pa.concat_tables(tables)


def expression_blooms(contents: Contents, definition: dict[str, Any], size: BloomSize) -> pa.Table:
    """A bloom expression index of every base file."""
    expression = Expression(definition["indexFunction"], definition["indexOptions"])
    (column,) = definition["sourceFields"]
    tables = [SCHEMAS[Content.BLOOM].empty_table()]
    for partition, here in contents.files.items():
        bases = [f for f in here.values() if f.is_base]
        made = [(f, expression_bloom(contents.batches(f, [column]), column, expression, size)) for f in bases]
        tables.append(bloom_rows(partition, [(f.name, kind, text, "") for f, (kind, text) in made]))
    return pa.concat_tables(tables)


def record_index(contents: Contents) -> pa.Table:
    """``record_index`` of the newest slices; a key's instant is that of its row."""
    tables = [SCHEMAS[Content.RECORDS].empty_table()]
    read = contents.merged()
    for partition, slices in contents.slices.items():
        for s in slices:
            for batch in read(s):
                keys = batch.column("_hoodie_record_key")
                tables.append(record_index_rows(keys, partition, s.file_id, s.base_instant))
    return pa.concat_tables(tables)


def secondary_index(contents: Contents, column: str) -> pa.Table:
    """A secondary index of the newest slices."""
    tables = [SCHEMAS[Content.SECONDARY].empty_table()]
    read = contents.merged([column])
    for slices in contents.slices.values():
        for s in slices:
            tables += [secondary_rows(b.column(column), b.column("_hoodie_record_key")) for b in read(s)]
    return pa.concat_tables(tables)


def listing(contents: Contents) -> pa.Table:
    """``files``."""
    return files_rows({p: {f.name: f.size for f in here.values()} for p, here in contents.files.items()})


# ------------------------------------------------------------------------------------- as the json


def as_java(content: Content, rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as the json has them."""
    if content is Content.FILES:
        yield from _files(rows)
        return
    made = {
        Content.STATS: _stats, Content.BLOOM: _bloom, Content.RECORDS: _record, Content.SECONDARY: _secondary,
    }[content]  # fmt: skip
    for row in rows.to_pylist():
        yield made(row)


def texts(records: Any) -> Counter[str]:
    """Records as texts that compare."""
    return Counter(json.dumps(record, sort_keys=True) for record in records)


def _files(rows: pa.Table) -> Iterator[dict[str, Any]]:
    keys: dict[str, list] = {}
    for row in rows.to_pylist():
        here = keys.setdefault(row["key"], [])
        if row["name"] is not None:
            here.append([row["name"], {"size": row["size"], "isDeleted": row["deleted"]}])
    for key, names in keys.items():
        kind = 1 if key == "__all_partitions__" else 2
        yield {"key": key, "type": kind, "filesystemMetadata": sorted(names)}


def _stats(row: dict[str, Any]) -> dict[str, Any]:
    found = {
        "fileName": row["file"], "columnName": row["column"],
        "minValue": _value(row["min_kind"], row["min"]), "maxValue": _value(row["max_kind"], row["max"]),
        "valueCount": row["value_count"], "nullCount": row["null_count"], "totalSize": row["total_size"],
        "totalUncompressedSize": row["total_uncompressed_size"], "isDeleted": row["deleted"],
        "isTightBound": row["tight"],
    }  # fmt: skip
    if row["ordinal"] is not None:
        found["valueType"] = {"typeOrdinal": row["ordinal"]}
        if row["type_info"] is not None:
            found["valueType"]["additionalInfo"] = row["type_info"]
    return {
        "key": row["key"], "type": row["type"],
        "ColumnStatsMetadata": {k: v for k, v in found.items() if v is not None},
    }  # fmt: skip


def _value(kind: int, data: bytes | None) -> dict[str, Any] | None:
    if not kind:
        return None
    if kind in _FIXED:
        value = struct.unpack(_FIXED[kind], data)[0]
        if isinstance(value, float) and not math.isfinite(value):
            value = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    elif kind == 9:
        with localcontext(prec=60):
            value = str(Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-15))
    else:
        value = data.hex() if kind == 6 else data.decode("utf-8", "surrogatepass")
    return {f"member{kind - 1}": {"value": value}}


def _bloom(row: dict[str, Any]) -> dict[str, Any]:
    data = row["bloom"]
    found = {
        "type": row["type"], "timestamp": row["timestamp"], "isDeleted": row["deleted"],
        "bloomFilter_len": len(data), "bloomFilter_md5": hashlib.md5(data).hexdigest(),
    }  # fmt: skip
    return {"key": row["key"], "type": 4, "BloomFilterMetadata": found}


def _record(row: dict[str, Any]) -> dict[str, Any]:
    uuid, _, number = row["file_id"].rpartition("-")
    found: dict[str, Any] = {"partitionName": row["partition"], "instantTime": row["instant_ms"]}
    found["fileIdEncoding"] = row["encoding"]
    if row["encoding"] == 1:
        found |= {"fileIdHighBits": -1, "fileIdLowBits": -1, "fileIndex": -1, "fileId": row["file_id"]}
    else:
        high, low = struct.unpack(">qq", UUID(uuid).bytes)
        found |= {"fileIdHighBits": high, "fileIdLowBits": low, "fileIndex": int(number), "fileId": ""}
    return {"key": row["key"], "type": 5, "recordIndexMetadata": found}


def _secondary(row: dict[str, Any]) -> dict[str, Any]:
    return {"key": row["key"], "type": 7, "SecondaryIndexMetadata": {"isDeleted": row["deleted"]}}
