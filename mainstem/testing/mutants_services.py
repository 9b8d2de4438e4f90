"""Seeded bugs of what services have in common, found by the scenario in which all of them run."""

from __future__ import annotations

from unittest.mock import patch

from mainstem.services import savepoints
from mainstem.testing.mutant import Patch, nothing, seeded_bug
from mainstem.testing.world import Faults

SKEWED = Faults(skew_ms=20_000)


@seeded_bug("the time of a deleted savepoint may be given again", "services", SKEWED)
def deleted_time_given_again() -> list[Patch]:
    return [patch.object(savepoints, "note_newest", nothing)]
