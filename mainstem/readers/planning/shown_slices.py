"""File slices as Hudi's file system view shows them."""

from __future__ import annotations

from mainstem.layout.properties import load_config
from mainstem.layout.slicing import FileSlice
from mainstem.readers.planning.table_state import TableState
from mainstem.storage.protocol import Storage


def file_slices(storage: Storage) -> list[FileSlice]:
    """All slices of all live file groups, including uncommitted files and pending slices.

    Ordered by partition, file id and base instant, oldest first; see ``FileSlice`` for its fields.
    """
    state = TableState.load(storage, load_config(storage))
    replaced = state.replaced(None)
    return [
        slice_
        for group in state.groups(visible_only=False)
        if (group.partition, group.file_id) not in replaced
        for slice_ in reversed(group.slices)
    ]
