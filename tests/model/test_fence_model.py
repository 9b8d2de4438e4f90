"""Goal: the completion fence keeps publication in time order without trusting any lock or clock.

Method: every reachable state of a small model (``fence_model``) is visited, breadth first: any writer
may go on, stop or die between any two storage calls, every clock may say anything, and listings are
not atomic. Then each step is left out or moved, and the search must find how that goes wrong.
"""

from __future__ import annotations

import os

import pytest
from fence_model import CORRECT, Model, moved, search, without

SIZES = [(2, 2), (2, 3), (3, 1)]


@pytest.mark.parametrize(("writers", "tries"), SIZES)
def test_the_handshake_keeps_time_order_in_every_reachable_state(writers: int, tries: int) -> None:
    result = search(Model(writers, tries))
    assert result.trace is None, result.trace
    assert result.published > 1000  # the search did get as far as publishing


@pytest.mark.parametrize(("writers", "tries"), SIZES)
def test_the_number_of_epoch_markers_is_bounded_by_the_writers(writers: int, tries: int) -> None:
    # one that stays for good, and one for each writer that has not yet cleared
    assert search(Model(writers, tries)).most_files <= writers + 2
    # ... whatever the number of tries, whereas without clearing it grows with them
    assert search(Model(writers, tries, steps=without("clear"))).most_files == writers * tries + 1


BROKEN = {
    "no epoch check": Model(2, 2, steps=without("check", "check_end")),
    "no sweep": Model(2, 2, steps=without("sweep")),
    "a plain ticket: no check, no sweep": Model(2, 2, steps=without("check", "check_end", "sweep")),
    "clock only, no monotone guard": Model(2, 2, guard=False),
    "sweep before the own marker": Model(2, 2, steps=moved("mark", before="ticket")),
    "check before the own ticket": Model(2, 2, steps=moved("ticket", before="newest")),
    "newest time read before the sweep": Model(2, 2, steps=moved("newest", before="list")),
    "newest time read before the marker": Model(2, 2, steps=moved("newest", before="mark")),
    "markers cleared before tickets": Model(3, 1, steps=moved("clear", before="sweep")),
}


@pytest.mark.parametrize("omission", BROKEN)
def test_each_omission_is_refuted_by_a_counter_example(omission: str) -> None:
    result = search(BROKEN[omission])
    assert result.trace is not None
    assert result.trace[-1].endswith("link")


HARMLESS = {
    "newest time read before the ticket": moved("newest", before="ticket"),
    "newest time read before the check": moved("newest", before="check"),
    "markers cleared after publication": moved("clear", before="drop"),
}


@pytest.mark.parametrize("change", HARMLESS)
@pytest.mark.parametrize(("writers", "tries"), [(2, 2), (3, 1)])
def test_orders_that_do_not_matter_are_known_not_to_matter(
    change: str, writers: int, tries: int
) -> None:
    assert search(Model(writers, tries, steps=HARMLESS[change])).trace is None


def test_clearing_markers_first_is_broken_only_because_listings_are_not_atomic() -> None:
    early = moved("clear", before="sweep")
    assert search(Model(3, 1, steps=early, torn_listings=False)).trace is None
    assert search(Model(3, 1, steps=early, torn_listings=True)).trace is not None


def test_the_model_has_the_steps_in_the_order_that_the_fence_documents() -> None:
    order = [s for s in CORRECT if s in ("mark", "sweep", "clear", "ticket", "check", "newest", "link")]
    assert order == ["mark", "sweep", "clear", "ticket", "check", "newest", "link"]


@pytest.mark.skipif("MAINSTEM_FULL_MODEL" not in os.environ, reason="40 s and 2 GiB of memory")
def test_three_writers_with_two_tries_each_keep_time_order_in_three_million_states() -> None:
    result = search(Model(3, 2))
    assert result.trace is None, result.trace
    assert result.states > 2_500_000
