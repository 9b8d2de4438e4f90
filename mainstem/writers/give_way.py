"""Lets a transaction through whose rows others passed by before (``placed_anew``).

Its inflight file says so. Whoever is about to replace or hide file groups of a table without buckets, a
clustering or an overwrite, looks for such a file under the lock, and waits outside until that instant has
ended, for at most ``PATIENCE_MS``. Then a clustering steps back, and an overwrite goes on. Such a transaction
is within its ``commit()``, so nobody waits for a user; if its process has died it is rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import roll_back_failed_writes

#: in an inflight file: how often this transaction's rows were placed anew before
PLACED_ANEW = "mainstem.placed.anew"
#: how long others wait for it, all in all
PATIENCE_MS = 10_000
_LOOK_MS = 50


@dataclass(frozen=True)
class GiveWay:
    """A decision: the instant of a transaction that others passed by is in flight."""

    instant: str


class Patience:
    """How long one action gives way to others, once it has begun to wait."""

    def __init__(self, ctx: WriterContext) -> None:
        self._ctx = ctx
        self._until_ms: float | None = None

    @property
    def over(self) -> bool:
        """Whether it has waited for long enough."""
        return self._until_ms is not None and self._ctx.seams.clock.monotonic_ms() >= self._until_ms

    def wait(self, other: GiveWay) -> bool:
        """Wait outside the lock until that instant has ended; False if it has not."""
        ctx, clock = self._ctx, self._ctx.seams.clock
        if self._until_ms is None:
            self._until_ms = clock.monotonic_ms() + PATIENCE_MS
        while not self.over:
            if all(i.requested != other.instant for i in ctx.timeline().pending):
                return True
            clock.sleep_ms(_LOOK_MS)
            roll_back_failed_writes(ctx, if_due=True)
        return False


def passed_by(storage: Storage, timeline: ActiveTimeline) -> GiveWay | None:
    """The oldest pending write whose inflight file says ``PLACED_ANEW``; None if there is none."""
    for instant in timeline.pending:
        if instant.action != DELTACOMMIT:
            continue
        path = paths.timeline_file(f"{instant.requested}.{DELTACOMMIT}.{INFLIGHT}")
        try:
            data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:
            continue
        if PLACED_ANEW.encode() in data and PLACED_ANEW in decode_commit(data, path=path).extra:
            return GiveWay(instant.requested)
    return None
