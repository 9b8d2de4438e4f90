"""The one way to publish: every timeline file of mainstem that shows or promises something passes through
``Publisher.publish``. ``_section`` is all of it, in numbered steps.

Two relatives: ``Publisher.guarded`` runs the same kind of section for work that replaces a file instead of
adding an instant (the archive's ``_version_``, say). ``Publisher.begin`` creates the one file that promises
nothing yet, the request of a write, and does not enter the fence.

**Two files.** On a table with a metadata table the section publishes two files (``Ahead``). Both are in the
fence from the entry on. Both times lie above everything on both timelines, the metadata table's below the
data table's. The metadata table's file is durable before the data table's is linked. If the process dies or
is superseded between the two, the instant is completed on the metadata table and pending on the data table,
and every reader hides it.

A superseded section publishes nothing more, takes a new lease and starts again.

**A sync that is shared** (``shares_sync``). Under the lock a sync makes all other writers wait for the disk,
one after another. So a write that only adds rows frees the lock once its file is linked, makes the folder
durable then, and is acknowledged after that. Syncs of several processes run at once. What others do meanwhile
by what they see of it is no more durable than it is:

- What they publish lies in the same folder, and their own sync makes the earlier name durable, too. That
  holds for each plan, before anything is done by it.
- It replaces and hides nothing. So nothing may be taken away, or shown, because it completed.
- Whoever tells that this very batch is committed already makes the folder durable first
  (``writers.stream_guard``, ``stream_positions``).

Readers saw a file before it was durable in any case: they take no lock.

**Why begin needs no fence.** A request shows nothing and deletes nothing. It must only keep two promises (for
the second, where many writers share a store, see ``_request``):

- *No other instant has its time T.* T lies above everything listed under the lock; heartbeat and request are
  created exclusively; writes begin at odd milliseconds, and what the fence publishes has even ones.
- *T lies above everything that completed before the request was visible.* ``begin`` lists the timeline again
  once the request is there. If something was published meanwhile with T or a later time, it removes the
  request and tries another T. So a process that stood still and lost the lock finds out.

A section that listed the timeline just before such a late request does not know of it. That does no harm:
only a restore removes what it finds pending, and a commit that finds a restore requested after its own T
gives up.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Concatenate, Generic, ParamSpec, TypeVar

from mainstem.errors import LeaseLost, MainstemError, OutcomeUnknown, Unavailable, Unsupported
from mainstem.limits import PUBLISH_ATTEMPTS_MAX
from mainstem.options.locks import EXPIRE_MS
from mainstem.publish.fence import Epoch, Fence, Notes
from mainstem.publish.showing import Showing, take_back
from mainstem.publish.skew_wait import MixedWritersWarning, SkewWait
from mainstem.storage import paths
from mainstem.storage.links import NotDurable
from mainstem.storage.protocol import EMPTY, Storage
from mainstem.storage.side_by_side import looked
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import ActiveTimeline, TimelineReader
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, REQUESTED, RESTORE, parse_instant
from mainstem.timeline.restore_records import pending_restores
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.locks.protocol import Lease
from mainstem.truetime.seams import Seams

__all__ = ["Ahead", "Guarded", "MixedWritersWarning", "Published", "Publisher", "Section", "quietly"]

# How long a section without a lock is tried again while others are faster.
_LOCK_FREE_PATIENCE_MS = 300_000.0

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class Held:
    """What the lock cost: attempts, milliseconds held, milliseconds waited for it."""

    attempts: int = 1
    held_ms: float = 0.0
    lock_wait_ms: float = 0.0


@dataclass(frozen=True)
class Published(Generic[T]):
    """What one publication did.

    Either ``target`` is visible, completed at ``time``; or the caller's checks ended it with a ``decision``,
    and the other two are None; or there was nothing to publish, and all three are None.
    """

    time: str | None = None
    target: str | None = None
    decision: T | None = None
    held: Held = Held()


@dataclass(frozen=True)
class Begun:
    """A write that has begun. ``time``: its requested time."""

    time: str
    held: Held


@dataclass(frozen=True)
class Ahead:
    """A file of the metadata table's timeline that becomes visible just before the published one.

    ``name(time)``: its name there; ``prepared``: a durable private file with its content; ``folders`` of the
    metadata table are made durable after it. ``ready`` is called under the lock, after the caller's checks,
    with the metadata table's timeline. It creates the instant's requested and inflight files there and
    returns whether the instant must still be published.
    """

    folders: tuple[str, ...]
    prepared: str
    name: Callable[[str], str]
    ready: Callable[[ActiveTimeline], bool]


@dataclass(frozen=True)
class Section:
    """What the caller's checks see, under the lock."""

    timeline: ActiveTimeline
    epoch: Epoch
    #: the store's own clock at the entry, or a little earlier, in milliseconds
    store_now_ms: Callable[[], int]
    #: what ``beside`` returned, which ran after the entry; None where it did not run
    beside: object = None

    @property
    def decided(self) -> Mapping[str, bytes]:
        """Contents of completed files of the timeline that may not be there yet, by name (``carries``)."""
        return self.epoch.decided


@dataclass(frozen=True)
class Guarded:
    """What work under the lock may use (``Publisher.guarded``). The timeline was listed in this epoch."""

    storage: Storage
    lease: Lease
    epoch: Epoch
    timeline: ActiveTimeline

    def check(self) -> None:
        """Raises ``LeaseLost`` if another section took over: then nothing may be deleted any more."""
        self.lease.check()
        self.epoch.check()

    def note_newest(self, time: str) -> None:
        """No instant may get this time or an earlier one: its file is about to leave the timeline."""
        self.epoch.note_newest(time)

    def replace(self, prepared: str, target: str) -> None:
        """Replace ``target`` by ``prepared`` in one step. Raises ``LeaseLost`` if superseded.

        A section that took over has either made this impossible or sees what this one did. After any other
        ``OSError`` it may or may not have taken effect.
        """
        self.lease.check()
        self.epoch.replace(prepared, target)


@dataclass
class _Order(Generic[T]):
    """The arguments of ``Publisher.publish``, and what its latest attempt has seen."""

    target: Callable[[str], str]
    prepared: str | Callable[[ActiveTimeline], str | None] | None
    decide: Callable[[Section], T | None]
    before_link: Callable[[str], None]
    ahead: Ahead | None
    folder: str
    keeps_time: bool
    beside: Callable[[], object] | None
    carries: bool
    showing: Showing | None
    shares_sync: bool
    tried: Epoch | None = None
    read: object = None
    owed: bool = False

    @property
    def on_both(self) -> bool:
        """Whether the time must also lie above the metadata table's times."""
        return self.ahead is not None or self.folder != paths.TIMELINE


@dataclass
class _Try:
    """A time whose heartbeat this ``begin`` made. ``put``: it may have created the request, too."""

    time: str
    put: bool = False


def _changed(before: ActiveTimeline, after: ActiveTimeline) -> bool:
    """Whether an instant completed, or another plan appeared, between two listings.

    The entry into the fence lies between them: what others had decided may become visible there.
    """
    names = [{i.file_name for i in timeline.completed} for timeline in (before, after)]
    if names[0] != names[1]:
        return True
    new = map(parse_instant, after.since(before))
    return any(i is not None and i.state == REQUESTED and i.action != DELTACOMMIT for i in new)


class _NoLease:
    """Of a section that took no lock."""

    def check(self) -> None:
        """It cannot be lost: the fence alone decides."""

    def release(self) -> None:
        """There is nothing to release."""


_NO_LEASE: Lease = _NoLease()


class _NeedsLock(LeaseLost):
    """A section without a lock is about to swap the gate before it publishes.

    Of several that only overtook one another by such swaps, none would ever end.
    """


def _release(lease: Lease) -> None:
    """Release the lock, even if an interrupt (Ctrl-C) comes just now: all other processes wait for it.

    Failures are ignored. They must not turn a visible commit into an error, and a lock that is kept
    expires."""
    try:
        quietly(lease.release)
    except BaseException:
        quietly(lease.release)
        raise


def quietly(step: Callable[[], object]) -> None:
    """Call ``step``, whose failure changes nothing: what it would have removed goes with a later sweep."""
    try:
        step()
    except (OSError, MainstemError):
        return


class Publisher:
    """Publishes the instants of one table for one process.

    ``skew``: how times keep clear of other machines' clocks; on an ``exclusive`` table
    (``hoodie.mainstem.exclusive=true``) no section waits for that until another kind of writer is seen. The
    fence knows which table was opened, and lets nothing be begun or published on another one
    (``TableReplaced``).
    ``lock_free``: writers of an exclusive table take no lock: the fence alone keeps them apart, and a section
    that others overtook is run again.
    """

    def __init__(
        self,
        seams: Seams,
        times: InstantTimes,
        fence: Fence,
        *,
        skew: ClockSkew,
        exclusive: bool,
        lock_free: bool = False,
    ) -> None:
        self._seams = seams
        self._times = times
        self._fence = fence
        self._skew = skew
        self._wait = SkewWait(seams.storage, exclusive=exclusive)
        self._learned = False
        self._lock_free = exclusive and lock_free
        self._reader = TimelineReader(seams.storage, stays=True)
        self._metadata_reader = TimelineReader(seams.storage, paths.METADATA_TIMELINE, stays=True)
        self._metadata_seen: ActiveTimeline | None = None
        #: the newest time that this process gave, or found noted in the fence's folder
        self._last_time = ""
        #: what was noted beside the fence when a begin looked last
        self._notes: Notes | None = None
        #: others published between this process's latest publication and its latest begin
        self._crowded = False

    def timeline(self) -> ActiveTimeline:
        """A listing outside the lock."""
        return self._reader.load()

    def metadata_timeline(self) -> ActiveTimeline:
        """A listing of the metadata table's timeline, outside the lock."""
        return self._metadata_reader.load()

    def metadata_seen(self) -> ActiveTimeline:
        """The metadata table's timeline as this process's latest commit left it, or listed now."""
        seen, self._metadata_seen = self._metadata_seen, None
        return seen or self.metadata_timeline()

    def settle(self) -> None:
        """Before the timeline is asked how a commit of unknown outcome ended (``Fence.settle``)."""
        self._fence.settle()

    def end_doubt(self) -> None:
        """Before a process asks the timeline how its own publication ended, which was interrupted.

        Nothing that was sent before this call is decided after it. On a disk nothing is under way once a call
        is over; on a store the gate must be swapped. Raises as ``guarded``.
        """
        if has_swaps(self._seams.storage):
            self.guarded(lambda section: None)

    def sweep(self) -> None:
        """Remove what sections that failed left beside the fence."""
        self._fence.sweep()

    def foreign_seen(self) -> bool:
        """Whether another kind of writer was noted on the table."""
        return self._fence.look().foreign_seen

    @property
    def _foreign_noted(self) -> bool:
        """``foreign_seen`` when the fence was looked at last."""
        return self._notes is not None and self._notes.foreign_seen

    @property
    def remembers(self) -> bool:
        """Whether a write is planned by what this process saw last, as on a store, where each look costs a
        request. Its commit looks again."""
        return has_swaps(self._seams.storage)

    def now(self) -> str:
        """This machine's clock as an instant time; nothing is ordered by it."""
        return self._times.format(self._seams.clock.now_ms())

    # -- publish -----------------------------------------------------------------------------------

    def publish(
        self,
        target: Callable[[str], str],
        *,
        prepared: str | Callable[[ActiveTimeline], str | None] | None = None,
        decide: Callable[[Section], T | None] = lambda section: None,
        before_link: Callable[[str], None] = lambda time: None,
        ahead: Ahead | None = None,
        folder: str = paths.TIMELINE,
        keeps_time: bool = False,
        beside: Callable[[], object] | None = None,
        carries: bool = False,
        showing: Showing | None = None,
        shares_sync: bool = False,
    ) -> Published[T]:
        """Publish one file. ``target(time)`` names it inside the timeline folder.

        ``prepared`` is a durable private file with the content (None: an empty file). Or it is a function
        that makes one under the lock, from the timeline listed there: a plan must know every instant
        completed before its own time. If it returns None, nothing is published. ``decide`` raises to refuse,
        or returns a value to end without publishing. ``before_link(time)`` runs once the time is chosen.
        ``ahead``: a file of the metadata table that is published first. ``folder``: the timeline that gets
        the file; if it is the metadata table's, the time lies above both timelines. ``keeps_time``: if
        the file is named after its time, note that beside the fence first, for writers that list the data
        table's timeline only. ``beside``: a read that ``decide`` needs (``Section.beside``); a store makes it
        while it lists the timeline. ``carries``: the file is a delta commit's, and ``decide`` reads completed
        files in ``Section.decided`` first. ``showing``: data files that get their names just before it. If
        they were shown and the section failed, it runs again, and ``decide`` must refuse. ``shares_sync``:
        the file is that of a write which only adds rows (see the module's text).

        Raises ``LockUnavailable``, ``LeaseLost`` (superseded many times, nothing published),
        ``OutcomeUnknown`` (the link failed, and may or may not have taken effect).
        """
        self._learn()
        order = _Order(
            target, prepared, decide, before_link, ahead, folder, keeps_time, beside, carries, showing,
            shares_sync and ahead is None and showing is None,
        )  # fmt: skip
        published, held = self._attempts("publishing", self._section, order)
        if order.shares_sync and published.target is not None:
            # 8. The lock is free again, and others publish. One sync makes durable what all of them linked.
            self._sync(folder, published.target)
        return replace(published, held=held)

    def _section(self, lease: Lease, order: _Order[T]) -> Published[T]:
        """One critical section; the lock is held."""
        # 1. A plan is made from the timeline as listed under the lock.
        content, planned_on = order.prepared, None
        if callable(content):
            planned_on = self._reader.load()
            self._refuse_beside_restore(planned_on, order)
            content = content(planned_on)
            if content is None:
                return Published()
        # 2. Enter the fence: earlier holders of the lock publish nothing any more.
        ahead = order.ahead
        epoch = self._fence.enter(
            content, None if ahead is None else ahead.prepared, carries=order.carries, again=order.tried
        )
        try:
            # 3. List the timeline. It shows everything that others published; the caller decides by it.
            timeline, beside = self._look(epoch, order)
            self._refuse_unlocked(lease, epoch.notes)
            self._sweep_shown(epoch, timeline)
            if planned_on is not None and _changed(planned_on, timeline):
                raise LeaseLost("an instant completed, or another plan appeared, while the plan was made")
            decision = order.decide(Section(timeline, epoch, _store_clock(lease, epoch), beside))
            if decision is not None:
                return Published(decision=decision)
            self._refuse_beside_restore(timeline, order)
            if not epoch.told:  # else there is nobody's file that was not there before
                crowded = self._crowded and lease is _NO_LEASE
                order.owed = self._wait.is_owed(
                    timeline, epoch.notes.foreign_seen, epoch.note_foreign, patient=crowded
                )
            # 4. A time above everything listed, for each file; the metadata table's first.
            newest = max(timeline.newest_time, self._last_time, epoch.notes.newest)
            first = None
            if order.on_both:
                metadata = self._metadata_reader.load()
                newest = max(newest, metadata.newest_time)
                if ahead is not None and ahead.ready(metadata):
                    newest = first = self._time(newest)
            time = self._time(newest)
            # 5. Once the lock is free, no other writer's clock may show this time or an earlier one.
            self._keep_clear(time, order.owed)
            # 6. The metadata table's file becomes visible, and durable.
            if ahead is not None and first is not None:
                self._go_ahead(epoch, lease, ahead, first)
            # 7. The file becomes visible, and durable (see 8 in ``publish``): here the commit happens.
            if order.keeps_time and order.target(time).startswith(time):
                epoch.note_newest(time)
            order.before_link(time)
            lease.check()
            target = f"{order.folder}/{order.target(time)}"
            try:
                if order.showing is not None:
                    order.showing.show(epoch)
                    lease.check()
                publish = partial(epoch.publish, durable=not order.shares_sync)
                self._link(publish, epoch.published, target, [order.folder])
            except NotDurable as error:
                raise _unsynced(target, error, self._seams.storage.base) from error
            except OutcomeUnknown:
                raise
            except (OSError, MainstemError):  # nothing was published
                if order.showing is not None:
                    quietly(order.showing.take_away)
                raise
            if order.showing is not None:
                quietly(order.showing.forget)
            self._last_time = time
            if self.remembers:
                self._note_own(order.folder, order.target(time))
            if ahead is not None and first is not None:
                self._metadata_seen = self._metadata_reader.noted(ahead.name(first))
            return Published(time, order.target(time))
        finally:
            epoch.leave()

    def _sync(self, folder: str, target: str) -> None:
        try:
            self._seams.storage.settle([], [folder], durable=True)
        except OSError as error:
            raise _unsynced(target, error, self._seams.storage.base) from error

    def _learn(self) -> None:
        """Once per process, before it takes the lock: whose the instants of an exclusive table are. A long
        timeline has thousands of them, of which each is a read."""
        if not self._learned and not self._wait.is_always_owed(self._foreign_noted):
            self._wait.is_owed(self._reader.load(), False, self._fence.note_foreign)
        self._learned = True

    def _time(self, newest: str, *, begins: bool = False) -> str:
        """The next time above ``newest``."""
        reading = self._skew.reading(self._seams.clock.now_ms())
        return self._times.next(reading, newest, begins=begins)

    def _keep_clear(self, time: str, owed: bool) -> None:
        """Wait until ``time`` lies below the clocks of all other machines, if that is ``owed``."""
        clock = self._seams.clock
        if owed:
            clock.sleep_ms(self._skew.left_ms(self._times.ahead_ms(time, clock.now_ms())))

    def _go_ahead(self, epoch: Epoch, lease: Lease, ahead: Ahead, time: str) -> None:
        """Publish the metadata table's file, durably: a crash must not keep only the data table's."""
        lease.check()
        target, folders = f"{paths.METADATA_TIMELINE}/{ahead.name(time)}", ahead.folders
        self._link(lambda to: epoch.publish_ahead(to, folders), epoch.published_ahead, target, folders)

    def _look(self, epoch: Epoch, order: _Order[T]) -> tuple[ActiveTimeline, object]:
        """The timeline and what ``beside`` reads, at the same time where both are requests."""
        looks: list[Callable[[], object]] = [lambda: epoch.listed]
        if order.beside is not None and self.remembers:
            looks.insert(0, order.beside)
        if not epoch.told:  # else what was read then still holds, as whoever replaces it decides that, too
            order.read = looked(self._seams.storage, looks)[0]
        order.tried = epoch
        self._wait.note_own(*epoch.ours)
        return self._reader.load(epoch.listed), order.read if len(looks) > 1 else None

    def _sweep_shown(self, epoch: Epoch, timeline: ActiveTimeline) -> None:
        """Take away what an earlier section showed of an instant that it did not complete, and cannot any
        more. ``timeline`` was listed after the entry. What is neither completed nor pending there may be
        archived: ``writers.leftovers`` asks."""
        storage = self._seams.storage
        for instant in epoch.notes.showing:
            if timeline.completion_of(instant, DELTACOMMIT) is not None:
                quietly(partial(storage.delete, paths.showing_note(instant)))
            elif timeline.has(f"{instant}.{DELTACOMMIT}.{REQUESTED}"):
                take_back(storage, instant)

    def _refuse_unlocked(self, lease: Lease, notes: Notes) -> None:
        """Run the section again under the lock once another kind of writer was seen, which knows no fence."""
        if lease is _NO_LEASE and notes.foreign_seen:
            self._notes = notes
            raise LeaseLost("another kind of writer was seen: from now on every section takes the lock")

    def _note_own(self, folder: str, name: str) -> None:
        """What this process published need be neither listed nor judged again."""
        if folder == paths.TIMELINE:
            self._reader.noted(name)
            self._wait.note_own(name)

    def seen(self) -> ActiveTimeline:
        """The timeline as this process's latest section left it, where nobody needs a newer one: the commit
        looks again under the fence. Else a listing."""
        seen = self._reader.last
        return seen if self.remembers and seen.count else self._reader.load()

    def _refuse_beside_restore(self, timeline: ActiveTimeline, order: _Order[T]) -> None:
        """While a restore is pending, publish nothing else: the restore might remove it, or something that it
        rests on (``services.restoring``)."""
        waiting = pending_restores(timeline)
        instant = parse_instant(order.target(timeline.newest_time)) if waiting else None
        if waiting and (instant is None or instant.action != RESTORE):
            raise Unavailable(
                f"the restore {waiting[-1]} is not finished, and nothing else is published before it is: wait"
                " for it or, if its process died, finish it (Table.restore(), mainstem restore PATH)",
                table=self._seams.storage.base,
                instant=waiting[-1],
            )

    def _link(
        self,
        link: Callable[[str], None],
        linked: Callable[[str], bool],
        target: str,
        folders: Sequence[str],
    ) -> None:
        """Call ``link``, which also makes the names in ``folders`` durable. If it fails, ``linked`` tells
        whether the target is ours all the same.

        Raises ``NotDurable`` if the target is there, but a crash of the machine may take it away.
        """
        storage = self._seams.storage
        try:
            link(target)
        except NotDurable:
            raise
        except (FileExistsError, LeaseLost) as error:
            # A network file system repeats a call whose reply was lost, and the repetition fails.
            if self._applied(lambda: linked(target), target, error, folders):
                return
            if isinstance(error, LeaseLost):
                raise
            raise LeaseLost(f"{target} was created by another holder of the lock") from error
        except OSError as error:
            # Only this section gives the target's name: if it exists, the link worked and its reply was lost.
            if self._applied(lambda: storage.stat(target) is not None, target, error, folders):
                return
            kind = "the disk is full" if error.errno == errno.ENOSPC else str(error)
            raise Unavailable(
                f"publishing {target} failed: {kind}; nothing was published", table=storage.base
            ) from error

    def _applied(
        self, look: Callable[[], bool], target: str, error: Exception, folders: Sequence[str]
    ) -> bool:
        """What ``look`` returns. Raises ``OutcomeUnknown`` if storage does not answer."""
        storage = self._seams.storage
        try:
            applied = look()
        except OSError:
            raise OutcomeUnknown(
                f"publishing {target} failed ({error}) and storage does not answer: it may or may not be"
                " visible; look at the timeline before writing again, delete nothing",
                table=storage.base,
            ) from error
        if applied:
            try:
                storage.settle([], folders, durable=True)
            except OSError as unsynced:
                raise NotDurable(unsynced.errno, unsynced.strerror, target) from unsynced
        return applied

    # -- begin -------------------------------------------------------------------------------------

    def begin(self, action: str, heartbeats: Heartbeats, *, with_metadata: bool = False) -> Begun:
        """Create the request of a write; its time lies above everything that completed before.

        ``with_metadata``: the table has a metadata table, on whose timeline the write will have this time,
        too; Java gives instants there times of its clock, under the same lock.

        The write's heartbeat exists before the request does. Raises ``LockUnavailable``, ``Unsupported``
        beside a pending restore, ``TableReplaced``, ``LeaseLost``, ``OSError``; it removes its requests and
        heartbeats then, as far as storage lets it.
        """
        if self._notes is None:
            self._look_at_fence()
        self._learn()
        tried: list[_Try] = []
        for _ in range(PUBLISH_ATTEMPTS_MAX):
            try:
                (time, before, first), held = self._attempts(
                    "beginning", self._request, action, heartbeats, tried, with_metadata
                )
                # 5. The request is there, and the lock is free again. List the fence and the timeline once
                #    more: is it still the table that was opened, are request and heartbeat there, and does
                #    every instant published meanwhile have an earlier time?
                notes, name = self._look_at_fence(), f"{time}.{action}.{REQUESTED}"
                self._crowded = notes.moved
                if self._lock_free and (not notes.moved or notes.only_commits) and not notes.foreign_seen:
                    # Since this process's latest section others published commits at most.
                    timeline = self._reader.noted(name)
                else:
                    timeline = self._reader.load()
                self._refuse_to_begin(timeline)
                there = timeline.has(name) and heartbeats.kept(time)
                # What completed beside this begin, and is no plan, may have a later time.
                beside = first is not None and first.epoch >= notes.commits_from
                above = beside or (notes.newest < time and not _overtaken(time, before, timeline))
                if there and above:
                    if self._lock_free:
                        self._wait.note_own(name, f"{time}.{action}.{INFLIGHT}")
                    return Begun(time, held)
            except BaseException:
                self._take_back(action, heartbeats, tried)
                raise
            self._take_back(action, heartbeats, tried)
        raise LeaseLost(
            f"{PUBLISH_ATTEMPTS_MAX} times in a row instants completed while a write was begun",
            table=self._seams.storage.base,
        )

    def _request(
        self, lease: Lease, action: str, heartbeats: Heartbeats, tried: list[_Try], with_metadata: bool
    ) -> tuple[str, ActiveTimeline, Notes | None]:
        """The critical section of ``begin``. ``tried``: heartbeats and requests of superseded attempts.

        Among many writers commits complete all the time while a write begins. They ran beside it, so the
        write's time need only lie above what was decided before it made its heartbeat, and above all that is
        no commit. So the fence is looked at then, too, and ``begin`` compares.

        Returns the time, the timeline that it goes by, and what was noted beside the fence when the heartbeat
        was made, if that was looked at.
        """
        self._take_back(action, heartbeats, tried)  # of an attempt that was superseded
        # 1. List the timeline; choose a time above everything listed.
        foreign_seen = self._foreign_noted
        listings = [self.seen if lease is _NO_LEASE else self._reader.load]
        if with_metadata and self._wait.is_always_owed(foreign_seen):
            listings.append(self._metadata_reader.load)
        timeline, *own = looked(self._seams.storage, listings)
        if not timeline.count:  # the table may be gone, and a heartbeat made now would bring its folder back
            self._look_at_fence()
        self._refuse_to_begin(timeline)
        owed = self._wait.is_owed(timeline, foreign_seen, self._fence.note_foreign)
        newest = max(self._last_time, *(listed.newest_time for listed in [timeline, *own]))
        time = self._time(newest, begins=True)
        # 2. Create its heartbeat, exclusively. If it exists, another begin has this time: take the next one.
        looks = self._crowded and lease is _NO_LEASE
        while (first := self._reserve(time, heartbeats, tried, looks)) is None or first.newest >= time:
            self._take_back(action, heartbeats, tried)
            newest = time if first is None else max(time, first.newest)
            time = self._time(newest, begins=True)
        one = tried[-1]
        # 3. Once the lock is free, no other writer's clock may show this time or an earlier one.
        self._keep_clear(time, owed)
        lease.check()
        # 4. Create the request, exclusively.
        name, one.put = f"{time}.{action}.{REQUESTED}", True
        try:
            self._seams.storage.put_new(paths.timeline_file(name), EMPTY, durable=False)
        except FileExistsError as error:
            heartbeats.stop(tried.pop().time)
            self._reader.load()  # what was remembered of the timeline lacks it, and would lead to it again
            raise LeaseLost(f"{name} was created by another holder of the lock") from error
        return time, timeline, first if looks else None

    def _reserve(self, time: str, heartbeats: Heartbeats, tried: list[_Try], looks: bool) -> Notes | None:
        """Create the heartbeat of a time; None if it exists. ``looks``: at the fence, too, meanwhile."""

        def create() -> bool:
            created = heartbeats.reserve(time)
            if created:
                tried.append(_Try(time))
            return created

        if not looks:
            return Notes() if create() else None
        steps: list[Callable[[], object]] = [create, self._look_at_fence]
        created, notes = looked(self._seams.storage, steps)
        assert isinstance(notes, Notes)
        return notes if created else None

    def _take_back(self, action: str, heartbeats: Heartbeats, tried: list[_Try]) -> None:
        """Remove requests and heartbeats of attempts that failed: there is nothing else of these writes."""
        while tried:
            one = tried.pop()
            try:
                if one.put:
                    quietly(lambda: self._remove_request(f"{one.time}.{action}.{REQUESTED}"))  # noqa: B023
            finally:  # an interrupt must not leave a heart that beats for nothing
                heartbeats.stop(one.time)

    def _remove_request(self, name: str) -> None:
        """Remove a request, unless the timeline shows more of its instant: then it is another writer's."""
        instant = name.partition(".")[0]
        if not any(n.startswith(instant) and n != name for n in self._reader.load().names):
            self._seams.storage.delete(paths.timeline_file(name))

    def _look_at_fence(self) -> Notes:
        """Raises ``TableReplaced`` if this is not the table that was opened."""
        notes = self._notes = self._fence.look()
        self._last_time = max(self._last_time, notes.newest)
        return notes

    def _refuse_to_begin(self, timeline: ActiveTimeline) -> None:
        for instant in pending_restores(timeline)[-1:]:
            raise Unsupported(
                f"a restore ({instant}) is pending: no write may start before it is done; wait"
                " for it or, if its process died, finish it (Table.restore(), mainstem restore PATH)",
                table=self._seams.storage.base,
            )

    # -- replace -----------------------------------------------------------------------------------

    def guarded(self, work: Callable[[Guarded], T]) -> T:
        """Run ``work`` under the lock, in an epoch of its own. It may replace one file, and delete files.

        ``work`` decides only by what it is given, and runs again from the start if it was superseded. Raises
        what ``publish`` and ``work`` raise.
        """

        return self._attempts("working", self._guarded, work)[0]

    def _guarded(self, lease: Lease, work: Callable[[Guarded], T]) -> T:
        if lease is _NO_LEASE:
            raise _NeedsLock("it swaps the gate when it enters")
        epoch = self._fence.enter()
        try:
            timeline = self._reader.load()
            self._sweep_shown(epoch, timeline)
            return work(Guarded(self._seams.storage, lease, epoch, timeline))
        finally:
            epoch.leave()

    def _acquire(self) -> Lease:
        """The lease of a section: the lock's, or none where no lock is needed."""
        return _NO_LEASE if self._is_lock_free() else self._seams.lock.acquire()

    def _is_lock_free(self) -> bool:
        return self._lock_free and not self._foreign_noted

    def _patience_ms(self) -> float:
        """How long a section is run again. Without a lock each of many writers is overtaken often."""
        return _LOCK_FREE_PATIENCE_MS if self._is_lock_free() else 0.0

    def _attempts(
        self, doing: str, section: Callable[Concatenate[Lease, P], T], *given: P.args, **named: P.kwargs
    ) -> tuple[T, Held]:
        """Run ``section`` under the lock, again if superseded; return its result and the lock's cost."""
        clock = self._seams.clock
        began = clock.monotonic_ms()
        held = 0.0
        failure: LeaseLost | None = None
        attempt, locked = 0, False
        while attempt < PUBLISH_ATTEMPTS_MAX or clock.monotonic_ms() - began < self._patience_ms():
            attempt += 1
            lease: Lease | None = None
            entered = clock.monotonic_ms()
            try:
                lease = self._seams.lock.acquire() if locked else self._acquire()
                entered = clock.monotonic_ms()
                result = section(lease, *given, **named)
            except LeaseLost as error:
                if lease is None:
                    raise
                failure, locked = error, locked or isinstance(error, _NeedsLock)
                continue
            finally:
                if lease is not None:
                    _release(lease)
                    held += clock.monotonic_ms() - entered
            return result, Held(attempt, held, max(0.0, clock.monotonic_ms() - began - held))
        assert failure is not None
        raise LeaseLost(
            f"superseded {attempt} times in a row while {doing} ({failure.message});"
            f" nothing was published. Raise {EXPIRE_MS} or look for a process that"
            " removes the lock file",
            table=self._seams.storage.base,
        ) from failure


def _store_clock(lease: Lease, epoch: Epoch) -> Callable[[], int]:
    """``Epoch.now_ms``, under the lock only: for that a store's gate is swapped."""

    def refused() -> int:
        raise _NeedsLock("it asks for the store's clock")

    return refused if lease is _NO_LEASE else epoch.now_ms


def _overtaken(time: str, before: ActiveTimeline, after: ActiveTimeline) -> bool:
    """Whether something with ``time`` or a later time was published between the two listings.

    Writes that have only begun do not count: they are not published.
    """
    for instant in map(parse_instant, after.since(before)):
        if instant is None or (instant.action == DELTACOMMIT and not instant.is_completed):
            continue
        if max(instant.requested, instant.completion or "") >= time:
            return True
    return False


def _unsynced(target: str, error: OSError, base: str) -> OutcomeUnknown:
    """The error for a failure after the link: the file stays visible."""
    name = target.rpartition("/")[2]
    return OutcomeUnknown(
        f"{name} is visible, but a step after its publication failed ({error}): it may not"
        " survive a crash of the machine; look at the timeline before writing again",
        table=base,
    )
