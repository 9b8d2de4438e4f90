"""Overwrites among other writers: base files that hide what is older, while logs are written and compacted.

The ledger says what must be there: of each file group the rows of its newest written base file, and what
completed after that was requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sim.bulk_world import bulk_insert
from tests.sim.log_compactor import LogCompactions
from tests.sim.oracle import Intent, Row
from tests.sim.restore_world import Restores
from tests.sim.tables_world import Tables

if TYPE_CHECKING:
    from mainstem.api.table import Table
    from tests.sim.world import Process


class Overwriting(Tables):
    """Every third plain transaction is an overwrite, and some are bulk inserts."""

    def build(self) -> None:
        self.overwrites: set[str] = set()
        super().build()

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        drawn = self.random.random()
        if kind in ("delete", "abort") or drawn < 0.55:
            super()._transaction(process, table, kind)
        elif drawn < 0.65:
            bulk_insert(self, process, table)
        else:
            self._overwrite(process, table)

    def _overwrite(self, process: Process, table: Table) -> None:
        operation = self.random.choice(["insert_overwrite", "insert_overwrite", "insert_overwrite_table"])
        txn, intent = self._begin(table, process.name, operation)
        self._follow(txn, intent)
        with txn:
            self._write(txn, intent, "upsert", self._rows_of_overwrite(process, intent))
            self.pause_between(process, 300)
            self._commit(txn, intent)

    def _rows_of_overwrite(self, process: Process, intent: Intent) -> list[Row]:
        """Of keys that nobody else writes."""
        rows = [self._tracer(intent, self.random) for _ in range(3)]
        for number, row in enumerate(rows):
            if number:
                row["id"] = f"x{intent.instant}/{number}"
        return rows

    def _rows_of_common_keys(self, process: Process, intent: Intent) -> list[Row]:
        """Each key once."""
        rows = [self._tracer(intent, self.random), *self._rows(self.random, process.name, 4)]
        return list({(row["part"], row["id"]): row for row in rows}.values())

    def _has_tracer(self, instant: str) -> bool:
        intent = self.audit.intents.get(instant)
        return intent is not None and any(row["id"].startswith("t") for kind, row in intent.operations)

    def _hides(self, after: str, until: str, missing: set[str], found: list[str]) -> bool:
        """An overwrite within a window hides what completed, and overwrites that were requested, before."""
        done = {p.requested: p.completion for p in self.watch.published if p.action == "deltacommit"}
        stands = self.rules.ledger.stands
        inside = {t for t, completion in done.items() if after < completion <= until and stands(t)}
        last = max(inside & self.overwrites, default="")
        times = (t[1:] if t[1:] in self.overwrites else done[t[1:]] for t in missing)
        return all(time < last for time in times) and {t[1:] for t in found} <= inside

    def _follow(self, txn: Any, intent: Intent) -> None:
        """An overwrite that is made again means the same rows under another instant."""
        self.overwrites.add(intent.instant)
        begin_again = txn._begun_again

        def begun_again(stats: Any, number: int) -> Any:
            later = begin_again(stats, number)
            meant = Intent(intent.writer, later.instant, operations=intent.operations)
            meant.fate = "unknown"
            self.intents.append(meant)
            self.audit.intents[meant.instant] = meant
            self._follow(later, meant)
            return later

        txn._begun_again = begun_again


class Overwrites(Overwriting, LogCompactions):
    """``logs`` with overwrites."""

    scenario = "overwrites"


class ShownOverwrites(Overwriting):
    """Overwrites and bulk inserts where another engine may write, so that files get their names late."""

    scenario = "shown"
    buckets = 3

    def _create(self) -> None:
        self.exclusive = False
        super()._create()

    def _transaction(self, process: Process, table: Table, kind: str) -> None:
        if self.random.random() < 0.6:
            self._overwrite(process, table)
        else:
            super()._transaction(process, table, kind)


class RestoredOverwrites(Overwriting, Restores):
    """``restores`` with overwrites: they are restored away or to, rolled back, and come back as files."""

    scenario = "overwrites_restored"
