"""Decides when a compaction is due, on a data table or its metadata table.

Hudi: ``CompactionTriggerStrategy``, ``ScheduleCompactionActionExecutor``.
"""

from __future__ import annotations

from typing import Protocol

from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import COMMIT, COMPACTION, DELTACOMMIT
from mainstem.truetime.instant_times import parse_wall

AFTER_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
TRIGGERS = ("NUM_COMMITS", AFTER_REQUEST, "TIME_ELAPSED", "NUM_OR_TIME", "NUM_AND_TIME")
#: Prefix of the instants that initialise partitions of the metadata table: they carry no real time.
INITIAL = "00000000000000"


class Trigger(Protocol):
    """Validated options: one of ``TRIGGERS`` and its bounds."""

    @property
    def trigger(self) -> str: ...
    @property
    def delta_commits(self) -> int: ...
    @property
    def delta_seconds(self) -> int: ...


def is_due(timeline: ActiveTimeline, options: Trigger, now: str) -> bool:
    """Whether the trigger fires; ``now`` is an instant time in the table's zone.

    Age counts from the last completed compaction, or from the first delta commit that has a time.
    """
    last = last_compaction(timeline, requested=options.trigger == AFTER_REQUEST)
    enough = commits_since(timeline, last) >= options.delta_commits
    deltas = (i.requested for i in timeline.completed if i.action == DELTACOMMIT)
    first = min((time for time in deltas if not time.startswith(INITIAL)), default=now)
    age = parse_wall(now) - parse_wall(last_compaction(timeline, requested=False) or first)
    old = age.total_seconds() >= options.delta_seconds
    return {
        "NUM_COMMITS": enough,
        AFTER_REQUEST: enough,
        "TIME_ELAPSED": old,
        "NUM_OR_TIME": enough or old,
        "NUM_AND_TIME": enough and old,
    }[options.trigger]


def pending(timeline: ActiveTimeline) -> list[str]:
    """Requested times of compactions that are planned but not completed, oldest first."""
    return [i.requested for i in timeline.pending_services if i.action == COMPACTION]


def last_compaction(timeline: ActiveTimeline, *, requested: bool) -> str:
    """Requested time of the newest completed compaction, "" if there is none.

    With ``requested``, planned compactions count too.
    """
    done = [i.requested for i in timeline.completed if i.action == COMMIT]
    return max([*done, *(pending(timeline) if requested else ())], default="")


def commits_since(timeline: ActiveTimeline, compaction: str) -> int:
    """Number of delta commits that completed after the compaction's requested time."""
    return sum(
        1 for i in timeline.completed if i.action == DELTACOMMIT and (i.completion or "") > compaction
    )
