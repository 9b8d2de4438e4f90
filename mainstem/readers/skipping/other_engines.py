"""Tells whether another engine wrote to a table since one of its indexes was built.

Java's writers do not maintain the record index of a table with a bucket index: they treat every row of a
bucket as an update, and only inserts get an entry (Hudi 1.2.0; in its batch mode, commits with a new file
group fail with "RLI cannot support logs having inserts"). From a secondary index they remove the pairs that
*they* no longer see, regardless of other writers in flight. So the key indexes of such a table are trusted
until another engine writes.

A completed file never changes, so each is read once per open table, and the archive once per version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from mainstem.formats.avro_container import OUR_MARK
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.storage.final_files import read_final
from mainstem.storage.protocol import Storage
from mainstem.timeline.index_records import decode_index_builds
from mainstem.timeline.instant import DELTACOMMIT, INDEXING, REPLACECOMMIT

# Compactions (``commit``) add no keys, whichever engine runs them.
_WRITES = (DELTACOMMIT, REPLACECOMMIT)
_KNOWN_MAX = 65_536
_HEAD_BYTES = 256


def stranger_since_built(state: TableState, partition: str) -> str | None:
    """Requested time of a write by another engine that completed after the index build began; None if none.

    If a write completed during the build, the builder added its keys. But it may also have removed entries
    that a concurrent writer added, just as any later write may. An index that none of our index actions built
    counts as older than all writes.
    """
    built = _built(state, partition)
    for instant in state.timeline.completed:
        if instant.action not in _WRITES or (instant.completion or "") <= built:
            continue
        if not is_ours(state.storage, instant.file_name):
            return instant.requested
    return _archived_stranger(state, built)


def _built(state: TableState, partition: str) -> str:
    """Requested time of our newest index action that built the index; "" once it is archived, so that every
    write counts as younger."""
    found = ""
    for instant in state.timeline.completed:
        if instant.action != INDEXING or not is_ours(state.storage, instant.file_name):
            continue
        if partition in _builds(state.storage, instant.file_name):
            found = max(found, instant.requested)
    return found


@dataclass
class _Known:
    """Cache for one table. ``files``: completed file -> whether mainstem wrote it. ``archived``: (archive
    version, build time) -> first write of another engine that completed after it."""

    files: dict[str, bool] = field(default_factory=dict)
    archived: dict[tuple[tuple[str, ...], str], str | None] = field(default_factory=dict)


_known: WeakKeyDictionary[Storage, _Known] = WeakKeyDictionary()


def _archived_stranger(state: TableState, built: str) -> str | None:
    archive, known = state.archive, _known.setdefault(state.storage, _Known()).archived
    version = (tuple(file.name for file in archive.manifest.files), built)
    if not version[0]:
        return None
    if version not in known:
        rows = archive.completed(built)
        found = zip(rows["instantTime"].to_pylist(), rows["action"].to_pylist(), strict=True)
        asked = [requested for requested, action in found if action in _WRITES]
        ours = {requested for requested, _ in archive.with_bytes(OUR_MARK.encode())} if asked else set()
        if len(known) >= _KNOWN_MAX:
            known.clear()
        known[version] = next((requested for requested in asked if requested not in ours), None)
    return known[version]


def is_ours(storage: Storage, name: str) -> bool:
    """Whether mainstem wrote a completed file of the active timeline."""
    known = _known.setdefault(storage, _Known()).files
    if name not in known:
        if len(known) >= _KNOWN_MAX:
            known.clear()
        known[name] = OUR_MARK.encode() in storage.read_range(paths.timeline_file(name), 0, _HEAD_BYTES)
    return known[name]


def _builds(storage: Storage, name: str) -> list[str]:
    path = paths.timeline_file(name)
    data = read_final(storage, path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    return [build.partition for build in decode_index_builds(data, path=path)]
