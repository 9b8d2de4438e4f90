"""Scenario ``restores``: savepoints and restorers beside writers, streams, readers and compactors.

Few other services, so that restores are frequent. Writers are held back between two transactions while
somebody restores, as an operator would; those that stand still or died in the middle of one are not.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem.storage import paths
from tests.sim import plain_format as plain
from tests.sim.plain_format import TIMELINE
from tests.sim.service_rules import ServiceRules
from tests.sim.services_world import Services
from tests.sim.tables_world import Tables
from tests.sim.world import Violation


class Restores(Services):
    """``services`` with nothing but savepoints, restores and compactions; often two restorers."""

    scenario = "restores"
    undoes_services = True
    busy_calls = 5000
    settle_calls = 80_000  # sources that were set back start more drivers

    def build(self) -> None:
        Tables.build(self)
        self.watch.rules = self.rules = RestoreRules(self.disk, self.base, self.mode, self.retention)
        self.rules.promised_ms = self.watch.promised_ms
        self.rules.entered_at = self.watch.entered_at
        for name in self.left:
            self.left[name] += 2
        self.restoring = False
        self.restores = 12
        self.start("saver", self._chore(self._save), counted=False)
        self.start("restorer", self._restorer)
        if self.random.random() < 0.5:
            self.start("restorer'", self._restorer)
        if self.random.random() < 0.6:
            self.start("undoer", self._chore(self._take_back), counted=False)


class RestoreRules(ServiceRules):
    """The services' rules, and: no restore drops the transaction of a living writer; an instant is off the
    timeline before the first of its files goes."""

    #: ``Watch.promised_ms``
    promised_ms: Callable[[str], float | None]
    #: ``Watch.entered_at``
    entered_at: Callable[[str], float]

    def may_delete(self, path: str, instant: str) -> None:
        if not self.ledger.stands(instant):
            shown = [n for n in self.disk.folders.get(TIMELINE, {}) if n.startswith(f"{instant}_")]
            if shown:
                raise Violation("timeline first", f"{path} was deleted while {shown[0]} is there")
        super().may_delete(path, instant)

    def _restore_planned(self, time: str) -> None:
        super()._restore_planned(time)
        plan = plain.container(bytes(self.disk.need(f"{TIMELINE}/{time}.restore.requested").data))
        entered = self.entered_at(f"{TIMELINE}/{time}.restore.requested")
        for going in plan["instantsToRollback"]:
            beat = self.disk.get(paths.heartbeat(going["commitTime"]))
            if beat is None or going["action"] != "deltacommit" or going["commitTime"] in self.ledger.commits:
                continue
            # One that beat after the restorer had looked was taken for dead rightly.
            if 0 <= entered - beat.mtime < (self.promised_ms(going["commitTime"]) or 0) - 1:
                raise Violation(
                    "live writer",
                    f"{time} removes {going['commitTime']}, whose writer showed itself"
                    f" {entered - beat.mtime:.0f} ms before",
                )
