"""What the processes of an engine's tasks must reach: the table's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import Unavailable, Unsupported
from mainstem.storage import paths
from mainstem.storage.backends import reopens
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage

if TYPE_CHECKING:
    from mainstem.api.table import Table


def location_of_tasks(table: Table) -> Location:
    """The table's place, from which tasks in other processes open it."""
    storage = table.opened.seams.storage
    if not reopens(storage):
        raise Unsupported(
            "this table's storage exists only in this process: tasks of an engine cannot reach it; use"
            " Table.scan and Table.upsert",
            table=table.path,
        )
    return storage.location


def no_table_here(storage: Storage) -> Unavailable | None:
    """The error of a worker that does not see the table; None if it does."""
    if storage.stat(paths.PROPERTIES) is not None:
        return None
    return Unavailable(
        "this worker finds no table at its path: put tables where all workers reach them (an object store, a"
        " shared folder)",
        table=storage.base,
    )
