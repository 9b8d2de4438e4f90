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
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mainstem.errors import CorruptTable, Unsupported
from mainstem.layout.partitions import PartitionListing, list_partitions
from mainstem.layout.properties import load_config
from mainstem.layout.wanted_folders import WantedFolders
from mainstem.metadata.metadata_partitions import FILES, ready_partitions
from mainstem.metadata.metafile import read_metafile
from mainstem.options.metadata import METADATA, PARTITIONS
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.timeline.instant import CLEAN, COMMIT, DELTACOMMIT, REPLACECOMMIT

if TYPE_CHECKING:
    from mainstem.metadata.metadata_table import MetadataTable

Count = Callable[[int], None]
_DESCRIBED = (COMMIT, DELTACOMMIT, REPLACECOMMIT, CLEAN)


def query_listing(
    state: TableState,
    *,
    metadata: bool,
    wanted: WantedFolders | None = None,
    left_out: Count = lambda count: None,
) -> Iterable[PartitionListing]:
    """Every partition with its file names, in path order, as ``TableState.partitions`` gives them.

    Partitions that are not ``wanted`` may be missing; ``left_out`` is told how many folders were not looked
    into. All are listed where a known partition has another number of folders than the key generator makes.
    ``metadata``: ``hoodie.metadata.enable``. Folders are listed without it, where the table has no metadata
    table or a clean is pending, and, with a ``UserWarning``, where the metadata is damaged or incomplete.
    """
    cleaning = any(i.action == CLEAN for i in state.view.timeline.pending)
    if not metadata or cleaning or FILES not in ready_partitions(state.config.raw):
        return _folders(state, wanted, left_out)
    try:
        files = _files(state, wanted, left_out)
    except FileNotFoundError:  # the metadata table is newer than this view
        return _folders(state, wanted, left_out)
    except (CorruptTable, Unsupported, OSError) as error:
        if FILES in ready_partitions(load_config(state.storage).raw):  # else it was dropped meanwhile
            warnings.warn(
                f"the metadata table of {state.storage.base} cannot be used, folders are listed instead (give"
                f" {METADATA}=false to do so without trying): {error}",
                stacklevel=2,
            )
        return _folders(state, wanted, left_out)
    return [PartitionListing(p, tuple(sorted(names)), names) for p, names in sorted(files.items())]


def _folders(state: TableState, wanted: WantedFolders | None, left_out: Count) -> Iterable[PartitionListing]:
    if state.config.partition_fields:
        if wanted is None or not _regular(state, wanted):
            return state.partitions()
        return list_partitions(state.storage, partitioned=True, wanted=wanted, left_out=left_out)
    # Some names may be folders. Asking about each would cost more than reading a file, and no folder of a
    # table has a data file's name.
    return [PartitionListing("", tuple(sorted(state.storage.names(""))))]


def _regular(state: TableState, wanted: WantedFolders) -> bool:
    """Whether all partitions that the timeline's commits name are as the key generator makes them."""
    try:
        return all(map(wanted.regular, state.view.committed.by_partition))
    except CorruptTable:  # whoever needs the damaged commit reports it
        return False


def _files(state: TableState, wanted: WantedFolders | None, left_out: Count) -> dict[str, dict[str, int]]:
    table = state.metadata_table
    if table is None:
        raise CorruptTable(f"{PARTITIONS} does not name files", path=state.config.path)
    missing = _left_out(state, table)
    if missing is not None:
        raise CorruptTable(
            f"it has nothing of the instant {missing}, which a writer completed without it",
            path=paths.METADATA,
        )
    keeps = None if wanted is None else _Counted(wanted)
    try:
        files = table.files(keeps)
    except CorruptTable:
        # The metadata table may have been compacted and cleaned since its timeline was listed.
        table = table.reopened()
        keeps = None if wanted is None else _Counted(wanted)
        files = table.files(keeps)
    if FILES not in ready_partitions(load_config(state.storage).raw):
        raise FileNotFoundError("the metadata table was dropped while it was read")
    if _made(state) > table.timeline.newest_time:
        raise FileNotFoundError("the metadata table was built anew while it was read")
    if keeps is not None:
        left_out(keeps.left_out)
    return files


class _Counted:
    """Partitions whose rows may be wanted; counts the others."""

    def __init__(self, wanted: WantedFolders) -> None:
        self._wanted = wanted
        self.left_out = 0

    def __call__(self, partition: str) -> bool:
        kept = not self._wanted.regular(partition) or self._wanted.keeps(partition)
        self.left_out += not kept
        return kept


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
