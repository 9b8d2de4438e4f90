"""What a commit does about table services, when it was asked to: run what is due, or wake a thread.

It is called with the outcome certain. Most commits find nothing due; to know that costs no look at storage,
for the commit has just listed the timeline. A failing service is a warning, never the commit's error.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem.errors import MainstemError
from mainstem.services import compaction
from mainstem.services.background import Background
from mainstem.services.compaction_plan import CompactionOptions, is_due
from mainstem.services.run_options import COMPACTION, RunOptions
from mainstem.services.runner import Round, ServiceRun, warn_of_failures
from mainstem.timeline.active import ActiveTimeline
from mainstem.writers.context import WriterContext


class AfterCommits:
    """The services of one open table, asked after each of its commits (``ctx.after_commit``)."""

    def __init__(self, ctx: WriterContext, options: RunOptions) -> None:
        self._ctx = ctx
        self._options = options
        self._due = Due(ctx)
        self._background = Background(self._beside)

    def __call__(self, timeline: ActiveTimeline) -> None:
        due = self._due.find(timeline)
        after = tuple(s for s in self._options.after if s in due)
        runs = Round(after).run(self._ctx) if after else []
        if self._options.after_plans and COMPACTION in due:
            runs.append(self._plan())
        warn_of_failures(runs, self._ctx.base)
        if any(service in due for service in self._options.beside):
            self._background.wake()

    def _plan(self) -> ServiceRun:
        try:
            compaction.schedule(self._ctx, if_due=True)
        except (MainstemError, OSError) as error:
            return ServiceRun(COMPACTION, error=error)
        return ServiceRun(COMPACTION)

    def _beside(self, stopping: Callable[[], bool]) -> bool:
        runs = Round(self._options.beside, stopping=stopping).run(self._ctx)
        return warn_of_failures(runs, self._ctx.base)

    def stop(self) -> None:
        """No more rounds beside commits; returns after the step under way."""
        self._background.stop()


class Due:
    """Which services may have something to do, from names on the timeline alone."""

    def __init__(self, ctx: WriterContext) -> None:
        self._ctx = ctx
        self._compaction = CompactionOptions.from_properties({**ctx.config.raw, **ctx.given})

    def find(self, timeline: ActiveTimeline) -> set[str]:
        due = set()
        if compaction.pending(timeline) or is_due(timeline, self._compaction, self._ctx.publisher.now()):
            due.add(COMPACTION)
        return due
