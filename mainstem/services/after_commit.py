"""What a commit does about table services, when it was asked to: run what is due, or wake a thread.

It is called with the outcome certain. Most commits find nothing due; to know that costs no look at storage,
for the commit has just listed the timeline. A failing service is a warning, never the commit's error.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem.errors import MainstemError
from mainstem.services import clean_plan, cleaning, compaction, compaction_plan
from mainstem.services.background import Background
from mainstem.services.clean_plan import CleanOptions
from mainstem.services.compaction_plan import CompactionOptions
from mainstem.services.run_options import CLEANING, COMPACTION, RunOptions
from mainstem.services.runner import Round, ServiceRun, warn_of_failures
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import COMMIT, REPLACECOMMIT
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
        properties = {**ctx.config.raw, **ctx.given}
        self._now = ctx.publisher.now
        self._compaction = CompactionOptions.from_properties(properties)
        self._clean = CleanOptions.from_properties(properties)
        self._freed = ""

    def find(self, timeline: ActiveTimeline) -> set[str]:
        """A service that is not in it has nothing to do; one that is may still find that it has not."""
        due = set()
        if compaction.pending(timeline) or compaction_plan.is_due(timeline, self._compaction, self._now()):
            due.add(COMPACTION)
        if cleaning.pending(timeline) or self._frees_files(timeline):
            due.add(CLEANING)
        return due

    def _frees_files(self, timeline: ActiveTimeline) -> bool:
        """Only what a compaction replaced can go, and only once the retained commits begin after it.

        Without that look a clean would list the table after every commit, as often as its trigger fires.
        """
        if not clean_plan.is_due(timeline, self._clean):
            return False
        done = (i.completion or "" for i in timeline.completed if i.action in (COMMIT, REPLACECOMMIT))
        newer = [time for time in done if time >= self._freed]
        if self._clean.by_versions:
            until = timeline.newest_time + "0"
        else:
            boundary = clean_plan.boundary(timeline, self._clean, self._now())
            until = "" if boundary is None else boundary.moment
        if not any(time < until for time in newer):
            return False
        self._freed = until
        return True
