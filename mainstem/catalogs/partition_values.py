"""The values of a partition from its path, as Hudi's ``PartitionValueExtractor`` classes take them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from mainstem.errors import Invalid, Unsupported
from mainstem.layout.properties import TableConfig
from mainstem.options.catalogs import EXTRACTOR

Extractor = Callable[[str], list[str]]
_DAY = re.compile(r"(?:\w+=)?(\d{4})/(?:\w+=)?(\d{1,2})/(?:\w+=)?(\d{1,2})", re.ASCII)
_HOUR = re.compile(_DAY.pattern + r"/(?:\w+=)?(\d{1,2})", re.ASCII)
_DATE = re.compile(r"(?:\w+=)?\d{4}/(?:\w+=)?\d{1,2}/(?:\w+=)?\d{1,2}", re.ASCII)


def _none(path: str) -> list[str]:
    return []


def _multi(path: str) -> list[str]:
    return [part.partition("=")[2] if "=" in part else part for part in path.split("/")]


def _hive_style(path: str) -> list[str]:
    name, equals, value = path.partition("=")
    if not equals or "/" in name:
        raise ValueError
    return [value]


def _single(path: str) -> list[str]:
    return [path.partition("=")[2] if "=" in path else path]


def _day(path: str) -> list[str]:
    found = _DAY.fullmatch(path)
    if found is None:
        raise ValueError
    year, month, day = map(int, found.groups())
    return [f"{year:04}-{month:02}-{day:02}"]


def _hour(path: str) -> list[str]:
    found = _HOUR.fullmatch(path)
    if found is None:
        raise ValueError
    year, month, day, hour = map(int, found.groups())
    return [f"{year:04}-{month:02}-{day:02}-{hour:02}"]


_PACKAGE = "org.apache.hudi.hive."
_KNOWN: dict[str, Extractor] = {
    f"{_PACKAGE}NonPartitionedExtractor": _none,
    f"{_PACKAGE}MultiPartKeysValueExtractor": _multi,
    f"{_PACKAGE}HiveStylePartitionValueExtractor": _hive_style,
    f"{_PACKAGE}SinglePartPartitionValueExtractor": _single,
    f"{_PACKAGE}SlashEncodedDayPartitionValueExtractor": _day,
    f"{_PACKAGE}SlashEncodedHourPartitionValueExtractor": _hour,
}


@dataclass(frozen=True)
class PartitionValues:
    """Turns paths into values of ``columns``."""

    columns: tuple[str, ...]
    name: str
    extract: Extractor
    decode: bool

    @classmethod
    def of(
        cls, config: TableConfig, columns: tuple[str, ...], name: str, decode: bool
    ) -> PartitionValues:
        """``name``: the class that is asked for, "" for the one that Hudi infers. Raises ``Unsupported``."""
        if not name:
            one = len(columns) == 1
            kind = "MultiPartKeysValueExtractor"
            if not columns:
                kind = "NonPartitionedExtractor"
            elif one and config.slash_dates:
                kind = "SlashEncodedDayPartitionValueExtractor"
            elif one and config.hive_style:
                kind = "HiveStylePartitionValueExtractor"
            name = _PACKAGE + kind
        if name not in _KNOWN:
            raise Unsupported(
                f"{EXTRACTOR}={name!r}: a class of Java does not run here; expected {EXTRACTOR.like}"
            )
        return cls(columns, name, _KNOWN[name], decode)

    def __call__(self, path: str) -> tuple[str, ...]:
        """Raises ``Invalid`` for a path that has not a value for each column."""
        try:
            found = self.extract(path)
        except ValueError:
            found = []
        if len(found) != len(self.columns):
            way = "SlashEncodedDayPartitionValueExtractor" if _DATE.fullmatch(path) else "another class"
            raise Invalid(
                f"the partition {path!r} has no value for each of the columns {', '.join(self.columns)} by"
                f" {self.name}: give {EXTRACTOR} ({way}). The entry's partitions were not changed"
            )
        return tuple(map(unquote, found)) if self.decode else tuple(found)
