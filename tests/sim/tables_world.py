"""Scenario ``tables``: writers, streams, readers and a rollback-er at work on one table.

All of it is production code over simulated seams; the intents recorded here are what the checkers hold
against the disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from mainstem.api import create
from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError, OutcomeUnknown, RolledBack, Unavailable
from mainstem.layout.properties import load_config
from mainstem.writers.outcome import Outcome
from mainstem.writers.stream_guard import StreamGuard
from tests.sim import plain_format
from tests.sim.checkers import Audit, is_lost, same_rows
from tests.sim.compactor import Compactor
from tests.sim.ledger import group_of
from tests.sim.oracle import MODES, Intent, Mode, Row
from tests.sim.service_rules import Retention, ServiceRules
from tests.sim.simulation import EXPECTED, Simulation
from tests.sim.vanishing import files_vanish
from tests.sim.world import INTERRUPTS, Process, Violation, is_interrupt

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("a", pa.string()),
        ("b", pa.string()),
    ]
)
HEARTBEAT_MS = 1000
MISSES = 2
# Interval and misses of processes that were given others than the table says.
HEARTBEATS = ((300, 2), (HEARTBEAT_MS, 1), (HEARTBEAT_MS, MISSES), (3000, 2), (2000, 5))
#: a compactor makes no more, since others take back each one
_TAKEN_BACK_MAX = 40


class Tables(Simulation):
    """One table of a mode that the seed draws; 2-4 writers, one or two streams, readers."""

    scenario = "tables"
    schema = SCHEMA
    busy_calls = 2500
    buckets = 2
    keys = 6  # that everybody writes
    always_compacting = False
    compacts = True
    #: deletes, equal ordering values and every merge mode beside compactions (the ledger knows Java's rule)
    late_rows = False
    event_time_only = False
    given: Mapping[str, str] = {}  # options with which processes open the table
    strangers = False  # another kind of writer takes part
    modes: Sequence[str] = sorted(MODES)
    folders: Sequence[list[str]] = (["x"], ["x", "y"])
    version = 9
    sorted = False  # whether the table is an LSM tree
    retention: Retention | None = None

    def build(self) -> None:
        rng = self.random
        only_event = self.event_time_only or (self.always_compacting and not self.late_rows)
        self.mode: Mode = self.merging(MODES["event" if only_event else rng.choice(self.modes)])
        self.exclusive = rng.random() < 0.6
        self.compacting = self.late_rows or (
            self.mode.event_time and (self.always_compacting or rng.random() < 0.6)
        )
        self.compacting = self.compacting and self.compacts
        self.partitions = rng.choice(self.folders)
        self.intents: list[Intent] = []
        self.settling = False
        self.checkpoints: dict[str, int] = {}
        self.rewinds = 0  # how often sources of streams were set back
        self.numbers = 0
        self._create()
        for folder in list(self.disk.folders):
            self.disk.sync_folder(folder)
        self.watch.rules = self.rules = self._rules()
        self.audit = Audit(self.watch, self.mode, self.intents)
        self.left = {f"w{n}": rng.choice([2, 3, 4]) for n in range(rng.choice([2, 2, 3, 4]))}
        for name in self.left:
            self.start(name, self._writer)
        self.batches = {f"s{n}": rng.choice([2, 3]) for n in range(rng.choice([0, 1, 1, 2]))}
        for name in self.batches:
            self.checkpoints[name] = 0
            self.start(name, self._stream)
            if rng.random() < 0.3:
                self.start(name + "'", self._stream)  # a second live driver on one checkpoint
        self.compactions = rng.choice([1, 2, 3]) + 3 * self.always_compacting
        if self.compacting:
            self.start("compactor", self._compactor)
            if self._ours_compact() and random.Random(f"{self.seed}/compactors").random() < 0.5:
                self.start("compactor'", self._compactor)
        self._background()

    def merging(self, mode: Mode) -> Mode:
        """The mode as the scenario's tables have it."""
        return mode

    def _rules(self) -> ServiceRules:
        return ServiceRules(self.disk, self.base, self.mode, self.retention)

    def _create(self) -> None:
        properties = {
            "hoodie.mainstem.exclusive": str(self.exclusive).lower(),
            "hoodie.client.heartbeat.interval_in_ms": str(HEARTBEAT_MS),
            "hoodie.client.heartbeat.tolerable.misses": str(MISSES),
        }
        if self.mode.partial:
            properties["hoodie.table.partial.update.mode"] = "IGNORE_DEFAULTS"
        merge = "EVENT_TIME_ORDERING" if self.mode.event_time else "COMMIT_TIME_ORDERING"
        properties["hoodie.record.merge.mode"] = merge
        properties.update(self.more_properties())
        order = ["ts"] if self.mode.event_time else []
        raw = create.new_properties(
            self.base, self.schema, ["id"], order, ["part"], self.buckets, self.version, properties,
            "simulated",
        )  # fmt: skip
        create.put_table(self.seams(self.world.process("builder")), raw)

    def more_properties(self) -> dict[str, str]:
        """Properties of the table that a scenario adds."""
        return {}

    def no_rest(self) -> dict[str, str]:
        """On a store, archiving that does not wait for half an hour."""
        return {"hoodie.mainstem.archive.rest_ms": "0"} if self.body == "store" else {}

    def _background(self) -> None:
        rng = self.random
        if rng.random() < 0.6:
            self.start("janitor", self._janitor, counted=False)
        if rng.random() < 0.6:
            self.start("snapshots", self._snapshots, counted=False)
        self.windows: dict[str, str] = {}
        if self.always_compacting or rng.random() < 0.6:
            self.start("increments", self._increments, counted=False)
        rate = self.world.faults.lock_removed_by_hand
        if rate:
            self.world.after(rng.expovariate(rate) * 1000, self._operator)

    def _operator(self) -> None:
        """Somebody removes the lock by hand, believing that its holder is dead."""
        rate = self.world.faults.lock_removed_by_hand
        if rate:
            self.lock.lose("removed by hand")
            self.world.after(self.random.expovariate(rate) * 1000, self._operator)

    def heartbeat(self, process: Process) -> dict[str, str]:
        """How often a process's hearts beat: each as the table says, or in half of the seeds as it likes."""
        paces = random.Random(f"heartbeats of {self.scenario}/{self.seed}")
        interval_ms, misses = HEARTBEAT_MS, MISSES
        if paces.random() < 0.5:
            own = random.Random(f"{paces.random()}/{process.name.strip(chr(39))}")
            interval_ms, misses = own.choice(HEARTBEATS)
        process.silent_ms = interval_ms * misses
        return {
            "hoodie.client.heartbeat.interval_in_ms": str(interval_ms),
            "hoodie.client.heartbeat.tolerable.misses": str(misses),
        }

    def open(self, process: Process) -> Table:
        properties = {
            **self.more_properties(),  # those of services are a writer's, which no table keeps
            **self.heartbeat(process),
            **self.given,
            **self.small_logs(),
            **self.row_order(process),
        }
        seams = self.seams(process)
        return Table(seams, load_config(seams.storage), properties)

    def row_order(self, process: Process) -> dict[str, str]:
        """In half of the processes, an order in which their compactions write rows; no answer may change."""
        rng = random.Random(f"{self.seed}/{process.name}/order")
        if rng.random() < 0.5:
            return {}
        return {
            "hoodie.clustering.plan.strategy.sort.columns": "v,ts",
            "hoodie.layout.optimize.strategy": rng.choice(["linear", "z-order", "hilbert"]),
        }

    def small_logs(self) -> dict[str, str]:
        """Log files that roll over within a transaction, in the seeds that have them."""
        option = "hoodie.logfile.max.size" if self.version < 10 else "hoodie.parquet.max.file.size"
        return {option: str(self.log_bytes_max)} if self.log_bytes_max else {}

    def _patiently(self, process: Process, work: Callable[[], Any]) -> Any:
        """Repeat what faults interrupt; whatever else is raised is a finding."""
        while True:
            try:
                return work()
            except (*EXPECTED, OSError):
                self.world.counts.refused += 1
                self.pause_between(process, 200)
            except INTERRUPTS as error:
                self.interrupted(error)

    # -- rows ---------------------------------------------------------------------------------------

    def _rows(self, rng: random.Random, writer: str, count: int) -> list[Row]:
        """Rows on keys that everybody writes; each value tells which write it is of."""
        rows = []
        for _ in range(count):
            self.numbers += 1
            mark = f"{writer}:{self.numbers}"
            row: Row = {
                "id": f"k{rng.randrange(self.keys)}",
                "part": rng.choice(self.partitions),
                "ts": self._ordering(rng),
                "v": mark,
                "a": mark,
                "b": mark,
            }
            if self.mode.partial:  # each writer owns one column
                owned = "a" if int(writer.strip("ws'")) % 2 else "b"
                row.update(ts=None, v=None, a=None, b=None)
                row[owned] = mark
            rows.append(row)
        return rows

    def _ordering(self, rng: random.Random) -> int:
        if self.late_rows:
            return rng.randrange(20)
        return rng.randrange(1000) * 1_000_000 + self.numbers * self.compacting

    def _tracer(self, intent: Intent, rng: random.Random) -> Row:
        """A row on a key of its own, by which an incremental window shows the transaction."""
        row = self._rows(rng, intent.writer, 1)[0]
        row["id"] = f"t{intent.instant}"
        return row

    # -- writers ------------------------------------------------------------------------------------

    def _writer(self, process: Process) -> None:
        name = process.name
        table = self._patiently(process, lambda: self.open(process))
        while self.left[name] > 0:
            self.left[name] -= 1
            self._gate(process)
            rng = self.random
            kind = rng.choice(["upsert"] * 6 + ["delete", "empty", "abort", "two"])
            if kind == "delete" and self.compacting and not self.late_rows:
                kind = "upsert"  # a compaction forgets deletes, also in Java (protocols T39)
            if self.mode.partial and kind == "upsert" and rng.random() < 0.5:
                kind = "update_columns"
            try:
                if kind == "two":
                    self._two_open(process, table)
                else:
                    self._transaction(process, table, kind)
            except MainstemError as error:
                self._accept(error)
            except INTERRUPTS as error:
                self.interrupted(error)
            except OSError as error:
                raise Violation("an error that says what to do", repr(error)) from error
            self.pause_between(process, 300)

    def _gate(self, process: Process) -> None:
        """Where a scenario holds writers back between two transactions."""

    def _accept(self, error: MainstemError) -> None:
        spoilt = isinstance(error, Invalid) and any(intent.spoilt for intent in self.intents)
        if not spoilt and not isinstance(error, (*EXPECTED, RolledBack, OutcomeUnknown)):
            raise error
        self.world.counts.refused += 1

    def _begin(self, table: Table, name: str, kind: str, **options: Any) -> tuple[Any, Intent]:
        txn = table.begin(kind, **options)
        intent = Intent(name, txn.instant)
        self.intents.append(intent)
        self.audit.intents[intent.instant] = intent
        return txn, intent

    def _fill(self, process: Process, txn: Any, intent: Intent, kind: str) -> None:
        rng = self.random
        for number in range(rng.choice([1, 1, 2])):
            rows = self._rows(rng, intent.writer, rng.choice([1, 2, 4]))
            if number == 0 and kind != "delete":
                rows.append(self._tracer(intent, rng))
            self._write(txn, intent, kind, rows)
            self.pause_between(process, 50)

    def _write(self, txn: Any, intent: Intent, kind: str, rows: list[Row]) -> None:
        if kind == "delete":
            seen = {(row["part"], row["id"]): row for row in rows}
            rows = [{"id": row["id"], "part": row["part"]} for row in seen.values()]
            schema = pa.schema([self.schema.field("id"), self.schema.field("part")])
        elif kind == "update_columns":
            owned = "a" if rows[0]["a"] is not None else "b"
            schema = pa.schema([self.schema.field(n) for n in ("id", "part", owned)])
        else:
            schema = self._schema_of(rows)
        batch = pa.Table.from_pylist(
            [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
        )
        self.appended(intent, [(kind, row) for row in rows], lambda: txn.write(batch))

    def appended(self, intent: Intent, operations: list[tuple[str, Row]], write: Callable[[], Any]) -> None:
        """Write; what a write was refused for is not meant to be in the transaction, whatever comes next.

        An actor without manners goes on with the transaction: it writes the same again, or does not.
        """
        while True:
            intent.operations += operations
            try:
                write()
                return
            except (MainstemError, *INTERRUPTS) as error:
                del intent.operations[len(intent.operations) - len(operations) :]
                if not self._goes_on(intent, error):
                    raise
            if intent.stream is None and self.manners.random() < 0.5:
                return  # what a stream leaves out is lost by itself

    def _goes_on(self, intent: Intent, error: BaseException) -> bool:
        """Whether an actor goes on with a transaction that has just raised this error."""
        simulated = isinstance(error, (MainstemError, OSError)) or is_interrupt(error)
        spoilt = simulated and self.manners.random() < self.world.faults.impolite
        intent.spoilt = intent.spoilt or spoilt
        return spoilt

    def _schema_of(self, rows: list[Row]) -> pa.Schema:
        return self.schema

    def _commit(self, txn: Any, intent: Intent) -> str:
        """Commit and note what the writer was told; without manners again and again, or abort then."""
        while True:
            try:
                return self.told(txn.commit, intent).status
            except (MainstemError, OSError, *INTERRUPTS) as error:
                if isinstance(error, Invalid) or not self._goes_on(intent, error):
                    raise
            if self.manners.random() < 0.3:
                txn.abort()

    def told(self, commit: Callable[[], Outcome], intent: Intent) -> Outcome:
        """``commit()``, whose outcome decides the fate of ``intent``."""
        try:
            outcome = commit()
        except (OutcomeUnknown, *INTERRUPTS):
            intent.fate = "unknown"
            raise
        except (MainstemError, OSError) as error:
            # Once it is unknown, only who says that nothing of it is visible takes that back.
            if intent.fate != "unknown" or isinstance(error, RolledBack):
                intent.fate = "failed"
            raise
        if outcome.instant == intent.instant and outcome.status in ("committed", "already_committed"):
            intent.fate = "committed"
            self.world.counts.commits += 1
        else:
            intent.fate = "failed"  # this instant; an earlier one may hold the rows
        return outcome

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        operation = kind if kind in ("delete", "update_columns") else "upsert"
        txn, intent = self._begin(table, process.name, operation)
        with txn:
            if kind != "empty":
                self._fill(process, txn, intent, operation)
            if kind == "abort":
                intent.fate = "failed"
                txn.abort()
            else:
                self._commit(txn, intent)

    def _two_open(self, process: Process, table: Table) -> None:
        """Two transactions of one process, completed in either order."""
        first, first_intent = self._begin(table, process.name, "upsert")
        with first:
            second, second_intent = self._begin(table, process.name, "upsert")
            with second:
                self._fill(process, first, first_intent, "upsert")
                self._fill(process, second, second_intent, "upsert")
                self._commit(second, second_intent)
            self._commit(first, first_intent)

    # -- streams ------------------------------------------------------------------------------------

    def _stream(self, process: Process) -> None:
        """A driver: micro-batches in order, two writes each, replayed from a checkpoint that is safe."""
        name = process.name.rstrip("'")
        table = self._patiently(process, lambda: self.open(process))
        while self.checkpoints[name] < self.batches[name]:
            self._gate(process)
            batch, rewinds = self.checkpoints[name], self.rewinds
            try:
                for ordinal in (0, 1):
                    self._stream_write(table, name, batch, ordinal, rewinds)
                    self.pause_between(process, 30)
                if rewinds == self.rewinds:
                    self.checkpoints[name] = max(self.checkpoints[name], batch + 1)
            except MainstemError as error:
                self._accept(error)
                self.pause_between(process, 300)
            except INTERRUPTS as error:
                self.interrupted(error)
            except OSError as error:
                raise Violation("an error that says what to do", repr(error)) from error

    def _set_back(self, rewinds: int) -> bool:
        """Whether sources of streams were set back since there were so many ``rewinds``."""
        return rewinds != self.rewinds

    def _stream_write(self, table: Table, name: str, batch: int, ordinal: int, rewinds: int) -> None:
        rng = random.Random(f"{self.seed}/{name}/{batch}/{ordinal}")
        guard = StreamGuard(name, batch, ordinal)
        txn, intent = self._begin(table, name, "upsert", guard=guard)
        intent.stream = (f"{name}/{ordinal}", batch)
        with txn:
            if self._set_back(rewinds):
                intent.fate = "failed"
                raise Unavailable("who sets a source back stops its drivers first")
            rows = [*self._rows(rng, name, 2), self._tracer(intent, rng)]
            self._write(txn, intent, "upsert", rows)
            self._commit(txn, intent)

    def _compactor(self, process: Process) -> None:
        # Ours, or one that works as Java's; never both, for Java has no election of executors.
        compact = self._our_compaction(process) if self._ours_compact() else self._java_compaction(process)
        made = 0
        while self.compactions > 0 or "compaction" in plain_format.pending(self.disk).values():
            if made > _TAKEN_BACK_MAX:
                break  # whoever takes back each one goes on until this one ends
            self.pause_between(process, 300)
            try:
                made += bool(compact())
                self.compactions -= 1
            except MainstemError as error:
                self._accept(error)
            except INTERRUPTS as error:
                self.interrupted(error)
            except OSError:
                self.world.counts.refused += 1

    def _ours_compact(self) -> bool:
        return self.late_rows or random.Random(f"{self.seed}/compactor").random() < 0.7

    def _java_compaction(self, process: Process) -> Callable[[], Any]:
        return Compactor(self.seams(process), self.disk, exclusive=self.exclusive).run

    def _our_compaction(self, process: Process) -> Callable[[], Any]:
        return self._patiently(process, lambda: self.open(process)).compact

    # -- readers and services -------------------------------------------------------------------------

    def _janitor(self, process: Process) -> None:
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            done = self._patiently(process, table.rollback_failed_writes)
            self.world.counts.rollbacks += len(done)
            self.pause_between(process, 4 * HEARTBEAT_MS)

    def over(self) -> bool:
        return self.running == 0 or self.settling

    def _rows_after(self, count: int) -> dict[tuple[str, str], Row]:
        """The table's rows after this many publications."""
        until = self.watch.published[count - 1].completion if count else ""
        return self.rules.ledger.rows(self.mode, until)

    def _snapshots(self, process: Process) -> None:
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            crashes = self.world.counts.host_crashes
            before = len(self.watch.published)
            rows = self._patiently(process, lambda: self._snapshot(table))
            self.world.counts.reads += 1
            if crashes == self.world.counts.host_crashes:
                self._matches_some_moment(rows, before)
            self.pause_between(process, 1000)

    def _snapshot(self, table: Table) -> list[Row]:
        return table.scan(columns=self.schema.names).to_arrow().to_pylist()

    def _matches_some_moment(
        self, rows: list[Row], before: int, passes: Callable[[Row], bool] = lambda row: True
    ) -> None:
        """A snapshot shows the table as it was at one moment of the reading, those rows that pass."""
        failure = None
        for count in range(before, len(self.watch.published) + 1):
            meant = {where: row for where, row in self._rows_after(count).items() if passes(row)}
            try:
                same_rows(rows, meant, "snapshot")
                return
            except Violation as violation:
                failure = failure or violation
        assert failure is not None
        raise failure

    def _increments(self, process: Process) -> None:
        """Windows (after, until] one behind the other; the position survives the reader."""
        table = self._patiently(process, lambda: self.open(process))
        while True:
            last_round = self.over()
            self._patiently(process, lambda: self._window(table))
            self.world.counts.reads += 1
            if last_round:
                return
            self.pause_between(process, 1000)

    def _window(self, table: Table) -> None:
        after = self.windows.get("after")
        until = max((i.completion for i in table.timeline() if i.completion), default=None)
        if until is None or until == after:
            return
        rows = table.changes(after=after, until=until).to_arrow().to_pylist()
        found = sorted(f"t{row['_hoodie_commit_time']}" for row in rows if row["id"].startswith("t"))
        meant = sorted(
            f"t{p.requested}"
            for p in self.watch.published
            # A rollback may be given the time of a transaction that took itself back.
            if p.action == "deltacommit"
            and (after or "") < p.completion <= until
            and self.rules.ledger.stands(p.requested)
            and self._has_tracer(p.requested)
        )
        if found != meant and not self._hides(after or "", until, set(meant) - set(found), found):
            raise Violation("windows", f"({after}, {until}] shows {found}, expected {meant}")
        self.windows["after"] = until

    def _hides(self, after: str, until: str, missing: set[str], found: list[str]) -> bool:
        """Whether the window may lack these tracers (and has no others)."""
        return False

    def _has_tracer(self, instant: str) -> bool:
        intent = self.audit.intents.get(instant)
        return intent is not None and any(
            row["id"] == f"t{instant}" for kind, row in intent.operations if kind != "delete"
        )

    def _host_crashed(self) -> None:
        super()._host_crashed()
        self.windows = {}  # a reader's position was on the same machine

    # -- the end --------------------------------------------------------------------------------------

    def settle(self) -> None:
        self.finish("writers and streams")
        self.settling = True
        self.start("w0", self._last, immune=True)
        self.finish("the last writer")

    def _last(self, process: Process) -> None:
        """Cleans up, commits once more, and everything is checked."""
        self.world.sleep(20 * HEARTBEAT_MS * MISSES)
        table = self.open(process)
        self._end_restores(process, table)
        table.rollback_failed_writes()
        txn, intent = self._begin(table, "w0", "upsert")
        with txn:
            self._write(txn, intent, "upsert", [self._tracer(intent, self.random)])
            self._commit(txn, intent)
        table.rollback_failed_writes()
        self._serve(table)
        self._audit(table)

    def _end_restores(self, process: Process, table: Table) -> None:
        """A restore whose restorers died after all others had ended lets nobody write until it is over."""

    def _serve(self, table: Table) -> None:
        """Services that finish what is pending, once everybody else has ended."""

    def _audit(self, table: Table) -> None:
        self.audit.committed()
        self.audit.content()
        batches = {f"{n}/{o}": count for n, count in self.batches.items() for o in (0, 1)}
        self.audit.streams(batches)
        self.audit.settled()
        if not self.strangers and self.watch.foreign_noted():
            raise Violation("strangers", "one of our writers was taken for another kind")
        same_rows(self._snapshot(table), self.rules.ledger.rows(self.mode), "final snapshot")
        self._slices(table)
        self._whole_change_feed(table)
        self._past_views(table)
        self._explained(table)
        active = {i.requested for i in table.timeline()}
        rng = random.Random(f"{self.seed}/vanished")
        files_vanish(self.disk, active, lambda: self._snapshot(table), rng)

    def _explained(self, table: Table) -> None:
        """What ``explain_row`` says that a query shows of a key is what a query shows, and a version of that
        row wins. Keys that were deleted are asked for, too."""
        keys, rows = table.opened.config.record_key, self._snapshot(table)
        written = {
            tuple(row[name] for name in keys)
            for intent in self.audit.intents.values()
            for _, row in intent.operations
            if all(row.get(name) is not None for name in keys)
        }
        rng = random.Random(f"{self.seed}/explained")
        for key in rng.sample(sorted(written), min(len(written), 2)):
            told = table.explain_row(dict(zip(keys, key, strict=True)))
            found = self._told_rows(told.rows)
            meant = {(r["id"], r["part"]): r for r in rows if tuple(r[name] for name in keys) == key}
            same_rows(found, meant, f"the explanation of {key}")
            merged = not told.columns and len([v for v in told.winners if v.kind != "delete"])
            if told.troubles or (merged is not False and merged < len(meant)):
                raise Violation("explanation", str(told))

    def _told_rows(self, rows: pa.Table) -> list[Row]:
        return rows.select(self.schema.names).to_pylist()

    def _past_views(self, table: Table) -> None:
        """The view at a completion time holds what was published by then, whatever followed."""
        count = len(self.watch.published)
        rng = random.Random(f"{self.seed}/past")
        for at in sorted(rng.sample(range(count), min(count, 3))):
            moment = self.watch.published[at].completion
            rows = self._view(table, moment)
            if rows is not None:
                same_rows(rows, self._rows_after(at + 1), f"the view at {moment}")

    def _view(self, table: Table, moment: str) -> list[Row] | None:
        """The table at a completion time; None where no promise is made."""
        return table.scan(columns=self.schema.names, as_of_completion=moment).to_arrow().to_pylist()

    def _slices(self, table: Table) -> None:
        """Every committed log file is in exactly one slice, but for those of replaced file groups."""
        ledger = self.rules.ledger
        shown = sorted(path for part in table.file_slices() for path in slice_logs(part))
        logs = [log for log in plain_format.log_files(self.disk) if not is_lost(log.token)]
        there = sorted(log.path for log in logs if ledger.replacing(group_of(log.path)) is None)
        if shown != there:
            raise Violation("one slice", f"slices hold {shown}, the disk {there}")
        for part in table.file_slices():
            bounds = ledger.barriers_of((part.partition, part.file_id))
            for path in slice_logs(part):
                meant = max((b for b in bounds if b <= ledger.logs[path].completion), default=None)
                if (part.base_instant if part.base_instant in bounds else None) != meant:
                    raise Violation("one slice", f"{path} is in {part.base_instant}, not in {meant}")

    def _whole_change_feed(self, table: Table) -> None:
        self.windows = {}
        self._window(table)


class Compactions(Tables):
    """``tables`` with many compactions, so that writes cross them."""

    scenario = "compactions"
    always_compacting = True


def slice_logs(part: Any) -> list[str]:
    """Paths of a slice's log files, but for those of attempts that lost, which no query reads."""
    prefix = f"{part.partition}/" if part.partition else ""
    found = [(prefix + name, plain_format.log_file(prefix + name)) for name in part.log_files]
    return [path for path, log in found if log is not None and not is_lost(log.token)]


