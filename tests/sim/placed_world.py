"""Tables without buckets: writers that insert the same keys at once, each into a file group of its own.

Every key must end in one file group. Many keys are new in each commit, and the table begins empty, so that
writers often place one key at the same moment.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from mainstem.writers import placed_rows
from tests.sim.checkers import Audit
from tests.sim.indexed_world import Indexed
from tests.sim.ledger import Ledger, user_columns
from tests.sim.oracle import KEY, PARTITION, Intent, Row, Where, put_row
from tests.sim.resize_world import Anew
from tests.sim.services_world import Services
from tests.sim.world import Violation

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from tests.sim.simulation import Result
    from tests.sim.world import Process

KEPT_BYTES_MAX = placed_rows._KEPT_BYTES_MAX


class Unbucketed(Anew):
    """A table under an index that looks where keys live; transactions may be placed anew."""

    buckets = None
    keys = 12
    index = "SIMPLE"

    def build(self) -> None:
        super().build()
        self.audit = PlacedAudit(self.watch, self.mode, self.intents)

    def run(self) -> Result:
        """In some seeds no transaction is small enough to be kept: its rows are read back."""
        sizes = random.Random(f"kept of {self.scenario}/{self.seed}")
        with patch.object(placed_rows, "_KEPT_BYTES_MAX", sizes.choice([KEPT_BYTES_MAX, KEPT_BYTES_MAX, 0])):
            return super().run()

    def more_properties(self) -> dict[str, str]:
        return {**super().more_properties(), "hoodie.index.type": self.index}

    def _lost_attempt(self, table: Table, intent: Intent) -> None:
        """Tasks of engines write no such table."""


class Placed(Unbucketed):
    """``tables`` without buckets."""

    scenario = "placed"


class PlacedAgain(Unbucketed):
    """Few keys, which are deleted, compacted away and inserted again beside updates that stay open for long:
    a key leaves its file group, and who knew it there must find it elsewhere."""

    scenario = "placed-again"
    always_compacting = True
    late_rows = True
    modes = ("commit", "event")
    folders = (["x"],)
    keys = 3
    busy_calls = 6000

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] += 4
        self.compactions += 4

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        if kind in ("upsert", "empty") and self.random.random() < 0.4:
            kind = "delete"
        super()._transaction(process, table, kind)

    def _fill(self, process: Process, txn: Any, intent: Intent, kind: str) -> None:
        super()._fill(process, txn, intent, kind)
        if kind != "delete" and self.random.random() < 0.5:
            self.pause_between(process, 2500)


class PlacedServices(Unbucketed, Services):
    """``services`` without buckets."""

    scenario = "placed-services"


class PlacedClustered(PlacedServices):
    """``placed-services``, with clusterings beside all of it."""

    scenario = "placed-clustered"
    settle_calls = 240_000  # two more services take turns with the last writers

    def build(self) -> None:
        super().build()
        for name in ("clusterer", "clusterer'"):
            self.start(name, self._chore(self._cluster), counted=False)

    def _cluster(self, process: Process, table: Table) -> None:
        """Plan and execute at once, or leave the plan to others; in an order or not."""
        columns = self.random.choice([None, None, ["ts"], ["v", "ts"]])
        columns = None if self.sorted else columns
        if self.random.random() < 0.3:
            table.schedule_clustering(columns)
        elif self.random.random() < 0.3:
            table.run_clustering()
        else:
            table.cluster(columns)

    def _serve(self, table: Table) -> None:
        super()._serve(table)
        table.run_clustering()


class PlacedIndexed(Unbucketed, Indexed):
    """``indexed`` under a record index of partitions, which commits ask and keep up."""

    scenario = "placed-indexed"
    index = "RECORD_LEVEL_INDEX"

    def _create(self) -> None:
        super()._create()
        self.open(self.world.process("builder")).create_index("record_index")


class PlacedAudit(Audit):
    """Rows of new keys are merged before they become a base file; deletes of keys that are nowhere are left
    out."""

    def _same(self, intent: Intent, ledger: Ledger) -> None:
        found, meant = defaultdict(list), defaultdict(list)
        for row in ledger.rows_of(intent.instant):
            if row["_hoodie_commit_time"] != intent.instant:
                raise Violation("one slice", f"{intent.instant} wrote a row of another instant: {row}")
            found[row[PARTITION], row[KEY]].append(user_columns(row))
        gone = {(d.partition, d.key) for b in ledger.blocks_of(intent.instant) for d in b.deletes}
        deleted: set[Where] = set()
        for kind, row in intent.operations:
            where = (row[PARTITION], row[KEY])
            if kind == "delete":
                deleted.add(where)
            else:
                meant[where].append(row)
        for where in found.keys() | meant.keys():
            if found[where] not in (meant[where], self._folded(meant[where])):
                raise Violation(
                    "nothing lost, nothing doubled",
                    f"{intent.instant} wrote {found[where]}, meant {meant[where]}",
                )
        if gone - deleted:
            raise Violation("nothing lost, nothing doubled", f"{intent.instant} deleted {gone - deleted}")
        completion = ledger.commits[intent.instant].completion
        before = max((c.completion for c in ledger.writes() if c.completion < completion), default="")
        lost = (deleted - gone) & ledger.rows(self.mode, before).keys() if before else set()
        if lost:
            raise Violation("nothing lost, nothing doubled", f"{intent.instant} did not delete {lost}")

    def _folded(self, rows: list[Row]) -> list[Row]:
        entries: dict[Where, Any] = {}
        for row in rows:
            put_row(self.mode, entries, row)
        return list(entries.values())
