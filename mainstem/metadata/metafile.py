"""The metafile in an index's folder: which instant made the index, and how many file groups it has.

Java writes only the first, and reads neither. Hashes of keys depend on the number of file groups, so the
index fixes it when it is made. Counting groups in the folder could find more: if an index is dropped and made
anew with fewer groups, a process that stalled meanwhile and resumes makes files of the earlier index's groups
until it notices. A wrong number leads to a file group without the key.
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
    """The metafile of the index in ``partition``.

    ``instant``: requested time of the action that made it, "" if not recorded, None without a metafile.
    ``groups``: the number of file groups, None if it is not recorded or writers add to it.
    """

    partition: str
    instant: str | None = None
    groups: int | None = None

    def has(self, group_id: str) -> bool:
        """Whether a file group in the folder belongs to the index."""
        if self.groups is None:
            return True
        number = group_index(group_id)
        return number is not None and number < self.groups and group_id == file_id(self.partition, number)


def read_metafile(storage: Storage, partition: str) -> Metafile:
    """The metafile of an index of the table in ``storage``. ``CorruptTable`` if it does not parse as
    properties."""
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
    """The content of the metafile of an index that ``instant`` makes with this number of file groups."""
    return metafile_text(instant, 1, {} if groups is None else {_GROUPS: str(groups)})
