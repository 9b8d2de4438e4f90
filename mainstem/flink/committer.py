"""The committer: what checkpoints wrote becomes commits, each checkpoint once, whichever process does it.

Workers stage rows (``writers/staged_rows.py``) and send the *committables*, one line per staged file, to
Flink's own file sink, whose part files get their final names only after their checkpoint completed. From
there on no Flink is needed: the committer, a thread of the job's client, of the next job, or ``mainstem
flink-commit``, turns final part files into delta commits. Any number of committers may run at once, in any
processes.

Commits of a sink are numbered: batch *k* of the streaming guard ``flink/<sink>``. Each says in its metadata
which part files it holds. One round:

  1  look which batch k is the newest that is committed, and which parts it held
  2  list the part files; those that k held are in the table: remove them as in 8
  3  of the others take the oldest, up to a bound, and read them; a damaged one ends the round
  4  make the folder durable: names that appeared and names that went
  5  begin a transaction with the guard (``flink/<sink>``, k + 1)
  6  look again: k is still the newest, and the parts are still there; if not, abort and go to 1
  7  add the staged rows, part by part, and commit, with the parts' names in the metadata. Under the lock the
     guard is looked up: if somebody else committed k + 1, this transaction goes and the round starts again
  8  remove the part files, then the staged files that they name

*A part is committed at most once.* A part of batch j is removed (8, or 2 of whoever comes next), durably (4),
before batch j + 1 begins. k is read before the listing, so a listing shows no part of a batch below k, and
those of k are left out by name. Whoever commits k + 1 holds a listing that was made while k was the newest,
for the guard refuses k + 1 once it is there. *No part is forgotten:* only parts that the newest batch names,
and empty ones, are removed.

*A crash* after 5 leaves a transaction that is rolled back as any writer's; after 7 parts that the next round
removes (2); within 8 staged files that nobody names, which ``sweep`` removes by age. *A committer that slept
for an hour* and wakes up in 2, 3 or 8 removes only parts that a commit holds, and their staged files; in 5
the guard or 6 stops it, in 7 the guard does, or its transaction was rolled back meanwhile and it starts
again. While its transaction is open no restore can begin, and 6 sees one that came before, so that rows
which a restore took back do not return. *Two at once*: the later one stands back for a while, lest work be
wasted; if both go on, one commits, and the other aborts and finds the parts gone. Nobody is told of an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from mainstem.api.table import Table
from mainstem.errors import CorruptTable, Invalid, MainstemError, RolledBack, Unavailable
from mainstem.flink.parts import Part, PartFiles
from mainstem.forks import Mutex
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.services.background import Background
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT
from mainstem.writers.context import WriterContext
from mainstem.writers.outcome import ALREADY_COMMITTED, COMMITTED, EMPTY, Outcome
from mainstem.writers.stream_guard import GUARD_KEY, StreamGuard
from mainstem.writers.write_spec import UPSERT

PARTS_KEY = "mainstem.flink.parts"
_ROLLED_BACK_MAX = 3
# A job must not rest for longer than that between a checkpoint and its restart.
ORPHAN_MS = 30 * 24 * 3600 * 1000
_SWEEP_EVERY_MS = 3600 * 1000
_FIRST_PAUSE_MS, _LAST_PAUSE_MS = 20, 500
_SLICE_MS = 50
_RETRY_MS = 500
_BYTES_PER_S = 50_000_000


def folders(table: Table, sink: str) -> tuple[str, str]:
    """Full paths of a sink's folders: of staged rows, and of committables (for Flink's file sink)."""
    staged, committables = paths.staged_folder(sink), paths.committables_folder(sink)
    return f"{table.path}/{staged}", f"{table.path}/{committables}"


def identifier_of(sink: str) -> str:
    """The guard identifier under which a sink's commits are numbered."""
    return f"flink/{sink}"


@dataclass(frozen=True)
class _Newest:
    """The newest committed batch; number -1 if there is none."""

    batch_id: int
    instant: str
    parts: frozenset[str]


class Committer:
    """Commits what completed checkpoints of one sink wrote. May be used from several threads.

    ``on_outcome`` is called after each commit, ``on_error`` with each error of the thread; both from the
    thread that commits.
    """

    #: how long a commit that another process has begun is waited for, and a little more for its bytes
    patience_ms = 1000.0

    def __init__(
        self,
        table: Table,
        sink: str,
        *,
        on_outcome: Callable[[Outcome], None] | None = None,
        on_error: Callable[[MainstemError], None] | None = None,
    ) -> None:
        self.sink = sink
        #: the last round's error, None after one that went well
        self.error: MainstemError | None = None
        self._table = table
        self._parts = PartFiles(table.writer_context().seams.storage, sink)
        self._identifier = identifier_of(sink)
        self._on_outcome = on_outcome
        self._on_error = on_error
        self._mutex = Mutex()
        self._newest: _Newest | None = None
        self._thread: Background | None = None
        self._swept_ms: float | None = None
        #: when pending transactions of others were first seen
        self._seen_ms: dict[str, float] = {}

    # -- rounds ----------------------------------------------------------------------------------

    def commit_pending(self) -> list[Outcome]:
        """Commit every part file that has its final name; returns the commits, oldest first.

        Raises ``CorruptTable`` or ``Invalid`` for damaged committables, for staged rows that are missing or
        of another table: nothing of them is committed then, and nothing removed. Other errors as of
        ``Transaction``; calling again goes on.
        """
        with self._mutex.held:
            done: list[Outcome] = []
            undone = 0
            while True:
                try:
                    with self._trouble_told():
                        outcome = self._round()
                except RolledBack:
                    # This process stood still for longer than its heartbeat: others may have gone on.
                    undone += 1
                    if undone > _ROLLED_BACK_MAX:
                        raise
                    continue
                if outcome is None:
                    return done
                if outcome.status == COMMITTED:
                    undone = 0
                    done.append(outcome)
                    if self._on_outcome is not None:
                        self._on_outcome(outcome)

    def pending(self) -> list[str]:
        """Names of part files that are to be committed, oldest first."""
        with self._trouble_told():
            committed = self._look().parts
            return [entry.name for entry in self._parts.listed() if entry.name not in committed]

    @contextmanager
    def _trouble_told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"the part files of sink {self.sink!r} cannot be used: {error}; nothing is lost, try again",
                table=self._table.path,
            ) from error

    def _round(self) -> Outcome | None:
        """One pass through the steps; None if there was nothing to commit."""
        newest = self._look()
        listed = self._parts.listed()
        self._parts.remove([e.name for e in listed if e.name in newest.parts])
        parts = self._parts.read_oldest([e for e in listed if e.name not in newest.parts])
        if parts is None:
            return Outcome(ALREADY_COMMITTED)
        blank = [part.name for part in parts if not part.committables]
        self._parts.remove(blank)
        parts = [part for part in parts if part.committables]
        if not parts:
            return Outcome(EMPTY) if blank else None
        self._parts.settle()
        if self._others_at_it(parts):
            return self._wait_for_others()
        try:
            outcome = self._commit(newest, parts)
        except (CorruptTable, Invalid):
            # Somebody else may have committed these parts and removed their rows in the meantime.
            if self._parts.are_there(parts):
                raise
            return Outcome(ALREADY_COMMITTED)
        if outcome.status == COMMITTED:
            with suppress(OSError):  # the next round does it
                self._parts.remove([part.name for part in parts])
        return outcome

    def _commit(self, newest: _Newest, parts: list[Part]) -> Outcome:
        operations = {one.operation for part in parts for one in part.committables}
        names = [part.name for part in parts]
        txn = self._table.begin(
            operations.pop() if len(operations) == 1 else UPSERT,
            guard=StreamGuard(self._identifier, newest.batch_id + 1),
            extra_metadata={PARTS_KEY: json.dumps(names)},
        )
        with txn:
            if txn.already_committed or self._look() != newest or not self._parts.are_there(parts):
                return Outcome(ALREADY_COMMITTED)
            if self._others_at_it(parts, txn.instant):
                txn.abort()
                return self._wait_for_others()
            for part in parts:
                txn.add_staged(part.lines, source=self._parts.path(part.name))
            return txn.commit()

    # -- others ----------------------------------------------------------------------------------

    def _others_at_it(self, parts: list[Part], own: str = "") -> bool:
        """Whether another committer of the sink has begun (before ``own``) and may soon be done.

        Two that commit the same parts waste the work of one. So the later one stands back for as long as the
        commit may take; then it goes on, whether the other is dead or only slow.
        """
        now = self._ctx.seams.clock.monotonic_ms()
        patience = self.patience_ms * (1 + sum(part.size for part in parts) / _BYTES_PER_S)
        begun = {time for time in self._begun() if time != own and (not own or time < own)}
        self._seen_ms = {time: self._seen_ms.get(time, now) for time in begun}
        return any(now - first < patience for first in self._seen_ms.values())

    def _begun(self) -> Iterator[str]:
        """Pending transactions of this sink's committers, as their inflight files say."""
        for instant in self._ctx.timeline().pending:
            if instant.action == DELTACOMMIT:
                path = paths.timeline_file(f"{instant.requested}.{DELTACOMMIT}.{INFLIGHT}")
                # gone, or somebody else's
                with suppress(FileNotFoundError, CorruptTable, ValueError, RecursionError):
                    data = self._ctx.seams.storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
                    guard = json.loads(decode_commit(data, path=path).extra.get(GUARD_KEY, "null"))
                    if isinstance(guard, list) and guard[:1] == [self._identifier]:
                        yield instant.requested

    def _wait_for_others(self) -> Outcome:
        self._ctx.seams.clock.sleep_ms(_FIRST_PAUSE_MS)
        return Outcome(ALREADY_COMMITTED)

    # -- what is there ---------------------------------------------------------------------------

    @property
    def _ctx(self) -> WriterContext:
        return self._table.writer_context()

    def _look(self) -> _Newest:
        """The newest committed batch, by a listing that is made now."""
        ctx = self._ctx
        timeline = ctx.timeline()
        ctx.guards.prepare(StreamGuard(self._identifier, 0), timeline)
        found = ctx.guards.newest(self._identifier, timeline)
        if found is None:
            return _Newest(-1, "", frozenset())
        batch_id, instant = found
        if self._newest is None or self._newest.instant != instant:
            extra = ctx.guards.extra_metadata(instant, timeline)
            self._newest = _Newest(batch_id, instant, _part_names(extra, instant))
        return self._newest

    # -- orphans ---------------------------------------------------------------------------------

    def sweep(self, age_ms: int = ORPHAN_MS) -> int:
        """Remove staged files of workers that died: older than ``age_ms``, and named by no part file.

        Ages are told by the store's clock. Part files without their final names count too unless they are
        older than that themselves: Flink leaves those of failed attempts for good. So ``age_ms`` must be
        longer than a job may rest between a checkpoint and its restart. Returns how many went.
        """
        with self._trouble_told():
            return self._parts.sweep(age_ms)

    def _sweep_if_due(self) -> None:
        now = self._ctx.seams.clock.monotonic_ms()
        if self._swept_ms is None or now - self._swept_ms > _SWEEP_EVERY_MS:
            self._swept_ms = now
            self.sweep()

    # -- the thread ------------------------------------------------------------------------------

    def start(self) -> Committer:
        """Watch the folder in a thread of this process and commit as parts come."""
        if self._thread is None:
            self._thread = Background(self._watch, every_s=_RETRY_MS / 1000)
        self._thread.start()
        return self

    def stop(self, timeout_s: float | None = 60.0) -> bool:
        """End after the commit under way; False if that takes longer. What is pending stays pending: call
        ``commit_pending`` for it."""
        return self._thread is None or self._thread.stop(timeout_s)

    def _watch(self, stopping: Callable[[], bool]) -> bool:
        clock = self._ctx.seams.clock
        busy_ms = clock.monotonic_ms()
        while not stopping():
            try:
                with self._trouble_told():
                    found = self._parts.any()
                if found and self.commit_pending():
                    busy_ms = clock.monotonic_ms()
                self._sweep_if_due()
                self.error = None
            except Exception as error:  # a thread that ends without a word would leave checkpoints waiting
                self._tell(error)
                return True
            idle_ms = clock.monotonic_ms() - busy_ms
            self._rest(stopping, min(_LAST_PAUSE_MS, max(_FIRST_PAUSE_MS, idle_ms / 20)))
        return False

    def _tell(self, error: Exception) -> None:
        if not isinstance(error, MainstemError):
            error = Unavailable(
                f"the committer of sink {self.sink!r} failed unexpectedly ({error!r}); it goes on trying",
                table=self._table.path,
            )
        self.error = error
        if self._on_error is not None:
            self._on_error(error)

    def _rest(self, stopping: Callable[[], bool], pause_ms: float) -> None:
        while pause_ms > 0 and not stopping():
            self._ctx.seams.clock.sleep_ms(min(pause_ms, _SLICE_MS))
            pause_ms -= _SLICE_MS


def _part_names(extra: dict[str, str], instant: str) -> frozenset[str]:
    try:
        names = json.loads(extra[PARTS_KEY])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("no list of names")
        return frozenset(names)
    except (KeyError, ValueError, RecursionError) as error:
        raise CorruptTable(
            f"the commit does not say which part files it holds ({PARTS_KEY}: {error})", instant=instant
        ) from error


@dataclass(frozen=True)
class Sink:
    """A sink that has folders in a table: part files that wait for their commit, and all staged files."""

    name: str
    parts: int
    staged_files: int
    staged_bytes: int


def sink_names(table: Table) -> list[str]:
    """Sinks that have folders in a table."""
    return sorted(map(paths.sink_name, table.writer_context().seams.storage.names(paths.SINKS)))


def sinks(table: Table) -> list[Sink]:
    """The sinks of a table, by name, and what waits in each; errors as of ``Committer.pending``."""
    storage = table.writer_context().seams.storage
    found = []
    for name in sink_names(table):
        staged = [e for e in storage.entries(paths.staged_folder(name)) if not e.is_folder]
        pending = len(Committer(table, name).pending())
        found.append(Sink(name, pending, len(staged), sum(e.size for e in staged)))
    return found
