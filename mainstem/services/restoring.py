"""Restoring a table to a savepoint, with the writers that die, wake up and read meanwhile.

  finish pending rollbacks, roll back dead writers
  -> [[ lock: savepoint there? its files there? no live writer, no pending clean?
        -> publish r.restore.requested ]]
  -> r.restore.inflight
  1. completed files of the planned instants go, newest first; the metadata table, which may hold rows of
     them for good, is set aside (``metadata.commits.setting_aside``)
  2. data files of these instants go, found by listing all partitions
  3. inflight and requested files (plans of compactions too) go
  4. private files of planned compactions go; what late executors and writers made since step 2 goes
  5. markers and heartbeats go
  -> [[ lock: still pending? -> publish r_c.restore ]]
  -> the indexes that were set aside are built again, beside writers (``api.services``)

**What goes** is in the plan (``services.restore_view``) and fixed by it. Pending instants of dead writers
are in it too, so nobody who began before it can complete: a commit looks for the restore under the lock.

**From the plan on** nothing but this restore is published (``Publisher``), so no writer, compaction or
clean can rely on what goes, and mainstem's readers leave the planned instants out
(``readers.planning.table_state``): to them the plan is the moment of the restore. A query that listed the
timeline before the plan notices that completed instants are gone when it has listed its files, or that a
file is gone, and starts again. Java's readers see instant after instant go.

**A crash** leaves the plan pending: writers are refused and say so, and ``execute`` by anybody goes on;
every step finds what is left of its work by listing. After step 1 no data file that goes is visible to
anybody; step 1 is made durable before step 2 begins. Between 2 and 4 no instant has a timeline file without
its plan standing beside it.

**Two executions** at once, or one that wakes up after the restore: they delete only what names a planned
instant, and these times are never given again, for the restore's own time lies above them and stays.
Their completion finds the restore completed and ends.

**A writer or executor that wakes up**: its instant is gone, so it removes what it makes
(``BucketAppender``), its link finds its private file gone (``services.compaction``), its commit is refused.
What it leaves if it is killed just then is swept (``writers.leftovers``).

Hudi: ``RestorePlanActionExecutor``, ``BaseRestoreActionExecutor``, ``ListingBasedRollbackStrategy``; a Java
restore that died is taken up from its plan as well. Java asks that all writers be stopped by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import Invalid, OutcomeUnknown, Unavailable, Unsupported
from mainstem.layout.partitions import list_partitions
from mainstem.publish.publisher import Section
from mainstem.publish.staging import create_once, forget, prepare
from mainstem.readers.planning.table_state import WRITES, TableState
from mainstem.services.claim import claim
from mainstem.services.compaction_plan import FileListing
from mainstem.services.progress import Progress, silent
from mainstem.services.restore_view import files_of, is_compaction, removed_by_restore, restored_state
from mainstem.services.savepoints import savepoint_instants
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    COMPACTION,
    INDEXING,
    INFLIGHT,
    LOGCOMPACTION,
    REQUESTED,
    RESTORE,
    ROLLBACK,
    Instant,
    state_rank,
)
from mainstem.timeline.restore_records import (
    PlannedInstant,
    RestorePlan,
    encode_restore_metadata,
    encode_restore_plan,
    load_restore_plan,
    pending_restores,
)
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import (
    condemned,
    delete_with_checksum,
    forget_begun_savepoint,
    remove_private_files,
    roll_back_failed_writes,
    set_metadata_aside,
    shown_on_timeline,
    unpublish,
)

pending = pending_restores


@dataclass(frozen=True)
class Restored:
    """What became of a restore to ``savepoint``.

    ``restore``, ``completion``: its own times, None if there was nothing to remove, or if it is not
    completed; ``instants``: requested times of what went, newest first; ``files``: data files that this
    execution removed.
    """

    savepoint: str
    restore: str | None
    completion: str | None
    instants: tuple[str, ...] = ()
    files: int = 0

    def describe(self) -> str:
        """One line for people."""
        if self.restore is None:
            return f"the table is at savepoint {self.savepoint} already"
        return (
            f"restored to savepoint {self.savepoint} by {self.restore}: {len(self.instants):,} instants and"
            f" {self.files:,} files removed"
        )


def restore(
    ctx: WriterContext, savepoint: str | None = None, *, progress: Progress = silent
) -> Restored:
    """Remove everything that completed after the instant of a savepoint; goes on with a pending restore.

    Without ``savepoint`` only a pending restore is finished. Raises ``Invalid`` where there is no such
    savepoint or its state cannot be had, while a live writer has an instant open, and while a later
    savepoint stands; ``Unavailable`` while a clean is pending or a living process executes the restore.
    """
    try:
        time = _pending_for(ctx, savepoint)
        if time is None:
            assert savepoint is not None
            time = schedule(ctx, savepoint)
        done = Restored(savepoint or "", None, None) if time is None else execute(ctx, time, progress)
    except OutcomeUnknown:
        raise
    except OSError as error:
        raise Unavailable(
            f"the restore did not end: {error}; if its plan is on the timeline nobody can write until it is"
            " finished: restore again",
            table=ctx.base,
        ) from error
    if done is None:
        raise Unavailable(
            f"the restore {time} is being executed by another process; wait for it", table=ctx.base
        )
    return done


def _pending_for(ctx: WriterContext, savepoint: str | None) -> str | None:
    waiting = pending(ctx.publisher.timeline())
    if not waiting:
        if savepoint is None:
            raise Invalid("no restore is pending; name the savepoint to restore to", table=ctx.base)
        return None
    plan = load_restore_plan(ctx.seams.storage, waiting[0])
    if plan is not None and savepoint is not None and plan.savepoint != savepoint:
        raise Invalid(
            f"the restore {waiting[0]} to {plan.savepoint} is not finished: finish it first, then restore"
            f" to {savepoint}",
            table=ctx.base,
            instant=waiting[0],
        )
    return waiting[0]


# -- the plan ------------------------------------------------------------------------------------


def schedule(ctx: WriterContext, savepoint: str) -> str | None:
    """Plan a restore; its requested time, None if the table is at the savepoint already."""
    roll_back_failed_writes(ctx)
    listing = FileListing(ctx.seams.storage, ctx.config, whole=False)  # it may be the way out of damage
    made: list[str] = []

    def content(timeline: ActiveTimeline) -> str | None:
        ctx.reread_config()
        state, files = listing.now()
        target = _savepointed(state.timeline, savepoint, ctx.base)
        going = _what_goes(state, target, files)
        if not going:
            return None
        _check_savepoints(state.timeline, going, ctx.base)
        plan = RestorePlan(savepoint, tuple(PlannedInstant(i.requested, i.action) for i in going))
        made.append(prepare(ctx.seams, RESTORE, encode_restore_plan(plan)))
        return made[-1]

    try:
        published = ctx.publisher.publish(
            lambda time: f"{time}.{RESTORE}.{REQUESTED}",
            prepared=content,
            decide=lambda section: _check_quiet(ctx, section),
        )
    finally:
        for path in made:
            forget(ctx.seams, path)
    return published.time


def _savepointed(timeline: ActiveTimeline, savepoint: str, base: str) -> Instant:
    """The instant to go back to."""
    saved = [i.requested for i in savepoint_instants(timeline)]
    if savepoint not in saved:
        raise Invalid(
            f"there is no savepoint of {savepoint}; there are {', '.join(saved) or 'none'}", table=base
        )
    for instant in timeline.completed:
        if instant.requested == savepoint and instant.action in WRITES:
            return instant
    raise Invalid(
        f"the savepointed instant {savepoint} is not on the active timeline any more, so what completed"
        " after it cannot be told",
        table=base,
        instant=savepoint,
    )


def _what_goes(state: TableState, target: Instant, files: dict[str, set[str]]) -> list[Instant]:
    """The instants to remove. Raises ``Invalid`` if the state that remains is not whole."""
    _check_archive(state, target)
    going = removed_by_restore(state.timeline, target)
    try:
        files_of(restored_state(state, going, target), files)
    except Invalid as error:
        # A compaction planned before the savepoint and completed after it: its files may be cleaned by now,
        # while the savepoint kept those below it.
        merges = [i for i in state.timeline.instants if is_compaction(i) and i not in going]
        late = [i for i in merges if _after(i, target)]
        if not late:
            raise _impossible(state, target, error) from error
        going = sorted([*going, *late], key=lambda i: i.completion or "9", reverse=True)
        try:
            files_of(restored_state(state, going, target), files)
        except Invalid:
            raise _impossible(state, target, error) from error
    return going


def _after(instant: Instant, target: Instant) -> bool:
    return instant.completion is None or instant.completion > (target.completion or "")


def _impossible(state: TableState, target: Instant, error: Invalid) -> Invalid:
    return Invalid(
        f"the table cannot be restored to {target.requested}: {error.message}",
        table=state.storage.base,
        instant=target.requested,
    )


def _check_archive(state: TableState, target: Instant) -> None:
    """An archived instant stays completed whatever is deleted, so none may have to go."""
    for row in state.archive.completed(target.completion or "").to_pylist():  # few: archiving stops before
        action, requested = row["action"], row["instantTime"]
        if action in WRITES and (action != COMMIT or requested > target.requested):
            raise Invalid(
                f"the table cannot be restored to {target.requested}: {requested} completed after it and is"
                " archived",
                table=state.storage.base,
                instant=requested,
            )


def _check_savepoints(timeline: ActiveTimeline, going: list[Instant], base: str) -> None:
    gone = {i.requested for i in going}
    for saved in savepoint_instants(timeline):
        if saved.requested in gone:
            raise Invalid(
                f"{saved.requested} would go and has a savepoint; delete that savepoint first",
                table=base,
                instant=saved.requested,
            )


def _check_quiet(ctx: WriterContext, section: Section) -> None:
    """Under the lock: nobody has an instant open who could still be working, and no clean is pending."""
    for instant in section.timeline.pending:
        if instant.action in WRITES:
            if not ctx.heartbeats.expired(instant.requested, section.store_now_ms()):
                raise Invalid(
                    f"the {instant.action} {instant.requested} of a living writer is open, and a restore"
                    " would drop it: stop the writers, then restore",
                    table=ctx.base,
                    instant=instant.requested,
                )
        elif instant.action == CLUSTERING:
            raise Unsupported(
                f"the clustering {instant.requested} is pending, and mainstem does not read its plan; let"
                " Hudi finish it or roll it back",
                table=ctx.base,
            )
        elif instant.action in (CLEAN, RESTORE, ROLLBACK, INDEXING):
            raise Unavailable(
                f"the {instant.action} {instant.requested} is not finished; finish it, then restore",
                table=ctx.base,
                instant=instant.requested,
            )


# -- the execution -------------------------------------------------------------------------------


def execute(ctx: WriterContext, time: str, progress: Progress = silent) -> Restored | None:
    """Execute a planned restore, ours or Java's; None if a living process has it.

    Whatever fails leaves the plan pending: the next execution goes on. Raises ``CorruptTable`` for a plan
    that is damaged, with nothing deleted.
    """
    if not claim(ctx, time):
        return None
    try:
        with ctx.synced():
            return _execute(ctx, time, progress)
    finally:
        ctx.heartbeats.stop(time)


def _execute(ctx: WriterContext, time: str, progress: Progress) -> Restored:
    storage, clock = ctx.seams.storage, ctx.seams.clock
    plan = load_restore_plan(storage, time)
    if plan is None or time not in pending(ctx.publisher.timeline()):
        return _ended(ctx.publisher.timeline(), time, plan)
    began = clock.monotonic_ms()
    create_once(storage, paths.timeline_file(f"{time}.{RESTORE}.{INFLIGHT}"))
    run = _Run(ctx, plan, progress)
    deleted = run.remove()
    metadata = encode_restore_metadata(
        restore=time,
        plan=plan,
        taken_ms=int(clock.monotonic_ms() - began),
        deleted=deleted,
        base=ctx.base,
    )
    prepared = prepare(ctx.seams, time, metadata)
    try:
        published = ctx.publisher.publish(
            lambda done: f"{time}_{done}.{RESTORE}",
            prepared=prepared,
            decide=lambda section: _completed_by_another(section, time, plan),
            before_link=lambda done: run.forget_rollbacks(),
        )
    finally:
        forget(ctx.seams, prepared)
    if published.decision is not None:
        return published.decision
    files = sum(len(names) for found in deleted.values() for names in found.values())
    return Restored(plan.savepoint, time, published.time, _times(plan), files)


def _completed_by_another(section: Section, time: str, plan: RestorePlan) -> Restored | None:
    return None if time in pending(section.timeline) else _ended(section.timeline, time, plan)


def _ended(timeline: ActiveTimeline, time: str, plan: RestorePlan | None) -> Restored:
    done = (i.completion for i in timeline.completed if i.requested == time and i.action == RESTORE)
    return Restored(plan.savepoint if plan else "", time, next(done, None), _times(plan) if plan else ())


def _times(plan: RestorePlan) -> tuple[str, ...]:
    return tuple(i.requested for i in plan.instants)


class _Run:
    """One execution of one plan: the steps of the module's text."""

    def __init__(self, ctx: WriterContext, plan: RestorePlan, progress: Progress) -> None:
        self._ctx = ctx
        self._storage = ctx.seams.storage
        self._plan = plan
        self._times = frozenset(_times(plan))
        self._progress = progress
        self._deleted: dict[str, dict[str, list[str]]] = {}

    def remove(self) -> dict[str, dict[str, list[str]]]:
        """Steps 1 to 5; instant -> partition -> names of the data files that this execution removed."""
        unpublish(self._storage, self._times)
        set_metadata_aside(self._ctx, self._times)
        self._remove_data_files()
        self._remove_pending_files()
        merges = (COMMIT, COMPACTION, LOGCOMPACTION)
        remove_private_files(self._storage, {i.requested for i in self._plan.instants if i.action in merges})
        self._remove_data_files()
        for requested in sorted(self._times):
            self._storage.delete_folder(paths.marker_folder(requested))
            self._ctx.heartbeats.stop(requested)
        return self._deleted

    def _remove_pending_files(self) -> None:
        # Inflight before requested: a plan must not vanish from under what executes it.
        shown = shown_on_timeline(self._storage, self._times)
        for instant in sorted(shown, key=state_rank, reverse=True):
            delete_with_checksum(self._storage, paths.timeline_file(instant.file_name))
        for requested in sorted(self._times):
            forget_begun_savepoint(self._storage, requested)
        self._storage.sync_folder(paths.TIMELINE)

    def _remove_data_files(self) -> None:
        touched = []
        listings = list(
            list_partitions(self._storage, partitioned=bool(self._ctx.config.partition_fields))
        )
        for number, listing in enumerate(listings, 1):
            for name in listing.names:
                parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
                if parsed is None or parsed.instant not in self._times:
                    continue
                delete_with_checksum(self._storage, paths.in_partition(listing.partition, name))
                touched.append(listing.partition)
                by_partition = self._deleted.setdefault(parsed.instant, {})
                by_partition.setdefault(listing.partition, []).append(name)
            self._progress("restore, partitions", number, len(listings))
        self._storage.sync_folders(sorted(set(touched)))

    def forget_rollbacks(self) -> None:
        """Rollbacks of planned instants, by which a Java restore does its work; nothing is left of them."""
        timeline = self._ctx.publisher.timeline()
        for instant, rollback in sorted(condemned(self._storage, timeline).items()):
            if instant in self._times:
                for state in (INFLIGHT, REQUESTED):
                    delete_with_checksum(self._storage, paths.timeline_file(f"{rollback}.{ROLLBACK}.{state}"))
