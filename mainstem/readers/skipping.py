"""Which partitions and file slices of a query are left unread, chosen by itself from what there is.

In this order, each only where the filter says something about it:

1. partitions by their path (``pruning``);
2. file slices by the bucket hash of the record keys that the filter names (``wanted_keys``).

A slice is its base file and its log files, and any of them may hold the version of a row that comes out: a
log row can move a base row into the filter's range and out of it, in event-time order also the other way
round. So only what is true of every file of a slice may leave it out. The bucket of a key is: it never
changes. A table that a function of the user merges is cut by partition paths only, as that may make any row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mainstem.readers.explain import FILE_SLICES, PARTITIONS, Report
from mainstem.readers.path_values import path_values
from mainstem.readers.predicates import conjuncts
from mainstem.readers.pruning import may_match, partition_guarantee
from mainstem.readers.split import ReadSpec
from mainstem.readers.state import TableState
from mainstem.readers.wanted_keys import in_buckets, wanted_buckets, wanted_keys
from mainstem.storage import paths
from mainstem.table.partitions import PartitionListing
from mainstem.table.slicing import FileSlice

BUCKET_HASH, PARTITION_PATH = "bucket hash", "partition path"


@dataclass(frozen=True)
class Use:
    """What a query may use: ``hoodie.enable.data.skipping`` and ``hoodie.metadata.enable``."""

    skipping: bool = True
    metadata: bool = True


class Skipping:
    """What one query leaves unread; counts it in ``report``. Made for one state of the table.

    ``newest``: the query is of the newest state, so that indexes of that state alone may be asked.
    """

    def __init__(self, state: TableState, spec: ReadSpec, use: Use, *, newest: bool, base_only: bool) -> None:
        self._state = state
        self._spec = spec
        self.use = use
        self.base_only = base_only
        self.report = Report(None if spec.filter is None else str(spec.filter))
        self._conjuncts = conjuncts(spec.filter) if use.skipping else []
        told = self._conjuncts if spec.rules.merger is None else []
        self._keys = wanted_keys(told, state.config, spec.schema)
        self._buckets = wanted_buckets(self._keys, state.config, state.storage)
        self._groups = 0

    def partitions(self, listings: Iterable[PartitionListing]) -> list[PartitionListing]:
        """Those of which something is read."""
        every = list(listings)
        kept = [listing for listing in every if self._path_fits(listing.partition)]
        self.report.partitions = len(every)
        self._cut(PARTITION_PATH, PARTITIONS, len(every), len(kept))
        self.report.partitions_read = len(kept)
        return kept

    def _path_fits(self, partition: str) -> bool:
        spec, config = self._spec, self._state.config
        if spec.filter is None or not partition:
            return True
        values = path_values(partition, config, spec.schema)
        known = partition_guarantee(partition, values, config, spec.schema)
        return known is None or may_match(spec.filter, known, spec.schema)

    def names(self, names: Sequence[str]) -> Sequence[str]:
        """Those of the names of a partition's files in whose file group a row that passes can lie."""
        count = self._state.config.buckets
        if self._buckets is None or count is None:
            return names
        fits: dict[str | None, bool] = {None: True}
        kept = []
        for name in names:
            file_id = paths.file_id_of(name)
            if file_id not in fits:
                fits[file_id] = in_buckets(file_id, self._buckets, count)
            if fits[file_id]:
                kept.append(name)
        self._groups += list(fits.values()).count(False)
        return kept

    def slices(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Those of the slices in which a row that passes can lie."""
        every = self._groups + len(found)
        self._cut(BUCKET_HASH, FILE_SLICES, every, len(found))
        self.report.slices = every
        self.report.reads(found, base_only=self.base_only)
        return found

    def _cut(self, index: str, what: str, before: int, after: int) -> None:
        if after < before:
            self.report.cut(index, what, before, after)
