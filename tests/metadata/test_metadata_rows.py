"""Goal: rows of the metadata table are decoded and encoded as Java does, and damage is a clear error.

Method: every HFILE block of Java's tables is decoded, encoded again and compared byte for byte; rows made
here, few and many, go through both schemas; values of every type through the statistics' bytes.
"""

from __future__ import annotations

import datetime
import decimal
import random

import numpy as np
import pyarrow as pa
import pytest

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.metadata.metadata_partitions import Content, content_of
from mainstem.metadata.records import typed_bounds
from mainstem.metadata.records.encoding_few import FEW
from mainstem.metadata.records.flat_rows import SCHEMAS, decode, encode, encode_keyed, schema_of_version
from mainstem.metadata.records.keyed_rows import KeyedRows
from tests.golden_tables.tables import unpack

UUID = "94e5e473-c7c4-471d-9290-f11ded97537b"
MEMBERS = {
    Content.FILES: [
        ("a=1", "f1.parquet", 10, False), ("a=1", "f2.parquet", 0, True), ("empty", None, 0, False),
        ("__all_partitions__", "a=1", 0, False),
    ],
    Content.SECONDARY: [("v$k", False), ("\0$k2", True)],
    Content.RECORDS: [
        ("k1", "a=1", f"{UUID}-0", 1_772_922_372_542, 0, None), ("k2", "", UUID, None, 0, 7),
        ("é", None, "00000003-plain-text", -5, 1, None),
    ],
    Content.BLOOM: [("b1", "DYNAMIC_V0", "20260101000000000", b"/////w==", False), ("b2", "", "", b"", True)],
    Content.STATS: [
        ("s1", 3, "f", "c", 2, b"\x01\0\0\0", 2, b"\xff\xff\xff\x7f", 9, 1, 10, 20, False, False, 3, None),
        ("s2", 6, "p", "c", 7, b"a\xc3\xa9", 7, b"z", 9, 0, None, None, False, True, 7, None),
        ("s3", 3, "f", "d", 6, b"\xff\x6a", 6, b"\x00\x80", 2, 0, 1, 1, False, False, 10, "10,2"),
        ("s4", 3, None, None, 0, None, 0, None, None, None, None, None, True, False, None, None),
        ("s5", 3, "f", "e", 1, b"\x01", 5, b"\0\0\0\0\0\0\xf8\x3f", 1, 0, 0, 0, False, False, None, None),
    ],
}  # fmt: skip


def rows_of(content: Content, copies: int = 1) -> pa.Table:
    rows = [(f"{row[0]}{'' if copies == 1 else f'~{i:03d}'}", *row[1:]) for i in range(copies)
            for row in MEMBERS[content]]  # fmt: skip
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMAS[content], strict=True)],
                    schema=SCHEMAS[content])  # fmt: skip


def by_key(rows: pa.Table) -> list[dict]:
    return sorted(rows.to_pylist(), key=lambda row: (row["key"], row.get("name") or ""))


@pytest.mark.parametrize("copies", [1, 40], ids=["few", "many"])
@pytest.mark.parametrize("content", list(Content))
def test_rows_come_back_as_they_were_written(content: Content, copies: int) -> None:
    rows = rows_of(content, copies)
    keys, values = encode(content, rows, schema_of_version(9))
    assert keys.to_pylist() == sorted(keys.to_pylist())
    found = decode(content, keys, values, schema_of_version(9))
    assert found.schema == SCHEMAS[content]
    assert by_key(found) == by_key(rows)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("content", list(Content))
def test_few_rows_have_the_same_bytes_as_among_many(content: Content, version: int) -> None:
    many, text = rows_of(content, copies=2 * FEW), schema_of_version(version)
    all_keys, all_values = encode(content, many, text, file_name="f.hfile")
    expected = dict(zip(all_keys.to_pylist(), all_values.to_pylist(), strict=True))
    few = many.slice(0, FEW)
    keys, values = encode(content, few, text, file_name="f.hfile")
    assert many.num_rows > FEW
    assert set(keys.to_pylist()) == {key.encode() for key in few["key"].to_pylist()}
    assert values.to_pylist() == [expected[key] for key in keys.to_pylist()]


@pytest.mark.parametrize("copies", [3, 2 * FEW])
@pytest.mark.parametrize("content", [Content.RECORDS, Content.SECONDARY])
def test_rows_of_an_index_of_keys_have_the_same_bytes_by_their_kinds(content: Content, copies: int) -> None:
    text = schema_of_version(9)
    kinds = rows_of(content, copies)
    groups = []
    for number in range(4):
        keys = pa.array(sorted(f"{number}-{key}" for key in kinds["key"].to_pylist()))
        which = np.arange(len(keys))[::-1].copy()
        groups.append(KeyedRows(keys, which, kinds if number < 2 else kinds.slice(0)))
    groups.insert(1, groups[0].part(0, 0))
    groups[3:4] = [groups[3].part(0, 1), groups[3].part(1, 2), groups[3].part(2, len(kinds))]
    keys, values = encode_keyed(content, groups, text)
    expected = [encode(content, group.table(), text) for group in groups]
    assert keys.to_pylist() == [key for some, _ in expected for key in some.to_pylist()]
    assert values.to_pylist() == [value for _, some in expected for value in some.to_pylist()]


def test_statistics_of_version_8_have_no_value_type() -> None:
    rows = rows_of(Content.STATS)
    found = decode(Content.STATS, *encode(Content.STATS, rows, schema_of_version(8)), schema_of_version(8))
    plain = rows.drop_columns(["ordinal", "type_info"])
    assert by_key(found.drop_columns(["ordinal", "type_info"])) == by_key(plain)
    assert found["ordinal"].null_count == len(found)


def hfile_blocks(path, suffix: str = "") -> list:
    logs = sorted(p for p in (path / ".hoodie/metadata").glob("*/.*.log.*") if not p.name.endswith(".crc"))
    found = [(p, read_blocks(memoryview(p.read_bytes()), path=p.name)) for p in logs]
    return [(p, b) for p, blocks in found for b in blocks if b.kind == BlockKind.HFILE_DATA]


@pytest.mark.parametrize(
    "name", ["mdt_all", "mdt_partitioned_rli", "cow_basic_v8", "all_types", "clean_mor_mdt"]
)
def test_rows_that_java_wrote_are_encoded_to_the_same_bytes(name: str, tmp_path) -> None:
    blocks = hfile_blocks(unpack(name, tmp_path))
    assert blocks
    for path, block in blocks:
        content = content_of(path.parent.name)
        keys, values = block.hfile().rows()
        rows = decode(content, keys, values, block.schema_text, path=path.name)
        again = encode(content, rows, block.schema_text)
        assert again[0].equals(keys)
        if content == Content.FILES:  # Java's order of names is that of a hash map
            assert [sorted(v) for v in again[1].to_pylist()] == [sorted(v) for v in values.to_pylist()]
        else:
            assert again[1].equals(values)


@pytest.mark.parametrize("content", list(Content))
def test_rows_of_another_content_are_refused_by_name(content: Content) -> None:
    other = Content.SECONDARY if content != Content.SECONDARY else Content.BLOOM
    keys, values = encode(other, rows_of(other), schema_of_version(9))
    with pytest.raises(CorruptTable, match="where/it/is"):
        decode(content, keys, values, schema_of_version(9), path="where/it/is")


@pytest.mark.parametrize("content", list(Content))
def test_a_damaged_value_is_an_error_that_names_the_file_or_another_row(content: Content) -> None:
    keys, values = encode(content, rows_of(content, 30), schema_of_version(9))
    draw = random.Random(7)
    for _ in range(60):
        data = [bytearray(v) for v in values.to_pylist()]
        row = draw.choice(data)
        if draw.random() < 0.5:
            row[draw.randrange(len(row))] ^= 1 << draw.randrange(8)
        else:
            del row[draw.randrange(len(row)) :]
        try:
            found = decode(
                content, keys, pa.array(map(bytes, data), pa.binary()), schema_of_version(9), path="f/x"
            )
            found.validate(full=True)
        except MainstemError as error:
            assert "f/x" in str(error)


def test_two_rows_of_one_key_are_not_written() -> None:
    rows = rows_of(Content.SECONDARY)
    with pytest.raises(Invalid, match="each key once"):
        encode(Content.SECONDARY, pa.concat_tables([rows, rows]), schema_of_version(9))


def test_a_schema_that_is_none_of_metadata_records_is_refused() -> None:
    keys, values = encode(Content.BLOOM, rows_of(Content.BLOOM), schema_of_version(9))
    for text in (
        "",
        "[]",
        '{"type":"record"}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}',
    ):
        with pytest.raises((CorruptTable, Unsupported)):
            decode(Content.BLOOM, keys, values, text, path="f")


DAY = datetime.date(2026, 1, 2)
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6000)
VALUES = [
    (pa.bool_(), [True, False]), (pa.int8(), [-3, 5]), (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.uint32(), [2**32 - 1]), (pa.float32(), [1.5]), (pa.float64(), [-1.5]), (pa.string(), ["", "é"]),
    (pa.binary(), [b"", b"\xff"]), (pa.date32(), [DAY]), (pa.time64("us"), [datetime.time(1, 2, 3, 4)]),
    (pa.time32("ms"), [datetime.time(1)]), (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=datetime.UTC)]),
    (pa.timestamp("us"), [MOMENT]), (pa.timestamp("ms"), [MOMENT]),
    (pa.decimal128(9, 2), [decimal.Decimal("-1.28"), decimal.Decimal("0.00")]),
    (pa.decimal128(29, 14), [decimal.Decimal("1E+14"), decimal.Decimal("-0.00000000000001")]),
]  # fmt: skip


@pytest.mark.parametrize("version", ["V1", "V2"])
@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_smallest_and_largest_values_come_back_in_the_columns_type(kind, values, version: str) -> None:
    how = typed_bounds.storing(kind, version)
    stored = typed_bounds.packed(pa.array([*values, None], kind), how)
    count = len(stored)
    made = {
        "min": stored, "min_kind": pa.array([how.kind] * len(values) + [0], pa.int8()),
        "ordinal": pa.array([how.ordinal] * count, pa.int32()),
        "type_info": pa.array([how.type_info] * count, pa.string()),
    }  # fmt: skip
    found = typed_bounds.column_values(pa.table(made), "min", kind)
    assert found.to_pylist() == pa.array([*values, None], kind).to_pylist()


def test_a_value_that_does_not_fit_the_columns_type_now_is_not_known() -> None:
    rows = rows_of(Content.STATS).slice(1, 1)
    assert typed_bounds.column_values(rows, "max", pa.int32()).to_pylist() == [None]
    narrow = rows_of(Content.STATS).slice(0, 1)
    assert typed_bounds.column_values(narrow, "max", pa.int8()).to_pylist() == [None]
    assert typed_bounds.column_values(narrow, "max", pa.int64()).to_pylist() == [2**31 - 1]


def test_hudi_keeps_no_statistics_of_lists_nor_of_wide_decimals_under_version_1() -> None:
    assert typed_bounds.storing(pa.list_(pa.int32()), "V2") is None
    assert typed_bounds.storing(pa.decimal128(38, 10), "V1") is None
    assert typed_bounds.storing(pa.decimal128(38, 10), "V2") is not None
