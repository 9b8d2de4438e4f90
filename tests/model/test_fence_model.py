"""Goal: the completion fence keeps publication in time order without trusting any lock or clock.

Method: every reachable state of a small model (``fence_model``) is visited, breadth first: any writer
may go on, stop or die between any two storage calls, every clock may say anything, and listings are
not atomic. Then each step is left out or moved, and the search must find how that goes wrong.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from fence_model import CORRECT, Model, moved, search, without

SIZES = [(2, 2), (3, 1)]


@pytest.mark.parametrize(("writers", "tries"), SIZES)
def test_the_handshake_keeps_time_order_in_every_reachable_state(writers: int, tries: int) -> None:
    result = search(Model(writers, tries))
    assert result.trace is None, result.trace
    assert result.published > 1000  # the search did get as far as publishing


@pytest.mark.parametrize(("writers", "tries", "old"), [(2, 2, 1), (3, 1, 1), (3, 1, 2), (2, 2, 2)])
def test_processes_of_the_version_before_take_part_beside_those_of_this_one(
    writers: int, tries: int, old: int
) -> None:
    result = search(Model(writers, tries, old=old))
    assert result.trace is None, result.trace
    assert result.published > 1000


@pytest.mark.parametrize(("writers", "tries"), SIZES)
def test_the_fence_of_renames_keeps_time_order_although_markers_go_with_their_publication(
    writers: int, tries: int
) -> None:
    result = search(Model(writers, tries, moves=True))
    assert result.trace is None, result.trace
    assert result.published > 1000


@pytest.mark.parametrize(("writers", "tries"), SIZES)
def test_the_number_of_epoch_markers_is_bounded_by_the_writers(writers: int, tries: int) -> None:
    # one that stays for good, and one for each writer that has not yet cleared
    assert search(Model(writers, tries)).most_files <= writers + 1


BROKEN = {
    "no look for a greater marker": Model(2, 2, checks=False),
    "no sweep": Model(2, 2, steps=without("clear")),
    "tickets of the version before are not swept": Model(2, 2, steps=without("sweep"), old=1),
    "clock only, no monotone guard": Model(2, 2, guard=False),
    "sweep before the own marker": Model(2, 2, steps=moved("mark", before="newest")),
    "newest time read before the sweep": Model(2, 2, steps=moved("newest", before="clear")),
    "newest time read before the listing": Model(2, 2, steps=moved("newest", before="list")),
    "newest time read before the marker": Model(2, 2, steps=moved("newest", before="mark")),
    "a number that was swept comes back": Model(2, 2, unique=False),
}


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("omission", BROKEN)
def test_each_omission_is_refuted_by_a_counter_example(omission: str, moves: bool) -> None:
    if BROKEN[omission].old and moves:
        pytest.skip("there were no versions before")
    result = search(replace(BROKEN[omission], moves=moves))
    assert result.trace is not None
    assert ":link: " in result.trace[-1]


@pytest.mark.parametrize("old", [0, 1])
@pytest.mark.parametrize(("writers", "tries"), SIZES)
def test_markers_may_be_cleared_before_tickets(writers: int, tries: int, old: int) -> None:
    model = Model(writers, tries, steps=moved("clear", before="sweep"), old=old)
    assert search(model).trace is None


def test_the_model_has_the_steps_in_the_order_that_the_fence_documents() -> None:
    assert CORRECT == ("mark", "list", "list_end", "sweep", "clear", "newest", "link")


@pytest.mark.skipif("MAINSTEM_FULL_MODEL" not in os.environ, reason="some minutes and 2 GiB of memory")
def test_two_writers_with_three_tries_each_keep_time_order_in_two_million_states() -> None:
    result = search(Model(2, 3))
    assert result.trace is None, result.trace
    assert result.states > 1_000_000
