"""What table services did to a table, counted on its timeline, active and archived."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mainstem
from mainstem.lsm_archive.reader import Archive
from mainstem.timeline.instant import CLEAN, COMMIT


@dataclass(frozen=True)
class ServicesDone:
    """Completed services, instants archived and still active, and files that are there now."""

    compactions: int
    cleans: int
    archived: int
    active: int
    base_files: int
    log_files: int

    def describe(self) -> str:
        return (
            f"{self.compactions} compactions, {self.cleans} cleans, {self.archived} instants archived,"
            f" {self.active} active; {self.base_files} base and {self.log_files} log files are left"
        )


def services_done(path: str | Path) -> ServicesDone:
    """Count them; nobody may be writing."""
    table = mainstem.open_table(path)
    active = {(i.requested, i.action) for i in table.timeline()}
    archived = {(i.requested, i.action) for i in Archive.load(table.opened.seams.storage).instants()}
    actions = Counter(action for _, action in active | archived)
    slices = table.file_slices()
    return ServicesDone(
        actions[COMMIT],
        actions[CLEAN],
        len(archived),
        len(active - archived),
        sum(s.base_file is not None for s in slices),
        sum(len(s.log_files) for s in slices),
    )
