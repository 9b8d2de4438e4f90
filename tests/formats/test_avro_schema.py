"""Goal: the schema text equals what Java writes, and no schema text can hurt the reader.

Method: real schema headers of Java-written log files there and back; tables of accepted and refused
types; hostile texts (deep, wide, recursive, exponential, mutated) that must give CorruptTable or
Unsupported in bounded time.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.formats.avro_schema import (
    META_FIELDS,
    arrow_to_avro,
    avro_to_arrow,
    decimal_bytes,
    parse_schema,
    sanitise,
)
from mainstem.formats.log_file import read_blocks
from tests.formats.golden_logs import log_files

ALL_TYPES = pa.schema(
    [
        ("bo", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("i64", pa.int64()),
        ("u8", pa.uint8()),
        ("u16", pa.uint16()),
        ("u32", pa.uint32()),
        ("f16", pa.float16()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("s", pa.string()),
        ("ls", pa.large_string()),
        ("di", pa.dictionary(pa.int8(), pa.string())),
        ("b", pa.binary()),
        ("lb", pa.large_binary()),
        ("fb", pa.binary(4)),
        ("d32", pa.date32()),
        ("d64", pa.date64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("tz", pa.timestamp("us", "Europe/Berlin")),
        ("tn", pa.timestamp("us")),
        ("tm", pa.timestamp("ms", "UTC")),
        ("tnm", pa.timestamp("ms")),
        ("tns", pa.timestamp("ns")),
        ("dec", pa.decimal128(10, 2)),
        ("li", pa.list_(pa.int16())),
        ("ma", pa.map_(pa.string(), pa.float64())),
        ("st", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
    ]
)


@pytest.mark.parametrize("table", ["basic_mor", "all_types.logs", "merge_multi_ordering"])
def test_the_schema_headers_that_java_wrote_come_back_byte_for_byte(table: str) -> None:
    seen = set()
    for path, data in log_files(table):
        for block in read_blocks(memoryview(data), path=path):
            seen.add(block.schema_text)
    assert seen
    for text in seen:
        name = json.loads(text)["namespace"].removeprefix("hoodie.")
        assert arrow_to_avro(avro_to_arrow(text), table_name=name, meta_fields=True) == text


def test_every_type_that_hudi_holds_comes_back_as_the_type_that_it_is_stored_in() -> None:
    found = avro_to_arrow(arrow_to_avro(ALL_TYPES, table_name="t", meta_fields=False))
    assert {field.name: str(field.type) for field in found} == {
        "bo": "bool",
        "i8": "int32",
        "i16": "int32",
        "i32": "int32",
        "i64": "int64",
        "u8": "int32",
        "u16": "int32",
        "u32": "int64",
        "f16": "float",
        "f32": "float",
        "f64": "double",
        "s": "string",
        "ls": "string",
        "di": "string",
        "b": "binary",
        "lb": "binary",
        "fb": "binary",
        "d32": "date32[day]",
        "d64": "date32[day]",
        "ts": "timestamp[us, tz=UTC]",
        "tz": "timestamp[us, tz=UTC]",
        "tn": "timestamp[us]",
        "tm": "timestamp[ms, tz=UTC]",
        "tnm": "timestamp[ms]",
        "tns": "timestamp[us]",
        "dec": "decimal128(10, 2)",
        "li": "list<element: int32>",
        "ma": "map<string, double>",
        "st": "struct<x: int32, y: list<element: string>>",
    }
    assert all(field.nullable for field in found)


def test_meta_fields_stand_in_front_once_even_if_the_schema_has_them() -> None:
    schema = pa.schema([("a", pa.int32()), *((name, pa.string()) for name in META_FIELDS)])
    text = arrow_to_avro(schema, table_name="t", meta_fields=True)
    assert avro_to_arrow(text).names == [*META_FIELDS, "a"]
    without = arrow_to_avro(schema, table_name="t", meta_fields=False)
    assert avro_to_arrow(without).names == ["a"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint64(),
        pa.null(),
        pa.time32("s"),
        pa.time64("us"),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
        pa.decimal128(5, -2),
        pa.map_(pa.int32(), pa.int32()),
        pa.struct([]),
        pa.list_(pa.uint64()),
        pa.struct([("deep", pa.duration("us"))]),
        pa.dense_union([pa.field("x", pa.int32())]),
    ],
    ids=str,
)
def test_a_type_that_hudi_cannot_hold_is_refused_with_the_name_of_its_column(
    kind: pa.DataType,
) -> None:
    with pytest.raises(Invalid, match="'bad"):
        arrow_to_avro(
            pa.schema([("ok", pa.int32()), ("bad", kind)]), table_name="t", meta_fields=True
        )


@pytest.mark.parametrize("names", [["a-b"], ["1a"], [""], ["a", "A"], ["a", "a"], ["é"], ["a b"]])
def test_column_names_that_avro_or_spark_cannot_hold_are_refused(names: list[str]) -> None:
    with pytest.raises(Invalid, match="rename"):
        arrow_to_avro(
            pa.schema([(name, pa.int32()) for name in names]), table_name="t", meta_fields=True
        )


def test_a_schema_without_columns_or_nested_too_deep_is_refused() -> None:
    with pytest.raises(Invalid, match="no columns"):
        arrow_to_avro(pa.schema([]), table_name="t", meta_fields=True)
    kind = pa.int32()
    for _ in range(70):
        kind = pa.list_(kind)
    with pytest.raises(Invalid, match="'deep' is nested"):
        arrow_to_avro(pa.schema([("deep", kind)]), table_name="t", meta_fields=True)


def test_table_names_are_sanitised_like_java_does() -> None:
    assert sanitise("flights") == "flights"
    assert sanitise("a-b.c d") == "a__b__c__d"
    assert sanitise("1st") == "__st"
    with pytest.raises(Invalid):
        sanitise("")


def test_decimal_sizes_are_the_smallest_that_hold_the_digits() -> None:
    assert [decimal_bytes(p) for p in (1, 2, 4, 9, 10, 15, 18, 38)] == [1, 1, 2, 4, 5, 7, 8, 16]


def test_plain_types_null_last_unions_and_repeated_names_are_read() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "t.r",
            "fields": [
                {"name": "a", "type": "string"},
                {"name": "b", "type": ["int", "null"]},
                {
                    "name": "c",
                    "type": {
                        "type": "record",
                        "name": "p",
                        "fields": [{"name": "x", "type": "int"}],
                    },
                },
                {"name": "d", "type": ["null", "t.p"]},
                {"name": "e", "type": ["null", {"type": "string", "avro.java.string": "String"}]},
                {"name": "f", "type": {"type": "enum", "name": "k", "symbols": ["A", "B"]}},
                {"name": "g", "type": {"type": "int", "logicalType": "time-millis"}},
                {"name": "h", "type": {"type": "string", "logicalType": "uuid"}},
            ],
        }
    )
    schema = avro_to_arrow(text)
    assert [str(field.type) for field in schema] == [
        "string",
        "int32",
        "struct<x: int32 not null>",
        "struct<x: int32 not null>",
        "string",
        "string",
        "time32[ms]",
        "string",
    ]
    assert [field.nullable for field in schema] == [False, True, False, True, True, *[False] * 3]


def _record(*types: object) -> str:
    fields = [{"name": f"c{i}", "type": kind} for i, kind in enumerate(types)]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@pytest.mark.parametrize(
    "kind",
    [
        ["null", "int", "string"],
        ["int"],
        [],
        "null",
        {"type": "fixed", "name": "v", "size": 4, "logicalType": "vector"},
        {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 1},
        "r",
    ],
    ids=str,
)
def test_avro_types_without_an_arrow_counterpart_are_named_as_unsupported(kind: object) -> None:
    with pytest.raises(Unsupported, match="'c0'"):
        avro_to_arrow(_record(kind), path="f")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '"string"',
        '{"type":"record"}',
        '{"type":"record","name":"r"}',
        '{"type":"record","name":"r","fields":[]}',
        '{"type":"record","name":"r","fields":[{}]}',
        '{"type":"record","name":"r","fields":[{"name":"a b","type":"int"}]}',
        '{"type":"record","name":"r","fields":[{"name":"a"}]}',
        _record("unknown"),
        _record({"type": "fixed", "name": "f", "size": -1}),
        _record({"type": "fixed", "name": "f", "size": 1 << 62}),
        _record({"type": "fixed", "name": "f", "size": True}),
        _record({"type": "enum", "name": "f", "symbols": []}),
        _record({"type": "array"}),
        _record({"type": {"type": "union"}}),
        _record(["null", ["null", "int"]]),
        _record(
            {"type": "fixed", "name": "f", "size": 4}, {"type": "fixed", "name": "f", "size": 4}
        ),
        _record({"type": "bytes", "logicalType": "decimal", "precision": "x"}),
        '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a"}]}'.replace(
            '"a"}', '"a","type":"int"}'
        ),
        "[" * 100_000,
        '{"type":' * 50_000,
        _record(*["int"] * 30_000),
        " " * (2 << 20),
    ],
    ids=lambda text: text[:40],
)
def test_texts_that_are_no_schema_are_corrupt(text: str) -> None:
    with pytest.raises(CorruptTable) as caught:
        parse_schema(text, "some/file")
    assert caught.value.path == "some/file"


def test_names_cannot_make_a_short_text_grow_without_end() -> None:
    kind: object = {"type": "record", "name": "n0", "fields": [{"name": "x", "type": "int"}]}
    types = [kind]
    for level in range(1, 40):
        fields = [{"name": f"f{i}", "type": f"n{level - 1}"} for i in range(10)]
        types.append({"type": "record", "name": f"n{level}", "fields": fields})
    with pytest.raises(CorruptTable, match="more than"):
        avro_to_arrow(_record(*types))


_TEXT = arrow_to_avro(ALL_TYPES, table_name="t", meta_fields=True)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_mutated_schema_gives_a_schema_or_a_named_error(data: st.DataObject) -> None:
    text = _TEXT
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        cut = data.draw(st.integers(0, 30))
        text = text[:at] + data.draw(st.text('"{}[],:0aint', max_size=4)) + text[at + cut :]
    try:
        assert isinstance(avro_to_arrow(text, path="p"), pa.Schema)
    except MainstemError as error:
        assert isinstance(error, CorruptTable | Unsupported)
