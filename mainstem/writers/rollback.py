"""Rolling back what dead writers left (RollbackActionExecutor; protocols 4.3), lazily and for good.

  [[ lock: dead still? -> publish r.rollback.requested with the plan ]] -> r.rollback.inflight
  -> take the instant from the metadata table, if there is one (``metadata.commits.taking_back``)
  -> delete the instant's files (by listing), durably -> [[ lock: delete its inflight and requested,
  publish r_c.rollback ]] -> delete markers and heartbeat

The plan comes first and under the lock. From then on the dead writer cannot complete even if it wakes up,
so any process may delete its files, any number of times. A rollback that died halfway is resumed from its
plan.

Java rolls back an attempt at a compaction, keeps the compaction's plan and executes it again under the same
time. So a rollback that another process has already finished removes nothing of an instant that exists again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass

from mainstem.errors import CorruptTable, MainstemError, OutcomeUnknown, Unavailable, Unsupported
from mainstem.layout.partitions import list_partitions
from mainstem.layout.properties import load_config
from mainstem.lsm_archive.reader import Archive
from mainstem.metadata.commits.setting_aside import has_metadata_table, set_aside
from mainstem.metadata.commits.taking_back import Found, RollbackRecord, take_back
from mainstem.metadata.metadata_table import open_metadata
from mainstem.publish.publisher import Section
from mainstem.publish.showing import can_show
from mainstem.publish.staging import create_once, prepared
from mainstem.storage import paths
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.telemetry import steps
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    DELTACOMMIT,
    INDEXING,
    INFLIGHT,
    LOGCOMPACTION,
    REPLACECOMMIT,
    REQUESTED,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    parse_instant,
)
from mainstem.timeline.plans import (
    RollbackPlan,
    encode_rollback_metadata,
    encode_rollback_plan,
    load_rollback_plan,
)
from mainstem.timeline.restore_records import being_restored, pending_restores
from mainstem.writers.context import WriterContext
from mainstem.writers.leftovers import sweep_leftovers
from mainstem.writers.plans_that_came_back import forget
from mainstem.writers.write_task import marked_files

_INGESTION = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
_MERGES = (COMMIT, COMPACTION, LOGCOMPACTION, CLUSTERING)


@dataclass(frozen=True)
class RolledBackInstant:
    """A rolled-back instant: its requested time, the rollback's, and the number of removed files."""

    instant: str
    action: str
    rollback: str
    files: int

    def describe(self) -> str:
        """One line for people."""
        return f"{self.action} {self.instant} rolled back by {self.rollback}, {self.files} files removed"


def roll_back_failed_writes(ctx: WriterContext, *, if_due: bool = False) -> list[RolledBackInstant]:
    """Finishes rollbacks that died halfway, then rolls back writers without a live heartbeat.

    With ``if_due=True``, as ``begin`` calls it, at most once per heartbeat interval. Leaves compactions and
    other services alone. Raises what the lock raises, and ``Unavailable`` if the storage fails; the next
    caller resumes a half-done rollback.
    """
    if if_due and not _due(ctx):
        return []
    try:
        return _roll_back_all(ctx, thorough=not if_due)
    except (OSError, OutcomeUnknown) as error:  # the next caller resumes a plan that may be there
        raise Unavailable(
            f"rolling back dead writers failed: {error}; what is done stands, and the next writer resumes"
            " it: free space or restore access, then call again",
            table=ctx.base,
        ) from error


def _roll_back_all(ctx: WriterContext, *, thorough: bool) -> list[RolledBackInstant]:
    ctx.check_same_table()  # pending rollbacks are resumed before the lock is taken
    timeline = ctx.publisher.timeline()
    if pending_restores(timeline):
        return []  # the restore removes dead instants, and a Java restore its rollbacks too
    if forget(ctx, timeline):
        timeline = ctx.publisher.timeline()
    pending = [i for i in timeline.pending if i.action == ROLLBACK]
    done = [r for r in (_resume(ctx, i, timeline) for i in pending) if r is not None]
    timeline = ctx.publisher.timeline()
    for instant in _candidates(timeline):
        rolled = roll_back(ctx, instant)
        if rolled is not None:
            done.append(rolled)
    sweep_leftovers(ctx, thorough=bool(done) or thorough)
    return done


def _due(ctx: WriterContext) -> bool:
    if not ctx.options.lazy_rollback:
        return False
    now = ctx.seams.clock.monotonic_ms()
    with ctx.mutex.held:
        last = ctx.last_rollback_check_ms
        if last is not None and now - last < ctx.options.heartbeat_ms:
            return False
        ctx.last_rollback_check_ms = now
        return True


def _candidates(timeline: ActiveTimeline) -> list[Instant]:
    """Pending ingestion instants, newest first."""
    return [i for i in reversed(timeline.pending) if i.action in _INGESTION]


def condemned(storage: Storage, timeline: ActiveTimeline) -> dict[str, str]:
    """Instants that a pending rollback undoes -> that rollback's requested time."""
    found: dict[str, str] = {}
    for instant in timeline.pending_services:
        if instant.action == ROLLBACK:
            plan = load_rollback_plan(storage, instant.requested)
            if plan is not None:
                found[plan.instant] = instant.requested
    return found


def roll_back(
    ctx: WriterContext, instant: Instant, *, own: bool = False
) -> RolledBackInstant | None:
    """Rolls back one pending instant. ``own``: the caller's own transaction, alive or not.

    Returns None if it has completed, is alive, or is being rolled back by another process.
    """
    plan = RollbackPlan(instant.requested, instant.action)

    def still_dead(section: Section) -> str | None:
        # Check again under the lock: a writer that has completed by now has no heartbeat either.
        state = {
            i.requested: i for i in section.timeline.instants if i.action != SAVEPOINT
        }.get(instant.requested)
        if state is None or state.is_completed:
            return "gone"
        if instant.requested in condemned(ctx.seams.storage, section.timeline):
            return "condemned"
        if instant.requested in being_restored(ctx.seams.storage, section.timeline):
            return "restored"
        if not own and not ctx.heartbeats.expired(instant.requested, section.store_now_ms()):
            return "alive"
        return None

    # Not under the instant's time: another process may finish the rollback, and removes that one's files.
    with prepared(ctx.seams, ROLLBACK, plan_of(ctx, plan)) as private:
        published = ctx.publisher.publish(
            lambda time: f"{time}.{ROLLBACK}.{REQUESTED}", prepared=private, decide=still_dead
        )
    if published.time is None:
        return None
    return execute_rollback(ctx, published.time, plan)


def take_back_clustering(ctx: WriterContext, timeline: ActiveTimeline, requested: str) -> None:
    """Takes back the plan of a clustering of ours, which a writer is about to complete a write in.

    Helps a process that began it already. The plan may be there still if another one is at it: look again.
    """
    rollback = condemned(ctx.seams.storage, timeline).get(requested)
    if rollback is None:
        roll_back(ctx, Instant(requested, CLUSTERING, REQUESTED), own=True)
        return
    plan = load_rollback_plan(ctx.seams.storage, rollback)  # of a process that may have died
    if plan is not None:
        execute_rollback(ctx, rollback, plan, shown=True)


def plan_of(ctx: WriterContext, plan: RollbackPlan) -> bytes:
    """The bytes of a rollback plan. As Java expects, it lists the files that the instant has now."""
    files = list(_files_of(ctx, plan.instant))
    return encode_rollback_plan(plan.instant, plan.action, files, ctx.written_base, plan.completion)


def _resume(ctx: WriterContext, rollback: Instant, timeline: ActiveTimeline) -> RolledBackInstant | None:
    """Resumes a pending rollback from its plan, ours or Java's."""
    plan = load_rollback_plan(ctx.seams.storage, rollback.requested)
    if plan is None:
        return None
    if any(i.action == INDEXING for i in timeline.pending) and _was_completed(ctx, timeline, plan):
        return None  # it must wait for the index (``metadata.commits.setting_aside``); no writer waits for it
    return execute_rollback(ctx, rollback.requested, plan, shown=True)


def _was_completed(ctx: WriterContext, timeline: ActiveTimeline, plan: RollbackPlan) -> bool:
    """Whether the instant was completed when its rollback was planned. Java's plans do not say, so the
    timeline and the metadata table are asked too."""
    shown = plan.completion is not None or plan.instant in timeline.completion_times
    return shown or _is_listed_for_good(ctx, timeline, plan.instant)


def _is_listed_for_good(ctx: WriterContext, timeline: ActiveTimeline, instant: str) -> bool:
    """Whether a base file of the metadata table lists files of a pending instant.

    An index built while the instant was completed has them there, and nothing removes them from a base file.
    """
    if not any(i.action == INDEXING and i.requested > instant for i in timeline.completed):
        return False
    storage = ctx.seams.storage
    try:
        metadata = open_metadata(storage, load_config(storage), timeline)
        listed = {} if metadata is None else metadata.files()
    except (CorruptTable, Unsupported, FileNotFoundError):
        return False
    found = (paths.parse_log_name(n) or paths.parse_base_name(n) for names in listed.values() for n in names)
    return any(file is not None and file.instant == instant for file in found)


def _take_back(ctx: WriterContext, instant: str, rollback: str) -> Found:
    """Removes the instant's rows from the metadata table.

    If a compaction already holds them, the metadata table is set aside. Java gives up there and leaves its
    rollback half done.
    """
    try:
        return take_back(ctx.seams.storage, instant, rollback)
    except Unsupported:
        set_metadata_aside(ctx, {instant})
        return take_back(ctx.seams.storage, instant, rollback)


def execute_rollback(
    ctx: WriterContext, rollback: str, plan: RollbackPlan, *, shown: bool = False
) -> RolledBackInstant | None:
    """Executes a plan on the timeline; None if another process has finished it.

    ``shown``: the instant may be completed. Then it is taken off the timeline before its files go, so that
    no query misses rows of an instant that it counts as completed.
    """
    storage, clock = ctx.seams.storage, ctx.seams.clock
    instant, action = plan.instant, plan.action
    timeline = ctx.publisher.timeline() if shown else None
    if timeline is not None and all(i.requested != rollback for i in timeline.pending):
        return None
    was_completed = timeline is not None and _was_completed(ctx, timeline, plan)
    began = clock.monotonic_ms()
    create_once(storage, paths.timeline_file(f"{rollback}.{ROLLBACK}.{INFLIGHT}"))
    if shown:
        unpublish(storage, {instant})
    if was_completed:
        set_metadata_aside(ctx, {instant})
    indexed = _take_back(ctx, instant, rollback)
    forget_unshown(storage, instant)
    deleted: dict[str, list[str]] = {}
    for partition, _, name in list(_files_of(ctx, instant)):
        delete_with_checksum(storage, paths.in_partition(partition, name))
        deleted.setdefault(partition, []).append(name)
    _settle_removals(ctx, rollback, instant, deleted)
    forget_showing(storage, instant)
    metadata = encode_rollback_metadata(
        rollback_time=rollback,
        instant=instant,
        action=action,
        taken_ms=int(clock.monotonic_ms() - began),
        deleted=deleted,
        completion=plan.completion,
    )

    def not_done_yet(section: Section) -> str | None:
        done = any(
            i.requested == rollback and i.action == ROLLBACK and i.is_completed
            for i in section.timeline.instants
        )
        # If the rollback was archived since, its plan is gone.
        planned = section.timeline.has(f"{rollback}.{ROLLBACK}.{REQUESTED}")
        return "done" if done or not planned else None

    def remove_instant(time: str) -> None:
        # Inflight first: an instant that is only requested has nothing to lose. A completed compaction is a
        # ``commit``, but its plan is named ``compaction``.
        pending_as = (COMPACTION, COMMIT) if action == COMMIT else (action,)
        for name in pending_as:
            delete_with_checksum(storage, paths.timeline_file(_inflight_name(instant, name)))
        for name in pending_as:
            delete_with_checksum(storage, paths.timeline_file(f"{instant}.{name}.{REQUESTED}"))
        if plan.completion is not None:
            forget_begun_savepoint(storage, instant)

    with (
        prepared(ctx.seams, ROLLBACK, metadata) as private,
        RollbackRecord.kept(storage, ctx.seams.random, rollback, instant, indexed) as record,
    ):
        published = ctx.publisher.publish(
            lambda time: f"{rollback}_{time}.{ROLLBACK}",
            prepared=private,
            decide=not_done_yet,
            before_link=remove_instant,
            ahead=None if record is None else record.ahead,
        )
    if published.time is None and _is_there(ctx, instant):
        return None
    if action in _MERGES:
        remove_private_files(storage, {instant})
        for partition, _, name in list(_files_of(ctx, instant)):
            delete_with_checksum(storage, paths.in_partition(partition, name))
    storage.delete_tree(paths.marker_folder(instant))
    ctx.heartbeats.stop(instant)
    if published.time is None:
        return None
    steps.counted("rollbacks", 1, "{instant}", ctx.base, action=action)
    return RolledBackInstant(instant, action, rollback, sum(map(len, deleted.values())))


def _settle_removals(ctx: WriterContext, rollback: str, instant: str, deleted: Iterable[str]) -> None:
    """Make the removal of the instant's files durable, before the rollback completes.

    Otherwise a crash of the machine brings back a file that belongs to no instant. An earlier executor of the
    plan may have removed files and died, so the folders of the plan and of the markers count, too.
    """
    storage = ctx.seams.storage
    plan = load_rollback_plan(storage, rollback)
    folders = {*deleted, *(partition for partition, _ in marked_files(storage, instant))}
    folders |= plan.partitions if plan is not None else set()
    there = [folder for folder in sorted(folders) if not folder or storage.stat(folder) is not None]
    storage.settle([], there, durable=True)


def _is_there(ctx: WriterContext, instant: str) -> bool:
    """Whether a write instant is pending, completed or archived."""
    if shown_on_timeline(ctx.seams.storage, {instant}):
        return True
    return Archive.load(ctx.seams.storage, ctx.config.history).is_archived(instant)


def shown_on_timeline(storage: Storage, requested: Container[str]) -> list[Instant]:
    """Every state that the timeline has of the write instants in ``requested``."""
    found = (parse_instant(name) for name in sorted(storage.names(paths.TIMELINE)))
    return [i for i in found if i is not None and i.requested in requested and i.action in WRITE_ACTIONS]


def forget_begun_savepoint(storage: Storage, instant: str) -> None:
    """Removes the inflight savepoint file that a dead process left for an instant."""
    delete_with_checksum(storage, paths.timeline_file(f"{instant}.{SAVEPOINT}.{INFLIGHT}"))


def unpublish(storage: Storage, requested: Container[str]) -> None:
    """Makes completed instants pending again: newest first, durably, before any of their files is deleted."""
    done = [i for i in shown_on_timeline(storage, requested) if i.is_completed]
    for instant in sorted(done, key=lambda i: i.completion or "", reverse=True):
        delete_with_checksum(storage, paths.timeline_file(instant.file_name))
    storage.settle([], [paths.TIMELINE], durable=True)


def set_metadata_aside(ctx: WriterContext, instants: Collection[str]) -> None:
    """Sets the metadata table aside, if there is one, so that it is rebuilt.

    For completed instants that were taken off the timeline; call it before their files are deleted
    (``metadata.commits.setting_aside``).
    """
    if has_metadata_table(ctx.seams.storage):
        ctx.publisher.guarded(lambda section: set_aside(ctx.seams, section, instants))


def remove_private_files(storage: Storage, requested: Container[str]) -> None:
    """Removes private files of compactions whose plans are gone.

    An executor that checks its plan from now on sees that it is gone; one that checked before finds no file
    to link.
    """
    for name in sorted(storage.names(paths.PREPARED)):
        if name.partition("-")[0] in requested:
            storage.delete(f"{paths.PREPARED}/{name}")


def forget_unshown(storage: Storage, instant: str) -> None:
    """Removes the base files that an instant has not shown yet. From then on it shows none
    (``publish.showing``); so call it before its data files are listed."""
    if can_show(storage):
        storage.delete_tree(paths.unshown_folder(instant))


def forget_showing(storage: Storage, instant: str) -> None:
    """Removes the note of what an instant was about to show, once that is gone."""
    if can_show(storage):
        storage.delete(paths.showing_note(instant))


def delete_with_checksum(storage: Storage, path: str) -> None:
    """Removes a file and its checksum file, which Java has beside it (Hadoop's local file system)."""
    storage.delete(path)
    if has_links(storage):
        storage.delete(paths.checksum_file(path))


def _inflight_name(instant: str, action: str) -> str:
    return f"{instant}.{INFLIGHT}" if action == COMMIT else f"{instant}.{action}.{INFLIGHT}"


def _files_of(ctx: WriterContext, instant: str) -> Iterator[tuple[str, str, str]]:
    """(partition, file id, name) of every data file of an instant, by listing all partitions.

    Listing finds what markers miss (a machine crash may lose a marker); only names that parse as data
    files of this very instant are ever returned.
    """
    partitioned = bool(ctx.config.partition_fields)
    for listing in list_partitions(ctx.seams.storage, partitioned=partitioned):
        for name in listing.names:
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            if parsed is not None and parsed.instant == instant:
                yield listing.partition, parsed.file_id, name


def quietly_discard(ctx: WriterContext, instant: str) -> None:
    """Takes the instant of an empty transaction, which wrote nothing, off the timeline.

    The requested file goes last. After that, another writer may get the same time, and its heartbeat and
    markers have the same names.
    """
    storage = ctx.seams.storage
    ctx.heartbeats.stop(instant)  # if anything below fails, a later writer rolls the instant back
    try:
        storage.delete_tree(paths.marker_folder(instant))
        forget_unshown(storage, instant)
        storage.delete(paths.timeline_file(f"{instant}.{DELTACOMMIT}.{INFLIGHT}"))
        storage.delete(paths.timeline_file(f"{instant}.{DELTACOMMIT}.{REQUESTED}"))
    except (OSError, MainstemError):
        return
