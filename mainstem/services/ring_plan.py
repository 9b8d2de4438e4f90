"""Plans splits and merges of file groups under consistent hashing, and checks such plans.

As Hudi's ``SparkConsistentBucketClusteringPlanStrategy``: a file group above ``split.threshold`` times the
size of a file is split in two halves of its range, up to ``max.num.buckets``; neighbours on the ring that
together are below ``merge.threshold`` times that size become one, down to ``min.num.buckets``. Others are
left as they are, where Hudi writes them anew. Of a partition with a pending clustering nothing is planned, so
the rings of a partition follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from mainstem.errors import CorruptTable, Invalid
from mainstem.layout.hash_rings import Child, Ring, encoded_children, parsed_children
from mainstem.layout.stored_rings import Completed, newest_ring
from mainstem.options.services import MAX_BUCKETS, MERGE_THRESHOLD, MIN_BUCKETS, SPLIT_THRESHOLD
from mainstem.options.writing import MAX_FILE
from mainstem.readers.planning.table_state import TableState
from mainstem.services.clustering_plan import Wanted
from mainstem.services.compaction_plan import FileListing, PlannedGroup, measured, taken_groups
from mainstem.storage.protocol import Storage
from mainstem.timeline.clustering_plans import ClusteredSlice, ClusteringGroup, ClusteringPlan
from mainstem.timeline.plans import CompactionOperation
from mainstem.truetime.seams import Randomness

# Hudi's names (BaseConsistentHashingBucketClusteringPlanStrategy).
_PARTITION, _SEQUENCE = "clustering.group.partition", "clustering.group.sequence.no"
_CHILDREN = "clustering.group.child.node"


@dataclass(frozen=True)
class SplitOptions:
    """Checked options, under Hudi's names and with its defaults; 0: as many as the partition began with."""

    most: int
    fewest: int
    split_bytes: int
    merge_bytes: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> SplitOptions:
        """Raises ``Invalid`` for a value that does not parse."""
        size = MAX_FILE.read(properties)
        scaled = []
        for option in (SPLIT_THRESHOLD, MERGE_THRESHOLD):
            try:
                factor = float(option.read(properties))
            except ValueError:
                factor = -1.0
            if not 0 <= factor <= 10**6:
                raise Invalid(f"{option}={option.read(properties)!r}, expected a number from 0 to 1,000,000")
            scaled.append(int(size * factor))
        return cls(MAX_BUCKETS.read(properties), MIN_BUCKETS.read(properties), *scaled)


class Splittable:
    """The newest slices of the table, found before the lock is taken and brought up to date under it."""

    def __init__(
        self, listing: FileListing, wanted: Wanted, options: SplitOptions, random: Randomness, history: str
    ) -> None:
        self._listing = listing
        self._wanted = wanted
        self._options = options
        self._random = random
        self._history = history
        self._sizes: dict[str, int] = {}
        self._measure(*listing.now())

    def now(self) -> tuple[TableState, list[ClusteringGroup]]:
        """The table's state at this moment, and the groups of a plan; [] if there is nothing to do."""
        state, files = self._listing.now()
        taken = taken_groups(state)
        pending = {partition for partition, _ in taken - state.replaced(None)}
        completed = Completed(state.storage, self._history)
        found: list[ClusteringGroup] = []
        for partition, slices in self._measure(state, files).items():
            free = {file_id: one for file_id, one in slices.items() if (partition, file_id) not in taken}
            if partition in pending or not self._may_change(free):
                continue
            ring = newest_ring(state.storage, partition, completed)
            if ring is not None:
                found += self._groups_of(ring, free)
        return state, found

    def _measure(
        self, state: TableState, files: Mapping[str, set[str]]
    ) -> dict[str, dict[str, tuple[ClusteredSlice, PlannedGroup]]]:
        found: dict[str, dict[str, tuple[ClusteredSlice, PlannedGroup]]] = {}
        for partition in sorted(files):
            if not self._wanted.takes(partition):
                continue
            for group in state.group(partition, sorted(files[partition])):
                newest = group.slices[0]
                operation = CompactionOperation(
                    partition, group.file_id, newest.base_instant, newest.base_file, newest.log_files
                )
                one = ClusteredSlice(partition, group.file_id, newest.base_file, newest.log_files)
                figures = measured(state.storage, operation, self._sizes)
                found.setdefault(partition, {})[group.file_id] = (one, figures)
        return found

    def _may_change(self, slices: Mapping[str, tuple[ClusteredSlice, PlannedGroup]]) -> bool:
        sizes = [_bytes(figures) for _, figures in slices.values()]
        large = any(size > self._options.split_bytes for size in sizes)
        return large or sum(size <= self._options.merge_bytes for size in sizes) > 1

    def _groups_of(
        self, ring: Ring, slices: Mapping[str, tuple[ClusteredSlice, PlannedGroup]]
    ) -> list[ClusteringGroup]:
        options, count = self._options, len(ring.values)
        splits = (options.most or ring.first_count) - count
        found: list[ClusteringGroup] = []
        left: dict[int, int] = {}
        for node in range(count):
            if ring.file_id(node) not in slices:
                continue
            size = _bytes(slices[ring.file_id(node)][1])
            children = None
            if size > options.split_bytes and splits > 0:
                children = ring.halves(node, (self._prefix(), self._prefix()))
            if children is None:
                left[node] = size
            else:
                splits -= 1
                found.append(_group(ring, slices, [node], children))
        merges = count + len(found) - (options.fewest or ring.first_count)
        for run in self._runs(left, merges):
            gone = [Child(ring.values[node], None) for node in run[:-1]]
            children = [*gone, Child(ring.values[run[-1]], self._prefix())]
            found.append(_group(ring, slices, run, children))
        return found

    def _runs(self, sizes: Mapping[int, int], slots: int) -> list[list[int]]:
        """Runs of neighbours to merge, each of two nodes or more."""
        found: list[list[int]] = []
        run: list[int] = []
        for node in [*sorted(sizes), None]:
            fits = node is not None and sizes[node] <= self._options.merge_bytes
            if node is not None and run and fits and slots > 0:
                total = sum(sizes[one] for one in run) + sizes[node]
                if node == run[-1] + 1 and total <= self._options.merge_bytes:
                    run.append(node)
                    slots -= 1
                    continue
            if len(run) > 1:
                found.append(run)
            run = [node] if node is not None and fits else []
        return found

    def _prefix(self) -> str:
        return str(UUID(int=self._random.getrandbits(128), version=4))


def _bytes(figures: PlannedGroup) -> int:
    return figures.base_bytes + figures.log_bytes


def _group(
    ring: Ring,
    slices: Mapping[str, tuple[ClusteredSlice, PlannedGroup]],
    nodes: Sequence[int],
    children: Sequence[Child],
) -> ClusteringGroup:
    some = [slices[ring.file_id(node)] for node in nodes]
    metrics: dict[str, float] = {}
    for _, figures in some:
        for name, value in figures.metrics.items():
            metrics[name] = metrics.get(name, 0.0) + value
    notes = {
        _PARTITION: ring.partition,
        _SEQUENCE: str(ring.sequence),
        _CHILDREN: encoded_children(children),
    }
    made = sum(child.prefix is not None for child in children)
    return ClusteringGroup(tuple(one for one, _ in some), made, metrics, notes)


# -- plans ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RingChange:
    """What a plan makes of the ring of one partition: ``outputs`` has the file ids of each of its groups."""

    ring: Ring
    outputs: Mapping[int, tuple[str, ...]]


def ring_changes(
    storage: Storage, plan: ClusteringPlan, time: str, history: str, refused: Callable[[str], CorruptTable]
) -> dict[str, RingChange]:
    """Partition -> what the plan makes of its ring. Raises what ``refused`` makes of a reason if the plan
    does not fit the ring as it is: each range that it takes must go to a file group that it makes."""
    completed = Completed(storage, history)
    found: dict[str, RingChange] = {}
    for partition in sorted({group.partition for group in plan.groups}):
        old = newest_ring(storage, partition, completed)
        if old is None:
            raise refused(f"partition {partition!r} has no ring")
        children: list[Child] = []
        outputs: dict[int, tuple[str, ...]] = {}
        taken: set[int] = set()
        for at, group in enumerate(plan.groups):
            if group.partition != partition:
                continue
            try:
                some = parsed_children(group.notes[_CHILDREN])
                sequence = int(group.notes[_SEQUENCE])
                nodes = {old.nodes[one.file_id] for one in group.slices}
            except (KeyError, ValueError) as error:
                raise refused(f"a group names no nodes of the ring {old.instant}: {error}") from error
            made = tuple(f"{child.prefix}-0" for child in some if child.prefix is not None)
            if sequence != old.sequence or len(made) != group.outputs:
                raise refused(f"a group is of ring number {sequence}, and the newest is {old.sequence}")
            if any(old.owner(child.value) not in nodes for child in some):
                raise refused("a group takes ranges of other file groups")
            outputs[at] = made
            children += some
            taken |= nodes
        new = old.changed(children, time)
        kept = {old.file_id(node) for node in range(len(old.values)) if node not in taken}
        made_now = {file_id for some_made in outputs.values() for file_id in some_made}
        if set(new.nodes) != kept | made_now or kept & made_now or not new.values:
            raise refused("file groups that it takes would stay, or others go")
        for at, made in outputs.items():
            nodes = {old.nodes[one.file_id] for one in plan.groups[at].slices}
            for node in nodes:
                if new.file_id(new.owner(old.values[node])) not in made:
                    raise refused(f"the range up to {old.values[node]} would go to another group")
        found[partition] = RingChange(new, outputs)
    return found
