"""Compaction beside running writers: planned under the lock, executed by anybody without it.

  [[ lock: which log files completed before now -> publish t.compaction.requested ]]
  -> t.compaction.inflight -> per file group: merge base and logs into a private file, link it to its
  final name -> [[ lock: still pending? -> publish t_c.commit ]] -> remove private files and markers

The name of a new base file follows from plan and file group alone and its rows from the plan's files
alone, so it does not matter who makes it or how often: the first link wins, every other executor
finds the file. Whoever comes too late changes nothing: an executor makes its private file, then looks
whether the plan is still pending, then links; whoever completes a plan removes all private files of
it afterwards, so the link of a stopped executor that wakes up finds nothing to link (the order of the
completion fence, ``publish.link_fence``). A heartbeat on the plan's time keeps two executors from doing the
same work; nothing depends on it. File groups may be made side by side, in this process or others
(``services.compact_group``): each is such an executor, of one file.

Hudi: ``ScheduleCompactionActionExecutor``, ``RunCompactionActionExecutor``, ``HoodieCompactor``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable, Invalid, OutcomeUnknown, Unavailable
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.base_file import BaseFileFormat
from mainstem.layout.properties import load_config
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.limits import MIB
from mainstem.metadata.commits.action import FileChanges
from mainstem.publish.publisher import Section
from mainstem.publish.staging import create_once, forget, prepare
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import read_spec
from mainstem.services.claim import claimed
from mainstem.services.compact_group import FILE_NAME, GroupTask, final_name
from mainstem.services.compaction_plan import (
    CompactionOptions,
    FileListing,
    PlannedGroup,
    check_operations,
    plan_groups,
)
from mainstem.services.other_attempts import forget_other_attempt, other_files, sweep_private
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import CompactionStat, encode_commit
from mainstem.timeline.compaction_trigger import is_due, pending
from mainstem.timeline.instant import COMMIT, COMPACTION, INFLIGHT, REQUESTED
from mainstem.timeline.plans import (
    CompactionOperation,
    encode_compaction_plan,
    load_compaction_plan,
)
from mainstem.writers.context import WriterContext
from mainstem.writers.publish_with_metadata import publish_with_metadata
from mainstem.writers.rollback import condemned

__all__ = ["Compaction", "Execution", "GroupTask", "execute", "executing", "pending", "schedule"]

COMPACT = "COMPACT"
# A row group that waits for being written takes this part of a task's memory at most.
_GROUPS_PER_MEMORY = 8


@dataclass(frozen=True)
class Compaction:
    """What became of one plan. ``completion`` is None if it is not completed by this call.

    ``files``: paths of the new base files, below the table that ``of`` names for people; ``rows``: rows in
    them; ``log_files``: merged in.
    """

    requested: str
    completion: str | None
    files: tuple[str, ...] = ()
    rows: int = 0
    log_files: int = 0
    of: str = ""

    def describe(self) -> str:
        """One line for people."""
        if self.completion is None:
            return f"compaction {self.requested}{self.of}: not completed"
        return (
            f"compaction {self.requested}{self.of}: {self.log_files:,} log files merged into"
            f" {len(self.files):,} base files, {self.rows:,} rows"
        )


def schedule(ctx: WriterContext, *, if_due: bool = False) -> str | None:
    """Plan a compaction of everything that is completed now; its requested time, None if there is nothing.

    ``if_due`` asks the trigger first (``hoodie.compact.inline.*``). Writers in flight are not in the plan
    and lose nothing: their log files will belong to the new base files. Raises what the lock raises.
    """
    options = CompactionOptions.from_properties({**ctx.config.raw, **ctx.given})
    if if_due and not is_due(ctx.timeline(), options, ctx.publisher.now()):
        return None
    try:
        return _schedule(ctx, options, if_due=if_due)
    except OutcomeUnknown:
        raise
    except OSError as error:
        raise Unavailable(
            f"planning a compaction failed: {error}; nothing is planned, try again", table=ctx.base
        ) from error


def _schedule(ctx: WriterContext, options: CompactionOptions, *, if_due: bool) -> str | None:
    listing = FileListing(ctx.seams.storage, ctx.config)
    made: list[str] = []

    def plan(timeline: ActiveTimeline) -> str | None:
        if if_due and not is_due(timeline, options, ctx.publisher.now()):
            return None
        ctx.reread_config()
        state, files = listing.now()
        _schemas(ctx, state)  # refuses columns that base files cannot be given
        groups = plan_groups(state, files, options)
        if not groups:
            return None
        made.append(prepare(ctx.seams, COMPACTION, _encoded(groups)))
        return made[-1]

    try:
        published = ctx.publisher.publish(
            lambda time: f"{time}.{COMPACTION}.{REQUESTED}", prepared=plan
        )
    finally:
        for path in made:
            forget(ctx.seams, path)
    return published.time


def _encoded(groups: list[PlannedGroup]) -> bytes:
    return encode_compaction_plan([g.operation for g in groups], [g.metrics for g in groups])


@contextmanager
def executing(ctx: WriterContext, time: str, *, at_once: int = 1) -> Iterator[Execution | None]:
    """Claim one plan and lay out its work; None if a living executor has it.

    For who runs the tasks elsewhere (``GroupTask.run``): a heartbeat shows that this process lives until
    the block ends. ``at_once``: tasks that share one process and so ``hoodie.memory.compaction.max.size``.
    An ``OSError`` in the block becomes ``Unavailable``; the plan stays pending then.
    """
    with claimed(ctx, time, "the compaction") as ours:
        yield _begun(ctx, time, at_once) if ours else None


def execute(ctx: WriterContext, time: str, progress: Progress = silent) -> Compaction | None:
    """Execute one plan, file groups side by side; None if a living executor has it.

    A plan that is completed or gone gives a ``Compaction`` without completion. Whatever fails leaves the
    plan pending: the next execution goes on with the files that are done. Raises ``CorruptTable`` for
    damaged files and for a plan that cannot be of this table, ``Unavailable`` for trouble with storage.
    """
    storage, clock = ctx.seams.storage, ctx.seams.clock
    with executing(ctx, time, at_once=storage.width) as execution:
        if execution is None:
            return None
        tasks = execution.tasks
        named = [(task, f"{ctx.seams.random.getrandbits(64):016x}") for task in tasks]
        what = f"compaction {time}, file groups"
        stats = side_by_side(storage,
            lambda one: one[0].run(one[1], storage=storage, clock=clock),
            named,
            lambda done: progress(what, done, len(tasks)),
        )
        return execution.complete(stats)


def _begun(ctx: WriterContext, time: str, at_once: int) -> Execution:
    storage = ctx.seams.storage
    state = TableState.load(storage, load_config(storage).completed_by(ctx.given))
    user_schema, base_schema = _schemas(ctx, state)
    if time not in pending(state.timeline):
        return Execution(ctx, time, (), user_schema, ())
    operations = load_compaction_plan(storage, time)
    try:
        check_operations(state, operations, time)
    except CorruptTable:
        if time in pending(ctx.publisher.timeline()):
            raise
        return Execution(ctx, time, (), user_schema, ())  # it ended meanwhile, its files were cleaned
    forget_other_attempt(ctx, time, _other_files(ctx, time, operations), "compaction")
    create_once(storage, paths.timeline_file(f"{time}.{COMPACTION}.{INFLIGHT}"))
    properties = {**ctx.config.raw, **ctx.given}
    memory = CompactionOptions.from_properties(properties).memory_bytes
    memory //= max(1, min(at_once, len(operations)))
    how = BaseFileFormat.from_properties(properties)
    how = replace(how, group_bytes=min(how.group_bytes, max(MIB, memory // _GROUPS_PER_MEMORY)))
    spec = read_spec(state, None, None, None, "error", stored=True)
    spec = replace(spec, columns=tuple(name for name in spec.columns if name != FILE_NAME))
    tasks = [
        GroupTask(
            ctx.base, time, number, operation, spec, base_schema, how,
            _log_rows(state, operation), memory, ctx.services_sync,
        )
        for number, operation in enumerate(operations)
    ]  # fmt: skip
    return Execution(ctx, time, tuple(operations), user_schema, tuple(tasks))


def _log_rows(state: TableState, operation: CompactionOperation) -> int:
    """Rows and deleted keys of the log files, as their delta commits counted them."""
    total = 0
    for log in operation.log_files:
        parsed = paths.parse_log_name(log)
        metadata = state.metadata(parsed.instant) if parsed is not None else None
        stats = metadata.stats.get(operation.partition, []) if metadata is not None else []
        mine = paths.in_partition(operation.partition, log)
        total += sum(
            (s.get("numWrites") or 0) + (s.get("numDeletes") or 0) for s in stats if s.get("path") == mine
        )
    return total


def _other_files(
    ctx: WriterContext, time: str, operations: Sequence[CompactionOperation]
) -> dict[str, int]:
    """Base files that another engine's execution of the plan left; they may be cut off, and a reader would
    choose between them and ours."""
    ours = {paths.in_partition(o.partition, final_name(time, n, o)) for n, o in enumerate(operations)}
    return other_files(ctx.seams.storage, time, operations, ours, paths.parse_base_name)


def ended(timeline: ActiveTimeline, time: str, of: str = "") -> Compaction:
    """What became of a plan that is not pending (any more)."""
    for instant in timeline.completed:
        if instant.requested == time and instant.action == COMMIT:
            return Compaction(time, instant.completion, of=of)
    return Compaction(time, None, of=of)


@dataclass(frozen=True)
class Execution:
    """A claimed plan: ``tasks`` in any order and anywhere, then ``complete`` with what they returned.

    A plan that was completed or taken back meanwhile has no tasks; ``complete([])`` tells its end.
    """

    ctx: WriterContext
    time: str
    operations: tuple[CompactionOperation, ...]
    user_schema: str
    tasks: tuple[GroupTask, ...]

    def complete(self, stats: Sequence[CompactionStat]) -> Compaction:
        """Publish the commit, unless somebody else did or the plan was taken back.

        ``stats``: one for each task, in their order; ``Invalid`` if they are not of these tasks.
        """
        ctx, storage = self.ctx, self.ctx.seams.storage
        made = [(stat.partition, stat.file_name) for stat in stats]
        if made != [(task.operation.partition, task.file_name) for task in self.tasks]:
            raise Invalid(
                f"the compaction {self.time} has {len(self.tasks)} tasks, and these are not their {len(made)}"
                " results in their order; nothing was published",
                table=ctx.base,
            )
        storage.settle([], sorted({s.partition for s in stats}), durable=ctx.services_sync)
        extra = {"schema": self.user_schema}
        prepared = prepare(ctx.seams, self.time, encode_commit(stats, extra, COMPACT, compacted=True))
        try:
            published = publish_with_metadata(
                ctx,
                self.time,
                FileChanges.of_stats(stats, new_keys=False),
                lambda done: f"{self.time}_{done}.{COMMIT}",
                prepared=prepared,
                decide=lambda section: self._ended(section, stats),
            )
        finally:
            forget(ctx.seams, prepared)
        if published.decision is not None:
            return published.decision
        sweep_private(storage, self.time)
        return Compaction(
            self.time,
            published.time,
            tuple(paths.in_partition(s.partition, s.file_name) for s in stats),
            sum(s.rows for s in stats),
            sum(s.log_files for s in stats),
        )

    def _ended(self, section: Section, stats: Sequence[CompactionStat]) -> Compaction | None:
        """Under the lock: what became of the plan, None if it is still ours to complete."""
        if self.time not in pending(section.timeline):
            return ended(section.timeline, self.time)
        rollback = condemned(self.ctx.seams.storage, section.timeline).get(self.time)
        if rollback is not None:
            raise Unavailable(
                f"the rollback {rollback} of the compaction {self.time} is not finished; nothing was"
                " published: finish it (mainstem rollback) and compact again",
                table=self.ctx.base,
            )
        others = _other_files(self.ctx, self.time, self.operations)
        if others:
            raise Unavailable(
                f"another engine executes the compaction {self.time} too: {min(others)}; nothing was"
                " published, execute it again when that has ended",
                table=self.ctx.base,
            )
        for stat in stats:
            if self.ctx.seams.storage.stat(paths.in_partition(stat.partition, stat.file_name)) is None:
                raise Unavailable(
                    f"the compaction {self.time} was rolled back while it ran ({stat.file_name} is"
                    " gone); its plan stays, execute it again",
                    table=self.ctx.base,
                )
        return None


def _schemas(ctx: WriterContext, state: TableState) -> tuple[str, str]:
    """The user schema, and the schema of new base files."""
    text = schema_text(state)
    return text, arrow_to_avro(arrow_user_schema(text), table_name=ctx.config.name, meta_fields=True)
