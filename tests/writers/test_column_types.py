"""Goal: every Arrow type that a Hudi table can hold is stored and read back; every other is refused by name.

Method: one table per type is created, written and read back; the stored type is the one named here (what
Hudi has), the values must be equal to what was written. Java reads the same types in ``tests/interop``.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem

FAST = {"hoodie.mainstem.fsync": "false"}
WHEN = datetime(2024, 2, 29, 1, 2, 3)
UTC = "UTC"


# pyarrow 16 and 17 neither cast nor make them; rows of them are refused with the way round.
UNTIL_18 = (pa.string_view(), pa.binary_view(), pa.dictionary(pa.int32(), pa.large_string()))
OLD = int(pa.__version__.split(".")[0]) < 18


def types(feature: str, *cases: tuple) -> list:
    mark = pytest.mark.supports("Column types", feature)
    held = [case for case in cases if not (OLD and case[0] in UNTIL_18)]
    return [pytest.param(*case, marks=mark, id=str(case[0])) for case in held]


HELD = [
    *types(
        "booleans, integers, floats",
        (pa.bool_(), pa.bool_(), [True, False]),
        (pa.int8(), pa.int32(), [-128, 127]),
        (pa.int16(), pa.int32(), [-(2**15)]),
        (pa.int32(), pa.int32(), [-(2**31)]),
        (pa.int64(), pa.int64(), [2**63 - 1]),
        (pa.uint8(), pa.int32(), [255]),
        (pa.uint16(), pa.int32(), [65535]),
        (pa.uint32(), pa.int64(), [2**32 - 1]),
        (pa.float16(), pa.float32(), [1.5]),
        (pa.float32(), pa.float32(), [0.5]),
        (pa.float64(), pa.float64(), [0.1, float("-inf")]),
    ),
    *types("times of day in milliseconds", (pa.time32("ms"), pa.time32("ms"), [time(23, 59, 59, 123000)])),
    *types(
        "decimals",
        (pa.decimal128(5, 2), pa.decimal128(5, 2), [Decimal("-999.99"), Decimal("0.00")]),
        (pa.decimal128(38, 0), pa.decimal128(38, 0), [Decimal("9" * 38)]),
        (pa.decimal128(38, 38), pa.decimal128(38, 38), [Decimal("-0." + "9" * 38)]),
        (pa.decimal256(20, 4), pa.decimal128(20, 4), [Decimal("1234.5678")]),
    ),
    *types(
        "texts and binaries",
        (pa.string(), pa.string(), ["é𝄞", ""]),
        (pa.large_string(), pa.string(), ["x" * 70_000]),
        (pa.string_view(), pa.string(), ["longer than twelve bytes", "x"]),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["a", "b", "a"]),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string(), ["a", "b"]),
        (pa.binary(), pa.binary(), [b"\0\xff", b""]),
        (pa.large_binary(), pa.binary(), [b"x"]),
        (pa.binary_view(), pa.binary(), [b"longer than twelve bytes"]),
        (pa.binary(4), pa.binary(), [b"abcd"]),
    ),
    *types(
        "dates and timestamps",
        (pa.date32(), pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
        (pa.date64(), pa.date32(), [date(2024, 2, 29)]),
        (pa.timestamp("s", UTC), pa.timestamp("us", UTC), [WHEN]),
        (pa.timestamp("ms", UTC), pa.timestamp("ms", UTC), [WHEN + timedelta(milliseconds=1)]),
        (pa.timestamp("us", UTC), pa.timestamp("us", UTC), [WHEN + timedelta(microseconds=1)]),
        (pa.timestamp("ns", UTC), pa.timestamp("us", UTC), [WHEN]),
        (pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", UTC), [WHEN]),
        (pa.timestamp("s"), pa.timestamp("us"), [WHEN]),
        (pa.timestamp("ms"), pa.timestamp("ms"), [WHEN]),
        (pa.timestamp("us"), pa.timestamp("us"), [WHEN + timedelta(microseconds=1)]),
        (pa.timestamp("ns"), pa.timestamp("us"), [WHEN]),
    ),
    *types(
        "lists, maps and structs",
        (pa.list_(pa.int32()), pa.list_(pa.int32()), [[1, None], []]),
        (pa.large_list(pa.string()), pa.list_(pa.string()), [["x"]]),
        (pa.list_(pa.float32(), 2), pa.list_(pa.float32()), [[0.5, 1.5]]),
        (pa.list_(pa.list_(pa.int64())), pa.list_(pa.list_(pa.int64())), [[[1], None, []]]),
        (pa.map_(pa.string(), pa.list_(pa.date32())), None,
         [[("k", [date(2024, 2, 29), None]), ("m", None)]]),
        (pa.struct([("a", pa.decimal128(9, 2)), ("b", pa.struct([("c", pa.timestamp("us", UTC))]))]), None,
         [{"a": Decimal("1.50"), "b": None}]),
        (pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.binary()))])), None,
         [[{"x": [("k", b"v")]}, None]]),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "stored", "values"), HELD)
def test_a_column_of_this_type_is_held(kind: pa.DataType, stored, values: list, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", kind)])
    table = mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=FAST)
    column = pa.array([*values, None], None if pa.types.is_float16(kind) else kind).cast(kind)
    table.upsert(pa.table([pa.array(range(len(column)), pa.int64()), column], schema=schema))
    found = mainstem.open_table(tmp_path / "t").scan(columns=["id", "v"]).to_arrow().sort_by("id")
    assert found.schema.field("v").type == (kind if stored is None else stored)
    expected = column.cast(stored) if stored is not None and not pa.types.is_date64(kind) else column
    assert found["v"].to_pylist() == expected.to_pylist()


REFUSED = {
    "uint64": (pa.uint64(), "decimal"),
    "time32": (pa.time32("s"), "int64"),
    "time64": (pa.time64("us"), "int64"),
    "duration": (pa.duration("us"), "int64"),
    "null": (pa.null(), "null"),
    "interval": (pa.month_day_nano_interval(), "interval"),
    "wide decimal": (pa.decimal256(40, 2), "decimal256"),
    "negative scale": (pa.decimal128(5, -2), "decimal128"),
    "map of integers": (pa.map_(pa.int32(), pa.string()), "string keys"),
    "empty struct": (pa.struct([]), "without fields"),
    "union": (pa.dense_union([pa.field("a", pa.int32())]), "union"),
    "time in a list": (pa.list_(pa.time64("us")), "time64"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_column_that_hudi_cannot_hold_is_refused_by_name(name: str, tmp_path: Path) -> None:
    kind, needle = REFUSED[name]
    with pytest.raises(mainstem.Invalid, match=f"'v'.*{needle}|{needle}.*'v'"):
        mainstem.create_table(
            tmp_path / "t", pa.schema([("id", pa.int64()), ("v", kind)]), record_key="id", buckets=1
        )
    assert not (tmp_path / "t" / ".hoodie" / "hoodie.properties").exists()


def test_digits_that_a_column_cannot_hold_are_refused_and_not_cut(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", UTC)), ("p", pa.decimal128(5, 2))])
    table = mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=FAST)
    instant = pa.array([0], pa.timestamp("ns", UTC))
    whole = {"id": pa.array([1]), "at": instant, "p": pa.array([Decimal("1.00")])}
    table.upsert(pa.table(whole))
    for name, column in (
        ("at", pa.array([1], pa.timestamp("ns", UTC))),
        ("p", pa.array([Decimal("1.005")])),
        ("p", pa.array([Decimal("1000.00")])),
        ("at", pa.array([time(1, 2)])),
    ):
        with pytest.raises(mainstem.Invalid, match=f"'{name}'"):
            table.upsert(pa.table({**whole, name: column}))
    assert table.scan().to_arrow().num_rows == 1
