"""Goal: lists, maps and structs in one another become by columns the bytes that fastavro writes, and
come back unchanged.

Method: property tests over random nested schemas with fastavro as the second opinion in both
directions, few rows (row by row) and many (by columns); lists cut into several Avro blocks with and
without their size; lists of very different lengths; Arrow's special forms (slices, items behind
nulls, fixed-size and large lists, dictionaries inside); the column of a chunk that is too large.
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
from mainstem.errors import Invalid
from mainstem.formats import avro_encode, avro_read
from mainstem.formats.avro_columns import decode_records, encode_records
from mainstem.formats.avro_schema import arrow_to_avro
from tests.formats.avro_cases import (
    arrow,
    fastavro_bytes,
    fastavro_rows,
    in_blocks,
    nested_tables,
    same,
)

_CHANCE = st.randoms(use_true_random=False)


def _record(**types: object) -> str:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def _agrees(text: str, rows: list[dict]) -> None:
    table, content = arrow(text, rows), fastavro_bytes(text, rows)
    assert b"".join(encode_records(table, text)) == content
    found = decode_records(memoryview(content), len(rows), text)
    found.validate(full=True)
    assert same(found, table)


@pytest.mark.supports("Column types", "lists, maps and structs, in one another, nullable at every level")
@settings(max_examples=60, deadline=None)
@given(nested_tables())
def test_nested_values_agree_with_fastavro_in_both_directions(case: tuple[str, list[dict]]) -> None:
    _agrees(*case)


@settings(max_examples=25, deadline=None)
@given(nested_tables(max_rows=12), st.integers(100, 700), _CHANCE)
def test_many_nested_values_agree_with_fastavro_in_both_directions(
    case: tuple[str, list[dict]], count: int, chance: random.Random
) -> None:
    text, few = case
    if few:
        _agrees(text, [chance.choice(few) for _ in range(count)])


@settings(max_examples=25, deadline=None)
@given(nested_tables(max_rows=12), st.sampled_from([3, 30, 300]), _CHANCE)
def test_lists_in_several_blocks_are_read_as_one(
    case: tuple[str, list[dict]], count: int, chance: random.Random
) -> None:
    text, few = case
    rows = [chance.choice(few) for _ in range(count)] if few else []
    node = json.loads(text)
    data = [in_blocks(node, row, chance) for row in rows]
    content = b"".join(len(d).to_bytes(4, "big") + d for d in data)
    assert same(decode_records(memoryview(content), len(rows), text), arrow(text, rows))


def test_more_blocks_than_any_writer_makes_are_read_row_by_row() -> None:
    text = _record(a={"type": "array", "items": ["null", "string"]}, n="long")
    body = b"\x02\x02\x06abc" * 9 + b"\x00\x0e"  # nine blocks of one item
    content = (len(body).to_bytes(4, "big") + body) * 200
    found = decode_records(memoryview(content), 200, text)
    assert found.to_pylist() == [{"a": ["abc"] * 9, "n": 7}] * 200


_ITEMS = {
    "boolean": ("boolean", lambda i: i % 3 == 0),
    "double": ("double", lambda i: i / 4),
    "string": ("string", lambda i: "x" * (i % 70)),
    "long": ("long", lambda i: i**5 - 7),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
        lambda i: Decimal(i**7).scaleb(-3),
    ),
    "list": ({"type": "array", "items": "int"}, lambda i: list(range(i % 5))),
}


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("item", _ITEMS)
def test_lists_of_very_different_lengths_agree_with_fastavro(item: str, nullable: bool) -> None:
    kind, value = _ITEMS[item]
    text = _record(a={"type": "array", "items": ["null", kind] if nullable else kind}, n="int")
    chance = random.Random(4)
    rows = []
    for i in range(400):
        length = 900 if i == 17 else chance.choice([0, 1, 2, 40])
        items = [None if nullable and chance.random() < 0.3 else value(j) for j in range(length)]
        rows.append({"a": items, "n": i})
    _agrees(text, rows)


def test_no_row_of_an_ordinary_nested_batch_is_read_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {
            "tags": [None, "a", "bc"] if i % 3 else None,
            "points": [{"x": i / 2, "y": None}, None] if i % 4 else [],
            "notes": {"k": Decimal(i), "l": None},
            "fixed": None if i % 5 else b"123",
            "enum": None if i % 2 else "B",
            "far": Decimal(-i),
        }
        for i in range(500)
    ]
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
    point = [{"name": "x", "type": "double"}, {"name": "y", "type": ["null", "long"]}]
    text = _record(
        tags=["null", {"type": "array", "items": ["null", "string"]}],
        points={"type": "array", "items": ["null", {"type": "record", "name": "p", "fields": point}]},
        notes={"type": "map", "values": ["null", decimal]},
        fixed=["null", {"type": "fixed", "name": "f", "size": 3}],
        enum=["null", {"type": "enum", "name": "e", "symbols": ["A", "B"]}],
        far=decimal,
    )
    table = arrow(text, rows)
    monkeypatch.setattr(avro_read, "_reader", None)
    monkeypatch.setattr(avro_encode, "_encode_few", None)
    content = b"".join(encode_records(table, text))
    assert fastavro_rows(text, content, 500) == rows
    assert same(decode_records(memoryview(content), 500, text), table)


@pytest.mark.parametrize("columns", [["n"], ["s"], ["n", "l"], ["m"]])
def test_nested_columns_that_are_not_wanted_are_stepped_over(columns: list[str]) -> None:
    text = _record(
        l=["null", {"type": "array", "items": {"type": "array", "items": ["null", "string"]}}],
        m={"type": "map", "values": ["null", {"type": "array", "items": "double"}]},
        s=["null", {"type": "record", "name": "s", "fields": [{"name": "d", "type": "double"}]}],
        n="long",
    )
    rows = [
        {
            "l": [["a", None], [], ["b" * i]] if i % 3 else None,
            "m": {str(k): [0.5] * k for k in range(i % 4)},
            "s": {"d": 0.25} if i % 2 else None,
            "n": i,
        }
        for i in range(300)
    ]
    found = decode_records(memoryview(fastavro_bytes(text, rows)), 300, text, columns)
    assert found.equals(arrow(text, rows).select(columns))


# ------------------------------------------------------------------------- Arrow's other encodings


def _same_bytes(other: pa.Array, plain: pa.Array) -> None:
    text = arrow_to_avro(pa.schema([("c", plain.type)]), table_name="t", meta_fields=False)
    expected = b"".join(encode_records(pa.table({"c": plain}), text))
    assert b"".join(encode_records(pa.table({"c": other}), text)) == expected
    assert decode_records(memoryview(expected), len(plain), text)["c"].to_pylist() == plain.to_pylist()


_LISTS = [["a", None], None, [], ["bcd"], ["e", "f"]]


@pytest.mark.parametrize("copies", [1, 20])
@pytest.mark.parametrize(
    "kind",
    [
        pa.large_list(pa.string()),
        pa.list_(pa.large_string()),
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        pa.list_(pa.field("any name", pa.string())),
    ],
    ids=str,
)
def test_lists_in_any_arrow_encoding_give_the_same_bytes(kind: pa.DataType, copies: int) -> None:
    plain = pa.array(_LISTS * copies, pa.list_(pa.string()))
    _same_bytes(pa.array(_LISTS * copies, kind), plain)


@pytest.mark.parametrize("copies", [1, 20])
def test_lists_of_fixed_size_and_times_inside_are_widened(copies: int) -> None:
    pairs = [[1, 2], None, [3, None]] * copies
    _same_bytes(pa.array(pairs, pa.list_(pa.int64(), 2)), pa.array(pairs, pa.list_(pa.int64())))
    coarse = pa.array([[1], [None], None] * copies, pa.list_(pa.timestamp("s", "UTC")))
    _same_bytes(coarse, coarse.cast(pa.list_(pa.timestamp("us", "UTC"))))


@pytest.mark.parametrize("rows", [4, 200])
def test_slices_of_nested_columns_give_the_bytes_of_their_rows(rows: int) -> None:
    kind = pa.struct([("l", pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int32()))])))])
    values = [
        None if i % 7 == 0 else {"l": None if i % 5 == 0 else [{"m": [("a", i)]}, None][: i % 3]}
        for i in range(rows + 30)
    ]
    _same_bytes(pa.array(values, kind).slice(13, rows), pa.array(values[13 : 13 + rows], kind))


@pytest.mark.parametrize("copies", [1, 50])
def test_items_behind_a_null_are_not_written(copies: int) -> None:
    offsets = pa.array(np.arange(0, 6 * copies + 1, 2), pa.int32())
    items = pa.array(list("abcdef") * copies)
    mask = pa.array([False, True, False] * copies)
    hidden = pa.ListArray.from_arrays(offsets, items, mask=mask)
    plain = pa.array([["a", "b"], None, ["e", "f"]] * copies, pa.list_(pa.string()))
    _same_bytes(hidden, plain)
    keys = pa.array(["k", "l"] * 3 * copies)
    maps = pa.MapArray.from_arrays(offsets, keys, items)
    entries = pa.StructArray.from_arrays([keys, items], fields=list(maps.type.field(0).type))
    buffers = [hidden.buffers()[0], maps.buffers()[1]]
    behind = pa.Array.from_buffers(maps.type, len(maps), buffers, children=[entries])
    pairs = [[("k", "a"), ("l", "b")], None, [("k", "e"), ("l", "f")]] * copies
    _same_bytes(behind, pa.array(pairs, pa.map_(pa.string(), pa.string())))


@pytest.mark.parametrize("copies", [1, 50])
@pytest.mark.parametrize("size", [2, 30])
def test_the_same_key_twice_in_a_map_is_refused(copies: int, size: int) -> None:
    text = _record(bad={"type": "map", "values": "int"})
    good = [[(f"k{i}", i) for i in range(size)]] * copies
    kind = pa.map_(pa.string(), pa.int32())
    encode_records(pa.table({"bad": pa.array(good, kind)}), text)
    with pytest.raises(Invalid, match="same key twice"):
        encode_records(pa.table({"bad": pa.array([*good, [*good[0], ("k0", 5)]], kind)}), text)


@pytest.mark.parametrize("copies", [1, 50])
def test_what_a_nested_schema_cannot_hold_is_refused_by_the_path_of_the_field(copies: int) -> None:
    inner = [{"name": "x", "type": "long"}]
    text = _record(bad=["null", {"type": "array", "items": {"type": "record", "name": "p", "fields": inner}}])
    for value in ([{"x": None}], [None]):
        column = pa.array([value] * copies, pa.list_(pa.struct([("x", pa.int64())])))
        with pytest.raises(Invalid, match="'bad"):
            encode_records(pa.table({"bad": column}), text)
    with pytest.raises(Invalid, match="'bad"):
        encode_records(pa.table({"bad": pa.array([["a"]] * copies)}), text)


def test_a_chunk_of_lists_that_would_be_too_large_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _record(a={"type": "array", "items": ["null", "boolean"]})
    table = arrow(text, [{"a": [True, None] * 50}] * 300)
    whole = b"".join(encode_records(table, text))
    monkeypatch.setattr(limits, "CHUNK_BYTES_MAX", 5_000)
    parts = encode_records(table, text)
    assert max(map(len, parts)) <= 5_000
    assert b"".join(parts) == whole
    assert fastavro_rows(text, whole, 300) == table.to_pylist()
    monkeypatch.setattr(limits, "CHUNK_BYTES_MAX", 100)
    with pytest.raises(Invalid, match="one row takes more"):
        encode_records(table, text)
