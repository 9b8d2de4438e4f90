"""Seeded bugs of archiving, of look-ups in the archive, and of guards that were archived."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.lsm_archive.reader import Archive
from mainstem.publish.publisher import Guarded
from mainstem.readers.planning.table_state import TableState
from mainstem.services import archive_plan, archiving
from mainstem.services.archive_version import NewVersion
from mainstem.services.archiving import _Round
from mainstem.timeline.instant import RESTORE
from mainstem.writers import rollback
from mainstem.writers.stream_guard import GuardIndex
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug
from tests.sim.world import Faults

CRASHING = Faults(crash=0.01)
# The mixture that showed it: many crashes, and calls whose reply is lost.
UNSETTLED = Faults(error_before=0.004, error_after=0.008, host_crash=0.002)
# The same, and executors of plans die, too.
LEFT_TO_OTHERS = Faults(error_before=0.008, error_after=0.008, crash=0.01, host_crash=0.004)
# What is lost is what others archive between the last look and the switch: archivers stop just there.
OVERTAKEN = Faults(pause_before="rename", pause_ms_max=10_000, skew_ms=50)
MACHINE = Faults(host_crash=0.004)


@seeded_bug("completed files go before requested ones: what is archived looks pending", "archives", CRASHING)
def completed_goes_first() -> list[Patch]:
    whole = archiving._delete_active

    def hasty(section: Guarded, folder: str, timeline: Any, going: list[Any]) -> None:
        for instant in going:
            section.storage.delete(f"{folder}/{instant.file_name}")
        whole(section, folder, timeline, going)

    return [patch.object(archiving, "_delete_active", hasty)]


@seeded_bug("instants are deleted before the archive's version is switched", "archives", CRASHING)
def deletes_before_the_switch() -> list[Patch]:
    def move(self: _Round, section: Guarded, going: list[Any], switch: Any) -> bool:
        timeline = self._still_right(section, going, switch)
        if timeline is None:
            return False
        archiving._delete_active(section, self.subject.timeline, timeline, going)
        return switch is None or self.version.switch(section, switch)

    return [patch.object(_Round, "_move", move)]


@seeded_bug(
    "archiving goes by requested times alone (as Java's): a writer in flight may have listed what goes",
    "archives",
)
def archives_by_requested_times() -> list[Patch]:
    return [patch.object(archive_plan, "_completed_after", lambda *_: False)]


@seeded_bug("the switch trusts the lock: no ticket, no look at the epoch", "archives", OVERTAKEN)
def switches_without_the_fence() -> list[Patch]:
    def replace(self: Guarded, prepared: str, target: str) -> None:
        self.storage.rename(prepared, target)

    return [patch.object(Guarded, "replace", replace), patch.object(Guarded, "check", nothing)]


@seeded_bug("the switch is not made durable before instants are deleted", "archives", MACHINE)
def switch_not_synced() -> list[Patch]:
    whole = NewVersion.switch

    def hasty(self: NewVersion, section: Guarded, switch: Any) -> bool:
        storage = self.ctx.seams.storage
        with patch.object(storage, "sync_folder", nothing):
            return whole(self, section, switch)

    return [patch.object(NewVersion, "switch", hasty)]


@seeded_bug(
    "who finishes what another began to archive does not make its switch durable",
    "archives",
    faults=UNSETTLED,
)
def others_switch_not_synced() -> list[Patch]:
    whole = _Round._move

    def hasty(self: _Round, section: Guarded, going: list[Any], switch: Any) -> bool:
        if switch is not None:
            return whole(self, section, going, switch)
        with patch.object(self.ctx.seams.storage, "sync_folder", nothing):
            return whole(self, section, going, switch)

    return [patch.object(_Round, "_move", hasty)]


@seeded_bug("a rollback completes before the removal of files is durable", "archives", UNSETTLED)
def removals_not_durable() -> list[Patch]:
    return [patch.object(rollback, "_settle_removals", nothing)]


@seeded_bug("a rollback makes durable only what it removed itself", "archives", LEFT_TO_OTHERS)
def only_own_removals_durable() -> list[Patch]:
    def own(ctx: Any, rollback: str, instant: str, deleted: Any) -> None:
        ctx.seams.storage.settle([], sorted(deleted), durable=True)

    return [patch.object(rollback, "_settle_removals", own)]


@seeded_bug("completed restores stay when younger commits are archived (as Java does)", "restores")
def restores_stay() -> list[Patch]:
    along = archive_plan._along

    def fewer(*given: Any) -> list[Any]:
        return [i for i in along(*given) if i.action != RESTORE]

    return [patch.object(archive_plan, "_along", fewer)]


@seeded_bug("the archive is asked before the active timeline is listed", "archives")
def archive_before_timeline() -> list[Patch]:
    load = TableState.load.__func__

    def early(cls: type, storage: Any, config: Any) -> TableState:
        archive = Archive.load(storage, config.history)
        assert archive.manifest is not None
        state = load(cls, storage, config)
        state.archive = archive
        return state

    return [patch.object(TableState, "load", classmethod(early))]


@seeded_bug("a guard is looked for on the active timeline only", "archives")
def archived_guards_forgotten() -> list[Patch]:
    return [patch.object(GuardIndex, "_noted", lambda self, guard, timeline: iter(()))]
