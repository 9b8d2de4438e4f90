"""Restoring a table to a savepoint, safe against processes that crash, wake up or read meanwhile.

  finish pending rollbacks, roll back dead writers
  -> [[ lock: is it allowed? (``services.restore_plan``) -> publish r.restore.requested ]]
  -> r.restore.inflight
  1. completed files of the planned instants go, newest first; the metadata table, which may hold rows of
     them for good, is set aside (``metadata.commits.setting_aside``)
  2. data files of these instants go, found by listing all partitions
  3. inflight and requested files (plans of compactions too) go
  4. private files of planned compactions go, and files that late executors and writers made since step 2
  5. markers and heartbeats go
  -> [[ lock: still pending? -> publish r_c.restore ]]
  -> the indexes that were set aside are built again, beside writers (``api.services``)

**What goes** is fixed by the plan (``services.restore_view``). It includes pending instants of dead writers,
so no writer that began before it can complete: a commit looks for the restore under the lock.

**Once the plan is published** nothing but this restore is published (``Publisher``), so no writer, compaction
or clean can rely on instants that go. mainstem's readers leave the planned instants out
(``readers.planning.table_state``): for them the restore takes effect with the plan. A query that listed the
timeline before notices that completed instants or files are gone, and starts again. Java's readers see the
instants disappear one by one.

**A crash** leaves the plan pending: writers are refused with that reason, and any process can continue with
``execute``; every step finds its remaining work by listing. After step 1 no data file that goes is visible
any more, and step 1 is durable before step 2 begins. Between 2 and 4 an instant that still has a timeline
file also has its plan.

**Concurrent executions**, or one that wakes up after the restore, delete only files that name a planned
instant. These times are never used again, because the restore's own time is later and stays on the timeline.
At completion they find the restore completed, and end.

**A writer or executor that wakes up** finds its instant gone: it removes what it makes (``BucketAppender``),
or its private file is gone (``services.executor``), and its commit is refused. Files that it leaves if it is
killed just then are swept (``writers.leftovers``).

Hudi: ``RestorePlanActionExecutor``, ``BaseRestoreActionExecutor``, ``ListingBasedRollbackStrategy``. A Java
restore that died is continued from its plan too. Java requires all writers to be stopped by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import Invalid, Unavailable, naming
from mainstem.layout.partitions import list_partitions
from mainstem.layout.stored_rings import forget_rings
from mainstem.publish.publisher import Section
from mainstem.publish.staging import create_once
from mainstem.services.claim import claim
from mainstem.services.executor import publish_end
from mainstem.services.progress import Progress, silent
from mainstem.services.restore_plan import schedule
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    INFLIGHT,
    LOGCOMPACTION,
    REPLACECOMMIT,
    REQUESTED,
    RESTORE,
    ROLLBACK,
    state_rank,
)
from mainstem.timeline.restore_records import (
    RestorePlan,
    encode_restore_metadata,
    load_restore_plan,
    pending_restores,
)
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import (
    condemned,
    delete_with_checksum,
    forget_begun_savepoint,
    forget_showing,
    forget_unshown,
    remove_private_files,
    set_metadata_aside,
    shown_on_timeline,
    unpublish,
)

pending = pending_restores


@dataclass(frozen=True)
class Restored:
    """The outcome of a restore to ``savepoint``.

    ``restore``: its requested time, None if there was nothing to remove; ``completion``: None if it is not
    completed; ``instants``: requested times of the removed instants, newest first; ``files``: number of data
    files that this execution removed.
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
    """Remove everything that completed after a savepoint's instant; continues a pending restore.

    Without ``savepoint`` it only finishes a pending restore. Raises ``Invalid`` if there is no such savepoint
    or its state cannot be restored, while a live writer has an instant open, and while a later savepoint
    exists; ``Unavailable`` while a clean is pending or a live process executes the restore.
    """
    advice = "if its plan is on the timeline nobody can write until it is finished: restore again"
    with naming(ctx.base, "the restore did not end", advice):
        time = _pending_for(ctx, savepoint)
        if time is None:
            assert savepoint is not None
            time = schedule(ctx, savepoint)
        done = Restored(savepoint or "", None, None) if time is None else execute(ctx, time, progress)
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


# -- the execution -------------------------------------------------------------------------------


def execute(ctx: WriterContext, time: str, progress: Progress = silent) -> Restored | None:
    """Execute a planned restore, ours or Java's; None if another live process executes it.

    After a failure the plan stays pending, and the next execution continues. Raises ``CorruptTable``, with
    nothing deleted, for a damaged plan.
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
    published = publish_end(
        ctx,
        time,
        RESTORE,
        metadata,
        lambda section: _completed_by_another(section, time, plan),
        before_link=lambda done: run.forget_rollbacks(),
    )
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
        if self._ctx.before_removal is not None:
            self._ctx.before_removal(self._goes, False)
        unpublish(self._storage, self._times)
        set_metadata_aside(self._ctx, self._times)
        self._remove_data_files()
        self._remove_pending_files()
        merges = (COMMIT, COMPACTION, LOGCOMPACTION, CLUSTERING, REPLACECOMMIT)
        remove_private_files(self._storage, {i.requested for i in self._plan.instants if i.action in merges})
        self._remove_data_files()
        if self._ctx.config.uses_rings:
            partitioned = bool(self._ctx.config.partition_fields)
            for listing in list_partitions(self._storage, partitioned=partitioned):
                forget_rings(self._storage, listing.partition, self._times)
        for requested in sorted(self._times):
            self._storage.delete_tree(paths.marker_folder(requested))
            forget_showing(self._storage, requested)
            self._ctx.heartbeats.stop(requested)
        return self._deleted

    def _goes(self, path: str) -> bool:
        """Whether a file is one of a planned instant."""
        parsed = paths.parse_base_name(path.rpartition("/")[2])
        return parsed is not None and parsed.instant in self._times

    def _remove_pending_files(self) -> None:
        # Inflight before requested: a plan must not vanish while its inflight file exists.
        shown = shown_on_timeline(self._storage, self._times)
        for instant in sorted(shown, key=state_rank, reverse=True):
            delete_with_checksum(self._storage, paths.timeline_file(instant.file_name))
        for requested in sorted(self._times):
            forget_begun_savepoint(self._storage, requested)
        self._storage.settle([], [paths.TIMELINE], durable=True)

    def _remove_data_files(self) -> None:
        for requested in sorted(self._times):
            forget_unshown(self._storage, requested)
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
        self._storage.settle([], sorted(set(touched)), durable=True)

    def forget_rollbacks(self) -> None:
        """Remove pending rollbacks of planned instants, with which a Java restore does its work."""
        timeline = self._ctx.publisher.timeline()
        for instant, rollback in sorted(condemned(self._storage, timeline).items()):
            if instant in self._times:
                for state in (INFLIGHT, REQUESTED):
                    delete_with_checksum(self._storage, paths.timeline_file(f"{rollback}.{ROLLBACK}.{state}"))
