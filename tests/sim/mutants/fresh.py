"""Seeded bugs of somebody who did not write the code under test, made up from the documents alone.

Each is a mistake that is easily made when a step of the protocol is written anew: a sync that seems to be
superfluous, a look that is taken a moment too early, a case that never happens on one's own machine.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.publish.publisher import Publisher, Section
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.writers import rollback, transaction, write_ordinals
from mainstem.writers.stream_guard import GuardIndex
from mainstem.writers.transaction import Transaction
from tests.sim.mutants.interrupts import rolled_over_not_synced
from tests.sim.mutants.mutant import FAILING, Patch, nothing, seeded_bug
from tests.sim.sim_storage import SimStorage
from tests.sim.world import STEPS, Faults


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
    return [patch.object(Publisher, "_applied", lambda *given: False)]


@seeded_bug("a bulk insert looks for overlaps before it asks for the lock, not under it", "bulk")
def overlaps_before_the_lock() -> list[Patch]:
    whole = Transaction._may_complete

    def blind(self: Transaction, section: Section) -> str | None:
        with patch.object(self, "_overlaps", None):
            return whole(self, section)

    return [patch.object(Transaction, "_may_complete", blind)]


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
        from mainstem.layout.partitions import list_partitions

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


@seeded_bug("a commit does not take in the columns that others added meanwhile", "columns")
def columns_of_others_forgotten() -> list[Patch]:
    return [patch.object(transaction, "newer_schema", nothing)]


@seeded_bug("log files that are full are closed and not synced, only those open at the commit are", "tasks")
def full_logs_not_synced() -> list[Patch]:
    return rolled_over_not_synced()


@seeded_bug("files of task attempts that lost stay beside those of the winner", "tasks")
def losing_attempts_stay() -> list[Patch]:
    return [patch.object(Transaction, "_remove_unclaimed", nothing)]


#: drivers die as soon as their commit is visible, and are started again when others have long gone on
DYING_WHEN_VISIBLE = Faults(crash_after=STEPS[0], crash_after_often=0.3, restart_ms_max=20_000)


@seeded_bug(
    "which instant holds a batch is noted when the batch is committed, not before: who dies between the two"
    " leaves a batch that is not found once it is archived",
    "archives",
    DYING_WHEN_VISIBLE,
)
def notes_after_publication() -> list[Patch]:
    announce, publish = GuardIndex.announce, Transaction._publish_completed

    def late(self: Transaction, stats: Any, rows: int) -> Any:
        outcome = publish(self, stats, rows)
        if self._guard is not None:
            announce(self._ctx.guards, self._guard, self.instant)
        return outcome

    return [
        patch.object(GuardIndex, "announce", nothing),
        patch.object(Transaction, "_publish_completed", late),
    ]


@seeded_bug("a batch that is run again goes on counting its writes where the last run stopped", "ordinals")
def replays_count_on() -> list[Patch]:
    whole = write_ordinals._choose

    def choose(state: Any, run: Any, *given: Any) -> int:
        return whole(state, run, *given) + sum(len(other) for _, other in state.runs if other is not run)

    return [patch.object(write_ordinals, "_choose", choose)]
