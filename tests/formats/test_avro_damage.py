"""Goal: damaged or hostile record bytes give CorruptTable or a table of the declared schema,
nothing else.

Method: truncation at every byte and flips of random bits of real content, lengths and counts
replaced by extreme ones, contents of random bytes; in all of them time and memory stay bounded.
Avro content has no checksum, so a flip inside a value may go unnoticed; a flip that moves a
boundary may not.
"""

from __future__ import annotations

import json
import random
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import CorruptTable
from mainstem.formats import record_starts
from mainstem.formats.avro_columns import decode_many, decode_records, encode_records
from mainstem.formats.avro_cursors import Cursors, read_numbers
from mainstem.formats.avro_rows import Malformed, zigzag
from mainstem.formats.avro_schema import avro_to_arrow
from mainstem.formats.record_starts import framed_starts, joined_starts
from tests.formats.avro_cases import KINDS, fastavro_bytes, tables


def _record(**types: object) -> str:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def _decodes(content: bytes, count: int, text: str) -> pa.Table | None:
    """The table, None for CorruptTable; any other error fails the test."""
    try:
        found = decode_records(memoryview(content), count, text, path="f", offset=7)
    except CorruptTable as error:
        assert (error.path, error.offset) == ("f", 7)
        return None
    assert found.schema.equals(avro_to_arrow(text))
    assert found.num_rows == count
    found.validate(full=True)
    return found


def _every_kind(rows: int) -> tuple[str, bytes]:
    types, values = {}, {}
    for i, (name, (kind, _)) in enumerate(sorted(KINDS.items())):
        if isinstance(kind, dict) and "name" in kind:
            kind = {**kind, "name": f"n{i}"}
        types[f"c{i}"] = ["null", kind]
        values[f"c{i}"] = _SAMPLES.get(name)
    text = _record(**types)
    return text, fastavro_bytes(text, [values] * rows)


_SAMPLES = {
    "boolean": True,
    "int": 2**31 - 1,
    "small": -3,
    "long": -(2**63),
    "medium": 70_000,
    "float": 1.5,
    "double": -2.5,
    "string": "é",
    "ascii": "abc",
    "long text": "x" * 70,
    "bytes": b"\x00\xff",
    "date": 1,
    "instant": 1_700_000_000_000_000,
    "local": 5,
    "fixed": b"123",
    "enum": "B",
    "array": [1, None, 3],
    "map": {"k": 0.5},
    "struct": {"a": 1, "b": ["q", None]},
}


@pytest.mark.parametrize("rows", [1, 3])
def test_content_cut_off_at_any_byte_is_corrupt(rows: int) -> None:
    text, content = _every_kind(rows)
    assert _decodes(content, rows, text) is not None
    for end in range(len(content)):
        assert _decodes(content[:end], rows, text) is None


def test_bytes_too_many_and_wrong_record_counts_are_corrupt() -> None:
    text, content = _every_kind(3)
    for count in (-1, 0, 1, 2, 4, 5, 2**31 - 1):
        assert _decodes(content, count, text) is None
    assert _decodes(content + b"\0", 3, text) is None
    assert _decodes(b"\0" + content, 3, text) is None


@pytest.mark.parametrize("rows", [2, 300])
def test_no_single_flipped_bit_gives_anything_but_corrupt_or_a_table(rows: int) -> None:
    text, content = _every_kind(rows)
    chance = random.Random(rows)
    bits = chance.sample(range(8 * len(content)), 1500 if rows == 2 else 200)
    corrupt = 0
    for bit in bits:
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        corrupt += _decodes(bytes(broken), rows, text) is None
    assert corrupt > len(bits) // 5  # lengths, branches, text: not everything slips through


@settings(max_examples=300, deadline=None)
@given(tables(max_rows=6), st.data())
def test_spliced_bytes_give_corrupt_or_a_table(
    case: tuple[str, list[dict]], data: st.DataObject
) -> None:
    text, rows = case
    content = bytearray(fastavro_bytes(text, rows))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        extreme = st.sampled_from([b"\xff" * 10, b"\x80" * 9 + b"\x01", zigzag(-1), zigzag(2**62)])
        content[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8) | extreme)
    _decodes(bytes(content), len(rows), text)


@settings(max_examples=200, deadline=None)
@given(tables(max_rows=1), st.binary(max_size=200), st.integers(0, 50))
def test_random_bytes_give_corrupt_or_a_table(
    case: tuple[str, list[dict]], content: bytes, count: int
) -> None:
    _decodes(content, count, case[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_large_batches_with_flipped_bytes_give_corrupt_or_a_table(seed: int, flips: int) -> None:
    text, content, count = _LARGE
    chance = random.Random(seed)
    broken = bytearray(content)
    for _ in range(flips):
        broken[chance.randrange(len(broken))] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    _decodes(bytes(broken), count, text)


def _large() -> tuple[str, bytes, int]:
    text = _record(
        t=["null", "string"],
        key=["null", "string"],
        n=["null", "long"],
        i=["null", "int"],
        d=["null", "double"],
        b=["null", "boolean"],
        s=["null", "string"],
    )
    count = 1500
    table = pa.table(
        {
            "t": ["20261120100408988"] * count,
            "key": [f"k{i:08d}" for i in range(count)],
            "n": np.arange(count) * 10**12,
            "i": pa.array(np.arange(count), pa.int32()),
            "d": np.arange(count) / 3,
            "b": pa.array([None if i % 5 == 0 else bool(i % 2) for i in range(count)]),
            "s": ["x" * (i % 90) for i in range(count)],
        }
    )
    return text, b"".join(encode_records(table, text)), count


_LARGE = _large()


def test_text_that_is_not_utf8_is_corrupt() -> None:
    text = _record(s="string")
    for bad in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe4\xb8"):
        datum = zigzag(len(bad)) + bad
        assert _decodes(len(datum).to_bytes(4, "big") + datum, 1, text) is None
    nested = _record(s={"type": "array", "items": "string"})
    assert _decodes(b"\x00\x00\x00\x04\x02\x02\xff\x00", 1, nested) is None


def test_a_value_that_reaches_into_the_next_record_is_corrupt() -> None:
    text = _record(a="string", b="string")
    # The first record's lengths (2, 6) add up to more than it has, the second's to less.
    first = b"\x00\x00\x00\x04" + b"\x04xx" + b"\x0c"
    second = b"\x00\x00\x00\x04" + b"\x02y\x00z"
    assert _decodes(first + second, 2, text) is None


def test_records_that_compensate_one_another_are_corrupt() -> None:
    text = _record(a="int", b="int")
    # 3 bytes where 2 are declared, then 1 where 2 are declared: the sum is right, the records
    # are not.
    content = b"\x00\x00\x00\x02" + b"\x80\x01\x00" + b"\x00\x00\x00\x02" + b"\x00"
    assert _decodes(content, 2, text) is None


@pytest.mark.parametrize(
    ("kind", "datum"),
    [
        ("int", zigzag(2**31)),
        ("int", zigzag(-(2**31) - 1)),
        ("long", b"\xff" * 10 + b"\x01"),
        ("long", b"\xff" * 9 + b"\x02"),
        ("boolean", b"\x02"),
        (["null", "int"], b"\x04\x00"),
        (["null", "int"], b"\x82\x00\x00"),
        ("string", zigzag(-1)),
        ("bytes", zigzag(2**40)),
        ({"type": "array", "items": "int"}, zigzag(2**40)),
        ({"type": "array", "items": "int"}, zigzag(-(2**40)) + zigzag(1)),
        ({"type": "map", "values": "int"}, zigzag(2**62)),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, zigzag(1)),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, zigzag(-1)),
        (
            {
                "type": "fixed",
                "name": "d",
                "size": 4,
                "logicalType": "decimal",
                "precision": 3,
                "scale": 0,
            },
            b"\x00\x00\x03\xe8",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0},
            b"\x04\x03\xe8",
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", [1, 300])
def test_values_out_of_their_range_are_corrupt(kind: object, datum: bytes, rows: int) -> None:
    content = (len(datum).to_bytes(4, "big") + datum) * rows
    assert _decodes(content, rows, _record(c=kind)) is None


def test_hostile_counts_cost_neither_time_nor_memory() -> None:
    cases = [
        (_record(a={"type": "array", "items": ["null", "int"]}), zigzag(10**12) + b"\0" * 50_000),
        (_record(a={"type": "map", "values": "int"}), zigzag(10**12) + b"\0" * 50_000),
        (_record(a="string"), zigzag(10**9) + b"x" * 50_000),
        (
            _record(a=["null", {"type": "fixed", "name": "f", "size": 2**30}]),
            b"\x02" + b"x" * 50_000,
        ),
    ]
    for text, datum in cases:
        content = len(datum).to_bytes(4, "big") + datum
        tracemalloc.start()
        begin = time.process_time()
        assert _decodes(content, 1, text) is None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert time.process_time() - begin < 20
        assert peak < 16 << 20


def test_a_wide_sampled_record_does_not_make_the_gather_larger_than_the_block() -> None:
    text = _record(s="string", t="string")
    wide = zigzag(3000) + b"w" * 3000 + b"\0"
    narrow = b"\0\0"
    count = 40_000
    rows = [narrow] * count
    for i in (0, count // 3, 2 * (count - 1) // 3, (count - 1) // 3, count - 1):
        rows[i] = wide
    content = b"".join(len(r).to_bytes(4, "big") + r for r in rows)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    found = _decodes(content, count, text)
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert found is not None
    assert pa.total_allocated_bytes() - before < 16 << 20


def test_records_of_different_first_fields_and_of_hidden_patterns_are_found() -> None:
    chance = random.Random(5)
    for pattern in (True, False):
        data = []
        for i in range(2000):
            body = b"\x02\x06abc" if pattern else bytes([2, 6, i % 251, i % 7, 65])
            noise = b"\x00\x00\x00\x05\x02\x06abc" * chance.randrange(3)
            data.append(body + noise)
        content = b"".join(len(d).to_bytes(4, "big") + d for d in data)
        expected = np.cumsum([0, *(len(d) + 4 for d in data)])
        assert (framed_starts(memoryview(content), 2000) == expected).all()


@pytest.mark.parametrize("many", [5, 40])
@pytest.mark.parametrize("alike", [True, False])
def test_records_of_several_parts_are_found_together_and_each_part_ends_where_it_says(
    alike: bool, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    parts = []
    for part in range(many):
        first = b"\x02\x06abc" if alike else b"\x02\x08ab%02d" % part
        bodies = [first + bytes(chance.randrange(40)) for _ in range(chance.choice([0, 150, 400]))]
        parts.append(b"".join(len(body).to_bytes(4, "big") + body for body in bodies))
    counts = [len(framed_starts(memoryview(p), n)) - 1 for p, n in ((p, _records(p)) for p in parts)]
    assert sum(counts) >= 512
    data = memoryview(b"".join(parts))
    told = [(len(p), n) for p, n in zip(parts, counts, strict=True)]
    expected = framed_starts(data, sum(counts))
    with monkeypatch.context() as patched:
        patched.delattr(record_starts, "framed_starts")  # part by part
        assert (joined_starts(data, told) == expected).all()
    size = len(parts[0])
    longer = [(size + 1, counts[0]), (len(parts[1]) - 1, counts[1])]
    fuller = [(size, counts[0] + 1), (len(parts[1]), counts[1] - 1)]
    for wrong in (longer, fuller):
        with pytest.raises(Malformed):
            joined_starts(data, [*wrong, *told[2:]])


def _records(data: bytes) -> int:
    at = count = 0
    while at < len(data):
        at, count = at + 4 + int.from_bytes(data[at : at + 4], "big"), count + 1
    return count


def test_empty_parts_between_others_do_no_harm_and_their_bytes_are_corrupt() -> None:
    text, content, count = _LARGE
    empty = (memoryview(b""), 0)
    parts = [empty, (memoryview(content), count), empty]
    assert decode_many(parts, text).num_rows == count
    with pytest.raises(CorruptTable):
        decode_many([*parts, (memoryview(b"x"), 0)], text)
    with pytest.raises(CorruptTable):
        decode_many([(memoryview(content[:-40]), count), (memoryview(content[-40:]), 0)], text)


def test_a_chunk_with_a_few_bytes_behind_it_is_read_as_if_they_were_not_there() -> None:
    """The bytes behind a chunk spare a copy; fewer than are needed must not spoil it."""
    content = b"".join((6).to_bytes(4, "big") + zigzag(2**40) for _ in range(30))
    cursors = Cursors(memoryview(content + bytes(5)), np.arange(0, len(content) + 1, 10))
    cursors.gather("V16", cursors.ends - 1)  # reaches beyond the five bytes, too
    assert read_numbers(cursors, None).tolist() == [2**40] * 30
    cursors.check_end()
