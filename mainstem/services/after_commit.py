"""What a commit does about table services, when it was asked to: run what is due, or wake a thread.

It is called with the outcome certain. Most commits find nothing due; to know that costs no look at storage,
for the commit has just listed the timeline (with a metadata table: one listing of that one's). A failing
service is a warning, never the commit's error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

from mainstem.errors import MainstemError
from mainstem.services import (
    archive_plan,
    clean_plan,
    cleaning,
    compaction,
    log_compaction,
)
from mainstem.services.archive_plan import ArchiveOptions
from mainstem.services.background import Background
from mainstem.services.clean_plan import CleanOptions, Frees
from mainstem.services.compaction_plan import CompactionOptions
from mainstem.services.log_compaction_plan import LogCompactionOptions
from mainstem.services.metadata_services import MetadataDue
from mainstem.services.run_options import (
    ARCHIVING,
    CLEANING,
    COMPACTION,
    LOG_COMPACTION,
    METADATA,
    RunOptions,
)
from mainstem.services.runner import Round, ServiceRun, ServiceWarning, warn_of_failures
from mainstem.timeline import compaction_trigger
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import LOGCOMPACTION, REQUESTED
from mainstem.writers.context import WriterContext

_LOG_COMPACTION_PLAN = f".{LOGCOMPACTION}.{REQUESTED}"


class AfterCommits:
    """The services of one open table, asked after each of its commits (``ctx.after_commit``)."""

    def __init__(self, ctx: WriterContext, options: RunOptions) -> None:
        self._ctx = ctx
        self._options = options
        # Of a table that asked for no service until it got a metadata table: wrong options are warnings then.
        self._due = Due(ctx, self._services(options)) if options.at_commits else None
        self._background = Background(self._beside)

    def __call__(self, timeline: ActiveTimeline) -> None:
        try:
            self._run_or_wake(timeline)
        except Exception as error:  # whatever it is (no thread can be started ...), the commit stands
            warnings.warn(
                f"table services of {self._ctx.base} could not be started: {error}. The commit stands; the"
                " next one tries again",
                ServiceWarning,
                stacklevel=3,
            )

    def _run_or_wake(self, timeline: ActiveTimeline) -> None:
        if METADATA not in self._options.after and self._ctx.publisher.wrote_metadata:
            options = self._options.with_metadata()
            self._due = Due(self._ctx, self._services(options))
            self._options = options
        assert self._due is not None
        due = self._due.find(timeline)
        after = tuple(s for s in self._options.after if s in due)
        runs = Round(after).run(self._ctx) if after else []
        if self._options.after_plans and COMPACTION in due:
            runs.append(self._plan())
        warn_of_failures(runs, self._ctx.base)
        if any(service in due for service in self._options.beside):
            self._background.wake()

    @staticmethod
    def _services(options: RunOptions) -> tuple[str, ...]:
        planned = (COMPACTION,) if options.after_plans else ()
        return (*options.after, *options.beside, *planned)

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
    """Which of some services may have something to do, from names on the timeline alone."""

    def __init__(self, ctx: WriterContext, services: Iterable[str]) -> None:
        properties = {**ctx.config.raw, **ctx.given}
        self._ctx = ctx
        self._now = ctx.publisher.now
        self._compaction = CompactionOptions.from_properties(properties)
        self._clean = CleanOptions.from_properties(properties)
        self._log_blocks = LogCompactionOptions.from_properties(properties).blocks_min
        self._archive = ArchiveOptions.from_properties(properties) if ARCHIVING in services else None
        self._frees = Frees(self._clean)
        self._metadata = MetadataDue(ctx) if METADATA in services else None
        asked = {
            LOG_COMPACTION: self._grew_logs,
            COMPACTION: self._grew,
            CLEANING: self._frees_files,
            METADATA: self._grew_metadata,
            ARCHIVING: self._grew_long,
        }
        self._asked = {service: asked[service] for service in services if service in asked}

    def find(self, timeline: ActiveTimeline) -> set[str]:
        """A service that is not in it has nothing to do; one that is may still find that it has not."""
        return {service for service, due in self._asked.items() if due(timeline)}

    def _grew(self, timeline: ActiveTimeline) -> bool:
        if compaction.pending(timeline):
            return True
        return compaction_trigger.is_due(timeline, self._compaction, self._now())

    def _grew_metadata(self, timeline: ActiveTimeline) -> bool:
        """Asks storage for the names on the metadata table's timeline, where there is one."""
        return self._metadata is not None and self._metadata.find(timeline)

    def _grew_logs(self, timeline: ActiveTimeline) -> bool:
        if log_compaction.pending(timeline):
            return True
        last = compaction_trigger.last_compaction(timeline, requested=False)
        planned = (n.partition(".")[0] for n in timeline.names if n.endswith(_LOG_COMPACTION_PLAN))
        return compaction_trigger.commits_since(timeline, max(last, *planned, "")) >= self._log_blocks

    def _grew_long(self, timeline: ActiveTimeline) -> bool:
        return self._archive is not None and archive_plan.is_due(timeline, self._archive, self._now())

    def _frees_files(self, timeline: ActiveTimeline) -> bool:
        if cleaning.pending(timeline):
            return True
        return clean_plan.is_due(timeline, self._clean) and self._frees(timeline, self._now())
