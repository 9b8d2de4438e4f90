"""Remembers the file groups of indexes from one commit to the next.

A commit looks up twice which file groups an index has (``Maintained``). The index's folder grows by a log
file per group and commit until a compaction, and compactions wait while an index is being built. The number
of groups is fixed when an index is made. So what a listing *under the table lock* showed stays true until the
index is made anew, and *a file from that listing that still exists unchanged proves that it has not been*:

* To make an index anew, every file of the earlier one is removed before the index is listed again: mainstem
  removes them under the lock, before the first new file (``indexing.index_build``, step 1), Java together
  with the folder. Dropping an index takes it off the lists, where every look-up begins.
* The file's name holds a real instant. mainstem's instants are never reused, and a name with a completed or
  rolled-back instant is not created again. Java may begin an index at an instant already on the timeline, and
  its first instants (``000...``) recur with each new metadata table. So those do not count, and for any other
  file, size and time must match as well.
* The listing was complete. Under the lock, mainstem's indexes are: an index is listed after its last group
  exists. Java lists an index that it has only begun to make, and takes no lock for its groups, but it removes
  the earlier partition metafile first and writes the new one after the groups. So the metafile must exist,
  and be the same before and after the listing.

A partitioned record index gets new groups with new partitions of the data, so it is listed each time, as is
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
    """What a process knows about the indexes of one table; safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def ids(self, storage: Storage, partition: str, *, locked: bool) -> tuple[str, ...]:
        """Sorted file ids of a partition that the table's properties list. ``locked``: the properties were
        read under the table lock, which is still held."""
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
    """File ids of the index.

    Parses one name for all that begin with the same file id: until a compaction, a group has a log file for
    every commit. If that name does not parse, all of its kind are parsed.
    """
    one_of = {name.partition("_")[0]: name for name in names if name != paths.PARTITION_METAFILE}
    found = {head: _file_id(name) for head, name in one_of.items()}
    unsure = {head for head, known in found.items() if known is None}
    others = {_file_id(name) for name in names if name.partition("_")[0] in unsure} if unsure else set()
    return tuple(sorted(known for known in {*found.values(), *others} if known and index.has(known)))


#: cached, since nearly all names were in the folder's previous listing
_file_id = lru_cache(maxsize=4096)(paths.file_id_of)


def _proof(names: list[str]) -> str | None:
    """The name of the file that will exist longest: base files before log files, newer before older."""
    bases = [found for found in map(paths.parse_hfile_name, names) if found is not None]
    logs = [found for found in map(paths.parse_log_name, names) if found is not None]
    for files in (bases, logs):
        mine = [(f.instant, f.name) for f in files if not f.instant.startswith(INITIAL)]
        if mine:
            return max(mine)[1]
    return None
