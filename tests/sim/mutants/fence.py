"""Seeded bugs of the completion fence and of instant times."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.errors import LeaseLost
from mainstem.publish import link_fence, publisher
from mainstem.publish.link_fence import Epoch
from mainstem.publish.publisher import Publisher
from mainstem.storage import paths
from mainstem.truetime.instant_times import InstantTimes
from tests.sim.mutants.mutant import LOSING_LEASES, Patch, nothing, seeded_bug
from tests.sim.sim_lock import SimLease


@seeded_bug("tickets of earlier epochs are not swept", "publishers", LOSING_LEASES)
def no_sweep() -> list[Patch]:
    return [patch.object(Epoch, "sweep", nothing)]


@seeded_bug("a holder does not look for a later epoch", "publishers", LOSING_LEASES)
def no_epoch_check() -> list[Patch]:
    return [patch.object(Epoch, "check", nothing)]


@seeded_bug("the epoch is checked before the ticket is in place", "publishers", LOSING_LEASES)
def check_before_ticket() -> list[Patch]:
    place, link = Epoch.place_ticket, Epoch.publish

    def later(self: Epoch, prepared: str | None) -> None:
        self.prepared = prepared  # type: ignore[attr-defined]

    def now(self: Epoch, target: str) -> None:
        place(self, self.prepared)  # type: ignore[attr-defined]
        link(self, target)

    return [patch.object(Epoch, "place_ticket", later), patch.object(Epoch, "publish", now)]


@seeded_bug("tickets are swept before the own marker exists", "publishers", LOSING_LEASES)
def sweep_before_marker() -> list[Patch]:
    def enter(storage: Any, random: Any, table: str | None = None) -> Epoch:
        names = storage.names(paths.FENCE)
        last = max((n for n in map(paths.parse_epoch, names) if n is not None), default=0)
        epoch = Epoch(storage, last + 1, f"{random.getrandbits(64):016x}", names)
        epoch.sweep()
        try:
            storage.put_new(epoch.marker, b"", durable=False)
        except FileExistsError as error:
            raise LeaseLost("the epoch was begun by another holder") from error
        return epoch

    return [patch.object(publisher, "enter_epoch", enter), patch.object(link_fence, "enter_epoch", enter)]


@seeded_bug("the newest time is read before earlier tickets are swept", "publishers", LOSING_LEASES)
def newest_before_sweep() -> list[Patch]:
    section = Publisher._section

    def early(self: Publisher, *given: Any) -> Any:
        listed = self._reader.load()
        with patch.object(self._reader, "load", lambda: listed):
            return section(self, *given)

    return [patch.object(Publisher, "_section", early)]


@seeded_bug("instants come from the clock alone, not above the newest one", "publishers")
def clock_only() -> list[Patch]:
    return [patch.object(InstantTimes, "next", lambda self, now, newest: self.format(now))]


@seeded_bug("the time is chosen before the lock is taken", "publishers")
def time_before_lock() -> list[Patch]:
    whole, following = Publisher.publish, InstantTimes.next

    def early(self: Publisher, target: Any, **named: Any) -> Any:
        now = self._seams.clock.now_ms()
        time = following(self._times, now, self.timeline().newest_time)
        with patch.object(self._times, "next", lambda now, newest: time):
            return whole(self, target, **named)

    return [patch.object(Publisher, "publish", early)]


@seeded_bug("the lock client's flag is trusted: no epochs, no tickets (R7, #19334)", "publishers")
def trusts_the_flag() -> list[Patch]:
    return [
        patch.object(Epoch, "sweep", nothing),
        patch.object(Epoch, "check", nothing),
        patch.object(SimLease, "check", nothing),
    ]


@seeded_bug("epoch markers are never removed")
def markers_pile_up() -> list[Patch]:
    def sweep(self: Epoch) -> None:
        for name in self._storage.names(paths.FENCE):
            number = paths.parse_ticket_epoch(name)
            if number is not None and number < self.number:
                self._storage.delete(f"{paths.FENCE}/{name}")

    return [patch.object(Epoch, "sweep", sweep)]


@seeded_bug("completed instants are created in place instead of linked")
def created_in_place() -> list[Patch]:
    def link(self: Epoch, target: str) -> None:
        self._storage.put_new(target, self._storage.read(self.ticket, max_bytes=2**30), durable=True)

    return [patch.object(Epoch, "publish", link)]


@seeded_bug("the clock wait is left out beside another kind of writer", "mixed")
def no_wait_beside_java() -> list[Patch]:
    whole = Publisher._skew_wait_ms

    def none(self: Publisher, *given: Any) -> int:
        whole(self, *given)
        return 0

    return [patch.object(Publisher, "_skew_wait_ms", none)]


@seeded_bug("an exclusive table does not notice another kind of writer", "mixed")
def strangers_unnoticed() -> list[Patch]:
    return [patch.object(Publisher, "_is_ours", lambda self, name, timeline: True)]
