"""THE primitive that publishes: every timeline file of mainstem that makes something visible or
promises something passes through ``Publisher.publish``.

(``Publisher.guarded`` is the same section for what replaces a pointer instead of adding an instant: the
archive's switch.) One publication is one critical section under the table lock:

  lease -> epoch and sweep -> ticket -> epoch check -> list the timeline -> the caller's checks
        -> time above everything listed -> wait out the clock skew -> last steps -> lease check
        -> link(ticket, target) -> sync the folder -> release

On a table with a metadata table the section publishes two files (``Ahead``): both tickets are in place
before the epoch check, both times lie above everything on both timelines, the first below the second, and
the metadata table's file is durable before the data table's is linked. A crash, or a successor, between the
two leaves the metadata table's instant completed and the data table's pending, which every reader hides.

A section that was superseded publishes nothing more, takes a new lease and starts again.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mainstem.errors import LeaseLost, MainstemError, OutcomeUnknown, Unavailable
from mainstem.formats.avro_container import MAGIC, OUR_MARK
from mainstem.limits import PUBLISH_ATTEMPTS_MAX
from mainstem.options.locks import EXPIRE_MS
from mainstem.options.tables import EXCLUSIVE
from mainstem.publish.link_fence import Epoch, enter_epoch, note_foreign_writer
from mainstem.storage import paths
from mainstem.storage.links import links
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, TimelineReader
from mainstem.timeline.instant import (
    COMMIT,
    DELTACOMMIT,
    INFLIGHT,
    REQUESTED,
    RESTORE,
    Instant,
    parse_instant,
)
from mainstem.timeline.restore_records import pending_restores
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.locks.protocol import Lease
from mainstem.truetime.seams import Seams

T = TypeVar("T")
_MARK_WINDOW_BYTES = 256


class MixedWritersWarning(UserWarning):
    """A table declared exclusive was written by another kind of writer: the clock wait is back."""


@dataclass(frozen=True)
class Published(Generic[T]):
    """What one publication did. ``time`` is None when the checks ended it with ``decision``."""

    time: str | None
    target: str | None
    decision: T | None
    attempts: int
    held_ms: float
    lock_wait_ms: float


@dataclass(frozen=True)
class Ahead:
    """A file of the metadata table's timeline that becomes visible just before the published one.

    ``name(time)``: its name there; ``prepared``: a durable private file with its content; ``folders`` of the
    metadata table are made durable behind it. ``ready`` is called under the lock, after the caller's checks,
    with that timeline: it makes the files of the instant's earlier states and says whether the instant is
    still to be published there.
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
    #: the store's own clock (time of the epoch marker), in milliseconds
    store_now_ms: Callable[[], int]


@dataclass(frozen=True)
class Guarded:
    """What work under the lock may do (``Publisher.guarded``). The timeline was listed in this epoch."""

    storage: Storage
    lease: Lease
    epoch: Epoch
    timeline: ActiveTimeline

    def check(self) -> None:
        """Raises ``LeaseLost`` when another holder took over: nothing may be deleted any more."""
        self.lease.check()
        self.epoch.check()

    def replace(self, prepared: str, target: str) -> None:
        """Put ``prepared`` in the place of ``target``, in one step, unless superseded (``LeaseLost``).

        The ticket is renamed, so whoever took over either swept it, and nothing happens, or lists what
        this section did. Another ``OSError`` leaves open whether it took effect.
        """
        self.epoch.place_ticket(prepared)
        self.check()
        self.epoch.replace(target)


def _completed(timeline: ActiveTimeline) -> set[str]:
    return {i.file_name for i in timeline.completed}


def _quietly(step: Callable[[], None]) -> None:
    """Tidying that must not turn a visible commit into an error: the next holder sweeps anyway."""
    try:
        step()
    except (OSError, MainstemError):
        return


def _release(lease: Lease) -> None:
    """Also when an interrupt (Ctrl-C) comes just now: everybody else waits for a lock that is kept."""
    try:
        _quietly(lease.release)
    except BaseException:
        _quietly(lease.release)
        raise


class Publisher:
    """Publishes the instants of one table for one process.

    ``wait_ms`` is ``hoodie.time.generator.max_expected_clock_skew_ms``; an ``exclusive`` table
    (``hoodie.mainstem.exclusive=true``) waits 0 until another kind of writer is seen. ``table``: the identity
    of the table that was opened; nothing is published on another one (``TableReplaced``).
    """

    def __init__(
        self, seams: Seams, times: InstantTimes, *, wait_ms: int, exclusive: bool, table: str | None = None
    ) -> None:
        self._seams = seams
        self._table = table
        self._times = times
        self._wait_ms = wait_ms
        self._exclusive = exclusive
        self._known: set[str] = set()
        self._reader = TimelineReader(seams.storage)
        self._metadata_reader = TimelineReader(seams.storage, paths.METADATA_TIMELINE)
        self._last_time = ""
        #: whether anything was published on a metadata table, which may be younger than this object
        self.wrote_metadata = False

    def timeline(self) -> ActiveTimeline:
        """A listing outside the lock."""
        return self._reader.load()

    def metadata_timeline(self) -> ActiveTimeline:
        """A listing of the metadata table's timeline, outside the lock."""
        return self._metadata_reader.load()

    def now(self) -> str:
        """This machine's clock as an instant time; nothing is ordered by it."""
        return self._times.format(self._seams.clock.now_ms())

    def publish(
        self,
        target: Callable[[str], str],
        *,
        prepared: str | Callable[[ActiveTimeline], str | None] | None = None,
        decide: Callable[[Section], T | None] = lambda section: None,
        before_link: Callable[[str], None] = lambda time: None,
        after_link: Callable[[str], None] = lambda time: None,
        ahead: Ahead | None = None,
        folder: str = paths.TIMELINE,
    ) -> Published[T]:
        """Publish one file. ``target(time)`` names it inside the timeline folder.

        ``prepared`` is a durable private file with the content (None: an empty file), or makes one under
        the lock from the timeline listed there (a plan must know every instant completed before its own
        time); if it makes none, nothing is published. ``decide`` raises to refuse, or returns a value to
        end without publishing; ``before_link(time)`` runs with the time chosen, ``after_link(time)``
        still under the lock. ``ahead``: a file of the metadata table that goes first. ``folder``: the
        timeline that the file goes to; for the metadata table's, the time lies above both timelines.

        Raises ``LockUnavailable``, ``LeaseLost`` (after many superseded attempts, nothing published),
        ``OutcomeUnknown`` (the link failed in a way that leaves open whether it took effect).
        """
        def section(lease: Lease) -> tuple[str | None, T | None]:
            return self._section(
                lease, target, prepared, decide, before_link, after_link, ahead, folder
            )

        (time, decision), attempts, held, waited = self._attempts(section, "publishing")
        return Published(time, target(time) if time else None, decision, attempts, held, waited)

    def guarded(self, work: Callable[[Guarded], T]) -> T:
        """Run ``work`` under the lock, in an epoch of its own; it may replace one file, and delete.

        ``work`` looks at the world through what it is given, and runs again from the start when it was
        superseded. Raises what ``publish`` raises, and what ``work`` does.
        """

        def section(lease: Lease) -> T:
            epoch = enter_epoch(self._seams.storage, self._seams.random, self._table)
            try:
                return work(Guarded(self._seams.storage, lease, epoch, self._reader.load()))
            finally:
                _quietly(epoch.drop_ticket)

        return self._attempts(section, "working")[0]

    def _attempts(
        self, section: Callable[[Lease], T], doing: str
    ) -> tuple[T, int, float, float]:
        """The section's result, how many attempts it took, and milliseconds: lock held, lock waited for."""
        clock = self._seams.clock
        began = clock.monotonic_ms()
        held = 0.0
        failure: LeaseLost | None = None
        for attempt in range(1, PUBLISH_ATTEMPTS_MAX + 1):
            lease: Lease | None = None
            entered = clock.monotonic_ms()
            try:
                lease = self._seams.lock.acquire()
                entered = clock.monotonic_ms()
                result = section(lease)
            except LeaseLost as error:
                if lease is None:
                    raise
                failure = error
                continue
            finally:
                if lease is not None:
                    _release(lease)
                    held += clock.monotonic_ms() - entered
            return result, attempt, held, max(0.0, clock.monotonic_ms() - began - held)
        assert failure is not None
        raise LeaseLost(
            f"superseded {PUBLISH_ATTEMPTS_MAX} times in a row while {doing} ({failure.message});"
            f" nothing was published. Raise {EXPIRE_MS} or look for a process that"
            " removes the lock file",
            table=self._seams.storage.base,
        ) from failure

    def _section(self, lease, target, prepared, decide, before_link, after_link, ahead, folder):
        storage = self._seams.storage
        epoch = enter_epoch(storage, self._seams.random, self._table)
        try:
            planned_on = None
            if callable(prepared):
                planned_on = self._reader.load()
                self._refuse_beside_restore(planned_on, target(planned_on.newest_time))
                prepared = prepared(planned_on)
                if prepared is None:
                    return None, None
            epoch.place_ticket(prepared)
            if ahead is not None:
                epoch.place_ahead(ahead.prepared)
            epoch.check()
            timeline = self._reader.load()
            if planned_on is not None and _completed(timeline) != _completed(planned_on):
                raise LeaseLost("an instant completed while the plan was made under the lock")
            decision = decide(Section(timeline, epoch, lambda: self._store_now_ms(epoch)))
            if decision is not None:
                return None, decision
            self._refuse_beside_restore(timeline, target(timeline.newest_time))
            wait_ms = self._skew_wait_ms(timeline, epoch)
            newest = max(timeline.newest_time, self._last_time, epoch.newest_noted)
            first = None
            if ahead is not None or folder != paths.TIMELINE:
                metadata = self._metadata_reader.load()
                newest = max(newest, metadata.newest_time)
                if ahead is not None and ahead.ready(metadata):
                    newest = first = self._times.next(self._seams.clock.now_ms(), newest)
            time = self._times.next(self._seams.clock.now_ms(), newest)
            self._seams.clock.sleep_ms(wait_ms)
            if first is not None:
                self._go_ahead(epoch, lease, ahead, first)
            before_link(time)
            lease.check()
            self._link(epoch.publish, f"{folder}/{target(time)}", prepared or epoch.ticket)
            self._last_time = time
            self.wrote_metadata |= first is not None
            self._settle(lambda: after_link(time), target(time))
            self._settle(lambda: storage.settle([], [folder], durable=True), target(time))
            return time, None
        finally:
            _quietly(epoch.drop_ticket)

    def _go_ahead(self, epoch: Epoch, lease: Lease, ahead: Ahead, time: str) -> None:
        """Publish the metadata table's file, durably: a crash of the machine must not keep only the other."""
        lease.check()
        self._link(epoch.publish_ahead, f"{paths.METADATA_TIMELINE}/{ahead.name(time)}", ahead.prepared)
        self._seams.storage.settle([], ahead.folders, durable=True)

    def _refuse_beside_restore(self, timeline: ActiveTimeline, name: str) -> None:
        """While a restore is pending, nothing else is published: it may be what the restore removes, or
        rest on it (``services.restoring``)."""
        waiting = pending_restores(timeline)
        instant = parse_instant(name)
        if waiting and (instant is None or instant.action != RESTORE):
            raise Unavailable(
                f"the restore {waiting[-1]} is not finished, and nothing else is published before it is: wait"
                " for it or, if its process died, finish it (Table.restore(), mainstem restore PATH)",
                table=self._seams.storage.base,
                instant=waiting[-1],
            )

    def _settle(self, step: Callable[[], None], name: str) -> None:
        """A step after the link: what is published stays so, whatever this step meets."""
        try:
            step()
        except OSError as error:
            raise OutcomeUnknown(
                f"{name} is visible, but a step after its publication failed ({error}): it may not"
                " survive a crash of the machine; look at the timeline before writing again",
                table=self._seams.storage.base,
            ) from error

    def _link(self, link: Callable[[str], None], target: str, content: str) -> None:
        """``content``: another name of the ticket's file, which nobody sweeps if there is one."""
        storage = self._seams.storage
        try:
            link(target)
        except (FileExistsError, LeaseLost) as error:
            # On a network file system a call whose reply was lost is repeated, and then fails.
            if self._applied(lambda: links(storage).same_file(content, target), target, error):
                return
            if isinstance(error, LeaseLost):
                raise
            raise LeaseLost(f"{target} was created by another holder of the lock") from error
        except OSError as error:
            # The target's name is ours alone: if it is there, the reply was lost, not the effect.
            if self._applied(lambda: storage.stat(target) is not None, target, error):
                return
            kind = "the disk is full" if error.errno == errno.ENOSPC else str(error)
            raise Unavailable(
                f"publishing {target} failed: {kind}; nothing was published", table=storage.base
            ) from error

    def _applied(self, look: Callable[[], bool], target: str, error: Exception) -> bool:
        """What ``look`` says; ``OutcomeUnknown`` where storage does not answer."""
        try:
            return look()
        except OSError:
            raise OutcomeUnknown(
                f"publishing {target} failed ({error}) and storage does not answer: it may or may not be"
                " visible; look at the timeline before writing again, delete nothing",
                table=self._seams.storage.base,
            ) from error

    def _store_now_ms(self, epoch: Epoch) -> int:
        info = self._seams.storage.stat(epoch.marker)
        if info is None:
            raise LeaseLost(f"epoch {epoch.number} was superseded")
        return info.mtime_ms

    def _skew_wait_ms(self, timeline: ActiveTimeline, epoch: Epoch) -> int:
        """Hudi's wait, or 0 on an exclusive table that no other kind of writer has touched."""
        if not self._exclusive or epoch.foreign_seen:
            return self._wait_ms
        undecided = False
        for name in sorted(timeline.names - self._known):
            ours = self._is_ours(name, timeline)
            if ours is None:
                undecided = True  # its writer is about to show itself, or died before it did
                continue
            self._known.add(name)
            if not ours:
                note_foreign_writer(self._seams.storage, name)
                warnings.warn(
                    f"table {self._seams.storage.base} is declared {EXCLUSIVE}=true, but"
                    f" {name} was written by another kind of writer: every commit waits"
                    f" {self._wait_ms} ms from now on",
                    MixedWritersWarning,
                    stacklevel=8,
                )
                return self._wait_ms
        return self._wait_ms if undecided else 0

    def _is_ours(self, name: str, timeline: ActiveTimeline) -> bool | None:
        """True for our files and non-instants, None for an instant that does not show its writer yet."""
        instant = parse_instant(name)
        if instant is None:
            return True
        if instant.state == REQUESTED:
            inflight = f"{instant.requested}.{instant.action}.{INFLIGHT}"
            return True if timeline.has(inflight) else self._marked(name) or None
        if instant.state == INFLIGHT and instant.action not in (COMMIT, DELTACOMMIT):
            # Inflight files of services are empty; their plan tells who made them.
            return self._marked(f"{instant.requested}.{instant.action}.{REQUESTED}")
        if instant.state == INFLIGHT:
            return self._inflight_is_ours(instant, timeline)
        return self._marked(name)

    def _inflight_is_ours(self, instant: Instant, timeline: ActiveTimeline) -> bool | None:
        """Inflight files of writes are not synced: a killed writer or a crash of the machine may leave
        less than the mark, or zeros. So a completed instant is judged by its completed file, and a
        pending one is another writer's only if the file is a container without our mark, as far as it
        would stand: nobody's schema is shorter, nor has it zeros.
        """
        try:
            head = self._head(instant.file_name)  # once: its writer may be filling it just now
        except FileNotFoundError:
            return True  # rolled back since the listing
        if OUR_MARK.encode() in head or instant.requested in timeline.completion_times:
            return True
        whole = len(head) == _MARK_WINDOW_BYTES and b"\0" not in head
        return False if whole and head.startswith(MAGIC) else None

    def _head(self, name: str) -> bytes:
        return self._seams.storage.read_range(paths.timeline_file(name), 0, _MARK_WINDOW_BYTES)

    def _marked(self, name: str) -> bool:
        try:
            return OUR_MARK.encode() in self._head(name)
        except FileNotFoundError:
            return True  # rolled back since the listing
