"""Converts values between types where Java converts them through text.

``HoodieAvroUtils.rewritePrimaryTypeWithDiffSchemaType`` and Spark's casts of base files agree: a float
becomes the double of its shortest text (0.1, not 0.10000000149011612), numbers become the text that
``toString`` writes, and decimals are rounded half up from such text. Plain Python converts only the distinct
texts: changed types are rare, and last until the next compaction.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WIDE = Context(prec=100)
_SPECIAL = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
# Double.toString writes plain digits from 10^-3 to below 10^7.
_PLAIN_FROM, _PLAIN_BELOW = -3, 7


def float_to_double(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """32-bit floats as the doubles that their shortest texts denote."""
    return column.cast(pa.string()).cast(pa.float64())


def real_to_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats or doubles as the texts that Java's ``toString`` writes."""
    return _by_text(column, _java_text, pa.string())


def to_decimal(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Numbers or texts as decimals, rounded half up; ``ArrowInvalid`` for a value that does not fit."""
    step = Decimal(1).scaleb(-target.scale)

    def convert(text: str) -> Decimal:
        try:
            return Decimal(text.strip()).quantize(step, ROUND_HALF_UP, _WIDE)
        except InvalidOperation:
            raise pa.ArrowInvalid(f"{text[:80]!r} is no decimal") from None

    return _by_text(column, convert, target)


def _by_text(
    column: pa.ChunkedArray, convert: Callable[[str], Any], target: pa.DataType
) -> pa.ChunkedArray:
    texts = column.cast(pa.string())
    distinct = pc.drop_null(pc.unique(texts))
    made = pa.array([convert(text) for text in distinct.to_pylist()], target)
    return pa.chunked_array([made]).take(pc.index_in(texts, value_set=distinct))


def _java_text(text: str) -> str:
    if text in _SPECIAL:
        return _SPECIAL[text]
    sign, digits, exponent = Decimal(text).as_tuple()
    minus = "-" if sign or text.startswith("-") else ""
    plain = "".join(map(str, digits)).lstrip("0")
    if not plain:
        return f"{minus}0.0"
    point = len(plain) + int(exponent)  # digits before the decimal point
    plain = plain.rstrip("0")
    if not _PLAIN_FROM < point <= _PLAIN_BELOW:
        return f"{minus}{plain[0]}.{plain[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{plain}"
    return f"{minus}{plain[:point].ljust(point, '0')}.{plain[point:] or '0'}"
