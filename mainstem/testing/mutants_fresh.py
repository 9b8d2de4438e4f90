"""Seeded bugs of somebody who did not write the code under test, made up from the documents alone.

Each is a mistake that is easily made when a step of the protocol is written anew: a sync that seems to be
superfluous, a look that is taken a moment too early, a case that never happens on one's own machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from mainstem.readers.state import TableState
from mainstem.services import clean_plan, compact_group
from mainstem.storage import paths
from mainstem.testing.mutant import FAILING, Patch, nothing, seeded_bug
from mainstem.testing.sim_storage import SimStorage
from mainstem.timeline import publish
from mainstem.timeline.clean_records import savepointed_files
from mainstem.timeline.publish import Publisher, Section
from mainstem.truetime.heartbeat import Heartbeats
from mainstem.writers import rollback, task, transaction
from mainstem.writers.append import BucketAppender
from mainstem.writers.guard import GuardIndex
from mainstem.writers.transaction import Transaction


@seeded_bug("the commit's own file is linked before it is synced: only the data files are")
def commit_file_not_synced() -> list[Patch]:
    def settle(self: Transaction, sinks: Any) -> None:
        if self._appender is not None:
            self._appender.settle()
        for sink in sinks:
            sink.close(durable=False)

    return [patch.object(Transaction, "_settle", settle)]


@seeded_bug("a commit is acknowledged before its name on the timeline is durable")
def timeline_not_synced() -> list[Patch]:
    whole = SimStorage.sync_folder

    def careless(self: SimStorage, path: str) -> None:
        if path != paths.TIMELINE:
            whole(self, path)

    return [patch.object(SimStorage, "sync_folder", careless)]


@seeded_bug("a link whose reply was lost counts as not made: the visible commit is aborted", faults=FAILING)
def lost_reply_is_failure() -> list[Patch]:
    return [patch.object(Publisher, "_applied", lambda self, look, target, error: False)]


@seeded_bug("the note of a micro-batch is written after its commit, not before", "archives")
def notes_after_publication() -> list[Patch]:
    announce, whole = GuardIndex.announce, Transaction._publish_completed

    def late(self: Transaction, *given: Any) -> Any:
        outcome = whole(self, *given)
        if self._guard is not None:
            with suppress(OSError):  # the commit stands
                announce(self._ctx.guards, self._guard, self.instant)
        return outcome

    return [
        patch.object(GuardIndex, "announce", nothing),
        patch.object(Transaction, "_publish_completed", late),
    ]


@seeded_bug("what completed while a plan was made is not looked at: the lock is trusted", "compactions")
def plan_not_compared() -> list[Patch]:
    return [patch.object(publish, "_completed", lambda timeline: set())]


@seeded_bug("a bulk insert looks for overlaps before it asks for the lock, not under it", "bulk")
def overlaps_before_the_lock() -> list[Patch]:
    whole = Transaction._may_complete

    def blind(self: Transaction, section: Section) -> str | None:
        with patch.object(self, "_overlaps", None):
            return whole(self, section)

    return [patch.object(Transaction, "_may_complete", blind)]


@seeded_bug("a rollback removes the files that have markers, and looks no further")
def rollback_by_markers() -> list[Patch]:
    def marked(ctx: Any, instant: str) -> Iterator[tuple[str, str, str]]:
        storage = ctx.seams.storage
        for partition, name in list(task.marked_files(storage, instant)):
            if storage.stat(paths.in_partition(partition, name)) is not None:
                yield partition, paths.file_id_of(name), name

    return [patch.object(rollback, "_files_of", marked)]


@seeded_bug("a clean takes files that a pending compaction still has to read", "cleanings")
def clean_ignores_pending_plans() -> list[Patch]:
    def kept(state: TableState) -> dict[str, set[str]]:
        return savepointed_files(state.storage, state.timeline)

    return [patch.object(clean_plan, "kept_files", kept)]


@seeded_bug("heartbeats are judged by the clock of the process that looks, not by the store's")
def heartbeats_by_own_clock() -> list[Patch]:
    whole = Heartbeats.expired

    def expired(self: Heartbeats, instant: str, store_now_ms: int) -> bool:
        return whole(self, instant, int(self._clock.now_ms()))

    return [patch.object(Heartbeats, "expired", expired)]


@seeded_bug("a reader lists the data files first and the timeline after them")
def files_before_timeline() -> list[Patch]:
    load, listed = TableState.load.__func__, TableState.partitions

    def early(cls: Any, storage: Any, config: Any) -> TableState:
        from mainstem.table.partitions import list_partitions

        before = list(list_partitions(storage, partitioned=bool(config.partition_fields)))
        state = load(cls, storage, config)
        state.listed_early = before
        return state

    def partitions(self: TableState) -> Any:
        early = getattr(self, "listed_early", None)
        return listed(self) if early is None else iter(early)

    return [
        patch.object(TableState, "load", classmethod(early)),
        patch.object(TableState, "partitions", partitions),
    ]


@seeded_bug("rollbacks that died halfway are taken for somebody else's business")
def rollbacks_not_resumed() -> list[Patch]:
    return [patch.object(rollback, "_resume", nothing)]


@seeded_bug("an executor links its base file without asking whether the plan is pending still", "services")
def linked_without_a_look() -> list[Patch]:
    class Everything:
        def __contains__(self, time: str) -> bool:
            return True

    return [patch.object(compact_group, "pending", lambda timeline: Everything())]


@seeded_bug("a commit does not take in the columns that others added meanwhile", "columns")
def columns_of_others_forgotten() -> list[Patch]:
    return [patch.object(transaction, "newer_schema", nothing)]


@seeded_bug("log files that are full are closed and not synced, only those open at the commit are", "tasks")
def full_logs_not_synced() -> list[Patch]:
    def close(self: BucketAppender, key: tuple[str, int]) -> None:
        log = self._logs.pop(key)
        log.sink.close(durable=False)
        log.stat.size_bytes = log.sink.size
        self._closed.append(log.stat)

    return [patch.object(BucketAppender, "_close_log", close)]


@seeded_bug("files of task attempts that lost stay beside those of the winner", "tasks")
def losing_attempts_stay() -> list[Patch]:
    return [patch.object(Transaction, "_remove_unclaimed", nothing)]
