"""Plans a clustering of a table without buckets: which file groups become how many new ones.

As Hudi's ``SparkSizeBasedClusteringPlanStrategy`` does: slices whose base file is below
``hoodie.clustering.plan.strategy.small.file.limit`` are put together, the largest first, into groups of at
most ``max.bytes.per.group``, each of which becomes as many files as ``target.file.max.bytes`` says. A file of
twice that size is split, too. A slice alone is left as it is, unless its rows are in another order than
wanted: what is planned again and again would end no work.

Like a compaction's, a plan must hold *all* log files of a slice that are completed, so it is made under the
table lock, from files listed earlier plus those of instants that completed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mainstem.limits import CLUSTERING_OUTPUTS_MAX, MIB
from mainstem.options.services import CLUSTER_GROUP, CLUSTER_GROUPS, CLUSTER_SMALL_FILE, CLUSTER_TARGET
from mainstem.readers.planning.table_state import TableState
from mainstem.services.clustering_order import RowOrder
from mainstem.services.compaction_plan import (
    FileListing,
    PlannedGroup,
    measured,
    row_order_of,
    services_shown,
    taken_groups,
)
from mainstem.storage import paths
from mainstem.timeline.clustering_plans import ClusteredSlice, ClusteringGroup
from mainstem.timeline.plans import CompactionOperation

# What Hudi takes for the size of a slice without a base file.
_NEW_FILE_BYTES = 120 * MIB


@dataclass(frozen=True)
class ClusteringOptions:
    """Checked options, under Hudi's names and with its defaults."""

    small_bytes: int = CLUSTER_SMALL_FILE.default
    target_bytes: int = CLUSTER_TARGET.default
    group_bytes: int = CLUSTER_GROUP.default
    groups: int = CLUSTER_GROUPS.default

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClusteringOptions:
        """Raises ``Invalid`` for a value that does not parse."""
        return cls(
            CLUSTER_SMALL_FILE.read(properties),
            CLUSTER_TARGET.read(properties),
            CLUSTER_GROUP.read(properties),
            CLUSTER_GROUPS.read(properties),
        )

    def outputs(self, total: int) -> int:
        """How many files so many bytes become."""
        return max(1, min(CLUSTERING_OUTPUTS_MAX, -(-total // self.target_bytes)))


@dataclass(frozen=True)
class Wanted:
    """A request to cluster these partitions (None: all), with rows in this order (None: as they come)."""

    order: RowOrder | None = None
    partitions: frozenset[str] | None = None

    def takes(self, partition: str) -> bool:
        """Whether a partition is among them."""
        return self.partitions is None or partition in self.partitions


@dataclass(frozen=True)
class _Slice:
    """A slice that may be clustered."""

    found: ClusteredSlice
    figures: PlannedGroup
    unordered: bool

    @property
    def bytes(self) -> int:
        return self.figures.base_bytes if self.found.base_file else _NEW_FILE_BYTES


class Clusterable:
    """The newest slices of the table, found before the lock is taken and brought up to date under it."""

    def __init__(self, listing: FileListing, wanted: Wanted, options: ClusteringOptions) -> None:
        self._listing = listing
        self._wanted = wanted
        self._options = options
        self._sizes: dict[str, int] = {}
        self._orders: dict[str, str] = {}
        state, files = listing.now()
        self._services = services_shown(state.timeline)
        self._found = {p: self._find(state, p, names) for p, names in files.items() if wanted.takes(p)}

    def now(self) -> tuple[TableState, list[ClusteringGroup]]:
        """The table's state at this moment, and the groups of a plan; [] if there is nothing to do.

        It leaves out file groups that are replaced or in a pending plan.
        """
        state, files = self._listing.now()
        services = services_shown(state.timeline)
        # Other plans decide which files are a slice.
        stale = self._listing.grown if services == self._services else set(files)
        self._services = services
        for partition in sorted(stale):  # the same calls in every process
            if self._wanted.takes(partition):
                self._found[partition] = self._find(state, partition, files[partition])
        taken = taken_groups(state)
        found: list[ClusteringGroup] = []
        for partition in sorted(self._found):
            free = [one for one in self._found[partition] if one.found.place not in taken]
            found += self._groups_of(free)
        return state, found[: self._options.groups]

    def _find(self, state: TableState, partition: str, names: set[str]) -> list[_Slice]:
        found = []
        for group in state.group(partition, sorted(names)):
            newest = group.slices[0]
            operation = CompactionOperation(
                partition, group.file_id, newest.base_instant, newest.base_file, newest.log_files
            )
            figures = measured(state.storage, operation, self._sizes)
            base = newest.base_file
            small = base is None or figures.base_bytes < self._options.small_bytes
            if small or figures.base_bytes >= 2 * self._options.target_bytes:
                one = ClusteredSlice(partition, group.file_id, base, newest.log_files)
                found.append(_Slice(one, figures, self._unordered(state, one)))
        return found

    def _unordered(self, state: TableState, one: ClusteredSlice) -> bool:
        order = self._wanted.order
        if order is None or one.base_file is None:
            return order is not None
        path = paths.in_partition(one.partition, one.base_file)
        if path not in self._orders:
            self._orders[path] = row_order_of(state.storage, path)
        return self._orders[path] != str(order)

    def _groups_of(self, slices: Sequence[_Slice]) -> Iterator[ClusteringGroup]:
        """Those of one partition, the largest slices first, as Hudi divides them."""
        group: list[_Slice] = []
        total = 0
        for one in sorted(slices, key=lambda s: (-s.bytes, s.found.file_id)):
            if group and total + one.bytes > self._options.group_bytes:
                yield from self._group(group, total)
                group, total = [], 0
            group.append(one)
            total += one.bytes
        yield from self._group(group, total)

    def _group(self, group: Sequence[_Slice], total: int) -> Iterator[ClusteringGroup]:
        outputs = self._options.outputs(total)
        due = len(group) > outputs or any(one.unordered for one in group)
        if group and (due or any(one.bytes >= 2 * self._options.target_bytes for one in group)):
            yield ClusteringGroup(
                tuple(one.found for one in group), outputs, _metrics([one.figures for one in group])
            )


def _metrics(figures: Sequence[PlannedGroup]) -> dict[str, float]:
    """Java's metrics of the slices of a group, added up."""
    found: dict[str, float] = {}
    for one in figures:
        for name, value in one.metrics.items():
            found[name] = found.get(name, 0.0) + value
    return found
