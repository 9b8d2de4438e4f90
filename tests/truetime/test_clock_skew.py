"""Goal: times that lie in the past stand in order with those that Java takes from its clock.

Method: random worlds of machines under one lock (``clock_world``), whose clocks are as far apart as the bound
allows, or farther. Then each part of the rule is left out, and the same worlds find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from clock_world import ClockWorld, Machine

from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes

BOUND_MS = 4
WORLDS = 1500


def faults(
    kinds: list[str], *, apart_ms: float = BOUND_MS - 1, lags: bool = True, worlds: int = WORLDS
) -> set[str]:
    """What goes wrong where the clocks of these machines are so far apart at most, the ends among them."""
    found: set[str] = set()
    for seed in range(worlds):
        world = ClockWorld(seed, ClockSkew(BOUND_MS, lags), [])
        ends = [0.0, apart_ms, *(world.random.uniform(0, apart_ms) for _ in kinds)][: len(kinds)]
        world.random.shuffle(ends)
        world.machines = [Machine(kind, end) for kind, end in zip(kinds, ends, strict=True)]
        found.update(world.run(12))
    return found


@pytest.mark.parametrize("kinds", [["ours", "java"], ["ours", "ours", "java", "java"]])
def test_times_in_the_past_stand_in_order_beside_java_that_makes_its_files_in_its_sections(kinds) -> None:
    assert faults(kinds) == set()


def test_among_our_writers_no_clock_counts() -> None:
    assert faults(["ours", "ours", "ours"], apart_ms=50 * BOUND_MS) == set()


def test_clocks_of_ours_and_of_java_may_be_apart_by_half_as_much_again_as_the_bound() -> None:
    assert faults(["ours", "java"], apart_ms=1.5 * BOUND_MS) == set()
    assert faults(["ours", "java"], apart_ms=3 * BOUND_MS) != set()


def test_beside_java_that_makes_requests_outside_of_its_sections_the_skew_is_waited_out() -> None:
    assert faults(["ours", "late"], lags=False) == set()
    assert faults(["ours", "late"]) == {"two files have the same time"}


def test_where_nothing_new_is_listed_nothing_is_waited_for() -> None:
    skew = ClockSkew(200)
    for now in range(1_000_000, 1_000_010):
        reading = skew.reading(now)
        assert now - 303 <= reading < now - 300
        assert skew.left_ms(reading + 1 - now) == 0
    assert ClockSkew(200, lags=False).left_ms(0) == 200
    assert ClockSkew(0).reading(1_000_000) == 1_000_000 and ClockSkew(0).left_ms(0) == 0


def test_a_time_of_a_machine_whose_clock_is_wrong_is_not_waited_for_by_the_hour() -> None:
    assert ClockSkew(200).left_ms(3_600_000) == 305


FOLLOWING = InstantTimes.next
LEFT_OUT = {
    "it lags by half of the bound": (ClockSkew, "_clear_ms", property(lambda self: self.bound_ms // 2)),
    "it does not wait for what is left": (ClockSkew, "left_ms", lambda self, ahead_ms: 0),
    "it waits until the clock shows the time": (ClockSkew, "left_ms", lambda self, ahead: max(0, ahead)),
    "it does not list": (InstantTimes, "next", lambda self, now, newest, begins: FOLLOWING(self, now, "")),
}


@pytest.fixture(params=LEFT_OUT.values(), ids=LEFT_OUT)
def left_out(request: pytest.FixtureRequest) -> Iterator[None]:
    with patch.object(*request.param):
        yield


@pytest.mark.usefixtures("left_out")
def test_each_part_that_is_left_out_is_found() -> None:
    assert faults(["ours", "ours", "java", "java"]) != set()
