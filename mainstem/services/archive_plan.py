"""Which instants may leave the active timeline (TimelineArchiverV2, ArchivalUtils).

When more than ``hoodie.keep.max.commits`` commits are completed, the oldest are archived, down to
``hoodie.keep.min.commits``; at least as many stay as the cleaner retains. Instants are archived in the order
of their requested times, up to the first that must stay. These must stay:

* everything at or after the newest completed commit before the oldest pending write; everything while a
  restore is pending; instants that a pending rollback undoes
* instants that completed after the oldest pending write was requested, whatever their own requested time: a
  Java writer lists the pending plans and writes when it begins, and at its commit reads those that completed
  since from the active timeline ("Could not read commit details"). Java's archiver goes by requested times
  alone
* delta commits that the compaction trigger still counts, and the compaction from which it counts
* a replace commit whose replaced files still exist
* the newest commit that records the table's schema, as services' commits do not: without it, readers fall
  back to the schema with which the table was created
* everything at or after the first savepoint (``hoodie.archive.beyond.savepoint``: only the savepointed
  instants), and instants that completed after a savepointed commit although requested before it: a restore
  would undo them
* on a metadata table, whatever the data table may still need (``services.metadata.metadata_state``)
* an instant that completed twice (an engine without election did that): in doubt it stays visible
* on an object store that another engine may write too, what completed less than half an hour ago
  (``hoodie.mainstem.archive.rest_ms``, by the store's clock): see PROTOCOL.md, "Late puts"
* whatever completed last: new times are chosen above everything on the active timeline

Completed cleans, rollbacks and restores older than the newest archived commit go too, and so do our own index
actions whose indexes are complete. Java would leave restores and index actions on the timeline. It then takes
archived instants younger than the oldest active one for pending (``CompletionTimeQueryView``), and would put
their log files on top of newer base files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from mainstem.errors import Invalid
from mainstem.layout.properties import load_config
from mainstem.lsm_archive.manifest import Manifest
from mainstem.lsm_archive.reader import Archive
from mainstem.lsm_archive.writer import LevelOptions
from mainstem.options.metadata import PARTITIONS_INFLIGHT
from mainstem.options.services import (
    ARCHIVE_MAX,
    ARCHIVE_MIN,
    ARCHIVE_REST_MS,
    BEYOND_SAVEPOINT,
    BLOCK_ON_CLEAN,
    CLEAN_COMMITS,
)
from mainstem.readers.changes.commit_range import SERVICES
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.skipping.other_engines import is_ours
from mainstem.services.claim import store_now_ms
from mainstem.services.clean_plan import KEEP_LATEST_COMMITS, CleanOptions, boundary
from mainstem.services.compaction_plan import CompactionOptions
from mainstem.services.metadata.metadata_state import MetadataState
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.compaction_trigger import last_compaction
from mainstem.timeline.instant import (
    CLEAN,
    COMMIT,
    DELTACOMMIT,
    INDEXING,
    REPLACECOMMIT,
    RESTORE,
    ROLLBACK,
    SAVEPOINT,
    WRITE_ACTIONS,
    Instant,
    parse_instant,
)
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import condemned

_COMMITS = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
# A bound for one round, which holds the lock while it deletes three files per instant.
_ROUND_INSTANTS = 1000


@dataclass(frozen=True)
class ArchiveOptions:
    """Validated options, with Hudi's names and defaults."""

    min_commits: int = ARCHIVE_MIN.default
    max_commits: int = ARCHIVE_MAX.default
    beyond_savepoint: bool = BEYOND_SAVEPOINT.default
    block_on_clean: bool = BLOCK_ON_CLEAN.default
    rest_ms: int = ARCHIVE_REST_MS.default
    clean: CleanOptions = field(default_factory=CleanOptions)
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    levels: LevelOptions = field(default_factory=LevelOptions)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ArchiveOptions:
        """Raises ``Invalid`` for a value that does not parse, and for bounds that contradict each other.

        Bounds that were not given follow the cleaner's, as in Hudi; given ones below the cleaner's are
        refused.
        """
        options = cls(
            ARCHIVE_MIN.read(properties),
            ARCHIVE_MAX.read(properties),
            BEYOND_SAVEPOINT.read(properties),
            BLOCK_ON_CLEAN.read(properties),
            ARCHIVE_REST_MS.read(properties),
            CleanOptions.from_properties(properties),
            CompactionOptions.from_properties(properties),
            LevelOptions.from_properties(properties),
        )
        if options.max_commits <= options.min_commits:
            raise Invalid(
                f"{ARCHIVE_MAX}={options.max_commits} must be greater than"
                f" {ARCHIVE_MIN}={options.min_commits}; nothing was archived"
            )
        kept = options.clean.commits
        if (
            ARCHIVE_MIN in properties
            and options.clean.policy == KEEP_LATEST_COMMITS
            and options.min_commits <= kept
        ):
            raise Invalid(
                f"{ARCHIVE_MIN}={options.min_commits} must be greater than {CLEAN_COMMITS}={kept}:"
                " archiving would take commits from the timeline whose files the cleaner keeps for"
                " queries; nothing was archived"
            )
        return options

    def bounds(self, timeline: ActiveTimeline, now: str) -> tuple[int, int]:
        """Least and greatest number of completed commits to keep active, raised to what the cleaner needs.

        ``now``: an instant time in the table's zone.
        """
        retained = boundary(timeline, self.clean, now)
        if retained is None:
            return self.min_commits, self.max_commits
        after = sum(1 for i in _commits(timeline) if i.requested > retained.earliest.requested)
        more = max(0, after + 2 - self.min_commits)
        return self.min_commits + more, self.max_commits + more


def _commits(timeline: ActiveTimeline) -> list[Instant]:
    return [i for i in timeline.completed if i.action in _COMMITS]


def restore_pending(timeline: ActiveTimeline) -> bool:
    """Whether a restore is pending, before whose end nothing may be moved or deleted."""
    return any(i.action == RESTORE for i in timeline.pending)


def is_due(timeline: ActiveTimeline, options: ArchiveOptions, now: str) -> bool:
    """Whether more commits are completed than may stay."""
    return len(_commits(timeline)) > options.bounds(timeline, now)[1]


def instants_to_archive(
    state: TableState, options: ArchiveOptions, now: str, *, if_due: bool
) -> list[Instant]:
    """Instants that may be archived now, oldest request first; [] if none, or ``if_due`` and none must."""
    timeline = state.timeline
    if if_due and not is_due(timeline, options, now):
        return []
    if restore_pending(timeline):
        return []
    commits = _commits(timeline)
    least, _ = options.bounds(timeline, now)
    candidates = commits[: max(0, len(commits) - least)]
    if not candidates:
        return []
    limit = min(_limits(state, options), default=None)
    chosen = [i for i in candidates if limit is None or i.requested < limit]
    if options.beyond_savepoint:
        saved = _savepointed(timeline)
        chosen = [i for i in chosen if i.requested not in saved]
    if not chosen:
        return []
    chosen = sorted([*chosen, *_along(state, chosen[-1].requested)], key=lambda i: i.requested)
    return _below_the_newest(timeline, chosen)


def _limits(state: TableState, options: ArchiveOptions) -> Iterator[str]:
    """Requested times at which archiving must stop."""
    timeline = state.timeline
    commits = _commits(timeline)
    if waiting := [i.requested for i in timeline.pending if i.action in WRITE_ACTIONS]:
        oldest = min(waiting)
        yield max((i.requested for i in commits if i.requested < oldest), default=oldest)
        yield from (i.requested for i in timeline.completed if _completed_after(i, oldest))
    yield from condemned(state.storage, timeline)
    yield from _counted_for_compaction(timeline, options.compaction)
    yield from _still_replacing(state, commits)
    yield from _newest_with_schema(state, commits)
    yield from _completed_twice(timeline)
    yield from _not_in_compacted_metadata(state, commits)
    if isinstance(state, MetadataState):
        yield from state.must_stay()
    if not options.beyond_savepoint:
        saved = _savepointed(timeline)
        yield from saved
        done = min((i.completion or "" for i in commits if i.requested in saved), default=None)
        yield from (i.requested for i in commits if done is not None and (i.completion or "") > done)
    if options.block_on_clean and state.earliest_retained is not None:
        yield state.earliest_retained


def _completed_after(instant: Instant, time: str) -> bool:
    """Savepoints do not count: their requested time is that of the commit that they save."""
    return instant.action != SAVEPOINT and (instant.completion or "") > time


def _not_in_compacted_metadata(state: TableState, commits: list[Instant]) -> Iterator[str]:
    """Requested times of commits that completed after the newest compaction of the metadata table.

    Their log blocks there count only while their instants are on this timeline. As in Hudi, before the first
    compaction that is every commit.
    """
    if not state.config.metadata_partitions or not load_config(state.storage).metadata_partitions:
        return  # dropped since the table was opened, perhaps
    metadata = load_timeline(state.storage, paths.METADATA_TIMELINE)
    newest = max((i.requested for i in metadata.completed if i.action == COMMIT), default="")
    yield from (i.requested for i in commits if (i.completion or "") > newest)


def _savepointed(timeline: ActiveTimeline) -> set[str]:
    return {i.requested for i in timeline.instants if i.action == SAVEPOINT}


def _counted_for_compaction(timeline: ActiveTimeline, options: CompactionOptions) -> Iterator[str]:
    """The oldest instant that the trigger needs to count delta commits since the last compaction."""
    if options.trigger == "TIME_ELAPSED":
        return
    last = last_compaction(timeline, requested=False)
    since = [i for i in timeline.completed if i.action == DELTACOMMIT and (i.completion or "") > last]
    if len(since) >= options.delta_commits:
        yield since[-options.delta_commits].requested
    elif last:
        yield last
    elif since:
        yield since[0].requested


def _still_replacing(state: TableState, commits: list[Instant]) -> Iterator[str]:
    """The first replace commit with replaced files that still exist: readers must keep hiding them."""
    for instant in commits:
        if instant.action != REPLACECOMMIT:
            continue
        metadata = state.metadata(instant.requested)
        for partition, file_ids in metadata.replaced.items() if metadata else ():
            there = {paths.file_id_of(name) for name in state.storage.names(partition)}
            if there & set(file_ids):
                yield instant.requested
                return


def _newest_with_schema(state: TableState, commits: list[Instant]) -> Iterator[str]:
    for instant in reversed(commits):
        metadata = state.metadata(instant.requested)
        if metadata is not None and metadata.schema and metadata.operation.upper() not in SERVICES:
            yield instant.requested
            return


def _completed_twice(timeline: ActiveTimeline) -> Iterator[str]:
    found = (parse_instant(name) for name in timeline.names if "_" in name)
    counted = Counter((i.requested, i.action) for i in found if i is not None)
    yield from sorted(requested for (requested, _), times in counted.items() if times > 1)


def _along(state: TableState, before: str) -> Iterator[Instant]:
    for instant in state.timeline.completed:
        along = instant.action in (CLEAN, ROLLBACK, RESTORE) or _whole_index(state, instant)
        if instant.requested < before and along:
            yield instant


def _whole_index(state: TableState, instant: Instant) -> bool:
    """Whether this is an index action of ours that nobody has to finish.

    Java's stay: readers look for them, because they do not trust indexes that Java built
    (``readers.skipping.metadata_indexes``).
    """
    if instant.action != INDEXING or load_config(state.storage).raw.get(PARTITIONS_INFLIGHT, ""):
        return False
    return is_ours(state.storage, instant.file_name)


def _below_the_newest(timeline: ActiveTimeline, chosen: list[Instant]) -> list[Instant]:
    """``chosen`` up to the first instant that completed after everything that stays."""
    going = {i.file_name for i in chosen}
    staying = max((i.completion or "" for i in timeline.completed if i.file_name not in going), default="")
    for at, instant in enumerate(chosen):
        if (instant.completion or "") > staying:
            return chosen[:at]
    return chosen


@dataclass(frozen=True)
class Subject:
    """The table whose timeline is archived. ``folder``: that of the metadata table, "" for the data table."""

    ctx: WriterContext
    options: ArchiveOptions
    folder: str = ""

    def path(self, inner: str) -> str:
        """A path below that table, relative to the data table."""
        return f"{self.folder}/{inner}" if self.folder else inner

    @property
    def timeline(self) -> str:
        """Folder of the active timeline."""
        return self.path(paths.TIMELINE)

    def rest(self) -> None:
        """Do not look for a while: whatever could be archived is too young."""
        clock = self.ctx.seams.clock
        self.ctx.archiving_rests_until[self.folder] = clock.monotonic_ms() + self.options.rest_ms / 30

    @property
    def rests(self) -> bool:
        """Whether a look for what is due would find it too young."""
        return self.ctx.seams.clock.monotonic_ms() < self.ctx.archiving_rests_until.get(self.folder, 0.0)

    def state(self, data: ActiveTimeline | None = None) -> TableState | None:
        """The table's state now; None if it is gone. ``data``: the data table's timeline, if listed."""
        storage, config = self.ctx.seams.storage, self.ctx.config
        if self.folder:
            return MetadataState.of_table(storage, data)
        if data is None:
            return TableState.load(storage, config)
        return TableState(storage, config, data, Archive.load(storage, config.history))


@dataclass(frozen=True)
class ArchivePlan:
    """What to do, from one look at timeline and archive."""

    state: TableState
    manifest: Manifest
    #: ``fresh``: to be archived in this round; ``stale``: archived but still active
    fresh: list[Instant]
    stale: list[Instant]
    #: how many may be archived now, those beyond ``fresh`` included
    waiting: int

    @classmethod
    def make(cls, subject: Subject) -> ArchivePlan | None:
        state = subject.state()
        if state is None:
            return None
        # For the metadata table too: it shares the data table's lock and is restored with it.
        if restore_pending(state.data if isinstance(state, MetadataState) else state.timeline):
            return None
        manifest = state.archive.manifest
        stale, doubtful = _already_archived(state)
        known = {i.file_name for i in stale}
        # By the count, not the trigger: after an interrupted run the rest must go although below the maximum.
        chosen = instants_to_archive(
            state, subject.options, subject.ctx.publisher.now(), if_due=False
        )
        young = _young(subject) if chosen else set()
        sure = takewhile(lambda i: i.requested not in doubtful and i.file_name not in young, chosen)
        waiting = [i for i in sure if i.file_name not in known]
        if young and not waiting:
            subject.rest()
        fresh = waiting[: _round_size(len(chosen))]
        return cls(state, manifest, fresh, stale, len(waiting)) if fresh or stale else None


def _young(subject: Subject) -> set[str]:
    """Names on the timeline that a late put might bring back, to the harm of another engine."""
    ctx = subject.ctx
    storage, rest_ms = ctx.seams.storage, subject.options.rest_ms
    if not has_swaps(storage) or not rest_ms or not ctx.others_may_write():
        return set()
    now_ms = store_now_ms(ctx, "archive")
    return {e.name for e in storage.entries(subject.timeline) if now_ms - e.mtime_ms < rest_ms}


def _round_size(waiting: int) -> int:
    return max(_ROUND_INSTANTS, waiting // 20)


def _already_archived(state: TableState) -> tuple[list[Instant], set[str]]:
    """Completed instants that are in the archive too, and requested times of doubtful ones.

    Doubtful are those that the archive holds with another completion time: an engine completed them twice, so
    they stay.
    """
    files = state.archive.manifest.files
    same: list[Instant] = []
    doubtful: set[str] = set()
    for instant in state.timeline.completed:
        if any(f.first <= instant.requested <= f.last for f in files):
            for found in state.archive.instants(instant.requested, instant.requested):
                if found.action == instant.action:
                    if found.completion == instant.completion:
                        same.append(instant)
                    else:
                        doubtful.add(instant.requested)
    return same, doubtful
