"""Scenario ``services``: every table service at work beside the writers, streams and readers of ``tables``.

Two compactors, a cleaner, an archiver, a log compactor and a keeper of savepoints run the production code
of ``services`` as processes of their own, on short retentions, so that every one meets what the others
did. Writers delete, overwrite with equal ordering values and complete late; what a compaction does
with that is Java's rule (``ledger``), and ``service_rules`` watches every plan and every deletion.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mainstem.client import Table
from mainstem.errors import Invalid, MainstemError
from mainstem.testing.service_rules import Retention
from mainstem.testing.tables import Tables
from mainstem.testing.world import Faults, Process


class Services(Tables):
    """``tables`` with all services; deletes and late rows in every merge mode."""

    scenario = "services"
    always_compacting = True
    late_rows = True
    busy_calls = 6000
    settle_calls = 40_000

    def __init__(self, seed: int, *, faults: Faults | None = None, log: bool = False) -> None:
        rng = random.Random(f"retention of {seed}")
        self.retention = rng.choice([Retention(commits=2), Retention(commits=4), Retention(versions=2)])
        super().__init__(seed, faults=faults, log=log)

    def more_properties(self) -> dict[str, str]:
        return {}

    def build(self) -> None:
        super().build()
        self.chores = {"saver": 4}
        self.start("saver", self._chore(self._save))

    # -- services -------------------------------------------------------------------------------------

    def _chore(self, work: Callable[[Process, Table], Any]) -> Callable[[Process], None]:
        """A process that does a piece of work a number of times, with pauses; an heir goes on counting."""

        def body(process: Process) -> None:
            table = self._patiently(process, lambda: self.open(process))
            while self.chores[process.name] > 0:
                self.pause_between(process, 800)
                self.chores[process.name] -= 1
                try:
                    work(process, table)
                except MainstemError as error:
                    self._accept(error)

        return body

    def _save(self, process: Process, table: Table) -> None:
        """Make a savepoint of some completed instant, or take one back."""
        made = [point.instant for point in self._patiently(process, table.savepoints)]
        timeline = self._patiently(process, table.timeline)
        done = [i.requested for i in timeline if i.action == "deltacommit" and i.completion]
        try:
            if made and self.random.random() < 0.4:
                table.delete_savepoint(self.random.choice(made))
            elif done:
                table.savepoint(self.random.choice(done))
        except Invalid:
            self.world.counts.refused += 1  # cleaned, archived or taken back meanwhile
