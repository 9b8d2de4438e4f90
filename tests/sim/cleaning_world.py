"""Scenario ``cleanings``: two cleaners and two keepers of savepoints, all of them eager.

One or two commits are retained, so that almost every compaction gives the cleaners something to remove,
and the savepoints are of old instants, whose files are about to be removed. Cleaners read the oldest
retained view after each clean. The rules are those of ``services``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError
from tests.sim.service_rules import Retention
from tests.sim.services_world import Services
from tests.sim.tables_world import Tables
from tests.sim.world import Faults, Process


class Cleanings(Services):
    """``services`` with cleaners and savepoints only."""

    scenario = "cleanings"
    busy_calls = 4000

    def __init__(
        self, seed: int, *, faults: Faults | None = None, log: bool = False, body: str = "disk"
    ) -> None:
        super().__init__(seed, faults=faults, log=log, body=body)
        self.retention = Retention(commits=1 + seed % 2)

    def build(self) -> None:
        Tables.build(self)
        for name in self.left:
            self.left[name] += 2
        self.compactions += 6
        self.restoring = False
        works = {"cleaner": self._clean}
        if self.random.random() < 0.5:  # they keep much from being cleaned
            works["saver"] = self._save_an_old_one
        for name, work in works.items():
            for number in (1, 2):
                self.start(f"{name} {number}", self._eagerly(work), counted=False)

    def _eagerly(self, work: Callable[[Process, Table], Any]) -> Callable[[Process], None]:
        def body(process: Process) -> None:
            table = self._patiently(process, lambda: self.open(process))
            while not self.over():
                # A process that is stopped for a minute when all faults end must not use up all calls.
                self.pause_between(process, 2000 if self.calm else 60)
                try:
                    work(process, table)
                except MainstemError as error:
                    self._accept(error)

        return body

    def _clean(self, process: Process, table: Table) -> None:
        """Clean, and read the oldest view that is retained."""
        table.clean()
        moment = self._retained()
        if moment:
            self._patiently(process, lambda: self._view(table, moment))

    def _save_an_old_one(self, process: Process, table: Table) -> None:
        """Save the oldest state that is there still, which the next clean takes, or take a savepoint back."""
        made = [point.instant for point in self._patiently(process, table.savepoints)]
        if made:
            self._tried(table.delete_savepoint, self.random.choice(made))
            return
        timeline = self._patiently(process, table.timeline)
        done = [i for i in timeline if i.action == "deltacommit" and i.completion]
        oldest_first = sorted(done, key=lambda i: i.completion or "")
        any(self._tried(table.savepoint, instant.requested) for instant in oldest_first)

    def _tried(self, work: Callable[[str], Any], instant: str) -> bool:
        try:
            work(instant)
        except Invalid:
            self.world.counts.refused += 1  # cleaned or taken back meanwhile
            return False
        return True

    def _serve(self, table: Table) -> None:
        table.compact()
        for _ in range(2):
            table.clean()
