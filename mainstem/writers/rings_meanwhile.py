"""Checks whether file groups of consistent hashing still stand when what was written to them completes.

Hudi's clustering splits and merges file groups: what is written to a replaced one is lost. Under the lock a
commit looks at what replaced file groups since its instant was requested (its rings were read later), and at
plans that will. Nothing of it is visible then, and its rows are to be written again.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clustering_plans import load_clustering_plan
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.timeline.instant import CLUSTERING, REPLACECOMMIT
from mainstem.writers.conflicts import CompletedWrites
from mainstem.writers.keys_placed_meanwhile import Replaced


class RingsMeanwhile:
    """Looks at each instant that replaced file groups since a transaction began once."""

    def __init__(self, storage: Storage, instant: str, stats: Sequence[WriteStat], history: str) -> None:
        self._storage = storage
        self._instant = instant
        self._mine = frozenset((stat.partition, stat.file_id) for stat in stats)
        self._writes = CompletedWrites(storage, instant, history)
        self._done: set[str] = set()

    def find(self, timeline: ActiveTimeline) -> Replaced | None:
        """What replaced, or will replace, one of the transaction's file groups; None: nothing does.

        Call it once before taking the lock, so that few files remain to be read under it.
        """
        for instant in timeline.instants:
            if instant.action == CLUSTERING and not instant.is_completed:
                if self._planned(instant.requested):
                    return Replaced(f"the pending clustering {instant.requested} replaces them")
            elif instant.action == REPLACECOMMIT and instant.is_completed:
                if instant.requested in self._done or (instant.completion or "") < self._instant:
                    continue
                found = self._writes.active(instant)
                if found is None:
                    continue  # archived since the listing: see below
                if not self._mine.isdisjoint(found.replaced_groups()):
                    return Replaced(f"the {instant.action} {instant.requested} replaced them", again=True)
                self._done.add(instant.requested)
        for requested, action, archived in self._writes.archived(lambda one: one not in self._done):
            if action == REPLACECOMMIT and (
                archived is None or not self._mine.isdisjoint(archived.replaced_groups())
            ):
                return Replaced(f"the archived {action} {requested} replaced them", again=True)
            self._done.add(requested)
        return None

    def _planned(self, requested: str) -> bool:
        try:
            plan = load_clustering_plan(self._storage, requested)
        except FileNotFoundError:
            return False  # gone since the listing, or completed: a later look tells
        return plan is None or not self._mine.isdisjoint(plan.taken)
