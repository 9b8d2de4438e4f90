"""Finds partitions, folders with a partition metafile (FileSystemBackedTableMetadata); encodes metafiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mainstem.errors import CorruptTable
from mainstem.formats.java_properties import format_properties
from mainstem.limits import PARTITION_DEPTH_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

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
    yield from _search(storage, "", 0)


def _search(storage: Storage, folder: str, depth: int) -> Iterator[PartitionListing]:
    if depth > PARTITION_DEPTH_MAX:
        raise CorruptTable(
            f"folders nested deeper than {PARTITION_DEPTH_MAX} below the table without a partition"
            f" metafile ({paths.PARTITION_METAFILE}); remove folders that do not belong to the table",
            path=folder,
        )
    entries = storage.entries(folder)
    if any(e.name.startswith(paths.PARTITION_METAFILE) and not e.is_folder for e in entries):
        names = sorted(e.name for e in entries if not e.is_folder)
        yield PartitionListing(folder, tuple(names))
    for entry in sorted(entries, key=lambda e: e.name):
        if entry.is_folder and entry.name != paths.HOODIE:
            yield from _search(storage, paths.in_partition(folder, entry.name), depth + 1)


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
