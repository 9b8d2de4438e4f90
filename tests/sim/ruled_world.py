"""Tables whose partitions have different numbers of buckets: everybody must put a key into the same one.

Beside the writers of ``services``, some of whom overwrite and bulk insert, somebody asks for single keys, for
which all file groups but that of the key are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc

from tests.sim.log_compactor import LogCompactions
from tests.sim.overwrite_world import Overwriting

if TYPE_CHECKING:
    from tests.sim.oracle import Row
    from tests.sim.world import Process


class Ruled(Overwriting, LogCompactions):
    """``overwrites`` with rules: the partition ``x`` has five buckets, ``y`` three, others two."""

    scenario = "ruled"
    folders = (["x", "y"], ["y", "z"])

    def more_properties(self) -> dict[str, str]:
        rules = {"hoodie.bucket.index.partition.expressions": "^x$,5;y,3"}
        return {**super().more_properties(), **rules}

    def build(self) -> None:
        super().build()
        self.start("lookups", self._lookups, counted=False)

    def _lookups(self, process: Process) -> None:
        """Queries for one key."""
        table = self._patiently(process, lambda: self.open(process))
        while not self.over():
            crashes = self.world.counts.host_crashes
            before = len(self.watch.published)
            known = sorted({row["id"] for row in self._rows_after(before).values()})
            wanted = self.random.choice(known or ["k0"])

            def ask(key: str = wanted) -> list[Row]:
                scan = table.scan(columns=self.schema.names, filter=pc.field("id") == key)
                return scan.to_arrow().to_pylist()

            rows = self._patiently(process, ask)
            self.world.counts.reads += 1
            if crashes == self.world.counts.host_crashes:
                self._matches_some_moment(rows, before, lambda row, key=wanted: row["id"] == key)
            self.pause_between(process, 500)
