"""Fuzz targets of the metadata table's rows, of their schema, and of the definitions of indexes."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable

import pyarrow as pa

from mainstem.formats.bloom_filter import DYNAMIC, SIMPLE, BloomSize, StoredFilter, bloom_text
from mainstem.metadata import index_definitions
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.flat_rows import SCHEMAS, decode, encode
from mainstem.metadata.records.record_schema import parse_record_schema, schema_of_version
from mainstem.metadata.records.typed_bounds import column_values
from tests.formats.golden_logs import GOLDEN
from tests.fuzz.harness import Target

_KEYS = pa.array(["a", "key-2", "\u00e9" * 30, "", "k5"])
_UUID = "94e5e473-c7c4-471d-9290-f11ded97537b-0"
_ROWS: dict[Content, list[dict]] = {
    Content.FILES: [{"key": "p", "name": f"f{i}", "size": 9**i, "deleted": i == 2} for i in range(3)],
    Content.SECONDARY: [{"key": "v$k", "deleted": False}],
    Content.RECORDS: [{"key": "k", "partition": "p", "file_id": _UUID, "instant_ms": 5, "encoding": 0}],
    Content.BLOOM: [{"key": "b", "type": "SIMPLE", "timestamp": "1", "bloom": b"xy", "deleted": False}],
    Content.STATS: [
        {"key": "s", "type": 3, "file": "f", "column": "c", "min_kind": kind, "min": data, "max_kind": kind,
         "max": data, "value_count": 3, "null_count": 0, "deleted": False, "tight": True, "ordinal": ordinal,
         "type_info": info}
        for kind, data, ordinal, info in (
            (6, b"\x01\x80", 10, "10,2"), (7, b"t", 7, None), (3, b"\1" * 8, 4, None),
        )
    ],
}  # fmt: skip


def _values(content: Content) -> Callable[[bytes], object]:
    """A parser of one value, which all rows have: of few rows row by row, of more by columns."""

    def rows(data: bytes, copies: int) -> list[dict]:
        keys = pa.array([f"k{i:02d}".encode() for i in range(copies)], pa.binary())
        values = pa.array([data] * copies, pa.binary())
        found = decode(content, keys, values, schema_of_version(9), path="f")
        found.validate(full=True)
        assert found.schema == SCHEMAS[content]
        if content == Content.STATS:
            for kind in (pa.int64(), pa.string(), pa.decimal128(10, 2), pa.timestamp("us")):
                assert len(column_values(found, "min", kind, path="f")) == copies
        return [row for row in found.to_pylist() if row["key"] == "k00"]

    def run(data: bytes) -> object:
        few, many = rows(data, 2), rows(data, 30)
        assert few == many or "nan" in str(few), "few and many rows are decoded differently"
        return few

    return run


def _seeds(content: Content) -> Callable[[], list[bytes]]:
    def made() -> list[bytes]:
        found = []
        for rows in [_ROWS[content]] if content == Content.FILES else [[row] for row in _ROWS[content]]:
            table = pa.Table.from_pylist(rows, schema=SCHEMAS[content])
            found += encode(content, table, schema_of_version(9))[1].to_pylist()
        return found

    return made


def _wrapper(name: str, kind: str) -> dict:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}


def _small_schema() -> bytes:
    union = ["null", _wrapper("IntWrapper", "int"), _wrapper("StringWrapper", "string")]
    stats = [{"name": "minValue", "type": union}, {"name": "maxValue", "type": ["null", "IntWrapper"]}]
    payload = ["null", {"type": "record", "name": "S", "fields": stats}]
    fields = [{"name": "key", "type": "string"}, {"name": "type", "type": "int"},
              {"name": "ColumnStatsMetadata", "type": payload}]  # fmt: skip
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": fields}).encode()


def _definitions(data: bytes) -> object:
    found = index_definitions.parse_definitions(data, path="f")
    again = index_definitions.parse_definitions(index_definitions.encode_definitions(found), path="f")
    assert again == found
    return found


def _definition_seeds() -> list[bytes]:
    found = [b'{"indexDefinitions": {"a": {"indexName": "a", "sourceFields": ["x"], "version": "V1"}}}']
    for name in ("mdt_all", "cow_basic_v8"):
        with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
            path = next(p for p in archive.namelist() if p.endswith("index_defs/index.json"))
            found.append(archive.read(path))
    return found


def _bloom(data: bytes) -> object:
    return StoredFilter(data, path="f").may_contain(_KEYS).tolist()


def _blooms() -> list[bytes]:
    sizes = [BloomSize(entries=3, kind=kind, entries_max=9) for kind in (SIMPLE, DYNAMIC)]
    return [bloom_text(_KEYS, size).encode() for size in sizes]


METADATA_TARGETS = [
    *(Target(f"metadata rows: {content}", _values(content), _seeds(content)) for content in Content),
    Target("schema of metadata rows", lambda data: parse_record_schema(data.decode("latin-1"), "f"),
           lambda: [_small_schema()]),
    Target("index definitions", _definitions, _definition_seeds),
    Target("stored bloom filter", _bloom, _blooms),
]  # fmt: skip
