"""Seeded bugs of restores."""

from __future__ import annotations

from unittest.mock import patch

from mainstem.publish.publisher import Publisher
from mainstem.services import restore_plan, restoring
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import WRITE_ACTIONS, Instant
from mainstem.writers import commit_checks
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug
from tests.sim.world import Faults

SLEEPING = Faults(pause=0.01, pause_ms_max=20_000, skew_ms=50)
QUIET = Faults(skew_ms=20)


@seeded_bug("a restore removes what was requested after the savepoint (Hudi before 1.1)", "restores", QUIET)
def restores_by_requested_time() -> list[Patch]:
    def later(timeline: ActiveTimeline, savepoint: Instant) -> list[Instant]:
        writes = (i for i in timeline.instants if i.action in WRITE_ACTIONS)
        return sorted((i for i in writes if i.requested > savepoint.requested), key=str, reverse=True)

    return [patch.object(restore_plan, "removed_by_restore", later)]


@seeded_bug("a restore removes data files before the instants are taken off the timeline", "restores", QUIET)
def data_files_before_instants() -> list[Patch]:
    return [patch.object(restoring, "unpublish", nothing)]


@seeded_bug("a restore does not ask whether writers live", "restores", QUIET)
def no_live_writer_check() -> list[Patch]:
    return [patch.object(restore_plan, "_check_quiet", nothing)]


@seeded_bug("a commit does not look for a pending restore", "restores", SLEEPING)
def commit_beside_restore() -> list[Patch]:
    return [
        patch.object(commit_checks, "being_restored", lambda storage, timeline: {}),
        patch.object(Publisher, "_refuse_beside_restore", nothing),
    ]
