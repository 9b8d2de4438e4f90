"""One round of table services: runs those that are due, in an order in which each helps the next.

  rollback -> log compaction -> compaction -> cleaning -> metadata table -> archiving -> vector indexes

Rollback comes first, because an instant of a dead writer holds back cleaning and archiving. Compactions make
reading faster, and cleaning removes the files that they replaced. Then come the metadata table, which
recorded all of this, and the timeline, which cleaning and the metadata table's compaction have just released.
Vector indexes are last: they take the longest, and index the files that compaction has just made.

A round has no state of its own, and no guarantee depends on it: each service is correct when several
processes run it at once, when it dies at any step, and when it is left out. So any number of processes may
run rounds, each service fails alone, and the next round continues one that ended early.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Protocol

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.services import archiving, cleaning, compaction, log_compaction
from mainstem.services.metadata import metadata_round
from mainstem.services.progress import Progress, silent
from mainstem.services.service_switches import (
    ARCHIVING,
    CLEANING,
    COMPACTION,
    LOG_COMPACTION,
    METADATA,
    ROLL_BACK,
    SERVICES,
    VECTORS,
    RunOptions,
)
from mainstem.telemetry import steps
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import roll_back_failed_writes


class ServiceWarning(UserWarning):
    """A table service failed beside or after a commit, which stands; it is tried again."""


class Result(Protocol):
    """What a service did: a dataclass that describes itself in one line."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def describe(self) -> str: ...


@dataclass(frozen=True)
class ServiceRun:
    """The outcome of one service in one round.

    ``results``: what it did, of the kinds that its own method on tables returns. ``off``: the switch that
    kept it out. ``error``: why it stopped; what ``results`` hold stands.
    """

    service: str
    results: tuple[Result, ...] = ()
    off: str | None = None
    error: Exception | None = None

    def describe(self) -> str:
        """One line for people."""
        if self.off is not None:
            return f"{self.service}: left out ({self.off})"
        said = [result.describe() for result in self.results]
        if self.error is not None:
            said.append(f"failed: {self.error}")
        return f"{self.service}: {'; '.join(said) or 'nothing to do'}"


def check_services(only: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The services named, in a round's order; raises ``Invalid`` for a name that is none."""
    if only is None:
        return None
    names = [n.strip() for n in (only.split(",") if isinstance(only, str) else only)]
    unknown = [name for name in names if name not in SERVICES]
    if unknown or not names:
        what = ", ".join(map(repr, unknown))
        said = f"no service is called {what}" if names else "no service is named"
        raise Invalid(f"{said}; there are {', '.join(SERVICES)}")
    return tuple(service for service in SERVICES if service in names)


#: refreshes the vector indexes that are due, or all that are not current
RefreshVectors = Callable[[WriterContext, bool, Progress], Iterable[Result]]
#: executes one plan, or leaves it (None) to a living executor
Execute = Callable[[WriterContext, str, Progress], "Result | None"]

#: services that plan first: their modules have ``schedule``, ``pending`` and ``execute``
PLANNED: Mapping[str, ModuleType] = {
    LOG_COMPACTION: log_compaction,
    COMPACTION: compaction,
    CLEANING: cleaning,
}


@dataclass(frozen=True)
class Round:
    """How a round runs.

    ``services``: these only. ``asked``: somebody named them, so they run whatever their switches say.
    ``if_due``: each asks its trigger first. ``stopping``: asked between two steps. ``may_plan``: whether a
    service may plan now. ``execute``: service -> how to execute a plan of it, instead of in this thread.
    ``rebuild``: builds what was set aside of the metadata table (``indexing.creating``). ``vectors``:
    refreshes vector indexes (``vectors.index.lifecycle``).
    """

    services: tuple[str, ...] = SERVICES
    asked: bool = False
    if_due: bool = True
    progress: Progress = silent
    stopping: Callable[[], bool] = lambda: False
    may_plan: Callable[[str], bool] = lambda service: True
    execute: Mapping[str, Execute] = field(default_factory=dict)
    rebuild: Callable[[WriterContext], Iterable[Result]] = lambda ctx: ()
    vectors: RefreshVectors = lambda ctx, if_due, progress: ()

    @classmethod
    def of(cls, only: str | Sequence[str] | None, **how: Any) -> Round:
        """A round of all services, or of the named ones; raises ``Invalid`` for a name that is none."""
        named = check_services(only)
        return cls(**how) if named is None else cls(named, True, **how)

    def run(self, ctx: WriterContext) -> list[ServiceRun]:
        """Run the services one after another; raises only ``Invalid``, for wrong switches."""
        options = RunOptions.from_properties({**ctx.config.raw, **ctx.given})
        runs = []
        for service in self.services:
            if self.stopping():
                break
            if service in options.off and not self.asked:
                runs.append(ServiceRun(service, off=options.off[service]))
                continue
            runs.append(self._run(ctx, service, options))
        return runs

    def _run(self, ctx: WriterContext, service: str, options: RunOptions) -> ServiceRun:
        with steps.step("service", ctx.base, service=service) as step:
            run = self._done(ctx, service, options)
            step.tell(results=len(run.results), error=None if run.error is None else str(run.error))
        if run.error is not None:
            kind = type(run.error).__name__
            steps.counted("service.errors", 1, "{error}", ctx.base, service=service, error=kind)
        return run

    def _done(self, ctx: WriterContext, service: str, options: RunOptions) -> ServiceRun:
        results: list[Result] = []
        try:
            for result in self._steps(ctx, service, options):
                results.append(result)  # one by one: what was done before an error counts
        except Exception as error:  # each fails alone, whatever it met
            if isinstance(error, MainstemError):
                error.table = error.table or ctx.base
            return ServiceRun(service, tuple(results), error=error)
        return ServiceRun(service, tuple(results))

    def _steps(self, ctx: WriterContext, service: str, options: RunOptions) -> Iterator[Result]:
        if service == ROLL_BACK:
            yield from roll_back_failed_writes(ctx, if_due=self.if_due)
        elif service == METADATA:
            yield from self._tended(ctx)
        elif service == VECTORS:
            yield from self.vectors(ctx, self.if_due, self.progress)
        elif service == ARCHIVING:
            done = archiving.run(ctx, if_due=self.if_due, progress=self.progress)
            if done is not None:
                yield done
        else:
            yield from self._planned(ctx, service, options)

    def _tended(self, ctx: WriterContext) -> Iterator[Result]:
        """Rebuild what was set aside, then run the metadata table's services even if a build failed."""
        failed = None
        try:
            yield from self.rebuild(ctx)
        except (MainstemError, OSError) as error:
            failed = error
        yield from metadata_round.run(ctx, if_due=self.if_due)
        if failed is not None:
            raise failed

    def _planned(self, ctx: WriterContext, service: str, options: RunOptions) -> Iterator[Result]:
        """Execute pending plans first, also those of other writers (as in Hudi, Java's included)."""
        module = PLANNED[service]
        executes = self.asked or service != COMPACTION or options.executes
        plans = self.asked or service != COMPACTION or options.plans
        if executes:
            yield from self._executed(ctx, service, module.pending(ctx.publisher.timeline()))
        if self.stopping() or not plans or not self.may_plan(service):
            return
        time = module.schedule(ctx, if_due=self.if_due)
        if time is not None and executes:
            yield from self._executed(ctx, service, [time])
        elif time is None and executes and not self.if_due:
            # A dead planner's, which a store had decided: the look under the lock has shown it.
            yield from self._executed(ctx, service, module.pending(ctx.publisher.timeline()))

    def _executed(self, ctx: WriterContext, service: str, times: Sequence[str]) -> Iterator[Result]:
        execute = self.execute.get(service, PLANNED[service].execute)
        for time in times:
            if self.stopping():
                return
            done = execute(ctx, time, self.progress)
            if done is not None:
                yield done


def warn_of_failures(runs: Sequence[ServiceRun], table: str) -> bool:
    """Warn of each failed service (``ServiceWarning``); True if repeating one may succeed."""
    failed = [run for run in runs if run.error is not None]
    for run in failed:
        warnings.warn(
            f"table service {run.service} of {table} failed: {run.error}. Writers are not concerned; it"
            " is tried again",
            ServiceWarning,
            stacklevel=3,
        )
    return any(not isinstance(run.error, (Invalid, Unsupported, CorruptTable)) for run in failed)
