"""Compaction of the metadata table beside writers, in the way of ``services.compaction``.

  1. [[ the data table's lock: which log files count and completed before t -> publish t.compaction.requested
     on the metadata table's timeline ]]
  2. t.compaction.inflight
  3. per file group: merge base file and logs into a private file, link it to its final name
  4. [[ still pending? every operation still what it was? -> publish t_c.commit ]]
  5. remove private files

Names of new base files follow from plan and file group, their rows from the plan's files, which stay while
the plan is pending. So anybody may go on from any step, and several at once: the first link wins.

**A crash** after 1 leaves the plan. Readers take a slice under a pending plan together with the one before
it, so nothing changes for them; the next round executes it. After 3 it leaves base files of an instant that
is not completed, which nobody reads and the next executor finds. After 4, private files, which are swept.

**A process that was stopped and wakes up** in 1 or 4 has lost its ticket. In 3 it looks whether the plan is
pending, and then links its private file. Whoever completes the plan removes all private files of it
afterwards, so that nothing is there to be linked any more.

**An index that is dropped** while a plan is pending takes the files of its operations along, and one that is
created anew has others under the same file ids. An operation of which no file is left, or some are gone while
the index is in no list, is void: it has no part in the commit, and its new base file, if an executor made
one, is removed under the lock in 4, once more after 5, and by an executor that finds it void after its link.
(A base file of t in the new index would hide rows.)

The data table's timeline says which logs count, and its lock guards all of the metadata table (HUDI-9407). A
plan of Java's that is pending may be in execution: it is left alone until it has rested for as long as a
heartbeat may. Which instant t is: ``metadata.compaction_rows``. Where other engines may write, no plan is
left pending for others to see: ``services.metadata.metadata_compaction_at_once``.

Hudi: ``HoodieBackedTableMetadataWriter.performTableServices``, ``compactIfNecessary``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mainstem.errors import CorruptTable, Unavailable
from mainstem.formats.avro_container import OUR_MARK
from mainstem.formats.hfile import open_hfile
from mainstem.layout.properties import load_config
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.metadata.compaction_rows import (
    MetadataCompactionOptions,
    before,
    compacted,
    earliest_unsure,
    log_rows,
    operations,
)
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.record_schema import commit_schema
from mainstem.options.metadata import METADATA
from mainstem.publish.link_fence import note_newest
from mainstem.publish.publisher import Section
from mainstem.publish.staging import create_once, delete_quietly, forget, prepare
from mainstem.readers.planning.table_state import TableState
from mainstem.services.claim import claimed, store_now_ms
from mainstem.services.compaction import COMPACT, Compaction, ended
from mainstem.services.compaction_plan import measured
from mainstem.services.metadata.metadata_compaction_at_once import AtOnce, base_name, is_new, others_may_write
from mainstem.services.metadata.metadata_state import OF_METADATA
from mainstem.services.other_attempts import forget_other_attempt, other_files, sweep_private
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.commit_metadata import CompactionStat, encode_commit
from mainstem.timeline.compaction_trigger import is_due, pending
from mainstem.timeline.instant import COMMIT, COMPACTION, INFLIGHT, REQUESTED
from mainstem.timeline.plans import (
    CompactionOperation,
    encode_compaction_plan,
    load_compaction_plan,
)
from mainstem.writers.context import WriterContext


def run(ctx: WriterContext, *, if_due: bool = True) -> list[Compaction]:
    """Execute what is planned, then plan and execute what is due; [] where there is nothing to do.

    Raises what the lock raises, ``CorruptTable`` for damaged files, ``Unavailable`` for trouble with
    storage; whatever fails leaves a plan that the next call goes on with.
    """
    with _trouble(ctx):
        if not has_metadata(load_config(ctx.seams.storage).raw):
            return []
        waiting = pending(_own(ctx))
    done = [execute(ctx, time) for time in waiting]
    if others_may_write(ctx):
        done.append(at_once(ctx, if_due=if_due))
    else:
        time = schedule(ctx, if_due=if_due)
        done.append(None if time is None else execute(ctx, time))
    return [one for one in done if one is not None]


def is_due_on(ctx: WriterContext, own: ActiveTimeline) -> bool:
    """Whether ``run`` may have something to do; ``own``: the metadata table's timeline."""
    return bool(pending(own)) or is_due(own, _options(ctx), ctx.publisher.now())


@contextmanager
def _trouble(ctx: WriterContext) -> Iterator[None]:
    """Trouble with storage is ``Unavailable``."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"the metadata table was not compacted: {error}; what is planned stays, try again", table=ctx.base
        ) from error


def _own(ctx: WriterContext) -> ActiveTimeline:
    return load_timeline(ctx.seams.storage, paths.METADATA_TIMELINE)


def _options(ctx: WriterContext) -> MetadataCompactionOptions:
    return MetadataCompactionOptions.from_properties({**ctx.config.raw, **ctx.given})


def _table(ctx: WriterContext) -> MetadataTable | None:
    """The metadata table now; None where the table has none (any more)."""
    storage = ctx.seams.storage
    return TableState.load(storage, load_config(storage).completed_by(ctx.given)).metadata_table


# ------------------------------------------------------------------------------------------ planning


def schedule(ctx: WriterContext, *, if_due: bool = True) -> str | None:
    """Plan a compaction; its requested time, None if there is nothing to do (now)."""
    with _trouble(ctx):
        own = _own(ctx)
        if not own.names or pending(own):
            return None
        if if_due and not is_due(own, _options(ctx), ctx.publisher.now()):
            return None
        return _schedule(ctx, if_due)


def at_once(ctx: WriterContext, *, if_due: bool = True) -> Compaction | None:
    """Plan, execute and complete so that nobody meets a pending plan; None if nothing is to do (now)."""
    with _trouble(ctx):
        own = _own(ctx)
        if not own.names or pending(own):
            return None
        options = _options(ctx)

        def due(timeline: ActiveTimeline) -> bool:
            return not if_due or is_due(timeline, options, ctx.publisher.now())

        return AtOnce(ctx, lambda: _table(ctx), due).run() if due(own) else None


def _schedule(ctx: WriterContext, if_due: bool) -> str | None:
    options = _options(ctx)
    made: list[str] = []
    chosen: list[str | None] = []

    def plan(data: ActiveTimeline) -> str | None:
        table = _table(ctx)
        if table is None or pending(table.timeline):
            return None
        if if_due and not is_due(table.timeline, options, ctx.publisher.now()):
            return None
        unsure = earliest_unsure(table)
        until = None if unsure is None else before(unsure)
        if until is not None and not is_new(until, data, table):
            return None
        planned = [measured(table.folder, o) for o in operations(table, until)]
        if not planned:
            return None
        chosen[:] = [until]
        content = encode_compaction_plan([p.operation for p in planned], [p.metrics for p in planned])
        made.append(prepare(ctx.seams, COMPACTION, content))
        return made[-1]

    def name(time: str) -> str:
        return f"{(chosen and chosen[0]) or time}.{COMPACTION}.{REQUESTED}"

    def keep_time(time: str) -> None:
        # The data table's writers look at their own timeline: none of them may be given this time.
        if not chosen[0]:
            note_newest(ctx.seams.storage, time)

    try:
        published = ctx.publisher.publish(
            name, prepared=plan, before_link=keep_time, folder=paths.METADATA_TIMELINE
        )
    finally:
        for path in made:
            forget(ctx.seams, path)
    return None if published.time is None else (chosen[0] or published.time)


# ----------------------------------------------------------------------------------------- execution


def execute(ctx: WriterContext, time: str) -> Compaction | None:
    """Execute one plan; None if a living executor has it, or Java may."""
    with _trouble(ctx):
        if not _rests(ctx, time):
            return None
    with claimed(ctx, time, "the compaction of the metadata table") as ours:
        if not ours:
            return None
        execution = _Execution.begin(ctx, time)
        return ended(_own(ctx), time, OF_METADATA) if execution is None else execution.run()


def _rests(ctx: WriterContext, time: str) -> bool:
    """Whether the plan is ours, or no file of it on the timeline was made lately."""
    storage = ctx.seams.storage
    if is_ours(storage, time):
        return True
    path = f"{paths.METADATA_TIMELINE}/{time}.{COMPACTION}"
    found = (storage.stat(f"{path}.{state}") for state in (REQUESTED, INFLIGHT))
    newest_ms = max((info.mtime_ms for info in found if info is not None), default=0)
    return store_now_ms(ctx, time) - newest_ms > ctx.heartbeats.silent_ms


def is_ours(storage: Storage, time: str) -> bool:
    """Whether mainstem planned a compaction; so it counts once it has ended."""
    path = f"{paths.METADATA_TIMELINE}/{time}.{COMPACTION}.{REQUESTED}"
    try:
        return OUR_MARK.encode() in storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)[:256]
    except FileNotFoundError:
        return True


@dataclass(frozen=True)
class _Execution:
    """A claimed plan; ``operations`` as it has them, by whose places the new files are named."""

    ctx: WriterContext
    time: str
    table: MetadataTable
    operations: tuple[CompactionOperation, ...]

    @classmethod
    def begin(cls, ctx: WriterContext, time: str) -> _Execution | None:
        """None if the plan is not pending (any more)."""
        table = _table(ctx)
        if table is None or time not in pending(table.timeline):
            return None
        found = tuple(load_compaction_plan(table.folder, time))
        made = cls(ctx, time, table, found)
        for operation in found:
            made.is_void(operation)  # a plan that is damaged is found before anything is done
        forget_other_attempt(ctx, time, made._others(), "compaction of the metadata table")
        create_once(table.folder, paths.timeline_file(f"{time}.{COMPACTION}.{INFLIGHT}"))
        return made

    def run(self) -> Compaction:
        """Steps 3 to 5."""
        storage = self.ctx.seams.storage
        numbers = [n for n, operation in enumerate(self.operations) if not self.is_void(operation)]
        named = [(n, f"{self.ctx.seams.random.getrandbits(64):016x}") for n in numbers]
        stats = storage.side_by_side(lambda one: self._make(*one), named)
        folders = sorted({self.table.folder.outer(stat.partition) for stat in stats})
        storage.settle([], folders, durable=self.ctx.services_sync)
        return self._complete(stats)

    def is_void(self, operation: CompactionOperation) -> bool:
        """Whether nothing is left of what the operation merges: its index was dropped.

        Raises ``CorruptTable`` where some of its files are there and some are not, and for files that are
        not of the group.
        """
        folder = self.table.folder
        files = [*operation.log_files, *filter(None, [operation.base_file])]
        strangers = [name for name in files if paths.file_id_of(name) != operation.file_id]
        there = set(folder.names(operation.partition))
        missing = [name for name in files if name not in there]
        if len(missing) == len(files) and not strangers:
            return True
        if missing and operation.partition not in load_config(self.ctx.seams.storage).metadata_partitions:
            return True  # a dropper is about to remove them, or died while it did
        if (missing or strangers) and self.time in pending(load_timeline(folder)):
            raise CorruptTable(
                f"the compaction plan names {min(missing or strangers)!r}, which"
                f" {'does not exist' if missing else f'is not of the file group {operation.file_id!r}'};"
                f" nothing was changed: drop the metadata table with Hudi ({METADATA}=false), or"
                " restore it from a copy",
                path=folder.outer(paths.timeline_file(f"{self.time}.{COMPACTION}.{REQUESTED}")),
            )
        return False

    def _name(self, number: int) -> str:
        return base_name(self.operations[number], number, self.time)

    def _path(self, number: int) -> str:
        """Of the new base file, below the metadata table."""
        return paths.in_partition(self.operations[number].partition, self._name(number))

    def _others(self) -> dict[str, int]:
        ours = {self._path(n) for n in range(len(self.operations))}
        folder = self.table.folder
        found = other_files(folder, self.time, self.operations, ours, paths.parse_hfile_name)
        return {folder.outer(path): made for path, made in found.items()}

    def _make(self, number: int, identity: str) -> CompactionStat:
        """One new base file, made here or by another executor."""
        folder, operation = self.table.folder, self.operations[number]
        clock = self.ctx.seams.clock
        began = clock.monotonic_ms()
        target = self._path(number)
        if folder.stat(target) is None:
            self._link(number, identity)
        info = folder.stat(target)
        if info is None:
            raise self._unavailable(f"was ended by another executor, or {target} was removed")
        group = measured(folder, operation)
        return CompactionStat(
            operation.partition,
            operation.file_id,
            self._name(number),
            operation.base_instant,
            operation.base_file,
            rows=open_hfile(folder.view(target), path=folder.outer(target)).entry_count,
            size_bytes=info.size,
            log_files=len(operation.log_files),
            log_bytes=group.log_bytes,
            log_rows=log_rows(self.table, operation),
            taken_ms=int(clock.monotonic_ms() - began),
        )

    def _link(self, number: int, identity: str) -> None:
        """Private file, then the look at the plan, then the link."""
        storage, folder = self.ctx.seams.storage, self.table.folder
        private = paths.prepared(self.time, identity)
        try:
            made = compacted(
                self.table, self.operations[number], self._name(number), self.ctx.seams.clock.now_ms()
            )
            storage.create(private, made, durable=self.ctx.services_sync)
            if self.time in pending(load_timeline(folder)):
                storage.link(private, folder.outer(self._path(number)))
                self._remove_if_void(number, self.operations[number])
        except FileExistsError:
            return  # another executor was faster; its rows are the same
        except (FileNotFoundError, CorruptTable) as error:
            if isinstance(error, CorruptTable) and self.time in pending(load_timeline(folder)):
                raise  # else a clean has taken the files of a plan that was executed meanwhile
            raise self._unavailable("was ended by another executor, or its index was dropped") from error
        finally:
            delete_quietly(storage, private)

    def _complete(self, stats: Sequence[CompactionStat]) -> Compaction:
        """Step 4, unless somebody else did it."""
        ctx, extra = self.ctx, {"schema": commit_schema(self.table.config.version)}
        content = encode_commit(stats, extra, COMPACT, compacted=True)
        prepared = prepare(ctx.seams, COMPACTION, content)  # not of those that ``_remove_void`` removes
        try:
            published = ctx.publisher.publish(
                lambda done: f"{self.time}_{done}.{COMMIT}",
                prepared=prepared,
                decide=lambda section: self._decide(section, stats),
                folder=paths.METADATA_TIMELINE,
            )
        finally:
            forget(ctx.seams, prepared)
        if published.decision is not None:
            return published.decision
        sweep_private(ctx.seams.storage, self.time)
        for number, operation in enumerate(self.operations):
            self._remove_if_void(number, operation)
        return Compaction(
            self.time,
            published.time,
            tuple(paths.in_partition(stat.partition, stat.file_name) for stat in stats),
            sum(stat.rows for stat in stats),
            sum(stat.log_files for stat in stats),
            OF_METADATA,
        )

    def _decide(self, section: Section, stats: Sequence[CompactionStat]) -> Compaction | None:
        """Under the lock: what became of the plan, None if these ``stats`` are what completes it."""
        folder = self.table.folder
        own = load_timeline(folder)
        if self.time not in pending(own):
            return ended(own, self.time, OF_METADATA)
        if others := self._others():
            raise self._unavailable(f"is executed by another engine too ({min(others)})")
        made = {paths.in_partition(stat.partition, stat.file_name) for stat in stats}
        void = [n for n, operation in enumerate(self.operations) if self.is_void(operation)]
        if any(self._path(n) in made for n in void):
            raise self._unavailable("lost an index that was dropped while it ran")
        if void:
            self._remove_void(section, void)
        for path in sorted(made):
            if folder.stat(path) is None:
                raise self._unavailable(f"was rolled back while it ran ({path} is gone)")
        return None

    def _remove_if_void(self, number: int, operation: CompactionOperation) -> None:
        if self.is_void(operation):
            self.table.folder.delete(self._path(number))

    def _remove_void(self, section: Section, void: Sequence[int]) -> None:
        """Base files of void operations, when no private file is left that could become one."""
        section.epoch.check()
        prepared = (n for n in self.ctx.seams.storage.names(paths.PREPARED) if n.startswith(f"{self.time}-"))
        for name in sorted(prepared):
            self.ctx.seams.storage.delete(f"{paths.PREPARED}/{name}")
        for number in void:
            self.table.folder.delete(self._path(number))

    def _unavailable(self, what: str) -> Unavailable:
        return Unavailable(
            f"the compaction {self.time} of the metadata table {what}; nothing was published, execute it"
            " again",
            table=self.ctx.base,
        )
