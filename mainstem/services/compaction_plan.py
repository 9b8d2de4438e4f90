"""Plans a compaction: which file groups, and which of their log files.

Hudi: ``ScheduleCompactionActionExecutor`` (triggers), ``BaseHoodieCompactionPlanGenerator`` (which
log files), ``CompactionStrategy`` (order and bounds). For each file group, a plan holds the newest slice's
log files whose instants completed before the compaction's own time. It must hold *all* of them, because a
reader assigns a log that completed before the compaction to the slice before it. So the plan is made under
the table lock, from files listed earlier plus those of instants that completed since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.base_file import ORDER_KEY
from mainstem.layout.properties import TableConfig
from mainstem.layout.slicing import FileSlice
from mainstem.limits import MIB
from mainstem.lsm_archive.reader import Archive
from mainstem.options.services import (
    COMPACTION_COMMITS,
    COMPACTION_MEMORY,
    COMPACTION_SECONDS,
    COMPACTION_STRATEGY,
    COMPACTION_TRIGGER,
    LOG_BYTES_MIN,
    LOG_FILES_MIN,
    MERGE_MEMORY,
    TARGET_IO,
)
from mainstem.readers.changes.commit_range import written_files
from mainstem.readers.planning.file_presence import check_files, check_table, committed_sizes
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.rows.base_rows import open_base
from mainstem.services.clustering_order import RowOrder
from mainstem.services.shared_file_names import warn_of_shared_names
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clustering_plans import load_clustering_plan
from mainstem.timeline.instant import (
    CLUSTERING,
    COMPACTION,
    DELTACOMMIT,
    INFLIGHT,
    LOGCOMPACTION,
    REQUESTED,
)
from mainstem.timeline.plans import CompactionOperation, load_compaction_plan

_PACKAGE = "org.apache.hudi.table.action.compact.strategy."
# The last parts of Java's class names; no class is ever loaded by name.
STRATEGIES = (
    "LogFileSizeBasedCompactionStrategy", "LogFileNumBasedCompactionStrategy",
    "BoundedIOCompactionStrategy", "UnBoundedCompactionStrategy",
)  # fmt: skip
_UP_TO_A_BOUND, UNBOUNDED = STRATEGIES[2:]
# For a slice without a base file, assume that the new one has Hudi's default size.
_NEW_BASE_MB = 120.0
# How often the listing is tried while others remove files.
_LOOKS = 4


@dataclass(frozen=True)
class CompactionOptions:
    """Checked options, under Hudi's names and with its defaults."""

    trigger: str = COMPACTION_TRIGGER.default
    delta_commits: int = COMPACTION_COMMITS.default
    delta_seconds: int = COMPACTION_SECONDS.default
    strategy: str = COMPACTION_STRATEGY.default.removeprefix(_PACKAGE)
    target_io_mb: int = TARGET_IO.default
    log_bytes_min: int = LOG_BYTES_MIN.default
    log_files_min: int = LOG_FILES_MIN.default
    memory_bytes: int = COMPACTION_MEMORY.default

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> CompactionOptions:
        """Raises ``Invalid`` for a value that does not parse, ``Unsupported`` for other strategies."""
        name = COMPACTION_STRATEGY.read(properties)
        short = name.removeprefix(_PACKAGE)
        if short not in STRATEGIES:
            raise Unsupported(
                f"{COMPACTION_STRATEGY}={name!r}; expected one of"
                f" {', '.join(_PACKAGE + s for s in STRATEGIES)}"
            )
        return cls(
            COMPACTION_TRIGGER.read(properties),
            COMPACTION_COMMITS.read(properties),
            COMPACTION_SECONDS.read(properties),
            short,
            TARGET_IO.read(properties),
            LOG_BYTES_MIN.read(properties),
            LOG_FILES_MIN.read(properties),
            # Java's own size for compactions has no default; that of all merges is 1 GiB.
            COMPACTION_MEMORY.read(properties, MERGE_MEMORY.read(properties)),
        )


@dataclass(frozen=True)
class Clustering:
    """A request to put file groups in order, those of these partitions (None: of all)."""

    order: RowOrder
    partitions: frozenset[str] | None = None

    def takes(self, partition: str) -> bool:
        """Whether a partition is among them."""
        return self.partitions is None or partition in self.partitions


@dataclass(frozen=True)
class PlannedGroup:
    """One operation of a plan, with the figures that Java keeps beside it."""

    operation: CompactionOperation
    log_bytes: int
    base_bytes: int

    @property
    def metrics(self) -> dict[str, float]:
        """Java's metrics of an operation; the MB figures are whole numbers."""
        read = float((self.log_bytes + self.base_bytes) // MIB)
        write = float(self.base_bytes // MIB) if self.operation.base_file else _NEW_BASE_MB
        return {
            "TOTAL_LOG_FILES": float(len(self.operation.log_files)),
            "TOTAL_IO_MB": read + write,
            "TOTAL_IO_READ_MB": read,
            "TOTAL_LOG_FILES_SIZE": float(self.log_bytes),
            "TOTAL_IO_WRITE_MB": write,
        }


def check_operations(state: TableState, operations: Sequence[CompactionOperation], time: str) -> None:
    """Check a plan before any work: its files must exist, be whole, belong to their groups and be named once.

    Raises ``CorruptTable``. (Decoding has checked already that every path stays inside the table.)
    """
    storage = state.storage
    where = paths.timeline_file(f"{time}.{COMPACTION}.{REQUESTED}")
    names: dict[str, set[str]] = {}
    seen: set[tuple[str, str]] = set()
    for operation in operations:
        group = (operation.partition, operation.file_id)
        if group in seen:
            raise _no_plan(f"names the file group {operation.file_id!r} twice", where)
        seen.add(group)
        files = [*operation.log_files, *filter(None, [operation.base_file])]
        if len(set(files)) < len(files):
            raise _no_plan(f"names a file of {operation.file_id!r} twice", where)
        if operation.partition not in names:
            names[operation.partition] = set(storage.names(operation.partition))
        for name in files:
            path = paths.in_partition(operation.partition, name)
            if paths.file_id_of(name) != operation.file_id:
                raise _no_plan(f"names {path} for the file group {operation.file_id!r}", where)
            if name not in names[operation.partition]:
                raise _no_plan(f"names {path}, which does not exist", where)
        check_files(state, operation.partition, files, committed_sizes(state, operation.partition))


def _no_plan(what: str, path: str) -> CorruptTable:
    return CorruptTable(
        f"the compaction plan {what}; nothing was changed: restore the table from a copy, or roll the"
        " plan back with Hudi",
        path=path,
    )


class FileListing:
    """The table's files by partition, kept up to date from the metadata of commits.

    Listing folders and asking the archive about old instants takes long, so both happen before the lock is
    taken. Under the lock, only the files of instants that completed since are added, from their commit
    metadata. If instants were archived in between, the folders are listed again.

    ``whole``: raise ``CorruptTable`` if a file that the newest rows need is gone or truncated: compacting the
    rest would make the loss permanent.
    """

    def __init__(self, storage: Storage, config: TableConfig, *, whole: bool = True) -> None:
        self._storage = storage
        self._config = config
        self._whole = whole
        for left in reversed(range(_LOOKS)):
            try:
                self._look()
                return
            except FileNotFoundError:  # a clean, a restore or a rollback came in between
                if not left:
                    raise

    def _look(self) -> None:
        storage, config = self._storage, self._config
        self._version = Archive.load(storage, config.history).manifest.version
        state = TableState.load(storage, config)
        self._seen = {i.file_name for i in state.timeline.completed}
        self._names = {found.partition: set(found.names) for found in state.partitions()}
        for partition, names in sorted(self._names.items()):
            state.group(partition, sorted(names))  # fills the archive's cache before the lock
        self._archive = state.archive
        #: files of instants in flight: they may take some back before they complete
        self._unsure: dict[str, list[tuple[str, str]]] = {}
        done, start = state.timeline.completion_times, state.timeline.start or ""
        for partition, names in sorted(self._names.items()):
            for name in sorted(names):
                parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
                if parsed is not None and parsed.instant >= start and parsed.instant not in done:
                    self._unsure.setdefault(parsed.instant, []).append((partition, name))
        #: partitions that got files since the first look
        self.grown: set[str] = set()
        if self._whole:
            check_table(state, self._names)
        warn_of_shared_names(storage, self._names)

    def now(self) -> tuple[TableState, Mapping[str, set[str]]]:
        """The table's state at this moment, and the files of all its completed instants."""
        state = TableState.load(self._storage, self._config)
        self._archive.refresh()
        state.archive = self._archive
        if self._archive.manifest.version != self._version:
            # What completed since then may be off the active timeline already.
            self._names = {found.partition: set(found.names) for found in state.partitions()}
            self.grown = set(self._names)
        new = [i.requested for i in state.writes if i.file_name not in self._seen]
        written = written_files(state, new)
        for partition, names in written.items():
            self._names.setdefault(partition, set()).update(names)
            self.grown.add(partition)
        for partition, name in (one for time in new for one in self._unsure.pop(time, ())):
            if name not in written.get(partition, ()):
                self._names[partition].discard(name)
                self.grown.add(partition)
        return state, self._names


class DueGroups:
    """The file groups to compact, found before the lock is taken and brought up to date under it.

    Under the lock only the partitions are looked at again that got files since, so what is done there does
    not grow with the table. If any service began or ended something meanwhile, all are.

    ``cluster``: groups without logs are due, too, whose rows are not in this order. ``native_logs``: only
    those with a native log file, be it of deletes that a compaction kept.
    """

    def __init__(
        self, listing: FileListing, cluster: Clustering | None = None, *, native_logs: bool = False
    ) -> None:
        self._listing = listing
        self._cluster = cluster
        self._native = native_logs
        self._ordered: dict[str, bool] = {}
        self._sizes: dict[str, int] = {}
        state, files = listing.now()
        self._services = services_shown(state.timeline)
        self._found = {partition: self._find(state, partition, names) for partition, names in files.items()}

    def now(self, options: CompactionOptions) -> tuple[TableState, list[PlannedGroup]]:
        """The table's state at this moment, and its groups in the strategy's order; [] if there are none.

        It leaves out replaced groups and those in a pending compaction, log compaction or clustering. Raises
        ``CorruptTable`` for a clustering's plan that does not read.
        """
        state, files = self._listing.now()
        services = services_shown(state.timeline)
        stale = self._listing.grown if services == self._services else set(files)
        self._services = services
        for partition in sorted(stale):  # the same calls in every process
            self._found[partition] = self._find(state, partition, files[partition])
        taken = taken_groups(state)
        groups = [group for partition in sorted(files) for group in self._found[partition]]
        if self._cluster is not None:
            groups = [group for group in groups if self._cluster.takes(group.operation.partition)]
            options = replace(options, strategy=_UP_TO_A_BOUND)  # bounds on logs are for what has some
        free = [g for g in groups if (g.operation.partition, g.operation.file_id) not in taken]
        return state, _chosen(free, options)

    def _find(self, state: TableState, partition: str, names: set[str]) -> list[PlannedGroup]:
        found = []
        for group in state.group(partition, sorted(names)):
            newest = group.slices[0]
            if self._has_work(newest) or self._unordered(state, partition, newest):
                operation = CompactionOperation(
                    partition, group.file_id, newest.base_instant, newest.base_file, newest.log_files
                )
                found.append(measured(state.storage, operation, self._sizes))
        return found

    def _has_work(self, newest: FileSlice) -> bool:
        if self._native:
            return any(paths.is_native_log(name) for name in newest.log_files)
        return bool(newest.later_logs)

    def _unordered(self, state: TableState, partition: str, newest: FileSlice) -> bool:
        """Whether a slice without logs is due nevertheless."""
        if self._cluster is None or newest.base_file is None or not self._cluster.takes(partition):
            return False
        path = paths.in_partition(partition, newest.base_file)
        if path not in self._ordered:
            self._ordered[path] = row_order_of(state.storage, path) == str(self._cluster.order)
        return not self._ordered[path]


def row_order_of(storage: Storage, path: str) -> str:
    """What a base file's footer says of the order of its rows; "" for nothing, and for a file that was
    cleaned meanwhile: a newer one has taken its place."""
    try:
        with open_base(storage, path, final=True) as base:
            notes = base.source.metadata.metadata or {}
    except FileNotFoundError:
        return ""
    return bytes(notes.get(ORDER_KEY.encode(), b"")).decode("utf-8", "replace")


def services_shown(timeline: ActiveTimeline) -> set[str]:
    """What the timeline shows of services: file names."""
    suffixes = tuple(f".{DELTACOMMIT}{state}" for state in ("", f".{REQUESTED}", f".{INFLIGHT}"))
    return {name for name in timeline.names if not name.endswith(suffixes)}


def taken_groups(state: TableState) -> set[tuple[str, str]]:
    """(partition, file id) of groups that are replaced or in a pending plan.

    Raises ``Unsupported`` for a clustering that does not say which it takes.
    """
    found = set(state.compactions) | state.replaced(None)
    for instant in state.timeline.pending:
        if instant.action == LOGCOMPACTION:
            plan = load_compaction_plan(state.storage, instant.requested, LOGCOMPACTION)
            found.update((operation.partition, operation.file_id) for operation in plan)
        elif instant.action == CLUSTERING:
            clustering = load_clustering_plan(state.storage, instant.requested)
            if clustering is None:
                raise Unsupported(
                    f"the clustering {instant.requested} is pending, and its plan is empty: which file groups"
                    " it takes is unknown; roll it back (mainstem rollback)",
                    table=state.storage.base,
                )
            found |= clustering.taken
    return found


def measured(
    storage: Storage, operation: CompactionOperation, known: dict[str, int] | None = None
) -> PlannedGroup:
    """An operation with the sizes of its files. ``known``: sizes by path, which do not change any more."""

    def size(name: str) -> int:
        path = paths.in_partition(operation.partition, name)
        if known is not None and path in known:
            return known[path]
        info = storage.stat(path)
        if info is not None and known is not None:
            known[path] = info.size
        return 0 if info is None else info.size

    base = 0 if operation.base_file is None else size(operation.base_file)
    return PlannedGroup(operation, sum(map(size, operation.log_files)), base)


def _chosen(planned: list[PlannedGroup], options: CompactionOptions) -> list[PlannedGroup]:
    if options.strategy == "LogFileSizeBasedCompactionStrategy":
        planned = [p for p in planned if p.log_bytes >= options.log_bytes_min]
        planned.sort(key=lambda p: -p.log_bytes)
    elif options.strategy == "LogFileNumBasedCompactionStrategy":
        planned = [p for p in planned if len(p.operation.log_files) >= options.log_files_min]
        planned.sort(key=lambda p: -len(p.operation.log_files))
    if options.strategy == UNBOUNDED:
        return planned
    left = float(options.target_io_mb)
    chosen = []
    for group in planned:
        if left <= 0:
            break
        chosen.append(group)
        left -= group.metrics["TOTAL_IO_MB"]
    return chosen
