"""Gives a table with buckets another number of them, while writers run.

File ids of buckets are fixed, and writers append to them for ever, so nothing is replaced: as an overwrite
does (``writers.overwriting``), one delta commit T puts a new base file into every file group, with the rows
that belong there by the new count, or empty. What completed before T was requested lies below.

  round    T is requested, as for any write
           [[ announced in hoodie.properties: before>after@T; no other engine has a write in flight ]]
           base files of T, partition by partition, from everything that completed before T was requested
           [[ nothing completed since, and no other engine has a write in flight? -> T_C.deltacommit ]]
           -> [[ the new count into hoodie.properties ]]
  else     another round with a later T: partitions that nothing touched keep their files under new names

**Writers** go on in the first rounds, and whatever they complete makes another round. The last rounds are
*closed*, which the announcement says: mainstem's writers write on, but wait with their completion until the
round has ended. So it comes to an end, and is about as long as it takes to write the partitions again that
were written to in the round before it.

**The count is that of the timeline**: once T is completed it is the new one, whatever the properties say
(``layout.bucket_resizes``). A writer finds out under the lock, and routes its rows anew outside of it, in a
transaction that begins then (``writers.routed_anew``). A reader that looks for keys looks by every count.

**A crash** before T is completed leaves an announcement that means nothing, and T, which is rolled back as
any write; a closed round ends with it, once its heartbeat has expired. After T is completed, the next writer
puts the new count into the properties, or the next resize.

**Other engines** know nothing of this. One with a write in flight makes the resize refuse, or step back. One
that begins later goes by the properties, or by its own options (docs/services.md).

Rows keep their commit time, so that no incremental query shows them. Memory: the rows of one old bucket, or
of those that share keys with it, if they fit; else they are read once for each new bucket.

Hudi: RFC-89 rescales partitions by an ``INSERT_OVERWRITE`` with all writers stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import cast

import numpy as np
import pyarrow as pa

from mainstem.errors import (
    CorruptTable,
    Invalid,
    MainstemError,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
)
from mainstem.formats.avro_schema import META_FIELDS, avro_to_arrow
from mainstem.formats.base_file import write_base_file
from mainstem.layout.bucket_resizes import Resize
from mainstem.layout.buckets import bucket_ids, file_id_bucket
from mainstem.layout.foreign_tables import made_here
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.schema_fit import log_schema
from mainstem.layout.slicing import FileSlice, query_slice
from mainstem.limits import MIB
from mainstem.merge.rules import KEY_COLUMN, merge_rules
from mainstem.metadata.commits.action import FileChanges
from mainstem.options.placing import BUCKET_EXPRESSIONS, BUCKETS
from mainstem.options.tables import CDC_ENABLED
from mainstem.options.writing import LAYOUT_OPTIONS
from mainstem.publish.publisher import Guarded, Section
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import make_split, read_spec
from mainstem.readers.rows.bounded_merge import read_bounded
from mainstem.readers.rows.slice_query import ReadSpec
from mainstem.services.clustering import foreign_write
from mainstem.services.compaction_plan import CompactionOptions, FileListing
from mainstem.services.progress import Progress, silent
from mainstem.services.sorted_rows import put_in_order
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.links import has_links, links
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clustering_plans import load_clustering_plan
from mainstem.timeline.commit_metadata import RESIZED_KEY, CommitMetadata, WriteStat
from mainstem.timeline.instant import CLUSTERING, COMPACTION, DELTACOMMIT, LOGCOMPACTION, Instant
from mainstem.timeline.plans import load_compaction_plan
from mainstem.writers.append import BucketAppender
from mainstem.writers.bulk_insert import BaseFileStat, BulkInserter
from mainstem.writers.commit_checks import FoundCommitted
from mainstem.writers.conflicts import COMPACT, CompletedWrites, is_completed_write
from mainstem.writers.context import WriterContext
from mainstem.writers.outcome import Outcome
from mainstem.writers.overwriting import with_logs
from mainstem.writers.resize_property import announce, is_pending, settle
from mainstem.writers.rollback import condemned, roll_back_failed_writes
from mainstem.writers.transaction import Decision, Transaction
from mainstem.writers.write_spec import RESIZE, WriteSpec, complete_rules, native_logs

__all__ = ["ResizedTable", "resize"]

_FILE_NAME = META_FIELDS[4]
#: rounds beside which writers complete; after them the table is closed
_OPEN_ROUNDS = 2
_ROUNDS_MAX = 20
#: how long a log compaction is waited for, whose log would lie on top of the new base files
_PENDING_MAX_MS = 60_000
_LOOK_MS = 50
_PIECE_BYTES = 8 * MIB


@dataclass(frozen=True)
class ResizedTable:
    """The outcome of a resize: ``instant`` and ``completion`` of its delta commit (None: the table had that
    many buckets already), ``before`` and ``after``, the number of ``rows`` and of base ``files``, and how
    many ``rounds`` it took."""

    before: int
    after: int
    instant: str | None = None
    completion: str | None = None
    rows: int = 0
    files: int = 0
    rounds: int = 0

    def describe(self) -> str:
        """One line for people."""
        if self.instant is None:
            return f"the table has {self.after:,} buckets already"
        return (
            f"resize {self.instant}: {self.before:,} buckets became {self.after:,}, {self.rows:,} rows in"
            f" {self.files:,} files, {self.rounds} rounds"
        )


def resize(ctx: WriterContext, buckets: int, progress: Progress = silent) -> ResizedTable:
    """Give the table so many buckets per partition.

    Raises ``Invalid`` for a number that is none, or while another process resizes the table; ``Unsupported``
    for a table without buckets or of another engine; ``Unavailable`` while another engine writes, and for
    trouble with storage; ``CorruptTable`` for damaged files and for rows that lie in no bucket of theirs. The
    table is as before then.
    """
    try:
        _check(ctx, buckets)
        roll_back_failed_writes(ctx)
        settle(ctx)
        ctx.reread_config()
        if ctx.buckets == buckets:
            return ResizedTable(buckets, buckets)
        return _resized(ctx, buckets, progress)
    except OSError as error:
        raise Unavailable(
            f"the resize failed: {error}; no row has changed, resize again", table=ctx.base
        ) from error


def _resized(ctx: WriterContext, buckets: int, progress: Progress) -> ResizedTable:
    rounds = _Rounds(ctx, ctx.buckets, buckets, progress)
    try:
        return rounds.run()
    finally:
        rounds.end()
        with suppress(MainstemError, OSError):  # else the next writer does it, or the next resize
            settle(ctx)
            ctx.reread_config()


def _check(ctx: WriterContext, buckets: int) -> None:
    if type(buckets) is not int or not BUCKETS.low <= buckets <= BUCKETS.high:
        raise Invalid(
            f"buckets={buckets!r}, expected a number from {BUCKETS.low} to {BUCKETS.high}", table=ctx.base
        )
    if ctx.look_for_keys is not None:
        raise Unsupported("the table has no buckets: there is nothing to resize", table=ctx.base)
    config = ctx.read_properties()
    if config.change_mode is not None:
        raise Unsupported(
            f"resizing a table with {CDC_ENABLED}=true: queries of change data would take all its rows for"
            " new ones",
            table=ctx.base,
        )
    if config.uses_rings:
        raise Unsupported(
            "under consistent hashing file groups are split and merged one by one, where they are too large"
            " or too small: cluster the table (table.cluster, mainstem cluster)",
            table=ctx.base,
        )
    if config.bucket_rules is not None:
        raise Unsupported(
            f"the table's rules ({BUCKET_EXPRESSIONS}) say how many buckets each partition has, and its rows"
            " lie by them: a table of other rules is a new one (create_table, bulk_insert)",
            table=ctx.base,
        )
    if not made_here(ctx.seams.storage, config):
        raise Unsupported(
            "the table was made by another engine, where each writer is told the number of buckets on its"
            " own: there is no place at which all of them would see another one. Copy its rows into a new"
            " table (create_table, bulk_insert)",
            table=ctx.base,
        )


# -- rounds --------------------------------------------------------------------------------------------


class _Rounds:
    """Round after round, until one is passed by nothing."""

    def __init__(self, ctx: WriterContext, before: int, after: int, progress: Progress) -> None:
        self._ctx = ctx
        self._before, self._after = before, after
        self._progress = progress
        #: rounds that have not ended
        self._open: list[_Round] = []
        #: the one whose files the next one may take over
        self._source: _Round | None = None

    def run(self) -> ResizedTable:
        ctx = self._ctx
        for number in range(_ROUNDS_MAX):
            _wait_for_log_compactions(ctx)
            outcome = self._round(closed=number >= _OPEN_ROUNDS)
            if outcome is not None:
                return ResizedTable(
                    self._before, self._after, outcome.instant, outcome.completion_time, outcome.rows,
                    outcome.files, number + 1,
                )  # fmt: skip
        raise Unavailable(
            f"something completed in each of {_ROUNDS_MAX} rounds of this resize: plan compactions and log"
            f" compactions less often, and resize again; the table has {self._before} buckets as before",
            table=ctx.base,
        )

    def _round(self, *, closed: bool) -> Outcome | None:
        """None: something passed it by."""
        ctx, source = self._ctx, self._source
        now = _Round.begin(ctx, _spec(ctx, self._after))
        assert isinstance(now, _Round)
        now.from_buckets = self._before
        self._open.append(now)
        # The announcement names this round before the one ends by which the table is closed.
        now.announce(closed=closed, instead_of=self._open)
        self._abort({now, source})
        if closed and now.is_passed():
            return None  # between its request and the announcement; the next one will not be
        try:
            now.make_files(source, self._progress)
        except FileNotFoundError:  # a clean, a rollback or a restore came in between
            self._source = None
            return None
        self._source = now
        self._abort({now})
        return now.complete()

    def _abort(self, but: Container[_Round | None]) -> None:
        """Take back rounds: they come to nothing."""
        for one in [one for one in self._open if one not in but]:
            one.abort()
            self._open.remove(one)

    def end(self) -> None:
        """Take back what did not complete."""
        with suppress(MainstemError, OSError):  # else they are rolled back as those of any dead writer
            self._abort(())


def _wait_for_log_compactions(ctx: WriterContext) -> None:
    clock = ctx.seams.clock
    until_ms = clock.monotonic_ms() + _PENDING_MAX_MS
    while True:
        pending = [i for i in ctx.timeline().pending if i.action == LOGCOMPACTION]
        if not pending:
            return
        if clock.monotonic_ms() > until_ms:
            raise Unavailable(
                f"the log compaction {pending[0].requested} is pending, whose log file would lie on top of"
                " the new base files: complete it (mainstem log-compact) and resize again",
                table=ctx.base,
            )
        clock.sleep_ms(_LOOK_MS)


def _spec(ctx: WriterContext, buckets: int) -> WriteSpec:
    """What the files of a round are written with, but for the schema, which is that of what it reads."""
    config = ctx.config
    return WriteSpec(
        location=ctx.seams.storage.location,
        instant="",
        operation=RESIZE,
        table_name=config.name,
        keys=KeyGenerator.for_writing(config),
        hash_fields=config.hash_fields,
        buckets=buckets,
        rules=merge_rules(config.raw),
        ordering=config.ordering,
        user_schema="",
        log_schema="",
        fsync=ctx.services_sync,
        log_bytes_max=ctx.options.log_bytes_max,
        **native_logs(ctx.config),
        layout={key: ctx.given[key] for key in LAYOUT_OPTIONS if key in ctx.given},
    )


@dataclass(frozen=True)
class _SteppedBack:
    """A decision: the resize must not complete."""

    why: str


@dataclass(frozen=True)
class _PassedBy:
    """A decision: ``partitions`` were written to since the round was requested."""

    partitions: frozenset[str]


class _Round(Transaction):
    """One delta commit T, which may complete if nothing completed since it was requested."""

    #: the bucket count of the table
    from_buckets = 0
    _resize: Resize | None = None
    _since: _Since | None = None
    _writer: _BaseFiles | None = None
    #: it has its files
    _written = False

    def announce(self, *, closed: bool, instead_of: Iterable[Transaction]) -> None:
        """Announce this round, instead of earlier ones of this process."""
        ctx, mine = self._ctx, {self.instant, *(one.instant for one in instead_of)}
        resize = Resize(self.from_buckets, self._spec.buckets, self.instant, closed)

        def may(section: Guarded) -> None:
            storage = section.storage
            other = ctx.read_properties().open_resize
            alive = other is not None and other.instant not in mine and is_pending(section.timeline, other)
            if other is not None and alive and other.instant not in condemned(storage, section.timeline):
                raise Invalid(
                    f"another process resizes the table ({other}); nothing was changed", table=ctx.base
                )
            foreign = foreign_write(storage, section.timeline)
            if foreign is not None:
                raise Unavailable(_refusal(foreign), table=ctx.base)

        announce(ctx, resize, may)
        self._resize = resize
        self._since = _Since(ctx.seams.storage, self.instant, ctx.config.history)

    def make_files(self, earlier: _Round | None, progress: Progress) -> None:
        """Write the base files of everything that is completed now, and was before this was requested."""
        ctx = self._ctx
        listing = FileListing(ctx.seams.storage, ctx.read_properties().completed_by(ctx.given))
        state, names = listing.now()
        text = schema_text(state)
        blocks = log_schema(text, ctx.config.name)
        same = earlier is not None and earlier._spec.user_schema == text
        rules = complete_rules(self._spec.rules, text, blocks)
        self._spec = replace(self._spec, user_schema=text, log_schema=blocks, rules=rules)
        writer = self._opened()
        there = earlier.standing(state.timeline) if earlier is not None and same else {}
        rows = _Rehashed(ctx, state, self.from_buckets, self._spec)
        for done, partition in enumerate(sorted(names)):
            if partition in there:
                for stat in there[partition]:
                    writer.adopt_file(stat)
            else:
                for new in rows.files(partition, sorted(names[partition]), writer.file_id):
                    writer.put(partition, new)
            progress(f"resize {self.instant}, partitions", done + 1, len(names))
        self._written = True

    def standing(self, timeline: ActiveTimeline) -> dict[str, list[BaseFileStat]]:
        """Partition -> files of this round, for the partitions that nothing touched since."""
        if self._writer is None or self._since is None or not self._written:
            return {}
        touched = self._since.touched(timeline, any_compaction=True)
        if "" in touched:
            return {}  # the only partition, or it is not known which
        found: dict[str, list[BaseFileStat]] = {}
        for stat in self._writer.files:
            if stat.partition not in touched:
                found.setdefault(stat.partition, []).append(stat)
        return found

    def is_passed(self) -> bool:
        """Whether anything completed since it was requested."""
        assert self._since is not None
        return bool(self._since.touched(self._ctx.timeline()))

    def complete(self) -> Outcome | None:
        """Publish the round; None if something passed it by. Raises ``Unavailable``, ``Invalid`` if it must
        not complete, ever."""
        ctx = self._ctx
        with self._turns.held:
            self._turns.check_open(self.instant)
            with self._turns.step("commit"):
                try:
                    outcome = self._complete()
                except OutcomeUnknown:  # it may be visible: nothing of it may go
                    self._fail()
                    raise
                self._turns.in_doubt = False
        if outcome is not None and ctx.after_commit is not None and self._seen is not None:
            name = f"{outcome.instant}_{outcome.completion_time}.{DELTACOMMIT}"
            ctx.after_commit(self._seen.with_file(name))
        if outcome is not None and ctx.base_files_changed is not None:
            ctx.base_files_changed()
        return outcome

    def _complete(self) -> Outcome | None:
        writer, since = self._opened(), self._since
        assert since is not None and self._resize is not None
        stats = writer.finish()
        if since.touched(self._ctx.publisher.timeline()):  # so that little is left to be read under the lock
            return None
        self._may_be_completed = True
        published = self._publish_once(stats)
        decision = cast("object", published.decision)
        if decision is None:
            assert published.time is not None
            outcome = self._committed(published.time, published.held, stats, sum(s.writes for s in stats))
            self._ctx.own_schema = ("", "")
            return outcome
        if isinstance(decision, FoundCommitted) and decision.instant == self.instant:
            return self._found_committed(self._completed() or "")
        if isinstance(decision, _SteppedBack):
            raise Unavailable(decision.why, table=self._ctx.base, instant=self.instant)
        return None

    # -- what a transaction asks ------------------------------------------------------------------

    @property
    def _operation(self) -> str:
        # Hudi 1.0, which opens tables of version 8, does not know the other.
        return "BUCKET_RESCALE" if self._ctx.config.version >= 9 else COMPACT

    @property
    def _carries(self) -> bool:
        return False  # ``_Since`` reads what others completed

    def _extra_metadata(self) -> dict[str, str]:
        return super()._extra_metadata() | {RESIZED_KEY: f"{self.from_buckets}>{self._spec.buckets}"}

    def _changes(self, stats: list[WriteStat]) -> FileChanges:
        return replace(super()._changes(stats), moved_keys=self._moved)

    def _moved(self, keys: pa.Array, name: str) -> np.ndarray:
        bucket = file_id_bucket(paths.file_id_of(name) or "")
        return _buckets(keys, self.from_buckets, self._spec) != bucket

    def _opened(self) -> _BaseFiles:
        if self._writer is None:
            token = f"0-{self._ctx.seams.random.getrandbits(20)}-0"
            self._writer = _BaseFiles(self._ctx.seams.storage, self._spec, token)
            properties = {**self._ctx.config.raw, **self._ctx.given}
            self._writer.memory_bytes = CompactionOptions.from_properties(properties).memory_bytes
            self._appender = self._writer
        return self._writer

    def _follows(self, section: Section, condemned_now: Mapping[str, str]) -> Decision | None:
        return cast("Decision | None", self._may_resize(section))

    def _may_resize(self, section: Section) -> _SteppedBack | _PassedBy | None:
        ctx = self._ctx
        assert self._since is not None
        found = ctx.properties(section)
        if ctx.buckets_now(found, section.timeline) != self.from_buckets:
            return _SteppedBack(f"another process resized the table ({found.resizes[-1]}): resize again")
        if found.open_resize != self._resize:
            return _SteppedBack(
                f"another process resizes the table ({found.open_resize}): nothing was changed, resize again"
            )
        foreign = foreign_write(ctx.seams.storage, section.timeline)
        if foreign is not None:
            return _SteppedBack(_refusal(foreign))
        touched = self._since.touched(section.timeline)
        return _PassedBy(frozenset(touched)) if touched else None


def _refusal(foreign: Instant) -> str:
    return (
        f"the {foreign.action} {foreign.requested} of another engine is in flight, which would put its rows"
        " by the old number of buckets: nothing was changed. Resize while no job of that engine writes, and"
        " let its jobs begin anew afterwards"
    )


# -- what passed a round by ----------------------------------------------------------------------------


class _Since:
    """Partitions that were written to since an instant was requested. Reads each instant's metadata once."""

    def __init__(self, storage: Storage, instant: str, history: str) -> None:
        self._storage = storage
        self._instant = instant
        self._writes = CompletedWrites(storage, instant, history)
        self._found: dict[str, tuple[frozenset[str], bool]] = {}

    def touched(self, timeline: ActiveTimeline, *, any_compaction: bool = False) -> set[str]:
        """Partitions of what completed or was planned since; with "" where it is not known which.

        A compaction that was planned before puts base files below those of the instant: it only counts where
        it kept deletes, which lie on top, or with ``any_compaction``.
        """
        unseen = set[str]()
        for instant in filter(is_completed_write, timeline.instants):
            if (instant.completion or "") > self._instant and self._is_new(instant.requested):
                found = self._writes.active(instant)
                if found is None:
                    unseen.add(instant.requested)
                else:
                    self._note(instant.requested, found)
        for requested, _, archived in self._writes.archived(self._is_new):
            self._note(requested, archived)
        if not unseen <= self._found.keys():
            return {""}  # neither there nor archived: it was taken back, or is not there yet
        touched: set[str] = set()
        for partitions, counts in self._found.values():
            if counts or any_compaction:
                touched |= partitions or {""}
        for instant in timeline.pending:
            touched |= self._planned(instant)
        return touched

    def _is_new(self, requested: str) -> bool:
        return requested != self._instant and requested not in self._found

    def _note(self, requested: str, metadata: CommitMetadata | None) -> None:
        if metadata is None:
            self._found[requested] = frozenset(), True
            return
        merges = metadata.operation == COMPACT and requested < self._instant
        counts = not merges or any(True for _ in with_logs(metadata))
        partitions = metadata.stats.keys() | metadata.replaced.keys()
        self._found[requested] = frozenset(partitions), counts

    def _planned(self, instant: Instant) -> set[str]:
        """A plan that is carried out later would hide the new base files, or lie on top of them."""
        later = instant.requested > self._instant
        try:
            if instant.action == LOGCOMPACTION or (instant.action == COMPACTION and later):
                plan = load_compaction_plan(self._storage, instant.requested, instant.action)
                return {operation.partition for operation in plan} or {""}
            if instant.action == CLUSTERING:
                load_clustering_plan(self._storage, instant.requested)
                return {""}
        except FileNotFoundError:
            pass  # rolled back since the listing, or completed
        return set()


# -- rows ----------------------------------------------------------------------------------------------


FileId = Callable[[str, int], str]
"""(partition, bucket) -> the file group of the bucket"""


@dataclass(frozen=True)
class _NewFile:
    """A base file to be made: its file group and rows; ``count`` of them, None: unknown."""

    file_id: str
    tables: Iterable[pa.Table]
    count: int | None = 0


def _buckets(keys: pa.Array, count: int, spec: WriteSpec) -> np.ndarray:
    return bucket_ids(keys, buckets=count, hash_fields=spec.hash_fields, parts=None)


@dataclass
class _Rehashed:
    """The rows of partitions, by the new bucket count.

    The hash of a key modulo both counts is the same modulo their greatest common divisor, so the buckets of
    one remainder exchange rows only among themselves.
    """

    ctx: WriterContext
    state: TableState
    before: int
    spec: WriteSpec
    _read: ReadSpec = field(init=False)
    _memory: int = field(init=False)

    def __post_init__(self) -> None:
        spec = read_spec(self.state, None, None, None, "error", stored=True)
        self._read = replace(spec, columns=tuple(name for name in spec.columns if name != _FILE_NAME))
        properties = {**self.ctx.config.raw, **self.ctx.given}
        self._memory = CompactionOptions.from_properties(properties).memory_bytes

    def files(self, partition: str, names: Iterable[str], file_id: FileId) -> Iterator[_NewFile]:
        """The base files of a partition: one for each bucket that has rows or a file group."""
        groups = self.state.group(partition, names)
        slices: dict[int, FileSlice] = {}
        there: set[int] = set()
        for group in groups:
            bucket = file_id_bucket(group.file_id)
            if bucket is None:
                raise CorruptTable(
                    f"the file group {group.file_id!r} is none of a bucket: remove it with the engine that"
                    " made it; nothing was changed",
                    path=partition,
                    table=self.ctx.base,
                )
            there.add(bucket)
            found = query_slice(group, None)
            if found is not None:
                slices[bucket] = found
        common = math.gcd(self.before, self.spec.buckets)
        for remainder in range(common):
            sources = [slices[b] for b in sorted(slices) if b % common == remainder]
            yield from self._exchanged(partition, remainder, common, sources, there, file_id)
        for bucket in sorted(b for b in there if b >= self.spec.buckets):
            yield _NewFile(file_id(partition, bucket), ())

    def _exchanged(
        self,
        partition: str,
        remainder: int,
        common: int,
        sources: list[FileSlice],
        there: set[int],
        file_id: FileId,
    ) -> Iterator[_NewFile]:
        targets = range(remainder, self.spec.buckets, common)
        held = self._held(sources)
        for target in targets:
            rows = self._rows(sources) if held is None else iter(held)
            count = None if held is None else sum(int((numbers == target).sum()) for _, numbers in held)
            tables = _chosen(rows, target)
            first = next(tables, None)
            if first is not None:
                yield _NewFile(file_id(partition, target), chain([first], tables), count)
            elif target in there:
                yield _NewFile(file_id(partition, target), ())

    def _held(self, sources: list[FileSlice]) -> list[tuple[pa.Table, np.ndarray]] | None:
        """All rows with their new buckets, if they fit into memory."""
        held: list[tuple[pa.Table, np.ndarray]] = []
        size = 0
        for table, numbers in self._rows(sources):
            size += table.nbytes + numbers.nbytes
            if 2 * size > self._memory:
                return None
            held.append((table, numbers))
        return held

    def _rows(self, sources: list[FileSlice]) -> Iterator[tuple[pa.Table, np.ndarray]]:
        storage = self.ctx.seams.storage
        for one in sources:
            split = make_split(one, self._read, self.state.config)
            for table in read_bounded(storage, split, self._memory // 4):
                keys = pa.concat_arrays(
                    [pa.array([], pa.string()), *table.column(KEY_COLUMN).cast(pa.string()).chunks]
                )
                self._check(one, keys)
                yield table, _buckets(keys, self.spec.buckets, self.spec)

    def _check(self, one: FileSlice, keys: pa.Array) -> None:
        """Raises ``CorruptTable`` for rows that no writer with the table's count put there: taking them along
        would double their keys, leaving them would lose them."""
        wrong = np.flatnonzero(_buckets(keys, self.before, self.spec) != file_id_bucket(one.file_id))
        if len(wrong):
            raise CorruptTable(
                f"{len(wrong)} rows lie in another bucket than that of their key, among them"
                f" {keys[int(wrong[0])].as_py()!r}: a writer with another {BUCKETS} than {self.before} put"
                " them there. Nothing was changed; copy the rows into a new table",
                path=paths.in_partition(one.partition, one.file_id),
                table=self.ctx.base,
            )


def _chosen(rows: Iterable[tuple[pa.Table, np.ndarray]], bucket: int) -> Iterator[pa.Table]:
    for table, numbers in rows:
        chosen = table.filter(pa.array(numbers == bucket))
        if chosen.num_rows:
            yield chosen


class _BaseFiles(BulkInserter):
    """Base files of given rows, with their meta columns; a row names its file group and no file."""

    memory_bytes = CompactionOptions().memory_bytes

    @property
    def files(self) -> list[BaseFileStat]:
        """The files that were made."""
        return [stat for stat in self._closed if isinstance(stat, BaseFileStat)]

    @property
    def wrote(self) -> bool:
        return bool(self._closed)

    def finish(self) -> list[WriteStat]:
        """The stats of all files."""
        return BucketAppender.finish(self)

    def put(self, partition: str, new: _NewFile) -> None:
        """Write the base file of one bucket."""
        self._check_alive()
        self.torn = True
        names = avro_to_arrow(self._spec.log_schema).names
        how = self._encoder.layout
        if how.bloom is not None and new.count is not None:
            entries = min(how.bloom.entries, max(new.count, 1))
            how = replace(how, bloom=replace(how.bloom, entries=entries))
        name = paths.base_name(new.file_id, self._tokens(partition), self._spec.instant)
        sink = self._open_file(partition, name, unshown=self._spec.shown_late)
        stat = BaseFileStat(
            partition, new.file_id, name, self._spec.instant, 0, blocks=1, unshown=self._spec.shown_late
        )
        self._closed.append(stat)
        try:
            named = (t.append_column(_FILE_NAME, pa.repeat(new.file_id, t.num_rows)) for t in new.tables)
            ordered: Iterator[pa.Table] = (table.select(names) for table in named)
            if self._spec.sorted_files:
                ordered = put_in_order(ordered, (KEY_COLUMN,), self.memory_bytes // 4)
            stat.writes = write_base_file(ordered, self._spec.log_schema, sink, how)
        finally:
            self._put_markers()
            sink.close(durable=self._spec.fsync)
        stat.size_bytes = sink.size
        self.torn = False

    def adopt_file(self, earlier: BaseFileStat) -> None:
        """The same file under a name of this instant."""
        self._check_alive()
        self.torn = True
        partition, file_id, storage = earlier.partition, earlier.file_id, self._storage
        name = paths.base_name(file_id, self._tokens(partition), self._spec.instant)
        stat = replace_stat(earlier, name, self._spec)
        self._closed.append(stat)
        if has_links(storage):
            self._ensure_partition(partition)
            self._mark(partition, name)
            make_folder(storage, stat.stored_at.rpartition("/")[0])
            links(storage).link(earlier.stored_at, stat.stored_at)
            self._folders.add(partition)
        else:
            sink = self._open_file(partition, name, unshown=stat.unshown)
            try:
                for offset in range(0, earlier.size_bytes, _PIECE_BYTES):
                    length = min(_PIECE_BYTES, earlier.size_bytes - offset)
                    sink.append([storage.read_range(earlier.stored_at, offset, length)])
            finally:
                self._put_markers()
                sink.close(durable=self._spec.fsync)
        self.torn = False


def replace_stat(earlier: BaseFileStat, name: str, spec: WriteSpec) -> BaseFileStat:
    """The stat of the same file under another name."""
    return BaseFileStat(
        earlier.partition, earlier.file_id, name, spec.instant, 0, writes=earlier.writes,
        size_bytes=earlier.size_bytes, blocks=1, unshown=spec.shown_late,
    )  # fmt: skip
