"""The file slices that log files are about to follow, for writers of tables that record change data."""

from __future__ import annotations

from collections.abc import Iterable

from mainstem.layout.properties import TableConfig
from mainstem.layout.slicing import query_slice
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import SliceBefore

Group = tuple[str, str]


def slices_now(storage: Storage, config: TableConfig, groups: Iterable[Group]) -> dict[Group, SliceBefore]:
    """(partition, file id) of these file groups -> the slice that a query reads now; none for a new group."""
    state = TableState.load(storage, config)
    wanted: dict[str, set[str]] = {}
    for partition, file_id in groups:
        wanted.setdefault(partition, set()).add(file_id)
    found: dict[Group, SliceBefore] = {}
    for partition, ids in sorted(wanted.items()):
        names = [name for name in sorted(storage.names(partition)) if paths.file_id_of(name) in ids]
        for group in state.group(partition, names):
            newest = query_slice(group, None)
            if newest is not None:
                before = SliceBefore(newest.base_instant, newest.base_file or "", tuple(newest.log_files))
                found[partition, group.file_id] = before
    return found
