"""Seeded bugs of what services have in common, found by the scenario in which all of them run."""

from __future__ import annotations

import itertools
from typing import Any
from unittest.mock import patch

from mainstem.layout import slicing
from mainstem.publish.publisher import Guarded
from mainstem.readers.planning import table_state
from mainstem.services.compaction import Execution
from mainstem.writers import append, rollback
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug
from tests.sim.world import Faults

STANDING = Faults(pause=0.03, pause_ms_max=6000)
SKEWED = Faults(skew_ms=20_000)


@seeded_bug("the time of a deleted savepoint may be given again", "services", SKEWED)
def deleted_time_given_again() -> list[Patch]:
    return [patch.object(Guarded, "note_newest", nothing)]


@seeded_bug("an archived instant has no completion time: plans leave its log files out (#14365)", "services")
def archived_times_unknown() -> list[Patch]:
    def active(self: Any, requested: str) -> str | None:
        return self.timeline.completion_times.get(requested)

    return [patch.object(table_state.TableState, "completion", active)]


@seeded_bug("log files of task attempts that lost are compacted (R10, #10803)", "services")
def lost_attempts_shown() -> list[Patch]:
    return [patch.object(slicing, "_committed", lambda files, partition, written: files)]


@seeded_bug("a bucket gets another file id each time its folder is found empty (R3, #19907)", "tables")
def another_file_id() -> list[Patch]:
    count = itertools.count(1)

    def fresh(bucket: int) -> str:
        return f"{bucket:08d}-0000-0000-0000-{next(count):012d}-0"

    return [patch.object(append, "nbcc_file_id", fresh)]


@seeded_bug("a delta commit rolls back a compaction that nobody executes just now (R12, #10891)", "services")
def compactions_rolled_back() -> list[Patch]:
    candidates = rollback._candidates

    def more(timeline: Any) -> Any:
        return [*candidates(timeline), *timeline.pending_compactions]

    return [patch.object(rollback, "_candidates", more)]


@seeded_bug("an overtaken executor completes the compaction once more (T16)", "services", STANDING)
def compaction_completed_twice() -> list[Patch]:
    return [patch.object(Execution, "ended", nothing)]
