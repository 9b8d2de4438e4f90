"""Seeded bugs of tables without buckets: a key that left its file group while others knew it there."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile
from tests.sim.mutants.mutant import Patch, seeded_bug
from tests.sim.world import Faults

CALM = Faults()


@seeded_bug("a known key that left its file group is not looked for elsewhere", "placed-again", CALM)
def keys_that_left_are_known_for_good() -> list[Patch]:
    return [patch.object(KeysPlacedMeanwhile, "_left", lambda self, timeline, since: set())]


@seeded_bug("who inserts a key passes by those who knew it before it left", "placed-again", CALM)
def updates_of_keys_that_left_are_passed_by() -> list[Patch]:
    left = KeysPlacedMeanwhile._left

    def of_mine(self: Any, timeline: Any, since: str) -> Any:
        return left(self, timeline, since) if since == self._instant else set()

    return [patch.object(KeysPlacedMeanwhile, "_left", of_mine)]
