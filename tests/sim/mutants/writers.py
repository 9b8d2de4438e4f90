"""Seeded bugs of transactions and of rollback."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.errors import OutcomeUnknown
from mainstem.publish.publisher import Publisher, Section
from mainstem.storage import paths
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.writers import commit_checks, rollback, transaction
from mainstem.writers.append import BucketAppender, FileTokens
from mainstem.writers.transaction import Transaction
from tests.sim.mutants.mutant import FAILING, STOPPING, Patch, nothing, seeded_bug
from tests.sim.sim_storage import SimStorage


@seeded_bug("a commit does not look whether it was rolled back meanwhile", faults=STOPPING)
def no_inflight_check() -> list[Patch]:
    def may_complete(self: Transaction, section: Section) -> Any:
        if self._guard is None:
            return None
        earlier = self._ctx.guards.committed(self._guard, section.timeline)
        return None if earlier is None else commit_checks.FoundCommitted(earlier)

    return [patch.object(Transaction, "_may_complete", may_complete)]


@seeded_bug("the heartbeat starts after the requested file exists: in between others roll back (R4, #9135)")
def heartbeat_after_requested() -> list[Patch]:
    reserve = Heartbeats.reserve

    def late(self: Heartbeats, instant: str) -> bool:
        return reserve(self, instant)

    return [
        patch.object(Heartbeats, "reserve", lambda self, instant: True),
        patch.object(Heartbeats, "kept", late),
    ]


@seeded_bug("the files of a commit have one write token in all partitions: Java mixes up their statistics")
def one_token_for_all_partitions() -> list[Patch]:
    return [patch.object(FileTokens, "__call__", lambda self, partition: f"{self._task}-{self._attempt}")]


@seeded_bug("markers are written after their log files")
def marker_after_file() -> list[Patch]:
    create, opening = SimStorage.put_new, SimStorage.upload
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

    return [patch.object(SimStorage, "put_new", later), patch.object(SimStorage, "upload", then)]


@seeded_bug("log files are not synced before the commit (fsync lies)")
def files_not_synced() -> list[Patch]:
    settle = SimStorage.settle

    def careless(self: SimStorage, sinks: Any, folders: Any = (), *, durable: bool) -> None:
        settle(self, sinks, folders, durable=False)

    return [patch.object(SimStorage, "settle", careless)]


@seeded_bug("only partition folders are synced, not the folders above them")
def parents_not_synced() -> list[Patch]:
    settle = SimStorage.settle

    def near(self: SimStorage, sinks: Any, folders: Any = (), *, durable: bool) -> None:
        settle(self, sinks, [f for f in folders if f], durable=durable)

    return [patch.object(SimStorage, "settle", near)]


@seeded_bug(
    "a commit of unknown outcome is aborted without a look at the timeline, its files deleted",
    faults=FAILING,
)
def unknown_is_aborted() -> list[Patch]:
    def commit(self: Transaction) -> Any:
        try:
            return self._commit()
        except OSError as error:
            self._fail()
            raise OutcomeUnknown(str(error)) from error
        except OutcomeUnknown:
            if self._appender is not None:
                self._appender.discard()
            raise

    return [patch.object(Transaction, "commit", commit)]


@seeded_bug("a commit that failed keeps its heartbeat: nobody may roll it back", faults=FAILING)
def heartbeat_outlives_failure() -> list[Patch]:
    def fail(self: Transaction) -> None:
        self._turns.ended = True

    return [patch.object(Transaction, "_fail", fail)]


@seeded_bug(
    "a private file that cannot be removed turns a visible commit into an error", faults=FAILING
)
def tidying_fails_the_commit() -> list[Patch]:
    def delete(storage: Any, prepared: str) -> None:
        storage.delete(prepared)

    return [
        patch.object(transaction, "delete_quietly", delete),
        patch.object(Transaction, "_fail", Transaction.abort),
    ]


@seeded_bug("the stream guard is looked up at begin only, not under the lock")
def guard_outside_lock() -> list[Patch]:
    whole = Transaction._may_complete

    def unguarded(self: Transaction, section: Section) -> Any:
        with patch.object(self, "_guard", None):
            return whole(self, section)

    return [patch.object(Transaction, "_may_complete", unguarded)]


# -- rollback -------------------------------------------------------------------------------------------


@seeded_bug("rollback does not look again under the lock (R6)", faults=STOPPING)
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


@seeded_bug("rollback deletes files before its plan is on the timeline (R11)")
def rollback_deletes_first() -> list[Patch]:
    whole = rollback.roll_back

    def hasty(ctx: Any, instant: Any, *, own: bool = False) -> Any:
        if not own and ctx.heartbeats.expired(instant.requested, 2**60):
            for partition, _, name in list(rollback._files_of(ctx, instant.requested)):
                ctx.seams.storage.delete(paths.in_partition(partition, name))
        return whole(ctx, instant, own=own)

    return [patch.object(rollback, "roll_back", hasty)]


@seeded_bug("a heartbeat never expires: the dead are never rolled back")
def never_expired() -> list[Patch]:
    return [patch.object(Heartbeats, "expired", lambda self, instant, now: False)]


@seeded_bug(
    "files that a stopped writer makes after its rollback are left for good (T35)", faults=STOPPING
)
def orphans_stay() -> list[Patch]:
    return [
        patch.object(rollback, "sweep_leftovers", nothing),
        patch.object(BucketAppender, "_check_alive", nothing),
    ]
