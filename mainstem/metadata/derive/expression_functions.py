"""Functions of expression indexes, by columns: Spark's functions under Hudi's names.

``ExpressionIndexSparkFunctions`` lists what an index may use. Functions that Arrow computes exactly as Spark
does are here. The others (regular expressions, ``split``, texts as dates) are refused by name, as are columns
of a type that the function does not take.

Times become text or calendar fields in a time zone: that of the Spark session in which Java computes them,
which storage does not record. UTC is assumed; if ``zone`` is None, everything that depends on one is refused.
A writer in another zone puts other values into the index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import value_type

# Keys of an index definition's options (HoodieExpressionIndex).
EXPRESSION, FORMAT, TRIM_TEXT, POSITION, LENGTH, DAYS = (
    "expr", "format", "trimString", "pos", "len", "days",
)  # fmt: skip
OPTIONS = (EXPRESSION, FORMAT, TRIM_TEXT, POSITION, LENGTH, DAYS)
_TEXT_FORMAT = "yyyy-MM-dd HH:mm:ss"
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_PATTERN = re.compile(r"([a-zA-Z])\1*|'[^'%]*'|[^a-zA-Z'%]")
_YEARS = (1, 9999)


@dataclass(frozen=True)
class Expression:
    """A function of one column; ``options`` are those of the index definition. With ``zone`` None, only what
    is the same in every time zone is computed."""

    function: str = "identity"
    options: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = "UTC"

    def __post_init__(self) -> None:
        if self.function not in _FUNCTIONS:
            raise Unsupported(
                f"an index on {self.function!r}: {', '.join(sorted(_FUNCTIONS))} can be computed; drop the"
                " index, or leave it to the engine that made it"
            )
        if self.zone is None and self.function not in _RESULTS:
            raise Unsupported(
                f"an index on {self.function!r}: only those on {', '.join(sorted(_RESULTS))} have the same"
                " values in every time zone of a session; drop the index"
            )

    @property
    def result(self) -> pa.DataType | None:
        """The type of its values, if that does not depend on the column's."""
        return _RESULTS.get(self.function)

    def values(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The function's value for each row; null for null."""
        column = column if column.type == value_type(column.type) else column.cast(value_type(column.type))
        made = _FUNCTIONS[self.function](self, column)
        return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])

    def refused(self, kind: pa.DataType) -> Unsupported:
        """The error for a column of a type that the function does not take here."""
        return Unsupported(f"an index on {self.function!r} of a column of type {kind}: it cannot be computed")

    def number(self, key: str) -> int:
        """The value of an option that must be an integer."""
        text = self.options.get(key, "").strip()
        try:
            return int(text)
        except ValueError:
            raise Invalid(
                f"{self.function} needs a whole number {key!r}, its definition has {text!r}"
            ) from None


_Function = Callable[[Expression, pa.ChunkedArray], pa.ChunkedArray]


def _identity(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column


def _text(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise expression.refused(column.type)
    return column


def _case(by_columns: Callable, one: Callable[[str], str]) -> _Function:
    """Converts texts beyond ASCII in Python, each distinct one once: Java's rules regard whole words."""

    def convert(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
        column = _text(expression, column)
        if pc.all(pc.string_is_ascii(column)).as_py() is not False:
            return by_columns(column)
        coded = pa.chunked_array([column.combine_chunks()]).chunk(0).dictionary_encode()
        texts = [one(text) for text in coded.dictionary.to_pylist()]
        return pa.chunked_array([pa.array(texts, column.type).take(coded.indices)])

    return convert


def _trim(by_columns: Callable) -> _Function:
    def convert(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return by_columns(_text(expression, column), characters=expression.options.get(TRIM_TEXT) or " ")

    return convert


def _substring(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    position, length = expression.number(POSITION), expression.number(LENGTH)
    if position < 0:
        raise Unsupported(f"substring from position {position}: positions from the front can be computed")
    start = max(position - 1, 0)
    return pc.utf8_slice_codeunits(_text(expression, column), start, start + max(length, 0))


def _length(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_length(_text(expression, column)).cast(pa.int32())


def _local(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates and times as wall-clock times in the expression's zone."""
    kind = column.type
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("s"))
    if not pa.types.is_timestamp(kind):
        raise expression.refused(kind)
    if kind.tz is None:
        return column
    if expression.zone is None:
        raise Unsupported(
            f"an index on {expression.function!r} of a column of type {kind}: its values depend on the time"
            " zone of the session that computes them; drop the index: column statistics serve as well"
        )
    return pc.local_timestamp(column.cast(pa.timestamp(kind.unit, expression.zone)))


def _calendar(part: Callable) -> _Function:
    def convert(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
        return part(_local(expression, column)).cast(pa.int32())

    return convert


def _from_unixtime(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_integer(column.type):
        raise expression.refused(column.type)
    seconds = column.cast(pa.int64()).cast(pa.timestamp("s", "UTC"))
    return _formatted(expression, _local(expression, seconds), expression.options.get(FORMAT) or _TEXT_FORMAT)


def _date_format(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    pattern = expression.options.get(FORMAT)
    if not pattern:
        raise Invalid("date_format needs the option 'format'")
    return _formatted(expression, _local(expression, column), pattern)


def _formatted(expression: Expression, times: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    times = pc.floor_temporal(times, unit="second").cast(pa.timestamp("s"))
    years = pc.min_max(pc.year(times)).as_py()
    if years["min"] is not None and not _YEARS[0] <= years["min"] <= years["max"] <= _YEARS[1]:
        raise Unsupported(
            f"{expression.function} of the years {years['min']} to {years['max']}: years of four digits"
            " can be written as Spark does"
        )
    return pc.strftime(times, format=strftime_pattern(pattern), locale="C")


def strftime_pattern(pattern: str) -> str:
    """A ``strftime`` pattern for one of Java's DateTimeFormatter; ``Unsupported`` for other letters."""
    made, at = [], 0
    while at < len(pattern):
        match = _PATTERN.match(pattern, at)
        piece = "" if match is None else match.group()
        if not piece or (piece.isalpha() and piece not in _LETTERS):
            raise Unsupported(
                f"the time format {pattern!r}: {piece or pattern[at]!r} cannot be computed, only"
                f" {', '.join(_LETTERS)}, signs between them and text in single quotes"
            )
        made.append(_LETTERS.get(piece) or (piece[1:-1] or "'" if piece[0] == "'" else piece))
        at += len(piece)
    return "".join(made)


def _to_date(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date(column.type):
        return column
    return pc.floor_temporal(_local(expression, column), unit="day").cast(pa.date32())


def _moved(sign: int) -> _Function:
    def convert(expression: Expression, column: pa.ChunkedArray) -> pa.ChunkedArray:
        days = _to_date(expression, column).cast(pa.int32())
        return pc.add(days, pa.scalar(sign * expression.number(DAYS), pa.int32())).cast(pa.date32())

    return convert


_FUNCTIONS: dict[str, _Function] = {
    "identity": _identity,
    "lower": _case(pc.ascii_lower, str.lower),
    "upper": _case(pc.ascii_upper, str.upper),
    "trim": _trim(pc.utf8_trim),
    "ltrim": _trim(pc.utf8_ltrim),
    "rtrim": _trim(pc.utf8_rtrim),
    "substring": _substring,
    "length": _length,
    "year": _calendar(pc.year),
    "month": _calendar(pc.month),
    "day": _calendar(pc.day),
    "hour": _calendar(pc.hour),
    "from_unixtime": _from_unixtime,
    "date_format": _date_format,
    "to_date": _to_date,
    "date_add": _moved(1),
    "date_sub": _moved(-1),
}
#: functions that do not depend on the session's time zone, except on times with a zone (``_local``) -> type
_RESULTS: dict[str, pa.DataType] = {
    **dict.fromkeys(("lower", "upper", "trim", "ltrim", "rtrim", "substring"), pa.string()),
    **dict.fromkeys(("length", "year", "month", "day"), pa.int32()),
    **dict.fromkeys(("to_date", "date_add", "date_sub"), pa.date32()),
}
