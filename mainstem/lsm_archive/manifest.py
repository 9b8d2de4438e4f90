"""The list of the archive's data files: ``_version_`` -> ``manifest_<N>`` -> file names.

Java switches versions by writing a new manifest and then replacing ``_version_``. Between the two steps
``_version_`` may be missing; the newest manifest then counts (Hudi's LSMTimeline).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.limits import MANIFEST_BYTES_MAX
from mainstem.lsm_archive.names import (
    VERSION_FILE,
    ArchiveFile,
    manifest_name,
    parse_data_name,
    parse_manifest_name,
)
from mainstem.storage.protocol import Storage

_VERSION_BYTES_MAX = 4096


@dataclass(frozen=True)
class Manifest:
    """One version of the archive; ``version`` 0 stands for an archive without a manifest (empty)."""

    version: int
    files: tuple[ArchiveFile, ...]


def load_manifest(storage: Storage, folder: str) -> Manifest:
    """The newest manifest. ``FileNotFoundError`` if a switch or a clean has just removed it."""
    version = current_version(storage, folder)
    return Manifest(0, ()) if version is None else read_manifest(storage, folder, version)


def read_manifest(storage: Storage, folder: str, version: int) -> Manifest:
    """One manifest. ``FileNotFoundError`` if it is missing, ``CorruptTable`` if it does not parse."""
    path = f"{folder}/{manifest_name(version)}"
    return Manifest(version, parse_manifest(storage.read(path, max_bytes=MANIFEST_BYTES_MAX), path))


def parse_manifest(data: bytes, path: str) -> tuple[ArchiveFile, ...]:
    """Files listed in a manifest's JSON. Every name is checked, so none can lead out of the folder."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"manifest is not JSON ({error})", path=path, offset=0) from error
    entries = tree.get("files") if isinstance(tree, dict) else None
    if not isinstance(entries, list):
        raise CorruptTable('manifest without a list "files"', path=path, offset=0)
    return tuple(_entry(entry, path) for entry in entries)


def encode_manifest(files: Iterable[ArchiveFile]) -> bytes:
    """A manifest's JSON, formatted like Java's."""
    entries = [
        f'{{\n  "fileName" : {json.dumps(file.name)},\n  "fileLen" : {file.size}\n}}' for file in files
    ]
    listed = ", ".join(entries).replace("\n", "\n  ")
    return f'{{\n  "files" : [ {listed} ]\n}}'.encode()


def _entry(entry: Any, path: str) -> ArchiveFile:
    name = entry.get("fileName") if isinstance(entry, dict) else None
    size = entry.get("fileLen", -1) if isinstance(entry, dict) else -1
    file = parse_data_name(name, size) if isinstance(name, str) and isinstance(size, int) else None
    if file is None:
        raise CorruptTable(
            f"manifest lists {str(name)[:200]!r}; expected <first>_<last>_<level>.parquet",
            path=path,
        )
    return file


def current_version(storage: Storage, folder: str) -> int | None:
    """The number in ``_version_``, else that of the newest manifest; None without any manifest."""
    try:
        text = storage.read(f"{folder}/{VERSION_FILE}", max_bytes=_VERSION_BYTES_MAX)
    except (FileNotFoundError, CorruptTable):
        text = b""
    version = _parse_version(text)
    names = storage.names(folder) if version is None else []
    found = [v for v in map(parse_manifest_name, names) if v is not None]
    return max(found, default=None) if version is None else version


def _parse_version(text: bytes) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isdigit() and len(digits) <= 18 else None
