"""Scenario ``logs``: log compactors at work beside writers, streams, readers and compactors.

All run the production code: one as readers before Hudi 1.2 need it (nothing may be in flight), two for
readers like ours, which replace merged blocks' sources. Those work beside every writer, so that merged
blocks meet late writes, deletes, compactions and each other. The ledger tells the rows that must come
out: a log compaction changes none.
"""

from __future__ import annotations

from typing import Any

from mainstem.api.table import Table
from mainstem.errors import MainstemError, Unavailable
from mainstem.layout.properties import load_config
from mainstem.options.services import BESIDE_WRITERS
from tests.sim.tables_world import Tables
from tests.sim.world import Process


class LogCompactions(Tables):
    """``tables`` with log compactions and compactions; deletes and late rows in every merge mode."""

    scenario = "logs"
    always_compacting = True
    late_rows = True
    busy_calls = 5000
    settle_calls = 120_000  # three log compactors look again and again while a stream stands still

    def build(self) -> None:
        super().build()
        for name in self.left:
            self.left[name] += 2
        self.compactions = self.random.choice([0, 1, 2])
        for name in ("log compactor", "log compactor'", "careful log compactor"):
            self.start(name, self._log_compactor, counted=False)

    def _log_compactor(self, process: Process) -> None:
        careful = process.name.startswith("careful")
        table = self._patiently(process, lambda: self._opened(process, careful))
        while not self.over():
            self.pause_between(process, 400)
            try:
                table.log_compact()
            except Unavailable:
                self.world.counts.refused += 1
            except MainstemError as error:
                self._accept(error)

    def _opened(self, process: Process, careful: bool) -> Table:
        properties = {
            **self.heartbeat(process),
            BESIDE_WRITERS: str(not careful).lower(),
        }
        seams = self.seams(process)
        return Table(seams, load_config(seams.storage), properties)

    def _serve(self, table: Any) -> None:
        table.log_compact()
        table.compact()
