"""Which tables there are: each given place is one, or a folder with some below it.

A table is asked for by an identifier made of its place: no client names a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mainstem.errors import Invalid
from mainstem.storage import paths
from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage

# How deep below a given folder tables are looked for, and how many folders and tables are looked at.
_DEPTH_MAX = 6
_FOLDERS_MAX = 20_000
TABLES_MAX = 1_000


@dataclass(frozen=True)
class FoundTable:
    """A table's place. ``name``: its path below the given place, or the last part of that."""

    id: str
    name: str
    location: Location

    @classmethod
    def at(cls, location: Location, name: str) -> FoundTable:
        """The table at a location."""
        return cls(hashlib.sha256(location.base.encode()).hexdigest()[:16], name, location)


def places(given: Sequence[str], options: Mapping[str, str]) -> list[Location]:
    """The given places. Raises ``Invalid`` for text that is none."""
    if not given:
        raise Invalid("no PATH: expected tables, or folders that hold tables")
    return [location_of(place, options=options) for place in given]


def found_tables(given: Sequence[Location]) -> tuple[list[FoundTable], list[str]]:
    """The tables of each place, in path order, each once; and what could not be looked at, as text."""
    tables: dict[str, FoundTable] = {}
    troubles: list[str] = []
    for location in given:
        try:
            some = list(_below(storage_of(location), location, troubles))
        except (OSError, ValueError) as error:
            troubles.append(f"{location.base}: {error}")
            continue
        if not some:
            troubles.append(f"{location.base}: no table is there, nor in the folders below")
        for table in some:
            tables.setdefault(table.id, table)
    kept = sorted(tables.values(), key=lambda one: one.location.base)
    if len(kept) > TABLES_MAX:
        troubles.append(f"{len(kept) - TABLES_MAX} more tables are not shown: give fewer folders")
    return kept[:TABLES_MAX], troubles


def _below(storage: Storage, location: Location, troubles: list[str]) -> Iterator[FoundTable]:
    if _is_table(storage, ""):
        yield FoundTable.at(location, location.base.rstrip("/").rpartition("/")[2] or location.base)
        return
    folders, looked_at = [""], 0
    for _ in range(_DEPTH_MAX):
        inner: list[str] = []
        for folder in folders:
            entries = storage.entries(folder)
            for name in sorted(e.name for e in entries if e.is_folder and not e.name.startswith(".")):
                looked_at += 1
                if looked_at > _FOLDERS_MAX:
                    troubles.append(f"{location.base}: only {_FOLDERS_MAX} folders were looked at")
                    return
                path = paths.in_partition(folder, name)
                if _is_table(storage, path):
                    yield FoundTable.at(location.below(path), path)
                else:
                    inner.append(path)
        folders = inner


def _is_table(storage: Storage, folder: str) -> bool:
    return storage.stat(paths.in_partition(folder, paths.PROPERTIES)) is not None
