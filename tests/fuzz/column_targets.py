"""Parsers of VECTOR columns: their texts, their types in Avro schemas, their records."""

from __future__ import annotations

import pyarrow as pa

from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
from mainstem.formats.log_file import BlockKind, Header, LogBlock, data_block, read_blocks
from mainstem.formats.vectors import Vector, parse_vector
from tests.fuzz.corpus import INSTANT
from tests.fuzz.harness import Target

_SCHEMA = pa.schema([Vector(2).field("v"), Vector(3, "INT8").field("b"), Vector(2).field("w")])
_TEXT = arrow_to_avro(_SCHEMA, table_name="t", meta_fields=False)


def _schema(data: bytes) -> object:
    """What is read as a vector is written as the same vector."""
    schema = avro_to_arrow(data.decode("latin-1"), path="f")
    read = pa.schema([field for field in schema if pa.types.is_fixed_size_list(field.type)])
    if read.names:
        text = arrow_to_avro(read, table_name="t", meta_fields=False)
        for field, again in zip(read, avro_to_arrow(text), strict=True):
            assert field.with_nullable(True).equals(again, check_metadata=True), f"{field} becomes {again}"
    return read


def _type(data: bytes) -> object:
    found = parse_vector(data.decode("latin-1"), "f")
    assert parse_vector(str(found), "f") == found
    return found


def _block(data: bytes) -> LogBlock:
    headers = {Header.INSTANT_TIME: INSTANT, Header.SCHEMA: _TEXT}
    return LogBlock(BlockKind.AVRO_DATA, INSTANT, headers, memoryview(data), 0, "f")


def _records(data: bytes) -> object:
    rows = _block(data).table()
    rows.validate(full=True)
    assert rows.schema.equals(_SCHEMA), "rows of another schema"
    return rows


def _contents() -> list[bytes]:
    """Of few records, and of enough for the decoder by columns."""
    found = []
    for count in (2, 40):
        numbers = {field.name: [[1, 2, 3][: field.type.list_size], None] * count for field in _SCHEMA}
        rows = pa.table([pa.array(numbers[f.name], f.type) for f in _SCHEMA], schema=_SCHEMA)
        written = b"".join(map(bytes, data_block(INSTANT, _TEXT, rows)))
        (block,) = read_blocks(memoryview(written), path="f")
        found.append(bytes(block.content))
    return found


COLUMN_TARGETS = [
    Target("Avro schema of vectors", _schema, lambda: [_TEXT.encode()]),
    Target("Avro data block of vectors", _records, _contents),
    Target("VECTOR type of a column", _type,
           lambda: [b"VECTOR(4)", b"VECTOR(384, DOUBLE)", b"vector( 16 , int8 , fixed_bytes )"]),
]  # fmt: skip
