"""Finds partitions, folders with a partition metafile (FileSystemBackedTableMetadata); encodes metafiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from mainstem.errors import CorruptTable
from mainstem.formats.java_properties import format_properties
from mainstem.limits import PARTITION_DEPTH_MAX
from mainstem.storage import paths
from mainstem.storage.links import has_links
from mainstem.storage.protocol import FileInfo, Storage
from mainstem.storage.side_by_side import side_by_side

#: property of a partition metafile: requested time of the instant that made the partition
MADE_BY = "commitTime"


@dataclass(frozen=True)
class PartitionListing:
    """A partition (relative path, "" for the table folder) and the names of its files.

    ``sizes``: file name -> size in bytes, if the names come from the metadata table.
    """

    partition: str
    names: tuple[str, ...]
    sizes: Mapping[str, int] | None = None


def metafile_text(instant: str, depth: int, more: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """The metafile of a partition (``HoodiePartitionMetadata``) that ``instant`` makes, ``depth`` folders
    below the table's folder; ``more`` are further properties."""
    told = {MADE_BY: instant, "partitionDepth": str(depth), **more}
    return format_properties(told, comments=("partition metadata", instant))


def list_partitions(storage: Storage, *, partitioned: bool) -> Iterator[PartitionListing]:
    """Every partition with its file names, in path order; lists each folder once.

    A folder with a metafile is a partition. Java searches no further below it; here folders inside are
    searched too, since a table may have partitions ``a`` and ``a/b`` (see ``nested``). The table's own
    ``.hoodie`` is never entered. A non-partitioned table keeps its files in the table folder itself.
    """
    if not partitioned:
        names = [e.name for e in storage.entries("") if not e.is_folder]
        yield PartitionListing("", tuple(sorted(names)))
        return
    yield from _search(storage, "", 0) if has_links(storage) else _search_together(storage)


def _search_together(storage: Storage) -> Iterator[PartitionListing]:
    """As ``_search``, where each listing is a request: all folders of a level are listed together."""
    found: list[PartitionListing] = []
    folders = [""]
    for _ in range(PARTITION_DEPTH_MAX + 1):
        listed = side_by_side(storage, storage.entries, folders)
        inner = []
        for folder, entries in zip(folders, listed, strict=True):
            found += _partition(folder, entries)
            inner += _folders_in(folder, entries)
        if not inner:
            yield from sorted(found, key=lambda one: one.partition.split("/"))
            return
        folders = inner
    raise _too_deep(folders[0])


def _partition(folder: str, entries: Sequence[FileInfo]) -> list[PartitionListing]:
    """The folder as a partition, if it has a metafile."""
    if not any(e.name.startswith(paths.PARTITION_METAFILE) and not e.is_folder for e in entries):
        return []
    return [PartitionListing(folder, tuple(sorted(e.name for e in entries if not e.is_folder)))]


def _folders_in(folder: str, entries: Sequence[FileInfo]) -> list[str]:
    """Paths of the folders in a folder that may be partitions, in order."""
    names = sorted(e.name for e in entries if e.is_folder and e.name != paths.HOODIE)
    return [paths.in_partition(folder, name) for name in names]


def _too_deep(folder: str) -> CorruptTable:
    return CorruptTable(
        f"folders nested deeper than {PARTITION_DEPTH_MAX} below the table without a partition"
        f" metafile ({paths.PARTITION_METAFILE}); remove folders that do not belong to the table",
        path=folder,
    )


def _search(storage: Storage, folder: str, depth: int) -> Iterator[PartitionListing]:
    if depth > PARTITION_DEPTH_MAX:
        raise _too_deep(folder)
    entries = storage.entries(folder)
    yield from _partition(folder, entries)
    for inner in _folders_in(folder, entries):
        yield from _search(storage, inner, depth + 1)


def nested(storage: Storage, partition: str) -> str | None:
    """The existing partition above or below ``partition``, which is about to be made; None if there is none.

    Java finds partitions by their metafiles and searches no further below one: where ``a`` is a partition,
    it does not read rows in ``a/b``, unless the table has a metadata table.
    """
    above = partition.rpartition("/")[0]
    while above:
        if storage.stat(paths.partition_metafile(above)) is not None:
            return above
        above = above.rpartition("/")[0]
    if storage.stat(partition) is None:
        return None
    below = (found.partition for found in _search(storage, partition, 0))
    return next((other for other in below if other != partition), None)
