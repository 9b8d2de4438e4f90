"""File names in the history folder (Hudi's LSMTimeline)."""

from __future__ import annotations

import re
from dataclasses import dataclass

VERSION_FILE = "_version_"
LEVELS_MAX = 10

_DATA = re.compile(r"^([0-9]{14,20})_([0-9]{14,20})_([0-9])\.parquet\Z")
_MANIFEST = re.compile(r"^manifest_([0-9]{1,18})\Z")


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A data file; ``first`` and ``last`` are the requested times in its name, ``size`` is in bytes."""

    name: str
    first: str
    last: str
    level: int
    size: int


def parse_data_name(name: str, size: int) -> ArchiveFile | None:
    """The file's parts; None for a name other than ``<min>_<max>_<level>.parquet``, which is never opened."""
    match = _DATA.match(name)
    if match is None:
        return None
    return ArchiveFile(name, match.group(1), match.group(2), int(match.group(3)), size)


def data_name(first: str, last: str, level: int) -> str:
    """Name of a data file; readers skip the file for times outside ``[first, last]``."""
    return f"{first}_{last}_{level}.parquet"


def parse_manifest_name(name: str) -> int | None:
    """Version of a manifest, None for any other name (``manifest_7.tmp`` included)."""
    match = _MANIFEST.match(name)
    return int(match.group(1)) if match else None


def manifest_name(version: int) -> str:
    """Name of the manifest of this version."""
    return f"manifest_{version}"
