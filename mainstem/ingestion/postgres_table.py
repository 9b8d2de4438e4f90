"""A table of PostgreSQL into a table, by logical decoding: each transaction once, whole.

  first     publication -> slot, which begins at an LSN and exports a snapshot of the table as it was there
            -> one commit: the snapshot's rows, and "read up to this LSN, of this slot"
  stream    ask the table where it stands -> the slot's changes from there -> collect whole
            transactions until a second has passed since the first one, or there is enough of them
  commit    one transaction of the table: the rows, guarded by where it stood and now stands
            (``writers/stream_positions``) -> the slot may forget what is before

The slot forgets only what is in the table: a process that dies is continued by any other from where the table
stands. Whatever goes wrong in between, the answer is the same: forget what was read, connect again, ask the
table where it stands. A slot belongs to the snapshot that it was made with, and the table names it: of two
processes that begin at once the one that commits first has its slot named, the other's is dropped.

TRUNCATE, where it is applied, is a commit that replaces all rows of the table, by those that came after it in
the same commit: what was read before it and not committed yet is forgotten.

Rows that do not fit the table end it, or go to a table of their own before the commit that passes them by. A
change's place there is its transaction and its number in it, which are the same whenever it is decoded; a row
of a snapshot, which another snapshot may read again, is known by its key.

A transaction that is larger than a commit may be is written while it comes, in a commit of its own: the Begin
of a decoded transaction says already where it commits, and so the commit's guard.
"""

from __future__ import annotations

import hashlib
import io
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from mainstem.errors import Invalid, MainstemError, OutcomeUnknown, Unavailable
from mainstem.ingestion import pgoutput
from mainstem.ingestion.dead_letters import DeadLetters
from mainstem.ingestion.debezium import ADDED, OPERATION
from mainstem.ingestion.ingest_progress import IngestProgress
from mainstem.ingestion.ingester import AGAIN, Pace
from mainstem.ingestion.postgres_changes import (
    change_rows,
    check_columns,
    check_identity,
    envelope,
    schema_of,
    snapshot_envelope,
    snapshot_rows,
)
from mainstem.ingestion.postgres_server import (
    SLOT_END,
    PostgresServer,
    Snapshot,
    SourceTable,
    WalStream,
    lsn_text,
)
from mainstem.ingestion.postgres_types import Misfit
from mainstem.ingestion.records import Bad, Records, Undecodable, in_parts, together
from mainstem.ingestion.target_table import TargetTable
from mainstem.merge.modes import FILL_UNAVAILABLE
from mainstem.merge.rules import merge_rules
from mainstem.options.tables import PARTIAL_UPDATES, UNAVAILABLE
from mainstem.writers.outcome import COMMITTED, Outcome
from mainstem.writers.stream_positions import StreamPositions

_log = logging.getLogger(__name__)

#: what to do about TRUNCATE
APPLY, SKIP, FAIL = "apply", "skip", "fail"
#: the one partition of a log
WAL = "wal"
# So many changes become columns together.
_CHUNK = 50_000
_CHUNK_BYTES = 32 << 20
_READ_BYTES = 4 << 20
_WAIT_S = 0.05
# The catalog is asked so often whether the table is still the same.
_LOOK_S = 5.0
# A log that tells nothing of this table is passed over in steps of so many bytes, so that the server can
# forget it.
_PASS_BYTES, _PASS_S = 16 << 20, 30.0
# As Hudi keeps tables of PostgresDebeziumAvroPayload, of version 9 (HoodieTableConfig: merge properties).
_KEEPS = {PARTIAL_UPDATES.name: FILL_UNAVAILABLE, UNAVAILABLE.names[-1]: "__debezium_unavailable_value"}
# A row of a snapshot has at most so many bytes.
_ROW_BYTES = 32 << 20


@dataclass
class _Dead:
    """Rows that do not fit, as JSON, and how they are named."""

    records: Records = field(default_factory=Records)
    names: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(self, name: str, lsn: int, time_us: int, told: tuple[bytes, bytes], why: str) -> None:
        key, value = told
        self.records.extend(Records([key], [value], [WAL], [lsn], [time_us // 1000]))
        self.names.append(name)
        self.reasons.append(why)

    def append(self, later: _Dead) -> None:
        self.records.extend(later.records)
        self.names += later.names
        self.reasons += later.reasons


@dataclass
class _Held:
    """Changes that were read and not committed yet; of each transaction, how many, its LSN and time, and the
    number of the first one in it."""

    raw: list[bytes] = field(default_factory=list)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    dead: _Dead = field(default_factory=lambda: _Dead())
    changes: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    #: they follow a TRUNCATE
    emptied: bool = False
    #: a part of them is written already
    begun: bool = False

    def __bool__(self) -> bool:
        return self.changes > 0 or self.emptied

    @property
    def many(self) -> bool:
        """Whether it is time to make columns of them."""
        return len(self.raw) >= _CHUNK or self.raw_bytes >= _CHUNK_BYTES

    def append(self, later: _Held) -> None:
        self.raw += later.raw
        self.spans += later.spans
        self.tables += later.tables
        self.dead.append(later.dead)
        self.changes += later.changes
        self.bytes += later.bytes
        self.raw_bytes += later.raw_bytes


class PostgresIngester:
    """One table of a server. Any number of processes may do this; one of them reads, the others wait."""

    def __init__(
        self,
        target: TargetTable,
        dsn: str,
        table: str,
        *,
        source: str,
        pace: Pace | None = None,
        fill: bool = False,
        dead: DeadLetters | None = None,
        on_truncate: str = FAIL,
        on_progress: Callable[[IngestProgress], None] = lambda progress: None,
        sleep_s: Callable[[float], None] = time.sleep,
    ) -> None:
        self._target, self._dsn, self._table, self._source = target, dsn, table, source
        self._pace, self._fill, self._on_progress, self._sleep_s = pace or Pace(), fill, on_progress, sleep_s
        self._dead, self._on_truncate = dead, on_truncate
        name = hashlib.sha256(f"{target.base}\0{source}".encode()).hexdigest()[:16]
        #: the publication's name, with which those of slots begin
        self.prefix = self._publication = f"mainstem_{name}"
        self._server: PostgresServer | None = None
        self._stream: WalStream | None = None
        self._rows = self._commits = self._tries = 0
        self._position = 0
        #: LSN of a transaction, and how many times it empties the table: what it did before is not read
        self._voids = (0, 0)
        self._about: dict[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        """What was read and not committed."""
        self._done, self._now = _Held(), _Held()
        self._since = 0.0
        self._end_lsn = 0
        self._lsn = self._time_us = 0
        self._skipped = self._void = False
        self._number = self._emptied = 0
        self._known: pa.Schema | None = None
        self._relation: pgoutput.Relation | None = None
        self._schema = pa.schema([])

    # -- the loop --------------------------------------------------------------------------------

    def run(self, stopping: Callable[[], bool] = lambda: False, *, once: bool = False) -> int:
        """Until ``stopping()``, or ``once`` until all that is committed there now is in the table; returns
        the rows.

        Raises ``Invalid`` and ``Unsupported`` for what only a person can decide.
        """
        while not stopping():
            try:
                self._session(stopping, once)
                break
            except AGAIN as error:
                self._tries += 1
                pause_s = self._pace.pause_s(self._tries, error)
                _log.warning("%s: %s; it is read again from where the table stands", self._source, error)
                self._sleep_s(pause_s)
            finally:
                self._forget()
                for connected in (self._stream, self._server):
                    if connected is not None:
                        connected.close()
                self._stream = self._server = None
        return self._rows

    def _session(self, stopping: Callable[[], bool], once: bool) -> None:
        """From one connection to its end."""
        server = self._server = PostgresServer(self._dsn)
        table = server.table(self._table)
        self._target.suggest_key(table.primary_key)
        self._check_table()
        if not self._target.positions(self._source).instant:
            self._first(server, table)
        slot = self._stand(server, table)
        stream = self._stream = WalStream(self._dsn, slot, self._publication, self._position)
        until = server.log_end()
        passed_s = looked_s = time.monotonic()
        while not stopping():
            self._read(stream, _READ_BYTES)
            now_s = time.monotonic()
            if self._since and not stream.open and self._due(now_s, once and stream.received >= until):
                self._commit()
            elif self._too_much(self._now):
                self._commit_large(stream)
            if now_s - looked_s > _LOOK_S:
                looked_s = now_s
                self._look(server, table)
            if self._since or stream.open:
                continue
            ended = once and stream.received >= until
            behind = stream.received - self._position
            if behind > _PASS_BYTES and (ended or now_s - passed_s > _PASS_S):
                passed_s = now_s
                self._write(stream.received, lambda: iter(()), self._schema)
            if ended:
                break
            if once:
                stream.tell(self._position, ask=True)
        if self._done:
            self._commit()

    def _due(self, now_s: float, ended: bool) -> bool:
        return ended or now_s >= self._since + self._pace.every_s or self._too_much(self._done)

    def _too_much(self, held: _Held) -> bool:
        return held.changes > 0 and (held.changes >= self._pace.rows or held.bytes >= self._pace.bytes)

    # -- where it stands -------------------------------------------------------------------------

    def _check_table(self) -> None:
        table = self._target.table
        if table is not None and merge_rules(table.config.raw).delete_field != OPERATION:
            raise Invalid(
                f"the table does not know deletes by column {OPERATION}, as one that is made by this does;"
                " ingest into a new table",
                table=self._target.base,
            )

    def _marker(self) -> str | None:
        """The value that means "keep the older value" in the table."""
        table, properties = self._target.table, self._target.properties
        if table is None:
            keeps = properties.get(PARTIAL_UPDATES.name) == FILL_UNAVAILABLE
            return properties.get(UNAVAILABLE.names[-1]) if keeps else None
        rules = merge_rules(table.config.raw)
        return rules.unavailable if rules.partial == FILL_UNAVAILABLE else None

    def _of(self, table: SourceTable, slot: str) -> dict[str, str]:
        return {
            "system": table.system, "database": table.database, "table": str(table.relation.oid),
            "slot": slot,
        }  # fmt: skip

    def _stand(self, server: PostgresServer, table: SourceTable) -> str:
        """Ask the table where to go on, and the server whether it can; returns the slot."""
        found = self._target.positions(self._source)
        slot = found.about.get("slot", "")
        wanted = self._of(table, slot)
        for what in ("system", "database", "table"):
            if found.about.get(what) != wanted[what]:
                raise Invalid(
                    f"the table holds positions of {self._source!r} in another {what}"
                    f" ({found.about.get(what)!r}, this one is {wanted[what]!r}): another server, or the"
                    " table was dropped and created again. Name this stream otherwise (--source), and ingest"
                    " into a new table",
                    table=self._target.base,
                )
        self._about, self._position = dict(found.about), found.ends[WAL]
        self._publication = slot[:-SLOT_END]  # of the table's path when it was made
        server.check_published(self._publication, table)
        here = lsn_text(self._position)
        kept = {one.name: one for one in server.slots("mainstem_")}
        mine = kept.get(slot)
        anew = "Nothing was read. What is missing cannot be brought back: ingest into a new table"
        if mine is None or mine.lost or mine.confirmed > self._position:
            gone = "is gone" if mine is None else "lost its log (max_slot_wal_keep_size)"
            if mine is not None and not mine.lost:
                gone = f"begins at {lsn_text(mine.confirmed)} by now"
            raise Invalid(
                f"the table stands at {here}, and the server's slot {slot} {gone}. {anew}",
                table=self._target.base,
            )
        if server.log_end() < self._position:
            raise Invalid(
                f"the table stands at {here}, and the server's log ends at {lsn_text(server.log_end())}: the"
                f" server was restored to an earlier state. {anew}",
                table=self._target.base,
            )
        for one in kept.values():
            if one.name.startswith(f"{self._publication}_") and one.name != slot:
                server.drop_slot(one.name)
        return slot

    def _look(self, server: PostgresServer, table: SourceTable) -> None:
        """Whether the table is still the same: of one that was dropped the log says nothing."""
        now = server.table(self._table)
        if now.relation.oid != table.relation.oid:
            raise Invalid(
                f"{self._table} was dropped and created again; ingest it into a new table",
                table=self._target.base,
            )
        server.check_published(self._publication, now)

    # -- the first time --------------------------------------------------------------------------

    def _first(self, server: PostgresServer, table: SourceTable) -> None:
        """A slot, and the rows as they were where it begins, in one commit."""
        check_identity(table.relation, self._target.placing)
        server.publish(self.prefix, table)
        for one in server.slots(f"{self.prefix}_"):
            if not one.made_now:  # its process was killed before its commit
                server.drop_slot(one.name)
        before = time.monotonic()
        with Snapshot(self._dsn, self.prefix, table.sql_name) as snapshot:
            try:
                outcome, rows, dead = self._copy(server, snapshot)
            except OutcomeUnknown:
                raise  # the table may name this slot
            except MainstemError:
                server.drop_slot(snapshot.slot)  # the server would keep its log for nobody
                raise
        if outcome.status == COMMITTED:
            self._position = snapshot.lsn
            self._tell(outcome, rows, 0, before, dead)

    def _copy(self, server: PostgresServer, snapshot: Snapshot) -> tuple[Outcome, int, int]:
        """The rows of a snapshot, in one commit; how many, and how many do not fit."""
        table = server.table(self._table)  # nobody changes it now
        schema = schema_of(table.relation, server.type_of)
        placing = self._target.placing
        check_identity(table.relation, placing)
        if table.relation.identity != pgoutput.IDENTITY_FULL and {*table.long} - {*placing}:
            self._target.suggest_properties(_KEEPS)
        marker = self._marker()
        self._about = self._of(table, snapshot.slot)
        guard = StreamPositions(self._source, {WAL: None}, {WAL: snapshot.lsn}, about=self._about)
        time_us, rows, lsn = time.time_ns() // 1000, 0, snapshot.lsn - 1
        dead = _Dead()

        def parts() -> Iterator[pa.Table]:
            nonlocal rows, dead
            rows, dead = 0, _Dead()
            self._known = None
            for texts in _csv(snapshot.blocks(table), table.relation.names):
                def attempt(low: int, high: int, texts: pa.Table = texts) -> pa.Table:
                    return snapshot_rows(texts.slice(low, high - low), schema, lsn, time_us, marker)

                def refuse(at: int, why: str, texts: pa.Table = texts) -> None:
                    told = snapshot_envelope(texts, table.relation, at)
                    dead.add(f"snapshot-{told[0].decode()}", lsn, time_us, told, why)

                for made in self._fitting(texts.num_rows, attempt, refuse):
                    rows += made.num_rows
                    yield made
            self._bury(dead)

        outcome = self._target.write_parts(parts, schema, guard)
        return outcome, rows, len(dead.names)

    # -- read ------------------------------------------------------------------------------------

    def _read(self, stream: WalStream, most: int, *, one: bool = False) -> None:
        left_s = self._since + self._pace.every_s - time.monotonic() if self._since else _WAIT_S
        for message in stream.collect(most, min(max(left_s, 0.0), _WAIT_S), one=one):
            kind = message[0]
            now = self._now
            if kind in pgoutput.CHANGES:
                self._number += 1
                if not self._void:
                    now.raw.append(message)
                    now.changes += 1
                    now.bytes += len(message)
                    now.raw_bytes += len(message)
                    if now.many:
                        self._decode()
            elif kind == pgoutput.BEGIN:
                self._lsn, self._time_us = pgoutput.parse_begin(message)
                self._skipped = self._lsn < self._position
                self._void = self._skipped or self._lsn == self._voids[0]
                self._number = self._emptied = 0
            elif kind == pgoutput.COMMIT:
                if pgoutput.parse_commit(message) != self._lsn:
                    raise Invalid("PostgreSQL's stream ends a transaction that it did not begin")
                self._close()
            elif kind == pgoutput.RELATION:
                self._decode()
                self._have(pgoutput.parse_relation(message))
            elif kind == pgoutput.TRUNCATE and not self._skipped:
                self._truncated(message)

    def _truncated(self, message: bytes) -> None:
        """The transaction empties the table."""
        if int(self._about["table"]) not in pgoutput.parse_truncate(message):
            return
        at = lsn_text(self._lsn)
        if self._on_truncate == FAIL:
            raise Invalid(
                f"{self._table} was truncated (at {at}); nothing of that transaction was committed. If this"
                " table shall be emptied, too: --on-truncate apply; if its rows stay: --on-truncate skip",
                table=self._target.base,
            )
        if self._on_truncate == SKIP:
            _log.warning("%s was truncated (at %s); rows stay, as on_truncate says", self._table, at)
            return
        self._emptied += 1
        if self._now.begun:  # what came before is half written
            self._voids = self._lsn, self._emptied
            raise Unavailable(f"the transaction at {at} emptied the table after it had written much")
        lsn, times = self._voids
        self._void = self._lsn == lsn and self._emptied < times
        self._now = _Held(emptied=True)

    def _close(self) -> None:
        """The transaction is whole."""
        now = self._now
        if now.raw:
            now.spans.append((len(now.raw), self._lsn, self._time_us, self._number - len(now.raw)))
        if now.tables:
            self._decode()
        if now:
            if now.emptied:
                self._done = now
            else:
                self._done.append(now)
            self._end_lsn = self._lsn + 1
            self._since = self._since or time.monotonic()
            if self._done.many:
                self._decode()
        self._now = _Held()

    def _have(self, relation: pgoutput.Relation) -> None:
        """What follows has these columns."""
        assert self._server is not None
        check_identity(relation, self._target.placing)
        known = self._target.schema
        if known is not None:
            check_columns(relation, known, ADDED, fill=self._fill)
        self._relation = relation
        self._schema = schema_of(relation, self._server.type_of)

    def _decode(self) -> None:
        """Make columns of what was read since the last time."""
        for held in (self._done, self._now):
            if not held.raw:
                continue
            if self._relation is None:
                raise Invalid("PostgreSQL's stream holds changes before it says of which table")
            raw, held.raw, held.raw_bytes = held.raw, [], 0
            spans, held.spans = held.spans, []
            told = sum(count for count, *_ in spans)
            if (left := len(raw) - told) > 0:
                spans = [*spans, (left, self._lsn, self._time_us, self._number - left)]
            counts = [count for count, *_ in spans]
            lsns = np.repeat(np.array([lsn for _, lsn, _, _ in spans], np.int64), counts)
            times = np.repeat(np.array([at for _, _, at, _ in spans], np.int64), counts)
            self._typed(held, raw, lsns, times, spans)

    def _typed(
        self, held: _Held, raw: list[bytes], lsns: np.ndarray, times: np.ndarray,
        spans: list[tuple[int, int, int, int]],
    ) -> None:  # fmt: skip
        """Rows of ``raw`` into what is held."""
        relation, placing, marker = self._relation, self._target.placing, self._marker()
        assert relation is not None
        changes = pgoutput.read_changes(raw, relation)

        def attempt(low: int, high: int) -> pa.Table:
            of = changes if high - low == len(raw) else pgoutput.read_changes(raw[low:high], relation)
            part = slice(low, high)
            return change_rows(of, relation, self._schema, placing, lsns[part], times[part], marker)

        numbers: list[int] = []

        def refuse(at: int, why: str) -> None:
            if not numbers:
                numbers.extend(n for count, _, _, first in spans for n in range(first, first + count))
            lsn = int(lsns[at])
            told = envelope(changes, relation, at)
            held.dead.add(f"{WAL}-{lsn}-{numbers[at]}", lsn, int(times[at]), told, why)

        held.tables += self._fitting(len(raw), attempt, refuse)

    def _fitting(
        self,
        count: int,
        attempt: Callable[[int, int], pa.Table],
        refuse: Callable[[int, str], None],
    ) -> list[pa.Table]:
        """Tables of ``count`` rows, which ``attempt`` makes; those that do not fit are told to ``refuse``, if
        there is a place for them."""
        if self._dead is None:
            return [attempt(0, count)] if count else []
        if self._known is None:
            self._known = self._target.schema

        def fitted(low: int, high: int) -> pa.Table:
            try:
                rows, self._known = self._target.fit(attempt(low, high), self._known, fill=self._fill)
            except Misfit as error:
                raise Undecodable(error.why) from error
            except Invalid as error:
                raise Undecodable(error.message) from error
            return rows

        return [rows for _, _, rows in in_parts(count, fitted, refuse)]

    def _bury(self, dead: _Dead) -> None:
        if dead.names:
            assert self._dead is not None
            bad = [Bad(at, why) for at, why in enumerate(dead.reasons)]
            self._dead.write(dead.records, bad, dead.names)

    # -- commit ----------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Commit the transactions that are whole."""
        began = time.monotonic()
        self._decode()
        done, self._done, self._since = self._done, _Held(), 0.0
        try:
            parts = [together(done.tables)] if done.tables else []
        except Undecodable:  # a column changed its type: each part is fitted by itself
            parts = done.tables
        rows = sum(part.num_rows for part in parts)
        schema = parts[0].schema if parts else self._schema
        self._bury(done.dead)
        outcome = self._write(self._end_lsn, lambda: iter(parts), schema, emptied=done.emptied)
        self._tell(outcome, rows, done.bytes, began, len(done.dead.names))

    def _commit_large(self, stream: WalStream) -> None:
        """A transaction that is more than a commit holds at once: written while it comes."""
        if self._now.emptied:
            self._done = _Held()
            self._write(self._lsn, lambda: iter(()), self._schema, emptied=True)
        elif self._done:
            self._commit()
        began = time.monotonic()
        self._decode()
        calls, rows, size, dead = 0, 0, 0, 0
        self._now.begun = True

        def parts() -> Iterator[pa.Table]:
            nonlocal calls, rows, size, dead
            calls += 1
            if calls > 1:
                raise Unavailable("a transaction was half read when its write had to begin anew")
            while True:
                held = self._now if stream.open else self._done
                tables, held.tables = held.tables, []
                buried, held.dead = held.dead, _Dead()
                self._bury(buried)
                dead += len(buried.names)
                for table in tables:
                    rows += table.num_rows
                    yield table
                size += held.bytes
                held.bytes = held.changes = 0
                if not stream.open:
                    break
                self._read(stream, _READ_BYTES, one=True)
                self._decode()

        lsn = self._lsn
        outcome = self._write(lsn + 1, parts, self._schema)
        self._done, self._now, self._since = _Held(), _Held(), 0.0
        self._tell(outcome, rows, size, began, dead)

    def _write(
        self, lsn: int, rows: Callable[[], Iterator[pa.Table]], schema: pa.Schema, *, emptied: bool = False
    ) -> Outcome:
        """One commit up to ``lsn``, after which the slot may forget what is before."""
        assert self._stream is not None
        guard = StreamPositions(self._source, {WAL: self._position}, {WAL: lsn}, about=self._about)
        outcome = self._target.write_parts(rows, schema, guard, emptied=emptied)
        self._known = None
        if outcome.status != COMMITTED:
            raise Unavailable("another process committed these changes first")
        self._position = lsn
        self._stream.tell(lsn)
        return outcome

    def _tell(self, outcome: Outcome, rows: int, size: int, began: float, dead: int) -> None:
        self._tries = 0
        self._rows += rows
        self._commits += 1
        behind = 0 if self._stream is None else max(0, self._stream.received - self._position)
        progress = IngestProgress(
            self._source, outcome.instant or "", outcome.completion_time, rows, size, dead, self._rows,
            self._commits, time.monotonic() - began, {WAL: self._position}, {WAL: behind},
        )  # fmt: skip
        _log.info("%s", progress.describe())
        self._on_progress(progress)


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _csv(blocks: Iterator[bytes], names: list[str]) -> Iterator[pa.Table]:
    """Rows of CSV as PostgreSQL writes it (a null is nothing, an empty text is quoted), all values as
    text."""
    first = next(blocks, None)
    if first is None:
        return

    def whole() -> Iterator[bytes]:
        yield first
        yield from blocks

    places = [str(at) for at in range(len(names))]
    with io.BufferedReader(_Blocks(whole()), 1 << 20) as opened:
        try:
            yield from (
                pa.Table.from_batches([batch])
                for batch in pv.open_csv(
                    opened,
                    read_options=pv.ReadOptions(
                        block_size=_ROW_BYTES, column_names=places, use_threads=False
                    ),
                    parse_options=pv.ParseOptions(newlines_in_values=True),
                    convert_options=pv.ConvertOptions(
                        column_types=dict.fromkeys(places, pa.string()), null_values=[""],
                        strings_can_be_null=True, quoted_strings_can_be_null=False,
                    ),
                )
            )  # fmt: skip
        except pa.ArrowInvalid as error:
            raise Invalid(
                f"the snapshot does not parse: {error}; a row may have {_ROW_BYTES >> 20} MB"
            ) from error
