"""Partition texts of Hudi's TimestampBasedKeyGenerator: formatted times.

Patterns are Joda's (DateTimeFormat). Only their numeric letters are supported; texts that depend on a JVM's
locale (names of months or zones) are refused. The zone must be set: without it Java takes that of whichever
JVM writes (HoodieDateTimeParser).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.options.declaration import Text
from mainstem.options.placing import (
    TIME_INPUT_DELIMITER,
    TIME_INPUT_FORMAT,
    TIME_INPUT_ZONE,
    TIME_OPTIONS,
    TIME_OUTPUT_FORMAT,
    TIME_OUTPUT_ZONE,
    TIME_PARSER,
    TIME_TYPE,
    TIME_UNIT,
    TIME_ZONE,
)

_TEXTS = ("DATE_STRING", "MIXED")
_UNITS = {
    "EPOCHMILLISECONDS": "MILLISECONDS", "EPOCHMICROSECONDS": "MICROSECONDS", "UNIX_TIMESTAMP": "SECONDS",
}  # fmt: skip
# Milliseconds per unit or, if negative, units per millisecond.
_MILLIS = {
    "NANOSECONDS": -1_000_000, "MICROSECONDS": -1_000, "MILLISECONDS": 1, "SECONDS": 1_000,
    "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": 86_400_000,
}  # fmt: skip
# Letters that an output pattern may have, and the span in milliseconds within which their text is constant.
_DAY = 86_400_000
_WRITTEN = {"y": _DAY, "Y": _DAY, "M": _DAY, "d": _DAY, "D": _DAY, "H": 3_600_000, "k": 3_600_000,
            "K": 3_600_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "S": 1}  # fmt: skip
_PARSED = "yYMdHmsSZ"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Range of times in Python's calendar: years 1 to 9999, less a day at either end for time zones.
_FIRST_MS = -62_135_596_800_000 + _DAY
_LAST_MS = 253_402_300_799_999 - _DAY
_FAR = 2**62


@dataclass(frozen=True)
class TimeFormat:
    """``hoodie.keygen.timebased.*`` of a table; picklable, compared by value."""

    kind: str
    output: str
    output_zone: str
    unit: str = "SECONDS"
    inputs: tuple[str, ...] = ()
    input_zone: str = ""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TimeFormat:
        """Reads and checks the options. Raises ``Invalid``, ``Unsupported`` for what only Java supports."""
        given = {key: _text(properties, key) for key in TIME_OPTIONS}
        parser = properties.get(TIME_PARSER, TIME_PARSER.default)
        if parser != TIME_PARSER.default:
            raise Unsupported(f"{TIME_PARSER}={parser!r}: classes named by a table are never loaded")
        kind = given[TIME_TYPE]
        if kind not in (*_TEXTS, *_UNITS, "SCALAR"):
            known = ", ".join((*_UNITS, "SCALAR", *_TEXTS))
            raise Invalid(f"{TIME_TYPE}={kind!r}, expected {known}")
        unit = _UNITS.get(kind) or (given[TIME_UNIT] or "SECONDS").upper()
        if unit not in _MILLIS:
            raise Invalid(f"{TIME_UNIT}={given[TIME_UNIT]!r}, expected {', '.join(_MILLIS)}")
        inputs: tuple[str, ...] = ()
        if kind in _TEXTS:
            between = given[TIME_INPUT_DELIMITER]
            if between not in ("", ","):
                raise Unsupported(f"{TIME_INPUT_DELIMITER}={between!r}: only ',' is supported")
            inputs = tuple(p.strip() for p in given[TIME_INPUT_FORMAT].split(",") if p.strip())
            if not inputs:
                example = "for example yyyy-MM-dd HH:mm:ss"
                raise Invalid(f"{TIME_TYPE}={kind} needs {TIME_INPUT_FORMAT}, {example}")
        zones = [given[TIME_ZONE] or given[one] for one in (TIME_OUTPUT_ZONE, TIME_INPUT_ZONE)]
        found = cls(kind, given[TIME_OUTPUT_FORMAT], zones[0], unit, inputs, zones[1])
        found._check()
        return found

    def _check(self) -> None:
        if not self.output:
            raise Invalid(f"{TIME_OUTPUT_FORMAT} is missing; expected a pattern such as yyyy/MM/dd")
        for token, _ in _tokens(self.output, TIME_OUTPUT_FORMAT):
            if token and token not in _WRITTEN:
                raise Unsupported(
                    f"{TIME_OUTPUT_FORMAT}={self.output!r}: the letter {token!r} cannot be written;"
                    f" supported are {' '.join(_WRITTEN)}"
                )
        for key, zone in ((TIME_OUTPUT_ZONE, self.output_zone), (TIME_INPUT_ZONE, self.input_zone)):
            if zone:
                _zone(zone)
            elif key == TIME_OUTPUT_ZONE or (self.kind in _TEXTS and not all("Z" in p for p in self.inputs)):
                raise Invalid(
                    f"neither {TIME_ZONE} nor {key} is set: Java would take the zone of each writing JVM, and"
                    " one time would land in several partitions; set it, for example to UTC"
                )
        for pattern in self.inputs:
            _parser(pattern)

    @property
    def depth(self) -> int:
        """Number of folders that a formatted time makes."""
        return self.output.count("/") + 1

    def check_column(self, field: pa.Field) -> None:
        """Raise ``Invalid`` for a column on whose values Java would fail."""
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        wanted = text if self.kind in _TEXTS else (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        )  # fmt: skip
        if not wanted:
            raise Invalid(
                f"partition column {field.name!r} is a {kind}, but {TIME_TYPE}={self.kind} needs"
                f" {'strings' if self.kind in _TEXTS else 'numbers, dates or timestamps'}"
            )

    def texts(self, column: pa.Array, name: str) -> tuple[np.ndarray, list[str]]:
        """Formatted time of each value: (codes into, texts). A null counts as 1 of the unit, as in Java.

        Raises ``Invalid`` for a text that fits no input pattern, or a year outside 1 to 9999.
        """
        if self.kind in _TEXTS:
            encoded = column.dictionary_encode()
            values = encoded.dictionary.to_pylist()
            # Parse each distinct text once; a partition column has few.
            times = np.array([*(self._parse(v, name) for v in values), 1], np.int64)
            codes = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
            return self._written(times, codes, name)
        times, codes = np.unique(self._millis(column), return_inverse=True)
        return self._written(times, codes, name)

    def _millis(self, column: pa.Array) -> np.ndarray:
        """Milliseconds since the epoch, rounded towards zero as by Java's ``MILLISECONDS.convert``."""
        if pa.types.is_date(column.type):
            column = column.cast(pa.date32()).cast(pa.int32())
        elif pa.types.is_floating(column.type):
            floats = column.cast(pa.float64()).fill_null(1).to_numpy(zero_copy_only=False)
            floats = np.nan_to_num(floats, nan=0, posinf=_FAR, neginf=-_FAR).clip(-_FAR, _FAR)
            column = pa.array(np.trunc(floats).astype(np.int64))
        numbers = column.cast(pa.int64(), safe=False).fill_null(1).to_numpy(zero_copy_only=False)
        factor = _MILLIS[self.unit]
        if factor > 0:
            largest = _LAST_MS // factor + 2  # years beyond it are refused anyway
            return np.clip(numbers, -largest, largest) * factor
        numbers = np.clip(numbers, -_FAR, _FAR)
        whole = np.abs(numbers) // -factor
        return np.where(numbers < 0, -whole, whole)

    def _written(self, times: np.ndarray, codes: np.ndarray, name: str) -> tuple[np.ndarray, list[str]]:
        outside = (times < _FIRST_MS) | (times > _LAST_MS)
        if outside.any():
            raise Invalid(
                f"partition column {name!r} holds {int(times[outside][0])} ms since 1970, outside the"
                f" years 1 to 9999: is {TIME_TYPE}={self.kind} the column's unit?"
            )
        # A text is constant within one step, so only one time per step is formatted.
        step = min([_WRITTEN[t] for t, _ in _tokens(self.output, TIME_OUTPUT_FORMAT) if t] or [_DAY])
        local = _local_millis(times, self.output_zone)
        steps, again = np.unique(local // step * step, return_inverse=True)
        moments = [datetime(1970, 1, 1) + timedelta(milliseconds=ms) for ms in steps.tolist()]
        return again[codes], [format_time(self.output, moment) for moment in moments]

    def _parse(self, text: str, name: str) -> int:
        zone = _zone(self.input_zone) if self.input_zone else None
        for pattern in self.inputs:
            found = _parsed(pattern, text, zone)
            if found is not None:
                return (found - _EPOCH) // timedelta(milliseconds=1)
        raise Invalid(
            f"partition column {name!r} holds {text!r}, which does not fit {TIME_INPUT_FORMAT}="
            f"{','.join(self.inputs)!r}"
        )


def time_options(properties: Mapping[str, str]) -> dict[str, str]:
    """This module's options among ``properties``, under their current names."""
    found = {key: _text(properties, key) for key in TIME_OPTIONS}
    return {key: text for key, text in found.items() if text}


def _text(properties: Mapping[str, str], option: Text) -> str:
    return properties.get(option.found_as(properties), "").strip()


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    """The zone of an IANA name or ``GMT+8:00``; ``Invalid`` for other names, which Java takes for GMT."""
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    offset = re.fullmatch(r"GMT([+-])(\d{1,2})(?::?(\d{2}))?", name)
    if offset:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        if length < timedelta(hours=24):
            return timezone(-length if offset[1] == "-" else length)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Invalid(
            f"{name!r} is no time zone; expected an IANA name such as Europe/Paris, or GMT+8:00"
        ) from error


@lru_cache(maxsize=256)
def _tokens(pattern: str, option: str) -> tuple[tuple[str, str], ...]:
    """Runs of one letter as (letter, run), literal text as ("", text)."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "'":
            if pattern.startswith("''", at):
                found.append(("", "'"))
                at += 2
                continue
            end = at + 1
            while not (end < len(pattern) and pattern[end] == "'" and not pattern.startswith("''", end)):
                if end >= len(pattern):
                    raise Invalid(f"{option}={pattern!r}: a quote is not closed")
                end += 2 if pattern.startswith("''", end) else 1
            found.append(("", pattern[at + 1 : end].replace("''", "'")))
            at = end + 1
        elif char.isascii() and char.isalpha():
            run = re.match(re.escape(char) + "+", pattern[at:])
            assert run is not None
            if len(run[0]) > 9 or (char == "M" and len(run[0]) > 2):
                raise Unsupported(
                    f"{option}={pattern!r}: {run[0]!r} is a text that depends on the JVM's locale, or too"
                    " long; months are M or MM"
                )
            found.append((char, run[0]))
            at += len(run[0])
        else:
            found.append(("", char))
            at += 1
    return tuple(found)


def _local_millis(times: np.ndarray, name: str) -> np.ndarray:
    """The local times in the zone, as milliseconds since 1970-01-01 there."""
    zone = _zone(name)
    fixed = zone.utcoffset(None)
    if fixed is not None:
        return times + fixed // timedelta(milliseconds=1)
    moments = pa.array(times, pa.timestamp("ms", name))
    return pc.local_timestamp(moments).cast(pa.int64()).to_numpy(zero_copy_only=False)


def format_time(pattern: str, moment: datetime) -> str:
    """Joda's ``DateTime.toString(pattern)``, for the letters in ``_WRITTEN``."""
    parts = []
    for letter, run in _tokens(pattern, TIME_OUTPUT_FORMAT):
        width = len(run)
        if not letter:
            parts.append(run)
        elif letter in "yY":
            parts.append(f"{moment.year % 100:02d}" if width == 2 else f"{moment.year:0{width}d}")
        elif letter == "S":
            parts.append(f"{moment.microsecond // 1000:03d}".ljust(width, "0")[:width])
        else:
            parts.append(f"{_number(letter, moment):0{width}d}")
    return "".join(parts)


def _number(letter: str, moment: datetime) -> int:
    hour = moment.hour
    return {
        "M": moment.month, "d": moment.day, "D": moment.timetuple().tm_yday, "H": hour, "k": hour or 24,
        "K": hour % 12, "h": hour % 12 or 12, "m": moment.minute, "s": moment.second,
    }[letter]  # fmt: skip


@lru_cache(maxsize=64)
def _parser(pattern: str) -> re.Pattern[str]:
    """A regular expression for an input pattern, one group per letter; it accepts what Joda accepts.

    A number directly before another takes exactly as many digits as the pattern has letters, others up to
    two (a year up to nine, a fraction as many as its letters).
    """
    tokens = _tokens(pattern, TIME_INPUT_FORMAT)
    pieces, seen = [], ""
    for at, (letter, run) in enumerate(tokens):
        if not letter:
            pieces.append(re.escape(run))
            continue
        year_of_two = letter in "yY" and len(run) == 2
        if letter not in _PARSED or letter in seen or year_of_two or (letter == "Z" and len(run) > 2):
            raise Unsupported(
                f"{TIME_INPUT_FORMAT}={pattern!r}: {run!r} cannot be read; supported are {' '.join(_PARSED)},"
                " each once, years with four letters"
            )
        seen += letter
        if letter == "Z":
            pieces.append(r"(?P<Z>Z|[+-]\d{2}(?::?\d{2})?)")
            continue
        following = tokens[at + 1][0] if at + 1 < len(tokens) else ""
        most = 9 if letter in "yY" else len(run) if letter == "S" else max(2, len(run))
        digits = f"{{{len(run)}}}" if following and following != "Z" else f"{{1,{most}}}"
        pieces.append(rf"(?P<{letter}>\d{digits})")
    if not {"y", "Y"} & set(seen):
        raise Unsupported(f"{TIME_INPUT_FORMAT}={pattern!r} has no year")
    return re.compile("".join(pieces), re.ASCII)


def _parsed(pattern: str, text: str, zone: tzinfo | None) -> datetime | None:
    match = _parser(pattern).fullmatch(text)
    if match is None:
        return None
    part = match.groupdict()
    offset = part.get("Z")
    given = zone if offset is None else _zone("UTC" if offset == "Z" else f"GMT{offset}")
    try:
        found = datetime(
            int(part.get("y") or part.get("Y") or 0), int(part.get("M") or 1), int(part.get("d") or 1),
            int(part.get("H") or 0), int(part.get("m") or 0), int(part.get("s") or 0),
            int((part.get("S") or "0").ljust(3, "0")[:3]) * 1000, tzinfo=given,
        )  # fmt: skip
        back = found.astimezone(UTC).astimezone(given)
    except (ValueError, OverflowError):
        return None
    # In Java, too, a time that the zone skips in spring is an error.
    return found if back.replace(tzinfo=None) == found.replace(tzinfo=None) else None
