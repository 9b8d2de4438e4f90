"""Seeded bugs of sections that several threads share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from mainstem.publish.link_fence import BesideEpoch, LinkEpoch, LinkFence
from mainstem.publish.publisher import Publisher, _Order
from mainstem.publish.shared_section import SharedSections, Work
from tests.sim.mutants.mutant import LOSING_LEASES, Patch, seeded_bug
from tests.sim.world import Faults

_INTERRUPTING = Faults(interrupt=0.01, skew_ms=50)
_LOSING_MACHINES = Faults(host_crash=0.004, skew_ms=50)


@seeded_bug("contents beside another one are placed after the fence was listed", "together", LOSING_LEASES)
def tickets_after_the_listing() -> list[Patch]:
    enter, publish = LinkFence.enter_together, BesideEpoch.publish

    def late(self: BesideEpoch, target: str) -> None:
        self._name(self._content or "", self.ticket)
        publish(self, target)

    def entered(self: LinkFence, contents: Sequence[str]) -> Any:
        with patch.object(BesideEpoch, "mark", lambda self: None):
            return enter(self, contents)

    return [
        patch.object(BesideEpoch, "publish", late),
        patch.object(LinkFence, "enter_together", entered),
    ]


@seeded_bug("contents beside another one are no matter of the fence", "together", LOSING_LEASES)
def tickets_without_an_epoch() -> list[Patch]:
    def put(self: BesideEpoch, target: str) -> None:
        self._storage.link(self._content, target)  # type: ignore[attr-defined]

    return [patch.object(BesideEpoch, "publish", put)]


@seeded_bug("commits of a shared section are told before they are durable", "together", _LOSING_MACHINES)
def told_before_durable() -> list[Patch]:
    def settle(self: Publisher, works: Sequence[Work[Any, Any]]) -> None:
        for work in works:
            assert isinstance(work.order, _Order) and work.order.shown is not None
            work.done(work.order.shown[1])

    return [patch.object(Publisher, "_settle_shown", settle)]


@seeded_bug("a commit whose leader was interrupted is made again blindly", "together", _INTERRUPTING)
def made_again_blindly() -> list[Patch]:
    def end_doubt(self: SharedSections[Any], work: Work[Any, Any]) -> None:
        work.doubt = None
        self._enter(work)

    return [patch.object(SharedSections, "_end_doubt", end_doubt)]


@seeded_bug("an interrupted thread does not wait for its leader", "together", _INTERRUPTING)
def leaves_at_once() -> list[Patch]:
    def leave(self: SharedSections[Any], work: Work[Any, Any]) -> None:
        self._forget(work)
        self._give_back(work)

    return [patch.object(SharedSections, "_leave", leave)]


@seeded_bug("all commits of a shared section get the time of the first", "together")
def one_time_for_all() -> list[Patch]:
    whole = Publisher._commit_together

    def together(self: Publisher, *given: Any) -> None:
        times: list[str] = []
        following = self._time

        def time(newest: str, *, begins: bool = False) -> str:
            times.append(following(newest, begins=begins))
            return times[0]

        with patch.object(self, "_time", time):
            whole(self, *given)

    return [patch.object(Publisher, "_commit_together", together)]


@seeded_bug("a shared section does not sweep earlier ones", "together", LOSING_LEASES)
def shared_without_sweep() -> list[Patch]:
    enter = LinkFence.enter_together

    def entered(self: LinkFence, contents: Sequence[str]) -> Any:
        with patch.object(LinkEpoch, "sweep", lambda self, names: None):
            return enter(self, contents)

    return [patch.object(LinkFence, "enter_together", entered)]
