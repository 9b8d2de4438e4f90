"""Goal: where a time may lie in the past, and where it may not.

Method: every order of steps of two or three actors (``clock_model``), mainstem and Java of both kinds, whose
clocks are less than the skew apart. Then each part of the rule is left out, and clocks are as far apart as
the skew. mainstem waits, as Hudi does (``Rule.WAITING``); the rest says what it would take not to.
"""

from __future__ import annotations

import itertools

import pytest
from clock_model import LOST, MISSED, SAME, SKEW, Actor, Rule, faults

MAKES = ("commit", "plan", "request")
BEHIND = (0, SKEW - 1)


def actors(*rules: Rule, late: bool = False) -> list[Actor]:
    kinds = itertools.product(rules, MAKES, BEHIND)
    return [Actor(rule, makes, behind, late and makes != "commit") for rule, makes, behind in kinds]


def among(kinds: list[Actor]) -> set[str]:
    """What goes wrong among any two of them, and any three that no request is among."""
    some = [kind for kind in kinds if kind.makes != "request"]
    pairs, triples = (itertools.combinations_with_replacement(*how) for how in ((kinds, 2), (some, 3)))
    return set().union(*map(faults, itertools.chain(pairs, triples)))


def test_java_alone_and_beside_writers_that_wait_gives_times_in_order() -> None:
    assert among(actors(Rule.JAVA, Rule.WAITING)) == set()


def test_a_time_in_the_past_needs_no_wait_beside_java_that_makes_its_file_in_its_section() -> None:
    assert among(actors(Rule.JAVA, Rule.LAGGING)) == set()


def test_a_wait_is_needed_beside_java_that_plans_outside_its_section() -> None:
    java = actors(Rule.JAVA, late=True)
    assert LOST in among([*java, Actor(Rule.LAGGING, "commit", SKEW - 1)])
    assert among([*actors(Rule.WAITING), *java]) == set()


def test_java_that_begins_outside_its_section_may_get_the_time_of_one_in_the_past() -> None:
    assert faults([Actor(Rule.JAVA, "request", late=True), Actor(Rule.LAGGING, "request")]) == {SAME}


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        (Rule.LAGS_LESS, {SAME}),
        (Rule.UNLISTED, {SAME, LOST, MISSED}),
        (Rule.IMPATIENT, {SAME}),
    ],
)
def test_each_omission_is_refuted(rule: Rule, wrong: set[str]) -> None:
    assert among(actors(Rule.JAVA, rule)) == wrong


@pytest.mark.parametrize("rule", [Rule.WAITING, Rule.LAGGING])
def test_clocks_as_far_apart_as_the_skew_are_too_far_for_either_rule(rule: Rule) -> None:
    assert faults([Actor(rule, "request"), Actor(Rule.JAVA, "request", SKEW)]) == {SAME}
