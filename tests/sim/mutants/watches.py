"""Seeded bugs of folders that are watched instead of listed."""

from __future__ import annotations

from unittest.mock import patch

from mainstem.timeline import active
from tests.sim.mutants.mutant import LOSING_LEASES, Patch, seeded_bug
from tests.sim.watched_world import SimWatch


@seeded_bug("a watch that lost something goes on as if it had not", "watched-publishers", LOSING_LEASES)
def watch_outlives_its_losses() -> list[Patch]:
    told = SimWatch.news
    return [patch.object(SimWatch, "news", lambda watch: told(watch) or [])]


@seeded_bug("what a watch tells to have gone stays in view", "watched")
def what_went_stays() -> list[Patch]:
    told = active.took_over

    def only_came(news: list[tuple[str, bool]], there: set[str]) -> frozenset[str]:
        return told([(name, came) for name, came in news if came], there)

    return [patch.object(active, "took_over", only_came)]
