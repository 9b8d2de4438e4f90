"""Removes what writers that died, or stalled for very long, leave beside the timeline.

- private files of publications that never finished, and rows that tasks handed to transactions that ended;
- on an object store, objects that were put in parts or tried the store, a day after their process died;
- metadata table folders left by creators of this table that died or found the table already created;
- heartbeats and marker folders of instants that are completed or gone (the writer died while tidying);
- inflight files of services whose plans were executed and archived, or taken back, meanwhile, on both
  timelines: Java would take a compaction's for a pending compaction, and miss its plan at every query;
- base files that an instant which is over never showed, and the note of those that it was about to show;
- data files of an instant that was rolled back while its writer was stopped, and that the writer still
  created when it woke up. No reader shows them at first, but once the instant is older than the active
  timeline, Java takes it for an archived, completed one and shows their rows;
- pending instants of the metadata table whose data instant is not pending, with the log files of those that
  were rolled back (``metadata.commits.taking_back``);
- on an object store, completed files of instants that were taken back, which a late put brought back;
- savepoints that were begun long ago: archiving would stop before their instants for good. They are removed
  under the lock. mainstem begins and publishes a savepoint in one section, so its maker is superseded by
  then.

Nothing else here touches a pending instant: rollbacks do that, under the lock.
"""

from __future__ import annotations

from contextlib import suppress

from mainstem.layout.partitions import list_partitions
from mainstem.lsm_archive.reader import Archive
from mainstem.metadata.commits.taking_back import last_change_ms, pending_there, sweep
from mainstem.publish.publisher import Guarded
from mainstem.publish.showing import can_show, take_back
from mainstem.storage import paths
from mainstem.storage.folders import move_folder
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.instant import REQUESTED, RESTORE, ROLLBACK, SAVEPOINT, Instant
from mainstem.timeline.plans import load_rollback_plan
from mainstem.timeline.restore_records import came_back, load_restore_plan
from mainstem.writers.context import WriterContext
from mainstem.writers.write_task import marked_files

# After this many heartbeat time-outs, the maker of a pending savepoint counts as dead.
_DEAD_AFTER = 10
_GONE = "-gone"
# No writer takes a day to copy what it has put, or to try a store.
_ABANDONED_MS = 86_400_000


def sweep_leftovers(ctx: WriterContext, *, thorough: bool) -> None:
    """Removes leftovers. ``thorough`` also lists all partitions, for files of rolled-back instants."""
    storage = ctx.seams.storage
    # List before the timeline: a heartbeat is made before its requested file.
    beats = {e.name: e.mtime_ms for e in storage.entries(paths.HEARTBEATS)}
    marked = storage.names(paths.TEMP)
    unshown = _unshown(storage)
    fence = (e.mtime_ms for e in storage.entries(paths.OWN if has_swaps(storage) else paths.FENCE))
    store_now_ms = max((*beats.values(), *fence), default=0)  # the store's clock, or a little less
    _sweep_private(ctx, paths.PREPARED, beats, store_now_ms)
    if thorough and ctx.look_for_keys is not None:
        _sweep_private(ctx, paths.TASK_ROWS, beats, store_now_ms)
    ctx.publisher.sweep()
    # List before the data timeline: a data instant is requested before the metadata table's.
    own = load_timeline(storage, paths.METADATA_TIMELINE)
    timeline = ctx.publisher.timeline()
    _sweep_marks(ctx, timeline)
    _sweep_metadata(ctx, own, timeline, store_now_ms)
    _sweep_savepoints(ctx, timeline, store_now_ms)
    _sweep_what_came_back(ctx, timeline)
    for instant in sorted({*beats, *marked, *unshown}):
        if paths.is_instant_time(instant) and _is_over(timeline, instant):
            if instant in beats and not ctx.heartbeats.expired(instant, store_now_ms):
                continue  # its writer may be tidying up
            _sweep_instant(ctx, timeline, instant)
    if thorough:
        _sweep_attempts(storage)
        sweep_abandoned(storage, store_now_ms)
        _sweep_rolled_back(ctx, timeline)


def _unshown(storage: Storage) -> set[str]:
    """Instants with files that they have not shown, or with a note of what they were about to show."""
    if not can_show(storage):
        return set()
    notes = filter(None, map(paths.parse_showing_note, storage.names(paths.FENCE)))
    return {*storage.names(paths.UNSHOWN), *notes}


def _sweep_attempts(storage: Storage) -> None:
    """Removes folders of attempts to create this table: it exists, so none of them can succeed.

    Moves each folder away in one step first: a creator that stood still may be about to put it in place, and
    must not find half of it.
    """
    if has_swaps(storage):
        return  # there every file was put where it belongs
    for name in sorted(storage.names(paths.OWN)):
        if not name.startswith(paths.CREATING):
            continue
        gone = name if name.endswith(_GONE) else name + _GONE
        if gone != name:
            with suppress(FileNotFoundError, FileExistsError):
                move_folder(storage, f"{paths.OWN}/{name}", f"{paths.OWN}/{gone}")
        storage.delete_tree(f"{paths.OWN}/{gone}")


def sweep_abandoned(storage: Storage, now_ms: int) -> None:
    """Removes objects that were put in parts, and whose writer died before it gave them their names; and
    those by which somebody tried the store who died meanwhile. ``now_ms``: the store's clock."""
    if not has_swaps(storage):
        return
    found = [(f"{paths.LONG}/{one.name}", one.mtime_ms) for one in storage.entries(paths.LONG)]
    tried = storage.entries(paths.OWN, prefix=paths.PROBE)
    found += [(f"{paths.OWN}/{one.name}", one.mtime_ms) for one in tried]
    storage.delete_all(path for path, time_ms in found if now_ms - time_ms > _ABANDONED_MS)


def _sweep_marks(ctx: WriterContext, timeline: ActiveTimeline) -> None:
    """Removes inflight files without a plan, and savepoint files without their instant.

    A plan is published before its inflight file is made and removed after it, and no time is used twice: an
    inflight file whose plan is gone never gets one again.
    """
    storage = ctx.seams.storage
    for mark in timeline.marks_without_plan:
        planned = f"{mark.requested}.{mark.action}.{REQUESTED}"
        if storage.stat(paths.timeline_file(planned)) is None:
            _delete_mark(storage, mark)
    # A savepoint may have begun while, or after, its instant was rolled back or removed by a restore.
    marks = [i for i in timeline.pending if i.action == SAVEPOINT]
    known = {i.requested for i in timeline.instants if i.action != SAVEPOINT} if marks else ()
    for mark in marks:
        if mark.requested not in known:
            _delete_mark(storage, mark)


def _sweep_metadata(
    ctx: WriterContext, own: ActiveTimeline, timeline: ActiveTimeline, now_ms: int
) -> None:
    """Removes pending instants of the metadata table whose data instant is over. Young ones stay: Java's
    writers may be about to begin theirs, and roll back what they find pending."""
    storage = ctx.seams.storage
    for mark in own.marks_without_plan:
        path = f"{paths.METADATA_TIMELINE}/{mark.requested}.{mark.action}"
        if storage.stat(f"{path}.{REQUESTED}") is None:
            storage.delete(f"{path}.{mark.state}")
    waiting = pending_there(own)
    known = {i.requested for i in timeline.instants} if waiting else ()
    for instant in waiting:
        if not _is_over(timeline, instant.requested):
            continue
        if now_ms - last_change_ms(storage, instant) > _DEAD_AFTER * ctx.heartbeats.silent_ms:
            gone = instant.requested not in known and not _may_be_archived(ctx, timeline, instant.requested)
            sweep(storage, instant, with_files=gone)


def begun_savepoints(
    ctx: WriterContext, timeline: ActiveTimeline, now_ms: int, *, dead: bool
) -> list[Instant]:
    """Pending savepoints: those whose maker is ``dead``, or else those that are being made.

    ``now_ms``: the store's clock. Java's may be in progress outside the lock, ours never are.
    """
    found = []
    for mark in (i for i in timeline.pending if i.action == SAVEPOINT):
        info = ctx.seams.storage.stat(paths.timeline_file(mark.file_name))
        old = info is not None and now_ms - info.mtime_ms > _DEAD_AFTER * ctx.heartbeats.silent_ms
        if info is not None and old is dead:
            found.append(mark)
    return found


def _sweep_savepoints(ctx: WriterContext, timeline: ActiveTimeline, now_ms: int) -> None:
    def forget(section: Guarded) -> None:
        for mark in begun_savepoints(ctx, section.timeline, now_ms, dead=True):
            _delete_mark(ctx.seams.storage, mark)

    if begun_savepoints(ctx, timeline, now_ms, dead=True):
        ctx.publisher.guarded(forget)


def _sweep_what_came_back(ctx: WriterContext, timeline: ActiveTimeline) -> None:
    """Removes completed files that a late put brought back after a restore or a rollback."""
    storage = ctx.seams.storage

    def forget(section: Guarded) -> None:
        for instant in came_back(storage, section.timeline):
            section.check()
            storage.delete(paths.timeline_file(instant.file_name))

    if came_back(storage, timeline):
        ctx.publisher.guarded(forget)


def _delete_mark(storage: Storage, mark: Instant) -> None:
    path = paths.timeline_file(mark.file_name)
    storage.delete(path)
    storage.delete(paths.checksum_file(path))


def _sweep_private(ctx: WriterContext, folder: str, beats: dict[str, int], store_now_ms: int) -> None:
    """Removes private files of dead processes. Waits long: a live publisher may wait long for the lock."""
    storage = ctx.seams.storage
    entries = storage.entries(folder)
    now_ms = max((store_now_ms, *(e.mtime_ms for e in entries)))
    for entry in entries:
        if now_ms - entry.mtime_ms <= max(60_000, ctx.heartbeats.silent_ms):
            continue
        owner = entry.name.partition("-")[0]
        if owner not in beats or ctx.heartbeats.expired(owner, now_ms):
            storage.delete(f"{folder}/{entry.name}")


def _is_over(timeline: ActiveTimeline, instant: str) -> bool:
    """Whether an instant is completed or gone.

    One at or above the newest time may be about to be requested. Below it, a begin that stood still may still
    make its request. Callers remove only expired heartbeats, and a begin that finds its heartbeat gone takes
    its request back (``publish.publisher``).
    """
    return instant < timeline.newest_time and all(i.requested != instant for i in timeline.pending)


def _sweep_instant(ctx: WriterContext, timeline: ActiveTimeline, instant: str) -> None:
    storage = ctx.seams.storage
    known = any(i.requested == instant for i in timeline.instants)
    if not known and not _may_be_archived(ctx, timeline, instant):
        for partition, name in list(marked_files(storage, instant)):
            storage.delete(paths.in_partition(partition, name))
        if can_show(storage):
            take_back(storage, instant)
    elif can_show(storage):
        storage.delete_tree(paths.unshown_folder(instant))
        storage.delete(paths.showing_note(instant))
    storage.delete_tree(paths.marker_folder(instant))
    storage.delete(paths.heartbeat(instant))


def _may_be_archived(ctx: WriterContext, timeline: ActiveTimeline, instant: str) -> bool:
    """Whether it may be archived: before the active timeline, or (after a savepoint) in a gap of it."""
    if timeline.start is None or instant < timeline.start:
        return True
    return Archive.load(ctx.seams.storage, ctx.config.history).is_archived(instant)


def _sweep_rolled_back(ctx: WriterContext, timeline: ActiveTimeline) -> None:
    gone = _rolled_back(ctx, timeline)
    if not gone:
        return
    storage = ctx.seams.storage
    partitioned = bool(ctx.config.partition_fields)
    for listing in list_partitions(storage, partitioned=partitioned):
        for name in listing.names:
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            if parsed is not None and parsed.instant in gone:
                storage.delete(paths.in_partition(listing.partition, name))


def _rolled_back(ctx: WriterContext, timeline: ActiveTimeline) -> set[str]:
    """Instants that a completed rollback or restore on the active timeline removed."""
    storage = ctx.seams.storage
    gone: set[str] = set()
    for instant in timeline.completed:
        if instant.action == ROLLBACK:
            plan = load_rollback_plan(storage, instant.requested)
            gone.update(() if plan is None else (plan.instant,))
        elif instant.action == RESTORE:
            removed = load_restore_plan(storage, instant.requested)
            gone.update(() if removed is None else (i.requested for i in removed.instants))
    gone -= {i.requested for i in timeline.instants}
    # Java rolls back a compaction attempt and executes its plan again: that may be archived by now.
    archive = Archive.load(storage, ctx.config.history)
    return {instant for instant in sorted(gone) if not archive.is_archived(instant)}
