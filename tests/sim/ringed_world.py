"""Tables under consistent hashing: file groups are split and merged beside writers and all services.

Every key must be in the file group of its range, whoever splits or merges that when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.api.table import Table
from mainstem.errors import Invalid
from tests.sim.overwrite_world import Overwriting
from tests.sim.resize_world import Anew, AnewSinks
from tests.sim.services_world import Services
from tests.sim.tasks_world import Tasks

if TYPE_CHECKING:
    from tests.sim.oracle import Row
    from tests.sim.world import Process


class Resized(Anew, Services):
    """Services of a table under consistent hashing, whose file groups are split and merged all the time."""

    settle_calls = 240_000  # two more services take turns with the last writers
    keys = 12

    def build(self) -> None:
        super().build()
        for name in ("resizer", "resizer'"):
            self.start(name, self._chore(self._resize), counted=False)

    def more_properties(self) -> dict[str, str]:
        return {
            **super().more_properties(),
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
            "hoodie.bucket.index.max.num.buckets": "5",
            "hoodie.bucket.index.min.num.buckets": "1",
        }

    def _resize(self, process: Process, table: Table) -> None:
        """Split what can be split, or merge what can be merged; at once, or leave the plan to others."""
        size = self.random.choice(["1", "1", "1000000000"])
        opened = table.opened
        ctx = opened.writer_context()
        ctx.given = {**ctx.given, "hoodie.parquet.max.file.size": size}
        if self.random.random() < 0.3:
            table.services.schedule_clustering()
        elif self.random.random() < 0.3:
            table.services.run_clustering()
        else:
            table.services.cluster()

    def _view(self, table: Table, moment: str) -> list[Row] | None:
        """A view is also refused where a clean removed a file group whose clustering is archived by now."""
        try:
            return super()._view(table, moment)
        except Invalid as error:
            if "a clean has removed" not in error.message:
                raise
            return None

    def _serve(self, table: Table) -> None:
        super()._serve(table)
        table.services.run_clustering()


class Ringed(Resized, Overwriting):
    """``services`` with overwrites under consistent hashing, with splits and merges beside all of it."""

    scenario = "ringed"

    def _lost_attempt(self, table: Table, intent: object) -> None:
        """A task that dies is the business of other scenarios."""


class RingedTasks(Resized, Tasks):
    """Writers whose tasks end before file groups are split and merged, and commit afterwards."""

    scenario = "ringed-tasks"


class RingedSinks(Resized, AnewSinks):
    """``sinks`` under consistent hashing: file groups are others at the commit than when rows were staged."""

    scenario = "ringed-sinks"
