"""Seeded bugs of merging."""

from __future__ import annotations

from unittest.mock import patch

from mainstem.merge import comparison
from tests.sim.mutants.mutant import Patch, seeded_bug


@seeded_bug("of rows with equal ordering values the earlier one wins", "logs")
def the_earlier_wins_ties() -> list[Patch]:
    return [patch.object(comparison, "LATER_WINS_TIES", False)]
