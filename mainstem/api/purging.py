"""Deletes a table whole: what parses as a file of it, and nothing else.

  1. ``hoodie.properties`` and its backup: from then on nobody opens the table, and writers that are open
     refuse
  2. data files, their markers of partitions, partition by partition
  3. Iceberg's metadata, then ``.hoodie``
  4. folders that are empty now

A process that dies in between leaves the remains of a table, which ``create_table`` refuses to take for a new
one; they are removed by hand. What is no file of the table stays, and is told.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import naming
from mainstem.layout.partitions import list_partitions
from mainstem.layout.properties import load_config
from mainstem.storage import paths
from mainstem.storage.backends import storage_of
from mainstem.storage.folders import has_folders
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage


@dataclass(frozen=True)
class Purged:
    """``files``: how many data files were deleted; ``left``: files that are none of the table's, below its
    folder."""

    path: str
    files: int
    left: tuple[str, ...]


def purge(location: Location) -> Purged:
    """Deletes the table. Raises ``Invalid`` if there is none, ``Unavailable`` if storage fails."""
    storage = storage_of(location)
    with naming(location.base, "the table could not be deleted whole", "what is left is no table any more"):
        config = load_config(storage)
        partitions = list(list_partitions(storage, partitioned=bool(config.partition_fields)))
        for path in (paths.PROPERTIES, paths.PROPERTIES_BACKUP):
            storage.delete(path)
        files = 0
        left: list[str] = []
        for listing in partitions:
            names = {name: paths.in_partition(listing.partition, name) for name in listing.names}
            storage.delete_all(path for name, path in names.items() if _is_ours(name))
            left += [path for name, path in names.items() if not _is_ours(name)]
            files += sum(_is_ours(name) and not name.startswith(paths.PARTITION_METAFILE) for name in names)
        storage.delete_all(f"{paths.ICEBERG}/{name}" for name in _of_iceberg(storage))
        storage.delete_tree(paths.HOODIE)
        if has_folders(storage):
            left = sorted({*left, *_without_empty_folders(storage, "")})
    return Purged(location.base, files, tuple(left))


def _is_ours(name: str) -> bool:
    return (
        paths.parse_base_name(name) is not None
        or paths.parse_log_name(name) is not None
        or name.startswith(paths.PARTITION_METAFILE)
    )


def _of_iceberg(storage: Storage) -> list[str]:
    """Names of the files of Iceberg's metadata, as mainstem publishes it."""
    hint = paths.ICEBERG_HINT.rpartition("/")[2]
    names = sorted(storage.names(paths.ICEBERG))
    if hint not in names:
        return []
    return [
        name for name in names
        if name == hint or paths.is_iceberg_manifest(name) or paths.parse_iceberg_version(name) is not None
    ]  # fmt: skip


def _without_empty_folders(storage: Storage, folder: str) -> list[str]:
    """Removes empty folders below one, and that one; the files that are left."""
    left = []
    for entry in storage.entries(folder):
        path = paths.in_partition(folder, entry.name)
        left += _without_empty_folders(storage, path) if entry.is_folder else [path]
    if not left and not storage.entries(folder):
        storage.delete_tree(folder)
    return left
