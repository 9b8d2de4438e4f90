"""The file groups of an index, remembered from one commit to the next.

A commit looks twice which file groups an index has (``Maintained``), and its folder grows by a log file per
group and commit until a compaction, for which an index under construction waits. The number of groups is
fixed when an index is made. So what a listing *under the table lock* showed stays true for as long as the
index is not made anew, and *a file of that listing that is still there, unchanged, proves that*:

* Whoever makes an index anew removes every file of the earlier one first, before it is in a list again:
  ours under the lock and ahead of the first new file (``indexing.index_build``, step 1), Java with the
  folder. A dropper takes it out of the lists, at which every look begins.
* The name of the file holds a real instant. Ours are never given again, and a name of an instant that was
  completed or rolled back is not made again. Java may begin an index at an instant that is on the timeline,
  and its first instants (``000...``) come again with a new metadata table: those count for nothing, and of
  any other file size and time must be the same, too.
* The listing was whole. Under the lock ours are: an index comes into the list behind its last group. Java
  lists one that it has only begun to make and takes no lock for its groups, but writes the partition
  metafile behind them, after it has removed an earlier one; so that file must be there, the same one, ahead
  of the listing and behind it.

A partitioned record index, which gets groups with new partitions of the data, is listed each time, and so is
an index without groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from mainstem.metadata.commits.taking_back import metadata_partition
from mainstem.metadata.metadata_partitions import RECORD_INDEX, is_partitioned_group
from mainstem.metadata.metafile import Metafile, read_metafile
from mainstem.storage import paths
from mainstem.storage.protocol import FileInfo, Storage
from mainstem.timeline.compaction_trigger import INITIAL


@dataclass(frozen=True)
class _Known:
    ids: tuple[str, ...]
    proof: FileInfo


class KnownGroups:
    """What one process knows of the indexes of one table; safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def ids(self, storage: Storage, partition: str, *, locked: bool) -> tuple[str, ...]:
        """File ids of a partition that is in a list of the table's properties, in their order. ``locked``:
        these were read under the table lock, which is still held."""
        folder, known = metadata_partition(partition), self._known.get(partition)
        if known is not None and storage.stat(f"{folder}/{known.proof.name}") == known.proof:
            return known.ids
        if not locked:
            return _ids(storage.names(folder), read_metafile(storage, partition))
        metafile = paths.partition_metafile(folder)
        made = storage.stat(metafile)
        names = storage.names(folder)
        ids, proof = _ids(names, read_metafile(storage, partition)), _proof(names)
        found = None if proof is None else storage.stat(f"{folder}/{proof}")
        if found is None or made is None or storage.stat(metafile) != made:
            self._known.pop(partition, None)
        elif partition != RECORD_INDEX or not any(map(is_partitioned_group, ids)):
            self._known[partition] = _Known(ids, found)
        return ids


def _ids(names: list[str], index: Metafile) -> tuple[str, ...]:
    """File ids of the index. One of the names that begin with the same file id is parsed for all of them:
    until a compaction a group has as many log files as there were commits. Where that one is no name of
    Hudi's, all are."""
    one_of = {name.partition("_")[0]: name for name in names if name != paths.PARTITION_METAFILE}
    found = {head: _file_id(name) for head, name in one_of.items()}
    unsure = {head for head, known in found.items() if known is None}
    others = {_file_id(name) for name in names if name.partition("_")[0] in unsure} if unsure else set()
    return tuple(sorted(known for known in {*found.values(), *others} if known and index.has(known)))


#: nearly all names that are parsed were there when the folder was listed before
_file_id = lru_cache(maxsize=4096)(paths.file_id_of)


def _proof(names: list[str]) -> str | None:
    """The name that stays longest: a base file rather than a log file, a young one rather than an old one."""
    for name in sorted(names, reverse=True):
        file = paths.parse_hfile_name(name) or paths.parse_log_name(name)
        if file is not None and not file.instant.startswith(INITIAL):
            return name
    return None
