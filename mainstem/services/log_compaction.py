"""Log compaction: merges the small blocks of a file group's logs into one log file (Hudi RFC-48).

The steps are those of ``services.executor``, with a second look at the plan in 3:

  1. [[ lock: what was requested before every write in flight -> publish L.logcompaction.requested ]]
  2. L.logcompaction.inflight
  3. per file group: fold the planned logs into a private file, look at the plan, put it under its final
     name, look again
  4. [[ lock: still pending, the runs unbroken, no older write in flight -> publish L_c.deltacommit ]]
  5. remove private files and markers

The sources stay on disk; readers use the merged blocks in their place. ``log_compaction_plan`` says which
runs may be merged and what must still hold at step 4. Under the lock every run is checked again: if a
compaction took its file group, or an older instant completed, a rollback takes the plan back, and nothing has
changed.

**After a crash** in 1 or 2 there is a plan, which any process executes later (compactions leave its file
groups alone meanwhile). In 3 there is a private file, swept at completion, or a file of an instant that is
not completed, which no reader shows. The next execution adopts it: its name follows from plan and file group,
its content from the plan's files. After 4 there are markers, which are swept later.

**A suspended process that wakes up** after the completion finds its private file gone or the name taken. If
the plan was taken back, it notices at its second look and removes what it made. In 4 the fence decides.

Hudi: ``RunCompactionActionExecutor`` (LOG_COMPACT), ``FileGroupReaderBasedAppendHandle``. Different from
Java, rows keep the commit time of the write they come from, so a log compaction changes no cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mainstem.errors import Unavailable, Unsupported, naming
from mainstem.layout.properties import load_config
from mainstem.options.services import BESIDE_WRITERS
from mainstem.options.tables import STORAGE_LAYOUT
from mainstem.publish.publisher import Section
from mainstem.readers.planning.table_state import TableState
from mainstem.services.claim import claimed
from mainstem.services.compaction_plan import FileListing
from mainstem.services.executor import Execution, publish_plan
from mainstem.services.log_compaction_plan import (
    BlockCounts,
    LogCompactionOptions,
    broken,
    pending,
    place,
    plan_runs,
    writes_in_flight,
)
from mainstem.services.log_merge import LOG_COMPACTIONS, LogMerge, final_name, log_spec, native_names
from mainstem.services.other_attempts import sweep_private
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import LogCompactionStat, every_file
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, LOGCOMPACTION, Instant
from mainstem.timeline.plans import (
    CompactionOperation,
    encode_compaction_plan,
    load_compaction_plan,
)
from mainstem.timeline.restore_records import pending_restores
from mainstem.writers.context import WriterContext
from mainstem.writers.resize_property import is_under_way
from mainstem.writers.rollback import condemned, roll_back, roll_back_failed_writes

__all__ = ["LogCompaction", "LogCompactionOptions", "execute", "pending", "schedule"]


@dataclass(frozen=True)
class LogCompaction:
    """The outcome of one plan. ``completion`` is None if this call did not complete it.

    ``files``: paths of the new log files; ``rows`` and ``deletes``: rows and deleted keys in them;
    ``log_files``: number of merged log files; ``given_up``: why the plan was taken back, None if it was not.
    """

    requested: str
    completion: str | None
    files: tuple[str, ...] = ()
    rows: int = 0
    deletes: int = 0
    log_files: int = 0
    given_up: str | None = None

    def describe(self) -> str:
        """One line for people."""
        if self.given_up is not None:
            return f"log compaction {self.requested} taken back: {self.given_up}"
        if self.completion is None:
            return f"log compaction {self.requested}: not completed"
        return (
            f"log compaction {self.requested}: {self.log_files:,} log files merged into {len(self.files):,},"
            f" {self.rows:,} rows, {self.deletes:,} deletes"
        )


def schedule(ctx: WriterContext, *, if_due: bool = False) -> str | None:
    """Plan a log compaction; its requested time, None if there is nothing to merge.

    ``if_due``: only file groups with ``hoodie.log.compaction.blocks.threshold`` blocks (else two), and
    nothing while writes are in flight where that matters (see ``log_compaction_plan``). Otherwise
    ``Unavailable`` names the write that has to end first. Raises ``Unsupported`` for tables whose logs
    cannot be folded, and what the lock raises.
    """
    options = _options(ctx)
    if (reason := _unfit_layout(ctx)) is not None:
        raise Unsupported(f"{reason}; compact the table instead", table=ctx.base)
    roll_back_failed_writes(ctx, if_due=if_due)
    with naming(ctx.base, "planning a log compaction failed", "nothing is planned, try again"):
        return _schedule(ctx, options, if_due)


def _unfit_layout(ctx: WriterContext) -> str | None:
    """Why the table's layout does not go with log compactions; None if it does."""
    if not ctx.config.sorted_files:
        return None
    return (
        f"log compaction of a table with {STORAGE_LAYOUT}=LSM_TREE: Java's readers of such tables do not know"
        " what it replaces, and merge the replaced log files as well as the new one, at its own instant"
    )


def _options(ctx: WriterContext) -> LogCompactionOptions:
    return LogCompactionOptions.from_properties({**ctx.config.raw, **ctx.given})


def _schedule(ctx: WriterContext, options: LogCompactionOptions, if_due: bool) -> str | None:
    listing = FileListing(ctx.seams.storage, ctx.config)
    blocks_min = options.blocks_min if if_due else 0
    state, files = listing.now()
    if not state.writes:
        return None
    counts = BlockCounts(log_spec(ctx, state))
    waiting = writes_in_flight(state.timeline) and not options.beside_writers
    if waiting and if_due:
        return None
    if not waiting and not plan_runs(state, files, counts, blocks_min):
        return None

    def plan(timeline: ActiveTimeline) -> bytes | None:
        if not options.beside_writers and _must_wait(ctx, timeline, None, quietly=if_due):
            return None
        ctx.reread_config()
        if is_under_way(ctx, timeline):
            return None  # all log files are about to be hidden
        runs = plan_runs(*listing.now(), counts, blocks_min)
        if not runs:
            return None
        return encode_compaction_plan([r.operation for r in runs], [r.metrics for r in runs], LOGCOMPACTION)

    return publish_plan(ctx, LOGCOMPACTION, plan).time


def _must_wait(
    ctx: WriterContext, timeline: ActiveTimeline, before: str | None, *, quietly: bool = False
) -> bool:
    """Whether a write in flight may yet complete where the merged blocks would hide it."""
    found = writes_in_flight(timeline, before)
    if found and not quietly:
        raise Unavailable(
            f"the {found[0].action} {found[0].requested} is in flight: merged logs could hide what it still"
            " writes. Try again when it has ended (dead writers: mainstem rollback). If no reader is older"
            f" than Hudi 1.2, set {BESIDE_WRITERS}=true: then only writes older than the merged logs"
            " are in the way",
            table=ctx.base,
        )
    return bool(found)


def execute(ctx: WriterContext, time: str, progress: Progress = silent) -> LogCompaction | None:
    """Execute one plan; None if a live executor has it.

    A plan that is completed or gone gives a ``LogCompaction`` without work done; one that can no longer
    be followed is taken back (``given_up``). After other failures the plan stays pending, and the next
    execution keeps the finished files. Raises ``CorruptTable`` for damaged files, ``Unavailable`` for trouble
    with storage and while a write is in flight that has to end first.
    """
    with claimed(ctx, time, "the log compaction") as ours:
        return _execute(ctx, time, progress) if ours else None


def _execute(ctx: WriterContext, time: str, progress: Progress) -> LogCompaction:
    storage = ctx.seams.storage
    listing = FileListing(storage, ctx.config)
    state, files = listing.now()
    if time not in pending(state.timeline):
        return _ended(state.timeline, time)
    operations = tuple(load_compaction_plan(storage, time, LOGCOMPACTION))
    reason = _unfit_layout(ctx) or _broken(state, files, operations, _bound(ctx, time, operations))
    if reason is not None:
        return _give_up(ctx, time, reason)
    run = LogMerge.begin(ctx, time, state)
    execution = _Execution(ctx, time, operations, listing, run.user_schema, run.native is not None)
    execution.begin()
    stats: list[LogCompactionStat] = []
    for number, operation in enumerate(operations):
        try:
            stats.append(run.merge(number, operation))
        except Unsupported as error:  # a pending plan would block compactions for ever
            return _give_up(ctx, time, error.message)
        progress(f"log compaction {time}, file groups", len(stats), len(operations))
    done = execution.complete(stats)
    return done if done.given_up is None else _give_up(ctx, time, done.given_up)


def _broken(
    state: TableState,
    files: Mapping[str, set[str]],
    operations: Sequence[CompactionOperation],
    bound: str,
) -> str | None:
    return next(filter(None, (broken(state, files, o, bound) for o in operations)), None)


def _bound(ctx: WriterContext, time: str, operations: Sequence[CompactionOperation]) -> str:
    """The time before which every requested write must be merged or have ended.

    It is the place at which readers apply the merged blocks.
    """
    if not _options(ctx).beside_writers:
        return time
    return max((place(ctx.seams.storage, o) for o in operations), default=time)


def _ended(timeline: ActiveTimeline, time: str) -> LogCompaction:
    for instant in timeline.completed:
        if instant.requested == time and instant.action == DELTACOMMIT:
            return LogCompaction(time, instant.completion)
    return LogCompaction(time, None)


def _give_up(ctx: WriterContext, time: str, reason: str) -> LogCompaction:
    """Take the plan back by a rollback; any other executor of it will notice."""
    roll_back(ctx, Instant(time, LOGCOMPACTION, INFLIGHT), own=True)
    sweep_private(ctx.seams.storage, time)
    return LogCompaction(time, None, given_up=reason)


@dataclass(frozen=True)
class _Execution(Execution[LogCompactionStat, LogCompaction]):
    kind = LOG_COMPACTIONS

    listing: FileListing
    user_schema: str
    #: whether its log files are native; the context may follow the table to another version meanwhile
    native: bool

    @property
    def schema(self) -> str:
        return self.user_schema

    def file_name(self, number: int) -> str:
        if not self.native:
            return final_name(self.time, number, self.operations[number])
        return native_names(self.time, number, self.operations[number])[0]

    def files_of(self, number: int, stats: Sequence[LogCompactionStat] | None) -> list[str]:
        operation = self.operations[number]
        if stats is not None:
            made = every_file([stats[number]])
            return [paths.in_partition(operation.partition, stat.file_name) for stat in made]
        names = [self.file_name(number)]
        if self.native:
            names = list(native_names(self.time, number, operation))
        return [paths.in_partition(operation.partition, name) for name in names]

    def ended(self, section: Section, stats: Sequence[LogCompactionStat]) -> LogCompaction | None:
        ctx, time, storage = self.ctx, self.time, self.ctx.seams.storage
        if time not in pending(section.timeline):
            return _ended(section.timeline, time)
        if time in condemned(storage, section.timeline):
            return LogCompaction(time, None)
        if pending_restores(section.timeline):
            return None  # logs of the plan may be going: the publisher refuses, and says why
        found = load_config(storage).completed_by(ctx.given)
        if ctx.config.changed(found) or self.native != found.native_logs:
            return LogCompaction(time, None, given_up="the table's properties changed meanwhile")
        bound = _bound(ctx, time, self.operations)
        reason = _broken(*self.listing.now(), self.operations, bound)
        if reason is not None:
            return LogCompaction(time, None, given_up=reason)
        _must_wait(ctx, section.timeline, bound)
        self.check_no_others(stats)
        self.check_there(stats)
        return None

    def result(self, completion: str | None, stats: Sequence[LogCompactionStat]) -> LogCompaction:
        return LogCompaction(
            self.time,
            completion,
            tuple(paths.in_partition(s.partition, s.file_name) for s in every_file(stats)),
            sum(s.writes for s in stats),
            sum(s.deletes for s in stats) + sum(s.beside.deletes for s in stats if s.beside),
            sum(s.log_files for s in stats),
        )
