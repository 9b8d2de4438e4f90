"""Plans a log compaction: which file groups, and which run of their log files.

Hudi: ``HoodieLogCompactionPlanGenerator``, which also plans beside writers in flight. Readers of Hudi 1.2,
and ours, apply a merged block in place of its sources, at the position of the latest of them. So nothing that
sorts before that position may complete later: a plan takes only logs requested before the oldest write in
flight.

Readers of 1.0 and 1.1 replay the sources and then the merged block at its own time, after everything
requested before it (seen with Spark and 1.1.1, whatever ``hoodie.optimized.log.blocks.scan.enable`` says).
For them no write may be in flight at all, and that is the rule here, unless
``hoodie.mainstem.log.compaction.beside.writers`` promises that no such reader is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstem.errors import CorruptTable
from mainstem.formats.log_file import BlockKind, Header, replaced_by
from mainstem.layout.slicing import FileSlice
from mainstem.options.services import BESIDE_WRITERS, LOG_BLOCKS_MIN, LOG_COMPACT, LOG_COMPACT_INLINE
from mainstem.readers.planning.table_state import WRITES, TableState
from mainstem.readers.rows.log_rows import log_runs
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.services.compaction_plan import PlannedGroup, measured, taken_groups
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import LOGCOMPACTION, Instant
from mainstem.timeline.plans import CompactionOperation

# A run of one block has nothing to merge.
_BLOCKS_MIN = 2


@dataclass(frozen=True)
class LogCompactionOptions:
    """Checked options, under Hudi's names and with its defaults.

    ``blocks_min``: blocks that a file group's logs must have for a log compaction that is due;
    ``beside_writers``: no reader is older than Hudi 1.2, so that writes may be in flight (see the module).
    """

    enabled: bool = False
    inline: bool = False
    blocks_min: int = LOG_BLOCKS_MIN.default
    beside_writers: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LogCompactionOptions:
        """Raises ``Invalid`` for a value that does not parse."""
        return cls(
            LOG_COMPACT.read(properties),
            LOG_COMPACT_INLINE.read(properties),
            LOG_BLOCKS_MIN.read(properties),
            BESIDE_WRITERS.read(properties),
        )


@dataclass
class BlockCounts:
    """Counts the blocks in runs of logs, and finds runs that cannot be merged; looks at each run once.

    The look opens every file, so it happens before the lock is taken; under the lock only runs that have
    grown meanwhile are opened.
    """

    spec: ReadSpec
    _known: dict[tuple[str, ...], int] = field(default_factory=dict)
    _merged: dict[str, frozenset[str]] = field(default_factory=dict)

    def sources(self, storage: Storage, path: str) -> frozenset[str]:
        """``sources_of`` a log file."""
        if path not in self._merged:
            self._merged[path] = sources_of(storage, path)
        return self._merged[path]

    def of(self, state: TableState, operation: CompactionOperation) -> int:
        """Number of blocks to merge; 0 for runs with blocks that cannot be merged (partial updates).

        The blocks of one log compaction count as one: otherwise they would be merged again for ever.
        """
        _, logs = split_paths(operation.partition, None, operation.log_files)
        if logs not in self._known:
            self._known[logs] = self._count(state, operation, logs)
        return self._known[logs]

    def _count(self, state: TableState, operation: CompactionOperation, logs: tuple[str, ...]) -> int:
        split = Split(operation.partition, operation.file_id, None, logs, self.spec)
        blocks = [block for run in log_runs(state.storage, split) for _, block in run]
        merged = (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.DELETE)
        if any(block.partial or block.kind not in merged for block in blocks):
            return 0
        merges = {block.instant for block in blocks if Header.COMPACTED_BLOCK_TIMES in block.headers}
        return len(merges) + sum(block.instant not in merges for block in blocks)


def sources_of(storage: Storage, path: str) -> frozenset[str]:
    """Instants whose blocks a log compaction's file replaces; empty for other log files."""
    for block in blocks_of(storage, path):
        return replaced_by(block.headers)
    return frozenset()


def place(storage: Storage, operation: CompactionOperation) -> str:
    """Where readers apply the merged block: the newest instant in the run that is no log compaction."""
    raw = ""
    for log in filter(None, map(paths.parse_log_name, operation.log_files)):
        path = paths.in_partition(operation.partition, log.name)
        if log.instant > raw and storage.stat(path) is not None and not sources_of(storage, path):
            raw = log.instant
    return raw


def pending(timeline: ActiveTimeline) -> list[str]:
    """Requested times of log compactions that are planned but not completed, oldest first."""
    return [i.requested for i in timeline.pending if i.action == LOGCOMPACTION]


def writes_in_flight(timeline: ActiveTimeline, before: str | None = None) -> list[Instant]:
    """Pending writes, oldest first; with ``before``, only those requested earlier than that."""
    return [i for i in timeline.pending if i.action in WRITES and (before is None or i.requested < before)]


def plan_runs(
    state: TableState, files: Mapping[str, set[str]], counts: BlockCounts, blocks_min: int
) -> list[PlannedGroup]:
    """The runs to merge: of each file group the newest slice's logs up to the oldest write in flight.

    It leaves out replaced groups, those in a pending plan, and those with fewer than ``blocks_min`` blocks.
    Raises ``Unsupported`` for a pending clustering that does not say which groups it takes.
    """
    in_flight = writes_in_flight(state.timeline)
    until = in_flight[0].requested if in_flight else None
    taken = taken_groups(state)
    planned = []
    for partition in sorted(files):
        for group in state.group(partition, sorted(files[partition])):
            operation = _run(state.storage, group.slices[0], until, counts)
            if (partition, group.file_id) in taken or not operation.log_files:
                continue
            if counts.of(state, operation) >= max(blocks_min, _BLOCKS_MIN):
                planned.append(measured(state.storage, operation))
    return planned


def _run(
    storage: Storage, found: FileSlice, until: str | None, counts: BlockCounts
) -> CompactionOperation:
    """The logs before ``until``, and later merged ones that replace some of them.

    An earlier merged block is merged again instead of its sources, because not every reader can handle two
    merged blocks for one source. If one replaces logs on both sides of ``until``, as Java's may, there is
    nothing to merge. Nor is there if logs lie on both sides of the deletes that a compaction kept.
    """
    logs = [log for log in map(paths.parse_log_name, found.later_logs) if log is not None]
    if len(logs) < len(found.log_files) and any(log.instant < found.base_instant for log in logs):
        logs = []
    names = [log.name for log in logs if until is None or log.instant < until]
    inside = {log.instant for log in logs if until is None or log.instant < until}
    for log in logs[len(names) :]:
        sources = counts.sources(storage, paths.in_partition(found.partition, log.name))
        if sources and sources <= inside:
            names.append(log.name)
            inside.add(log.instant)
        elif sources & inside:
            names = []
            break
    return CompactionOperation(
        found.partition, found.file_id, found.base_instant, found.base_file, tuple(names)
    )


def broken(
    state: TableState, files: Mapping[str, set[str]], operation: CompactionOperation, bound: str
) -> str | None:
    """Why the run of a plan can no longer be merged, None if it can.

    ``bound``: every log requested before it must be in the run.

    The run's logs must still be the first of the newest slice. A compaction planned since would take them and
    leave the merged file in the next slice; a log that completed before or between them would be merged in
    the wrong order.
    """
    where = f"{operation.file_id} in partition {operation.partition!r}"
    if (operation.partition, operation.file_id) in state.replaced(None):
        return f"file group {where} was replaced"
    groups = state.group(operation.partition, sorted(files.get(operation.partition, ())))
    newest = next((g.slices[0] for g in groups if g.file_id == operation.file_id), None)
    if newest is None or newest.base_instant != operation.base_instant:
        return f"a compaction of {where} was planned since, which takes its logs"
    merged = {*newest.later_logs, *operation.log_files}
    named = (name for name in newest.log_files if name in merged)
    logs = [log for log in map(paths.parse_log_name, named) if log is not None]
    unknown = set(operation.log_files).difference(newest.log_files)
    if unknown:
        raise CorruptTable(
            f"a log compaction's plan names {min(unknown)}, which is no log of {where}; nothing was changed,"
            " take the plan back with mainstem rollback",
            table=state.storage.base,
        )
    due = tuple(log.name for log in logs if log.instant < bound or log.name in operation.log_files)
    if due != operation.log_files:
        return f"an instant completed since that belongs before or between the logs of {where}"
    return None
