"""The deletes that a compaction keeps, with their ordering values, in a log file beside its base file.

A base file holds rows only. Without the deletes, a row that arrives after a compaction comes back though the
logs held a delete with a greater ordering value. So a compaction of a table with
``hoodie.mainstem.keep.tombstones`` writes what its logs deleted last into a log file of its own instant, in
Hudi's format. It completes with the compaction, so every reader puts it into the base file's slice; and there
it changes no row of the base file, only what later logs do.

**When.** A delete is now applied at the compaction's instant, behind every log requested before it. That is
its place as long as no write that was requested after the delete lies below: it would lose a row with the
same ordering value, which won before. So the file is made last, when most writes that were in flight as the
compaction was planned have ended: those that completed are looked at (``last_deletes.without_conflicts``),
and deletes older than one that is still in flight are forgotten, as without the option.

**Overwrites.** A base file of a later instant hides the rows and deletes that are older, but the file of the
kept deletes would lie on top of it if the compaction completes later. So nothing is kept where there is one,
a compaction steps back if one came after the deletes were written, and an overwrite is made again if the
compaction completed while it was in flight (``writers.overwriting``).

**What it costs.** Rows whose columns can mark them as deletes, and other engines may have written such rows:
then keys, ordering values and marks of the logs are read once more. Else only delete blocks hold deletes, and
who merged the logs knows whether any had an ordering value (those of SQL's statements have, ``delete()`` has
none).

**How long.** The block of a delete carries the instant of the compaction that first kept it. The next
compaction takes the deletes in with the other logs and writes them again, until that instant is older than
the option says. Deletes of one eighth of that time share a block, under the newest of their instants.

From table version 10 on the file is a native deletes file, which is one block. What the instants of blocks
say in a file of blocks is in its footer, which only mainstem reads: of each delete, the compaction that first
kept it.

What the file holds depends on when it is made. Like a base file, the first one stays, and everybody uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import MainstemError
from mainstem.formats.delete_records import can_order_deletes
from mainstem.formats.log_file import BlockKind, LogBlock, delete_block
from mainstem.formats.lsm_order import key_order
from mainstem.formats.native_log import NativeBlock, kept_note
from mainstem.layout.key_index import table_index
from mainstem.layout.properties import TableConfig
from mainstem.merge.rules import marks_deletes
from mainstem.options.tables import KEEP_TOMBSTONES
from mainstem.publish.staging import Content
from mainstem.readers.rows.last_deletes import LastDeletes, last_deletes, without_conflicts
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.services.native_files import NativeFiles
from mainstem.storage import paths
from mainstem.storage.protocol import Storage, Upload
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, REPLACECOMMIT
from mainstem.timeline.plans import CompactionOperation
from mainstem.truetime.instant_times import instant_text, parse_wall

Blocks = list[list[bytes | memoryview]]

_WRITES = (COMMIT, DELTACOMMIT, REPLACECOMMIT)
_BLOCKS_PER_HORIZON = 8


def hours_kept(config: TableConfig, spec: ReadSpec) -> int:
    """For how many hours compactions of this table keep deletes; 0 if not at all.

    Only where deletes can have an ordering value, and where a key has one file group for good: elsewhere a
    late row may go to another one, in which nobody knows of the delete.
    """
    rules = spec.rules
    if not rules.ordering or rules.merger is not None or spec.ids is not None or spec.virtual_key:
        return 0
    if table_index(config.raw) is not None or config.uses_rings:
        return 0
    if not all(can_order_deletes(kind) for kind in spec.ordering_types):
        return 0
    return KEEP_TOMBSTONES.read(config.raw)


class DeletesSeen:
    """Whether a compaction's logs may hold deletes with ordering values, told by who reads them anyway."""

    def __init__(self, spec: ReadSpec) -> None:
        self._found = marks_deletes(spec.rules, spec.schema.names)
        self._blocks = 0

    def note(self, block: LogBlock) -> None:
        """A block was read."""
        self._blocks += 1
        if not self._found and block.kind is BlockKind.DELETE:
            self._found = _may_be_ordered(block)

    @property
    def none(self) -> bool:
        """There are surely none. Where nobody read the logs, nothing is sure."""
        return not self._found and self._blocks > 0


def _may_be_ordered(block: LogBlock) -> bool:
    if isinstance(block, NativeBlock):
        return bool(block.ordered_by)
    try:
        return bool(pc.any(pc.invert(block.deletes()["ordering_is_default"])).as_py())
    except MainstemError:
        return True  # who merges the logs says so, if the block counts


@dataclass(frozen=True)
class KeptDeletes:
    """What the compaction ``time`` keeps of one file group.

    ``spec``: how its logs are read; ``schema``: Avro schema of the base file; ``base_file``: the new one;
    ``native``: how a native deletes file is written, None: it is a file of blocks.
    """

    time: str
    operation: CompactionOperation
    spec: ReadSpec
    schema: str
    base_file: str
    hours: int
    memory_bytes: int
    native: NativeFiles | None = None

    @property
    def file_name(self) -> str:
        """Name of the log file, determined by the plan alone."""
        return paths.kept_deletes_name(self.base_file, native=self.native is not None)

    @property
    def target(self) -> str:
        """Its path."""
        return paths.in_partition(self.operation.partition, self.file_name)

    def content(self, storage: Storage) -> Content | None:
        """What writes the log file; None if there is nothing to keep."""
        found = last_deletes(storage, self._split(self.operation.log_files), self.memory_bytes)
        found = found.chosen(self._first_kept(found) >= self._oldest)
        if not len(found) or overwritten(storage, load_timeline(storage), self.time, [self.operation]):
            return None
        found = self._in_place(storage, found)
        times, which = np.unique(self._first_kept(found), return_inverse=True)
        newest = {self._cell(time): time for time in times.tolist()}  # in the order of times
        block_of = np.asarray([newest[self._cell(time)] for time in times.tolist()], "U20")[which.reshape(-1)]
        if not len(found):
            return None
        if self.native is not None:
            return self._native_file(self.native, found, list(newest.values()), block_of)
        made: Blocks = []
        for instant in newest.values():
            some = found.chosen(block_of == instant)
            partition, ordering = self.operation.partition, some.ordering
            made.append(delete_block(instant, self.schema, some.keys, partition, ordering))

        def write(sink: Upload) -> None:
            for block in made:
                sink.append(block)

        return write

    def _native_file(
        self, files: NativeFiles, found: LastDeletes, instants: list[str], block_of: np.ndarray
    ) -> Content:
        rows = files.deletes(self.schema, found.keys, found.ordering)
        which = np.searchsorted(np.asarray(instants), block_of)
        order = key_order(rows).to_numpy() if files.sorted_files else np.argsort(which, kind="stable")
        note = kept_note(instants, which[order])
        return files.content(self.time, self.schema, rows.take(pa.array(order)), deletes=True, said=note)

    def measured(self, storage: Storage) -> tuple[int, int, int]:
        """Numbers of deletes, blocks and bytes of the file that was made, by whomever."""
        blocks = blocks_of(storage, self.target)
        info = storage.stat(self.target)
        size = 0 if info is None else info.size  # the compaction finds out that it is gone
        return sum(map(_count_of, blocks)), len(blocks), size

    @property
    def _oldest(self) -> str:
        return instant_text(parse_wall(self.time) - timedelta(hours=self.hours))

    def _first_kept(self, found: LastDeletes) -> np.ndarray:
        """For each delete, the compaction that kept it first: this one, if it was not kept before."""
        operation = self.operation
        base = None if operation.base_file is None else paths.parse_base_name(operation.base_file)
        if base is None or not any(paths.is_kept_deletes(name, base) for name in operation.log_files):
            return np.full(len(found), self.time, "U20")
        return np.where(found.places == operation.base_instant, found.blocks, self.time)

    def _in_place(self, storage: Storage, found: LastDeletes) -> LastDeletes:
        """The deletes that nothing crossed which they could wrong."""
        shown = load_timeline(storage).instants
        writes = [i for i in shown if i.action in _WRITES and i.requested < self.time]
        in_flight = max((i.requested for i in writes if not i.is_completed), default="")
        found = found.chosen(found.places > in_flight)
        done = {i.requested for i in writes if i.completion is not None and i.completion > self.time}
        if not len(found) or not done:
            return found
        names = storage.names(self.operation.partition)
        logs = [log for log in map(paths.parse_log_name, names) if log is not None and not log.is_cdc]
        over = [log for log in logs if log.file_id == self.operation.file_id and log.instant in done]
        if not over:
            return found
        crossing = self._split(tuple(log.name for log in sorted(over, key=lambda log: log.order)))
        return without_conflicts(storage, found, crossing, self.memory_bytes)

    def _split(self, logs: tuple[str, ...]) -> Split:
        operation = self.operation
        _, found = split_paths(operation.partition, None, logs)
        return Split(operation.partition, operation.file_id, None, found, self.spec)

    def _cell(self, time: str) -> int:
        """The eighth of the time kept in which an instant lies, counted from a fixed day: relative to this
        compaction, a delete would move to younger ones for ever."""
        cell = timedelta(hours=self.hours) / _BLOCKS_PER_HORIZON
        return (parse_wall(time) - datetime(2000, 1, 1)) // cell


def _count_of(block: LogBlock) -> int:
    return block.row_count if isinstance(block, NativeBlock) else block.deletes().num_rows


def overwritten(
    storage: Storage, timeline: ActiveTimeline, time: str, operations: Iterable[CompactionOperation]
) -> str | None:
    """A base file of an instant that was requested after ``time`` and has ended, in a file group of these
    operations; None if there is none. Only overwrites put such files beside a pending compaction."""
    pending = {i.requested for i in timeline.pending}  # they look for the compaction themselves
    places = {(operation.partition, operation.file_id) for operation in operations}
    for partition in sorted({place[0] for place in places}):
        for name in sorted(storage.names(partition)):
            base = paths.parse_base_name(name)
            if base is None or base.instant <= time or base.instant in pending:
                continue
            if (partition, base.file_id) in places:
                return paths.in_partition(partition, name)
    return None
