"""Clustering of tables without fixed buckets: file groups are replaced by new ones, beside running writers.

  [[ lock: which slices, of what completed before now -> publish t.clustering.requested ]]
  -> t.clustering.inflight -> per new file group: merge and order the rows, put the base file in place
  -> [[ lock: still pending, and nobody wrote to these file groups? -> publish t_c.replacecommit ]]
  -> remove private files and markers

Plan and commit are Hudi's, so Java executes our plans and we Java's (of the strategy that sorts and cuts by
size; others are refused by name). ``services.executor`` says why any number of processes may execute one.

**Writers come first.** A writer that is about to complete in a file group of our plan takes the plan back,
and one that finds its file group replaced moves its rows to where their keys live now
(``writers.keys_placed_meanwhile``). So no writer waits or ends because of a clustering. What others may have
done is looked for under the lock: if an instant that completed since the plan wrote to its file groups, or
another engine has a write in flight, which could not be routed, the clustering steps back. Its plan is taken
back for good, since whoever executed it later would leave out the late rows, and ``cluster`` plans anew.

Hudi: ``ClusteringPlanActionExecutor``, ``MultipleSparkJobExecutionStrategy``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow.parquet as pq

from mainstem.errors import CorruptTable, Unavailable, Unsupported, naming
from mainstem.formats.avro_container import OUR_MARK
from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
from mainstem.formats.base_file import BaseFileFormat
from mainstem.layout.hash_rings import Ring
from mainstem.layout.key_index import GroupOfKey
from mainstem.layout.properties import load_config
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.layout.stored_rings import mark_committed, put_ring
from mainstem.limits import HEARTBEAT_BYTES_MAX, MIB, TIMELINE_FILE_BYTES_MAX
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.commits.action import FileChanges
from mainstem.options.services import LAYOUT_STRATEGY
from mainstem.options.writing import GROUP_BYTES
from mainstem.publish.publisher import Section
from mainstem.publish.staging import create_once
from mainstem.readers.planning.file_presence import check_files, committed_sizes
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import WRITES, TableState
from mainstem.readers.queries.snapshot import read_spec
from mainstem.services.claim import claimed
from mainstem.services.cluster_group import CLUSTERINGS, FILE_NAME, OutputTask, pending
from mainstem.services.clustering_order import RowOrder, refuse_order
from mainstem.services.clustering_plan import Clusterable, ClusteringOptions, Wanted
from mainstem.services.compaction import GROUPS_PER_MEMORY, ORDERED_GROUP_BYTES, log_rows
from mainstem.services.compaction_plan import CompactionOptions, FileListing
from mainstem.services.executor import publish_end, publish_plan
from mainstem.services.other_attempts import forget_other_attempt, sweep_private
from mainstem.services.progress import Progress, silent
from mainstem.services.ring_plan import RingChange, SplitOptions, Splittable, ring_changes
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clustering_plans import (
    CLUSTER,
    SORT_AND_SIZE,
    SPLIT_AND_MERGE,
    ClusteringGroup,
    ClusteringPlan,
    encode_clustering_plan,
    load_clustering_plan,
)
from mainstem.timeline.commit_metadata import CommitMetadata, encode_replace_commit
from mainstem.timeline.instant import CLUSTERING, COMMIT, INFLIGHT, REPLACECOMMIT, Instant
from mainstem.truetime.heartbeats import parse_promise
from mainstem.writers.bulk_insert import BaseFileStat
from mainstem.writers.conflicts import CompletedWrites, is_completed_write
from mainstem.writers.context import WriterContext
from mainstem.writers.give_way import GiveWay, Patience, passed_by
from mainstem.writers.rollback import condemned, roll_back

__all__ = ["Clustered", "cluster", "execute", "pending", "schedule"]

#: classes of Hudi's whose plans are executed here; no class is ever loaded by name
STRATEGIES = (
    SORT_AND_SIZE,
    "org.apache.hudi.client.clustering.run.strategy.JavaSortAndSizeExecutionStrategy",
)
# How often ``cluster`` plans anew after it stepped back for writers.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Clustered:
    """The outcome of one plan. ``completion`` is None if this call did not complete it; ``why`` not.

    ``files``: paths of the new base files; ``rows``: rows in them; ``replaced``: number of file groups that
    they replace; ``order``: of the rows, "" if they have none.
    """

    requested: str
    completion: str | None
    files: tuple[str, ...] = ()
    rows: int = 0
    replaced: int = 0
    order: str = ""
    why: str = ""

    def describe(self) -> str:
        """One line for people."""
        if self.completion is None:
            return f"clustering {self.requested}: not completed" + (f", {self.why}" if self.why else "")
        return (
            f"clustering {self.requested}: {self.replaced:,} file groups became {len(self.files):,},"
            f" {self.rows:,} rows" + (f" in the order {self.order}" if self.order else "")
        )


@dataclass(frozen=True)
class _StepBack:
    """A decision: the clustering must not complete."""

    why: str


def cluster(ctx: WriterContext, wanted: Wanted, progress: Progress = silent) -> list[Clustered]:
    """Finish the planned clusterings, then plan one and execute it; again, if it stepped back for writers."""
    found = [execute(ctx, time, progress) for time in pending(ctx.timeline())]
    for _ in range(_ATTEMPTS):
        time = schedule(ctx, wanted)
        if time is None:
            break
        done = execute(ctx, time, progress)
        found.append(done)
        if done is None or done.completion is not None:
            break
    return [one for one in found if one is not None]


# -- the plan ------------------------------------------------------------------------------------------


def schedule(ctx: WriterContext, wanted: Wanted) -> str | None:
    """Plan a clustering of everything that is completed now; its requested time, None if there is nothing.

    Under consistent hashing it splits and merges file groups (``ring_plan``), unless another engine has a
    write in flight. Raises whatever the lock raises, ``Invalid`` for an order by columns that the table
    lacks.
    """
    refuse_order(ctx.config, wanted.order, ctx.base)
    if ctx.config.uses_rings:
        return _schedule_splits(ctx, wanted)
    options = ClusteringOptions.from_properties({**ctx.config.raw, **ctx.given})
    with naming(ctx.base, "planning a clustering failed", "nothing is planned, try again"):
        listing = FileListing(ctx.seams.storage, ctx.config)
        due = Clusterable(listing, wanted, options)

        def plan(timeline: ActiveTimeline) -> bytes | None:
            ctx.reread_config()
            state, groups = due.now()
            if wanted.order is not None:
                wanted.order.check(avro_to_arrow(_base_schema(ctx, state)), ctx.base)
            if not groups:
                return None
            params, notes = {}, {}
            if wanted.order is not None:
                noted = wanted.order.notes
                notes = {str(LAYOUT_STRATEGY): noted.pop(str(LAYOUT_STRATEGY))}
                params = noted
            made = ClusteringPlan(tuple(groups), params=params, notes=notes)
            return encode_clustering_plan(made, ctx.written_base)

        return publish_plan(ctx, CLUSTERING, plan).time


def _schedule_splits(ctx: WriterContext, wanted: Wanted) -> str | None:
    options = SplitOptions.from_properties({**ctx.config.raw, **ctx.given})
    with naming(ctx.base, "planning a clustering failed", "nothing is planned, try again"):
        listing = FileListing(ctx.seams.storage, ctx.config)
        due = Splittable(listing, wanted, options, ctx.seams.random, ctx.config.history)

        def plan(timeline: ActiveTimeline) -> bytes | None:
            ctx.reread_config()
            _, groups = due.now()
            if not groups or foreign_write(ctx.seams.storage, timeline) is not None:
                return None
            return encode_clustering_plan(ClusteringPlan(tuple(groups), SPLIT_AND_MERGE), ctx.written_base)

        return publish_plan(ctx, CLUSTERING, plan).time


def _base_schema(ctx: WriterContext, state: TableState) -> str:
    """The schema of new base files. Raises ``Unsupported`` for columns that these cannot be given."""
    return arrow_to_avro(
        arrow_user_schema(schema_text(state)), table_name=ctx.config.name, meta_fields=True
    )


# -- the execution -------------------------------------------------------------------------------------


def execute(ctx: WriterContext, time: str, progress: Progress = silent) -> Clustered | None:
    """Execute one plan, ours or Java's; None if a live executor has it.

    A plan that is completed or gone, and one that stepped back for writers, gives a ``Clustered`` without
    completion. After any other failure the plan stays pending. Raises ``Unsupported`` for a plan of a
    strategy that mainstem does not know, ``CorruptTable`` for damaged files and for a plan that does not fit
    this table, ``Unavailable`` for trouble with storage.
    """
    with claimed(ctx, time, "the clustering") as ours:
        if not ours:
            return None
        try:
            return _executed(ctx, time, progress)
        except (OSError, Unavailable, CorruptTable):
            timeline = ctx.publisher.timeline()
            if time in pending(timeline) and time not in condemned(ctx.seams.storage, timeline):
                raise
            return _ended(timeline, time)  # it ended meanwhile, and its files went


def _executed(ctx: WriterContext, time: str, progress: Progress) -> Clustered:
    storage = ctx.seams.storage
    state = TableState.load(storage, load_config(storage).completed_by(ctx.given))
    if time not in pending(state.timeline):
        return _ended(state.timeline, time)
    execution = _Execution.of(ctx, state, time)
    execution.begin()
    tasks = execution.tasks
    named = [(task, f"{ctx.seams.random.getrandbits(64):016x}") for task in tasks]
    stats = side_by_side(
        storage,
        lambda one: one[0].run(storage, one[1]),
        named,
        lambda done: progress(f"clustering {time}, new files", done, len(tasks)),
    )
    return execution.complete(stats)


def _ended(timeline: ActiveTimeline, time: str) -> Clustered:
    """The outcome of a plan that is not pending (any more)."""
    for instant in timeline.completed:
        if instant.requested == time and instant.action == REPLACECOMMIT:
            return Clustered(time, instant.completion)
    return Clustered(time, None, why="its plan was taken back")


@dataclass(frozen=True)
class _Execution:
    """A claimed plan, and the files that it becomes."""

    ctx: WriterContext
    time: str
    plan: ClusteringPlan
    schema: str
    tasks: tuple[OutputTask, ...]
    written: _WrittenSince
    patience: Patience
    #: under consistent hashing: those of its partitions once it is completed
    rings: tuple[Ring, ...] = ()

    @classmethod
    def of(cls, ctx: WriterContext, state: TableState, time: str) -> _Execution:
        storage = ctx.seams.storage
        try:
            plan = load_clustering_plan(storage, time)
        except FileNotFoundError:
            raise Unavailable(f"the clustering {time} ended just now", table=ctx.base) from None
        _check(state, plan, time, (SPLIT_AND_MERGE,) if ctx.config.uses_rings else STRATEGIES)
        assert plan is not None
        changes = _ring_changes(ctx, plan, time) if ctx.config.uses_rings else {}
        properties = {**ctx.config.raw, **ctx.given}
        outputs = sum(group.outputs for group in plan.groups)
        memory = CompactionOptions.from_properties(properties).memory_bytes
        memory //= max(1, min(storage.width, outputs))
        how = BaseFileFormat.from_properties(properties)
        how = replace(how, group_bytes=min(how.group_bytes, max(MIB, memory // GROUPS_PER_MEMORY)))
        schema = _base_schema(ctx, state)
        # Java's plans name the columns, and its executor's options how they make an order.
        noted = {str(LAYOUT_STRATEGY): LAYOUT_STRATEGY.read(properties), **plan.params, **plan.notes}
        order = RowOrder.from_plan(noted)
        order = None if order is None else order.within(avro_to_arrow(schema))
        if ctx.config.sorted_files:
            order = RowOrder((KEY_COLUMN,))
        elif order is not None:
            narrow = min(how.group_bytes, ORDERED_GROUP_BYTES)
            how = replace(
                how, group_bytes=how.group_bytes if GROUP_BYTES in properties else narrow, order=str(order)
            )
        spec = read_spec(state, None, None, None, "error", stored=True)
        spec = replace(spec, columns=tuple(name for name in spec.columns if name != FILE_NAME))
        sync, history = ctx.services_sync, ctx.config.history
        tasks = tuple(
            OutputTask(
                time, at, number, group, spec, schema, fitting, memory, sync, history, order,
                *_ring_of(changes, group.partition, at, number), ctx.config.hash_fields,
            )
            for at, group in enumerate(plan.groups)
            for fitting in [_with_bloom_for(how, _rows_at_most(state, group), group.outputs)]
            for number in range(group.outputs)
        )
        written = _WrittenSince(storage, time, plan, ctx.config.history)
        rings = tuple(changes[partition].ring for partition in sorted(changes))
        return cls(ctx, time, plan, schema_text(state), tasks, written, Patience(ctx), rings)

    def begin(self) -> None:
        """Raises ``Unavailable`` while another engine may be executing the plan."""
        storage = self.ctx.seams.storage
        forget_other_attempt(self.ctx, self.time, self._others(), CLUSTERINGS.what)
        create_once(storage, paths.timeline_file(f"{self.time}.{CLUSTERING}.{INFLIGHT}"))

    def _others(self) -> dict[str, int]:
        """Path -> store time of files that another engine's execution of the plan left."""
        ours = {task.target for task in self.tasks}
        found = {}
        for partition in sorted({group.partition for group in self.plan.groups}):
            for entry in self.ctx.seams.storage.entries(partition):
                name, path = paths.parse_base_name(entry.name), paths.in_partition(partition, entry.name)
                if name is not None and name.instant == self.time and path not in ours:
                    found[path] = entry.mtime_ms
        return found

    def complete(self, stats: Sequence[BaseFileStat]) -> Clustered:
        """Publish the commit, or take the plan back if writers came first."""
        ctx, storage = self.ctx, self.ctx.seams.storage
        folders = sorted({stat.partition for stat in stats})
        storage.settle([], folders, durable=ctx.services_sync)
        for ring in self.rings:  # before the commit: whoever sees that must find them
            put_ring(storage, ring)
        self.written.find(ctx.publisher.timeline())  # so that little is left to be read under the lock
        content = encode_replace_commit(
            stats, {**self.plan.notes, "schema": self.schema}, CLUSTER, self.plan.replaced
        )
        changes = FileChanges.of_stats(stats)
        published = publish_end(ctx, self.time, REPLACECOMMIT, content, self._decide, changes=changes)
        while isinstance(other := published.decision, GiveWay) and self.patience.wait(other):
            published = publish_end(ctx, self.time, REPLACECOMMIT, content, self._decide, changes=changes)
        match published.decision:
            case GiveWay(instant):
                roll_back(ctx, Instant(self.time, CLUSTERING, INFLIGHT), own=True)
                why = f"{instant} is about to complete, which clusterings or overwrites have passed by before"
                return Clustered(self.time, None, why=why)
            case Clustered() as ended:
                return ended
            case _StepBack(why):
                # Late rows are in no plan: nobody may execute this one.
                roll_back(ctx, Instant(self.time, CLUSTERING, INFLIGHT), own=True)
                return Clustered(self.time, None, why=why)
        sweep_private(storage, self.time)
        for ring in self.rings:
            mark_committed(storage, ring)
        order = self.tasks[0].order if self.tasks and not self.ctx.config.sorted_files else None
        return Clustered(
            self.time,
            published.time,
            tuple(stat.path for stat in stats),
            sum(stat.writes for stat in stats),
            len(self.plan.taken),
            "" if order is None else str(order),
        )

    def _decide(self, section: Section) -> Clustered | _StepBack | GiveWay | None:
        """Under the lock: the plan's outcome, or None if it may complete."""
        storage, timeline = self.ctx.seams.storage, section.timeline
        if self.time not in pending(timeline) or self.time in condemned(storage, timeline):
            return _ended(timeline, self.time)
        foreign = foreign_write(storage, timeline)
        if foreign is not None:
            return _StepBack(f"the {foreign.action} {foreign.requested} of another engine is in flight")
        late = self.written.find(timeline)
        if late is not None:
            return _StepBack(f"{late} wrote to its file groups meanwhile")
        if not self.rings and (first := passed_by(storage, timeline)) is not None:
            return first
        if others := self._others():
            raise Unavailable(
                f"another engine executes the clustering {self.time} too: {min(others)}; nothing was"
                " published, execute it again when that has ended",
                table=self.ctx.base,
            )
        for task in self.tasks:
            if storage.stat(task.target) is None:
                raise Unavailable(
                    f"the clustering {self.time} was rolled back while it ran ({task.target} is gone);"
                    " nothing was published, its plan stays, execute it again",
                    table=self.ctx.base,
                )
        return None


def _rows_at_most(state: TableState, group: ClusteringGroup) -> int:
    """How many rows a group may have, as footers and commits count them."""
    total = 0
    for one in group.slices:
        if one.base_file is not None:
            path = paths.in_partition(one.partition, one.base_file)
            with pq.ParquetFile(state.storage.open_input(path)) as source:
                total += source.metadata.num_rows
        total += log_rows(state, one.partition, one.log_files)
    return total


def _with_bloom_for(how: BaseFileFormat, rows: int, files: int) -> BaseFileFormat:
    """With a Bloom filter for these rows and no more: small partitions would get 400 KB for a few keys."""
    if how.bloom is None:
        return how
    each = rows if files == 1 else 2 * rows // files  # a hash divides them unevenly
    return replace(how, bloom=replace(how.bloom, entries=min(how.bloom.entries, max(1, each))))


def _ring_changes(ctx: WriterContext, plan: ClusteringPlan, time: str) -> dict[str, RingChange]:
    where = paths.timeline_file(f"{time}.{CLUSTERING}.requested")

    def refused(why: str) -> CorruptTable:
        text = f"the clustering plan does not fit the table's rings: {why}; nothing was changed: roll it back"
        return CorruptTable(text, path=where, table=ctx.base)

    return ring_changes(ctx.seams.storage, plan, time, ctx.config.history, refused)


def _ring_of(
    changes: Mapping[str, RingChange], partition: str, group: int, number: int
) -> tuple[str, Ring | None]:
    """File id and ring of a plan's new file group; neither without consistent hashing."""
    change = changes.get(partition)
    return ("", None) if change is None else (change.outputs[group][number], change.ring)


def _check(
    state: TableState, plan: ClusteringPlan | None, time: str, strategies: Sequence[str]
) -> None:
    """Check a plan before any work: a known strategy, and files that exist, are whole and are named once."""
    storage, where = state.storage, paths.timeline_file(f"{time}.{CLUSTERING}.requested")
    if plan is None or not plan.groups:
        raise CorruptTable(
            "the clustering plan is empty: its planner died; roll it back (mainstem rollback)", path=where
        )
    if plan.strategy not in strategies or not plan.keeps_meta:
        what = plan.strategy if plan.strategy not in strategies else "preserveHoodieMetadata=false"
        raise Unsupported(
            f"the clustering {time} is of {what}, which mainstem does not execute; expected"
            f" {' or '.join(strategies)}. Execute it with the engine that planned it, or roll it back",
            table=storage.base,
        )
    names: dict[str, set[str]] = {}
    seen: set[GroupOfKey] = set()
    for group in plan.groups:
        for one in group.slices:
            if one.place in seen:
                raise CorruptTable(f"the clustering plan names {one.file_id!r} twice", path=where)
            seen.add(one.place)
            if one.partition not in names:
                names[one.partition] = set(storage.names(one.partition))
            for name in one.files:
                if name not in names[one.partition]:
                    path = paths.in_partition(one.partition, name)
                    raise CorruptTable(
                        f"the clustering plan names {path}, which does not exist; nothing was changed:"
                        " restore the table from a copy, or roll the plan back",
                        path=where,
                    )
            check_files(state, one.partition, one.files, committed_sizes(state, one.partition))


# -- writers -------------------------------------------------------------------------------------------


class _WrittenSince:
    """Finds an instant that completed since the plan and wrote to its file groups, or replaced them. Reads
    each instant's metadata once."""

    def __init__(self, storage: Storage, time: str, plan: ClusteringPlan, history: str) -> None:
        self._writes = CompletedWrites(storage, time, history)
        self._time = time
        self._taken = plan.taken
        self._cleared = {time}

    def find(self, timeline: ActiveTimeline) -> str | None:
        """The instant's requested time; None if there is none."""
        for requested, found in self._new(timeline):
            touched = set() if found is None else found.written_groups() | found.replaced_groups()
            if not self._taken.isdisjoint(touched):
                return requested
            self._cleared.add(requested)
        return None

    def _new(self, timeline: ActiveTimeline) -> Iterator[tuple[str, CommitMetadata | None]]:
        for instant in filter(is_completed_write, timeline.instants):
            if (instant.completion or "") > self._time and self._is_new(instant.requested):
                found = self._writes.active(instant)
                if found is not None:
                    yield instant.requested, found
        for requested, _, archived in self._writes.archived(self._is_new):
            yield requested, archived

    def _is_new(self, requested: str) -> bool:
        return requested not in self._cleared


def foreign_write(storage: Storage, timeline: ActiveTimeline) -> Instant | None:
    """A pending write of another engine, by its inflight file or, without one, by its heartbeat.

    Nobody else moves its rows when its file groups are replaced. A writer of ours without an inflight file
    has written nothing yet.
    """
    for instant in timeline.pending:
        if instant.action not in WRITES:
            continue
        action = "" if instant.action == COMMIT else f".{instant.action}"
        inflight = paths.timeline_file(f"{instant.requested}{action}.{INFLIGHT}")
        try:
            ours = OUR_MARK.encode() in storage.read(inflight, max_bytes=TIMELINE_FILE_BYTES_MAX)[:256]
        except FileNotFoundError:
            ours = _beats_as_ours(storage, instant.requested)
        if not ours:
            return instant
    return None


def _beats_as_ours(storage: Storage, requested: str) -> bool:
    try:
        content = storage.read(paths.heartbeat(requested), max_bytes=HEARTBEAT_BYTES_MAX)
    except FileNotFoundError:
        return False
    return parse_promise(content) is not None
