"""No new table inside another one or around one: each would take the other's files for a partition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from mainstem.errors import Invalid, Unavailable
from mainstem.storage import paths
from mainstem.storage.backends import storage_of
from mainstem.storage.files import file_info
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side

# Of a bucket with many folders not all are looked at.
_DEPTH_MAX = 3
_FOLDERS_MAX = 200


def refuse_neighbours(location: Location, storage: Storage) -> None:
    """Raises ``Invalid`` if a folder around the location is a table, or one of the next levels in it, and
    ``Unavailable`` if the storage does not answer.

    What may not be read is taken for no table: who writes below a prefix need not see what is above it.
    """
    try:
        for parent in _parents(location):
            with suppress(PermissionError):
                if file_info(storage_of(parent), paths.PROPERTIES) is not None:
                    raise _refused(location, f"it is inside the table {parent.base}")
        with suppress(PermissionError):
            for folder in _tables_in(storage):
                raise _refused(location, f"the folder {folder} in it is a table")
    except OSError as error:
        raise Unavailable(f"the table cannot be created: {error}", table=location.base) from error


def _parents(location: Location) -> Iterator[Location]:
    """All folders around a location, the nearest first."""
    path = location.path.strip("/")
    while path:
        path = path.rpartition("/")[0]
        yield replace(location, path=f"/{path}" if path or location.scheme == "file" else "")


def _tables_in(storage: Storage) -> Iterator[str]:
    """Folders that hold a table, level by level."""
    level, left = [""], _FOLDERS_MAX
    for _ in range(_DEPTH_MAX + 1):
        listed = side_by_side(storage, storage.entries, level[:left])
        left -= len(level)
        inner = []
        for folder, entries in zip(level, listed, strict=False):
            names = [entry.name for entry in entries if entry.is_folder]
            found = bool(folder) and paths.HOODIE in names
            if found and file_info(storage, f"{folder}/{paths.PROPERTIES}") is not None:
                yield folder
            inner += [paths.in_partition(folder, name) for name in names if name != paths.HOODIE]
        level = inner
        if left <= 0 or not level:
            return


def _refused(location: Location, why: str) -> Invalid:
    return Invalid(
        f"no table can be made here: {why}, and each would take the other's files for a partition; choose a"
        " folder beside it",
        table=location.base,
    )
