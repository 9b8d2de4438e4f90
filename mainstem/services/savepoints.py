"""Savepoints: a savepoint keeps an instant's files, so that the table can be restored to it.

  list the partitions -> [[ lock: is the instant completed and on the timeline? are all its files there and
  not about to be cleaned? -> t.savepoint.inflight -> publish t_c.savepoint, with the list of files ]]

Cleaning keeps the files that a savepoint names, and archiving stops before the instant. Both check under
the same lock that publishes savepoints, so either they see the savepoint or it sees their plan.

A crash before the publication leaves at most an empty ``t.savepoint.inflight``, which has no effect: the next
savepoint of the instant reuses it, ``delete_savepoint`` removes it, and so do writers once it is old
(``writers.leftovers``). A process that wakes up late is fenced (``publish.link_fence``): it may create that
empty file, but not the savepoint.

Hudi: ``SavepointActionExecutor``, ``SavepointHelpers``.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import Invalid, Unavailable
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.publish.publisher import Guarded, Section
from mainstem.publish.staging import create_once, preparing
from mainstem.readers.planning.table_state import WRITES
from mainstem.services.compaction_plan import FileListing
from mainstem.services.restore_view import kept_for
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.instant import INFLIGHT, SAVEPOINT, Instant
from mainstem.timeline.restore_records import (
    SavepointRecord,
    decode_savepoint,
    encode_savepoint,
    load_restore_plan,
    pending_restores,
)
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import delete_with_checksum


@dataclass(frozen=True)
class Savepoint:
    """A completed savepoint.

    ``instant``: requested time of the instant that it keeps; ``made``: its completion time; ``files``: how
    many files it keeps.
    """

    instant: str
    made: str
    user: str
    comment: str
    files: int

    def describe(self) -> str:
        """One line for people."""
        by = f" by {self.user}" if self.user else ""
        text = f": {self.comment}" if self.comment else ""
        return f"savepoint {self.instant}, made {self.made}{by}, keeps {self.files:,} files{text}"


def create(
    ctx: WriterContext, instant: str | None = None, *, user: str = "", comment: str = ""
) -> Savepoint:
    """Make a savepoint of a completed instant, by default of the one completed last.

    An existing savepoint is returned unchanged. Raises ``Invalid`` for an instant that is not completed,
    is archived, or whose files a clean has removed or is about to remove.
    """
    for role, text in (("user", user), ("comment", comment)):
        if not isinstance(text, str):
            raise Invalid(f"{role} of a savepoint: {text!r}, expected text", table=ctx.base)
    try:
        return _create(ctx, instant, user, comment)
    except OSError as error:
        raise Unavailable(
            f"the savepoint was not made: {error}; try again", table=ctx.base, instant=instant
        ) from error


def _create(ctx: WriterContext, instant: str | None, user: str, comment: str) -> Savepoint:
    storage = ctx.seams.storage
    target = _target(ctx, instant)
    listing = FileListing(storage, ctx.config)
    kept_files = 0

    def content(timeline: ActiveTimeline) -> str:
        nonlocal kept_files
        ctx.reread_config()
        state, files = listing.now()
        if state.archive.is_archived(target.requested):
            raise Invalid(
                f"{target.requested} is archived, and archived instants cannot be saved; an archiver stopped"
                " halfway, and the next archiving removes its files from the active timeline",
                table=ctx.base,
                instant=target.requested,
            )
        try:
            kept = kept_for(state, _completed(state.timeline, target.requested), files)
        except Invalid as error:
            raise Invalid(
                f"no savepoint of {target.requested} is possible: {error.message}",
                table=ctx.base,
                instant=target.requested,
            ) from error
        now_ms = int(ctx.seams.clock.now_ms())
        kept_files = sum(map(len, kept.values()))
        names = {partition: tuple(found) for partition, found in kept.items()}
        return prepare(encode_savepoint(SavepointRecord(user, comment, now_ms, names)))

    def there_already(section: Section) -> Instant | None:
        return _find(section.timeline, target.requested)

    inflight = paths.timeline_file(f"{target.requested}.{SAVEPOINT}.{INFLIGHT}")

    def put_inflight(time: str) -> None:
        create_once(storage, inflight)

    with preparing(ctx.seams, SAVEPOINT) as prepare:
        published = ctx.publisher.publish(
            lambda time: f"{target.requested}_{time}.{SAVEPOINT}",
            prepared=content,
            decide=there_already,
            before_link=put_inflight,
        )
    if published.decision is not None:
        return _read(storage, published.decision)
    assert published.time is not None
    return Savepoint(target.requested, published.time, user, comment, kept_files)


def _target(ctx: WriterContext, instant: str | None) -> Instant:
    timeline = ctx.publisher.timeline()
    if instant is not None:
        return _completed(timeline, instant, ctx.base)
    done = [i for i in timeline.completed if i.action in WRITES]
    if not done:
        raise Invalid("nothing is completed yet, so there is nothing to save", table=ctx.base)
    return max(done, key=lambda i: i.completion or "")


def _completed(timeline: ActiveTimeline, requested: str, base: str | None = None) -> Instant:
    for instant in timeline.instants:
        if instant.requested == requested and instant.comparable_action in WRITES:
            if instant.is_completed:
                return instant
            raise Invalid(
                f"the {instant.action} {requested} is {instant.state}: only a completed instant can be saved",
                table=base,
                instant=requested,
            )
    raise Invalid(
        f"{requested} is no write on the active timeline (archived instants cannot be saved): see the"
        " timeline (Table.timeline(), mainstem timeline PATH)",
        table=base,
        instant=requested,
    )


def savepoint_instants(timeline: ActiveTimeline) -> list[Instant]:
    """Completed savepoints, ordered by the requested time of the instants that they keep."""
    return [i for i in timeline.completed if i.action == SAVEPOINT]


def _find(timeline: ActiveTimeline, requested: str) -> Instant | None:
    return next((i for i in savepoint_instants(timeline) if i.requested == requested), None)


def load_savepoint(storage: Storage, instant: Instant) -> SavepointRecord:
    """Content of a completed savepoint; ``FileNotFoundError`` if it was deleted since."""
    path = paths.timeline_file(instant.file_name)
    return decode_savepoint(storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX), path=path)


def _read(storage: Storage, instant: Instant) -> Savepoint:
    record = load_savepoint(storage, instant)
    files = sum(map(len, record.files.values()))
    return Savepoint(instant.requested, instant.completion or "", record.user, record.comment, files)


def savepoints(storage: Storage) -> list[Savepoint]:
    """All savepoints, oldest instant first."""
    found = []
    for instant in savepoint_instants(load_timeline(storage)):
        try:
            found.append(_read(storage, instant))
        except FileNotFoundError:
            continue  # deleted since the timeline was listed
    return found


def delete(ctx: WriterContext, instant: str) -> None:
    """Remove a savepoint: cleaning and archiving no longer keep its files.

    Raises ``Invalid`` if there is none. The completed file goes first, so the savepoint either exists or is
    gone. This happens under the lock, because the savepoint's own time may be the newest on the timeline, and
    must not be issued again.
    """
    storage = ctx.seams.storage
    inflight = f"{instant}.{SAVEPOINT}.{INFLIGHT}"

    def remove(section: Guarded) -> None:
        timeline = section.timeline
        found = [i for i in savepoint_instants(timeline) if i.requested == instant]
        if not found and not timeline.has(inflight):
            known = ", ".join(i.requested for i in savepoint_instants(timeline)) or "none"
            raise Invalid(f"there is no savepoint of {instant}; there are {known}", table=ctx.base)
        for restore in pending_restores(timeline):
            plan = load_restore_plan(storage, restore)
            if plan is not None and plan.savepoint == instant:
                raise Unavailable(
                    f"the restore {restore} to this savepoint is not finished: finish it, then delete",
                    table=ctx.base,
                    instant=instant,
                )
        section.note_newest(timeline.newest_time)
        section.check()
        for name in (*(i.file_name for i in found), inflight):
            delete_with_checksum(storage, paths.timeline_file(name))
        storage.settle([], [paths.TIMELINE], durable=True)

    try:
        ctx.publisher.guarded(remove)
    except OSError as error:
        raise Unavailable(
            f"the savepoint {instant} was not deleted: {error}; try again", table=ctx.base
        ) from error
