"""PostgreSQL's types as columns: which Arrow type each of them becomes, and its values from their text.

The text is that of ``DateStyle=ISO``, ``TimeZone=UTC``, ``bytea_output=hex``, as the session is told. A type
without a like among the table's becomes text, which loses nothing: ``json``, ``uuid``, ``time``,
``interval``, ranges, enums, composite types, and ``numeric`` without a precision. What the table's type
cannot hold (NaN among decimals, infinity among times, years before 1 or after 9999, arrays of several
dimensions) is refused with its column and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid

_BOOL, _BYTEA, _NUMERIC = 16, 17, 1700
_PLAIN = {
    _BOOL: pa.bool_(), _BYTEA: pa.binary(), 20: pa.int64(), 21: pa.int32(), 23: pa.int32(), 26: pa.int64(),
    700: pa.float32(), 701: pa.float64(), 1082: pa.date32(),
    1114: pa.timestamp("us"), 1184: pa.timestamp("us", "UTC"),
}  # fmt: skip
#: of PostgreSQL's own array types
ELEMENTS = {
    1000: 16, 1001: 17, 1016: 20, 1005: 21, 1007: 23, 1028: 26, 1021: 700, 1022: 701, 1182: 1082, 1115: 1114,
    1185: 1184, 1231: 1700, 1009: 25, 1015: 1043, 1014: 1042, 1003: 19, 2951: 2950, 199: 114, 3807: 3802,
}  # fmt: skip
_DIGITS_MAX = 38
_HEADER = 4
_LIMITS = re.compile(r"\[-?\d+:-?\d+\](\[-?\d+:-?\d+\])*=")
_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^{},"\\]+)', re.DOTALL)


class Misfit(Invalid):
    """A row does not fit the table. ``why``: in short, without what to do about it."""

    def __init__(self, why: str, advice: str) -> None:
        super().__init__(f"{why}{advice}")
        self.why = why


def arrow_type(oid: int, modifier: int, elements: Mapping[int, int] = ELEMENTS) -> pa.DataType:
    """The column's type. ``elements``: array types' OIDs -> their elements'."""
    if oid in elements:
        return pa.list_(arrow_type(elements[oid], modifier, {}))
    if oid == _NUMERIC and modifier >= _HEADER:
        digits, scale = (modifier - _HEADER) >> 16 & 0xFFFF, (modifier - _HEADER) & 0x7FF
        if digits <= _DIGITS_MAX and scale <= digits:
            return pa.decimal128(digits, scale)
    return _PLAIN.get(oid, pa.string())


def typed(texts: pa.Array, wanted: pa.DataType, column: str) -> pa.Array:
    """Values of their text. Raises ``Invalid`` with the column and the first value that does not fit."""
    if pa.types.is_string(wanted):
        return texts
    make = _maker(wanted)
    try:
        return make(texts)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        reason = str(error)
    for one in range(len(texts)):  # only on the way out: which value is it
        try:
            make(texts.slice(one, 1))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            found = texts[one].as_py()
            raise Misfit(
                f"column {column!r}: {found[:200]!r} has no like in {wanted}",
                "; nothing of this batch was committed. Change the row in PostgreSQL before it is read, or"
                " the column to text, or keep such rows in a table of their own: --on-error dead-letter",
            ) from None
    raise Invalid(f"column {column!r}: {reason}")


def _maker(wanted: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if pa.types.is_boolean(wanted):
        return _booleans
    if pa.types.is_binary(wanted):
        return _binary
    if pa.types.is_list(wanted):
        return lambda texts: _arrays(texts, wanted)
    if pa.types.is_floating(wanted):
        return lambda texts: pc.cast(_spelled(texts), wanted)
    return lambda texts: pc.cast(texts, wanted)


def _spelled(texts: pa.Array) -> pa.Array:
    """Numbers of which some are not finite, as Arrow spells them."""
    return pc.replace_substring(texts, "Infinity", "inf")


def _booleans(texts: pa.Array) -> pa.Array:
    known = pc.is_in(texts, pa.array(["t", "f", None]))
    if not pc.all(known).as_py() and len(texts):
        raise ValueError("expected t or f")
    return pc.equal(texts, "t")


def _binary(texts: pa.Array) -> pa.Array:
    """``\\x`` and two digits for each byte."""
    if not pc.all(pc.starts_with(texts, "\\x")).as_py() and texts.null_count < len(texts):
        raise ValueError("expected \\x and digits")
    return pa.array(
        [None if text is None else bytes.fromhex(text[2:]) for text in texts.to_pylist()], pa.binary()
    )


def _arrays(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    items: list[str | None] = []
    offsets = np.zeros(len(texts) + 1, np.int32)
    for at, text in enumerate(texts.to_pylist()):
        if text is not None:
            items += _items(text)
        offsets[at + 1] = len(items)
    kind = wanted.value_type
    values = pa.array(items, pa.string())
    made = values if pa.types.is_string(kind) else _maker(kind)(values)
    lists = pa.ListArray.from_arrays(pa.array(offsets), made)
    return pc.if_else(texts.is_valid(), lists, pa.nulls(len(texts), lists.type)).cast(wanted)


def _items(text: str) -> list[str | None]:
    """The elements of an array of one dimension: ``{1,NULL,"a b"}``."""
    if (limits := _LIMITS.match(text)) is not None:
        text = text[limits.end() :]
    if text[:1] != "{" or text[-1:] != "}":
        raise ValueError("no array")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        item = _ITEM.match(text, at)
        if item is None:
            raise ValueError("an array of several dimensions, or none")
        quoted, bare = item.groups()
        if quoted is not None:
            found.append(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        else:
            found.append(None if bare == "NULL" else bare)
        at = item.end()
        if at < end:
            if text[at] != "," or at + 1 == end:
                raise ValueError("no comma between the elements of an array")
            at += 1
    return found
