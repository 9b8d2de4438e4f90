"""Cleaning beside running writers: planned outside the lock, published under it, executed by any process.

  1. roll back dead writers (their files belong to the rollback, not the clean)
  2. list the timeline, then the folders, and make the plan from that (``clean_plan``)
  3. [[ lock: does nothing that the plan did not see need old files? -> publish t.clean.requested ]]
  4. t.clean.inflight
  5. check every file that the plan names once more, then delete it, without the lock
  6. [[ lock: still pending? -> publish t_c.clean ]]

**Why the plan may be made outside the lock.** Time only makes more files superfluous: commits that complete
meanwhile move the boundary up, and new slices push old ones down. Only three things can make an old file
needed again: a savepoint, a pending plan that names it, or the removal of a completed instant (by a restore
or rollback; archiving looks the same). Under the lock, any of these sends the planner back to step 2. While a
restore, an unfinished savepoint or the rollback of a completed instant is pending, nothing is planned. Each
of them in turn is refused, under the same lock, while a pending clean names a file that it needs.

**After a crash.** After 3 the plan is pending, and the next cleaner executes it before it plans another. In 5
that cleaner deletes the rest; a missing file counts as deleted. After 6 only the heartbeat is left.

**A suspended process that wakes up.** Before 3 it publishes nothing (because of the fence and the check
above). In 4 it may create an inflight file of a clean that has left the timeline; it removes that file again,
or the next executor does. In 5 a file named by a plan never comes back under its name, as times are used
once; if the clean was completed meanwhile, all its files are gone. In 6 the clean is no longer pending, and
nothing is published. So two executors do no harm either; the heartbeat only avoids double work.

**Plans are not trusted** (step 5), whether ours or Java's, which Java makes and publishes without such
checks: if a plan names a file of the newest slice, a pending instant, a savepoint or a pending compaction, it
is refused before the first deletion. One risk remains beside Java: Java may restore, or make a savepoint,
while our clean is being executed.

Hudi: ``CleanPlanActionExecutor``, ``CleanActionExecutor``; apache/hudi#9674 is the cleaner without the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn

from mainstem.errors import CorruptTable, Unavailable, naming
from mainstem.metadata.commits.action import FileChanges
from mainstem.publish.publisher import Section
from mainstem.publish.staging import create_once, prepared
from mainstem.readers.planning.file_presence import check_listed
from mainstem.readers.planning.table_state import TableState
from mainstem.services.claim import claimed, store_now_ms
from mainstem.services.clean_plan import (
    CleanOptions,
    DataFile,
    boundary,
    is_due,
    kept_files,
    partitions_to_look_at,
    plan_clean,
)
from mainstem.services.executor import publish_end
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.clean_records import (
    CleanPlan,
    encode_clean_metadata,
    encode_clean_plan,
    load_clean_plan,
)
from mainstem.timeline.instant import (
    CLEAN,
    INFLIGHT,
    REQUESTED,
    RESTORE,
    SAVEPOINT,
    WRITE_ACTIONS,
)
from mainstem.timeline.plans import is_our_plan
from mainstem.writers.context import WriterContext
from mainstem.writers.leftovers import begun_savepoints
from mainstem.writers.rollback import condemned, roll_back_failed_writes

_PLANS_MAX = 5
# Between a plan of Java's and its execution lie some requests for the lock, of seconds at most.
_PLANNERS_TURN_MS = 60_000
_PENDING, _OVERTAKEN = "pending", "overtaken"
_INGESTION = frozenset(("commit", "deltacommit"))


@dataclass(frozen=True)
class Cleaned:
    """The outcome of one plan. ``completion`` is None if this call did not complete it.

    ``files``: how many the plan names; ``deleted``: how many of them this call removed; ``earliest``:
    requested time of the oldest commit whose snapshot is kept, None under KEEP_LATEST_FILE_VERSIONS.
    """

    requested: str
    completion: str | None
    files: int = 0
    deleted: int = 0
    earliest: str | None = None
    #: of which table, for people
    of: str = ""

    def describe(self) -> str:
        """One line for people."""
        if self.completion is None:
            return f"clean {self.requested}{self.of} was ended by somebody else"
        kept = f", everything since {self.earliest} is kept" if self.earliest else ""
        return f"clean {self.requested}{self.of}: {self.files:,} files removed{kept}"


def clean(ctx: WriterContext, *, if_due: bool = False, progress: Progress = silent) -> list[Cleaned]:
    """Finish pending cleans, ours or Java's; then plan another if anything may go, and execute it.

    ``if_due`` leaves a plan that another engine made in the last minute to that engine: Java marks it as
    inflight a moment later, fails if that is done already, and its job with it.
    """
    found = pending(ctx.timeline())
    with naming(ctx.base, "pending cleans could not be told apart", "nothing was done, clean again"):
        if if_due and found and ctx.others_may_write():
            found = [time for time in found if not _is_planners(ctx, time)]
    done = [execute(ctx, time, progress) for time in found]
    time = schedule(ctx, if_due=if_due)
    if time is not None:
        with naming(ctx.base, f"the clean {time} could not be begun", "its plan stays, clean again"):
            if ctx.others_may_write():
                # At once: Java, which executes every plan that it sees, fails if we begin with it meanwhile.
                create_once(ctx.seams.storage, _file(time, INFLIGHT))
        done.append(execute(ctx, time, progress))
    elif not if_due:  # a dead planner's, which a store had decided: the look under the lock has shown it
        done += [execute(ctx, time, progress) for time in pending(ctx.timeline())]
    return [found for found in done if found is not None]


def pending(timeline: ActiveTimeline) -> list[str]:
    """Requested times of cleans that are planned but not completed, oldest first."""
    return [i.requested for i in timeline.pending if i.action == CLEAN]


def _is_planners(ctx: WriterContext, time: str) -> bool:
    """Whether another engine made the plan in the last minute, by the store's clock, and has not begun."""
    storage, requested = ctx.seams.storage, _file(time, REQUESTED)
    with naming(ctx.base, f"looking at the clean {time} failed", "try again"):
        info = storage.stat(requested)
        if info is None or storage.stat(_file(time, INFLIGHT)) is not None:
            return False
        if is_our_plan(storage, requested):
            return False
        return store_now_ms(ctx, time) - info.mtime_ms < _PLANNERS_TURN_MS


def schedule(ctx: WriterContext, *, if_due: bool = False) -> str | None:
    """Roll back dead writers and plan a clean; its requested time, None if nothing may go.

    Also None while another clean is pending, which must be executed first. ``if_due`` asks the trigger
    (``hoodie.clean.trigger.max.commits``). Raises ``Unavailable`` while a restore, an unfinished savepoint or
    the rollback of a completed instant is pending, and whatever the lock raises.
    """
    options = CleanOptions.from_properties({**ctx.config.raw, **ctx.given})
    timeline = ctx.timeline()
    if pending(timeline) or (if_due and not is_due(timeline, options)):
        return None
    if ctx.options.lazy_rollback:
        roll_back_failed_writes(ctx, if_due=if_due)
    with naming(ctx.base, "planning a clean failed", "nothing is planned, try again"):
        return _schedule(ctx, options)


def _schedule(ctx: WriterContext, options: CleanOptions) -> str | None:
    for _ in range(_PLANS_MAX):
        state = TableState.load(ctx.seams.storage, ctx.config)
        _check_quiet(ctx, state.timeline)
        try:
            plan = _plan(ctx, state, options)
        except FileNotFoundError:  # a clean, a restore or a rollback came in between
            continue
        if plan is None:
            return None
        time, decision = _publish(ctx, state.timeline, plan)
        if decision != _OVERTAKEN:
            return time
    raise Unavailable(
        f"savepoints, compactions or archiving overtook {_PLANS_MAX} plans of a clean in a row; nothing is"
        " planned, try again when other services run less often",
        table=ctx.base,
    )


def _plan(ctx: WriterContext, state: TableState, options: CleanOptions) -> CleanPlan | None:
    now = ctx.publisher.now()
    limit = boundary(state.timeline, options, now)
    if limit is None and not options.by_versions:
        return None
    wanted = partitions_to_look_at(state, options, limit)
    if wanted is None:
        names = {found.partition: found.names for found in state.partitions()}
    else:
        names = {p: tuple(state.storage.names(p)) for p in wanted}
    replaced = state.replaced(None)
    # If a newer file is lost, the older ones are all that is left of its rows: refuse to clean then.
    for partition, there in sorted(names.items()):
        check_listed(state, partition, set(there), replaced=replaced)
    return plan_clean(state, names, options, now)


def _publish(
    ctx: WriterContext, planned_on: ActiveTimeline, plan: CleanPlan
) -> tuple[str | None, str | None]:
    def may_publish(section: Section) -> str | None:
        ctx.reread_config()
        _check_quiet(ctx, section.timeline)
        _check_savepoints(ctx, section)
        if pending(section.timeline):
            return _PENDING
        return _OVERTAKEN if is_overtaken(planned_on, section.timeline) else None

    with prepared(ctx.seams, CLEAN, encode_clean_plan(plan, ctx.written_base)) as private:
        published = ctx.publisher.publish(
            lambda time: f"{time}.{CLEAN}.{REQUESTED}", prepared=private, decide=may_publish
        )
    return published.time, published.decision


def is_overtaken(planned_on: ActiveTimeline, now: ActiveTimeline) -> bool:
    """Whether something appeared that the plan did not see and that may need old files.

    A completed instant that disappeared counts too: an older slice may be the newest again.
    """
    done = {i.file_name for i in now.completed}
    if any(i.file_name not in done for i in planned_on.completed):
        return True
    return not _claims(now) <= _claims(planned_on)


def _claims(timeline: ActiveTimeline) -> set[str]:
    """Everything that may need old files: completed savepoints, and every pending plan."""
    return {
        f"{i.requested}.{i.action}"
        for i in timeline.instants
        if i.is_completed == (i.action == SAVEPOINT) and i.action not in _INGESTION
    }


def _check_quiet(ctx: WriterContext, timeline: ActiveTimeline) -> None:
    """Refuse while it is undecided which instants will stay."""
    for instant in timeline.pending:
        if instant.action == RESTORE:
            raise Unavailable(
                f"the restore {instant.requested} is not finished: no clean is planned before it is",
                table=ctx.base,
                instant=instant.requested,
            )
    for target, rollback in sorted(condemned(ctx.seams.storage, timeline).items()):
        if target in timeline.completion_times:
            raise Unavailable(
                f"the rollback {rollback} of the completed {target} is not finished: no clean is planned"
                " before it is (mainstem rollback resumes it)",
                table=ctx.base,
                instant=rollback,
            )


def _check_savepoints(ctx: WriterContext, section: Section) -> None:
    """Refuse while a savepoint is being made, because its files are not known yet.

    Ours are made under the lock, Java's are not. One that stays incomplete for long counts as dead.
    """
    making = begun_savepoints(ctx, section.timeline, section.store_now_ms(), dead=False)
    if making:
        raise Unavailable(
            f"a savepoint of {making[0].requested} is being made: no clean is planned until it is; try again",
            table=ctx.base,
            instant=making[0].requested,
        )


def execute(ctx: WriterContext, time: str, progress: Progress = silent) -> Cleaned | None:
    """Execute one plan, ours or Java's; None if a live executor has it.

    A plan that is completed or gone gives a ``Cleaned`` without completion. After any failure the plan stays
    pending, and another call continues it. Raises ``CorruptTable``, with nothing deleted, for a plan that
    names needed files or anything but data files of this table; ``Unavailable`` for trouble with storage.
    """
    with claimed(ctx, time, "the clean") as ours:
        return _execute(ctx, time, progress) if ours else None


def _execute(ctx: WriterContext, time: str, progress: Progress) -> Cleaned:
    def complete(plan: CleanPlan, metadata: bytes) -> str | None:
        return _complete(ctx, time, metadata, FileChanges.of_names(plan.files))

    return execute_plan(ctx, TableState.load(ctx.seams.storage, ctx.config), time, complete, progress)


def execute_plan(
    ctx: WriterContext,
    state: TableState,
    time: str,
    complete: Callable[[CleanPlan, bytes], str | None],
    progress: Progress = silent,
) -> Cleaned:
    """Steps 4 to 6 on the table of ``state``; ``complete`` publishes the completed file."""
    storage, clock = state.storage, ctx.seams.clock
    began = clock.monotonic_ms()
    if time not in pending(state.timeline):
        return Cleaned(time, None)
    try:
        plan = load_clean_plan(storage, time)
    except FileNotFoundError:
        return _withdrawn(storage, time)
    if plan is None:
        return _without_plan(ctx, storage, time)
    check_plan(state, time, plan)
    create_once(storage, _file(time, INFLIGHT))
    if ctx.before_removal is not None and storage is ctx.seams.storage:
        ctx.before_removal(frozenset(plan.paths()).__contains__, True)
    deleted = _delete(ctx, storage, time, plan, progress)
    if deleted is None:
        return _withdrawn(storage, time)
    metadata = encode_clean_metadata(plan, requested=time, taken_ms=int(clock.monotonic_ms() - began))
    completion = complete(plan, metadata)
    earliest = plan.earliest[0] if plan.earliest is not None else None
    return Cleaned(time, completion, len(plan.paths()), deleted, earliest)


def _file(time: str, state: str) -> str:
    return paths.timeline_file(f"{time}.{CLEAN}.{state}")


def _withdrawn(storage: Storage, time: str) -> Cleaned:
    """The plan is gone: completed and archived, or removed. An inflight file alone means nothing."""
    names = load_timeline(storage).names
    if f"{time}.{CLEAN}.{REQUESTED}" not in names and not any(
        name.startswith(f"{time}_") and name.endswith(f".{CLEAN}") for name in names
    ):
        storage.delete(_file(time, INFLIGHT))
    return Cleaned(time, None)


def _without_plan(ctx: WriterContext, storage: Storage, time: str) -> Cleaned:
    """Handle an empty plan: its Java planner is about to write it, or died before it could."""
    info = storage.stat(_file(time, REQUESTED))
    if info is not None and store_now_ms(ctx, time) - info.mtime_ms <= ctx.heartbeats.silent_ms:
        raise Unavailable(
            f"the plan of the clean {time} is empty: its planner is writing it, or died; clean again in"
            f" {ctx.heartbeats.silent_ms // 1000} s, which removes the plan if it is still empty",
            table=ctx.base,
        )
    storage.delete(_file(time, INFLIGHT))
    storage.delete(_file(time, REQUESTED))
    return Cleaned(time, None)


def check_plan(state: TableState, time: str, plan: CleanPlan) -> None:
    """Raises ``CorruptTable`` if the plan names an existing file that is still needed."""
    kept = kept_files(state)
    replaced = state.replaced(None)
    waiting = {i.requested for i in state.timeline.pending if i.action in WRITE_ACTIONS}
    for partition, names in sorted(plan.files.items()):
        there = set(state.storage.names(partition))
        cuts = _newest_bases(state, partition, there)
        for name in names:
            file = DataFile.of(state, name)
            if file is None:
                _refuse(state, time, partition, name, "which is no data file of this table")
            if name not in there:
                continue
            if name in kept.get(partition, ()):
                _refuse(state, time, partition, name, "which a savepoint or a pending compaction needs")
            # A listing made while it is archived may miss its completed file; the archive tells.
            if file.instant in waiting and file.completed is None:
                _refuse(state, time, partition, name, "whose instant is not completed")
            if file.completed is None or (partition, file.file_id) in replaced:
                continue  # nobody reads it
            cut = cuts.get(file.file_id)
            if cut is None or not file.is_older(cut):
                _refuse(state, time, partition, name, "which is part of the newest file slice")


def _newest_bases(state: TableState, partition: str, names: Iterable[str]) -> dict[str, str]:
    """File id -> instant of the newest completed base file."""
    found = {}
    for group in state.group(partition, names):
        bases = [s.base_instant for s in group.slices if s.base_file is not None and not s.pending]
        if bases:
            found[group.file_id] = bases[0]
    return found


def _refuse(state: TableState, time: str, partition: str, name: str, why: str) -> NoReturn:
    raise CorruptTable(
        f"the clean {time} would delete {state.for_people(paths.in_partition(partition, name))}, {why};"
        " nothing was deleted. Remove the clean's .requested and .inflight files once you know where the plan"
        " came from: a later clean plans anew",
        path=state.for_people(_file(time, REQUESTED)),
    )


def _delete(
    ctx: WriterContext, storage: Storage, time: str, plan: CleanPlan, progress: Progress
) -> int | None:
    """Remove the plan's files; returns how many still existed, or None if the plan vanished meanwhile."""
    total, done, deleted = len(plan.paths()), 0, 0
    for partition, names in sorted(plan.files.items()):
        if storage.stat(_file(time, REQUESTED)) is None:
            return None
        if has_swaps(storage):  # all at once, which does not tell whether they were there
            storage.delete_all([paths.in_partition(partition, name) for name in names])
            deleted, done = deleted + len(names), done + len(names)
            progress(f"clean {time}, files", done, total)
            continue
        for name in names:
            path = paths.in_partition(partition, name)
            deleted += storage.delete(path)
            storage.delete(paths.checksum_file(path))
            done += 1
            progress(f"clean {time}, files", done, total)
    # A completed clean promises that its files are gone, even after a machine crash.
    storage.settle([], [p for p in sorted(plan.files) if storage.stat(p)], durable=ctx.services_sync)
    return deleted


def _complete(ctx: WriterContext, time: str, metadata: bytes, changes: FileChanges) -> str | None:
    def ended(section: Section) -> str | None:
        return None if time in pending(section.timeline) else "ended"

    return publish_end(ctx, time, CLEAN, metadata, ended, changes=changes).time
