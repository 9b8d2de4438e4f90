"""Values of every type that a column may have: ordinary ones, and those that break things.

A value is what Python holds: times are the numbers that are stored (days, milliseconds or microseconds), so
that none is beyond ``datetime``. ``cells`` reads a column of an answer back in the same form.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NAN, INFINITY = float("nan"), float("inf")
BIG_TEXT = 1 << 20


@dataclass(frozen=True)
class Kind:
    """A column type. ``hostile`` values are valid; ``refused`` ones must be refused in any column."""

    name: str
    arrow: pa.DataType
    ordinary: tuple[Any, ...]
    hostile: tuple[Any, ...]


def _f32(*values: float) -> tuple[float, ...]:
    return tuple(float(np.float32(v)) for v in values)


_TEXTS = (
    "", " ", "a ", "\x00", "a\x00b", "\n", "null", "NaN", "__null__", "__empty__",
    "__HIVE_DEFAULT_PARTITION__", "\u00e9", "e\u0301", "\U0001f600", "\U0010ffff", "\uffff", "\ue000", "\x7f",
    "'", '"', "\\", "%", "_", "x" * 300, "ab\U0001f600" * 60,
)  # fmt: skip
KINDS = {
    kind.name: kind
    for kind in (
        Kind("bool", pa.bool_(), (True, False), (True,)),
        Kind("int", pa.int32(), (0, 1, 2, 7, -3), (-(2**31), 2**31 - 1, -1)),
        Kind("long", pa.int64(), (0, 1, 2, 5, 10), (-(2**63), 2**63 - 1, 2**53 + 1, -(2**53) - 1, -1)),
        Kind(
            "float", pa.float32(), _f32(0, 1, 2.5, 7, 0.1),
            (NAN, INFINITY, -INFINITY, -0.0, *_f32(1e-45, -1e-45, 3.4028235e38, -3.4028235e38, 16777217)),
        ),
        Kind(
            "double", pa.float64(), (0.0, 1.0, 2.5, 7.0, 0.1),
            (NAN, INFINITY, -INFINITY, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, 9007199254740993.0),
        ),
        Kind(
            "decimal", pa.decimal128(10, 2), tuple(map(Decimal, ("0.00", "1.50", "-2.25", "7.00"))),
            tuple(map(Decimal, ("99999999.99", "-99999999.99", "0.01", "-0.01"))),
        ),
        Kind(
            "decimal38", pa.decimal128(38, 18), tuple(map(Decimal, ("0", "1.5", "7.000000000000000001"))),
            tuple(map(Decimal, ("9" * 20 + "." + "9" * 18, "-" + "9" * 20 + "." + "9" * 18))),
        ),
        Kind("string", pa.string(), ("a", "b", "c", "oslo", "rome"), _TEXTS),
        Kind("binary", pa.binary(), (b"a", b"bc"), (b"", b"\x00", b"\xff", b"\xff" * 70, b"a\x00")),
        Kind("date", pa.date32(), (0, 1, 20000, 20500), (-(2**31), 2**31 - 1, -719162, -141428, -1)),
        Kind(
            "timestamp", pa.timestamp("us", "UTC"), (0, 1, 1_700_000_000_000_000),
            (-(2**63), 2**63 - 1, -1, -62135596800000001, 253402300800000000),
        ),
        Kind("millis", pa.timestamp("ms", "UTC"), (0, 1, 1_700_000_000_000), (-(2**63), 2**63 - 1, -1)),
        Kind("local", pa.timestamp("us"), (0, 1, 1_700_000_000_000_000), (-(2**63), 2**63 - 1, -1)),
        Kind(
            "longs", pa.list_(pa.int64()), ([1], [1, 2], []),
            ([None], [None, 2**63 - 1, -(2**63)], list(range(300))),
        ),
        Kind("doubles", pa.list_(pa.float64()), ([1.5], []), ([NAN, -0.0, None], [INFINITY, 5e-324])),
        Kind(
            "struct", pa.struct([("a", pa.int32()), ("s", pa.string()), ("d", pa.float64())]),
            ({"a": 1, "s": "x", "d": 0.5}, {"a": 2, "s": "y", "d": 2.0}),
            ({"a": None, "s": None, "d": None}, {"a": -(2**31), "s": "\x00\U0010ffff", "d": NAN}),
        ),
        Kind(
            "map", pa.map_(pa.string(), pa.int64()), ([("a", 1)], []),
            ([("", None)], [("\U0001f600", -(2**63)), ("\x00", 1)]),
        ),
        Kind(
            "structs", pa.list_(pa.struct([("s", pa.string()), ("n", pa.int64())])),
            ([{"s": "a", "n": 1}], []),
            ([None, {"s": None, "n": None}], [{"s": "\u00e9" * 400, "n": 2**63 - 1}]),
        ),
        Kind("vector", pa.list_(pa.float32(), 3), ([1.0, 0.0, 0.0], [0.0, 2.0, 1.0], [3.0, 3.0, 3.0]),
             ([0.0, 0.0, 0.0], [-0.0, 1.0, 0.0], _f32(3e38, -3e38, 3e38), _f32(1e-45, 0, 0))),
    )
}  # fmt: skip
#: into what a column of a kind may be widened
WIDER = {"int": ("long", "double"), "long": ("double",), "float": ("double",)}
KEYS = (
    "string",
    "string",
    "string",
    "int",
    "long",
    "double",
    "float",
    "decimal",
    "date",
    "bool",
    "timestamp",
)
PARTITIONS = ("string", "string", "string", "int", "long", "date", "bool")
ORDERINGS = ("long", "long", "int", "double", "float", "string", "decimal", "date", "timestamp", "bool")
#: texts of partition values, beside the hostile ones of every text
FOLDERS = (
    "..", ".", "a/b", "a/../b", "/x", "x/", "a//b", "a%2Fb", "%", "%41", "a=b", "a:b", "+", "*", ".hoodie",
    ".hidden", "_x", "A", "f" * 255, "f" * 256, "\u00e9" * 128, "d/" * 40 + "d", "g" * 5000, "a" * 200 + "/b",
    "default", "-", "\u202e", "C:", "a?b", "a#b", "{a}", "[a]",
)  # fmt: skip
#: texts of record keys, beside the hostile ones
KEY_TEXTS = ("a,b", "a:b", "a,b:c", ",", ":", "__null__", "__empty__", "k" * 5000, "id:a", "a,k1:b")


def draw(kind: Kind, chance: random.Random, hostile: float = 0.3, null: float = 0.1) -> Any:
    """A value, or None."""
    which = chance.random()
    if which < null:
        return None
    if which < null + hostile:
        if kind.name == "string" and chance.random() < 0.01:
            return "\u00e9" * (BIG_TEXT // 2)
        return chance.choice(kind.hostile)
    return chance.choice(kind.ordinary)


def column(values: Sequence[Any], kind: Kind) -> pa.Array:
    """An Arrow array of values."""
    if pa.types.is_temporal(kind.arrow):
        width = pa.int32() if pa.types.is_date32(kind.arrow) else pa.int64()
        return pa.array(values, width).cast(kind.arrow)
    return pa.array(values, kind.arrow)


def cells(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column in the form of this module."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    return column.to_pylist()


def stored(value: Any, kind: pa.DataType) -> Any:
    """A value as a column of this type holds it, widened as Hudi widens it."""
    if value is None:
        return None
    if pa.types.is_float64(kind):
        return float(str(value)) if isinstance(value, np.float32) else float(value)
    if pa.types.is_float32(kind) and (value != value or np.float32(value) == value):
        return np.float32(value)
    if pa.types.is_integer(kind) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    return value


def canonical(value: Any) -> Any:
    """Equal exactly where two values are the same: one NaN, two zeros."""
    if isinstance(value, (float, np.floating)):
        number = float(value)
        return "nan" if math.isnan(number) else ("f", struct.pack(">d", number))
    if isinstance(value, Decimal):
        return ("d", str(value.normalize() + 0))
    if isinstance(value, dict):
        return ("s", *((k, canonical(v)) for k, v in sorted(value.items())))
    if isinstance(value, (list, tuple)):
        return ("l", *map(canonical, value))
    return value


def text_of(value: Any, kind: Kind) -> str:
    """A text that two values share exactly where Hudi's key texts are the same."""
    if value is None:
        return "__null__"
    if kind.name == "string":
        return value or "__empty__"
    if kind.name in ("float", "double"):
        return repr(float(value))
    return str(value)


def order_of(value: Any) -> Any:
    """What ordering values compare by: floats in their total order, NaN greatest."""
    if isinstance(value, (float, np.floating)):
        bits = struct.unpack(">q", struct.pack(">d", NAN if math.isnan(value) else float(value)))[0]
        return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
    return value
