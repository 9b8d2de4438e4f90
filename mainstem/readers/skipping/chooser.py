"""Chooses automatically which partitions and file slices a query leaves unread.

In this order, each step only if the filter allows it:

1. partitions by their path: before they are listed if it tells (``wanted_partitions``), else afterwards
   (``pruning``);
2. partitions by the metadata table's partition statistics;
3. file slices by the bucket hash of the record keys that the filter names (``wanted_keys``);
4. file slices by record index and secondary index, then by column statistics, expression indexes and bloom
   filters of the metadata table (``metadata_indexes``, ``index_cuts``).

Any file of a slice, base or log, may hold the winning version of a row: a log row can move a base row into
the filter's range or out of it, and in event-time order the base row may win. So a slice is left out only if
each of its files is ruled out by an entry of its own; a file without an entry keeps its slice. Which keys a
file group holds does not depend on the version of a row. If a user's function merges the table, only
partition paths are used, because the function may produce any row.
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
from mainstem.metadata.valid_instants import AheadOfView
from mainstem.options.metadata import METADATA
from mainstem.readers.planning.explain import FILE_SLICES, PARTITIONS, Report
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.rows.path_values import path_values
from mainstem.readers.rows.slice_query import ReadSpec
from mainstem.readers.skipping.index_cuts import IndexCuts
from mainstem.readers.skipping.pruning import may_match, partition_guarantee
from mainstem.readers.skipping.wanted_keys import wanted_buckets, wanted_keys
from mainstem.readers.skipping.wanted_partitions import wanted_folders
from mainstem.storage import paths
from mainstem.timeline.instant import RESTORE, ROLLBACK

Kept = TypeVar("Kept")

# Every rollback, not only those of completed commits (``timeline.restore_records.taking_back``): Java's
# plans do not say whether their instant was completed.
_TAKING_BACK = (ROLLBACK, RESTORE)
BUCKET_HASH, PARTITION_PATH = "bucket hash", "partition path"


@dataclass(frozen=True)
class Use:
    """What a query may use: ``hoodie.enable.data.skipping`` and ``hoodie.metadata.enable``."""

    skipping: bool = True
    metadata: bool = True


class Skipping:
    """Decides what one query leaves unread, for one state of the table; counts it in ``report``.

    ``newest``: the query reads the newest state, so indexes that describe only that state may be used. They
    are not used with ``base_only``, which shows rows that log files have since deleted or moved.
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
        #: folders that the filter leaves: others need not be listed. A path is told by the filter whatever
        #: merges the rows, as in ``_path_fits``
        self.folders = (
            wanted_folders(conjuncts(spec.filter), state.config, spec.schema) if spec.ids is None else None
        )
        self._unlisted = 0
        # Virtual keys, and columns that may have other names in files, may differ from what writers hashed.
        plain = not spec.virtual_key and spec.ids is None
        self._keys = wanted_keys(told, state.config, spec.schema) if plain else None
        self._buckets = wanted_buckets(self._keys, state.config, state.storage)
        self._groups = 0

    @cached_property
    def _indexes(self) -> IndexCuts | None:
        """The metadata table's indexes, opened on first use; None if the query may not use them."""
        if not (self._conjuncts and self.use.metadata):
            return None
        return IndexCuts.of(
            self._state, self._spec, self._conjuncts, self._keys, self.report, newest=self._newest,
            hashed=self._buckets is not None, base_only=self.base_only,
        )  # fmt: skip

    def partitions(self, listings: Iterable[PartitionListing]) -> list[PartitionListing]:
        """The partitions that must be read."""
        every = list(listings)
        kept = [listing for listing in every if self._path_fits(listing.partition)]
        count = len(every) + self._unlisted
        self.report.partitions = count
        self.report.cut(PARTITION_PATH, PARTITIONS, count, len(kept))
        if any(listing.partition for listing in kept):
            kept = self._asked(kept, lambda indexes: indexes.partitions(kept))
        self.report.partitions_read = len(kept)
        return kept

    def left_out(self, count: int) -> None:
        """Called while the partitions are listed: so many folders were not looked into, for their path."""
        self._unlisted += count

    def _path_fits(self, partition: str) -> bool:
        spec, config = self._spec, self._state.config
        if not partition or not set(config.partition_fields).intersection(spec.extra):
            return True
        values = path_values(partition, config, spec.schema)
        known = partition_guarantee(partition, values, config, spec.schema)
        return known is None or may_match(spec.filter, known, spec.schema)

    def names(self, partition: str, names: Sequence[str]) -> Sequence[str]:
        """The file names of a partition whose file group may hold a row that passes, by bucket hash."""
        if self._buckets is None:
            return names
        fits: dict[str, bool] = {}  # by the part before the first underscore (in data files, the file id)
        kept = []
        for name in names:
            head = name.partition("_")[0].removeprefix(".")
            if head not in fits:
                file_id = paths.file_id_of(name)
                fits[head] = file_id is None or self._buckets.may_hold(partition, file_id)
            if fits[head]:
                kept.append(name)
        self._groups += list(fits.values()).count(False)
        return kept

    def slices(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """The slices that may hold a row that passes."""
        every = self._groups + len(found)
        self.report.slices = every
        self.report.cut(BUCKET_HASH, FILE_SLICES, every, len(found))
        found = self._asked(found, lambda indexes: indexes.slices(found))
        if self._indexes is not None:
            self._indexes.confirm()
        self.report.reads(found, base_only=self.base_only)
        return found

    def _asked(self, every: Kept, ask: Callable[[IndexCuts], Kept]) -> Kept:
        """What the indexes keep of ``every``. All of it if they are damaged, or if a commit that they contain
        is being taken back: a query's answer must not depend on an index."""
        try:
            return every if self._indexes is None else ask(self._indexes)
        except AheadOfView:
            if not any(i.action in _TAKING_BACK for i in self._state.view.timeline.pending):
                raise  # planning again will see the commits that the indexes contain
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
