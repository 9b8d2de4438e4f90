"""Tables of version 10: log files are Parquet files of rows and of deletes, and no file is ever appended to.

In half of the seeds the table is an LSM tree: the rows of each file must be sorted by key.
"""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pyarrow.parquet as pq

from mainstem.errors import MainstemError, Unsupported
from tests.sim import plain_format as plain
from tests.sim.checkers import is_lost
from tests.sim.indexed_world import Compacted
from tests.sim.kept_world import KeptDeletes
from tests.sim.log_compactor import LogCompactions
from tests.sim.oracle import Mode
from tests.sim.resize_world import ResizedServices
from tests.sim.services_world import Services
from tests.sim.tables_world import Tables
from tests.sim.tasks_world import Tasks
from tests.sim.world import Process, Violation


class Native(Tables):
    """``tables`` of version 10; nobody compacts."""

    scenario = "native"
    version = 10
    compacts = False
    knows_java_1_0 = False  # whose tables have version 8

    @property
    def sorted(self) -> bool:
        """Whether the table is an LSM tree."""
        return random.Random(f"{self.scenario}/{self.seed}/layout").random() < 0.5

    def merging(self, mode: Mode) -> Mode:
        return replace(super().merging(mode), in_order=True, one_by_one=self.sorted)

    def more_properties(self) -> dict[str, str]:
        layout = "lsm_tree" if self.sorted else "default"
        return {**super().more_properties(), "hoodie.table.storage.layout": layout}

    def row_order(self, process: Process) -> dict[str, str]:
        return {} if self.sorted else super().row_order(process)

    def _accept(self, error: MainstemError) -> None:
        if self.sorted and isinstance(error, Unsupported) and "log compaction of a table with" in str(error):
            self.world.counts.refused += 1
        else:
            super()._accept(error)

    def settle(self) -> None:
        """As ever, and: every log file is native, and every file of an LSM tree is sorted."""
        super().settle()
        for log in plain.log_files(self.disk):
            if not log.kind:
                raise Violation("native logs", f"{log.path} is a file of blocks")
            if self.sorted and not is_lost(log.token):
                (block,) = plain.blocks_of(self.disk, log)
                keys = [row["_hoodie_record_key"] for row in block.rows] or [d.key for d in block.deletes]
                if keys != sorted(keys, key=str.encode):
                    raise Violation("an LSM tree", f"{log.path} has the keys {keys}")
        if not self.sorted:
            return
        for path in (path for found in plain.base_files(self.disk).values() for path in found):
            inode = self.disk.get(path)
            rows = [] if inode is None else pq.read_table(io.BytesIO(bytes(inode.data))).to_pylist()
            keys = [row["_hoodie_record_key"] for row in rows]
            if keys != sorted(keys, key=str.encode):
                raise Violation("an LSM tree", f"{path} has the keys {keys}")


class NativeTasks(Native, Tasks):
    """``tasks`` of version 10."""

    scenario = "native-tasks"


class NativeServices(Native, Services):
    """``services`` on tables of version 10."""

    scenario = "native-services"
    compacts = True


class NativeIndexed(NativeServices, Compacted):
    """``compacted`` on tables of version 10, whose metadata tables have native log files, too."""

    scenario = "native-indexed"


class NativeKept(Native, KeptDeletes):
    """``kept`` on tables of version 10: deletes of both kinds, late rows and many compactions."""

    scenario = "native-kept"
    compacts = True


class NativeResizes(NativeServices, ResizedServices):
    """``resized-services`` on tables of version 10."""

    scenario = "native-resizes"


class NativeLogs(Native, LogCompactions):
    """``logs`` on tables of version 10; none is an LSM tree, whose logs are not compacted."""

    scenario = "native-logs"
    compacts = True
    sorted = False
