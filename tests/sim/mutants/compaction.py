"""Seeded bugs of compactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from mainstem.readers.planning import table_state
from mainstem.services import compaction
from mainstem.services.compaction_plan import DueGroups, FileListing
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug


@seeded_bug(
    "a compaction is planned from what was completed before the lock was taken (R9, HUDI-8464)", "compactions"
)
def plan_before_the_lock() -> list[Patch]:
    listed = FileListing.__init__

    def look(self: Any, storage: Any, config: Any) -> None:
        listed(self, storage, config)
        self.found = listing_now(self)

    listing_now = FileListing.now
    return [
        patch.object(FileListing, "__init__", look),
        patch.object(FileListing, "now", lambda self: self.found),
    ]


@seeded_bug("a compaction takes in the logs of writers in flight", "compactions")
def plan_with_logs_in_flight() -> list[Patch]:
    whole = table_state.TableState.group

    def with_pending(self: Any, partition: str, names: Any, *, visible_only: bool = True) -> Any:
        groups = whole(self, partition, names, visible_only=False)
        kept = [replace(g, slices=tuple(s for s in g.slices if not s.pending)) for g in groups]
        return [g for g in kept if g.slices]

    find = DueGroups._find

    def plan(self: DueGroups, *given: Any) -> Any:
        with patch.object(table_state.TableState, "group", with_pending):
            return find(self, *given)

    return [patch.object(DueGroups, "_find", plan)]


@seeded_bug("writers that went on are not seen by a plan that was made before the lock", "compactions")
def plan_beside_writers_unseen() -> list[Patch]:
    return [patch.object(FileListing, "grown", property(lambda self: set(), nothing), create=True)]


@seeded_bug("a compaction is completed without asking whether it still is pending", "compactions")
def complete_without_a_look() -> list[Patch]:
    return [patch.object(compaction.Execution, "ended", lambda self, section, stats: None)]
