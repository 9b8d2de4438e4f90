"""Histories by chance, for so long: ``python -m tests.fuzz.histories.run --seconds 600 [--seed N]``.

A failure is printed with the line that plays it again, after actions were left out one by one as far as it
stays. ``--without nan,past`` leaves out what is known to fail.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from mainstem.errors import MainstemError
from tests.fuzz.histories.actions import ACTIONS, QUESTIONS, Action, ask_again
from tests.fuzz.histories.shapes import drawn
from tests.fuzz.histories.world import Finding, World

STEPS = 30
KNOWN = ("nan", "past")


@dataclass
class Played:
    """What became of one history. ``finding`` is empty where all was right; ``steps``: numbers of actions."""

    seed: str
    steps: list[int]
    finding: str = ""
    told: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)


def action_of(seed: str, step: int) -> tuple[Action, random.Random]:
    """The action of a step and its chance, which do not depend on the steps before."""
    chance = random.Random(f"{seed} {step}")
    choices, weights = zip(*ACTIONS, strict=True)
    return chance.choices(choices, weights)[0], chance


def play(seed: str, steps: Collection[int], folder: str, without: frozenset[str] = frozenset()) -> Played:
    """One table, with these actions."""
    played = Played(seed, list(steps))
    shape = drawn(random.Random(seed))
    played.told.append(str(shape))
    name = "creation"
    world = None
    try:
        world = World.create(folder, shape, without)
        for step in steps:
            action, chance = action_of(seed, step)
            name = f"step {step}, {action.__name__}"
            played.told.append(name)
            played.actions[action.__name__] += 1
            _take(world, action, chance)
        name = "the end"
        _end(world)
    except Finding as finding:
        played.finding = f"{name}: {finding}"
    except Exception as error:
        kind = "refused" if isinstance(error, MainstemError) else "not an error of ours"
        at = traceback.extract_tb(error.__traceback__)[-1]
        played.finding = (
            f"{name}: {kind}: {type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"
        )
        played.told.append(traceback.format_exc())
    finally:
        if world is not None:
            played.refused = world.refused
            if world.held is not None:
                _quietly(world.held.transaction.abort)
    return played


def _take(world: World, action: Action, chance: random.Random) -> None:
    before = len(world.model.events)
    action(world, chance)
    if action not in QUESTIONS:
        world.check(f"after {action.__name__}")
    if len(world.model.events) != before and chance.random() < 0.5:
        world.note_now()
    known = sorted(world.answers.noted)
    for query, times in chance.sample(known, min(1, len(known))):
        ask_again(world, query, times)


def _end(world: World) -> None:
    """Everything that was ever answered, once more."""
    for query, times in sorted(world.answers.noted):
        ask_again(world, query, times)


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except MainstemError:
        return


def shrunk(played: Played, without: frozenset[str], seconds: float = 30) -> Played:
    """Fewer actions that fail in the same action's way, found by leaving out one after the other."""
    end = time.monotonic() + seconds
    best = played
    for step in sorted(played.steps, reverse=True):
        if time.monotonic() > end:
            break
        fewer = [s for s in best.steps if s != step]
        found = once(best.seed, fewer, without)
        if found.finding and sort_of(found.finding) == sort_of(played.finding):
            best = found
    return best


def sort_of(finding: str) -> str:
    """What went wrong, without numbers."""
    text = finding.split(": ", 1)[-1].split("\n")[0][:60]
    return "".join(c for c in text if not c.isdigit())


def once(seed: str, steps: Collection[int], without: frozenset[str]) -> Played:
    """``play`` in a folder that goes afterwards."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return play(seed, steps, f"{folder}/table", without)


def histories(seed: int, without: frozenset[str]) -> Callable[[int], Played]:
    """The n-th history of a seed."""
    return lambda number: once(f"{seed}-{number}", range(STEPS), without)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.histories.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--history", help="play this one, as a failure names it")
    parser.add_argument("--steps", help="only these actions of it, with commas")
    parser.add_argument("--without", default="", help=f"known failures to leave out: {', '.join(KNOWN)}")
    parser.add_argument("--most", type=int, default=1, help="end after so many failures")
    parser.add_argument(
        "--shrink", type=float, default=30, help="seconds for leaving out actions of a failure"
    )
    parser.add_argument("--told", action="store_true", help="print refusals and actions")
    options = parser.parse_args()
    without = frozenset(filter(None, options.without.split(",")))
    if options.history:
        steps = [int(s) for s in options.steps.split(",")] if options.steps else range(STEPS)
        played = once(options.history, steps, without)
        print("\n".join([*played.told, played.finding or "nothing wrong"]))
        return bool(played.finding)
    began, number, failures = time.monotonic(), 0, 0
    refused: Counter[str] = Counter()
    actions: Counter[str] = Counter()
    one = histories(options.seed, without)
    while time.monotonic() - began < options.seconds:
        played = one(number)
        number += 1
        refused += played.refused
        actions += played.actions
        if played.finding:
            failures += 1
            after = time.monotonic() - began
            print(f"history {played.seed} after {after:.1f} s: {played.finding}", flush=True)
            small = shrunk(played, without, options.shrink)
            steps = ",".join(map(str, small.steps))
            print("  " + "\n  ".join(small.told))
            print(f"  {small.finding}")
            print(
                f"  again: python -m tests.fuzz.histories.run --history {small.seed} --steps {steps}",
                flush=True,
            )
            if failures >= options.most:
                break
    if options.told:
        print(*(f"{count:6} {what}" for what, count in refused.most_common()), sep="\n")
        print(*(f"{count:6} {what}" for what, count in actions.most_common()), sep="\n")
    print(f"{number:,} histories, {actions.total():,} actions, {failures} failures, seed {options.seed}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
