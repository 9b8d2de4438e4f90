"""The folders below which a row may lie, given values of the leading partition columns.

A row's values determine its partition path (``keys.partition_paths``), so folders with other names need not
even be listed. A folder is ruled out only by a name that the key generator writes for another value: hive
style and encoding as the table says, a canonical number for a number. Any other name is kept with all below
it, as is the folder of rows without a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

from mainstem.layout.keys import DEFAULT_PARTITION, encoded

# Folders of rows without a value. Releases before 0.12 used "default", which may also be a real value.
NO_VALUE = (DEFAULT_PARTITION, "default", "")
NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DATE = re.compile(r"(\d{4})-\d{2}-\d{2}", re.ASCII)


def folder_text(name: str, part: str, *, hive_style: bool, url_encode: bool) -> tuple[bool, str]:
    """Whether a folder tells the value of the partition column ``name``, and the value's text."""
    prefixed = part.startswith(f"{name}=")
    if prefixed != hive_style or ("%" in part and not url_encode):
        return False, ""  # the writer's options may have differed from the table's
    part = part.removeprefix(f"{name}=")
    text = unquote(part) if url_encode else part
    if url_encode and encoded(text) != part:
        return False, ""  # written without the encoding
    return text not in NO_VALUE, text


@dataclass(frozen=True)
class Level:
    """One partition column: ``texts`` of its wanted values. ``number``: its folders are whole numbers."""

    name: str
    texts: frozenset[str]
    number: bool

    @cached_property
    def years(self) -> frozenset[str]:
        """First folders of dates under ``hoodie.datasource.write.slash.separated.date.partitioning``, which
        tables do not always tell."""
        return frozenset(date[1] for text in self.texts if (date := _DATE.fullmatch(text)))

    @cached_property
    def begun(self) -> frozenset[str]:
        """Texts of the first folder of values that make several folders."""
        return self.years | {text.partition("/")[0] for text in self.texts if "/" in text}


@dataclass(frozen=True)
class WantedFolders:
    """``levels``: the leading partition columns whose values are known, of ``columns`` in all."""

    levels: tuple[Level, ...]
    columns: int
    hive_style: bool
    url_encode: bool

    def keeps(self, folder: str) -> bool:
        """Whether wanted rows may lie in this folder or below it."""
        parts = folder.split("/") if folder else []
        for level, part in zip(self.levels, parts, strict=False):
            sure, text = folder_text(
                level.name, part, hive_style=self.hive_style, url_encode=self.url_encode
            )
            if not sure or (level.number and not NUMBER.fullmatch(text)):
                return True
            if text in level.begun:
                # With more columns, it is not known which of the folders below are the next column's.
                whole = self.columns > 1 or self.url_encode or text in level.years
                return whole or _along("/".join((text, *parts[1:])), level.texts)
            if text not in level.texts:
                return False
        return True

    def narrows(self, folder: str) -> bool:
        """Whether folders directly in this one may be ruled out."""
        depth = folder.count("/") + 1 if folder else 0
        slashes = max((text.count("/") for text in self.levels[0].texts), default=0)
        return depth < len(self.levels) or (self.columns == 1 and depth <= slashes)

    def regular(self, partition: str) -> bool:
        """Whether a partition has as many folders as the key generator makes; a single text makes any."""
        if self.columns == 1 and not self.levels[0].number:
            return True
        return partition.count("/") + 1 == self.columns


def _along(found: str, texts: frozenset[str]) -> bool:
    """Whether one of the texts is this path, or lies above or below it."""
    return any(t == found or t.startswith(f"{found}/") or found.startswith(f"{t}/") for t in texts)
