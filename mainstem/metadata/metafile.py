"""The metafile of an index's folder: which instant made it, and how many file groups it has.

Java writes the first alone, and reads neither. Hashes of keys count all file groups, so their number is fixed
when an index is made. Who counts them in the folder may find more: a process that stood still while the index
was dropped and made anew of fewer groups, and then woke up, makes files of the earlier one's until it finds
out. Another number leads to a file group without the key.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.formats.java_properties import parse_properties
from mainstem.layout.partitions import MADE_BY, metafile_text
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.metadata.commits.taking_back import metadata_partition
from mainstem.metadata.metadata_partitions import file_id, group_index
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

_GROUPS = "hoodie.mainstem.file.groups"
_DIGITS_MAX = 9


@dataclass(frozen=True)
class Metafile:
    """Of the index in ``partition``. ``instant``: requested time of the action that made it, "" if it is not
    told, None where there is no metafile; ``groups``: of how many file groups, None where that is not told,
    or writers add to them."""

    partition: str
    instant: str | None = None
    groups: int | None = None

    def has(self, group_id: str) -> bool:
        """Whether a file group in its folder is the index's."""
        if self.groups is None:
            return True
        number = group_index(group_id)
        return number is not None and number < self.groups and group_id == file_id(self.partition, number)


def read_metafile(storage: Storage, partition: str) -> Metafile:
    """What the metafile of an index of the table in ``storage`` tells. ``CorruptTable`` for one that is not
    read as properties."""
    path = paths.partition_metafile(metadata_partition(partition))
    try:
        data = storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:
        return Metafile(partition)
    told = parse_properties(data, path=path)
    count = told.get(_GROUPS, "")
    whole = count.isascii() and count.isdigit() and len(count) <= _DIGITS_MAX
    return Metafile(partition, told.get(MADE_BY, ""), int(count) if whole else None)


def index_metafile(instant: str, groups: int | None = None) -> bytes:
    """The content of the metafile of an index that ``instant`` makes of so many file groups."""
    return metafile_text(instant, 1, {} if groups is None else {_GROUPS: str(groups)})
