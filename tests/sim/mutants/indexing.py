"""Seeded bugs of building and dropping an index beside writers: of two races, and of a builder that
stood still."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.indexing import index_build
from mainstem.indexing.coverage import Coverage
from mainstem.metadata.commits.partition_rows import Maintained
from mainstem.publish.publisher import Guarded
from tests.sim.mutants.mutant import STOPPING, Patch, nothing, seeded_bug


@seeded_bug("a writer takes the list of indexes that it saw before the lock (RFC-45, first race)", "indexing")
def lists_not_read_again() -> list[Patch]:
    real = Maintained.now

    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    def now(*given: Any, locked: bool = False) -> Any:
        return Same() if locked else real(*given)

    return [patch.object(Maintained, "now", now)]


@seeded_bug("the listing point lies before the index is in the list (RFC-45, second race)", "indexing")
def listed_before_the_lock() -> list[Patch]:
    schedule, open_ = index_build.schedule, index_build._Build._open
    before: dict[str, Any] = {}

    def planned(ctx: Any, *given: Any) -> str:
        timeline = ctx.timeline()
        action = schedule(ctx, *given)
        before[action] = timeline
        return action

    def opened(self: Any, section: Guarded) -> None:
        open_(self, section)
        self.opened = (before[self.action], self.opened[1])

    covered = patch.object(Coverage, "_missing", lambda *given: [])
    plan, build = patch.object(index_build, "schedule", planned), index_build._Build
    return [plan, patch.object(build, "_open", opened), covered]


@seeded_bug("a builder that was taken for dead completes its index all the same", "indexing", STOPPING)
def completes_when_ended() -> list[Patch]:
    return [
        patch.object(index_build._Build, "_check_ours", nothing),
        patch.object(index_build._Build, "_may_complete", lambda self, section, coverage: None),
    ]
