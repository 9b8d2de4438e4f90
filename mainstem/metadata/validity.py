"""What counts in the metadata table as of one view of the data table.

An instant of the metadata table is completed before its data's. In between, and for ever if the writer dies
there, its rows describe files that no query may see. A log block counts (``HoodieTableMetadataUtil.
getValidInstantTimestamps``; MDT instants are those of the metadata table):

1. if its instant is completed on the data table's active timeline;
2. if it is completed on the metadata table and *not pending* on the data table: instants that are archived
   there, and those of the metadata table alone (restores);
3. if it made the partition (``00000000000000000`` and following).

Java reads rollback blocks too, which tables from version 8 on do not have; they are refused here.

Two further conditions make an answer fit the view, which Java does not ask for: what was completed after the
view was listed, or is being taken back in it, does not count under 2. And a compacted base file must not hold
rows of an instant that does not count (``ahead``): the view is older than it, and what the view needs may be
cleaned away.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cached_property

from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import COMMIT, DELTACOMMIT

_MADE = "00000000000000"  # no instant of a real day begins like this


class AheadOfView(FileNotFoundError):
    """A base file of the metadata table may hold rows of instants that do not count."""


class Validity:
    """``data``: the view; ``own``: the metadata table's timeline, listed later; ``archived``: completion time
    of its archived instants; ``undone``: completed instants that the view leaves out."""

    def __init__(
        self,
        data: ActiveTimeline,
        own: ActiveTimeline,
        archived: Callable[[str], str | None],
        undone: Container[str] = (),
    ) -> None:
        self._data = data
        self._completed = data.completion_times
        self._pending = {i.requested for i in data.pending}
        self._newest = data.newest_time
        self._own = own
        self._archived = archived
        self._undone = undone
        self._commits = {i.requested for i in own.completed if i.action == COMMIT}

    def with_own(self, own: ActiveTimeline) -> Validity:
        """The same view of the data table, and a later listing of the metadata table's timeline."""
        return Validity(self._data, own, self._archived, self._undone)

    def completion(self, requested: str) -> str | None:
        """Completion time on the metadata table for slicing; None if it is not completed, or a compaction
        of rows that do not count."""
        found = self._own.completion_times.get(requested)
        if found is None and requested not in self._own_pending:
            found = self._archived(requested)
        return None if found is None or self.ahead(requested) else found

    def ahead(self, requested: str) -> bool:
        """Whether a base file of this instant may hold rows that do not count."""
        if requested in self._commits:
            return self._first_hidden is not None and requested > self._first_hidden
        gone = requested not in self._own.completion_times and requested not in self._own_pending
        return gone and requested > self._newest > "" and self._archived(requested) is not None

    def counts(self, requested: str) -> bool:
        """Whether log blocks of this instant count."""
        if requested in self._completed or requested.startswith(_MADE):
            return True
        if requested in self._pending or requested in self._undone:
            return False
        own = self._own.completion_times.get(requested) or self._archived(requested)
        return own is not None and (not self._newest or own <= self._newest)

    @cached_property
    def _own_pending(self) -> frozenset[str]:
        return frozenset(i.requested for i in self._own.pending)

    @cached_property
    def _first_hidden(self) -> str | None:
        """Completion time of the first delta commit that does not count."""
        done = ((i.completion or "", i.requested) for i in self._own.completed if i.action == DELTACOMMIT)
        return min((c for c, requested in done if not self.counts(requested)), default=None)
