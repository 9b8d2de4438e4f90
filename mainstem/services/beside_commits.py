"""Services that nobody asked for, beside the commits of a plain writer: so that a table which is only written
to stays fast (``hoodie.mainstem.services``, docs/services.md).

They are rounds as any other (``services.runner``), in a thread that exists only while something is due
(``services.background``). What they need is loaded in that thread: a process that commits once and ends pays
for counting names. They are *gentle*, since the writer did not ask for them:

- **One at a time.** A process runs one such round at a time, whatever number of tables it writes and however
  often it opened them, so what they take of memory and processors is bounded by one round. Handles of one
  table with the same options share a thread.
- **A third of the time.** After a round there is a pause of ``PAUSE`` times its duration. After one that
  found nothing to do (another process is at it, or a savepoint holds everything back) or that failed, there
  is a pause of ``FRUITLESS_MS``, twice as long each time up to ``FRUITLESS_MS_MAX``. Commits in the pause
  wake nobody. No wake-up is lost by that: what is due is read off the timeline by every commit.
- **One process of a machine.** Rounds of several processes would find the same work due at the same moment,
  load what it needs, and look for what one of them does anyway (``services.claim``). So on a local disk a
  round is a *turn* (``storage.turns``), which the process keeps, over the pauses, while there is work. The
  others look again every ``OTHERS_MS``, and run a round all the same if they got none for ``PATIENCE_MS``.
- **No writer loses.** A compaction that is planned while a bulk insert is in flight may end it, as in Hudi,
  and an overwrite is made again. So none is planned then; the other services do not matter to writers.
- **Not beside another engine.** Java runs its own services after its commits, and a job of Java's ends with
  an error where somebody else has begun with its plan (SAFETY.md). If one of the newest ``LOOKED_AT``
  instants, or a pending plan, is another engine's, the round does nothing. Who wants services there says so
  (``hoodie.mainstem.services=on``). The metadata table's own services run all the same: every writer of
  a table must see to them, and they show no plan to Java (``metadata_compaction_at_once``).
- **Never too late.** A commit runs the metadata table's own services itself when they are several times
  overdue (``metadata_overdue``).
- **Told once.** A failure is a warning the first time, and goes to the log while it lasts. It is never raised
  in a writer. If the table is gone, there is nothing to tell.
- **At the end of the process** a round may go on for ``GRACE_S``, which is enough for small tables, so that
  processes that commit once and end keep a table short, too. Then it ends after the file group, file or plan
  under way. What is done stays, and the next round of any process goes on with it. Several processes keep
  out of each other's way as everywhere: by the claim of a plan (``services.claim``).
"""

from __future__ import annotations

import logging
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from mainstem.errors import CorruptTable, MainstemError
from mainstem.forks import Mutex
from mainstem.layout.properties import has_table
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.options.services import (
    ARCHIVE_MAX,
    BESIDE_COMMITS,
    CLEAN_COMMITS,
    CLEAN_POLICY,
    COMPACTION_COMMITS,
    COMPACTION_TRIGGER,
    METADATA_COMMITS,
    METADATA_TRIGGER,
)
from mainstem.services.background import Background
from mainstem.services.service_switches import ARCHIVING, CLEANING, COMPACTION, METADATA
from mainstem.storage import paths
from mainstem.storage.turns import has_turns, turn
from mainstem.timeline import compaction_trigger
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    DELTACOMMIT,
    PLANNED_ACTIONS,
    REPLACECOMMIT,
    REQUESTED,
    WRITE_ACTIONS,
    Instant,
)
from mainstem.writers.context import WriterContext
from mainstem.writers.outcome import OPERATIONS
from mainstem.writers.write_spec import OF_BASE_FILES

if TYPE_CHECKING:
    from mainstem.services.after_commit import Due, Refreshes
    from mainstem.services.metadata.metadata_overdue import Overdue
    from mainstem.services.runner import RefreshVectors, ServiceRun

#: times the duration of the round before
PAUSE = 2
#: the pause after a round that did nothing, or failed
FRUITLESS_MS, FRUITLESS_MS_MAX = 500.0, 60_000.0
#: while another process of this machine has the turn: the pause, and how long nothing is done here for that
OTHERS_MS, PATIENCE_MS = 5_000.0, 60_000.0
#: a turn is kept over pauses up to this
KEPT_MS = 5_000.0
#: how long a round goes on when the process ends
GRACE_S = 2.0
#: how many of the newest instants tell whether another engine writes the table
LOOKED_AT = 50

_PACES_MAX = 1_000
_COMMITS = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
_OF_BASE_FILES = frozenset(OPERATIONS[name] for name in OF_BASE_FILES)
_BY_COUNT = ("NUM_COMMITS", compaction_trigger.AFTER_REQUEST)
_log = logging.getLogger(__name__)

Key = tuple[object, ...]


class Stopped(Exception):
    """Ends a service between two of its steps: the process ends."""


@dataclass
class Pace:
    """When the next round of one table may begin, and what was told of its failures."""

    not_before_ms: float = float("-inf")
    fruitless: int = 0
    told: set[str] = field(default_factory=set)
    stranger: str = ""
    #: since when other processes have had the turn; None if this one had it last
    others_since_ms: float | None = None

    def left_to_others(self, now_ms: float) -> bool:
        """Another process has the turn: whether to leave a round to it."""
        if self.others_since_ms is None:
            self.others_since_ms = now_ms
        if now_ms - self.others_since_ms >= PATIENCE_MS:
            return False
        self.not_before_ms = now_ms + OTHERS_MS
        return True

    def rest(self, now_ms: float, took_ms: float, *, fruitful: bool) -> None:
        """After a round."""
        pause = PAUSE * took_ms
        self.others_since_ms = None
        if fruitful:
            self.fruitless = 0
        else:
            pause = max(pause, min(FRUITLESS_MS_MAX, FRUITLESS_MS * 2**self.fruitless))
            self.fruitless = min(self.fruitless + 1, 16)
        self.not_before_ms = now_ms + pause


class BesideCommits:
    """The gentle rounds of one table in this process. ``of`` gives each handle of the table the same one; it
    is called with the timeline after each commit, and raises nothing."""

    def __init__(
        self, ctx: WriterContext, services: Sequence[str], vectors: RefreshVectors, pace: Pace
    ) -> None:
        self._ctx = ctx
        self._services = tuple(services)
        self._vectors = vectors
        self._pace = pace
        self._bounds = Bounds.from_properties({**ctx.config.raw, **ctx.given})
        # Loaded by the first round.
        self._due: Due | None = None
        self._refreshes: Refreshes | None = None
        # Loaded by the first commit to a metadata table.
        self._overdue: Overdue | None = None
        #: what the latest commit saw
        self._newest: tuple[ActiveTimeline, ActiveTimeline | None] | None = None
        self._background = Background(self._work, grace_s=GRACE_S)

    @classmethod
    def of(cls, ctx: WriterContext, services: Sequence[str], vectors: RefreshVectors) -> BesideCommits:
        """That of the table of ``ctx`` with its options. Raises ``Invalid`` for values that do not parse."""
        where = ctx.seams.storage.location if ctx.identity else id(ctx.seams.storage)
        key = (where, ctx.identity, tuple(services), frozenset(ctx.given.items()))
        with _mutex.held:
            found = _known.get(key)
            if found is None:
                pace = _paces.setdefault(key, Pace())
                _paces.move_to_end(key)
                while len(_paces) > _PACES_MAX:
                    _paces.popitem(last=False)
                found = _known[key] = cls(ctx, services, vectors, pace)
            return found

    def __call__(self, timeline: ActiveTimeline) -> None:
        try:
            own = self._metadata_timeline()
            self._newest = timeline, own
            if own is not None and self._overdue is not None and self._overdue.find(own):
                self._tend_metadata()
            elif not self._rests and self._may_be_due(timeline, own):
                self._background.wake()
        except Exception as error:  # whatever fails (say, no thread can be started), the commit stands
            self._told(
                "start",
                f"table services of {self._ctx.base} could not be started: {error}. The commit stands; the"
                " next one tries again",
            )

    def stop(self) -> None:
        """End after the current step."""
        self._background.stop()

    @property
    def _rests(self) -> bool:
        return self._ctx.seams.clock.monotonic_ms() < self._pace.not_before_ms

    def _may_be_due(self, timeline: ActiveTimeline, own: ActiveTimeline | None) -> bool:
        """``own``: the metadata table's timeline, if services of it may run."""
        due = self._due
        if due is not None:
            return bool(due.find(timeline, own))
        bounds = self._bounds
        return bounds.reached(timeline, self._services) or (own is not None and bounds.reached_metadata(own))

    def _metadata_timeline(self) -> ActiveTimeline | None:
        ctx = self._ctx
        if METADATA not in self._services or not has_metadata(ctx.newest_properties.raw):
            return None
        if self._overdue is None:
            from mainstem.services.metadata.metadata_overdue import Overdue

            self._overdue = Overdue(ctx)
        return self._overdue.timeline()

    def _tend_metadata(self) -> None:
        """In the commit: its writer waits."""
        from mainstem.services.runner import Round

        self._heard(Round((METADATA,)).run(self._ctx))

    def _told(self, what: str, text: str) -> None:
        """Warn, the first time; afterwards log."""
        from mainstem.services.runner import ServiceWarning

        if what in self._pace.told:
            _log.info("%s", text)
            return
        self._pace.told.add(what)
        warnings.warn(text, ServiceWarning, stacklevel=4)

    # -- in the thread -----------------------------------------------------------------------------

    def _work(self, stopping: Callable[[], bool]) -> bool:
        """Rounds; what failed is not repeated before the next commit, which finds it due again."""
        storage = self._ctx.seams.storage
        if not has_turns(storage):
            self._once(stopping)
            return False
        if stopping() or self._rests:
            return False
        with turn(storage, paths.FENCE) as ours:
            if ours or not self._pace.left_to_others(self._ctx.seams.clock.monotonic_ms()):
                while self._once(stopping) and self._goes_on():
                    continue
        return False

    def _once(self, stopping: Callable[[], bool]) -> bool:
        """One round; whether it came to something."""
        with _turn.held:
            if stopping() or self._rests:
                return False
            clock = self._ctx.seams.clock
            began, fruitful = clock.monotonic_ms(), False
            try:
                fruitful = self._round(stopping)
            except (MainstemError, OSError) as error:
                if not self._is_gone():
                    self._told("look", f"services of {self._ctx.base} could not look at it: {error}")
            finally:
                now = clock.monotonic_ms()
                self._pace.rest(now, now - began, fruitful=fruitful)
            return fruitful

    def _goes_on(self) -> bool:
        """Rest, and keep the turn; whether there is more to do after that."""
        left_ms = self._pace.not_before_ms - self._ctx.seams.clock.monotonic_ms()
        if left_ms > KEPT_MS or not self._background.rest((max(0.0, left_ms) + 1) / 1000):
            return False
        return not self._rests and self._newest is not None and self._may_be_due(*self._newest)

    def _round(self, stopping: Callable[[], bool]) -> bool:
        """Whether it came to something."""
        from mainstem.services.after_commit import Due, Refreshes
        from mainstem.services.runner import Round

        ctx = self._ctx
        timeline = ctx.publisher.timeline()
        if self._due is None or self._refreshes is None:
            self._refreshes = Refreshes(ctx, self._vectors)
            self._due = Due(ctx, self._services)
            if not self._due.find(timeline):
                return True  # from now on commits know better
        services = self._services
        if self._is_left_to_others(timeline):
            services = tuple(service for service in services if service == METADATA)

        def step(what: str, done: int, total: int) -> None:
            if done < total and stopping():
                raise Stopped

        how = Round(
            services, stopping=stopping, may_plan=self._may_plan, progress=step,
            vectors=self._refreshes.run,
        )  # fmt: skip
        return self._heard(how.run(ctx))

    def _may_plan(self, service: str) -> bool:
        return service != COMPACTION or not base_files_in_flight(self._ctx)

    def _is_left_to_others(self, timeline: ActiveTimeline) -> bool:
        """Whether another engine writes the table."""
        stranger = other_engines_instant(self._ctx, timeline)
        if stranger and not self._pace.stranger:
            _log.info(
                "another engine writes %s (%s): services are left to it; %s=on runs them here",
                self._ctx.base, stranger, BESIDE_COMMITS,
            )  # fmt: skip
        self._pace.stranger = stranger
        return bool(stranger)

    def _heard(self, runs: Sequence[ServiceRun]) -> bool:
        """Tells of failures; whether something was done."""
        pace = self._pace
        for run in runs:
            if run.error is None:
                pace.told = {told for told in pace.told if told.partition(" ")[0] != run.service}
            elif isinstance(run.error, Stopped) or self._is_gone():
                _log.info("service %s of %s ended early: %s", run.service, self._ctx.base, run.error)
            else:
                self._told(
                    f"{run.service} {type(run.error).__name__}",
                    f"table service {run.service} of {self._ctx.base} failed: {run.error}. Writers are not"
                    " concerned; it is tried again. The log tells of more such failures",
                )
        return any(run.results for run in runs)

    def _is_gone(self) -> bool:
        """Whether the table was removed meanwhile."""
        storage = self._ctx.seams.storage
        try:
            return not has_table(storage)
        except OSError:
            return False


@dataclass(frozen=True)
class Bounds:
    """How much must be on a timeline before something can be due; judged without loading any service.

    It says so too often, but never too rarely: the first round judges as the services do
    (``after_commit.Due``).
    """

    delta_commits: int
    commits: int
    retained: int
    metadata_commits: int

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Bounds:
        """Raises ``Invalid`` for a value that does not parse."""
        by_count = COMPACTION_TRIGGER.read(properties) in _BY_COUNT
        by_commits = CLEAN_POLICY.read(properties) == CLEAN_POLICY.default
        by_metadata_count = METADATA_TRIGGER.read(properties) in _BY_COUNT
        return cls(
            COMPACTION_COMMITS.read(properties) if by_count else 1,
            ARCHIVE_MAX.read(properties),
            CLEAN_COMMITS.read(properties) if by_commits else 0,
            METADATA_COMMITS.read(properties) if by_metadata_count else 1,
        )

    def reached(self, timeline: ActiveTimeline, services: Sequence[str]) -> bool:
        """Whether one of ``services`` may have work."""
        if any(i.action in PLANNED_ACTIONS and i.action != CLUSTERING for i in timeline.pending):
            return True  # clusterings are left to whoever asks for them
        if COMPACTION in services:
            last = compaction_trigger.last_compaction(timeline, requested=False)
            if compaction_trigger.commits_since(timeline, last) >= self.delta_commits:
                return True
        done = [i.action for i in timeline.completed if i.action in _COMMITS]
        if ARCHIVING in services and len(done) > self.commits:
            return True
        return CLEANING in services and len(done) > self.retained and len(done) > done.count(DELTACOMMIT)

    def reached_metadata(self, own: ActiveTimeline) -> bool:
        """Whether the metadata table's own services may have work; ``own``: its timeline."""
        if any(i.action in PLANNED_ACTIONS for i in own.pending):
            return True
        last = compaction_trigger.last_compaction(own, requested=False)
        return compaction_trigger.commits_since(own, last) >= self.metadata_commits


def base_files_in_flight(ctx: WriterContext) -> bool:
    """Whether a write is in flight that a compaction which is planned now could end, or make begin again
    (``writers.conflicts``, ``writers.overwriting``).

    A write that has only just begun does not show what it is, and counts.
    """
    from mainstem.timeline.commit_metadata import decode_commit

    for instant in ctx.publisher.timeline().pending:
        if instant.action != DELTACOMMIT:
            continue
        if instant.state == REQUESTED:
            return True
        path = paths.timeline_file(instant.file_name)
        try:
            data = ctx.seams.storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
            if decode_commit(data, path=path).operation in _OF_BASE_FILES:
                return True
        except FileNotFoundError:
            continue  # it has ended
        except CorruptTable:
            return True  # it is being written
    return False


def other_engines_instant(ctx: WriterContext, timeline: ActiveTimeline) -> str:
    """The newest instant that another engine made, among the newest ones and pending plans; "" if none.

    Files that are gone since are nobody's.
    """
    from mainstem.readers.skipping.other_engines import is_ours
    from mainstem.timeline.plans import is_our_plan

    storage = ctx.seams.storage

    def is_strange(instant: Instant) -> bool:
        if not instant.is_completed:
            name = f"{instant.requested}.{instant.action}.{REQUESTED}"
            return not is_our_plan(storage, paths.timeline_file(name))
        try:
            return not is_ours(storage, instant.file_name)
        except FileNotFoundError:
            return False

    plans = [i for i in timeline.pending if i.action in PLANNED_ACTIONS]
    done = [i for i in timeline.completed if i.action in (*WRITE_ACTIONS, CLEAN)]
    return next((i.requested for i in (*plans, *reversed(done[-LOOKED_AT:])) if is_strange(i)), "")


_mutex = Mutex()
#: held by the round that runs
_turn = Mutex()
_known: WeakValueDictionary[Key, BesideCommits] = WeakValueDictionary()
#: outlive the handles, since a program may open the table for every commit
_paces: OrderedDict[Key, Pace] = OrderedDict()
