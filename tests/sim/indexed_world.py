"""Scenario ``indexed``: ``services`` on a table with a metadata table, whose partition ``files`` every
action maintains: writers, two compactors, cleaners, archivers, a log compactor, a keeper of savepoints.
``compacted`` adds the metadata table's own services: two compactors, two cleaners, two archivers.

At every change of either timeline the metadata table is read by Hudi's rules and compared with the data
files of the commits that stand (``metadata_rules``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from mainstem.api.create import with_metadata
from mainstem.api.table import Table
from mainstem.options.services import METADATA_CLEAN_DERIVED, METADATA_COMMITS
from mainstem.services.metadata import (
    metadata_archiving,
    metadata_cleaning,
    metadata_compaction,
    metadata_round,
)
from tests.sim.metadata_rules import METADATA_TIMELINE, MetadataRules
from tests.sim.plain_format import timeline_name
from tests.sim.services_world import Services
from tests.sim.world import Process, Violation


class Indexed(Services):
    """``services`` without restores."""

    scenario = "indexed"
    restores_too = False

    def more_properties(self) -> dict[str, str]:
        return {
            **super().more_properties(),
            **with_metadata(),
        }

    def _create(self) -> None:
        super()._create()
        drawn = self.random.random()
        if drawn < 0.5:
            kind = "partition_stats" if drawn < 0.25 else "column_stats"
            self.open(self.world.process("builder")).create_index(kind)

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


class Compacted(Indexed):
    """``indexed``, and the metadata table is compacted, cleaned and archived all the while, by writers after
    commits too; and the table is restored to savepoints, after which its indexes are built anew."""

    scenario = "compacted"
    restores_too = True
    settle_calls = 80_000  # sources that were set back start more drivers

    def more_properties(self) -> dict[str, str]:
        return {**super().more_properties(), METADATA_COMMITS: "3", METADATA_CLEAN_DERIVED: "false"}

    def build(self) -> None:
        super().build()
        if self.random.random() < 0.5:
            self.start("undoer", self._chore(self._take_back), counted=False)
        for service in (metadata_compaction, metadata_cleaning, metadata_archiving):
            name = service.__name__.rpartition(".")[2]
            for number in (1, 2):
                self.start(f"{name} {number}", self._chore(self._serving_metadata(service)), counted=False)

    def _serving_metadata(self, service: ModuleType) -> Callable[[Process, Table], None]:
        def run(process: Process, table: Table) -> None:
            try:
                service.run(table.writer_context(), if_due=self.random.random() < 0.7)
            except OSError:  # of which ``metadata_services`` makes Unavailable
                self.world.counts.refused += 1

        return run

    def _serve(self, table: Table) -> None:
        super()._serve(table)
        table.run_services("metadata")
        for _ in metadata_round.run(table.writer_context(), if_due=False):
            continue
