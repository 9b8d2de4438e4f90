"""Seeded bugs: each breaks one step of the production code, and the simulator must find it.

A test of the tester: a simulation that finds nothing proves nothing. Every mutant stands for a mistake
that was made in life (Hudi's published bugs R1 ... R16, the omissions of the completion fence, and bugs
that this simulator found here), and is a patch of production code in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from mainstem.errors import LeaseLost, OutcomeUnknown
from mainstem.readers import incremental, state
from mainstem.services import compaction
from mainstem.services.compaction_plan import FileListing, plan_groups
from mainstem.storage import paths
from mainstem.table import slicing
from mainstem.testing.sim_lock import SimLease
from mainstem.testing.sim_storage import SimStorage
from mainstem.testing.world import Faults
from mainstem.timeline import publish
from mainstem.timeline.publish import Publisher, Section
from mainstem.truetime import fence
from mainstem.truetime.fence import Epoch
from mainstem.truetime.generator import InstantTimes
from mainstem.truetime.heartbeat import Heartbeats
from mainstem.writers import rollback, transaction
from mainstem.writers.append import BucketAppender
from mainstem.writers.transaction import Transaction

Patch = AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutant:
    """A bug: what it does, the scenario that finds it, and how it gets into the code."""

    name: str
    what: str
    scenario: str
    patches: Callable[[], list[Patch]]
    #: a mixture of faults in place of a drawn one, for bugs that need one kind often
    faults: Faults | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Production code with this bug in it."""
        with ExitStack() as stack:
            for one in self.patches():
                stack.enter_context(one)
            yield


MUTANTS: dict[str, Mutant] = {}
# Mixtures in which one kind of trouble is frequent, so that few seeds suffice whatever else changes.
LOSING_LEASES = Faults(
    pause=0.02, pause_ms_max=10_000, lease_loss=0.5, late_notice=1.0, skew_ms=100
)
STOPPING = Faults(
    pause=0.01, pause_ms_max=8000, lease_loss=0.3, late_notice=0.5, crash=0.001, skew_ms=50
)
FAILING = Faults(error_before=0.02, error_after=0.02)
TEARING = Faults(torn_listing=0.9)


def _mutant(
    what: str, scenario: str = "tables", faults: Faults | None = None
) -> Callable[[Callable], Callable]:
    def register(function: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        name = function.__name__
        MUTANTS[name] = Mutant(name, what, scenario, function, faults)
        return function

    return register


def _nothing(*given: Any, **named: Any) -> None:
    return None


# -- the fence ----------------------------------------------------------------------------------------


@_mutant("tickets of earlier epochs are not swept", "publishers", LOSING_LEASES)
def no_sweep() -> list[Patch]:
    return [patch.object(Epoch, "sweep", _nothing)]


@_mutant("a holder does not look for a later epoch", "publishers", LOSING_LEASES)
def no_epoch_check() -> list[Patch]:
    return [patch.object(Epoch, "check", _nothing)]


@_mutant("the epoch is checked before the ticket is in place", "publishers", LOSING_LEASES)
def check_before_ticket() -> list[Patch]:
    place, link = Epoch.place_ticket, Epoch.publish

    def later(self: Epoch, prepared: str | None) -> None:
        self.prepared = prepared  # type: ignore[attr-defined]

    def now(self: Epoch, target: str) -> None:
        place(self, self.prepared)  # type: ignore[attr-defined]
        link(self, target)

    return [patch.object(Epoch, "place_ticket", later), patch.object(Epoch, "publish", now)]


@_mutant("tickets are swept before the own marker exists", "publishers", LOSING_LEASES)
def sweep_before_marker() -> list[Patch]:
    def enter(storage: Any, random: Any) -> Epoch:
        names = storage.names(paths.FENCE)
        last = max((n for n in map(paths.parse_epoch, names) if n is not None), default=0)
        epoch = Epoch(storage, last + 1, f"{random.getrandbits(64):016x}", names)
        epoch.sweep()
        try:
            storage.create(epoch.marker, b"", durable=False)
        except FileExistsError as error:
            raise LeaseLost("the epoch was begun by another holder") from error
        return epoch

    return [patch.object(publish, "enter_epoch", enter), patch.object(fence, "enter_epoch", enter)]


@_mutant("the newest time is read before earlier tickets are swept", "publishers", LOSING_LEASES)
def newest_before_sweep() -> list[Patch]:
    section = Publisher._section

    def early(self: Publisher, *given: Any) -> Any:
        listed = self._reader.load()
        with patch.object(self._reader, "load", lambda: listed):
            return section(self, *given)

    return [patch.object(Publisher, "_section", early)]


@_mutant("instants come from the clock alone, not above the newest one", "publishers")
def clock_only() -> list[Patch]:
    return [patch.object(InstantTimes, "next", lambda self, now, newest: self.format(now))]


@_mutant("the time is chosen before the lock is taken", "publishers")
def time_before_lock() -> list[Patch]:
    whole, following = Publisher.publish, InstantTimes.next

    def early(self: Publisher, target: Any, **named: Any) -> Any:
        now = self._seams.clock.now_ms()
        time = following(self._times, now, self.timeline().newest_time)
        with patch.object(self._times, "next", lambda now, newest: time):
            return whole(self, target, **named)

    return [patch.object(Publisher, "publish", early)]


@_mutant("the lock client's flag is trusted: no epochs, no tickets", "publishers")
def trusts_the_flag() -> list[Patch]:
    return [
        patch.object(Epoch, "sweep", _nothing),
        patch.object(Epoch, "check", _nothing),
        patch.object(SimLease, "check", _nothing),
    ]


@_mutant("epoch markers are never removed")
def markers_pile_up() -> list[Patch]:
    def sweep(self: Epoch) -> None:
        for name in self._storage.names(paths.FENCE):
            number = paths.parse_ticket_epoch(name)
            if number is not None and number < self.number:
                self._storage.delete(f"{paths.FENCE}/{name}")

    return [patch.object(Epoch, "sweep", sweep)]


@_mutant("completed instants are created in place instead of linked")
def created_in_place() -> list[Patch]:
    def link(self: Epoch, target: str) -> None:
        self._storage.create(target, self._storage.read(self.ticket, max_bytes=2**30), durable=True)

    return [patch.object(Epoch, "publish", link)]


@_mutant("the clock wait is left out beside another kind of writer", "mixed")
def no_wait_beside_java() -> list[Patch]:
    whole = Publisher._skew_wait_ms

    def none(self: Publisher, *given: Any) -> int:
        whole(self, *given)
        return 0

    return [patch.object(Publisher, "_skew_wait_ms", none)]


@_mutant("an exclusive table does not notice another kind of writer", "mixed")
def strangers_unnoticed() -> list[Patch]:
    return [patch.object(Publisher, "_is_ours", lambda self, name, timeline: True)]


# -- the life of a transaction --------------------------------------------------------------------------


@_mutant("a commit does not look whether it was rolled back meanwhile", faults=STOPPING)
def no_inflight_check() -> list[Patch]:
    def may_complete(self: Transaction, section: Section) -> str | None:
        if self._guard is None:
            return None
        self._ctx.guards.refresh(section.timeline)
        return self._ctx.guards.committed(self._guard)

    return [patch.object(Transaction, "_may_complete", may_complete)]


@_mutant("the heartbeat starts after the requested file exists")
def heartbeat_after_requested() -> list[Patch]:
    whole = Publisher.publish

    def late(self: Publisher, target: Any, **named: Any) -> Any:
        if target("T").endswith("deltacommit.requested"):
            beat, then = named.pop("before_link"), named.get("after_link", _nothing)

            def after(time: str) -> None:
                beat(time)
                then(time)

            named["after_link"] = after
        return whole(self, target, **named)

    return [patch.object(Publisher, "publish", late)]


@_mutant("markers are written after their log files")
def marker_after_file() -> list[Patch]:
    create, opening = SimStorage.create, SimStorage.open_sink
    held: dict[int, list[tuple]] = {}

    def later(self: SimStorage, path: str, data: Any, *, durable: bool) -> None:
        if ".marker." in path:
            held.setdefault(id(self), []).append((path, data))
        else:
            create(self, path, data, durable=durable)

    def then(self: SimStorage, path: str) -> Any:
        sink = opening(self, path)
        for marker, data in held.pop(id(self), []):
            create(self, marker, data, durable=False)
        return sink

    return [patch.object(SimStorage, "create", later), patch.object(SimStorage, "open_sink", then)]


@_mutant("log files are not synced before the commit (fsync lies)")
def files_not_synced() -> list[Patch]:
    settle = SimStorage.settle

    def careless(self: SimStorage, sinks: Any, folders: Any, *, durable: bool) -> None:
        settle(self, sinks, folders, durable=False)

    return [patch.object(SimStorage, "settle", careless)]


@_mutant("only partition folders are synced, not the folders above them")
def parents_not_synced() -> list[Patch]:
    settle = SimStorage.settle

    def near(self: SimStorage, sinks: Any, folders: Any, *, durable: bool) -> None:
        settle(self, sinks, [f for f in folders if f], durable=durable)

    return [patch.object(SimStorage, "settle", near)]


@_mutant(
    "a commit of unknown outcome is aborted, its files deleted",
    faults=FAILING,
)
def unknown_is_aborted() -> list[Patch]:
    def commit(self: Transaction) -> Any:
        try:
            return self._commit()
        except OSError as error:
            self._fail()
            raise OutcomeUnknown(str(error)) from error

    return [patch.object(Transaction, "commit", commit)]


@_mutant("a commit that failed keeps its heartbeat: nobody may roll it back", faults=FAILING)
def heartbeat_outlives_failure() -> list[Patch]:
    def fail(self: Transaction) -> None:
        self._ended = True

    return [patch.object(Transaction, "_fail", fail)]


@_mutant(
    "a private file that cannot be removed turns a visible commit into an error", faults=FAILING
)
def tidying_fails_the_commit() -> list[Patch]:
    def forget(ctx: Any, prepared: str) -> None:
        ctx.seams.storage.delete(prepared)

    return [
        patch.object(transaction, "forget", forget),
        patch.object(Transaction, "_fail", Transaction.abort),
    ]


@_mutant("the stream guard is looked up at begin only, not under the lock")
def guard_outside_lock() -> list[Patch]:
    whole = Transaction._may_complete

    def unguarded(self: Transaction, section: Section) -> str | None:
        with patch.object(self, "_guard", None):
            return whole(self, section)

    return [patch.object(Transaction, "_may_complete", unguarded)]


# -- rollback -------------------------------------------------------------------------------------------


@_mutant("rollback does not look again under the lock (R6)", faults=STOPPING)
def rollback_without_second_look() -> list[Patch]:
    whole = Publisher.publish

    def outside(self: Publisher, target: Any, **named: Any) -> Any:
        if not target("T").endswith("rollback.requested"):
            return whole(self, target, **named)
        decide = named.pop("decide")
        entries = self._seams.storage.entries(paths.FENCE)
        now = max((e.mtime_ms for e in entries), default=0)
        decision = decide(Section(self.timeline(), None, lambda: now))  # type: ignore[arg-type]
        return whole(self, target, decide=lambda section: decision, **named)

    return [patch.object(Publisher, "publish", outside)]


@_mutant("rollback deletes files before its plan is on the timeline (R11)")
def rollback_deletes_first() -> list[Patch]:
    whole = rollback.roll_back

    def hasty(ctx: Any, instant: Any, *, own: bool = False) -> Any:
        if not own and ctx.heartbeats.expired(instant.requested, 2**60):
            for partition, _, name in list(rollback._files_of(ctx, instant.requested)):
                ctx.seams.storage.delete(paths.in_partition(partition, name))
        return whole(ctx, instant, own=own)

    return [patch.object(rollback, "roll_back", hasty)]


@_mutant("a heartbeat never expires: the dead are never rolled back")
def never_expired() -> list[Patch]:
    return [patch.object(Heartbeats, "expired", lambda self, instant, now: False)]


@_mutant(
    "files that a stopped writer makes after its rollback are left for good (T35)", faults=STOPPING
)
def orphans_stay() -> list[Patch]:
    return [
        patch.object(rollback, "sweep_leftovers", _nothing),
        patch.object(BucketAppender, "_check_alive", _nothing),
    ]


# -- readers --------------------------------------------------------------------------------------------


@_mutant("incremental windows go by requested time (R16)")
def windows_by_requested_time() -> list[Patch]:
    def between(table: Any, after: str | None, until: str | None) -> Any:
        found = {
            i.requested: i.completion
            for i in table.writes
            if i.requested > (after or "") and (until is None or i.requested <= until)
        }
        return incremental.Window(found)

    return [patch.object(incremental, "completed_between", between)]


@_mutant(
    "a window leaves out slices newer than its newest write (R2, HUDI-9785)", "compactions"
)
def window_ends_before_pending_slice() -> list[Patch]:
    whole = incremental._splits

    def bounded(table: Any, window: Any, spec: Any) -> Any:
        def pick(group: Any, until: str | None) -> Any:
            return slicing.query_slice(group, window.newest_requested)

        with patch.object(incremental, "query_slice", pick):
            yield from whole(table, window, spec)

    return [patch.object(incremental, "_splits", bounded)]


@_mutant("the first slice is anchored at the first log file, committed or not (R1)")
def slice_anchored_at_uncommitted() -> list[Patch]:
    whole = slicing._group

    def anchored(
        partition: str, file_id: str, bases: Any, logs: Any, completion: Any, *rest: Any
    ) -> Any:
        first = min(logs, key=lambda log: log.order, default=None)
        if first is not None and not bases and completion(first.instant) is None:
            logs = [log for log in logs if completion(log.instant) is None]
        return whole(partition, file_id, bases, logs, completion, *rest)

    return [patch.object(slicing, "_group", anchored)]


@_mutant("log files go to slices by requested time, not by completion time", "compactions")
def slices_by_requested_time() -> list[Patch]:
    whole = slicing._assign

    def assign(logs: Any, times: Any, barriers: Any) -> Any:
        requested = {time: time if done is not None else None for time, done in times.items()}
        return whole(logs, requested, barriers)

    return [patch.object(slicing, "_assign", assign)]


@_mutant("log files of instants that are not completed are shown")
def uncommitted_rows_shown() -> list[Patch]:
    known = state.TableState.completion
    return [
        patch.object(
            state.TableState, "completion", lambda self, time: known(self, time) or time
        )
    ]


@_mutant("readers list the timeline once: a window may have a hole", "publishers", TEARING)
def one_listing() -> list[Patch]:
    def once(storage: Any) -> Any:
        return state.TimelineReader(storage).load()

    return [patch.object(state, "steady_timeline", once)]


# -- services -----------------------------------------------------------------------------------------


@_mutant("a compaction is planned from what was completed before the lock was taken", "compactions")
def plan_before_the_lock() -> list[Patch]:
    listed = FileListing.__init__

    def look(self: Any, storage: Any, config: Any) -> None:
        listed(self, storage, config)
        self.found = listing_now(self)

    listing_now = FileListing.now
    return [
        patch.object(FileListing, "__init__", look),
        patch.object(FileListing, "now", lambda self: self.found),
    ]


@_mutant("a compaction takes in the logs of writers in flight", "compactions")
def plan_with_logs_in_flight() -> list[Patch]:
    whole = state.TableState.group

    def with_pending(self: Any, partition: str, names: Any, *, visible_only: bool = True) -> Any:
        groups = whole(self, partition, names, visible_only=False)
        kept = [replace(g, slices=tuple(s for s in g.slices if not s.pending)) for g in groups]
        return [g for g in kept if g.slices]

    def plan(state_: Any, files: Any, options: Any) -> Any:
        with patch.object(state.TableState, "group", with_pending):
            return plan_groups(state_, files, options)

    return [patch.object(compaction, "plan_groups", plan)]


__all__ = ["MUTANTS", "Mutant"]
