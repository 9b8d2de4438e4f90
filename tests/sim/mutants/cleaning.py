"""Seeded bugs of cleaning."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.services import clean_plan, cleaning
from mainstem.services.clean_plan import Boundary, DataFile
from tests.sim.mutants.mutant import Patch, seeded_bug
from tests.sim.world import Faults

# Processes that stand still for a while, and nothing worse: writes, compactions and plans overlap.
OVERLAPPING = Faults(pause=0.02, pause_ms_max=1500, skew_ms=20)


@seeded_bug(
    "old log files are told by their requested time: those that completed late go (T7)",
    "cleanings",
    OVERLAPPING,
)
def cleans_late_logs() -> list[Patch]:
    def older(self: DataFile, cut: str) -> bool:
        return self.completed is not None and self.instant < cut

    return [patch.object(DataFile, "is_older", older)]


@seeded_bug(
    "a clean is published although a savepoint appeared since it was planned",
    "cleanings",
    OVERLAPPING,
)
def clean_overtaken_by_savepoint() -> list[Patch]:
    return [patch.object(cleaning, "is_overtaken", lambda planned, now: False)]


@seeded_bug("a cleaner deletes before its plan is on the timeline (R11, #9674)", "cleanings")
def clean_deletes_first() -> list[Patch]:
    whole = cleaning._publish

    def hasty(ctx: Any, planned_on: Any, plan: Any) -> Any:
        for path in plan.paths():
            ctx.seams.storage.delete(path)
        return whole(ctx, planned_on, plan)

    return [patch.object(cleaning, "_publish", hasty)]


@seeded_bug(
    "the slice kept before the boundary is chosen by requested time, complete or not",
    "cleanings",
    OVERLAPPING,
)
def boundary_by_requested_time() -> list[Patch]:
    def excludes(self: Boundary, instant: str, completion: str | None) -> bool:
        return instant < self.earliest.requested

    return [patch.object(Boundary, "excludes", excludes)]


@seeded_bug("what savepoints keep is not asked", "cleanings")
def savepoints_not_kept() -> list[Patch]:
    return [patch.object(clean_plan, "savepointed_files", lambda storage, timeline: {})]
