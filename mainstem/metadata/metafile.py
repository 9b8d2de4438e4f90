"""The metafile of an index's folder: which instant made it, and how many file groups it has.

Java writes the first alone, and reads neither. Hashes of keys count all file groups, so their number is fixed
when an index is made. Who counts them in the folder may find more: a process that stood still while the index
was dropped and made anew of fewer groups, and then woke up, makes files of the earlier one's until it finds
out. Another number leads to a file group without the key.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.formats.java_properties import format_properties, parse_properties
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.metadata.partitions import file_id, group_index
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

_INSTANT, _DEPTH, _GROUPS = "commitTime", "partitionDepth", "hoodie.mainstem.file.groups"
_DIGITS_MAX = 9


@dataclass(frozen=True)
class Made:
    """Of the index in ``partition``. ``instant``: requested time of the action that made it, "" if it is not
    told; ``groups``: of how many file groups, None where that is not told, or writers add to them."""

    partition: str
    instant: str = ""
    groups: int | None = None

    def has(self, group_id: str) -> bool:
        """Whether a file group in its folder is the index's."""
        if self.groups is None:
            return True
        number = group_index(group_id)
        return number is not None and number < self.groups and group_id == file_id(self.partition, number)


def made(storage: Storage, folder: str) -> Made:
    """What the metafile in an index's folder tells; nothing where there is none.

    ``CorruptTable`` for one that is not read as properties.
    """
    path, partition = paths.partition_metafile(folder), folder.rpartition("/")[2]
    try:
        data = storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:
        return Made(partition)
    told = parse_properties(data, path=path)
    count = told.get(_GROUPS, "")
    whole = count.isascii() and count.isdigit() and len(count) <= _DIGITS_MAX
    return Made(partition, told.get(_INSTANT, ""), int(count) if whole else None)


def metafile(instant: str, groups: int | None = None) -> bytes:
    """The content of the metafile of an index that ``instant`` makes of so many file groups."""
    counted = {} if groups is None else {_GROUPS: str(groups)}
    return format_properties(
        {_INSTANT: instant, _DEPTH: "1", **counted}, comments=("partition metadata", instant)
    )
