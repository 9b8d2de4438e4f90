"""Which partitions and file slices of a query are left unread, chosen by itself from what there is.

In this order, each only where the filter says something about it:

1. partitions by their path (``pruning``);
2. partitions by the metadata table's partition statistics;
3. file slices by the bucket hash of the record keys that the filter names (``wanted_keys``);
4. file slices by record index and secondary index, then by column statistics, expression indexes and bloom
   filters of the metadata table (``metadata_indexes``, ``index_cuts``).

A slice is its base file and its log files, and any of them may hold the version of a row that comes out: a
log row can move a base row into the filter's range and out of it, in event-time order also the other way
round. So a slice is left out only if every file of it is ruled out by an entry of its own; a file without an
entry keeps its slice. Which keys a file group holds does not change with versions of rows. A table that a
function of the user merges is cut by partition paths only, as that may make any row.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from mainstem.errors import CorruptTable, Unsupported
from mainstem.filters.expression_tree import shown
from mainstem.filters.predicates import conjuncts
from mainstem.layout.partitions import PartitionListing
from mainstem.layout.slicing import FileSlice
from mainstem.metadata.validity import AheadOfView
from mainstem.options.metadata import METADATA
from mainstem.readers.planning.explain import FILE_SLICES, PARTITIONS, Report
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.rows.path_values import path_values
from mainstem.readers.rows.slice_query import ReadSpec
from mainstem.readers.skipping.index_cuts import IndexCuts
from mainstem.readers.skipping.pruning import may_match, partition_guarantee
from mainstem.readers.skipping.wanted_keys import in_buckets, wanted_buckets, wanted_keys
from mainstem.storage import paths
from mainstem.timeline.instant import RESTORE, ROLLBACK

Kept = TypeVar("Kept")

# Every rollback, not those of completed commits alone (``timeline.restore_records.taking_back``): plans
# of Java do not say whether their instant was completed.
_TAKING_BACK = (ROLLBACK, RESTORE)
BUCKET_HASH, PARTITION_PATH = "bucket hash", "partition path"


@dataclass(frozen=True)
class Use:
    """What a query may use: ``hoodie.enable.data.skipping`` and ``hoodie.metadata.enable``."""

    skipping: bool = True
    metadata: bool = True


class Skipping:
    """What one query leaves unread; counts it in ``report``. Made for one state of the table.

    ``newest``: the query is of the newest state, so that indexes of that state alone may be asked; not by one
    of base files only, which shows rows that log files have deleted or moved since.
    """

    def __init__(
        self, state: TableState, spec: ReadSpec, use: Use, *, newest: bool, base_only: bool
    ) -> None:
        self._state = state
        self._spec = spec
        self.use = use
        self._newest = newest and not base_only
        self.base_only = base_only
        self.report = Report(None if spec.filter is None else shown(spec.filter))
        told = conjuncts(spec.filter) if use.skipping and spec.rules.merger is None else []
        self._conjuncts = told
        # Keys that a reader makes, and columns that files may call otherwise, are not those that were hashed.
        plain = not spec.virtual_key and spec.ids is None
        self._keys = wanted_keys(told, state.config, spec.schema) if plain else None
        self._buckets = wanted_buckets(self._keys, state.config, state.storage)
        self._groups = 0

    @cached_property
    def _indexes(self) -> IndexCuts | None:
        """Opened when the first question comes up."""
        if not (self._conjuncts and self.use.metadata):
            return None
        return IndexCuts.of(
            self._state, self._spec, self._conjuncts, self._keys, self.report, newest=self._newest,
            hashed=self._buckets is not None, base_only=self.base_only,
        )  # fmt: skip

    def partitions(self, listings: Iterable[PartitionListing]) -> list[PartitionListing]:
        """Those of which something is read."""
        every = list(listings)
        kept = [listing for listing in every if self._path_fits(listing.partition)]
        self.report.partitions = len(every)
        self.report.cut(PARTITION_PATH, PARTITIONS, len(every), len(kept))
        if any(listing.partition for listing in kept):
            kept = self._asked(kept, lambda indexes: indexes.partitions(kept))
        self.report.partitions_read = len(kept)
        return kept

    def _path_fits(self, partition: str) -> bool:
        spec, config = self._spec, self._state.config
        if not partition or not set(config.partition_fields).intersection(spec.extra):
            return True
        values = path_values(partition, config, spec.schema)
        known = partition_guarantee(partition, values, config, spec.schema)
        return known is None or may_match(spec.filter, known, spec.schema)

    def names(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the names of a partition's files in whose file group a row that passes can lie."""
        if self._buckets is None:
            return names
        count = self._state.config.buckets or 0
        fits: dict[str, bool] = {}  # by what stands before the first underscore: the file id, in data files
        kept = []
        for name in names:
            head = name.partition("_")[0].removeprefix(".")
            if head not in fits:
                file_id = paths.file_id_of(name)
                fits[head] = file_id is None or in_buckets(file_id, self._buckets, count)
            if fits[head]:
                kept.append(name)
        self._groups += list(fits.values()).count(False)
        return kept

    def slices(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Those of the slices in which a row that passes can lie."""
        every = self._groups + len(found)
        self.report.slices = every
        self.report.cut(BUCKET_HASH, FILE_SLICES, every, len(found))
        found = self._asked(found, lambda indexes: indexes.slices(found))
        if self._indexes is not None:
            self._indexes.confirm()
        self.report.reads(found, base_only=self.base_only)
        return found

    def _asked(self, every: Kept, ask: Callable[[IndexCuts], Kept]) -> Kept:
        """What the indexes leave of ``every``: all of it where they are damaged, or where a commit that they
        hold is being taken back. What a query shows must not depend on an index."""
        try:
            return every if self._indexes is None else ask(self._indexes)
        except AheadOfView:
            if not any(i.action in _TAKING_BACK for i in self._state.view.timeline.pending):
                raise  # a plan made again sees what they hold
            self.report.notes.append("indexes are not used: a commit that they hold is being taken back")
            self._unused()
            return every
        except (CorruptTable, Unsupported) as error:
            self.report.notes.append(f"indexes are not used: {error}")
            warnings.warn(
                f"indexes of {self._state.storage.base} cannot be used, more files are read instead (give"
                f" {METADATA}=false to do so without trying): {error}",
                stacklevel=2,
            )
            self._unused()
            return every

    def _unused(self) -> None:
        self._conjuncts = []
        self.__dict__["_indexes"] = None
