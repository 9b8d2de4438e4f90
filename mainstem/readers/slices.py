"""File slices as Hudi's file system view shows them."""

from __future__ import annotations

from mainstem.readers.state import TableState
from mainstem.storage.protocol import Storage
from mainstem.table.properties import load_config
from mainstem.table.slicing import FileSlice


def file_slices(storage: Storage) -> list[FileSlice]:
    """All slices of all live file groups, uncommitted files and pending slices included.

    Ordered by partition, file id and base instant, oldest first; see ``FileSlice`` for the marks.
    """
    state = TableState.load(storage, load_config(storage))
    replaced = state.replaced(None)
    return [
        slice_
        for group in state.groups(visible_only=False)
        if (group.partition, group.file_id) not in replaced
        for slice_ in reversed(group.slices)
    ]
