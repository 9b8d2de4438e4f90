"""Compaction of the metadata table beside writers, by the executor of plans (``services.executor``).

  1. [[ the data table's lock: which log files count and completed before t -> publish t.compaction.requested
     on the metadata table's timeline ]]
  2. t.compaction.inflight
  3. per file group: merge base file and logs into a private file, put it under its final name
  4. [[ still pending? every operation still what it was? -> publish t_c.commit ]]
  5. remove private files

**A crash** after 1 leaves the plan. Readers read a slice under a pending plan together with the one before
it, so nothing changes for them; the next round executes the plan. After 3 it leaves base files of an instant
that is not completed, which nobody reads and the next executor finds. After 4 it leaves private files, which
are swept.

**If an index is dropped** while a plan is pending, the files of its operations go too; an index created anew
has other files under the same file ids. An operation is void if no file of it is left, or if some are gone
and the index is in no list. It then has no part in the commit. Its new base file, if an executor made one, is
removed under the lock in 4, again after 5, and by any executor that finds the operation void once its file
has appeared. (A base file of t in the new index would hide rows.)

The data table's timeline says which logs count, and its lock guards all of the metadata table (HUDI-9407).
Java may be executing a pending plan of its own, so such a plan is left alone until it has been untouched for
as long as a heartbeat may be silent. ``metadata.metadata_compaction_plan`` chooses the instant t. Where other
engines may write, no plan is left pending for them to see: ``services.metadata.metadata_compaction_at_once``.

Hudi: ``HoodieBackedTableMetadataWriter.performTableServices``, ``compactIfNecessary``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable, Unavailable, naming
from mainstem.layout.properties import load_config
from mainstem.metadata.metadata_compaction_plan import (
    MetadataCompactionOptions,
    before,
    compacted,
    earliest_unsure,
    operations,
)
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.record_schema import commit_schema
from mainstem.options.metadata import METADATA
from mainstem.publish.publisher import Published, Section
from mainstem.readers.planning.table_state import TableState
from mainstem.services.claim import claimed, store_now_ms
from mainstem.services.compaction import Compaction, ended
from mainstem.services.compaction_plan import measured
from mainstem.services.executor import Execution, publish_end, publish_plan
from mainstem.services.metadata.metadata_compaction_at_once import AtOnce
from mainstem.services.metadata.metadata_growth import is_worth_it
from mainstem.services.metadata.metadata_merge import COMPACTIONS, base_name, base_stat, is_new
from mainstem.services.metadata.metadata_state import OF_METADATA
from mainstem.services.planned_files import make_file
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.commit_metadata import CompactionStat
from mainstem.timeline.compaction_trigger import pending
from mainstem.timeline.instant import COMMIT, COMPACTION, INFLIGHT, REQUESTED
from mainstem.timeline.plans import (
    CompactionOperation,
    encode_compaction_plan,
    is_our_plan,
    load_compaction_plan,
)
from mainstem.writers.context import WriterContext


def run(ctx: WriterContext, *, if_due: bool = True) -> list[Compaction]:
    """Execute pending plans, then plan and execute what is due; [] if there is nothing to do.

    Raises what the lock raises, ``CorruptTable`` for damaged files, ``Unavailable`` for trouble with
    storage; a failure leaves a plan that the next call continues.
    """
    with _trouble(ctx):
        if not has_metadata(load_config(ctx.seams.storage).raw):
            return []
        waiting = pending(_own(ctx))
    done = [execute(ctx, time) for time in waiting]
    if ctx.others_may_write():
        done.append(at_once(ctx, if_due=if_due))
    else:
        time = schedule(ctx, if_due=if_due)
        done.append(None if time is None else execute(ctx, time))
    return [one for one in done if one is not None]


def is_due_on(ctx: WriterContext, own: ActiveTimeline) -> bool:
    """Whether ``run`` may have something to do; ``own``: the metadata table's timeline."""
    return bool(pending(own)) or is_worth_it(ctx, own, _options(ctx))


def _trouble(ctx: WriterContext) -> AbstractContextManager[None]:
    """Turn trouble with storage into ``Unavailable``."""
    return naming(ctx.base, "the metadata table was not compacted", "what is planned stays, try again")


def _own(ctx: WriterContext) -> ActiveTimeline:
    return load_timeline(ctx.seams.storage, paths.METADATA_TIMELINE)


def _options(ctx: WriterContext) -> MetadataCompactionOptions:
    return MetadataCompactionOptions.from_properties({**ctx.config.raw, **ctx.given})


def _table(ctx: WriterContext) -> MetadataTable | None:
    """The metadata table now; None where the table has none (any more)."""
    storage = ctx.seams.storage
    found = TableState.load(storage, load_config(storage).completed_by(ctx.given)).metadata_table
    return None if found is None else replace(found, recent=ctx.recent_rows)


# ------------------------------------------------------------------------------------------ planning


def schedule(ctx: WriterContext, *, if_due: bool = True) -> str | None:
    """Plan a compaction; its requested time, None if there is nothing to do (now)."""
    with _trouble(ctx):
        own = _own(ctx)
        if not own.names or pending(own):
            return None
        if if_due and not is_worth_it(ctx, own, _options(ctx)):
            return None
        return _schedule(ctx, if_due)


def at_once(ctx: WriterContext, *, if_due: bool = True) -> Compaction | None:
    """Plan, execute and complete without ever showing a pending plan; None if nothing is to do (now)."""
    with _trouble(ctx):
        own = _own(ctx)
        if not own.names or pending(own):
            return None
        options = _options(ctx)

        def due(timeline: ActiveTimeline) -> bool:
            return not if_due or is_worth_it(ctx, timeline, options)

        return AtOnce(ctx, lambda: _table(ctx), due).run() if due(own) else None


def _schedule(ctx: WriterContext, if_due: bool) -> str | None:
    options = _options(ctx)
    chosen: list[str | None] = []

    def plan(data: ActiveTimeline) -> bytes | None:
        table = _table(ctx)
        if table is None or pending(table.timeline):
            return None
        if if_due and not is_worth_it(ctx, table.timeline, options):
            return None
        unsure = earliest_unsure(table)
        until = None if unsure is None else before(unsure)
        if until is not None and not is_new(until, data, table):
            return None
        planned = [measured(table.folder, o) for o in operations(table, until)]
        if not planned:
            return None
        chosen[:] = [until]
        return encode_compaction_plan([p.operation for p in planned], [p.metrics for p in planned])

    def name(time: str) -> str:
        return f"{(chosen and chosen[0]) or time}.{COMPACTION}.{REQUESTED}"

    # The data table's writers see only their own timeline: keep this time from being issued to them.
    published: Published[None] = publish_plan(
        ctx, COMPACTION, plan, name=name, folder=paths.METADATA_TIMELINE, keeps_time=True
    )
    return None if published.time is None else (chosen[0] or published.time)


# ----------------------------------------------------------------------------------------- execution


def execute(ctx: WriterContext, time: str) -> Compaction | None:
    """Execute one plan; None if a live executor has it, or Java may be executing it."""
    with _trouble(ctx):
        if not _rests(ctx, time):
            return None
    with claimed(ctx, time, "the compaction of the metadata table") as ours:
        if not ours:
            return None
        execution = _Execution.of_plan(ctx, time)
        return ended(_own(ctx), time, OF_METADATA) if execution is None else execution.run()


def _rests(ctx: WriterContext, time: str) -> bool:
    """Whether the plan is ours, or its timeline files have not been touched for a heartbeat's lifetime."""
    storage = ctx.seams.storage
    if is_ours(storage, time):
        return True
    path = f"{paths.METADATA_TIMELINE}/{time}.{COMPACTION}"
    found = (storage.stat(f"{path}.{state}") for state in (REQUESTED, INFLIGHT))
    newest_ms = max((info.mtime_ms for info in found if info is not None), default=0)
    return store_now_ms(ctx, time) - newest_ms > ctx.heartbeats.silent_ms


def is_ours(storage: Storage, time: str) -> bool:
    """Whether mainstem planned this compaction; also True if its plan is gone."""
    return is_our_plan(storage, f"{paths.METADATA_TIMELINE}/{time}.{COMPACTION}.{REQUESTED}")


@dataclass(frozen=True)
class _Execution(Execution[CompactionStat, Compaction]):
    """A claimed plan; an operation's place in ``operations`` is part of its new file's name."""

    kind = COMPACTIONS

    table: MetadataTable

    @classmethod
    def of_plan(cls, ctx: WriterContext, time: str) -> _Execution | None:
        """None if the plan is not pending (any more)."""
        table = _table(ctx)
        if table is None or time not in pending(table.timeline):
            return None
        made = cls(ctx, time, tuple(load_compaction_plan(table.folder, time)), table)
        for operation in made.operations:
            made.is_void(operation)  # finds a damaged plan before any work
        made.begin()
        return made

    @property
    def folder(self) -> FolderStorage:
        return self.table.folder

    def outer(self, path: str) -> str:
        return self.folder.outer(path)

    @property
    def schema(self) -> str:
        return commit_schema(self.table.config.version)

    def file_name(self, number: int) -> str:
        return base_name(self.operations[number], number, self.time)

    def run(self) -> Compaction:
        """Steps 3 to 5."""
        numbers = [n for n, operation in enumerate(self.operations) if not self.is_void(operation)]
        named = [(n, f"{self.ctx.seams.random.getrandbits(64):016x}") for n in numbers]
        return self.complete(
            side_by_side(self.ctx.seams.storage, lambda one: self._make(*one), named)
        )

    def is_void(self, operation: CompactionOperation) -> bool:
        """Whether the operation's index was dropped, so that its files are gone.

        Raises ``CorruptTable`` if only some of its files exist, or if one belongs to another file group.
        """
        folder = self.folder
        files = [*operation.log_files, *filter(None, [operation.base_file])]
        strangers = [name for name in files if paths.file_id_of(name) != operation.file_id]
        there = set(folder.names(operation.partition))
        missing = [name for name in files if name not in there]
        if len(missing) == len(files) and not strangers:
            return True
        if missing and operation.partition not in load_config(self.ctx.seams.storage).metadata_partitions:
            return True  # a dropper is about to remove them, or died while it did
        if (missing or strangers) and self._is_pending():
            raise CorruptTable(
                f"the compaction plan names {min(missing or strangers)!r}, which"
                f" {'does not exist' if missing else f'is not of the file group {operation.file_id!r}'};"
                f" nothing was changed: drop the metadata table with Hudi ({METADATA}=false), or"
                " restore it from a copy",
                path=self.outer(paths.timeline_file(f"{self.time}.{COMPACTION}.{REQUESTED}")),
            )
        return False

    def _is_pending(self) -> bool:
        return self.time in pending(load_timeline(self.folder))

    def _make(self, number: int, identity: str) -> CompactionStat:
        """One new base file, made here or by another executor."""
        operation, clock, name = self.operations[number], self.ctx.seams.clock, self.file_name(number)
        began = clock.monotonic_ms()
        merged: list[int] = []

        def content() -> bytes:
            data, rows = compacted(self.table, operation, name, clock.now_ms())
            merged[:] = [rows]
            return data

        try:
            make_file(
                self.ctx.seams.storage,
                self.time,
                self.outer(self.path(number)),
                identity,
                content,
                what=self.kind.what,
                wanted=self._is_pending,
                durable=self.ctx.services_sync,
                then=lambda: self._remove_if_void(number),
            )
        except (FileNotFoundError, CorruptTable) as error:
            if isinstance(error, CorruptTable) and self._is_pending():
                raise  # otherwise the plan was completed meanwhile, and a clean removed its files
            raise self._unavailable("was ended by another executor, or its index was dropped") from error
        made = self.folder.view(self.path(number))
        counted = merged[0] if merged else None
        return base_stat(self.table, operation, name, made, counted, clock.monotonic_ms() - began)

    def publish(self, content: bytes, stats: Sequence[CompactionStat]) -> Published[Compaction]:
        # Under another owner, so that ``_remove_void`` does not remove this private file.
        return publish_end(
            self.ctx, self.time, COMMIT, content, lambda section: self.ended(section, stats),
            owner=COMPACTION, folder=paths.METADATA_TIMELINE,
        )  # fmt: skip

    def ended(self, section: Section, stats: Sequence[CompactionStat]) -> Compaction | None:
        own = load_timeline(self.folder)
        if self.time not in pending(own):
            return ended(own, self.time, OF_METADATA)
        self.check_no_others(stats)
        made = {paths.in_partition(stat.partition, stat.file_name) for stat in stats}
        void = [n for n, operation in enumerate(self.operations) if self.is_void(operation)]
        if any(self.path(n) in made for n in void):
            raise self._unavailable("lost an index that was dropped while it ran")
        if void:
            self._remove_void(section, void)
        self.check_there(stats)
        return None

    def result(self, completion: str | None, stats: Sequence[CompactionStat]) -> Compaction:
        for number in range(len(self.operations)):
            self._remove_if_void(number)
        return Compaction.of_stats(self.time, completion, stats, OF_METADATA)

    def _remove_if_void(self, number: int) -> None:
        if self.is_void(self.operations[number]):
            self.folder.delete(self.path(number))

    def _remove_void(self, section: Section, void: Sequence[int]) -> None:
        """Remove private files first, so that none can become a base file, then those of void operations."""
        section.epoch.check()
        private = (n for n in self.ctx.seams.storage.names(paths.PREPARED) if n.startswith(f"{self.time}-"))
        for name in sorted(private):
            self.ctx.seams.storage.delete(f"{paths.PREPARED}/{name}")
        for number in void:
            self.folder.delete(self.path(number))

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(
            f"the {self.kind.what} {self.time} {what}; nothing was published, execute it again",
            table=self.ctx.base,
        )
