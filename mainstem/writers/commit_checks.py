"""What a transaction checks under the lock before it completes, whatever it wrote: that it stands, and that
the table has the buckets for which its rows were made. What depends on its rows, ``transaction`` adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

from mainstem.errors import RolledBack
from mainstem.publish.publisher import Section
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, REQUESTED, RESTORE
from mainstem.timeline.restore_records import being_restored
from mainstem.writers.conflicts import Overlap
from mainstem.writers.context import WriterContext
from mainstem.writers.resize_property import is_pending
from mainstem.writers.rollback import condemned
from mainstem.writers.write_spec import OF_BASE_FILES, WriteSpec


@dataclass(frozen=True)
class FoundCommitted:
    """A decision: ``instant`` has committed this micro-batch already."""

    instant: str


@dataclass(frozen=True)
class Resized:
    """A decision: the table has another number of buckets by now; the rows are to be routed anew."""

    buckets: int


@dataclass(frozen=True)
class Closed:
    """A decision: a resize is in its last round, by ``instant``; nothing completes before it has ended."""

    instant: str


def check_stands(ctx: WriterContext, timeline: ActiveTimeline, instant: str) -> Mapping[str, str]:
    """Raises ``RolledBack`` if the transaction was undone, or is about to be; returns what else rollbacks
    take back (``rollback.condemned``)."""
    # Both files: a writer that stood still inside begin may make its inflight file after its rollback.
    states = (REQUESTED, INFLIGHT)
    if not all(timeline.has(f"{instant}.{DELTACOMMIT}.{state}") for state in states):
        why = "the transaction was rolled back by another writer, which found its heartbeat expired;"
        raise undone(why, ctx, instant)
    restore = being_restored(ctx.seams.storage, timeline).get(instant)
    if restore is not None:
        raise undone(
            f"the restore {restore} removes this transaction, whose heartbeat had expired;", ctx, instant
        )
    if (later := _restored_since(timeline, instant)) is not None:
        why = f"the restore {later} was planned before it could see this transaction;"
        raise undone(why, ctx, instant)
    condemned_now = condemned(ctx.seams.storage, timeline)
    rollback = condemned_now.get(instant)
    if rollback is not None:
        raise undone(f"rollback {rollback} of this transaction is under way;", ctx, instant)
    return condemned_now


def undone(why: str, ctx: WriterContext, instant: str) -> RolledBack:
    """The error of a transaction that others undid."""
    return RolledBack(
        f"{why} nothing of it is visible: write the data again in a new transaction",
        table=ctx.base,
        instant=instant,
    )


def _restored_since(timeline: ActiveTimeline, instant: str) -> str | None:
    """A completed restore that was requested after this transaction but did not remove it: its process had
    listed the timeline just before the request was there (``publish.publisher``)."""
    later = takewhile(lambda i: i.requested > instant, reversed(timeline.completed))
    return next((i.requested for i in later if i.action == RESTORE), None)


def resized(
    ctx: WriterContext, spec: WriteSpec, section: Section, condemned_now: Mapping[str, str]
) -> Overlap | Resized | Closed | None:
    """Whether the table was resized, or is about to be, in a way that concerns a write with this spec."""
    found = ctx.properties(section)
    buckets, resize = ctx.buckets_now(found, section.timeline), found.open_resize
    if buckets != spec.buckets:
        ctx.follow_resize(buckets)
        if spec.operation in OF_BASE_FILES:
            return Overlap(f"resize to {buckets} buckets", found.resizes[-1].instant, "", None)
        return Resized(buckets)
    if resize is not None and resize.closed and is_pending(section.timeline, resize):
        return Closed(resize.instant) if resize.instant not in condemned_now else None
    return None
