"""Compaction beside running writers: planned under the lock, executed by any process without it.

The steps are those of ``services.executor``:

  [[ lock: which log files completed before now -> publish t.compaction.requested ]]
  -> t.compaction.inflight -> per file group: merge base and logs into a private file, put it under its
  final name -> [[ lock: still pending? -> publish t_c.commit ]] -> remove private files and markers

This module says what is planned, what is read and written, and what must hold at completion. File groups may
be compacted concurrently, in this process or others (``services.compact_group``).

Hudi: ``ScheduleCompactionActionExecutor``, ``RunCompactionActionExecutor``, ``HoodieCompactor``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable, Invalid, Unavailable, naming
from mainstem.formats.avro_schema import arrow_to_avro, avro_to_arrow
from mainstem.formats.base_file import BaseFileFormat
from mainstem.layout.properties import load_config
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.limits import MIB
from mainstem.merge.rules import KEY_COLUMN
from mainstem.options.writing import GROUP_BYTES
from mainstem.publish.publisher import Section
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import read_spec
from mainstem.services import executor
from mainstem.services.claim import claimed
from mainstem.services.clustering_order import RowOrder, refuse_order
from mainstem.services.compact_group import COMPACTIONS, FILE_NAME, GroupTask, final_name
from mainstem.services.compaction_plan import (
    UNBOUNDED,
    Clustering,
    CompactionOptions,
    DueGroups,
    FileListing,
    check_operations,
)
from mainstem.services.executor import publish_plan
from mainstem.services.kept_deletes import hours_kept, overwritten
from mainstem.services.native_files import NativeFiles
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import CompactionStat
from mainstem.timeline.compaction_trigger import is_due, pending
from mainstem.timeline.instant import COMMIT, COMPACTION, INFLIGHT, Instant
from mainstem.timeline.plans import encode_compaction_plan, load_noted_plan
from mainstem.writers.context import WriterContext
from mainstem.writers.resize_property import is_under_way
from mainstem.writers.rollback import condemned, roll_back

__all__ = ["Compaction", "Execution", "GroupTask", "execute", "executing", "pending", "schedule"]

# A row group waiting to be written takes at most this fraction (1/n) of a task's memory.
GROUPS_PER_MEMORY = 8
# Statistics of row groups in an order should be narrow. Smaller ones cost more per row than they leave out.
ORDERED_GROUP_BYTES = 4 * MIB


@dataclass(frozen=True)
class Compaction:
    """The outcome of one plan. ``completion`` is None if this call did not complete it.

    ``files``: paths of the new base files, below the table that ``of`` names for people; ``rows``: rows in
    them; ``log_files``: number of merged log files; ``order``: of the rows, "" if they have none.
    """

    requested: str
    completion: str | None
    files: tuple[str, ...] = ()
    rows: int = 0
    log_files: int = 0
    of: str = ""
    order: str = ""

    @classmethod
    def of_stats(
        cls,
        time: str,
        completion: str | None,
        stats: Sequence[CompactionStat],
        of: str = "",
        order: str = "",
    ) -> Compaction:
        """The outcome of an execution that wrote these files."""
        return cls(
            time,
            completion,
            tuple(paths.in_partition(stat.partition, stat.file_name) for stat in stats),
            sum(stat.rows for stat in stats),
            sum(stat.log_files for stat in stats),
            of,
            order,
        )

    def describe(self) -> str:
        """One line for people."""
        if self.completion is None:
            return f"compaction {self.requested}{self.of}: not completed"
        return (
            f"compaction {self.requested}{self.of}: {self.log_files:,} log files merged into"
            f" {len(self.files):,} base files, {self.rows:,} rows"
            + (f" in the order {self.order}" if self.order else "")
        )


def schedule(
    ctx: WriterContext,
    *,
    if_due: bool = False,
    cluster: Clustering | None = None,
    everything: bool = False,
    native_logs: bool = False,
) -> str | None:
    """Plan a compaction of everything that is completed now; its requested time, None if there is nothing.

    ``if_due`` asks the trigger first (``hoodie.compact.inline.*``). Writers in flight are not in the plan
    and lose nothing: their log files will lie on top of the new base files. ``cluster``: the new base files
    have this order, and groups that are not in it are compacted, too, if they have no logs; otherwise the
    order is the options'. ``everything``: whatever strategy the options name. ``native_logs``: only groups
    with native log files, be they deletes that a compaction kept. Raises whatever the lock raises,
    ``Invalid`` for an order by columns that the table lacks.
    """
    options = CompactionOptions.from_properties({**ctx.config.raw, **ctx.given})
    if if_due and not is_due(ctx.timeline(), options, ctx.publisher.now()):
        return None
    if everything:
        options = replace(options, strategy=UNBOUNDED)
    with naming(ctx.base, "planning a compaction failed", "nothing is planned, try again"):
        return _schedule(ctx, options, cluster, if_due=if_due, native_logs=native_logs)


def _schedule(
    ctx: WriterContext,
    options: CompactionOptions,
    cluster: Clustering | None,
    *,
    if_due: bool,
    native_logs: bool,
) -> str | None:
    order = _wanted_order(ctx) if cluster is None else cluster.order
    refuse_order(ctx.config, order, ctx.base)
    due = DueGroups(FileListing(ctx.seams.storage, ctx.config), cluster, native_logs=native_logs)

    def plan(timeline: ActiveTimeline) -> bytes | None:
        if if_due and not is_due(timeline, options, ctx.publisher.now()):
            return None
        ctx.reread_config()
        if is_under_way(ctx, timeline):
            return None  # all base files are about to be written anew
        state, groups = due.now(options)
        _, base_schema = _schemas(ctx, state)  # refuses columns that base files cannot be given
        if order is not None:
            order.check(avro_to_arrow(base_schema), ctx.base)
        if not groups:
            return None
        return encode_compaction_plan(
            [g.operation for g in groups],
            [g.metrics for g in groups],
            notes=None if order is None else order.notes,
        )

    return publish_plan(ctx, COMPACTION, plan).time


def _wanted_order(ctx: WriterContext) -> RowOrder | None:
    """The order that this job's options ask for, or the table's."""
    return RowOrder.from_properties({**ctx.config.raw, **ctx.given})


@contextmanager
def executing(ctx: WriterContext, time: str, *, at_once: int = 1) -> Iterator[Execution | None]:
    """Claim one plan and split its work into tasks; yields None if a live executor has it.

    For callers that run the tasks elsewhere (``GroupTask.run``): until the block ends, a heartbeat shows that
    this process is alive. ``at_once``: number of tasks that share one process, and so
    ``hoodie.memory.compaction.max.size``. An ``OSError`` in the block becomes ``Unavailable``; the plan then
    stays pending.
    """
    with claimed(ctx, time, "the compaction") as ours:
        yield _begun(ctx, time, at_once) if ours else None


def execute(ctx: WriterContext, time: str, progress: Progress = silent) -> Compaction | None:
    """Execute one plan, several file groups at once; None if a live executor has it.

    A plan that is completed or gone gives a ``Compaction`` without completion. After any failure the plan
    stays pending, and the next execution keeps the finished files. Raises ``CorruptTable`` for damaged files
    and for a plan that does not fit this table, ``Unavailable`` for trouble with storage.
    """
    storage, clock = ctx.seams.storage, ctx.seams.clock
    with executing(ctx, time, at_once=storage.width) as execution:
        if execution is None:
            return None
        tasks = execution.tasks
        named = [(task, f"{ctx.seams.random.getrandbits(64):016x}") for task in tasks]
        what = f"compaction {time}, file groups"
        stats = side_by_side(
            storage,
            lambda one: one[0].run(one[1], storage=storage, clock=clock),
            named,
            lambda done: progress(what, done, len(tasks)),
        )
        return execution.complete(stats)


def _begun(ctx: WriterContext, time: str, at_once: int) -> Execution:
    storage = ctx.seams.storage
    config = load_config(storage)
    ctx.follow_version(config)  # another process may have changed it, and planned this
    state = TableState.load(storage, config.completed_by(ctx.given))
    user_schema, base_schema = _schemas(ctx, state)
    if time not in pending(state.timeline):
        return Execution(ctx, time, (), user_schema, ())
    planned, notes = load_noted_plan(storage, time)
    operations = tuple(planned)
    try:
        check_operations(state, operations, time)
    except CorruptTable:
        if time in pending(ctx.publisher.timeline()):
            raise
        return Execution(ctx, time, (), user_schema, ())  # it ended meanwhile, its files were cleaned
    execution = Execution(ctx, time, operations, user_schema, ())
    execution.begin()
    properties = {**ctx.config.raw, **ctx.given}
    memory = CompactionOptions.from_properties(properties).memory_bytes
    memory //= max(1, min(at_once, len(operations)))
    how = BaseFileFormat.from_properties(properties)
    how = replace(how, group_bytes=min(how.group_bytes, max(MIB, memory // GROUPS_PER_MEMORY)))
    # A plan without an order is another engine's, or of a job that has none.
    order = RowOrder.from_plan(notes) or _wanted_order(ctx)
    order = None if order is None else order.within(avro_to_arrow(base_schema))
    if ctx.config.sorted_files:
        order = RowOrder((KEY_COLUMN,))
    elif order is not None:
        narrow = how.group_bytes if GROUP_BYTES in properties else min(how.group_bytes, ORDERED_GROUP_BYTES)
        how = replace(how, group_bytes=narrow, order=str(order))
    spec = read_spec(state, None, None, None, "error", stored=True)
    spec = replace(spec, columns=tuple(name for name in spec.columns if name != FILE_NAME))
    keep_hours = hours_kept(ctx.config, spec)
    native = NativeFiles.of(ctx.config, properties)
    tasks = tuple(
        GroupTask(
            storage.location, time, number, operation, spec, base_schema, how,
            log_rows(state, operation.partition, operation.log_files), memory, ctx.services_sync, order,
            keep_hours, native, config.change_mode,
        )
        for number, operation in enumerate(operations)
    )  # fmt: skip
    return replace(execution, tasks=tasks)


def log_rows(state: TableState, partition: str, logs: Sequence[str]) -> int:
    """Rows and deleted keys of log files, as their delta commits counted them."""
    total = 0
    for log in logs:
        parsed = paths.parse_log_name(log)
        metadata = state.metadata(parsed.instant) if parsed is not None else None
        stats = metadata.stats.get(partition, []) if metadata is not None else []
        mine = paths.in_partition(partition, log)
        total += sum(
            (s.get("numWrites") or 0) + (s.get("numDeletes") or 0) for s in stats if s.get("path") == mine
        )
    return total


def ended(timeline: ActiveTimeline, time: str, of: str = "") -> Compaction:
    """The outcome of a plan that is not pending (any more)."""
    for instant in timeline.completed:
        if instant.requested == time and instant.action == COMMIT:
            return Compaction(time, instant.completion, of=of)
    return Compaction(time, None, of=of)


class _Overwritten(Exception):
    """The deletes that a compaction keeps would lie on top of an overwrite that completed meanwhile."""


@dataclass(frozen=True)
class Execution(executor.Execution[CompactionStat, Compaction]):
    """A claimed plan: run ``tasks`` anywhere and in any order, then call ``complete`` with their results.

    A plan that was completed or taken back meanwhile has no tasks; ``complete([])`` returns its outcome.
    """

    kind = COMPACTIONS

    user_schema: str
    tasks: tuple[GroupTask, ...]

    @property
    def schema(self) -> str:
        return self.user_schema

    def file_name(self, number: int) -> str:
        return final_name(self.time, number, self.operations[number])

    def files_of(self, number: int, stats: Sequence[CompactionStat] | None) -> list[str]:
        made = [self.path(number)]
        kept = None if stats is None else stats[number].kept
        if kept is not None:
            made.append(kept.path)
        elif stats is None:
            native = self.ctx.config.native_logs
            name = paths.kept_deletes_name(self.file_name(number), native=native)
            made.append(paths.in_partition(self.operations[number].partition, name))
        if self.ctx.config.native_logs:  # readers know of it by the commit alone
            name = paths.change_file_name(self.file_name(number))
            made.append(paths.in_partition(self.operations[number].partition, name))
        return made

    def complete(self, stats: Sequence[CompactionStat]) -> Compaction:
        """Publish the commit, unless another process did or the plan was taken back.

        ``stats``: the result of each task, in the order of the tasks; ``Invalid`` if they do not match.
        """
        made = [(stat.partition, stat.file_name) for stat in stats]
        if made != [(task.operation.partition, task.file_name) for task in self.tasks]:
            raise Invalid(
                f"the compaction {self.time} expects the results of its {len(self.tasks)} tasks, in their"
                f" order; these {len(made)} results are others; nothing was published",
                table=self.ctx.base,
            )
        try:
            return super().complete(stats)
        except _Overwritten:
            # The file of its kept deletes is made and stays: nobody may complete this plan.
            roll_back(self.ctx, Instant(self.time, COMPACTION, INFLIGHT), own=True)
            return Compaction(self.time, None)

    def ended(self, section: Section, stats: Sequence[CompactionStat]) -> Compaction | None:
        if self.time not in pending(section.timeline):
            return ended(section.timeline, self.time)
        rollback = condemned(self.ctx.seams.storage, section.timeline).get(self.time)
        if rollback is not None:
            raise Unavailable(
                f"the rollback {rollback} of the compaction {self.time} is not finished; nothing was"
                " published: finish it (mainstem rollback) and compact again",
                table=self.ctx.base,
            )
        self.check_no_others(stats)
        self.check_there(stats)
        keeping = [task.operation for task, stat in zip(self.tasks, stats, strict=True) if stat.kept]
        if keeping and overwritten(self.ctx.seams.storage, section.timeline, self.time, keeping):
            raise _Overwritten
        return None

    def result(self, completion: str | None, stats: Sequence[CompactionStat]) -> Compaction:
        order = self.tasks[0].order if self.tasks and not self.ctx.config.sorted_files else None
        return Compaction.of_stats(
            self.time, completion, stats, order="" if order is None else str(order)
        )


def _schemas(ctx: WriterContext, state: TableState) -> tuple[str, str]:
    """The user schema, and the schema of new base files."""
    text = schema_text(state)
    return text, arrow_to_avro(arrow_user_schema(text), table_name=ctx.config.name, meta_fields=True)
