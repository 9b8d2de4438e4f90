"""The committer: turns what completed checkpoints wrote into commits, each exactly once, in any process.

Workers stage rows (``writers/staged_rows.py``) and send the *committables*, one line per staged file, to
Flink's own file sink. Its part files get their final names only after their checkpoint completed. From then
on Flink is not needed: a committer turns final part files into delta commits. It runs in a thread of the
job's client, in the next job, or in ``mainstem flink-commit``. Any number of committers may run at the same
time, in any processes.

Commits of a sink are numbered as batch *k* of the streaming guard ``flink/<sink>``. Each commit's metadata
names its part files. One round:

  1  find the newest committed batch k and the parts that it holds
  2  list the part files; those of k are in the table: put them away as in 8
  3  read the oldest of the others, up to a limit; a damaged one ends the round
  4  make the folder durable: names that appeared and names that were removed
  5  begin a transaction with the guard (``flink/<sink>``, k + 1)
  6  check that k is still the newest and the parts are still there; if not, abort and go to 1
  7  add the staged rows, part by part, and commit, with the parts' names in the metadata. The guard is
     checked under the lock: if another committer committed k + 1, abort and start the round again
  8  put the part files away: remove them, or on an object store replace them by blanks (``part_files``); then
     remove the staged files that they name, and the blanks of k

*A part is committed at most once.* The parts of batch j are removed or blank (in 8, or in 2 of the next
round), durably (4), before batch j + 1 begins. k is read before the listing, so the listing shows no rows of
a batch below k, and the parts of k are excluded by name. A committer of k + 1 made its listing while k was
the newest, because the guard refuses k + 1 once it exists. *No part is lost:* only parts without rows and
parts that the newest batch names are removed.

*Crashes:* after 5, the transaction is left behind and rolled back like any writer's. After 7, the next round
removes the parts (2). Within 8, staged files may remain that no part names; ``sweep`` removes them by age.
*A committer that stalls for an hour* and resumes in 2, 3 or 8 removes only parts that a commit holds, and
their staged files. In 5, the guard or 6 stops it. In 7, the guard stops it, or its transaction was rolled
back meanwhile and it starts again. No restore can begin while its transaction is open, and 6 notices an
earlier one, so rows that a restore took back do not return. *Two at once:* the later one waits for a while to
avoid wasted work. If both continue, one commits; the other aborts, finds the parts gone, and raises no error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from mainstem.api.table import Table
from mainstem.errors import CorruptTable, Invalid, MainstemError, RolledBack, Unavailable
from mainstem.flink.part_files import Part, PartFiles
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

PARTS_KEY = "mainstem.flink.parts"  # in commits of all releases: no module's name, never changes
_ROLLED_BACK_MAX = 3
# The longest time that a job may be down between a checkpoint and its restart.
ORPHAN_MS = 30 * 24 * 3600 * 1000
_SWEEP_EVERY_MS = 3600 * 1000
_FIRST_PAUSE_MS, _LAST_PAUSE_MS = 20, 500
_SLICE_MS = 50
_RETRY_MS = 500
_BYTES_PER_S = 50_000_000


def folders(table: Table, sink: str) -> tuple[str, str]:
    """Full paths of a sink's folders: for staged rows, and for committables (from Flink's file sink)."""
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
    """Commits what completed checkpoints of one sink wrote. Thread-safe.

    ``on_outcome`` is called after each commit, ``on_error`` for each error of the background thread; both in
    the committing thread.
    """

    #: how long to wait for a commit that another process has begun; longer for many bytes
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
        #: the last round's error, None after a round that succeeded
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
        """Commits every part file that has its final name; returns the commits, oldest first.

        Raises ``CorruptTable`` or ``Invalid`` for damaged committables and for staged rows that are missing
        or belong to another table; these are then neither committed nor removed. Other errors are those of
        ``Transaction``. Call again to continue.
        """
        with self._mutex.held:
            done: list[Outcome] = []
            undone = 0
            while True:
                try:
                    with self._trouble_told():
                        outcome = self._round()
                except RolledBack:
                    # This process stalled for longer than its heartbeat; another one may have taken over.
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
        """Names of part files that wait for their commit, oldest first."""
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
        self._parts.put_away([e.name for e in listed if e.name in newest.parts])
        parts = self._parts.read_oldest([e for e in listed if e.name not in newest.parts])
        if parts is None:
            return Outcome(ALREADY_COMMITTED)
        blank = [part.name for part in parts if not part.has_rows]
        self._parts.remove(blank)
        parts = [part for part in parts if part.has_rows]
        if not parts:
            return Outcome(EMPTY) if blank else None
        self._parts.settle()
        if self._others_at_it(parts):
            return self._wait_for_others()
        try:
            outcome = self._commit(newest, parts)
        except (CorruptTable, Invalid):
            # Another committer may have committed these parts and removed their rows meanwhile.
            if self._look() == newest and self._parts.are_there(parts):
                raise
            return Outcome(ALREADY_COMMITTED)
        if outcome.status == COMMITTED:
            with suppress(OSError):  # the next round removes them
                self._parts.put_away([part.name for part in parts])
                self._parts.remove([e.name for e in listed if e.name in newest.parts])
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
        """Whether another committer of the sink has begun (before instant ``own``) and may soon finish.

        If two commit the same parts, one works in vain. So the later one waits for as long as the commit
        should take, and then continues, whether the other is dead or only slow.
        """
        now = self._ctx.seams.clock.monotonic_ms()
        patience = self.patience_ms * (1 + sum(part.size for part in parts) / _BYTES_PER_S)
        begun = {time for time in self._begun() if time != own and (not own or time < own)}
        self._seen_ms = {time: self._seen_ms.get(time, now) for time in begun}
        return any(now - first < patience for first in self._seen_ms.values())

    def _begun(self) -> Iterator[str]:
        """Requested times of pending transactions of this sink's committers, by their inflight files."""
        for instant in self._ctx.timeline().pending:
            if instant.action == DELTACOMMIT:
                path = paths.timeline_file(f"{instant.requested}.{DELTACOMMIT}.{INFLIGHT}")
                # completed meanwhile, or another writer's
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
        """The newest committed batch, from a fresh listing of the timeline."""
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
        """Removes staged files of dead workers: older than ``age_ms``, and named by no part file.

        The storage's clock determines ages. Part files without their final name also protect what they name,
        unless they are older than ``age_ms`` themselves: Flink never removes those of failed attempts. So
        ``age_ms`` must exceed the time that a job may be down between a checkpoint and its restart. Returns
        the number of removed files.
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
        """Starts a thread that watches the folder and commits parts as they appear."""
        if self._thread is None:
            self._thread = Background(self._watch, every_s=_RETRY_MS / 1000)
        self._thread.start()
        return self

    def stop(self, timeout_s: float | None = 60.0) -> bool:
        """Stops the thread after the current commit; False if that takes longer than ``timeout_s``. Pending
        parts stay pending: call ``commit_pending`` for them."""
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
            except Exception as error:  # if the thread died silently, checkpoints would wait forever
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
    """A sink with folders in a table: its number of waiting part files, and all its staged files."""

    name: str
    parts: int
    staged_files: int
    staged_bytes: int


def sink_names(table: Table) -> list[str]:
    """Sinks that have folders in a table."""
    return sorted(map(paths.sink_name, table.writer_context().seams.storage.names(paths.SINKS)))


def sinks(table: Table) -> list[Sink]:
    """The sinks of a table by name, and what waits in each. Raises what ``Committer.pending`` raises."""
    storage = table.writer_context().seams.storage
    found = []
    for name in sink_names(table):
        staged = [e for e in storage.entries(paths.staged_folder(name)) if not e.is_folder]
        pending = len(Committer(table, name).pending())
        found.append(Sink(name, pending, len(staged), sum(e.size for e in staged)))
    return found
