"""Scenario ``indexing``: the metadata table is built beside ``services``, by one indexer or two, while
somebody drops what is being built; whoever comes last builds it if nobody has.

From the moment in which the index is listed as whole it is compared with the data files of the commits
that stand, at every change of either timeline (``metadata_rules``). Writers that began before the index,
and services whose plans are older, are held back as in all scenarios; builders stop, die and lose the
lock at any call.
"""

from __future__ import annotations

from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError
from mainstem.formats.java_properties import parse_properties
from mainstem.storage import paths
from tests.sim.metadata_rules import METADATA_TIMELINE, MetadataRules
from tests.sim.plain_format import timeline_name
from tests.sim.services_world import Services
from tests.sim.world import Process, Violation

_READY = "hoodie.table.metadata.partitions"


class Indexing(Services):
    """``services`` with indexers and a dropper, without restores, which a metadata table refuses."""

    scenario = "indexing"
    restores_too = False

    def build(self) -> None:
        super().build()
        self.metadata = WhenWhole(self.world, self.disk, self.rules.ledger)
        self.start("indexer", self._indexer)
        if self.random.random() < 0.5:
            self.start("indexer'", self._indexer)
        if self.random.random() < 0.4:
            self.start("dropper", self._dropper, counted=False)

    def _indexer(self, process: Process) -> None:
        for _ in range(6):
            self.pause_between(process, 3000)
            if self.metadata.is_whole():
                return
            try:
                self._patiently(process, lambda: self.open(process)).create_index("files")
            except Invalid:
                self.world.counts.refused += 1  # somebody else builds it, or has
            except MainstemError as error:
                self._accept(error)

    def _dropper(self, process: Process) -> None:
        for _ in range(3):
            self.pause_between(process, 4000)
            try:
                self._patiently(process, lambda: self.open(process)).drop_index("files", if_exists=True)
            except Invalid:
                self.world.counts.refused += 1  # it is whole by now
            except MainstemError as error:
                self._accept(error)

    def _serve(self, table: Table) -> None:
        if not self.metadata.is_whole():
            table.create_index("files")
        super()._serve(table)

    def _audit(self, table: Table) -> None:
        super()._audit(table)
        self.metadata.check()
        if not self.metadata.is_whole():
            raise Violation("whole in the end", "nobody built the index")
        names = [n for n in map(timeline_name, self.disk.folders[METADATA_TIMELINE]) if n is not None]
        done = {n.requested for n in names if n.completion is not None}
        if left := {n.requested for n in names} - done:
            raise Violation("nothing left over", f"{min(left)} is pending on the metadata table")


class WhenWhole(MetadataRules):
    """The rules hold from the moment in which the table lists the index as whole."""

    def is_whole(self) -> bool:
        """Whether ``files`` is in the list of indexes that readers use."""
        found = self._disk.get(paths.PROPERTIES)
        text = b"" if found is None else bytes(found.data)
        return "files" in parse_properties(text, path=paths.PROPERTIES).get(_READY, "").split(",")

    def check(self) -> None:
        if self.is_whole():
            super().check()
