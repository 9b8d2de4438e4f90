"""Seeded bugs of the completion fence and of instant times."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.publish import publisher
from mainstem.publish.link_fence import LinkEpoch, LinkFence
from mainstem.publish.publisher import Publisher
from mainstem.publish.skew_wait import SkewWait
from mainstem.storage import paths
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from tests.sim.mutants.mutant import LOSING_LEASES, Patch, nothing, seeded_bug
from tests.sim.sim_lock import SimLease


@seeded_bug("markers and tickets of earlier epochs are not swept", "publishers", LOSING_LEASES)
def no_sweep() -> list[Patch]:
    return [patch.object(LinkEpoch, "sweep", nothing)]


@seeded_bug("a holder does not look for a later epoch", "publishers", LOSING_LEASES)
def no_epoch_check() -> list[Patch]:
    return [patch.object(LinkEpoch, "check", nothing), patch.object(LinkFence, "_seen", lambda *given: 0)]


@seeded_bug("the marker with the content is put in place when it is linked", "publishers", LOSING_LEASES)
def check_before_ticket() -> list[Patch]:
    mark, link = LinkEpoch.mark, LinkEpoch.publish

    def now(self: LinkEpoch, target: str, *, durable: bool = True) -> None:
        mark(self)
        link(self, target, durable=durable)

    return [patch.object(LinkEpoch, "mark", nothing), patch.object(LinkEpoch, "publish", now)]


@seeded_bug("others are swept before the own marker exists", "publishers", LOSING_LEASES)
def sweep_before_marker() -> list[Patch]:
    def enter(
        self: LinkFence, content: str | None = None, ahead: str | None = None, **given: object
    ) -> LinkEpoch:
        names = self._storage.names(paths.FENCE)
        self._seen(names)
        epoch = self._epoch(content)
        epoch.sweep(names)
        epoch.mark()
        if ahead is not None:
            epoch.place_ahead(ahead)
        return epoch

    return [patch.object(LinkFence, "enter", enter)]


@seeded_bug("a write does not look what completed before its request was there", "publishers", LOSING_LEASES)
def begins_blindly() -> list[Patch]:
    return [patch.object(publisher, "_overtaken", lambda *given: False)]


@seeded_bug("the newest time is read before earlier tickets are swept", "publishers", LOSING_LEASES)
def newest_before_sweep() -> list[Patch]:
    section = Publisher._section

    def early(self: Publisher, *given: Any) -> Any:
        listed = self._reader.load()
        with patch.object(self._reader, "load", lambda *given: listed):
            return section(self, *given)

    return [patch.object(Publisher, "_section", early)]


@seeded_bug("instants come from the clock alone, not above the newest one", "publishers")
def clock_only() -> list[Patch]:
    return [patch.object(InstantTimes, "next", lambda self, now, newest, begins=False: self.format(now))]


@seeded_bug("the time is chosen before the lock is taken", "publishers")
def time_before_lock() -> list[Patch]:
    whole, following = Publisher.publish, InstantTimes.next

    def early(self: Publisher, target: Any, **named: Any) -> Any:
        now = self._seams.clock.now_ms()
        time = following(self._times, now, self.timeline().newest_time)
        with patch.object(self._times, "next", lambda now, newest, begins=False: time):
            return whole(self, target, **named)

    return [patch.object(Publisher, "publish", early)]


@seeded_bug("the lock client's flag is trusted: no epochs, no tickets (R7, #19334)", "publishers")
def trusts_the_flag() -> list[Patch]:
    return [
        patch.object(LinkEpoch, "sweep", nothing),
        patch.object(LinkEpoch, "check", nothing),
        patch.object(LinkFence, "_seen", lambda *given: 0),
        patch.object(SimLease, "check", nothing),
    ]


@seeded_bug("epoch markers are never removed")
def markers_pile_up() -> list[Patch]:
    whole = LinkEpoch.sweep

    def sweep(self: LinkEpoch, names: list[str]) -> None:
        whole(self, [name for name in names if paths.parse_epoch(name) is None])

    return [patch.object(LinkEpoch, "sweep", sweep)]


@seeded_bug("completed instants are created in place instead of linked")
def created_in_place() -> list[Patch]:
    def link(self: LinkEpoch, target: str, *, durable: bool = True) -> None:
        self._storage.put_new(target, self._storage.read(self.marker, max_bytes=2**30), durable=True)

    return [patch.object(LinkEpoch, "publish", link)]


@seeded_bug("a write is acknowledged although nobody made its name durable")
def sync_left_to_others() -> list[Patch]:
    return [patch.object(Publisher, "_sync", nothing)]


def _skewed(**changes: Any) -> list[Patch]:
    """Other numbers of ``ClockSkew`` in place of the right ones."""
    return [patch.object(ClockSkew, name, value) for name, value in changes.items()]


@seeded_bug("times lie in the past, and not far enough: by the skew of two clocks of three", "mixed")
def lags_too_little() -> list[Patch]:
    return _skewed(_clear_ms=property(lambda self: self.bound_ms // (4 if self.lags else 1)))


@seeded_bug("times lie in the past, whatever is listed", "mixed")
def lags_unlisted() -> list[Patch]:
    following = InstantTimes.next

    def blind(self: InstantTimes, now: int, newest: str, *, begins: bool = False) -> str:
        return following(self, now, "", begins=begins)

    return [patch.object(InstantTimes, "next", blind)]


@seeded_bug("nobody waits until a time lies below the clock of another kind of writer", "mixed")
def no_wait_beside_java() -> list[Patch]:
    return _skewed(left_ms=lambda self, ahead_ms: 0)


@seeded_bug("only what begins is kept clear of other clocks, not what completes", "mixed")
def completes_at_once() -> list[Patch]:
    section = Publisher._section

    def hasty(self: Publisher, *given: Any) -> Any:
        with patch.object(Publisher, "_keep_clear", nothing):
            return section(self, *given)

    return [patch.object(Publisher, "_section", hasty)]


@seeded_bug("the time is taken by the listing before another kind of writer's last file", "mixed")
def lags_behind_the_listing() -> list[Patch]:
    section = Publisher._section

    def early(self: Publisher, *given: Any) -> Any:
        listed = getattr(self, "listed_before", self._reader.load())
        self.listed_before = self._reader.load()  # type: ignore[attr-defined]
        whole = self._time

        def time(newest: str, *, begins: bool = False) -> str:
            return whole(listed.newest_time, begins=begins)

        with patch.object(self, "_time", time):
            return section(self, *given)

    return [patch.object(Publisher, "_section", early)]


@seeded_bug("an exclusive table does not notice another kind of writer", "mixed")
def strangers_unnoticed() -> list[Patch]:
    return [patch.object(SkewWait, "_is_ours", lambda self, name, timeline: True)]
