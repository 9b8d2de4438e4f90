"""Times given under one lock by machines whose clocks differ, searched exhaustively in small.

Hudi reads the clock, waits for the skew *S* and makes the file before it frees the lock: whoever comes next,
less than *S* behind, reads a later time. ``Rule.WAITING`` is that. ``Rule.LAGGING`` takes the time that lies
*S* in the past, or one above everything listed, and waits only for what is left of that: whoever comes next
reads a later time at once. Java does not look at the timeline, we do.

Java from 1.1 on makes its file in the section in which it takes its time. Java 1.0 takes the time in a
section, and lists, plans and makes the file later, outside: ``late`` actors. What must hold, whoever writes:

- no two files have the same time;
- what completes later has the later time, or a reader that goes on by the newest time misses it;
- a plan holds exactly the commits with earlier times: what it lacks of them is in a file slice that the
  compaction replaces, and lost.

Nothing of mainstem is imported. One step of ``now`` is a millisecond; clocks lag behind it by ``behind``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

SKEW = 2
END = 8


SAME = "two files have the same time"
LOST = "a plan lacks a commit with an earlier time"
MISSED = "what completed later has the earlier time"


class Rule(enum.Enum):
    """How an actor comes to its time."""

    JAVA = "the clock, and a wait"
    WAITING = "the clock or above the listing, and a wait"
    LAGGING = "the past or above the listing"
    # Omissions, each of which the search refutes.
    LAGS_LESS = "a past that is one too near"
    UNLISTED = "the past, whatever is listed"
    IMPATIENT = "above the listing, at once"


@dataclass(frozen=True, slots=True)
class Actor:
    """One file to be made: a ``commit`` (its completion), a ``plan``, or a ``request``."""

    rule: Rule
    makes: str
    behind: int = 0
    late: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """A file on the timeline. A plan holds the commits of earlier times that are there before it."""

    time: int
    makes: str


@dataclass(frozen=True, slots=True)
class Step:
    """Where an actor is: ``outside``, ``inside`` with a time since then, ``freed`` (late) or ``done``."""

    at: str = "outside"
    time: int = 0
    since: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """``files`` in the order in which they became visible."""

    now: int
    steps: tuple[Step, ...]
    files: tuple[File, ...]
    held: int | None = None


def faults(actors: Sequence[Actor]) -> set[str]:
    """Everything that goes wrong in some order of steps."""
    first = World(0, tuple(Step() for _ in actors), ())
    seen, open_worlds, found = {first}, [first], set()
    while open_worlds:
        world = open_worlds.pop()
        for after in _next(actors, world):
            if after in seen:
                continue
            seen.add(after)
            wrong = _wrong(after.files) if len(after.files) > len(world.files) else None
            if wrong is None:
                open_worlds.append(after)
            else:
                found.add(wrong)
    return found


def _next(actors: Sequence[Actor], world: World) -> Iterator[World]:
    if world.now < END:
        yield replace(world, now=world.now + 1)
    for number, actor in enumerate(actors):
        step = world.steps[number]
        if step.at == "outside" and world.held is None:
            taken = Step("inside", _time(actor, world), world.now)
            yield _with(world, number, taken, held=number)
        elif step.at == "inside" and _may_go(actor, step, world):
            if actor.late:
                yield _with(world, number, replace(step, at="freed"), held=None)
            else:
                yield _made(actor, world, number, step)
        elif step.at == "freed":
            yield _made(actor, world, number, step)


def _time(actor: Actor, world: World) -> int:
    clock = world.now - actor.behind
    newest = max((one.time for one in world.files), default=-END)
    if actor.rule is Rule.JAVA:
        return clock
    if actor.rule is Rule.WAITING:
        return max(clock, newest + 1)
    if actor.rule is Rule.UNLISTED:
        return clock - SKEW
    return max(clock - _lag(actor.rule), newest + 1)


def _lag(rule: Rule) -> int:
    return SKEW - 1 if rule is Rule.LAGS_LESS else SKEW


def _may_go(actor: Actor, step: Step, world: World) -> bool:
    """Whether the actor has waited for long enough to make its file."""
    if actor.rule in (Rule.JAVA, Rule.WAITING):
        return world.now - step.since >= SKEW
    if actor.rule in (Rule.IMPATIENT, Rule.UNLISTED):
        return True
    return world.now - actor.behind - _lag(actor.rule) >= step.time


def _made(actor: Actor, world: World, number: int, step: Step) -> World:
    held = world.held if actor.late else None
    done = _with(world, number, Step("done"), held=held)
    return replace(done, files=(*world.files, File(step.time, actor.makes)))


def _with(world: World, number: int, step: Step, *, held: int | None) -> World:
    steps = (*world.steps[:number], step, *world.steps[number + 1 :])
    return replace(world, steps=steps, held=held)


def _wrong(files: Sequence[File]) -> str | None:
    """What the newest file breaks."""
    new = files[-1]
    if any(one.time == new.time for one in files[:-1]):
        return SAME
    if new.makes != "commit":
        return None
    if any(one.makes == "plan" and new.time < one.time for one in files[:-1]):
        return LOST
    if any(one.makes == "commit" and new.time < one.time for one in files[:-1]):
        return MISSED
    return None
