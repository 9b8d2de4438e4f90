"""Seeded bugs of what is done after an interrupt, or by an actor without manners.

Most are what mainstem did before it was tried: each lost or doubled acknowledged rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from mainstem.errors import Invalid, LeaseLost, Unavailable
from mainstem.publish.publisher import Held, Publisher
from mainstem.writers.append import BucketAppender
from mainstem.writers.rows_in import as_table
from mainstem.writers.transaction import Transaction
from mainstem.writers.transaction_turns import Turns
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug
from tests.sim.world import Faults

INTERRUPTING = Faults(interrupt=0.004)
FILLING = Faults(impolite=0.8, full_disk=0.01, error_after=0.005)
ROLLING_OVER = Faults(impolite=0.8, error_before=0.01, log_bytes_max=1024)


@seeded_bug("leaving the block aborts without asking what is published", faults=INTERRUPTING)
def abort_does_not_ask() -> list[Patch]:
    return [patch.object(Transaction, "_completed", nothing)]


@seeded_bug("an interrupted commit counts as a failed one: its files go", faults=INTERRUPTING)
def interrupted_commit_is_a_failed_one() -> list[Patch]:
    commit = Transaction._commit

    def hasty(self: Transaction) -> Any:
        try:
            return commit(self)
        except BaseException as error:
            if not isinstance(error, Exception) and self._appender is not None:
                self._appender.discard()
            raise

    return [patch.object(Transaction, "_commit", hasty)]


def _forgiving(self: BucketAppender, batch: Any, deleted: Any = None) -> int:
    """A batch that is written whole says nothing of one that was not."""
    return self._write(as_table(batch), deleted)


@seeded_bug("a later write that succeeds hides a batch that a full disk cut", faults=FILLING)
def torn_is_set_back() -> list[Patch]:
    return [patch.object(BucketAppender, "write", _forgiving)]


@seeded_bug("torn batches may commit", faults=FILLING)
def torn_may_commit() -> list[Patch]:
    return [patch.object(BucketAppender, "_check_whole", nothing)]


@seeded_bug("a write that was interrupted may be committed", faults=Faults(interrupt=0.006, impolite=0.8))
def doubtful_may_commit() -> list[Patch]:
    def check(self: Turns, instant: str) -> None:
        if self.ended:
            raise Invalid("ended")

    return [
        patch.object(Turns, "check_open", check),
        patch.object(BucketAppender, "_check_whole", nothing),
    ]


@seeded_bug("commit() called again after a sync that failed says committed", faults=FILLING)
def failed_sync_is_forgotten() -> list[Patch]:
    def settle(self: BucketAppender, others: Sequence[Any] = ()) -> None:
        logs = list(self._logs.values())
        for log in logs:
            self._end(log)
        self._logs.clear()
        self._closed += [stat for log in logs for stat in log.stats]
        sinks = [*(sink for log in logs for sink in log.sinks), *others]
        folders = {""} | {f.rpartition("/")[0] for f in self._folders} | self._folders
        try:
            self._storage.settle(sinks, sorted(folders), durable=self._spec.fsync)
        except OSError as error:
            raise Unavailable(f"closing log files failed: {error}") from error

    return [patch.object(BucketAppender, "settle", settle)]


@seeded_bug("log files that are closed at roll-over are not synced", faults=ROLLING_OVER)
def rolled_over_not_synced() -> list[Patch]:
    def close(self: BucketAppender, key: tuple[str, int]) -> None:
        self._end(self._logs[key])
        self._put_markers()
        for sink in self._logs[key].sinks:
            sink.close(durable=False)
        self._note_closed(key)

    return [patch.object(BucketAppender, "_close_log", close)]


@seeded_bug("a log file whose closing at roll-over failed is left out of the commit", faults=ROLLING_OVER)
def rolled_over_is_lost() -> list[Patch]:
    def close(self: BucketAppender, key: tuple[str, int]) -> None:
        self._end(self._logs[key])
        self._put_markers()
        log = self._logs.pop(key)
        for sink in log.sinks:
            sink.close(durable=self._spec.fsync)
        self._closed += log.stats

    return [
        patch.object(BucketAppender, "_close_log", close),
        patch.object(BucketAppender, "write", _forgiving),
    ]


@seeded_bug("an interrupt just after the lock was taken keeps it for good", faults=INTERRUPTING)
def interrupted_holder_keeps_the_lock() -> list[Patch]:
    def attempts(self: Publisher, doing: str, section: Callable[..., Any], *given: Any) -> Any:
        for attempt in range(1, 30):
            lease = self._seams.lock.acquire()
            self._seams.clock.monotonic_ms()
            try:
                return section(lease, *given), Held(attempt)
            except LeaseLost:
                continue
            finally:
                lease.release()
        raise LeaseLost(f"superseded while {doing}")

    return [patch.object(Publisher, "_attempts", attempts)]
