"""Hostile values of every type that column statistics are kept of, and rows made of them."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

NAN, INF = float("nan"), float("inf")
UTC = datetime.UTC
_DAY, _AT = datetime.date, datetime.datetime
_FLOAT32 = struct.unpack("f", struct.pack("f", 0.1))[0]
_NINES = "9" * 28 + "." + "9" * 10
KEYS = [f"k{number:02d}" for number in range(36)] + [
    " ",
    "é",
    "😀",
    "z\uffff",
    "a'b,c:d$",
    "k" * 300,
    "NaN",
    "0",
]
PARTITIONS = ["one", "two", "3", "ü"]

_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int32(), [-(2**31), -7, -1, 0, 1, 2, 7, 40, 2**31 - 1]),
    "l": (pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 1, 3, 2**53, 2**53 + 1, 2**63 - 1]),
    "f": (pa.float32(), [NAN, -INF, -3.4028234663852886e38, -1.5, -0.0, 0.0, 1.401298464324817e-45, _FLOAT32,
                         2.0, 16777216.0, INF]),
    "d": (pa.float64(), [NAN, -INF, -1.7976931348623157e308, -2.5, -0.0, 0.0, 5e-324, 0.1, 1.5, 7.0, 40.0,
                         9007199254740993.0, 1.7976931348623157e308, INF]),
    "t": (pa.string(), [None, "", "\0", "A", "a", "ab", "abc", "b", "é", "É", "ß", "\ud7ff", "\ue000",
                        "z\uffff", "😀", "😀a", "b" * 5000, "é" * 700, "x" + "é" * 700, "%", "a_b",
                        '"quoted"', " a "]),
    "u": (pa.binary(), [b"", b"\0", b"\x7f", b"\x80", b"\xff\xff", b"ab", b"q" * 5000]),
    "y": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [_DAY(1, 1, 1), _DAY(1582, 10, 4), _DAY(1969, 12, 31), _DAY(1970, 1, 1),
                          _DAY(2024, 2, 29),
                          _DAY(2026, 3, 1), _DAY(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [_AT(1, 1, 1, tzinfo=UTC), _AT(1899, 12, 31, 23, 59, 59, 999_999, UTC),
                                       _AT(1970, 1, 1, tzinfo=UTC), _AT(2026, 3, 1, 2, 3, 4, 5, UTC),
                                       _AT(9999, 12, 31, 23, 59, 59, 999_999, UTC)]),
    "mil": (pa.timestamp("ms", "UTC"), [_AT(1, 1, 1, tzinfo=UTC), _AT(1970, 1, 1, 0, 0, 0, 1000, UTC),
                                        _AT(2026, 3, 1, tzinfo=UTC), _AT(9999, 12, 31, tzinfo=UTC)]),
    "loc": (pa.timestamp("us"), [_AT(1, 1, 1), _AT(1970, 1, 1), _AT(2026, 3, 1, 2, 3, 4, 5),
                                 _AT(9999, 12, 31)]),
    "c": (pa.decimal128(9, 2), [Decimal(n) / 100 for n in (-999_999_999, -1, 0, 1, 250, 999_999_999)]),
    "m": (pa.decimal128(38, 10), [Decimal(n) for n in ("-" + _NINES, "-1E-10", "0", "1E-10", "2.5", _NINES)]),
    "st": (pa.struct([("x", pa.int32()), ("y", pa.float64())]), [{"x": 1, "y": NAN}, {"x": None, "y": -0.0},
                                                                 {"x": 9, "y": 5.0}]),
    "li": (pa.list_(pa.int32()), [[], [1, None], [7]]),
}  # fmt: skip
POOLS: dict[str, list[Any]] = {name: values for name, (_, values) in _TYPES.items()}
FIXED = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
#: columns that a table gets later than the others
LATER = ("d", "t", "l", "day")


def schema(columns: Sequence[str]) -> pa.Schema:
    """The schema of a table with these columns."""
    return pa.schema([*FIXED, *(pa.field(name, _TYPES[name][0]) for name in columns)])


def type_of(name: str) -> pa.DataType:
    """The type of a column."""
    return _TYPES[name][0] if name in _TYPES else FIXED.field(name).type


def pool(name: str) -> list[Any]:
    """The values of a column."""
    return {"id": KEYS, "part": PARTITIONS, "ts": list(range(40))}.get(name) or POOLS[name]


def rows(chance: random.Random, count: int, columns: Sequence[str]) -> pa.Table:
    """Rows with keys near one another; each partition mostly has some values of its own in each column, that
    lie close together, so that statistics tell it and its files from others."""
    first = chance.randrange(len(KEYS))
    near = KEYS[first : first + 12] if chance.random() < 0.6 else KEYS
    ids = chance.sample(near, min(count, len(near)))
    parts = [PARTITIONS[sum(map(ord, key)) % len(PARTITIONS)] for key in ids]
    made: dict[str, list[Any]] = {"id": ids, "part": parts, "ts": [chance.randrange(40) for _ in ids]}
    for name in columns:
        windows = {part: _window(chance, name, part) for part in PARTITIONS}
        made[name] = [chance.choice(windows[part]) for part in parts]
    return pa.table(made, schema=schema(columns))


def _window(chance: random.Random, name: str, part: str) -> list[Any]:
    """Values of one column that the rows of a partition get in one step."""
    drawn = chance.random()
    if drawn < 0.05:
        return [None]
    values = POOLS[name]
    own = (
        random.Random(f"{name} {part}").randrange(len(values))
        if drawn < 0.8
        else chance.randrange(len(values))
    )
    return values[own : own + chance.choice((1, 2, 4))] + [None] * chance.choice((0, 0, 1))
