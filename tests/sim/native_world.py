"""Tables of version 10: log files are Parquet files of rows and of deletes, and no file is ever appended to.

In half of the seeds the table is an LSM tree: the rows of each file must be sorted by key.
"""

from __future__ import annotations

import random

from tests.sim import plain_format as plain
from tests.sim.checkers import is_lost
from tests.sim.tables_world import Tables
from tests.sim.tasks_world import Tasks
from tests.sim.world import Violation


class Native(Tables):
    """``tables`` of version 10; nobody compacts."""

    scenario = "native"
    version = 10
    compacts = False

    @property
    def sorted(self) -> bool:
        """Whether the table is an LSM tree."""
        return random.Random(f"{self.scenario}/{self.seed}/layout").random() < 0.5

    def more_properties(self) -> dict[str, str]:
        layout = "lsm_tree" if self.sorted else "default"
        return {**super().more_properties(), "hoodie.table.storage.layout": layout}

    def settle(self) -> None:
        """As ever, and: every file of the table is native, and sorted where it must be."""
        super().settle()
        for log in plain.log_files(self.disk):
            if not log.kind:
                raise Violation("native logs", f"{log.path} is a file of blocks")
            if self.sorted and not is_lost(log.token):
                (block,) = plain.blocks_of(self.disk, log)
                keys = [row["_hoodie_record_key"] for row in block.rows] or [d.key for d in block.deletes]
                if keys != sorted(keys, key=str.encode):
                    raise Violation("an LSM tree", f"{log.path} has the keys {keys}")


class NativeTasks(Native, Tasks):
    """``tasks`` of version 10."""

    scenario = "native-tasks"
