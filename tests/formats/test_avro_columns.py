"""Goal: columns become exactly the Avro bytes that fastavro writes, and come back unchanged.

Method: property tests over random schemas and values with fastavro as the second opinion in both
directions; the special encodings of Arrow (slices, dictionaries, bytes behind nulls, views);
refusal of values that the schema cannot hold; projection; joining of many small blocks.
"""

from __future__ import annotations

import json
import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid
from mainstem.formats.avro_columns import (
    decode_many,
    decode_records,
    encode_groups,
    encode_records,
)
from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
from tests.formats.avro_cases import arrow, fastavro_bytes, fastavro_rows, same, tables


def _join(parts: list) -> bytes:
    return b"".join(parts)


def _record(**types: object) -> str:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@settings(max_examples=150, deadline=None)
@given(tables())
def test_encoded_bytes_equal_those_of_fastavro(case: tuple[str, list[dict]]) -> None:
    text, rows = case
    ours, theirs = _join(encode_records(arrow(text, rows), text)), fastavro_bytes(text, rows)
    if ours == theirs:
        return
    # Decimals on bytes: ours are as short as Java's BigInteger makes them, fastavro's need not be.
    assert '"bytes"' in text and '"decimal"' in text and len(ours) <= len(theirs)
    assert same(decode_records(memoryview(ours), len(rows), text), arrow(text, rows))


@settings(max_examples=150, deadline=None)
@given(tables())
def test_bytes_of_fastavro_decode_to_the_values_that_went_in(case: tuple[str, list[dict]]) -> None:
    text, rows = case
    content = fastavro_bytes(text, rows)
    assert same(decode_records(memoryview(content), len(rows), text), arrow(text, rows))


@settings(max_examples=25, deadline=None)
@given(tables(max_rows=12), st.integers(300, 900), st.randoms(use_true_random=False))
def test_large_batches_agree_with_fastavro_in_both_directions(
    case: tuple[str, list[dict]], count: int, chance: random.Random
) -> None:
    text, few = case
    if not few:
        return
    rows = [chance.choice(few) for _ in range(count)]
    content = fastavro_bytes(text, rows)
    assert _join(encode_records(arrow(text, rows), text)) == content
    assert same(decode_records(memoryview(content), count, text), arrow(text, rows))


def _wide(count: int, seed: int = 1) -> tuple[str, pa.Table]:
    chance = np.random.default_rng(seed)
    numbers = chance.integers(0, 10**9, count)
    table = pa.table(
        {
            "commit": pa.array(["20261120100408988"] * count, pa.string()),
            "seq": pa.array([f"20261120100408988_1_{i}" for i in range(count)], pa.string()),
            "key": pa.array([f"{n:012d}" for n in numbers], pa.string()),
            "nothing": pa.nulls(count, pa.string()),
            "ts": numbers * 1_000_003,
            "fare": chance.random(count),
            "name": pa.array(
                [f"rider-{n % 1000}é" if n % 7 else None for n in numbers.tolist()], pa.string()
            ),
            "flag": pa.array((numbers % 3 == 0).tolist(), pa.bool_()),
            "small": pa.array((numbers % 100).astype(np.int32)),
            "money": pa.array([Decimal(int(n)).scaleb(-2) for n in numbers], pa.decimal128(12, 2)),
        }
    )
    return arrow_to_avro(table.schema, table_name="t", meta_fields=False), table


@pytest.mark.parametrize("count", [255, 256, 600, 5000, 70_000])
def test_batches_of_every_size_come_back(count: int) -> None:
    text, table = _wide(count)
    content = _join(encode_records(table, text))
    assert decode_records(memoryview(content), count, text).equals(table)
    some = table.slice(0, 50)
    rows = [{**r, "money": r["money"]} for r in some.to_pylist()]
    assert content.startswith(fastavro_bytes(text, rows))


def test_a_chunk_that_would_be_too_large_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    text, table = _wide(3000)
    whole = _join(encode_records(table, text))
    monkeypatch.setattr(limits, "CHUNK_BYTES_MAX", 50_000)
    parts = encode_records(table, text)
    assert len(parts) > 5
    assert max(map(len, parts)) <= 50_000
    assert _join(parts) == whole
    assert decode_records(memoryview(whole), 3000, text).equals(table)


@pytest.mark.parametrize("columns", [["ts"], ["money", "key"], ["name", "nothing", "flag"], []])
def test_projection_gives_the_columns_in_the_order_asked_for(columns: list[str]) -> None:
    text, table = _wide(1000)
    content = _join(encode_records(table, text))
    found = decode_records(memoryview(content), 1000, text, columns)
    assert found.num_rows == 1000
    assert found.equals(table.select(columns))


def test_columns_that_the_block_does_not_know_are_left_out() -> None:
    text, table = _wide(3)
    content = _join(encode_records(table, text))
    assert decode_records(memoryview(content), 3, text, ["newer", "ts"]).column_names == ["ts"]


def test_groups_are_the_same_bytes_as_separate_calls() -> None:
    text, table = _wide(100_000)
    bounds = [0, 0, 10, 65_535, 65_536, 65_536, 99_999, 100_000]
    groups = encode_groups(table, text, bounds)
    assert len(groups) == len(bounds) - 1
    for group, low, high in zip(groups, bounds[:-1], bounds[1:], strict=True):
        assert _join(group) == _join(encode_records(table.slice(low, high - low), text))


@pytest.mark.parametrize("bounds", [[], [0], [1, 5], [0, 4]])
def test_groups_must_cover_the_batch(bounds: list[int]) -> None:
    text, table = _wide(5)
    with pytest.raises(Invalid, match="bounds"):
        encode_groups(table, text, bounds)


def test_many_small_blocks_decode_together() -> None:
    text, table = _wide(3000)
    chance = random.Random(3)
    parts, low = [], 0
    while low < 3000:
        count = min(chance.choice([0, 1, 2, 50]), 3000 - low)
        part = _join(encode_records(table.slice(low, count), text))
        parts.append((memoryview(part), count))
        low += count
    assert decode_many(parts, text).equals(table)
    even = [
        (memoryview(_join(encode_records(table.slice(low, 10), text))), 10)
        for low in range(0, 3000, 10)
    ]
    assert decode_many(even, text, ["key", "ts"]).equals(table.select(["key", "ts"]))


def test_damage_in_one_of_many_small_blocks_is_reported_with_its_own_place() -> None:
    text, table = _wide(200)
    part = _join(encode_records(table, text))
    parts = [(memoryview(part), 200), (memoryview(part[:-1]), 200), (memoryview(part), 200)]
    with pytest.raises(CorruptTable) as caught:
        decode_many(parts, text, places=[("a", 1), ("b", 2), ("c", 3)])
    assert (caught.value.path, caught.value.offset) == ("b", 2)


def test_nothing_at_all_is_an_empty_table_of_the_schema() -> None:
    text, table = _wide(0)
    assert encode_records(table, text) == []
    assert decode_records(memoryview(b""), 0, text).schema.equals(table.schema)
    assert decode_many([], text).num_rows == 0


# ------------------------------------------------------------------------- Arrow's other encodings

_TEXT = _record(s=["null", "string"], n=["null", "long"])
_PLAIN = pa.table({"s": ["a", None, "é", "", "zz"], "n": [1, None, -3, 4, 5]})


@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.uint32(), pa.large_string()),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_text_in_any_arrow_encoding_gives_the_same_bytes(kind: pa.DataType) -> None:
    if pa.types.is_run_end_encoded(kind):
        column = pa.compute.run_end_encode(_PLAIN["s"].combine_chunks())
    elif pa.types.is_dictionary(kind):
        column = _PLAIN["s"].combine_chunks().dictionary_encode().cast(kind)
    else:
        column = pa.array(_PLAIN["s"].to_pylist(), kind)
    other = pa.table({"s": column, "n": _PLAIN["n"]})
    assert _join(encode_records(other, _TEXT)) == _join(encode_records(_PLAIN, _TEXT))


def test_slices_and_chunks_give_the_same_bytes() -> None:
    text, table = _wide(500)
    whole = _join(encode_records(table, text))
    pieces = pa.concat_tables([table.slice(i, 7) for i in range(0, 500, 7)])
    assert _join(encode_records(pieces, text)) == whole
    padded = pa.concat_tables([table.slice(490), table, table.slice(0, 5)]).combine_chunks()
    assert _join(encode_records(padded.slice(10, 500), text)) == whole
    batch = padded.to_batches()[0].slice(10, 500)
    assert _join(encode_records(batch, text)) == whole


def test_bytes_behind_a_null_are_not_written() -> None:
    values = pa.array(["abc", "secret", "d"])
    hidden = pa.Array.from_buffers(
        pa.string(), 3, [pa.py_buffer(bytes([0b101])), *values.buffers()[1:]]
    )
    batch = pa.table({"s": hidden})
    text = _record(s=["null", "string"])
    assert _join(encode_records(batch, text)) == fastavro_bytes(
        text, [{"s": "abc"}, {"s": None}, {"s": "d"}]
    )


def test_a_dictionary_with_one_value_is_a_constant_and_unused_values_do_no_harm() -> None:
    text = _record(s=["null", "string"], k="string")
    indices = pa.array([0] * 400, pa.int32())
    one = pa.DictionaryArray.from_arrays(indices, pa.array(["only"]))
    many = pa.DictionaryArray.from_arrays(indices, pa.array([f"v{i}" for i in range(300)]))
    found = _join(encode_records(pa.table({"s": one, "k": many}), text))
    assert found == fastavro_bytes(text, [{"s": "only", "k": "v0"}] * 400)


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_dictionary_of_few_or_many_texts_gives_the_bytes_of_its_texts(count: int, gaps: bool) -> None:
    texts = [f"ü{n}" * (1 + 50 * n) for n in range(count)]
    texts[count // 2] = ""
    places = [None if gaps and n % 7 == 3 else n % count for n in range(400)]
    column = pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(texts))
    rows = [{"s": None if n is None else texts[n]} for n in places]
    text = _record(s=["null", "string"])
    assert _join(encode_records(pa.table({"s": column}), text)) == fastavro_bytes(text, rows)
    if not gaps:
        text = _record(s="string")
        assert _join(encode_records(pa.table({"s": column}), text)) == fastavro_bytes(text, rows)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_dictionary_of_texts_that_are_not_utf8_is_refused_with_its_column(count: int) -> None:
    offsets = pa.py_buffer(np.arange(0, 2 * count + 1, 2, dtype=np.int32))
    broken = pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(b"\xff\xfe" * count)])
    column = pa.DictionaryArray.from_arrays(pa.array([n % count for n in range(400)], pa.int32()), broken)
    with pytest.raises(Invalid, match="'s'"):
        encode_records(pa.table({"s": column}), _record(s=["null", "string"]))


def test_a_dictionary_that_holds_a_null_value_is_written_as_null() -> None:
    text = _record(s=["null", "string"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", None]))
    found = _join(encode_records(pa.table({"s": column}), text))
    assert found == fastavro_bytes(text, [{"s": "a"}, {"s": None}, {"s": "a"}])


def test_missing_columns_are_written_as_null() -> None:
    assert (
        decode_records(memoryview(_join(encode_records(_PLAIN.select(["n"]), _TEXT))), 5, _TEXT)[
            "s"
        ].to_pylist()
        == [None] * 5
    )


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("long", pa.array([1, 2], pa.uint32())),
        ("int", pa.array([1, 2], pa.int64())),
        ("double", pa.array([1, 2], pa.float32())),
        ("float", pa.array(np.array([1, 2], np.float16))),
        ({"type": "int", "logicalType": "date"}, pa.array([1, 2], pa.int64()).cast(pa.date64())),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            pa.array([1000, 2000], pa.timestamp("ns", "Asia/Tokyo")),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            pa.array([1], pa.timestamp("s")),
        ),
        ("bytes", pa.array([b"ab"], pa.binary(2))),
    ],
    ids=str,
)
def test_columns_are_widened_where_nothing_is_lost(kind: object, column: pa.Array) -> None:
    text = _record(c=["null", kind])
    if pa.types.is_date64(column.type):
        column = pa.array([0, 86_400_000], pa.int64()).view(pa.date64())
    content = _join(encode_records(pa.table({"c": column}), text))
    found = decode_records(memoryview(content), len(column), text)["c"].combine_chunks()
    assert found.cast(column.type).equals(column)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", pa.array([2**31])),
        ("int", pa.array([1.0])),
        ("float", pa.array([1.0])),
        ("long", pa.array(["1"])),
        ("long", pa.array([2**63], pa.uint64())),
        ("string", pa.array([1])),
        ("string", pa.array([b"x"])),
        ("bytes", pa.array(["x"])),
        ("boolean", pa.array([1])),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.array([1], pa.timestamp("us"))),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            pa.array([1], pa.timestamp("ns", "UTC")),
        ),
        ({"type": "fixed", "name": "f", "size": 3}, pa.array([b"ab"])),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.array(["B"])),
        (
            {
                "type": "fixed",
                "name": "d",
                "size": 2,
                "logicalType": "decimal",
                "precision": 4,
                "scale": 2,
            },
            pa.array([Decimal("1.234")]),
        ),
        (
            {"type": "map", "values": "int"},
            pa.array([[("a", 1), ("a", 2)]], pa.map_("string", "int32")),
        ),
        ({"type": "array", "items": "int"}, pa.array([[1, None]])),
    ],
    ids=str,
)
def test_values_that_the_schema_cannot_hold_are_refused_with_the_column(
    kind: object, column: pa.Array
) -> None:
    with pytest.raises(Invalid, match="'bad"):
        encode_records(pa.table({"bad": column}), _record(bad=["null", kind]))


def test_a_null_in_a_column_that_is_not_null_is_refused_with_its_row() -> None:
    text = _record(ok="long", bad="string")
    with pytest.raises(Invalid, match="'bad' has a null in row 1"):
        encode_records(pa.table({"ok": [1, 2], "bad": ["a", None]}), text)
    with pytest.raises(Invalid, match="'bad'"):
        encode_records(pa.table({"ok": [1, 2]}), text)
    with pytest.raises(Invalid, match="'bad'"):
        encode_records(pa.table({"ok": [1], "bad": pa.nulls(1, pa.string())}), text)


def test_alien_and_double_columns_are_refused() -> None:
    with pytest.raises(Invalid, match="alien"):
        encode_records(pa.table({"alien": [1]}), _TEXT)
    double = pa.Table.from_arrays([pa.array([1]), pa.array([1])], names=["n", "n"])
    with pytest.raises(Invalid, match="one name"):
        encode_records(double, _TEXT)


def test_text_that_is_not_utf8_is_refused_before_it_is_written() -> None:
    for count in (1, 100):
        offsets = pa.py_buffer(np.arange(0, 2 * count + 1, 2, dtype=np.int32))
        broken = pa.Array.from_buffers(
            pa.string(), count, [None, offsets, pa.py_buffer(b"\xff\xfe" * count)]
        )
        with pytest.raises(Invalid, match="'s'"):
            encode_records(pa.table({"s": broken}), _TEXT)


@pytest.mark.parametrize("width", range(1, 17))
def test_decimals_on_bytes_are_as_short_as_java_writes_them(width: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    edges = [2 ** (8 * width - 1) + d for d in (-1, 0, 1)]
    edges = [n for e in edges for n in (e, -e) if abs(n) < 10**38]
    if not edges:
        return
    rows = [{"d": Decimal(n)} for n in edges]
    text = _record(d=["null", kind])
    found = _join(encode_records(arrow(text, rows), text))
    sizes = [(n if n >= 0 else ~n).bit_length() // 8 + 1 for n in edges]  # BigInteger.toByteArray
    assert found == b"".join(
        (size + 2).to_bytes(4, "big") + bytes((2, 2 * size)) + n.to_bytes(size, "big", signed=True)
        for n, size in zip(edges, sizes, strict=True)
    )
    assert fastavro_rows(text, found, len(rows)) == rows


@pytest.mark.parametrize("kind", ["string", "bytes", "long", "int", "boolean", "double"])
@pytest.mark.parametrize("count", [5, 60, 900])
def test_the_bytes_behind_a_null_are_not_taken_for_its_value(kind: str, count: int) -> None:
    value = {"string": "x", "bytes": b"x", "boolean": True, "double": 0.5}.get(kind, 2**30)
    for follower in (b"\xff" * 16, b"\x80" * 16, b"\x01" * 16):
        text = _record(c=["null", kind], f={"type": "fixed", "name": "f", "size": 16})
        for every in (1, 2, count + 1):
            rows = [{"c": None if i % every == 0 else value, "f": follower} for i in range(count)]
            content = _join(encode_records(arrow(text, rows), text))
            assert content == fastavro_bytes(text, rows)
            assert same(decode_records(memoryview(content), count, text), arrow(text, rows))


def test_fastavro_reads_what_we_write() -> None:
    text, table = _wide(400)
    rows = fastavro_rows(text, _join(encode_records(table, text)), 400)
    assert [row["key"] for row in rows] == table["key"].to_pylist()
    assert [row["money"] for row in rows] == table["money"].to_pylist()
    assert [row["name"] for row in rows] == table["name"].to_pylist()


def test_schema_of_the_result_is_the_one_of_the_text() -> None:
    text = _record(a="long", b=["string", "null"])
    content = _join(encode_records(pa.table({"a": [1], "b": ["x"]}), text))
    assert decode_records(memoryview(content), 1, text).schema.equals(avro_to_arrow(text))


@pytest.mark.parametrize("count", [1, 100])
def test_a_decimal_with_more_digits_than_its_type_is_refused(count: int) -> None:
    """4 digits in the two bytes of a decimal(4,2) may hide 32767; readers refuse that."""
    raw = pa.py_buffer(np.array([32767, 0] * count, "<i8"))
    broken = pa.Array.from_buffers(pa.decimal128(4, 2), count, [None, raw])
    kind = {"type": "fixed", "name": "d", "size": 2, "logicalType": "decimal"}
    text = _record(bad=["null", {**kind, "precision": 4, "scale": 2}])
    with pytest.raises(Invalid, match="'bad'"):
        encode_records(pa.table({"bad": broken}), text)


@pytest.mark.parametrize("count", [5, 500])
def test_a_decimal_on_fixed_needs_its_sign_bytes(count: int) -> None:
    kind = {"type": "fixed", "name": "d", "size": 5, "logicalType": "decimal"}
    text = _record(d=["null", {**kind, "precision": 10, "scale": 2}])
    rows = [{"d": Decimal(n).scaleb(-2)} for n in (-1, 0, 9999999999, -9999999999, 255)] * count
    content = _join(encode_records(arrow(text, rows), text))
    assert content == fastavro_bytes(text, rows)
    assert same(decode_records(memoryview(content), len(rows), text), arrow(text, rows))
