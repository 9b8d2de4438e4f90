"""Plans a clean: when one is due, which commits are retained, and which files go.

Hudi: ``CleanPlanner``, ``CleanerUtils.getEarliestCommitToRetain``. The unit is the file slice, and slices
are cut by *completion* time: a log file that was requested long ago but completed late belongs to a new slice
and stays. The newest slice of each file group always stays. The policies also keep:

* KEEP_LATEST_COMMITS, KEEP_LATEST_BY_HOURS: everything that a query at a retained commit reads. The
  boundary is the oldest retained commit, never after the oldest pending instant. The newest slice that was
  *complete* before it stays, and all newer ones. Java goes by requested times alone: then, for a commit that
  overlapped a compaction, the snapshot at its completion and the before images of its changes would be lost.
  So slightly more stays here than with Java.
* KEEP_LATEST_FILE_VERSIONS: that many slices per group; older snapshots disappear with their slices.

A slice with a file that a savepoint or a pending compaction names stays whole. Files of instants that are
not completed are never planned: those of dead writers belong to the rollback.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from mainstem.layout.slicing import FileGroup
from mainstem.options.services import (
    CLEAN_COMMITS,
    CLEAN_HOURS,
    CLEAN_INCREMENTAL,
    CLEAN_POLICY,
    CLEAN_TRIGGER,
    CLEAN_TRIGGER_COMMITS,
    CLEAN_VERSIONS,
    METADATA_CLEAN_DERIVED,
)
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clean_records import (
    SAVEPOINTED,
    CleanPlan,
    load_clean_boundary,
    savepointed_files,
)
from mainstem.timeline.instant import (
    CLEAN,
    CLUSTERING,
    COMMIT,
    DELTACOMMIT,
    REPLACECOMMIT,
    SAVEPOINT,
    Instant,
)
from mainstem.timeline.plans import load_compaction_plan
from mainstem.truetime.instant_times import parse_wall

KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"

_COMMITS = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
Files = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class CleanOptions:
    """Validated options, with Hudi's names (also its older ones) and defaults."""

    policy: str = CLEAN_POLICY.default
    commits: int = CLEAN_COMMITS.default
    versions: int = CLEAN_VERSIONS.default
    hours: int = CLEAN_HOURS.default
    max_commits: int = CLEAN_TRIGGER_COMMITS.default
    incremental: bool = CLEAN_INCREMENTAL.default

    @property
    def by_versions(self) -> bool:
        """Whether the policy counts slices; otherwise there is a boundary in time."""
        return self.policy == KEEP_LATEST_FILE_VERSIONS

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CleanOptions:
        """Raises ``Invalid`` for a value that does not parse."""
        CLEAN_TRIGGER.read(properties)
        return cls(
            CLEAN_POLICY.read(properties),
            CLEAN_COMMITS.read(properties),
            CLEAN_VERSIONS.read(properties),
            CLEAN_HOURS.read(properties),
            CLEAN_TRIGGER_COMMITS.read(properties),
            CLEAN_INCREMENTAL.read(properties),
        )

    @classmethod
    def of_metadata_table(cls, properties: Mapping[str, str]) -> CleanOptions:
        """The metadata table's options, derived from the data table's (HoodieMetadataWriteUtils).

        Raises as ``from_properties``.
        """
        data = cls.from_properties(properties)
        if not METADATA_CLEAN_DERIVED.read(properties):
            return replace(data, policy=KEEP_LATEST_FILE_VERSIONS, versions=2)
        return replace(
            data,
            commits=max(20, int(data.commits * 1.2)),
            versions=math.ceil(data.versions * 1.2),
            hours=math.ceil(data.hours * 1.2),
        )


@dataclass(frozen=True)
class Boundary:
    """The point from which on every snapshot is kept.

    ``earliest``: the oldest retained commit; ``moment``: the first completion time among it and the commits
    requested after it.
    """

    earliest: Instant
    moment: str

    def excludes(self, instant: str, completion: str | None) -> bool:
        """Whether an instant was requested and completed before everything that is retained."""
        return instant < self.earliest.requested and completion is not None and completion < self.moment


def is_due(timeline: ActiveTimeline, options: CleanOptions) -> bool:
    """Whether enough commits completed since the last clean was planned."""
    last = max((i.requested for i in timeline.completed if i.action == CLEAN), default="")
    done = sum(1 for i in timeline.completed if i.action in _COMMITS and (i.completion or "") > last)
    return done >= options.max_commits


class Frees:
    """Tells from names on the timeline alone whether a clean may find something.

    Only slices that a compaction replaced can go, and only once the retained commits begin after it. Without
    this check a clean would list the table's folders each time its trigger fires, perhaps at every commit.
    """

    def __init__(self, options: CleanOptions) -> None:
        self._options = options
        self._freed = ""

    def __call__(self, timeline: ActiveTimeline, now: str) -> bool:
        done = (i.completion or "" for i in timeline.completed if i.action in (COMMIT, REPLACECOMMIT))
        newer = [time for time in done if time >= self._freed]
        if self._options.by_versions:
            until = timeline.newest_time + "0"
        else:
            limit = boundary(timeline, self._options, now)
            until = "" if limit is None else limit.moment
        if not any(time < until for time in newer):
            return False
        self._freed = until
        return True


def boundary(timeline: ActiveTimeline, options: CleanOptions, now: str) -> Boundary | None:
    """The oldest commit to retain; None while all are retained, and under KEEP_LATEST_FILE_VERSIONS.

    ``now``: an instant time in the table's zone. The boundary is never after the oldest pending write or
    clustering. Pending compactions do not limit it: the files that they read are kept by name.
    """
    commits = [i for i in timeline.completed if i.action in _COMMITS]
    if options.policy == KEEP_LATEST_COMMITS:
        recent = commits[-options.commits :] if len(commits) > options.commits else []
    elif options.policy == KEEP_LATEST_BY_HOURS:
        since = (parse_wall(now) - timedelta(hours=options.hours)).strftime("%Y%m%d%H%M%S000")
        recent = [i for i in commits if i.requested >= since]
    else:
        recent = []
    if not recent:
        return None
    held = [i.requested for i in timeline.pending if i.action in (*_COMMITS, CLUSTERING)]
    if held and min(held) < recent[0].requested:
        before = [i for i in commits if i.requested < min(held)]
        if not before:
            return None
        recent = commits[len(before) - 1 :]
    return _boundary_of(recent)


def _boundary_of(retained: list[Instant]) -> Boundary:
    return Boundary(retained[0], min(i.completion for i in retained if i.completion is not None))


def partitions_to_look_at(
    state: TableState, options: CleanOptions, limit: Boundary | None
) -> list[str] | None:
    """Partitions in which files may have become superfluous since the last clean; None means all.

    A slice becomes superfluous when the boundary passes a newer base file of its group, or the commit that
    replaced the group. So only partitions of commits between the last clean's boundary and this one matter
    (``CleanPlanner.getPartitionPathsForIncrementalCleaning``). They are unknown without such a clean, once
    savepoints have kept files back, and when the last boundary is archived.
    """
    cleans = [i for i in state.timeline.completed if i.action == CLEAN]
    if limit is None or not options.incremental or not cleans or not state.config.partition_fields:
        return None
    earliest, extra = load_clean_boundary(state.storage, cleans[-1])
    saved = any(i.action == SAVEPOINT for i in state.timeline.instants)
    commits = [i for i in state.timeline.completed if i.action in _COMMITS and i.requested >= earliest]
    if not earliest or SAVEPOINTED in extra or saved or not commits or commits[0].requested != earliest:
        return None
    last = _boundary_of(commits)
    found: set[str] = set()
    for instant in (i for i in state.writes if limit.excludes(i.requested, i.completion)):
        # A bulk insert's base file is the first of its group: there is no older slice.
        if instant.action != DELTACOMMIT and not last.excludes(instant.requested, instant.completion):
            metadata = state.metadata(instant.requested)
            found.update((*metadata.stats, *metadata.replaced) if metadata is not None else ())
    return sorted(found)



@dataclass(frozen=True, slots=True)
class DataFile:
    """A parsed base or log file name. ``completed``: its instant's completion time, None if pending."""

    name: str
    file_id: str
    instant: str
    completed: str | None
    is_base: bool

    @classmethod
    def of(cls, state: TableState, name: str) -> DataFile | None:
        """Parse a name; None if it is not a data file's."""
        log = paths.parse_log_name(name)
        parsed = log or state.parse_base(name)
        if parsed is None:
            return None
        return cls(name, parsed.file_id, parsed.instant, state.completion(parsed.instant), log is None)

    def is_older(self, cut: str) -> bool:
        """Whether it belongs to a slice before the one whose base file has the instant ``cut``.

        A log file does if its instant *completed* before that: one requested earlier but completed later
        belongs to the new base file. False for files of instants that are not completed.
        """
        # Writers of Hudi 1.0.1 could complete "before" they were requested; then the slice is uncertain.
        if self.completed is None or self.instant >= cut:
            return False
        return self.is_base or self.completed < cut

    def slice_of(self, bases: Collection[str]) -> str:
        """Base instant of its slice, "" if that has no base file."""
        if self.is_base:
            return self.instant
        return max((b for b in bases if b <= (self.completed or "")), default="")


@dataclass(frozen=True)
class _Planner:
    """Chooses the files that go, by the same rules for every partition."""

    state: TableState
    options: CleanOptions
    boundary: Boundary | None
    kept: Mapping[str, set[str]]
    replaced: set[tuple[str, str]]
    expired: set[tuple[str, str]]

    def partition(self, partition: str, names: Iterable[str]) -> list[str]:
        """Names of the files that go."""
        files: dict[str, list[DataFile]] = {}
        for name in names:
            file = DataFile.of(self.state, name)
            if file is not None and file.completed is not None:
                files.setdefault(file.file_id, []).append(file)
        gone: list[str] = []
        for group in self.state.group(partition, [f.name for mine in files.values() for f in mine]):
            mine = files[group.file_id]
            if (partition, group.file_id) in self.replaced:
                older = mine if (partition, group.file_id) in self.expired else []
            else:
                cut = self._cut(group)
                older = [] if cut is None else [file for file in mine if file.is_older(cut)]
            if older:
                gone.extend(self._whole_slices(partition, mine, older))
        return gone

    def _cut(self, group: FileGroup) -> str | None:
        """Base instant of the oldest slice that stays; None if all do."""
        slices = [s for s in group.slices if not s.pending and s.base_file is not None]
        if self.options.by_versions:
            kept = slices[: self.options.versions]
            return kept[-1].base_instant if len(kept) == self.options.versions else None
        assert self.boundary is not None
        for found in slices:
            if self.boundary.excludes(found.base_instant, self.state.completion(found.base_instant)):
                return found.base_instant
        return None

    def _whole_slices(self, partition: str, mine: list[DataFile], older: list[DataFile]) -> list[str]:
        """``older`` without slices that hold a kept file; newest slices first, base file before logs."""
        kept = self.kept.get(partition, set())
        bases = {file.instant for file in mine if file.is_base}
        slices: dict[str, list[DataFile]] = {}
        for file in older:
            slices.setdefault(file.slice_of(bases), []).append(file)
        gone: list[str] = []
        for _, members in sorted(slices.items(), reverse=True):
            members.sort(key=lambda file: (file.is_base, file.name), reverse=True)
            found = [file.name for file in members]
            if kept.isdisjoint(found):
                gone += found
        return gone


def kept_files(state: TableState) -> dict[str, set[str]]:
    """Partition -> names that savepoints and pending compactions and log compactions need."""
    kept = savepointed_files(state.storage, state.timeline)
    for instant in state.timeline.pending_compactions:
        for operation in load_compaction_plan(state.storage, instant.requested, instant.action):
            names = kept.setdefault(operation.partition, set())
            names.update(operation.log_files)
            if operation.base_file is not None:
                names.add(operation.base_file)
    return kept


def plan_clean(state: TableState, files: Files, options: CleanOptions, now: str) -> CleanPlan | None:
    """The plan of the files to remove; None if there are none.

    ``files``: partition -> names, listed after ``state`` was loaded. ``now`` as for ``boundary``.
    """
    limit = boundary(state.timeline, options, now)
    if limit is None and not options.by_versions:
        return None
    planner = _Planner(state, options, limit, kept_files(state), state.replaced(None), _expired(state, limit))
    found = {p: tuple(planner.partition(p, names)) for p, names in sorted(files.items())}
    found = {partition: names for partition, names in found.items() if names}
    if not found:
        return None
    commits = [i.requested for i in state.timeline.completed if i.action in _COMMITS]
    savepoints = [i.requested for i in state.timeline.completed if i.action == SAVEPOINT]
    earliest = None
    if limit is not None:
        earliest = (limit.earliest.requested, limit.earliest.action)
    return CleanPlan(
        options.policy,
        found,
        earliest,
        max(commits, default=""),
        {SAVEPOINTED: ",".join(savepoints)} if savepoints and state.config.partition_fields else {},
    )


def _expired(state: TableState, limit: Boundary | None) -> set[tuple[str, str]]:
    """File groups that a replace commit (say, a clustering) before the boundary has replaced."""
    gone: set[tuple[str, str]] = set()
    for instant in state.writes:
        if instant.action != REPLACECOMMIT:
            continue
        metadata = state.metadata(instant.requested)
        old = limit is None or limit.excludes(instant.requested, instant.completion)
        if metadata is not None and old:
            gone.update((p, file_id) for p, ids in metadata.replaced.items() for file_id in ids)
    return gone
