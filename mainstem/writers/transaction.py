"""One delta commit, from begin to outcome.

  begin    roll back dead writers, if due; end here if the stream guard finds the micro-batch committed
           -> [[ lock: list the timeline, no restore is pending, choose T -> heartbeat
              -> T.deltacommit.requested ]]
           -> list fence and timeline again: the same table, nothing published at or above T; else take the
              request back and try another T (``publish.publisher``)
           -> T.deltacommit.inflight -> timeline folder durable
  write    any number of batches: one new log file per bucket, blocks appended; no lock held
  commit   log files and private files with everything to publish are durable
           -> [[ lock, fence: still ours, properties unchanged, not committed before, a bulk insert not
              overlapped, an overwrite not passed by (``writers.overwriting``), no wider schema, the same
              indexes
              -> its part of the metadata table, if there is one (``metadata.commits.delta_commit``)
              -> T_C.deltacommit ]] -> remove heartbeat and markers

Between the two critical sections no process waits for this writer. A transaction ends in an ``Outcome`` or in
one of these errors: ``RolledBack`` (another process took it for dead and undid it, or a bulk insert lost;
write again), ``LeaseLost``, ``LockUnavailable``, ``Unavailable`` (nothing published), ``OutcomeUnknown``
(look at the timeline before writing again).

After any other exception (Ctrl-C, a signal handler's time-out, no memory) it is unknown how far the step
came. The transaction is then *in doubt* and can only be aborted. ``abort`` goes by the timeline and the
archive, never by this object: if the instant is completed there, it stays. Which calls are allowed, and whose
turn it is, stands in ``writers/transaction_turns.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa

from mainstem.errors import (
    Invalid,
    MainstemError,
    OutcomeUnknown,
    RolledBack,
    Unavailable,
    Unsupported,
)
from mainstem.formats.schema_resolution import project_to
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.layout.key_index import GroupOfKey
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.lsm_archive.reader import Archive
from mainstem.merge.rules import DELETED_COLUMN, OPERATION_COLUMN
from mainstem.metadata.commits.action import FileChanges
from mainstem.options import WRITER_NAME
from mainstem.options.tables import CDC_ENABLED
from mainstem.publish.publisher import Held, Published, Section, quietly
from mainstem.publish.showing import Showing, can_show, note_of
from mainstem.publish.staging import begin, delete_quietly
from mainstem.storage import paths
from mainstem.storage.all_at_once import settled_later
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Alike
from mainstem.storage.swaps import has_swaps
from mainstem.telemetry import steps
from mainstem.timeline.commit_metadata import WriteStat, encode_commit
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, REQUESTED, Instant
from mainstem.writers import overwriting, staged_rows, unplaced_rows, write_task
from mainstem.writers.append import BucketAppender
from mainstem.writers.bulk_insert import (
    BaseFileStat,
    Overwriter,
    appender_for,
    check_names_differ,
    check_one_base_file_each,
)
from mainstem.writers.commit_checks import (
    Closed,
    FoundCommitted,
    Resized,
    check_stands,
    resized,
    undone,
)
from mainstem.writers.conflicts import Overlap, Overlaps, ShownBefore
from mainstem.writers.context import WriterContext
from mainstem.writers.give_way import PLACED_ANEW, GiveWay, Patience, passed_by
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile, LookAgain, Replaced
from mainstem.writers.moved_rows import MovingAppender, lets_keys_move
from mainstem.writers.outcome import ALREADY_COMMITTED, COMMITTED, EMPTY, OPERATIONS, Outcome
from mainstem.writers.placed_anew import ROUNDS_MAX
from mainstem.writers.placed_overwrites import HiddenGroups, PlacingOverwriter
from mainstem.writers.placed_rows import KeyTaken, PlacingAppender
from mainstem.writers.publish_with_metadata import publish_with_metadata
from mainstem.writers.resize_property import settle
from mainstem.writers.ringed_rows import RingAppender
from mainstem.writers.rings_meanwhile import RingsMeanwhile
from mainstem.writers.rollback import (
    forget_unshown,
    quietly_discard,
    roll_back,
    roll_back_failed_writes,
)
from mainstem.writers.routed_anew import blocks_of
from mainstem.writers.rows_in import Rows, RowStream, rows_in, without_index
from mainstem.writers.slices_before import note_slices_before
from mainstem.writers.stream_guard import GUARD_KEY, StreamGuard
from mainstem.writers.stream_positions import Positions, StreamPositions
from mainstem.writers.transaction_schema import (
    Moved,
    asked,
    declare,
    follow,
    newer_schema,
    newest_schema,
    taken_in,
    with_schema,
)
from mainstem.writers.transaction_turns import Turns
from mainstem.writers.watched import watched
from mainstem.writers.write_spec import (
    BULK_INSERT,
    DELETES,
    INSERT_OVERWRITE_TABLE,
    OF_BASE_FILES,
    OVERWRITES,
    RESIZE,
    UPDATE_COLUMNS,
    UPSERT,
    WriteSpec,
)

if TYPE_CHECKING:
    import numpy as np

    from mainstem.formats.log_file import LogBlock
    from mainstem.storage.protocol import Upload
    from mainstem.timeline.active import ActiveTimeline

_log = logging.getLogger(__name__)

_SCHEMA_ROUNDS_MAX = 10
# How often a commit is encoded again because others of its stream were faster.
_BEHIND_ROUNDS_MAX = 100
# How often a writer looks whether a resize has ended.
_LOOK_MS = 50
# How often rows follow file groups that are split and merged again and again.
_RING_ROUNDS_MAX = 10
# How often all rows of one instant are placed again, before they go into another one.
_PLACED_AGAIN_MAX = 2


class _Divided(Exception):
    """File groups with files of this transaction were split or merged: its rows are to be routed anew."""


class _Unsynced(OutcomeUnknown):
    """A commit that stands, and may not survive a crash of the machine."""


class _PassedBy(Exception):
    """Ends a round of an overwrite; ``stats``: its base files."""

    def __init__(self, other: Overlap, stats: list[WriteStat]) -> None:
        super().__init__(str(other))
        self.other, self.stats = other, stats


@dataclass(frozen=True)
class Behind:
    """A decision: other processes of the same stream committed, so that the positions to carry are these."""

    newest: Positions


#: Why a commit is not published as it is. ``Overlap``: a bulk insert loses against it, an overwrite is made
#: again after it; ``Moved``: other writers' schema has columns that it lacks. On a table without buckets,
#: ``LookAgain``: others may have placed its keys, or replaced their file groups;
#: under consistent hashing, its file groups may have been split or merged. ``GiveWay``: an overwrite waits.
Decision = FoundCommitted | Overlap | Moved | LookAgain | Resized | Closed | GiveWay | Behind


class Transaction:
    """One write transaction. Several may be open at once, in one process or in many.

    Use it as a context manager: leaving the block without ``commit`` aborts. Calls from several threads take
    turns: an ``abort`` waits for a running ``commit``, and finds it done. A call from within another one (by
    a signal handler) is refused. A transaction belongs to the process that began it; a forked child is
    refused. If the program drops it, a warning names it, and it counts as dead once its heartbeat has
    expired.
    """

    def __init__(
        self,
        ctx: WriterContext,
        spec: WriteSpec,
        *,
        guard: StreamGuard | StreamPositions | None,
        extra_metadata: Mapping[str, str],
        at_once: bool = False,
        anew: int = 0,
    ) -> None:
        self._ctx = ctx
        self._spec = spec
        self._guard = guard
        self._extra = dict(extra_metadata)
        self._appender: BucketAppender | None = None
        self._task_stats: list[WriteStat] = []
        self._has_base_files = False
        self._task_rows = 0
        self._evolves = False
        #: staged rows were added: whoever keeps their lines must find the commit, also where it has no file
        #: (without buckets, of deletes of keys that lie nowhere)
        self._has_staged = False
        #: files in which tasks handed their rows over
        self._handed: list[str] = []
        #: tasks wrote files, of which some may belong to attempts that do not count
        self._has_tasks = False
        self._overlaps: Overlaps | None = None
        #: of a table without buckets, from the commit on
        self._meanwhile: KeysPlacedMeanwhile | None = None
        #: under consistent hashing, from the commit on
        self._rings: RingsMeanwhile | None = None
        self._seen: ActiveTimeline | None = None
        self._outcome: Outcome | None = None
        self._turns = Turns(ctx.base)
        #: the instant may be completed already: this object has tried to, or it did not begin it
        self._may_be_completed = False
        self._begun = Held()
        self._at_once = at_once
        #: its inflight file, path and content, until it is put
        self._inflight: tuple[str, bytes] | None = None
        #: waits until its requested and inflight file are durable
        self._durable: Callable[[], None] | None = None
        #: when its begin started, in milliseconds of this process's monotonic clock
        self._begun_ms = float("-inf")
        #: no other writer completed anything since the write was planned, as seen under the lock
        self._alone = False
        #: of an overwrite: partitions that are overwritten whatever rows there are
        self._named: frozenset[str] = frozenset()
        #: an overwrite that was made again: whoever began it goes on
        self._again = False
        #: base files that get their names when it completes, in its latest attempt
        self._showing: Showing | None = None
        #: the same rows in other buckets or file groups, which commits in place of this one
        self._later: Transaction | None = None
        #: how often these rows were placed anew before
        self._anew = anew
        #: of an overwrite on a table without buckets
        self._patience: Patience | None = None
        if ctx.look_for_keys is not None and spec.operation in OVERWRITES and not anew:
            self._patience = Patience(ctx)

    # -- begin -----------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls,
        ctx: WriterContext,
        spec: WriteSpec,
        *,
        guard: StreamGuard | StreamPositions | None = None,
        extra_metadata: Mapping[str, str] | None = None,
        at_once: bool = False,
        anew: int = 0,
    ) -> Transaction:
        """Open a transaction. Fills in ``spec.instant``, the requested time.

        ``at_once``: one ``write``, of rows in memory, and ``commit``. On a store its inflight file is then
        put beside its markers. ``anew``: how often its rows were placed anew before.
        """
        if ctx.config.change_mode is not None and spec.operation in OVERWRITES:
            raise Unsupported(
                f"operation {spec.operation!r} of a table with {CDC_ENABLED}=true: what it hides would be in"
                " no change data; delete those rows and insert the new ones",
                table=ctx.base,
            )
        empties = isinstance(guard, StreamPositions) and spec.operation == INSERT_OVERWRITE_TABLE
        # A stream may empty the table, as its source was, in the commit of what follows.
        if guard is not None and spec.operation in OVERWRITES and not empties:
            raise Unsupported(
                f"operation {spec.operation!r} with a stream guard: each batch would overwrite the one"
                " before",
                table=ctx.base,
            )
        if ctx.look_for_keys is not None and spec.partial_blocks:
            raise Unsupported(
                f"operation {spec.operation!r} with partial blocks on a table without buckets",
                table=ctx.base,
            )
        if _shows_late(ctx, spec.operation):
            spec = replace(spec, shown_late=True)
        txn = cls(ctx, spec, guard=guard, extra_metadata=extra_metadata or {}, at_once=at_once, anew=anew)
        roll_back_failed_writes(ctx, if_due=True)
        if guard is not None:
            try:
                ctx.check_same_table()  # ``prepare`` writes notes outside the lock
                timeline = ctx.publisher.timeline()
                ctx.guards.prepare(guard, timeline)
                earlier = ctx.guards.committed(guard, timeline)
                if earlier is not None:
                    ctx.check_same_table()  # else another table's commit may have been remembered
            except OSError as error:
                raise _unavailable("begin", error, ctx.base) from error
            if earlier is not None:
                txn._end(Outcome(ALREADY_COMMITTED, instant=earlier))
                return txn
        txn._publish_requested()
        return txn

    @classmethod
    def resume(
        cls,
        ctx: WriterContext,
        spec: WriteSpec,
        *,
        guard: StreamGuard | StreamPositions | None = None,
        extra_metadata: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Take over a transaction that another process began and detached, to commit or abort it.

        ``guard`` and ``extra_metadata``: as given to ``begin``, since they are not stored before it
        completes.
        """
        txn = cls(ctx, spec, guard=guard, extra_metadata=extra_metadata or {})
        txn._may_be_completed = True
        ctx.heartbeats.adopt(spec.instant)
        ctx.heartbeats.end_with(txn, spec.instant)
        return txn

    def detach(self) -> WriteSpec:
        """Leave the transaction open for another process to ``resume``; this object has ended.

        Until then the processes that write its tasks must keep its heartbeat fresh.
        """
        with self._turns.held:
            self._turns.check_open(self.instant)
            if self._appender is not None:
                raise Invalid(
                    "a transaction that was written to cannot be detached", table=self._ctx.base
                )
            self._turns.ended = True
            self._ctx.heartbeats.leave(self.instant)
            return self._spec

    @watched("begin")
    def _publish_requested(self) -> None:
        ctx, storage = self._ctx, self._ctx.seams.storage
        # A process that finds it pending, or rolls it back, can tell which writer's it is.
        name = ctx.options.writer_name
        whose: dict[str, str] = {WRITER_NAME: name} if name else {}
        if isinstance(self._guard, StreamGuard):
            whose[GUARD_KEY] = self._guard.extra_metadata()[GUARD_KEY]
        if self._anew:
            whose[PLACED_ANEW] = str(self._anew)
        inflight = encode_commit([], whose, self._operation)
        beats = ctx.heartbeats
        time = ""
        try:
            began_ms = ctx.seams.clock.monotonic_ms()
            # Strictly before the requested file: a pending instant without a heartbeat counts as dead.
            begun = ctx.publisher.begin(
                DELTACOMMIT, beats, with_metadata=bool(ctx.config.metadata_partitions)
            )
            time = begun.time
            # Before any data file: if a crash took the instant off the timeline, its files might count as
            # committed.
            self._inflight = (paths.timeline_file(f"{time}.{DELTACOMMIT}.{INFLIGHT}"), inflight)
            if not (self._at_once and has_swaps(storage) and self._spec.operation not in OF_BASE_FILES):
                self._put_inflight()
                # Of one batch the first data file is made when its rows are encoded, which takes as long.
                self._durable = settled_later(storage, paths.TIMELINE)
                if not self._at_once:
                    self._durable()
        except OSError as error:
            # An instant without content and heartbeat may stay: it is rolled back lazily.
            beats.stop(time) if time else None
            raise _unavailable("begin", error, ctx.base) from error
        except BaseException:
            beats.stop(time) if time else None
            raise
        self._spec = _with_instant(self._spec, time)
        beats.end_with(self, time)
        self._begun, self._begun_ms = begun.held, began_ms

    def _put_inflight(self) -> None:
        assert self._inflight is not None
        path, content = self._inflight
        self._ctx.seams.storage.put_new(path, Alike(content), durable=False)
        self._inflight = None

    # -- write -----------------------------------------------------------------------------------

    @property
    def instant(self) -> str:
        """Requested time; "" when the stream guard ended the transaction at begin."""
        return self._spec.instant

    @property
    def table(self) -> str:
        """The table's base path."""
        return self._ctx.base

    @property
    def operation(self) -> str:
        """As given to ``begin``."""
        return self._spec.operation

    @property
    def already_committed(self) -> bool:
        """The stream guard found this micro-batch on the timeline: writes are ignored."""
        return self._outcome is not None and self._outcome.status == ALREADY_COMMITTED

    @watched("write")
    def write(self, batch: Rows) -> int:
        """Append rows of any kind (docs/rows.md); returns their number.

        A refused batch leaves nothing behind. A stream is taken batch by batch: if one is refused after
        others were written, or the source fails, only ``abort`` is allowed then, as after a failure halfway
        (``Unavailable``: a full disk, say).
        """
        if self.already_committed:
            return 0
        with self._turns.held:
            self._turns.check_open(self.instant)
            with self._turns.step("write"):
                with self._refusals():
                    rows = rows_in(batch)
                    if not isinstance(rows, RowStream):
                        return self._write(rows)
                self._turns.in_doubt = True
                return self._write_stream(rows)

    def _write(self, rows: pa.Table) -> int:
        appender = self._opened()
        rows = without_index(rows, arrow_user_schema(self._spec.user_schema).names)
        self._follow(rows)
        return appender.write(rows)

    def _write_stream(self, stream: RowStream) -> int:
        """Write a stream's tables. In doubt from the first one on until the last one: part of a stream is
        never committed."""
        rules = self._spec.rules
        flags = {DELETED_COLUMN, OPERATION_COLUMN, *filter(None, [rules.delete_field])}
        tables = stream.tables(() if self._spec.operation in DELETES else flags)
        rows = 0
        while True:
            try:
                table = next(tables, None)
            except Exception:  # the source's own, which is passed on as it is
                self._turns.in_doubt = rows > 0
                raise
            if table is None:
                self._turns.in_doubt = False
                return rows
            try:
                with self._refusals():
                    rows += self._write(table)
            except Invalid as error:
                if rows:
                    self._turns.in_doubt = True
                    error.message += (
                        f"; this batch begins with row {rows} of the stream, and rows are counted from there."
                        " The rows before it are written, but not committed: only abort is left"
                    )
                raise
            except Exception:
                self._turns.in_doubt |= rows > 0
                raise
            self._turns.in_doubt = True
            del table  # not held while the source makes the next one

    def add_staged(self, lines: Iterable[str], *, source: str = "") -> int:
        """Take over rows that were staged (``writers/staged_rows.py``): a line is what ``Stager.stage``
        returned.

        Lines are sorted by the order that they carry; lines of equal order stay as given. Rows that are
        written or added later come after them. ``source``: where the lines come from, for messages. Returns
        the number of rows and deleted keys. Raises ``CorruptTable`` for missing or damaged lines or files,
        ``Invalid`` for those of another table; abort the transaction then. The staged files stay.
        """
        if self.already_committed:
            return 0
        schemas: set[str] = set()

        def schema_seen(text: str) -> None:
            if text not in schemas:
                schemas.add(text)
                self._adopt(taken_in(self._spec, text))

        seams = self._ctx.seams
        with self._turns.held:
            self._turns.check_open(self.instant)
            if self._spec.operation in OF_BASE_FILES:
                raise Invalid("staged rows go to log files: begin an upsert", table=self._ctx.base)
            with self._turns.step("add_staged"), self._refusals():
                every = [staged_rows.parse_line(line, source=source) for line in lines if line.strip()]
                found = staged_rows.counting(every)
                if not self._spec.staged_as_rows and not any(one.segments for one in found):
                    return staged_rows.append(
                        seams, self._spec, self._opened(), found, schema_seen, self._every_buckets
                    )
                rows = 0
                lines_in_order = staged_rows.in_order(seams, self._spec, found, self._every_buckets)
                for are_rows, some in groupby(lines_in_order, lambda one: bool(one.segments)):
                    if are_rows:
                        rows += self._write_unplaced(staged_rows.unplaced(seams.storage, list(some)))
                    else:
                        rows += staged_rows.append_anew(seams, self._opened(), list(some), schema_seen)
                self._has_staged |= rows > 0
                return rows

    def _every_buckets(self) -> frozenset[int]:
        return self._ctx.properties().every_buckets

    def _write_unplaced(self, segments: Iterable[tuple[str, pa.Table, np.ndarray]]) -> int:
        """Write rows that workers handed over as if they had been given to ``write``."""
        appender = self._opened()

        def fitted() -> Iterator[tuple[pa.Table, np.ndarray]]:
            before = ""
            for text, rows, deleted in segments:
                if text != before:
                    self._adopt(taken_in(self._spec, text))
                    before = text
                schema = arrow_user_schema(self._spec.user_schema)
                if self._spec.operation in (*DELETES, UPDATE_COLUMNS):
                    schema = unplaced_rows.schema_of_rows(schema, rows.column_names)
                elif KEY_COLUMN in rows.column_names:
                    schema = unplaced_rows.schema_of_rows(schema, [*schema.names, KEY_COLUMN])
                yield project_to(rows, schema), deleted

        rows = 0
        for together, deleted in unplaced_rows.joined(fitted()):
            for batch, flags in staged_rows.in_turns(self._spec, together, deleted):
                rows += appender.write(batch, flags)
        return rows

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """The work of one call that writes: rows that it refuses leave the schema as it was.

        Only an exception other than those that rows and storage raise leaves the transaction in doubt.
        """
        before = self._spec
        try:
            yield
            self._turns.in_doubt = False
        except OSError as error:
            self._adopt(before)
            self._turns.in_doubt = False
            raise _unavailable("write", error, self._ctx.base, self.instant) from error
        except (MainstemError, TypeError, ValueError) as error:
            self._adopt(before)
            self._turns.in_doubt = False
            if isinstance(error, MainstemError):
                error.table = error.table or self._ctx.base
            raise

    def _opened(self) -> BucketAppender:
        if self._appender is None:
            token = f"0-{self._ctx.seams.random.getrandbits(20)}-0"
            ctx = self._ctx
            storage, known = ctx.seams.storage, ctx.known_partitions
            if ctx.look_for_keys is not None:
                places = ctx.look_for_keys()
                kind = MovingAppender if lets_keys_move(self._spec, places) else PlacingAppender
                kind = PlacingOverwriter if self._spec.operation in OVERWRITES else kind
                self._appender = kind(
                    storage, self._spec, token, places, ctx.seams.random, known, self._surely_alive
                )
            else:
                ringed = self._spec.rings is not None and self._spec.operation not in OF_BASE_FILES
                make = RingAppender if ringed else appender_for
                self._appender = make(
                    storage, self._spec, token, ctx.known_buckets, known, self._surely_alive
                )
                self._appender.at_once = self._at_once and self._spec.operation not in OF_BASE_FILES
            if self._durable is not None:
                if type(self._appender) is BucketAppender:
                    self._appender.begun = self._durable
                else:
                    self._durable()
            if self._inflight is not None:
                self._appender.before_files = self._put_inflight
        return self._appender

    def _follow(self, rows: pa.Table) -> None:
        """Widen the schema to hold the rows, as Hudi does (``writers/transaction_schema.py``)."""
        appender = self._appender if self._spec.operation in OF_BASE_FILES else None
        if rows.num_rows and not (appender is not None and appender.rows):
            self._adopt(follow(self._spec, rows))

    def _adopt(self, spec: WriteSpec) -> None:
        if spec is not self._spec:
            self._spec = spec
            if self._appender is not None:
                self._appender.adopt(spec)

    def declare(self, schema: pa.Schema) -> None:
        """Widen the table's schema to hold rows of these columns and types, before tasks get the spec.

        A task cannot change the schema: it refuses rows that do not fit. Raises ``Invalid`` for a type that a
        table cannot hold.
        """
        with self._turns.held:
            self._turns.check_open(self.instant)
            self._adopt(declare(self._spec, schema))

    def evolve(self, columns: pa.Schema) -> None:
        """Add columns, or widen them to the types given; committed even if no rows are written.

        Raises ``Invalid`` for a column that cannot become what is asked for.
        """
        with self._turns.held:
            self._turns.check_open(self.instant)
            before = self._spec.user_schema
            self._adopt(asked(self._spec, columns))
            self._evolves |= self._spec.user_schema != before

    def name_partitions(self, partitions: Iterable[str]) -> None:
        """Which partitions a ``delete_partition`` empties, as paths below the table.

        Raises ``Invalid`` for one that the table does not have.
        """
        for partition in partitions:
            inside = {"", ".", "..", paths.HOODIE}.isdisjoint(partition.split("/"))
            if not inside or self._ctx.seams.storage.stat(paths.partition_metafile(partition)) is None:
                raise Invalid(
                    f"delete_partition({partition!r}): the table has no such partition; name the path below"
                    " the table's folder, as in _hoodie_partition_path",
                    table=self._ctx.base,
                    instant=self.instant,
                )
            self._named |= {partition}

    def task_spec(self) -> WriteSpec:
        """What an executor needs for ``writers.write_task.write_task``; picklable."""
        self._turns.check_open(self.instant)
        within = steps.here()
        return replace(self._spec, trace=within) if within else self._spec

    def add_task_result(self, result: bytes) -> None:
        """Take over the files of one successful task attempt (the bytes that ``write_task`` returned).

        The commit removes files of attempts that were not added.
        """
        with self._turns.held:
            self._turns.check_open(self.instant)
            if self._spec.placed_at_commit:
                self._take_over(write_task.decode_handed(result, self.instant))
                return
            stats, rows = write_task.decode_result(result, self.instant)
            with self._turns.step("add_task_result"), self._refusals():
                self._task_stats += stats
                self._task_rows += rows
                self._has_tasks = True

    def _take_over(self, handed: write_task.Handed) -> None:
        if not handed.segments:
            return
        self._handed.append(handed.path)
        with self._turns.step("add_task_result"), self._refusals():
            segments = unplaced_rows.segments_of_file(self._ctx.seams.storage, handed.path, handed.segments)
            self._write_unplaced(segments)

    # -- commit ----------------------------------------------------------------------------------

    @watched("commit")
    def commit(self) -> Outcome:
        """Publish everything written, in one step. Calling it again returns the same outcome.

        After ``LockUnavailable`` and ``LeaseLost`` it may be called again. After an interrupt call ``abort``
        first, which finds out whether the commit became visible.
        """
        with self._turns.held:
            if self._outcome is not None:
                return self._outcome
            self._turns.check_open(self.instant)
            with self._turns.step("commit"):
                try:
                    outcome = self._commit()
                    self._turns.in_doubt = False
                except OutcomeUnknown:
                    # It may be visible: delete none of its files. If it is not, it is rolled back lazily.
                    self._fail()
                    raise
                except OSError as error:
                    self._fail()
                    raise _unavailable("commit", error, self._ctx.base, self.instant) from error
                except MainstemError as error:
                    self._turns.in_doubt = False
                    if isinstance(error, RolledBack):
                        try:
                            self._ctx.check_same_table()  # raises ``TableReplaced`` if its table is gone
                        except OSError:  # not known: a later writer sweeps its files
                            raise error from None
                        self._leave_nothing()
                    raise
        if self._ctx.after_commit is not None and outcome.status == COMMITTED and self._seen is not None:
            name = f"{outcome.instant}_{outcome.completion_time}.{DELTACOMMIT}"
            self._ctx.after_commit(self._seen.with_file(name))
        # A later transaction that committed in place of this one has told of itself.
        own = outcome.status == COMMITTED and outcome.instant == self.instant
        if self._has_base_files and self._ctx.base_files_changed is not None and own:
            self._ctx.base_files_changed()
        if self._ctx.told is not None and own:
            self._ctx.told(f"{outcome.instant}_{outcome.completion_time}.{DELTACOMMIT}")
        return outcome

    def _surely_alive(self) -> bool:
        """Whether no process can have rolled this transaction back yet, so that storage need not be asked.

        True for less than half of the heartbeat's time since the begin, and only once, unless the write is a
        single batch with its commit (``at_once``). A process is rolled back only after its heartbeat's
        full time, and its clock goes on while it stands still.
        """
        since_ms = self._ctx.seams.clock.monotonic_ms() - self._begun_ms
        if not self._at_once:
            self._begun_ms = float("-inf")
        return since_ms < self._ctx.heartbeats.expire_ms / 2

    def _leave_nothing(self) -> None:
        """Remove the files of an instant that another writer rolled back. The rollback may have ended before
        our last file was made, and no other process would look for that."""
        try:
            if self._appender is not None:
                self._appender.discard()
            self._ctx.seams.storage.delete_tree(paths.marker_folder(self.instant))
            forget_unshown(self._ctx.seams.storage, self.instant)
        except OSError:
            return  # a later writer sweeps them

    def _commit(self) -> Outcome:
        if self._later is not None:
            return self._committed_later(self._later)
        try:
            return self._commit_once()
        except _PassedBy as passed:
            if self._again:
                raise
            return self._made_again(passed)
        except _Divided:
            self._settle([])  # files of an object store are read by their names
            return self._routed_anew(self._files(), self._spec.buckets)
        except KeyTaken as taken:
            return self._placed_anew(taken)

    def _commit_once(self) -> Outcome:
        ctx = self._ctx
        if self._may_be_completed and (completed := self._completed()) is not None:
            return self._found_committed(completed)  # by another process that took it over
        if self._spec.operation in OVERWRITES:
            self._join_parts()
        stats = self._finished()
        rows = self._task_rows + (self._appender.rows if self._appender else 0)
        if self._spec.operation in OVERWRITES:
            stats = self._with_empty_files(stats)
        self._remove_unclaimed({s.path for s in stats})
        check_names_differ(stats, ctx.base, self.instant)
        overwrites = self._spec.operation in OVERWRITES  # without files too: what it hides may have moved
        if self._spec.operation in OF_BASE_FILES and (stats or overwrites):
            check_one_base_file_each(stats, ctx.base, self.instant)
            self._overlaps = self._what_overlaps(stats)
        if self._overlaps is not None:
            other = self._overlaps.find(ctx.publisher.timeline())
            # With a guard, the other write may be this very micro-batch; the look under the lock tells.
            if other is not None and self._guard is None:
                self._overtaken(other, stats)
        # Offsets are committed even if no row came of their records.
        carries = self._has_staged or isinstance(self._guard, StreamPositions)
        if not stats and not self._evolves and not carries:
            self._settle([])
            quietly_discard(ctx, self.instant)
            return self._end(Outcome(EMPTY))
        if ctx.validate is not None:
            self._settle([])  # files of an object store are read by their names
            try:
                ctx.validate(self._spec, stats)
            except MainstemError:
                self._abort()
                raise
        return self._publish_completed(stats, rows)

    def _what_overlaps(self, stats: list[WriteStat]) -> Overlaps | None:
        storage, history = self._ctx.seams.storage, self._ctx.config.history
        overwrites = self._spec.operation in OVERWRITES
        if self._ctx.look_for_keys is None:
            if not overwrites:
                return Overlaps(storage, self.instant, stats, history)
            whole = self._spec.operation == INSERT_OVERWRITE_TABLE
            named = None if whole else self._named
            return overwriting.Hidden(storage, self.instant, stats, history, partitions=named)
        if not overwrites:
            return None  # a bulk insert is an upsert: no file group of others gets a base file
        appender = self._opened()
        assert isinstance(appender, PlacingOverwriter)
        named = self._named | appender.named
        return HiddenGroups(storage, self._spec, stats, named, history, alone=appender.alone)

    def _join_parts(self) -> None:
        """Write what tasks of an overwrite made for one bucket again, as one file; a bucket at a time."""
        if not self._task_stats:
            return
        storage, appender = self._ctx.seams.storage, self._opened()
        assert isinstance(appender, Overwriter)
        for parts in overwriting.parts_of_buckets(self._task_stats, appender.held):
            for part in parts:
                for batch in overwriting.rows_of(storage, part, self._spec.log_schema):
                    self._task_rows -= appender.write(batch)  # they were counted
            appender.put_held(parts[0].partition, parts[0].file_id)
            joined = set(map(id, parts))
            self._task_stats = [stat for stat in self._task_stats if id(stat) not in joined]

    def _finished(self) -> list[WriteStat]:
        """The files of this transaction, whose keys lie where its rows are, as far as others completed."""
        appender = self._appender
        alone = isinstance(appender, PlacingOverwriter) and appender.alone
        if isinstance(appender, PlacingAppender) and not alone:
            self._move_rows(appender)
        if self._spec.rings is not None:
            self._follow_rings(appender)
        return self._files()

    def _files(self) -> list[WriteStat]:
        stats = [*self._task_stats, *(self._appender.finish() if self._appender else [])]
        return [s for s in stats if s.blocks]

    def _move_rows(self, appender: PlacingAppender) -> None:
        """Rows go to where others placed their keys since they were looked for."""
        ctx = self._ctx
        appender.gather()
        if appender.placed_again >= _PLACED_AGAIN_MAX and not self._anew:
            raise appender.passed_by()  # clusterings give way to a later instant
        if self._meanwhile is None:
            self._meanwhile = KeysPlacedMeanwhile(ctx, self.instant, appender)
        replaced = self._meanwhile.move(ctx.publisher.timeline())
        if replaced is not None:
            self._lose_rows(replaced)

    def _follow_rings(self, appender: BucketAppender | None) -> None:
        """Rows of file groups that were split or merged since are appended anew."""
        ctx = self._ctx
        if self._rings is None:
            every = self._spec.operation in OF_BASE_FILES
            self._rings = RingsMeanwhile(ctx, self.instant, self._groups_written, every=every)
        for left in range(_RING_ROUNDS_MAX, -1, -1):
            self._rings.withdraw_plans(ctx.publisher.timeline())
            replaced = self._rings.find(ctx.publisher.timeline())
            if replaced is None or (replaced.again and self._spec.operation in OVERWRITES):
                return  # an overwrite is made again: ``overwriting.Hidden`` finds the same
            if replaced.passes and left:
                continue  # planned since, or another writer takes it back
            mine = appender if isinstance(appender, RingAppender) and not self._task_stats else None
            if mine is not None and replaced.again and left and mine.can_append_again:
                mine.append_again()
            elif replaced.again and self._spec.operation not in OF_BASE_FILES:
                raise _Divided
            else:
                self._lose_rows(replaced)

    def _groups_written(self) -> frozenset[GroupOfKey]:
        """Under consistent hashing: the file groups that have files of this transaction by now."""
        appender = self._appender
        own = frozenset() if appender is None else appender.groups_written
        return own | {(stat.partition, stat.file_id) for stat in self._task_stats}

    def _lose_rows(self, replaced: Replaced) -> NoReturn:
        if replaced.again:
            raise KeyTaken(
                f"{replaced.by}: file groups to which this transaction appended rows. Nothing of it is"
                " visible: write its rows again in a new transaction",
                table=self._ctx.base,
                instant=self.instant,
            )
        self._abort()
        raise RolledBack(
            f"this transaction appended rows to file groups in which they would be lost: {replaced.by}."
            " Nothing of it is visible: complete the pending clustering (mainstem cluster, or the engine that"
            " planned it), and write the data again in a new transaction",
            table=self._ctx.base,
            instant=self.instant,
        )

    def _with_empty_files(self, stats: list[WriteStat]) -> list[WriteStat]:
        """``stats``, and those of the empty base files of an overwrite."""
        ctx, appender = self._ctx, self._opened()
        if isinstance(appender, PlacingOverwriter):
            appender.put_empty_files(self._named)
            return appender.finish()
        assert isinstance(appender, Overwriter)
        partitioned = bool(ctx.config.partition_fields)
        for partition, file_id in overwriting.groups_without_rows(
            ctx.seams.storage, self._spec, stats, self._named, partitioned
        ):
            if appender.rings is not None and appender.bucket_of(partition, file_id) is None:
                continue  # it was split or merged
            appender.put_empty(partition, file_id)
        return [*self._task_stats, *appender.finish()]

    def _overtaken(self, other: Overlap, stats: list[WriteStat]) -> NoReturn:
        if self._spec.operation == BULK_INSERT:
            self._lose(other)
        raise _PassedBy(other, stats)

    def _made_again(self, passed: _PassedBy) -> Outcome:
        """The outcome of this overwrite with a later requested time."""
        current, ctx = self, self._ctx
        given = self._task_rows + (self._appender.rows if self._appender else 0)
        try:
            for number in range(1, overwriting.ROUNDS_MAX + 1):
                if not overwriting.none_pending(ctx.seams.clock, ctx.publisher.timeline, passed.other):
                    break
                _log.info("overwrite %s of %s begins again: %s", current.instant, ctx.base, passed.other)
                current = current._begun_again(passed.stats, number)
                try:
                    outcome = current.commit()
                    self._seen = None  # what runs after a commit has run
                    committed = outcome.status != ALREADY_COMMITTED
                    return self._end(replace(outcome, rows=given) if committed else outcome)
                except _PassedBy as again:
                    passed = again
            current._abort()
        except BaseException:
            with suppress(MainstemError):
                current.abort()
            raise
        raise Unavailable(
            f"the overwrite was passed by: {passed.other}. Nothing of it is visible: complete pending log"
            " compactions and clusterings, plan compactions less often, and do it again",
            table=ctx.base,
            instant=current.instant,
        )

    def _begun_again(self, stats: list[WriteStat], number: int) -> Transaction:
        """The same overwrite under a new instant, from the base files of this one, which ends here."""
        ctx, storage = self._ctx, self._ctx.seams.storage
        spec = replace(self._spec, instant="", buckets=ctx.buckets)
        later = Transaction.begin(ctx, spec, guard=self._guard, extra_metadata=self._extra)
        if later.already_committed:
            self._abort()
            return later
        later._again = True
        later._named = self._named | {stat.partition for stat in stats if isinstance(stat, BaseFileStat)}
        try:
            if isinstance(self._appender, PlacingOverwriter):
                later._named |= self._appender.named  # also those of which no row is left
                for table in self._appender.merged:
                    later.write(table)
                stats = []
            for task, stat in enumerate(stat for stat in stats if stat.writes):
                rows = overwriting.rows_of(storage, stat, self._spec.log_schema)
                spec = later.task_spec()
                later.add_task_result(
                    write_task.write_task(
                        spec, rows, task_partition=task, stage=number, attempt=0, storage=storage
                    )
                )
            self._abort()
        except BaseException as error:
            with suppress(MainstemError):
                later.abort()
            if isinstance(error, FileNotFoundError) and self._shown_before:
                raise undone(
                    "the table lock was lost while this overwrite was being published, and another"
                    " writer took its files away;", ctx, self.instant,
                ) from error  # fmt: skip
            raise
        return later

    def _publish_completed(self, stats: list[WriteStat], rows: int) -> Outcome:
        self._may_be_completed = True
        if self._inflight is not None and self._appender is None:  # nothing was written
            self._put_inflight()
        if self._durable is not None:
            self._durable()
        # 1. Note the write, so that a restarted stream finds it if it becomes visible.
        if self._guard is not None:
            self._ctx.guards.announce(self._guard, self.instant)
        self._carry()
        rounds = behind = 0
        while rounds < _SCHEMA_ROUNDS_MAX and behind < _BEHIND_ROUNDS_MAX:
            # 2. Write everything to publish to durable private files; 3. the critical section.
            published = self._publish_once(stats)
            # 4. Act on the result.
            match published.decision:
                case None:
                    assert published.time is not None
                    return self._committed(published.time, published.held, stats, rows)
                case FoundCommitted(instant):
                    if instant == self.instant:  # an interrupted call had decided it, others carried it out
                        return self._found_committed(self._completed() or "")
                    self._abort()
                    return self._end(Outcome(ALREADY_COMMITTED, instant=instant))
                case Overlap() as overlap:
                    self._overtaken(overlap, stats)
                case LookAgain():
                    stats = self._finished()
                case Closed(instant):
                    self._wait_for(instant)
                case GiveWay() as other:
                    assert self._patience is not None
                    self._patience.wait(other)
                case Resized(buckets) if stats:
                    with suppress(MainstemError, OSError):  # whoever resized it may have died just before
                        settle(self._ctx)
                    return self._routed_anew(stats, buckets)
                case Resized(buckets):
                    self._spec = replace(self._spec, buckets=buckets)
                case Behind(newest):
                    behind += 1
                    assert isinstance(self._guard, StreamPositions)
                    self._guard = self._guard.carrying(newest)
                case Moved(text, announce):  # again, with the columns that others added
                    rounds += 1
                    self._spec = with_schema(self._spec, text)
                    if announce:
                        self._announce_schema()
        if behind:
            raise Unavailable(
                f"other processes of the same stream committed {behind} times while this commit was being"
                " published; nothing was published, write the data again",
                table=self._ctx.base,
                instant=self.instant,
            )
        raise Unavailable(
            f"other writers changed the table's schema {_SCHEMA_ROUNDS_MAX} times while this commit was"
            " being published; nothing was published, write the data again",
            table=self._ctx.base,
            instant=self.instant,
        )

    def _carry(self) -> None:
        """Encode the positions of the stream's other partitions as they are now; the look under the lock
        tells whether they moved since."""
        if isinstance(self._guard, StreamPositions):
            timeline = self._ctx.publisher.timeline()
            newest = self._ctx.guards.positions.newest(self._guard.source, timeline)
            self._guard = self._guard.carrying(newest)

    def _wait_for(self, instant: str) -> None:
        """Wait until the last round of a resize has ended, or its process is found dead."""
        ctx = self._ctx
        while any(i.requested == instant and i.action == DELTACOMMIT for i in ctx.timeline().pending):
            ctx.seams.clock.sleep_ms(_LOOK_MS)
            roll_back_failed_writes(ctx, if_due=True)

    def _routed_anew(self, stats: list[WriteStat], buckets: int) -> Outcome:
        """The outcome of the same rows in one that begins now, by the bucket count or rings of now."""
        return self._in_later(
            replace(self._spec, instant="", buckets=buckets),
            lambda later: later._write_routed(blocks_of(self._ctx.seams.storage, stats)),
        )

    def _placed_anew(self, taken: KeyTaken) -> Outcome:
        """The outcome of the same rows in a transaction that begins now, by where their keys live now
        (``writers.placed_anew``)."""
        appender = self._appender
        may = isinstance(appender, PlacingAppender) and appender.can_hand_over
        if not may or self._anew >= ROUNDS_MAX:
            self._abort()
            raise taken
        assert isinstance(appender, PlacingAppender)
        if appender.reads_back:
            self._settle([])
        return self._in_later(
            replace(self._spec, instant=""), lambda later: later._take_rows(self, appender)
        )

    def _in_later(self, spec: WriteSpec, write: Callable[[Transaction], None]) -> Outcome:
        """The outcome of the same rows in a transaction that begins now, into which ``write`` puts them.

        This instant is undone before that one is published, so nobody sees its rows twice; if the process
        dies in between, both are rolled back. A new instant, since a late request to a store might bring a
        file of the old one back.
        """
        _log.info("the rows of %s of %s go into a later instant", self.instant, self._ctx.base)
        later = self._later = self._written_anew(spec, write)
        self._undo_own()
        self._ctx.heartbeats.stop(self.instant)
        return self._committed_later(later)

    def _written_anew(self, spec: WriteSpec, write: Callable[[Transaction], None]) -> Transaction:
        placed = 1 if spec.placed_at_commit else 0
        later = Transaction.begin(
            self._ctx, spec, guard=self._guard, extra_metadata=self._extra, anew=self._anew + placed
        )
        try:
            if not later.already_committed:
                write(later)
        except BaseException:
            with suppress(MainstemError):
                later.abort()
            raise
        return later

    def _write_routed(self, blocks: Iterator[tuple[str, LogBlock]]) -> None:
        appender = self._opened()
        with self._turns.held:
            self._turns.check_open(self.instant)
            with self._turns.step("write"), self._refusals():
                appender.write_routed(blocks)

    def _take_rows(self, other: Transaction, appender: PlacingAppender) -> None:
        """Write all rows of another transaction, which has made no file visible."""
        mine = self._opened()
        assert isinstance(mine, PlacingAppender)
        self._evolves, self._named, self._has_staged = other._evolves, other._named, other._has_staged
        if isinstance(appender, PlacingOverwriter):
            self._named |= appender.named  # also those of which no row is left
        with self._turns.held:
            self._turns.check_open(self.instant)
            with self._turns.step("write"), self._refusals():
                appender.hand_over(mine)

    def _committed_later(self, later: Transaction) -> Outcome:
        given = self._task_rows + (self._appender.rows if self._appender else 0)
        outcome = later.commit()
        self._ctx.heartbeats.stop(self.instant)
        self._seen = None  # what runs after a commit has run
        return self._end(outcome if outcome.status == ALREADY_COMMITTED else replace(outcome, rows=given))

    def _publish_once(self, stats: list[WriteStat]) -> Published[Decision]:
        ctx = self._ctx
        note_slices_before(ctx, stats)
        content = encode_commit(stats, self._extra_metadata(), self._operation)
        prepared, sink = begin(ctx.seams, self.instant, content)
        private, sinks = [prepared], [sink]
        unshown = [(stat.partition, stat.file_name) for stat in stats if stat.unshown]
        try:
            if unshown and not self._shown_before:
                note, sink = begin(ctx.seams, self.instant, note_of(unshown))
                private.append(note)
                sinks.append(sink)
                fsync = self._spec.fsync
                self._showing = Showing(ctx.seams.storage, self.instant, unshown, note, durable=fsync)
            return publish_with_metadata(
                ctx,
                self.instant,
                self._changes(stats),
                lambda time: f"{self.instant}_{time}.{DELTACOMMIT}",
                prepared=prepared,
                decide=self._may_complete,
                settle=lambda others: self._settle([*sinks, *others]),
                carries=self._carries,
                showing=self._showing,
                shares_sync=self._only_adds_rows,
            )
        except BaseException:
            for sink in sinks:
                with suppress(OSError):
                    sink.close(durable=False)
            raise
        finally:
            for path in private:
                delete_quietly(ctx.seams.storage, path)

    @property
    def _only_adds_rows(self) -> bool:
        """Whether it appends rows to log files of buckets, and replaces, hides and moves nothing."""
        special = self._spec.operation in OF_BASE_FILES or self._spec.operation in (*OVERWRITES, RESIZE)
        return not special and self._ctx.look_for_keys is None and self._spec.rings is None

    @property
    def _shown_before(self) -> bool:
        """Its files may have got their names in a section that did not publish it."""
        return self._showing is not None and self._showing.tried

    @property
    def _carries(self) -> bool:
        """Whether what is looked at under the lock is in ``Section.decided``, too (``Publisher.publish``)."""
        looks = (self._guard, self._overlaps, self._meanwhile, self._rings)
        return all(look is None for look in looks)

    def _changes(self, stats: list[WriteStat]) -> FileChanges:
        """What the metadata table gets to know."""
        written = self._appender.written if self._appender else {}
        return FileChanges.of_stats(stats, schemas=self._schemas, written=written, show=self._show_files)

    @property
    def _operation(self) -> str:
        """Hudi's name of the operation."""
        return OPERATIONS[self._spec.operation]

    def _committed(self, time: str, held: Held, stats: list[WriteStat], rows: int) -> Outcome:
        # If others completed something meanwhile (Java's ALTER TABLE, say), the next write reads the schema.
        own = (f"{self.instant}_{time}.{DELTACOMMIT}", self._spec.user_schema)
        self._ctx.own_schema = own if self._alone else ("", "")
        if self._ctx.base_files_changed is not None:
            self._has_base_files = any(paths.parse_base_name(s.file_name) is not None for s in stats)
        self._tidy()
        return self._end(
            Outcome(
                COMMITTED,
                self.instant,
                time,
                rows,
                sum(s.size_bytes for s in stats),
                len(stats),
                held.attempts,
                self._begun.held_ms + held.held_ms,
                self._begun.lock_wait_ms + held.lock_wait_ms,
            )
        )

    def _settle(self, sinks: Sequence[Upload]) -> None:
        """Make these private files durable, together with data files that are not durable yet."""
        if self._appender is not None:
            self._appender.settle(sinks)
        elif sinks:
            self._ctx.seams.storage.settle(sinks, [], durable=self._ctx.options.fsync)

    def _show_files(self) -> None:
        """Close the log files, whose rows the metadata table needs, where a file shows nothing before."""
        if not has_links(self._ctx.seams.storage):
            self._settle([])
        if self._showing is not None and not self._showing.tried:
            self._showing.name_files()  # the table got a metadata table meanwhile, by which Java goes

    def _announce_schema(self) -> None:
        """Commit without rows, with a requested time above all others: readers take the schema from it."""
        with Transaction.begin(self._ctx, replace(self._spec, instant="", operation=UPSERT)) as txn:
            txn._publish_completed([], 0)

    def _lose(self, other: Overlap) -> NoReturn:
        """Undo a bulk insert that another write overlaps, as Java does; the other write stands."""
        self._abort()
        if isinstance(other, ShownBefore):
            raise undone(f"{other};", self._ctx, self.instant)
        raise RolledBack(
            f"the bulk insert overlaps another write: {other}. Nothing of it is visible; write"
            " the data again in a new transaction (rows of buckets that have files by now are appended"
            " to log files), or upsert, which never conflicts",
            table=self._ctx.base,
            instant=self.instant,
        )

    def _schemas(self) -> Iterator[str]:
        """Our schema; then, if needed, the table's, which may have columns that our files lack."""
        yield self._spec.user_schema
        yield newest_schema(self._ctx.seams.storage, self._ctx.publisher.timeline())

    def _extra_metadata(self) -> dict[str, str]:
        extra = dict(self._extra)
        if self._ctx.options.writer_name:
            extra.setdefault(WRITER_NAME, self._ctx.options.writer_name)
        if self._guard is not None:
            extra |= self._guard.extra_metadata()
        extra["schema"] = self._spec.user_schema
        return extra

    def _may_complete(self, section: Section) -> Decision | None:
        """Under the lock: check that the instant may complete. None: it may, as it is.

        Raises ``RolledBack`` if it was undone or is about to be, and what ``reread_config`` raises.
        """
        ctx, timeline = self._ctx, section.timeline
        self._seen = timeline
        if timeline.completion_of(self.instant, DELTACOMMIT) is not None:
            return FoundCommitted(self.instant)
        condemned_now = check_stands(ctx, timeline, self.instant)
        if self._shown_before:
            return ShownBefore(DELTACOMMIT, self.instant, "", None)
        ctx.reread_config(section, native_logs=self._spec.native_logs)
        ctx.check_counts(timeline)
        self._alone = timeline.newest_completed == self._spec.planned_on
        if self._guard is not None:
            earlier = ctx.guards.committed(self._guard, timeline)
            if earlier is not None:
                return FoundCommitted(earlier)
        if isinstance(self._guard, StreamPositions):
            newest = ctx.guards.positions.newest(self._guard.source, timeline)
            if newest != self._guard.seen:
                return Behind(newest)
        if ctx.look_for_keys is None and (other := self._follows(section, condemned_now)) is not None:
            return other
        other = self._overlaps.find(timeline) if self._overlaps is not None else None
        if other is not None:
            return other
        if self._rings is not None and self._rings.find(timeline) is not None:
            return LookAgain()
        if self._meanwhile is not None and (again := self._meanwhile.look(timeline)) is not None:
            return again
        gives_way = self._patience is not None and not self._patience.over
        if gives_way and (first := passed_by(ctx.seams.storage, timeline)) is not None:
            return first
        return newer_schema(ctx.seams.storage, timeline, self._spec, ctx.own_schema, section.decided)

    def _follows(self, section: Section, condemned_now: Mapping[str, str]) -> Decision | None:
        """Under the lock: whether the table was resized, or is about to be, in a way that concerns this."""
        return resized(self._ctx, self._spec, section, condemned_now)

    def _remove_unclaimed(self, claimed: set[str]) -> None:
        """Delete data files with a marker but no write stat: those of losing task attempts (finalizeWrite).

        Durably, before the commit: a crash of the machine must not bring them back beside the winner's files.
        """
        storage = self._ctx.seams.storage
        if self._appender is not None and not self._has_tasks:
            return  # every file was made here: there are no other attempts
        touched: set[str] = set()
        for partition, name in write_task.marked_files(storage, self.instant):
            path = paths.in_partition(partition, name)
            if path not in claimed and storage.delete(path):
                touched.add(partition)
        if touched:
            storage.settle([], sorted(touched), durable=self._ctx.options.fsync)

    def _tidy(self) -> None:
        """Remove heartbeat and markers. The commit stands; if this fails, later writers remove them."""
        storage = self._ctx.seams.storage
        if self._appender is not None and not self._has_tasks and has_swaps(storage):
            # All that is there is known: one request, and no listing.
            left = [paths.heartbeat(self.instant), *self._appender.markers]
            self._ctx.heartbeats.leave(self.instant)
            self._ctx.unwaited.start(lambda: quietly(lambda: storage.delete_all(left)))
            return
        self._ctx.heartbeats.stop(self.instant)
        quietly(lambda: storage.delete_tree(paths.marker_folder(self.instant)))
        if self._spec.shown_late:
            quietly(lambda: storage.delete_tree(paths.unshown_folder(self.instant)))

    # -- end -------------------------------------------------------------------------------------

    def _end(self, outcome: Outcome) -> Outcome:
        self._outcome = outcome
        self._turns.ended = True
        if self._appender is not None:
            self._appender.forget()
        self._forget_handed()
        return outcome

    def _forget_handed(self) -> None:
        if self._handed:
            quietly(lambda: self._ctx.seams.storage.delete_all(self._handed))

    def _fail(self) -> None:
        self._turns.ended = True
        self._ctx.heartbeats.stop(self.instant)
        if self._later is not None:  # it is rolled back as one of the dead
            self._later._fail()

    @watched("abort")
    def abort(self) -> None:
        """Undo everything written and take the instant off the timeline. Does nothing after the end.

        A commit that became visible stays, whatever ``commit()`` raised; ``commit()`` then returns its
        outcome.
        """
        with self._turns.held:
            if self._turns.ended:
                return
            self._turns.check_caller(self.instant)
            with self._turns.step("abort"):
                self._abort()

    def _abort(self) -> None:
        self._turns.ended = True
        try:
            self._undo()
        except _Unsynced:
            raise
        except (OSError, OutcomeUnknown) as error:
            raise Unavailable(
                f"abort failed halfway: {error}; nothing of the transaction is visible, and a later"
                " writer removes the rest",
                table=self._ctx.base,
                instant=self.instant,
            ) from error
        finally:
            self._ctx.heartbeats.stop(self.instant)
            self._forget_handed()

    def _undo(self) -> None:
        if self._later is not None:
            self._later.abort()
            if self._later._outcome is not None:  # it is committed
                self._outcome = self._later._outcome
        self._undo_own()

    def _undo_own(self) -> None:
        if self._may_be_completed:
            self._ctx.publisher.end_doubt()
        completed = self._completed()
        if completed is not None:
            if self._appender is not None:
                self._appender.release()
            _log.warning("transaction %s of %s is committed: it stays", self.instant, self._ctx.base)
            self._found_committed(completed)
            return
        if self._appender is not None:
            self._appender.discard()
        appended = self._appender is not None and self._appender.wrote
        if appended or self._may_be_completed or self._has_tasks or self._has_markers():
            # The rollback looks again under the lock: another process may have taken the transaction over.
            roll_back(self._ctx, Instant(self.instant, DELTACOMMIT, INFLIGHT), own=True)
        else:
            quietly_discard(self._ctx, self.instant)

    def _completed(self) -> str | None:
        """This instant's completion time, from the timeline or the archive; None if not completed."""
        ctx = self._ctx
        timeline = ctx.publisher.timeline()
        found = timeline.completion_of(self.instant, DELTACOMMIT)
        if found is None and not timeline.has(f"{self.instant}.{DELTACOMMIT}.{REQUESTED}"):
            found = Archive.load(ctx.seams.storage, ctx.config.history).completion_time(self.instant)
        return found

    def _found_committed(self, completed: str) -> Outcome:
        storage = self._ctx.seams.storage
        try:  # whoever published it may have died, or was interrupted, before it synced the folder
            storage.settle([], [paths.TIMELINE], durable=self._ctx.options.fsync)
        except OSError as error:
            raise _Unsynced(
                f"the transaction is committed, but its name could not be made durable ({error}): it may not"
                " survive a crash of the machine; look at the timeline before writing again",
                table=self._ctx.base,
                instant=self.instant,
            ) from error
        rows = self._task_rows + (self._appender.rows if self._appender else 0)
        self._tidy()
        return self._end(Outcome(COMMITTED, self.instant, completed, rows))

    def _has_markers(self) -> bool:
        return self._ctx.seams.storage.stat(paths.marker_folder(self.instant)) is not None

    def __reduce__(self) -> NoReturn:
        raise Invalid(
            "an open transaction can neither be copied nor pickled: two objects would end it twice. Executors"
            " write parts of it by task_spec(), another process takes it over by detach() and Table.resume()",
            table=self._ctx.base,
            instant=self.instant,
        )

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if self._turns.in_forked_child:
            return  # a forked child left the block; the transaction is its parent's
        if kind is None:
            self.abort()
            return
        try:
            self.abort()
        except MainstemError:
            return  # keep the first error; the instant is rolled back lazily


def _shows_late(ctx: WriterContext, operation: str) -> bool:
    """Whether base files get their names under the lock: where another engine's view may take them for those
    of a completed instant, as it has no metadata table to go by."""
    beside_others = operation in OF_BASE_FILES or operation == RESIZE
    if not beside_others or ctx.newest_properties.metadata_partitions or not can_show(ctx.seams.storage):
        return False
    return ctx.others_may_write()


def _with_instant(spec: WriteSpec, instant: str) -> WriteSpec:
    return replace(spec, instant=instant)


def _unavailable(
    step: str, error: OSError | OutcomeUnknown, base: str, instant: str | None = None
) -> Unavailable:
    cause = str(error)
    if isinstance(error, OSError):
        cause = f"{error.strerror or error} ({error.filename or 'storage'})"
    return Unavailable(
        f"{step} failed: {cause}; nothing was"
        " published. Free space or restore access, then write all its batches again in a new transaction",
        table=base,
        instant=instant,
    )
