"""Follows the file groups of consistent hashing while a transaction that wrote to them is open.

A clustering splits and merges file groups: what is written to a replaced one is lost. A commit looks at what
replaced file groups since its instant was requested (its rings were read later), and at plans that will,
outside the lock and again under it. A plan of ours is taken back, since a writer comes first; rows whose file
groups were replaced are appended anew by the rings as they are now (``ringed_rows``), or, where tasks wrote
them, routed anew under another instant (``routed_anew``). A plan of another engine stands: nothing of the
transaction is visible then, and its rows are to be written again.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem.layout.key_index import GroupOfKey
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.clustering_plans import load_clustering_plan
from mainstem.timeline.instant import CLUSTERING, REPLACECOMMIT
from mainstem.writers.conflicts import CompletedWrites
from mainstem.writers.context import WriterContext
from mainstem.writers.keys_placed_meanwhile import Replaced
from mainstem.writers.rollback import take_back_clustering


class RingsMeanwhile:
    """Looks at each instant that replaced file groups since a transaction began.

    ``groups``: those that it wrote to by now; None: any, as of a write that becomes base files.
    """

    def __init__(
        self, ctx: WriterContext, instant: str, groups: Callable[[], frozenset[GroupOfKey]], *, every: bool
    ) -> None:
        self._ctx = ctx
        self._storage = ctx.seams.storage
        self._instant = instant
        self._groups = groups
        self._every = every
        self._writes = CompletedWrites(self._storage, instant, ctx.config.history)
        self._done: set[str] = set()

    def withdraw_plans(self, timeline: ActiveTimeline) -> None:
        """Outside the lock: take back plans of ours that would leave rows out."""
        for requested, ours in self._plans(timeline):
            if ours:
                take_back_clustering(self._ctx, timeline, requested)

    def find(self, timeline: ActiveTimeline) -> Replaced | None:
        """What replaced, or will replace, one of the transaction's file groups; None: nothing does.

        Call it once before taking the lock, so that few files remain to be read under it.
        """
        plans = self._plans(timeline)
        for requested, ours in sorted(plans, key=lambda plan: plan[1]):
            return Replaced(f"the pending clustering {requested} replaces them", passes=ours)
        return self._replaced(timeline)

    def _replaced(self, timeline: ActiveTimeline) -> Replaced | None:
        mine = self._groups()
        for instant in timeline.instants:
            if instant.action != REPLACECOMMIT or not instant.is_completed:
                continue
            if instant.requested in self._done or (instant.completion or "") < self._instant:
                continue
            found = self._writes.active(instant)
            if found is None:
                continue  # archived since the listing: see below
            if not mine.isdisjoint(found.replaced_groups()):
                return Replaced(f"the {instant.action} {instant.requested} replaced them", again=True)
            self._done.add(instant.requested)
        for requested, action, archived in self._writes.archived(lambda one: one not in self._done):
            if action != REPLACECOMMIT:
                self._done.add(requested)
            elif archived is None or not mine.isdisjoint(archived.replaced_groups()):
                return Replaced(f"the archived {action} {requested} replaced them", again=True)
            else:
                self._done.add(requested)
        return None

    def _plans(self, timeline: ActiveTimeline) -> list[tuple[str, bool]]:
        """Pending clusterings of its file groups, and whether they are ours."""
        mine, found = self._groups(), []
        for requested in (i.requested for i in timeline.pending if i.action == CLUSTERING):
            try:
                plan = load_clustering_plan(self._storage, requested)
            except FileNotFoundError:
                continue  # gone since the listing, or completed: a later look tells
            if plan is None or (self._every and plan.ours) or not mine.isdisjoint(plan.taken):
                found.append((requested, plan is not None and plan.ours))
        return found
