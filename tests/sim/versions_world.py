"""Scenarios of table versions: tables are upgraded to 10 and brought back to 9 beside writers and services.

The changers run the production code and die at any step. Rows must be those of the commits, as ever; and at
every moment at which the table has version 9, no native log file counts in any file group, or readers of that
version would miss its rows.
"""

from __future__ import annotations

import random
from typing import Any

from mainstem.errors import Invalid, MainstemError
from mainstem.layout.properties import load_config
from tests.sim.indexed_world import Compacted
from tests.sim.ledger import Ledger
from tests.sim.plain_format import TimelineName
from tests.sim.service_rules import ServiceRules
from tests.sim.services_world import Services
from tests.sim.world import INTERRUPTS, Process, Violation

_PROPERTIES = ".hoodie/hoodie.properties"


class VersionsLedger(Ledger):
    """Looks at the table's version whenever an instant completes."""

    def completed(self, name: TimelineName, path: str) -> None:
        super().completed(name, path)
        self.check_version(f"after {name.requested}")

    def check_version(self, when: str) -> None:
        """At version 9 every native log file lies below a base file of its group."""
        inode = self.disk.get(_PROPERTIES)
        if inode is None or b"hoodie.table.version=9" not in bytes(inode.data):
            return
        for group in self.groups():
            newest = max((base.time for base in self.bases_of(group)), default="")
            for written in self.logs_of(group):
                if written.log.kind and written.completion >= newest and self.replacing(group) is None:
                    raise Violation(
                        "no native log counts at version 9", f"{when}: {written.log.path} over {newest!r}"
                    )


class Versions(Services):
    """``services`` whose table changes its version again and again."""

    scenario = "versions"

    def build(self) -> None:
        rng = random.Random(f"versions of {self.seed}")
        self.version = rng.choice([9, 10])
        super().build()
        self.changes = rng.choice([2, 3, 4])
        self.start("changer", self._changer)
        if rng.random() < 0.3:
            self.start("changer'", self._changer)

    def _rules(self) -> ServiceRules:
        rules = super()._rules()
        ledger = VersionsLedger(rules.ledger.disk)
        ledger.__dict__.update(rules.ledger.__dict__)
        rules.ledger = ledger
        return rules

    def _changer(self, process: Process) -> None:
        rng = random.Random(f"{self.seed}/{process.name}")
        while self.changes > 0:
            self.pause_between(process, 500)
            self.changes -= 1
            table = self._patiently(process, lambda: self.open(process))
            try:
                if load_config(table.opened.seams.storage).version == 9:
                    table.upgrade(10)
                    self.world.counts.versions += 1
                else:
                    for _ in range(rng.choice([1, 8])):  # writers that pause now and then
                        if self._brought_back(process, table):
                            break
            except MainstemError as error:
                self._accept(error)
            except INTERRUPTS as error:
                self.interrupted(error)
            except OSError:
                self.world.counts.refused += 1
            self._look()

    def _brought_back(self, process: Process, table: Any) -> bool:
        try:
            table.downgrade(9)
            self.world.counts.versions += 1
            return True
        except MainstemError as error:
            self._accept(error)
            self.pause_between(process, 100)
            return False

    def _look(self) -> None:
        ledger = self.rules.ledger
        assert isinstance(ledger, VersionsLedger)
        ledger.check_version("after a change of the version")

    def _accept(self, error: MainstemError) -> None:
        text = str(error)
        told = ("since this transaction began", "the table has version", "log files of")
        if isinstance(error, Invalid) and any(words in text for words in told):
            self.world.counts.refused += 1
        else:
            super()._accept(error)


class VersionsIndexed(Versions, Compacted):
    """``compacted`` whose table, and metadata table, change their versions."""

    scenario = "versions-indexed"
