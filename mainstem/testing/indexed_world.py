"""Scenario ``indexed``: ``services`` on a table with a metadata table, whose partition ``files`` every
action maintains: writers, two compactors, cleaners, archivers, a log compactor, a keeper of savepoints.

At every change of either timeline the metadata table is read by Hudi's rules and compared with the data
files of the commits that stand (``metadata_rules``).
"""

from __future__ import annotations

from mainstem.client import Table
from mainstem.create import with_metadata
from mainstem.testing.metadata_rules import METADATA_TIMELINE, MetadataRules
from mainstem.testing.plain_format import timeline_name
from mainstem.testing.services_world import Services
from mainstem.testing.world import Violation


class Indexed(Services):
    """``services`` without restores, which tables with a metadata table refuse."""

    scenario = "indexed"
    restores_too = False

    def more_properties(self) -> dict[str, str]:
        return {
            **super().more_properties(),
            **with_metadata(),
        }

    def _create(self) -> None:
        super()._create()
        if self.random.random() < 0.5:
            self.open(self.world.process("builder")).create_index("column_stats")

    def build(self) -> None:
        super().build()
        self.metadata = MetadataRules(self.world, self.disk, self.rules.ledger)

    def _audit(self, table: Table) -> None:
        super()._audit(table)
        self.metadata.check()
        report = table.validate_metadata()
        if report is None or not report.ok:
            raise Violation("statistics bound the data", str(report))
        names = [n for n in map(timeline_name, self.disk.folders[METADATA_TIMELINE]) if n is not None]
        done = {n.requested for n in names if n.completion is not None}
        if left := {n.requested for n in names} - done:
            raise Violation("nothing left over", f"{min(left)} is pending on the metadata table")
