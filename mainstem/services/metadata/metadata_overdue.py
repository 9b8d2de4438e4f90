"""A commit runs the metadata table's own services itself if nobody else gets to them.

Where they run beside commits (``services.service_switches``), something may keep them from running for long:
no thread can be started, another table's round has the turn, or a pause lasts longer than a fast writer
takes for hundreds of commits. Every commit adds log files to the metadata table, which all its readers open.
So a commit that finds ``TIMES`` as many delta commits as make a compaction due does what is due, and the
writer waits for it. If nothing comes of it, since another process is at it or a commit in flight holds
it back, the next try is as many commits later as make a compaction due.
"""

from __future__ import annotations

from mainstem.metadata.metadata_compaction_plan import MetadataCompactionOptions
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.compaction_trigger import commits_since, is_due, last_compaction
from mainstem.writers.context import WriterContext

#: times the commits that make a compaction of the metadata table due
TIMES = 12


class Overdue:
    """Judges the metadata table's timeline after each commit of one handle."""

    def __init__(self, ctx: WriterContext) -> None:
        """Raises ``Invalid`` for options that do not parse."""
        self._ctx = ctx
        self._options = MetadataCompactionOptions.from_properties({**ctx.config.raw, **ctx.given})
        self._tried = 0  # at so many commits

    def timeline(self) -> ActiveTimeline | None:
        """The metadata table's, as the commit left it; None if the table has none."""
        if not has_metadata(self._ctx.newest_properties.raw):
            return None
        return self._ctx.publisher.metadata_seen()

    def find(self, own: ActiveTimeline) -> bool:
        """Whether the commit that left ``own`` must run the services itself."""
        enough = self._options.delta_commits
        commits = commits_since(own, last_compaction(own, requested=False))
        if commits < TIMES * enough:
            self._tried = 0
            return False
        if commits < self._tried + enough or not is_due(own, self._options, self._ctx.publisher.now()):
            return False
        self._tried = commits
        return True
