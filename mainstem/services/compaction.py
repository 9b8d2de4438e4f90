"""Compaction beside running writers: planned under the lock, executed by anybody without it.

  [[ lock: which log files completed before now -> publish t.compaction.requested ]]
  -> t.compaction.inflight -> per file group: merge base and logs into a private file, link it to its
  final name -> [[ lock: still pending? -> publish t_c.commit ]] -> remove private files and markers

The name of a new base file follows from plan and file group alone and its rows from the plan's files
alone, so it does not matter who makes it or how often: the first link wins, every other executor
finds the file. Whoever comes too late changes nothing: an executor makes its private file, then looks
whether the plan is still pending, then links; whoever completes a plan removes all private files of
it afterwards, so the link of a stopped executor that wakes up finds nothing to link (the order of the
completion fence, ``truetime.fence``). A heartbeat on the plan's time keeps two executors from doing the
same work; nothing depends on it.

Hudi: ``ScheduleCompactionActionExecutor``, ``RunCompactionActionExecutor``, ``HoodieCompactor``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.errors import OutcomeUnknown, Unavailable
from mainstem.formats.avro_schema import META_FIELDS, arrow_to_avro
from mainstem.formats.base_file import BaseFileFormat, write_base_file
from mainstem.readers.schema import schema_text
from mainstem.readers.snapshot import read_spec
from mainstem.readers.split import ReadSpec, Split, read_split, split_paths
from mainstem.readers.state import TableState
from mainstem.services.claim import claim, store_now_ms
from mainstem.services.compaction_plan import (
    CompactionOptions,
    FileListing,
    PlannedGroup,
    is_due,
    plan_groups,
)
from mainstem.storage import paths
from mainstem.table.properties import load_config
from mainstem.table.schema import arrow_user_schema
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.commit_metadata import CompactionStat, encode_commit
from mainstem.timeline.instant import COMMIT, COMPACTION, INFLIGHT, REQUESTED
from mainstem.timeline.plans import (
    CompactionOperation,
    encode_compaction_plan,
    load_compaction_plan,
)
from mainstem.timeline.publish import Section
from mainstem.writers.context import WriterContext
from mainstem.writers.private_files import create_once, forget, prepare

COMPACT = "COMPACT"
FILE_NAME = META_FIELDS[4]


@dataclass(frozen=True)
class Compaction:
    """What became of one plan. ``completion`` is None if it is not completed by this call.

    ``files``: paths of the new base files; ``rows``: rows in them; ``log_files``: merged in.
    """

    requested: str
    completion: str | None
    files: tuple[str, ...] = ()
    rows: int = 0
    log_files: int = 0


def schedule(ctx: WriterContext, *, if_due: bool = False) -> str | None:
    """Plan a compaction of everything that is completed now; its requested time, None if there is nothing.

    ``if_due`` asks the trigger first (``hoodie.compact.inline.*``). Writers in flight are not in the plan
    and lose nothing: their log files will belong to the new base files. Raises what the lock raises.
    """
    options = CompactionOptions.from_properties({**ctx.config.raw, **ctx.given})
    if if_due and not is_due(ctx.publisher.timeline(), options, ctx.publisher.now()):
        return None
    try:
        return _schedule(ctx, options, if_due=if_due)
    except OutcomeUnknown:
        raise
    except OSError as error:
        raise Unavailable(
            f"planning a compaction failed: {error}; nothing is planned, try again", table=ctx.base
        ) from error


def _schedule(ctx: WriterContext, options: CompactionOptions, *, if_due: bool) -> str | None:
    listing = FileListing(ctx.seams.storage, ctx.config)
    made: list[str] = []

    def plan(timeline: ActiveTimeline) -> str | None:
        if if_due and not is_due(timeline, options, ctx.publisher.now()):
            return None
        ctx.reread_config()
        state, files = listing.now()
        _schemas(ctx, state)  # refuses columns that base files cannot be given
        groups = plan_groups(state, files, options)
        if not groups:
            return None
        made.append(prepare(ctx, COMPACTION, _encoded(groups)))
        return made[-1]

    try:
        published = ctx.publisher.publish(
            lambda time: f"{time}.{COMPACTION}.{REQUESTED}", prepared=plan
        )
    finally:
        for path in made:
            forget(ctx, path)
    return published.time


def _encoded(groups: list[PlannedGroup]) -> bytes:
    return encode_compaction_plan([g.operation for g in groups], [g.metrics for g in groups])


def pending(timeline: ActiveTimeline) -> list[str]:
    """Requested times of the compactions that are planned and not completed, oldest first."""
    return [i.requested for i in timeline.pending if i.action == COMPACTION]


def execute(ctx: WriterContext, time: str) -> Compaction | None:
    """Execute one plan; None if a living executor has it.

    A plan that is completed or gone gives a ``Compaction`` without completion. Whatever fails leaves the
    plan pending: the next execution goes on with the files that are done. Raises ``CorruptTable`` for
    damaged files, ``Unavailable`` for trouble with storage.
    """
    if not claim(ctx, time):
        return None
    try:
        return _execute(ctx, time)
    except OutcomeUnknown:
        raise
    except OSError as error:
        raise Unavailable(
            f"the compaction {time} did not end: {error}; its plan stays, execute it again", table=ctx.base
        ) from error
    finally:
        ctx.heartbeats.stop(time)


def _execute(ctx: WriterContext, time: str) -> Compaction:
    storage = ctx.seams.storage
    state = TableState.load(storage, load_config(storage).completed_by(ctx.given))
    if time not in pending(state.timeline):
        return _ended(state.timeline, time)
    operations = load_compaction_plan(storage, time)
    _forget_other_attempt(ctx, time, operations)
    create_once(storage, paths.timeline_file(f"{time}.{COMPACTION}.{INFLIGHT}"))
    run = _Run.begin(ctx, time, state)
    stats = [run.compact(number, operation) for number, operation in enumerate(operations)]
    storage.settle([], sorted({s.partition for s in stats}), durable=ctx.options.fsync)
    return run.complete(operations, stats)


def _final_name(time: str, number: int, operation: CompactionOperation) -> str:
    return paths.base_name(operation.file_id, f"{number}-0-0", time)


def _other_files(
    ctx: WriterContext, time: str, operations: list[CompactionOperation]
) -> dict[str, int]:
    """Path -> store time of base files that another engine's execution of the plan left."""
    ours = {
        paths.in_partition(o.partition, _final_name(time, n, o)) for n, o in enumerate(operations)
    }
    groups = {(o.partition, o.file_id) for o in operations}
    found = {}
    for partition in sorted({o.partition for o in operations}):
        for entry in ctx.seams.storage.entries(partition):
            base = paths.parse_base_name(entry.name)
            path = paths.in_partition(partition, entry.name)
            if base is None or base.instant != time or path in ours:
                continue
            if (partition, base.file_id) in groups:
                found[path] = entry.mtime_ms
    return found


def _forget_other_attempt(
    ctx: WriterContext, time: str, operations: list[CompactionOperation]
) -> None:
    """Remove what a dead Java executor left, as Java does before it executes a plan again.

    Its files have names of their own and may be cut off; a reader would choose between them and ours.
    Java's executors show no heartbeat: one counts as dead when its files have rested for as long.
    """
    files = _other_files(ctx, time, operations)
    if not files:
        return
    storage = ctx.seams.storage
    if store_now_ms(ctx, time) - max(files.values()) <= ctx.heartbeats.expire_ms:
        raise Unavailable(
            f"another engine seems to execute the compaction {time} ({min(files)} is new); wait until it"
            f" ends, or for {ctx.heartbeats.expire_ms // 1000} s if it died",
            table=ctx.base,
        )
    for path in sorted(files):
        storage.delete(path)
        storage.delete(paths.checksum_file(path))


def _ended(timeline: ActiveTimeline, time: str) -> Compaction:
    for instant in timeline.completed:
        if instant.requested == time and instant.action == COMMIT:
            return Compaction(time, instant.completion)
    return Compaction(time, None)


@dataclass(frozen=True)
class _Run:
    """One execution of one plan: what is read, and how it is written."""

    ctx: WriterContext
    time: str
    state: TableState
    spec: ReadSpec
    user_schema: str
    base_schema: str
    how: BaseFileFormat

    @classmethod
    def begin(cls, ctx: WriterContext, time: str, state: TableState) -> _Run:
        text, schema = _schemas(ctx, state)
        how = BaseFileFormat.from_properties({**ctx.config.raw, **ctx.given})
        spec = read_spec(state, None, None, None, "error", stored=True)
        return cls(ctx, time, state, spec, text, schema, how)

    def compact(self, number: int, operation: CompactionOperation) -> CompactionStat:
        """Make the new base file of one file group, or find that it is there."""
        storage = self.ctx.seams.storage
        began = self.ctx.seams.clock.monotonic_ms()
        name = _final_name(self.time, number, operation)
        target = paths.in_partition(operation.partition, name)
        if storage.stat(target) is None:
            self._make(operation, name, target)
        info = storage.stat(target)
        if info is None:
            raise Unavailable(
                f"the compaction {self.time} was ended by another executor, or {target} was removed",
                table=self.ctx.base,
            )
        return CompactionStat(
            operation.partition,
            operation.file_id,
            name,
            operation.base_instant,
            operation.base_file,
            rows=_row_count(storage.open_input(target)),
            size_bytes=info.size,
            log_files=len(operation.log_files),
            log_bytes=sum(self._size(operation, log) for log in operation.log_files),
            log_rows=sum(self._log_rows(operation, log) for log in operation.log_files),
            taken_ms=int(self.ctx.seams.clock.monotonic_ms() - began),
        )

    def _make(self, operation: CompactionOperation, name: str, target: str) -> None:
        """Private file, then the look at the plan, then the link: see the module's text."""
        storage = self.ctx.seams.storage
        private = paths.prepared(self.time, f"{self.ctx.seams.random.getrandbits(64):016x}")
        sink = storage.open_sink(private)
        try:
            try:
                write_base_file(self._rows(operation, name), self.base_schema, sink, self.how)
            finally:
                storage.settle([sink], [paths.PREPARED], durable=self.ctx.options.fsync)
            if self.time not in pending(self.ctx.publisher.timeline()):
                return
            create_once(storage, paths.marker(self.time, operation.partition, name))
            storage.link(private, target)
        except FileExistsError:
            return  # another executor was faster; its rows are the same
        except FileNotFoundError as error:
            if storage.stat(private) is not None:
                raise
            raise Unavailable(
                f"the compaction {self.time} was completed by another executor", table=self.ctx.base
            ) from error
        finally:
            forget(self.ctx, private)

    def _rows(self, operation: CompactionOperation, name: str) -> Iterator[pa.Table]:
        base, logs = split_paths(operation.partition, operation.base_file, operation.log_files)
        split = Split(operation.partition, operation.file_id, base, logs, self.spec)
        for table in read_split(self.ctx.seams.storage, split):
            at = table.schema.get_field_index(FILE_NAME)
            column = pa.repeat(pa.scalar(name, table.schema.field(at).type), table.num_rows)
            yield table.set_column(at, table.schema.field(at), column)

    def _size(self, operation: CompactionOperation, log: str) -> int:
        info = self.ctx.seams.storage.stat(paths.in_partition(operation.partition, log))
        return 0 if info is None else info.size

    def _log_rows(self, operation: CompactionOperation, log: str) -> int:
        """Rows and deleted keys of a log file, as its delta commit counted them."""
        parsed = paths.parse_log_name(log)
        metadata = self.state.metadata(parsed.instant) if parsed is not None else None
        stats = metadata.stats.get(operation.partition, []) if metadata is not None else []
        mine = paths.in_partition(operation.partition, log)
        return sum(
            (s.get("numWrites") or 0) + (s.get("numDeletes") or 0) for s in stats if s.get("path") == mine
        )

    def complete(
        self, operations: list[CompactionOperation], stats: list[CompactionStat]
    ) -> Compaction:
        """Publish the commit, unless somebody else did or the plan was taken back."""
        ctx, storage = self.ctx, self.ctx.seams.storage
        extra = {"schema": self.user_schema}
        prepared = prepare(ctx, self.time, encode_commit(stats, extra, COMPACT, compacted=True))

        def ended(section: Section) -> Compaction | None:
            if self.time not in pending(section.timeline):
                return _ended(section.timeline, self.time)
            others = _other_files(ctx, self.time, operations)
            if others:
                raise Unavailable(
                    f"another engine executes the compaction {self.time} too: {min(others)}; nothing was"
                    " published, execute it again when that has ended",
                    table=ctx.base,
                )
            for stat in stats:
                if storage.stat(paths.in_partition(stat.partition, stat.file_name)) is None:
                    raise Unavailable(
                        f"the compaction {self.time} was rolled back while it ran ({stat.file_name} is"
                        " gone); its plan stays, execute it again",
                        table=ctx.base,
                    )
            return None

        try:
            published = ctx.publisher.publish(
                lambda done: f"{self.time}_{done}.{COMMIT}", prepared=prepared, decide=ended
            )
        finally:
            forget(ctx, prepared)
        if published.decision is not None:
            return published.decision
        self._tidy()
        return Compaction(
            self.time,
            published.time,
            tuple(paths.in_partition(s.partition, s.file_name) for s in stats),
            sum(s.rows for s in stats),
            sum(s.log_files for s in stats),
        )

    def _tidy(self) -> None:
        """Nobody else links a file of this plan any more."""
        storage = self.ctx.seams.storage
        try:
            for name in sorted(storage.names(paths.PREPARED)):
                if name.startswith(f"{self.time}-"):
                    storage.delete(f"{paths.PREPARED}/{name}")
            storage.delete_folder(paths.marker_folder(self.time))
        except OSError:
            return  # swept later


def _schemas(ctx: WriterContext, state: TableState) -> tuple[str, str]:
    """The user schema, and the schema of new base files."""
    text = schema_text(state)
    return text, arrow_to_avro(arrow_user_schema(text), table_name=ctx.config.name, meta_fields=True)


def _row_count(file: Any) -> int:
    with pq.ParquetFile(file) as source:
        return source.metadata.num_rows
