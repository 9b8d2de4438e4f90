"""Runs table services after a commit, if the options ask for it: those that are due, here or in a thread.

A commit calls this once its outcome is certain. Most commits find nothing due, and finding that out costs no
storage call, because the commit has just listed the timeline (with a metadata table: one listing of its
timeline). A failing service is a warning, never the commit's error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator

from mainstem.errors import MainstemError
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.services import (
    archive_plan,
    clean_plan,
    cleaning,
    compaction,
    log_compaction,
)
from mainstem.services.archive_plan import ArchiveOptions, Subject
from mainstem.services.background import Background
from mainstem.services.clean_plan import CleanOptions, Frees
from mainstem.services.compaction_plan import CompactionOptions
from mainstem.services.log_compaction_plan import LogCompactionOptions
from mainstem.services.metadata.metadata_overdue import Overdue
from mainstem.services.metadata.metadata_round import MetadataDue
from mainstem.services.progress import Progress
from mainstem.services.runner import (
    RefreshVectors,
    Result,
    Round,
    ServiceRun,
    ServiceWarning,
    warn_of_failures,
)
from mainstem.services.service_switches import (
    ARCHIVING,
    CLEANING,
    COMPACTION,
    LOG_COMPACTION,
    METADATA,
    SERVICES,
    VECTORS,
    RunOptions,
)
from mainstem.timeline import compaction_trigger
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import LOGCOMPACTION, REQUESTED
from mainstem.writers.context import WriterContext

_LOG_COMPACTION_PLAN = f".{LOGCOMPACTION}.{REQUESTED}"


class AfterCommits:
    """The services of one open table, called after each of its commits (``ctx.after_commit``).

    ``vectors``: as in ``Round``.
    """

    def __init__(self, ctx: WriterContext, options: RunOptions, vectors: RefreshVectors) -> None:
        self._ctx = ctx
        self._options = options
        self._refreshes = Refreshes(ctx, vectors)
        # Left out until needed: if the table gets a metadata table later, wrong options only warn then.
        self._due = Due(ctx, self._services(options)) if options.at_commits else None
        self._overdue = Overdue(ctx) if METADATA in options.beside else None
        self._background = Background(self._beside)

    def __call__(self, timeline: ActiveTimeline) -> None:
        try:
            self._run_or_wake(timeline)
        except Exception as error:  # whatever fails (say, no thread can be started), the commit stands
            warnings.warn(
                f"table services of {self._ctx.base} could not be started: {error}. The commit stands; the"
                " next one tries again",
                ServiceWarning,
                stacklevel=3,
            )

    def _run_or_wake(self, timeline: ActiveTimeline) -> None:
        options = self._options
        known = METADATA in (*self._services(options), *options.gently)
        if not known and has_metadata(self._ctx.newest_properties.raw):
            options = options.with_metadata()
            self._due = Due(self._ctx, self._services(options))
            self._options = options
        assert self._due is not None
        own = None if self._overdue is None else self._overdue.timeline()
        due = self._due.find(timeline, own)
        after = tuple(s for s in self._options.after if s in due)
        if own is not None and self._overdue is not None and self._overdue.find(own):
            after = tuple(s for s in SERVICES if s in (*after, METADATA))
        runs = Round(after).run(self._ctx) if after else []
        if self._options.after_plans and COMPACTION in due:
            runs.append(self._plan())
        warn_of_failures(runs, self._ctx.base)
        compacted = any(run.service == COMPACTION and run.results for run in runs)
        if VECTORS in self._options.beside and self._refreshes.are_due(timeline, compacted=compacted):
            due.add(VECTORS)
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
        plan = Round(self._options.beside, stopping=stopping, vectors=self._refreshes.run)
        runs = plan.run(self._ctx)
        return warn_of_failures(runs, self._ctx.base)

    def stop(self) -> None:
        """Stop the rounds beside commits; returns after the current step."""
        self._background.stop()


class Refreshes:
    """Decides when vector indexes are refreshed beside commits.

    That is after every compaction, whichever process ran it, and every ``COMMITS`` commits. Refreshes take at
    most a fifth of the time: after each one there is a pause of ``PAUSE`` times its duration.
    """

    COMMITS = 20
    PAUSE = 4  # times the duration of the last refreshes

    def __init__(self, ctx: WriterContext, vectors: RefreshVectors) -> None:
        self._ctx, self._clock = ctx, ctx.seams.clock
        self._vectors = vectors
        self._compaction = ""  # the newest one at the last look
        self._commits = 0  # since then
        self._not_before_ms = self._clock.monotonic_ms()

    def are_due(self, timeline: ActiveTimeline, *, compacted: bool = False) -> bool:
        """Whether refreshes are due after a commit that saw ``timeline``.

        ``compacted``: the commit itself has just compacted the table.
        """
        self._commits += 1
        return (compacted or self._has_grown(timeline)) and self._have_paused()

    def run(self, ctx: WriterContext, if_due: bool, progress: Progress) -> Iterator[Result]:
        """The last part of a round; does nothing if the round ran for other services."""
        timeline = ctx.publisher.timeline()
        if not (self._has_grown(timeline) and self._have_paused()):
            return
        self._compaction = compaction_trigger.last_compaction(timeline, requested=False)
        self._commits, began = 0, self._clock.monotonic_ms()
        try:
            yield from self._vectors(ctx, if_due, progress)
        finally:  # a failure must not be repeated at every commit either
            ended = self._clock.monotonic_ms()
            self._not_before_ms = ended + self.PAUSE * (ended - began)

    def _has_grown(self, timeline: ActiveTimeline) -> bool:
        newest = compaction_trigger.last_compaction(timeline, requested=False)
        return newest > self._compaction or self._commits >= self.COMMITS

    def _have_paused(self) -> bool:
        return self._clock.monotonic_ms() >= self._not_before_ms


class Due:
    """Which of some services may have work, judged by names on the timeline alone."""

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
            ARCHIVING: self._grew_long,
        }
        self._asked = {service: asked[service] for service in services if service in asked}

    def find(self, timeline: ActiveTimeline, own: ActiveTimeline | None = None) -> set[str]:
        """The services that may have work; a service in it may still find that it has none.

        ``own``: the metadata table's timeline, if it is known.
        """
        found = {service for service, due in self._asked.items() if due(timeline)}
        if self._metadata is not None and self._metadata.find(timeline, own):
            found.add(METADATA)
        return found

    def _grew(self, timeline: ActiveTimeline) -> bool:
        if compaction.pending(timeline):
            return True
        return compaction_trigger.is_due(timeline, self._compaction, self._now())

    def _grew_logs(self, timeline: ActiveTimeline) -> bool:
        if log_compaction.pending(timeline):
            return True
        last = compaction_trigger.last_compaction(timeline, requested=False)
        planned = (n.partition(".")[0] for n in timeline.names if n.endswith(_LOG_COMPACTION_PLAN))
        return compaction_trigger.commits_since(timeline, max(last, *planned, "")) >= self._log_blocks

    def _grew_long(self, timeline: ActiveTimeline) -> bool:
        if self._archive is None or Subject(self._ctx, self._archive).rests:
            return False
        return archive_plan.is_due(timeline, self._archive, self._now())

    def _frees_files(self, timeline: ActiveTimeline) -> bool:
        if cleaning.pending(timeline):
            return True
        return clean_plan.is_due(timeline, self._clean) and self._frees(timeline, self._now())
