"""Partitions and files of a query: from the metadata table's ``files`` if the table has one, else folders.

The metadata table shows no file of a pending instant: its rows of such an instant do not count
(``metadata/valid_instants``), and listed names are put into slices by the data table's completed instants,
just like names from folders. It hides no file of a completed instant: an instant completes in the metadata
table first, and ``_left_out`` checks that every instant of the view is there, which detects a writer that
ignored the metadata table. If the metadata table is damaged or lacks an instant, folders are listed instead,
with a warning: a query's answer must not depend on an index.

Folders are also listed while a clean is pending: the clean removes files that the metadata table lists until
the clean completes, and queries of the past must notice what is gone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mainstem.errors import CorruptTable, Unsupported
from mainstem.layout.partitions import PartitionListing
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_partitions import FILES, ready_partitions
from mainstem.metadata.metafile import read_metafile
from mainstem.options.metadata import METADATA, PARTITIONS
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.timeline.instant import CLEAN, COMMIT, DELTACOMMIT, REPLACECOMMIT

if TYPE_CHECKING:
    from mainstem.metadata.metadata_table import MetadataTable

_DESCRIBED = (COMMIT, DELTACOMMIT, REPLACECOMMIT, CLEAN)


def query_listing(state: TableState, *, metadata: bool) -> Iterable[PartitionListing]:
    """Every partition with its file names, in path order, as ``TableState.partitions`` gives them.

    ``metadata``: ``hoodie.metadata.enable``. Folders are listed without it, where the table has no metadata
    table or a clean is pending, and, with a ``UserWarning``, where the metadata is damaged or incomplete.
    """
    cleaning = any(i.action == CLEAN for i in state.view.timeline.pending)
    if not metadata or cleaning or FILES not in ready_partitions(state.config.raw):
        return _folders(state)
    try:
        files = _files(state)
    except FileNotFoundError:  # the metadata table is newer than this view
        return _folders(state)
    except (CorruptTable, Unsupported, OSError) as error:
        if FILES in ready_partitions(load_config(state.storage).raw):  # else it was dropped meanwhile
            warnings.warn(
                f"the metadata table of {state.storage.base} cannot be used, folders are listed instead (give"
                f" {METADATA}=false to do so without trying): {error}",
                stacklevel=2,
            )
        return _folders(state)
    return [PartitionListing(p, tuple(sorted(names)), names) for p, names in sorted(files.items())]


def _folders(state: TableState) -> Iterable[PartitionListing]:
    if state.config.partition_fields:
        return state.partitions()
    # Some names may be folders. Asking about each would cost more than reading a file, and no folder of a
    # table has a data file's name.
    return [PartitionListing("", tuple(sorted(state.storage.names(""))))]


def _files(state: TableState) -> dict[str, dict[str, int]]:
    table = state.metadata_table
    if table is None:
        raise CorruptTable(f"{PARTITIONS} does not name files", path=state.config.path)
    left_out = _left_out(state, table)
    if left_out is not None:
        raise CorruptTable(
            f"it has nothing of the instant {left_out}, which a writer completed without it",
            path=paths.METADATA,
        )
    try:
        files = table.files()
    except CorruptTable:
        # The metadata table may have been compacted and cleaned since its timeline was listed.
        table = table.reopened()
        files = table.files()
    if FILES not in ready_partitions(load_config(state.storage).raw):
        raise FileNotFoundError("the metadata table was dropped while it was read")
    if _made(state) > table.timeline.newest_time:
        raise FileNotFoundError("the metadata table was built anew while it was read")
    return files


def _left_out(state: TableState, table: MetadataTable) -> str | None:
    """Requested time of a completed instant of the view that should be in the metadata table and is not."""
    described = [i for i in state.view.timeline.completed if i.action in _DESCRIBED]
    missing = [i for i in described if table.validity.completion(i.requested) is None]
    if not missing:
        return None
    made = table.validity.completion(_made(state))
    # An instant that completed before the metadata table was built is covered: the build listed the folders.
    return next((i.requested for i in missing if made is None or (i.completion or "") > made), None)


def _made(state: TableState) -> str:
    """Requested time of the instant that built ``files``."""
    instant = read_metafile(state.storage, FILES).instant
    if instant is None:
        raise FileNotFoundError("the metadata table was removed while it was read")
    return instant
