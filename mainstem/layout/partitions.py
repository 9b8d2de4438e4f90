"""Finds partitions, folders with a partition metafile (FileSystemBackedTableMetadata); encodes metafiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from mainstem.errors import CorruptTable
from mainstem.formats.java_properties import format_properties
from mainstem.layout.wanted_folders import WantedFolders
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


def list_partitions(
    storage: Storage,
    *,
    partitioned: bool,
    wanted: WantedFolders | None = None,
    left_out: Callable[[int], None] = lambda count: None,
) -> Iterator[PartitionListing]:
    """Every partition with its file names, in path order; lists each folder once.

    Folders that are not ``wanted`` are not listed; ``left_out`` is told how many.

    A folder with a metafile is a partition. Java searches no further below it; here folders inside are
    searched too, since a table may have partitions ``a`` and ``a/b`` (see ``nested``). The table's own
    ``.hoodie`` is never entered. A non-partitioned table keeps its files in the table folder itself.
    """
    if not partitioned:
        names = [e.name for e in storage.entries("") if not e.is_folder]
        yield PartitionListing("", tuple(sorted(names)))
        return
    search = _search if has_links(storage) else _search_together
    yield from search(storage, "", _Kept(wanted, left_out))


@dataclass(frozen=True)
class _Kept:
    """Which folders a search goes into."""

    wanted: WantedFolders | None = None
    left_out: Callable[[int], None] = lambda count: None

    def of(self, folders: list[str]) -> list[str]:
        if self.wanted is None:
            return folders
        kept = [folder for folder in folders if self.wanted.keeps(folder)]
        self.left_out(len(folders) - len(kept))
        return kept

    def narrows(self, folder: str) -> bool:
        return self.wanted is not None and self.wanted.narrows(folder)


def _search_together(storage: Storage, top: str, kept: _Kept) -> Iterator[PartitionListing]:
    """As ``_search``, where each listing is a request: all folders of a level are listed together."""
    found: list[PartitionListing] = []
    folders = [top]
    for _ in range(PARTITION_DEPTH_MAX + 1):
        listed = side_by_side(storage, storage.entries, folders)
        inner = []
        for folder, entries in zip(folders, listed, strict=True):
            found += _partition(folder, entries)
            inner += kept.of(_folders_in(folder, entries))
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


def _search(storage: Storage, folder: str, kept: _Kept, depth: int = 0) -> Iterator[PartitionListing]:
    if depth > PARTITION_DEPTH_MAX:
        raise _too_deep(folder)
    inner = _names_in(storage, folder) if kept.narrows(folder) else None
    if inner is None:
        entries = storage.entries(folder)
        yield from _partition(folder, entries)
        inner = _folders_in(folder, entries)
    for one in kept.of(inner):
        yield from _search(storage, one, kept, depth + 1)


def _names_in(storage: Storage, folder: str) -> list[str] | None:
    """As ``_folders_in``, from names alone: a disk need not look at each. Some may be files, which list as
    empty folders. None if the folder is a partition."""
    names = sorted(storage.names(folder))
    if any(name.startswith(paths.PARTITION_METAFILE) for name in names):
        return None
    return [paths.in_partition(folder, name) for name in names if name != paths.HOODIE]


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
    below = (found.partition for found in _search(storage, partition, _Kept()))
    return next((other for other in below if other != partition), None)
