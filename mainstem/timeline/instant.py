"""Instants and the names of their timeline files (layout 2, TimelineLayout / InstantFileNameParserV2)."""

from __future__ import annotations

import re
from dataclasses import dataclass

REQUESTED = "requested"
INFLIGHT = "inflight"
COMPLETED = "completed"
_STATE_RANK = {REQUESTED: 0, INFLIGHT: 1, COMPLETED: 2}

COMMIT = "commit"
DELTACOMMIT = "deltacommit"
REPLACECOMMIT = "replacecommit"
COMPACTION = "compaction"
LOGCOMPACTION = "logcompaction"
CLUSTERING = "clustering"
CLEAN = "clean"
ROLLBACK = "rollback"
RESTORE = "restore"
SAVEPOINT = "savepoint"
INDEXING = "indexing"

# Name of a pending action -> its name once completed.
COMPLETES_AS = {COMPACTION: COMMIT, LOGCOMPACTION: DELTACOMMIT, CLUSTERING: REPLACECOMMIT}
ACTIONS = frozenset(
    (
        COMMIT, DELTACOMMIT, REPLACECOMMIT, COMPACTION, LOGCOMPACTION, CLUSTERING, CLEAN,
        ROLLBACK, RESTORE, SAVEPOINT, INDEXING,
    )
)  # fmt: skip
# Actions whose earliest instant marks the start of the active timeline ("archived means before it").
WRITE_ACTIONS = frozenset(
    (COMMIT, DELTACOMMIT, REPLACECOMMIT, COMPACTION, LOGCOMPACTION, CLUSTERING)
)

# Actions whose requested file holds the plan: without it, an inflight file means nothing.
PLANNED_ACTIONS = frozenset((COMPACTION, LOGCOMPACTION, CLUSTERING, CLEAN, ROLLBACK, RESTORE, INDEXING))

_NAME = re.compile(r"^([0-9]{14,20})(?:_([0-9]{14,20}))?\.(?:([a-z]+)(?:\.(requested|inflight))?)\Z")


@dataclass(frozen=True, slots=True)
class Instant:
    """One action on the timeline.

    While pending, ``action`` is the logical name (``compaction``); once completed it is the name in the file
    (``commit``), as in Java. Times are 17 digits ``yyyyMMddHHmmssSSS`` in the table's time zone and compare
    as text.
    """

    requested: str
    action: str
    state: str
    completion: str | None = None

    @property
    def comparable_action(self) -> str:
        """The same for all states of one instant: compaction = commit, logcompaction = deltacommit."""
        return COMPLETES_AS.get(self.action, self.action)

    @property
    def is_completed(self) -> bool:
        return self.state == COMPLETED

    @property
    def file_name(self) -> str:
        """Name of the file that shows this state."""
        if self.state == COMPLETED:
            return f"{self.requested}_{self.completion}.{self.action}"
        if self.state == INFLIGHT and self.action == COMMIT:
            return f"{self.requested}.inflight"
        return f"{self.requested}.{self.action}.{self.state}"


# What sets the fields of a frozen object, as its own ``__init__`` does at three times the cost.
_put_requested, _put_action, _put_state, _put_completion = (
    getattr(Instant, name).__set__ for name in ("requested", "action", "state", "completion")
)


def _completed(requested: str, action: str, completion: str) -> Instant:
    """``Instant(...)``: a long timeline has tens of thousands of them."""
    made = object.__new__(Instant)
    _put_requested(made, requested)
    _put_action(made, action)
    _put_state(made, COMPLETED)
    _put_completion(made, completion)
    return made


def parse_instant(name: str) -> Instant | None:
    """The instant that a file name shows; None for other files (also Java's temporary ``<name>.<uuid>``)."""
    match = _NAME.match(name)
    if match is None:
        return None
    requested, completion, word, state = match.groups()
    if completion is not None:
        if state is not None or word not in ACTIONS or word in COMPLETES_AS:
            return None
        return _completed(requested, word, completion)
    if state is None:
        return Instant(requested, COMMIT, INFLIGHT) if word == INFLIGHT else None
    known = word in ACTIONS and (word, state) != (COMMIT, INFLIGHT)  # that one is `<requested>.inflight`
    return Instant(requested, word, state) if known else None


def state_rank(instant: Instant) -> int:
    """Requested < inflight < completed."""
    return _STATE_RANK[instant.state]
