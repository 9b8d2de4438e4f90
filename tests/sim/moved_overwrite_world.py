"""Overwrites of a table whose keys are unique in all partitions: each takes its keys from wherever they
live."""

from __future__ import annotations

from typing import Any

from tests.sim.ledger import Ledger, user_columns
from tests.sim.moved_world import Moved, MovedAudit
from tests.sim.oracle import KEY, PARTITION, Intent
from tests.sim.overwrite_world import Overwriting
from tests.sim.placed_overwrite_world import PlacedOverwrites
from tests.sim.world import Violation


class MovedOverwrites(Moved, PlacedOverwrites):
    """``moved`` with overwrites."""

    scenario = "moved-overwrites"

    def build(self) -> None:
        super().build()
        self.operations: dict[str, str] = {}
        self.audit = OverwriteAudit(self)

    def _transaction(self, process: Any, table: Any, kind: str) -> None:
        Overwriting._transaction(self, process, table, kind)


class OverwriteAudit(MovedAudit):
    """An overwrite leaves its rows in their partitions, and of their keys nothing elsewhere."""

    def __init__(self, simulation: MovedOverwrites) -> None:
        super().__init__(simulation.watch, simulation.mode, simulation.intents)
        self._simulation = simulation

    def _same(self, intent: Intent, ledger: Ledger) -> None:
        instant = intent.instant
        if instant not in self._simulation.overwrites:
            super()._same(intent, ledger)
            return
        meant = {key: row for key, row in self._meant(intent).items() if row is not None}
        rows = ledger.rows_of(instant)
        found = {row[KEY]: user_columns(row) for row in rows}
        if found != meant or len(rows) != len(meant):
            raise Violation("nothing lost, nothing doubled", f"{instant} wrote {rows}, meant {meant}")
        completion = ledger.commits[instant].completion
        earlier = max((c.completion for c in ledger.writes() if c.completion < completion), default="")
        before = self._by_key(ledger, earlier, instant) if earlier else {}
        after = self._by_key(ledger, completion, instant)
        whole = ledger.commits[instant].operation == "INSERT_OVERWRITE_TABLE"
        named = {row[PARTITION] for _, row in intent.operations}  # also of rows that others outdid
        kept = {} if whole else {key: row for key, row in before.items() if row[PARTITION] not in named}
        expected = {**kept, **meant}
        if after != expected:
            raise Violation("overwrites", f"{instant} left {after}, expected {expected}, before {before}")
