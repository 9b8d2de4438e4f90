"""Goal: no bytes on storage make a parser crash, hang, eat memory or leak an error that is not ours.

Method: each target's smallest valid input is cut at every byte and has its bits flipped; mutated files of
Java's tables go through every target in a process with bounds on time and memory (`make fuzz` does that
for longer); parsers with planted bugs show that the harness finds them. docs/damage.md says which
flipped bits nothing can find, and is compared with the formats here.
"""

from __future__ import annotations

import random

import pytest

from mainstem.errors import CorruptTable
from tests.fuzz import canaries
from tests.fuzz.child import SLOWER
from tests.fuzz.corpus import strange
from tests.fuzz.harness import (
    Finding,
    Target,
    check_flips,
    check_seeds,
    check_truncation,
    smallest,
)
from tests.fuzz.run import bits, in_child
from tests.fuzz.targets import CONTAINER_PARSERS, TARGETS, protected

CASES = 2_000  # of each target
_EACH = [pytest.param(target, id=target.name) for target in TARGETS]
_NAMES = [target.name for target in TARGETS]


@pytest.mark.parametrize("target", _EACH)
def test_valid_inputs_are_read_and_cut_ones_are_errors_or_the_right_beginning(target: Target) -> None:
    check_seeds(target)
    size = len(smallest(target))
    most = 20 if target.slow else 1200
    check_truncation(target, None if size <= most else range(0, size, size // most + 1))


@pytest.mark.parametrize("target", _EACH)
def test_no_flipped_bit_gives_anything_but_one_of_our_errors_or_a_result(target: Target) -> None:
    check_flips(target, random.Random(5), 25 if target.slow else 400)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_mutated_inputs_give_errors_or_results_within_bounds_of_time_and_memory() -> None:
    """Always the same mutations, so that it fails for a change only; `make fuzz` looks for new ones."""
    done = list(in_child(_NAMES, cases=CASES, seed=1))
    findings = [outcome.finding for outcome in done if outcome.finding]
    assert not findings, "\n".join(findings)
    assert [outcome.target for outcome in done] == _NAMES
    assert {outcome.cases for outcome in done} == {CASES, CASES // SLOWER}


@pytest.mark.parametrize("parse", CONTAINER_PARSERS)
def test_containers_with_hudis_names_and_other_types_behind_them_are_corrupt(parse) -> None:
    refused = 0
    for data in strange():
        try:
            parse(data, path="f")
        except CorruptTable:
            refused += 1
    assert refused


def test_the_harness_finds_a_leaked_error_and_a_wrong_beginning() -> None:
    for check in (check_seeds, check_truncation):
        check(canaries.GOOD)
    with pytest.raises(Finding, match="IndexError"):
        check_truncation(canaries.LEAKS)
    with pytest.raises(Finding, match="takes the first"):
        check_truncation(canaries.TAKES_ANYTHING)


def test_the_harness_finds_a_bomb_a_loop_and_a_hang() -> None:
    good, *bad = in_child(
        [t.name for t in (canaries.GOOD, canaries.ALLOCATES, canaries.SPINS)], cases=CASES, seed=1
    )
    assert good.cases == CASES and not good.finding
    assert "MiB for" in bad[0].finding and "processor time" in bad[1].finding
    (hang,) = in_child([canaries.HANGS.name], cases=CASES, seed=1, alarm_s=2)
    assert "hangs" in hang.finding


def test_sizes_and_trailers_of_log_blocks_are_checked_and_contents_are_not() -> None:
    """The table of docs/damage.md, with every seventh byte: Avro contents have no checksum."""
    found = {name: bits(target, seed, places[::7]) for name, target, seed, places in protected()[:3]}
    shares = {name: counted["error"] / counted.total() for name, counted in found.items()}
    assert shares["Avro block: sizes, kinds, instant, trailer"] > 0.7
    assert 0.1 < shares["Avro block: content"] < 0.9
