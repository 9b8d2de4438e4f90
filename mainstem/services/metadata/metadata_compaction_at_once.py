"""Compaction of the metadata table where other engines may write: nobody ever sees its plan pending.

A Java job that starts while a plan is pending counts the file groups wrongly, and fails at every commit until
it is restarted (Hudi 1.2.0: ``ArrayIndexOutOfBoundsException``). Java itself plans, executes and completes
in one critical section. Here the files are made before that section:

  1. [[ the data table's lock: which log files count and completed before t; t is reserved ]]
  2. per file group: merge base file and logs into a private file
  3. [[ would a plan for t still be the same? -> t.compaction.requested, t.compaction.inflight, the
     files under their names, t_c.commit ]]
  4. remove private files

Instants that complete between 1 and 3 have a later completion time than t, so they lie on top of the new base
files.

**A crash** before 3 leaves private files, which are swept, and an unused time. In 3 it leaves a pending plan,
which ``services.metadata.metadata_compaction`` executes in its own way.

**A suspended process that wakes up** in 3 has lost its tickets. If its plan was published before, it may link
files equal to those that others made, or it finds its private files gone: they carry t in their names, and
the process that completes t removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable
from mainstem.metadata.metadata_compaction_plan import before, compacted, earliest_unsure, operations
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.record_schema import commit_schema
from mainstem.publish.publisher import Ahead, Section
from mainstem.publish.staging import create_once, delete_quietly, prepared, private_name, put_once
from mainstem.services.claim import claimed
from mainstem.services.compaction import Compaction
from mainstem.services.compaction_plan import measured
from mainstem.services.metadata.metadata_merge import COMPACTIONS, base_name, base_stat, is_new
from mainstem.services.metadata.metadata_state import OF_METADATA
from mainstem.services.other_attempts import sweep_private
from mainstem.storage import paths
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import CompactionStat, encode_commit
from mainstem.timeline.compaction_trigger import last_compaction, pending
from mainstem.timeline.instant import COMMIT, COMPACTION, INFLIGHT, REQUESTED
from mainstem.timeline.plans import CompactionOperation, encode_compaction_plan
from mainstem.writers.context import WriterContext

_NEVER = "0" * 17


@dataclass(frozen=True)
class Made:
    """A new base file, under a private name. ``target``: its path, below the metadata table."""

    target: str
    private: str
    stat: CompactionStat


@dataclass(frozen=True)
class AtOnce:
    """One round. ``look`` returns the metadata table now, or None; ``is_due`` judges its timeline."""

    ctx: WriterContext
    look: Callable[[], MetadataTable | None]
    is_due: Callable[[ActiveTimeline], bool]

    def run(self) -> Compaction | None:
        """None if there is nothing to do, another live process does it, or the table changed meanwhile."""
        table = self.look()
        if table is None or pending(table.timeline):
            return None
        # A claim on the newest compaction's time: its holder makes the next one.
        newest = last_compaction(table.timeline, requested=True) or _NEVER
        with claimed(self.ctx, newest, "the compaction of the metadata table after") as ours:
            chosen = self._choose() if ours else None
            if chosen is None:
                return None
            # And one on its own time, so that its private files are not swept, however long it takes.
            with claimed(self.ctx, chosen[0], "the compaction of the metadata table") as alone:
                return _Execution(self, *chosen).run() if alone else None

    # -- step 1 --------------------------------------------------------------------------------------

    def _choose(self) -> tuple[str, MetadataTable, tuple[CompactionOperation, ...]] | None:
        """Time, table and operations of a plan; None if there is nothing to do."""
        found: list[tuple[str, MetadataTable, tuple[CompactionOperation, ...]]] = []

        def choose(section: Section) -> str | None:
            found.clear()
            table = self.look()
            if table is None or pending(table.timeline) or not self.is_due(table.timeline):
                return "nothing to do"
            unsure = earliest_unsure(table)
            until = None if unsure is None else before(unsure)
            if until is not None and not is_new(until, section.timeline, table):
                return "no time for it"
            planned = tuple(operations(table, until))
            if planned:
                found.append((until or "", table, planned))
            return None if planned and until is None else "a time in the past, which needs no keeping"

        def kept(time: str) -> None:
            raise _Kept(time)

        try:
            self.ctx.publisher.publish(
                lambda time: f"{time}.{COMPACTION}.{REQUESTED}",
                decide=choose, before_link=kept, folder=paths.METADATA_TIMELINE, keeps_time=True,
            )  # fmt: skip
        except _Kept as reserved:
            return (reserved.time, *found[0][1:])
        return found[0] if found else None


class _Kept(Exception):
    """Ends the section once a time is chosen and reserved, before anything is published."""

    def __init__(self, time: str) -> None:
        super().__init__(time)
        self.time = time


@dataclass(frozen=True)
class _Execution:
    """Steps 2 to 4."""

    round: AtOnce
    time: str
    table: MetadataTable
    operations: tuple[CompactionOperation, ...]

    def run(self) -> Compaction | None:
        ctx = self.round.ctx
        numbered = [
            (number, operation, private_name(ctx.seams.random, self.time))
            for number, operation in enumerate(self.operations)
        ]
        try:
            made = side_by_side(ctx.seams.storage, lambda one: self._make(*one), numbered)
            return self._complete(made)
        except FileNotFoundError:
            return None  # a clean or a drop removed source files, or others completed the plan
        except CorruptTable:
            if self._stands():
                raise
            return None  # source files were removed while they were read
        finally:
            for _, _, private in numbered:
                delete_quietly(ctx.seams.storage, private)

    def _make(self, number: int, operation: CompactionOperation, private: str) -> Made:
        ctx = self.round.ctx
        began = ctx.seams.clock.monotonic_ms()
        name = base_name(operation, number, self.time)
        data, merged = compacted(self.table, operation, name, ctx.seams.clock.now_ms())
        ctx.seams.storage.put_new(private, data, durable=ctx.options.fsync)
        taken_ms = ctx.seams.clock.monotonic_ms() - began
        target = paths.in_partition(operation.partition, name)
        return Made(target, private, base_stat(self.table, operation, name, data, merged, taken_ms))

    # -- step 3 --------------------------------------------------------------------------------------

    def _complete(self, made: Sequence[Made]) -> Compaction | None:
        ctx = self.round.ctx
        groups = [measured(self.table.folder, operation) for operation in self.operations]
        stats = [one.stat for one in made]
        extra = {"schema": commit_schema(self.table.config.version)}
        plan = encode_compaction_plan(self.operations, [group.metrics for group in groups])
        content = encode_commit(stats, extra, COMPACTIONS.operation, compacted=True)
        with (
            prepared(ctx.seams, COMPACTION, plan) as theirs,
            prepared(ctx.seams, COMPACTION, content) as own,
        ):
            published = ctx.publisher.publish(
                lambda done: f"{self.time}_{done}.{COMMIT}",
                prepared=own,
                decide=self._changed,
                before_link=lambda done: self._name_files(made),
                ahead=Ahead(
                    (paths.METADATA_TIMELINE,), theirs,
                    lambda _: f"{self.time}.{COMPACTION}.{REQUESTED}", lambda _: True,
                ),
                folder=paths.METADATA_TIMELINE,
            )  # fmt: skip
        if published.time is None:
            return None
        sweep_private(ctx.seams.storage, self.time)
        return Compaction.of_stats(self.time, published.time, stats, OF_METADATA)

    def _changed(self, section: Section) -> str | None:
        """Under the lock: None if a plan for this time would still be the same."""
        table = self.round.look()
        if table is None or pending(table.timeline):
            return "no metadata table any more, or a plan: one of this round, perhaps, which was superseded"
        times = {i.requested for timeline in (section.timeline, table.timeline) for i in timeline.instants}
        if self.time in times or not self._is_of(table):
            return "another round, a drop or a restore was faster"
        return None

    def _stands(self) -> bool:
        """Whether the files that were merged must still be there: no drop, no other compaction."""
        table = self.round.look()
        if table is None or not {o.partition for o in self.operations} <= {*table.partitions}:
            return False
        newest = (last_compaction(one.timeline, requested=True) for one in (table, self.table))
        return len(set(newest)) == 1

    def _is_of(self, table: MetadataTable) -> bool:
        # What the files' own commits say of them was compared when the plan was chosen.
        return tuple(operations(replace(table, whole=False), self.time)) == self.operations

    def _name_files(self, made: Sequence[Made]) -> None:
        storage, folder = self.round.ctx.seams.storage, self.table.folder
        create_once(folder, paths.timeline_file(f"{self.time}.{COMPACTION}.{INFLIGHT}"))
        for one in made:
            put_once(storage, one.private, folder.outer(one.target))  # unless it is in place already
        folders = sorted({folder.outer(one.stat.partition) for one in made})
        storage.settle([], folders, durable=self.round.ctx.options.fsync)
