"""Parses the schema embedded in a file of the metadata table, for decoder and encoder.

Statistics values are Avro unions of up to 14 types, which table columns never are. Here their branches are
recognised by the names of their records, and a branch's number becomes a kind of ``typed_bounds``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from mainstem import limits
from mainstem.errors import CorruptTable
from mainstem.formats.avro_schema import AvroType, record_type
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records.typed_bounds import ARRAY, KINDS

#: content -> the record's field that holds its rows
PAYLOADS = {
    Content.FILES: "filesystemMetadata",
    Content.STATS: "ColumnStatsMetadata",
    Content.BLOOM: "BloomFilterMetadata",
    Content.RECORDS: "recordIndexMetadata",
    Content.SECONDARY: "SecondaryIndexMetadata",
}
#: content -> values of ``type`` in its rows
TYPES = {
    Content.FILES: (1, 2),
    Content.STATS: (3, 6),
    Content.BLOOM: (4,),
    Content.RECORDS: (5,),
    Content.SECONDARY: (7,),
}
UNIONS = ("minValue", "maxValue")
FILE_NAME = "_hoodie_file_name"
#: field of a payload -> column of the flat table, where the names differ
FLAT_COLUMNS = {
    "fileName": "file", "columnName": "column", "valueCount": "value_count", "nullCount": "null_count",
    "totalSize": "total_size", "totalUncompressedSize": "total_uncompressed_size", "isDeleted": "deleted",
    "isTightBound": "tight", "bloomFilter": "bloom", "partitionName": "partition",
    "instantTime": "instant_ms",
}  # fmt: skip
_WRAPPERS = {
    name: kind
    for kind, name in enumerate(
        ("BooleanWrapper", "IntWrapper", "LongWrapper", "FloatWrapper", "DoubleWrapper", "BytesWrapper",
         "StringWrapper", "DateWrapper", "DecimalWrapper", "TimeMicrosWrapper", "TimestampMicrosWrapper",
         "LocalDateWrapper", "ArrayWrapper"),
        1,
    )
}  # fmt: skip
#: kind -> Avro type of its values
WRAPPED: dict[int, AvroType] = dict(
    enumerate(
        (AvroType("boolean"), AvroType("int"), AvroType("long"), AvroType("float"), AvroType("double"),
         AvroType("bytes"), AvroType("string"), AvroType("int"), AvroType("bytes"), AvroType("long"),
         AvroType("long"), AvroType("int")),
        1,
    )
)  # fmt: skip


@dataclass(frozen=True)
class RecordSchema:
    """``record``: the type, with bytes in place of the unions of statistics; ``branches``: for ``minValue``
    and ``maxValue`` the kind of each branch, 0 for null, -1 if unknown."""

    record: AvroType
    branches: dict[str, tuple[int, ...]]

    def payload(self, content: Content) -> AvroType | None:
        """Type of the field that holds rows of this content; None if the schema lacks it."""
        return dict(self.record.fields).get(PAYLOADS[content])


def schema_of_version(table_version: int) -> str:
    """The schema text that writers of a table version (8 or 9) embed."""
    return _stored(8 if table_version < 9 else 9)


@lru_cache(maxsize=4)
def commit_schema(table_version: int) -> str:
    """The schema named in commits of the metadata table: without meta fields, letter for letter Java's.

    A Java writer that compacts the metadata table uses it as its writer schema. With another one it fails:
    ``HoodieMetadataPayload.getInsertValue`` expects one particular object and the positions of its fields.
    """
    made = json.loads(schema_of_version(table_version))
    made["fields"] = [field for field in made["fields"] if not field["name"].startswith("_hoodie_")]
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=4)
def _stored(version: int) -> str:
    folder = resources.files("mainstem.metadata") / "schemas"
    text = (folder / f"HoodieMetadataRecord.v{version}.avsc").read_text(encoding="utf-8")
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=16)
def parse_record_schema(text: str, path: str = "") -> RecordSchema:
    """The parsed form of an embedded schema. ``CorruptTable`` if it is no record of the metadata table."""
    if len(text) > limits.SCHEMA_BYTES_MAX:
        raise CorruptTable(f"an Avro schema of {len(text)} characters", path=path)
    try:
        node = json.loads(text)
        branches = _take_unions(node)
        simpler = json.dumps(node)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptTable(f"no schema of metadata records: {error!r:.200}", path=path) from None
    record = record_type(simpler, path)
    kinds = dict(record.fields)
    if kinds.get("key", AvroType("")).kind != "string" or kinds.get("type", AvroType("")).kind != "int":
        raise CorruptTable("the schema of metadata records has no text 'key' or no int 'type'", path=path)
    return RecordSchema(record, branches)


def _take_unions(node: dict) -> dict[str, tuple[int, ...]]:
    """Replace the unions of wrappers in ``node`` by ["null", "bytes"]; return the kinds of their branches."""
    branches = {}
    for field in node["fields"]:
        if field["name"] != PAYLOADS[Content.STATS]:
            continue
        for record in field["type"]:
            for inner in record["fields"] if isinstance(record, dict) else ():
                if inner["name"] in UNIONS and isinstance(inner["type"], list):
                    branches[inner["name"]] = tuple(_kind_of(branch) for branch in inner["type"])
                    inner["type"] = ["null", "bytes"]
    return branches


def _kind_of(branch: object) -> int:
    if branch == "null":
        return 0
    name = branch["name"] if isinstance(branch, dict) else str(branch)
    kind = _WRAPPERS.get(name.rpartition(".")[2], -1)
    return kind if kind in KINDS or kind == ARRAY else -1
