"""Decides what counts in the metadata table as of one view of the data table.

An instant is completed on the metadata table before it is completed on the data table. In between, and for
ever if the writer dies there, its rows describe files that no query may see. A log block counts
(``HoodieTableMetadataUtil.getValidInstantTimestamps``):

1. if its instant is completed on the data table's active timeline;
2. if its instant is completed on the metadata table and *not pending* on the data table. Those are instants
that
   the data table has archived, and instants of the metadata table alone (restores);
3. if its instant made the partition (``00000000000000000`` and following).

Java also reads rollback blocks. Tables from version 8 on have none; they are refused here.

Two further conditions, which Java does not check, make an answer fit the view. An instant completed after the
view was listed, or one that is being rolled back in it, does not count under rule 2. And a compacted base
file must not hold rows of an instant that does not count (``ahead``): the view is then older than the file,
and what the view needs may have been cleaned.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import cached_property

from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import COMMIT, DELTACOMMIT

_MADE = "00000000000000"  # prefix of no real date's instants


class AheadOfView(FileNotFoundError):
    """A base file of the metadata table may hold rows of instants that do not count."""


class Validity:
    """``data``: the view; ``own``: the metadata table's timeline, listed after it; ``archived``: returns the
    completion time of its archived instants; ``undone``: completed instants that the view leaves out."""

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
        """The same view of the data table with a later listing of the metadata table's timeline."""
        return Validity(self._data, own, self._archived, self._undone)

    def completion(self, requested: str) -> str | None:
        """Completion time on the metadata table, for slicing; None for an instant that is not completed
        there, and for a compaction that holds rows that do not count."""
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
        """Completion time of the earliest delta commit that does not count."""
        done = ((i.completion or "", i.requested) for i in self._own.completed if i.action == DELTACOMMIT)
        return min((c for c, requested in done if not self.counts(requested)), default=None)
