"""Scenarios of resizes: resizers at work beside writers, streams, readers and services, and beside jobs.

They run the production code, and die at any step. A resize changes no row: at each completion the table's
rows must be those of the moment before, each key in one file group, and that of its bucket. Writers opened
the table at any time; those whose transaction began before a resize and completes after it are routed anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from mainstem.errors import Invalid, MainstemError
from tests.sim import plain_format as plain
from tests.sim.ledger import Group, Ledger
from tests.sim.log_compactor import LogCompactions
from tests.sim.mixed_world import Mixed
from tests.sim.oracle import Intent, Mode, Row
from tests.sim.plain_format import TimelineName
from tests.sim.service_rules import ServiceRules
from tests.sim.services_world import Services
from tests.sim.sink_world import Recorded, Sinks
from tests.sim.tables_world import Tables
from tests.sim.world import INTERRUPTS, Process, Violation

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from mainstem.writers.outcome import Outcome
    from mainstem.writers.write_spec import WriteSpec

_RESIZED = "mainstem.resized"
COUNTS = (1, 2, 3, 4, 6)


def java_bucket(key: str, count: int) -> int:
    """The bucket of a plain key of ASCII letters."""
    found = 0
    for letter in key:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return ((31 + found) & 0x7FFFFFFF) % count


class ResizeLedger(Ledger):
    """Compares the table before and after each resize."""

    mode: Mode
    buckets = 0
    first = 0

    def completed(self, name: TimelineName, path: str) -> None:
        data = bytes(self.disk.need(path).data)
        after = _resized_to(data) if name.action == "deltacommit" else None
        before = {} if after is None else self.rows(self.mode)
        super().completed(name, path)
        if after is not None:
            self.buckets = after
            now = self.rows(self.mode)
            if now != before:
                odd = [where for where in {**before, **now} if before.get(where) != now.get(where)]
                told = [(where, before.get(where), now.get(where)) for where in sorted(odd)[:3]]
                raise Violation("a resize changes no row", f"{name.requested}: {told}")
        if name.action in ("deltacommit", "commit"):
            self._in_place(name.requested)

    def _in_place(self, requested: str) -> None:
        seen: dict[tuple[str, str], Group] = {}
        for group in self.groups():
            for where in self._group_rows(self.mode, group, None, self.compactions_of(group)):
                other = seen.setdefault(where, group)
                meant = java_bucket(where[1], self.buckets)
                if other != group or int(group[1][:8]) != meant:
                    raise Violation(
                        "a key lies in its bucket",
                        f"after {requested}: {where} in {group} and {other}, expected bucket {meant}",
                    )

    def forget_lost(self, still_there: set[str], done: set[tuple[str, str]]) -> None:
        super().forget_lost(still_there, done)
        newest = max((c for c in self.commits.values() if _RESIZED in c.extra), default=None,
                     key=lambda c: c.completion)  # fmt: skip
        self.buckets = self.first if newest is None else int(newest.extra[_RESIZED].split(">")[1])


def _resized_to(data: bytes) -> int | None:
    if _RESIZED.encode() not in data:
        return None
    told = (plain.container(data).get("extraMetadata") or {}).get(_RESIZED)
    return None if told is None else int(told.split(">")[1])


class Anew(Tables):
    """Writers whose transactions may be routed anew."""

    def _begin(self, table: Table, name: str, kind: str, **options: Any) -> tuple[Any, Intent]:
        txn, intent = super()._begin(table, name, kind, **options)
        self.follow(txn, intent)
        return txn, intent

    def follow(self, txn: Any, intent: Intent) -> None:
        """A transaction that is routed anew means the same rows under another instant."""
        write_anew = txn._written_anew

        def written_anew(*given: Any) -> Any:
            later = write_anew(*given)
            if not later.already_committed:
                meant = Intent(intent.writer, later.instant, operations=intent.operations)
                meant.stream, meant.fate = intent.stream, "unknown"
                self.intents.append(meant)
                self.audit.intents[meant.instant] = meant
                self.world.counts.routed += 1
                self.follow(later, meant)
            return later

        txn._written_anew = written_anew

    def told(self, commit: Callable[[], Outcome], intent: Intent) -> Outcome:
        """What is told of a later instant holds for that one."""
        outcome = super().told(commit, intent)
        later = self.audit.intents.get(outcome.instant or "")
        if outcome.status == "committed" and later is not None and later is not intent:
            later.fate = "committed"
            self.world.counts.commits += 1
        return outcome

    def _has_tracer(self, instant: str) -> bool:
        """A row on a key of its own, which may be called after an earlier instant of the same rows."""
        intent = self.audit.intents.get(instant)
        return intent is not None and any(row["id"].startswith("t") for kind, row in intent.operations)


class Resizing(Anew):
    """Resizers, and writers whose transactions may be routed anew."""

    def _rules(self) -> ServiceRules:
        rules = super()._rules()
        ledger = ResizeLedger(rules.ledger.disk)
        ledger.__dict__.update(rules.ledger.__dict__)
        ledger.mode, ledger.buckets, ledger.first = self.mode, self.buckets, self.buckets
        rules.ledger = ledger
        return rules

    def build(self) -> None:
        super().build()
        rng = random.Random(f"{self.seed}/resizers")
        self.resizes = rng.choice([1, 2, 3])
        for name in ["resizer", "resizer'"][: rng.choice([1, 1, 2])]:
            self.start(name, self._resizer)
        self.start("seeker", self._seeker, counted=False)

    def _resizer(self, process: Process) -> None:
        rng = random.Random(f"{self.seed}/{process.name}")
        table = self._patiently(process, lambda: self.open(process))
        while self.resizes > 0:
            self.pause_between(process, 600)
            try:
                done = table.resize(rng.choice(COUNTS))
                self.resizes -= 1
                self.world.counts.resizes += done.instant is not None
            except Invalid as error:
                if "another process resize" not in error.message:
                    raise
                self.world.counts.refused += 1
            except MainstemError as error:
                self._accept(error)
            except INTERRUPTS as error:
                self.interrupted(error)

    def _seeker(self, process: Process) -> None:
        """Looks for single keys, which are sought by their bucket."""
        rng = random.Random(f"{self.seed}/seeker")
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            key, crashes = f"k{rng.randrange(self.keys)}", self.world.counts.host_crashes
            before = len(self.watch.published)

            def look(key: str = key) -> list[Row]:
                asked = table.scan(columns=self.schema.names, filter=pc.field("id") == key)
                return asked.to_arrow().to_pylist()

            rows = self._patiently(process, look)
            self.world.counts.reads += 1
            if crashes == self.world.counts.host_crashes:
                self._matches_some_moment(rows, before, lambda row, key=key: row["id"] == key)
            self.pause_between(process, 400)

    def _serve(self, table: Table) -> None:
        super()._serve(table)
        wanted = next(count for count in COUNTS if count != self.rules.ledger.buckets)  # type: ignore[attr-defined]
        table.resize(wanted)


class Resizes(Resizing, LogCompactions):
    """``logs`` with resizers."""

    scenario = "resizes"


class ResizedServices(Resizing, Services):
    """``services`` with resizers. A restore to before a resize is refused."""

    scenario = "resized-services"


class AnewSinks(Anew, Sinks):
    """``sinks`` whose committers' transactions may be routed anew."""

    def _opened(self, process: Process) -> Table:
        table = super()._opened(process)
        assert isinstance(table, Recorded)
        begin = table.begin

        def begun(operation: str = "upsert", **given: Any) -> Any:
            txn = begin(operation, **given)
            if not txn.already_committed:
                self.follow(txn, self.audit.intents[txn.instant])
            return txn

        table.begin = begun  # type: ignore[method-assign]
        return table


class ResizedSinks(Resizing, AnewSinks):
    """``sinks`` with resizers: checkpoints are staged by one number of buckets and committed by another."""

    scenario = "resized-sinks"


class ResizedMixed(Resizing, Mixed):
    """``mixed`` with resizers: they step back for a writer that works like Java's.

    That one asks for the number of buckets once its request is there, and is told at once when it changes.
    What SAFETY.md says of others, and of Hudi 1.0, is left out here.
    """

    scenario = "resized-mixed"

    def _create(self) -> None:
        self.late = False
        Tables._create(self)

    def _java_spec(self, table: Table, spec: WriteSpec) -> WriteSpec:
        return replace(spec, buckets=self.rules.ledger.buckets)  # type: ignore[attr-defined]
