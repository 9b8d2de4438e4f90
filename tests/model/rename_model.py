"""A model of one publication by the fence of renames (``publish.rename_fence``): what becomes of one content.

Not modelled is who may publish (``fence_model`` does that). Here the content is at one place, renames move
it, and their requests and replies get lost, come late or are sent twice by the library. Meanwhile a later
section may sweep the ticket, an archiver may remove what was published, and a sweeper what was swept long
ago. The owner finds out, and reports ``ok``, ``failed`` (nothing was published; it then starts again, with
another ticket) or ``unknown``. Neither of the first two may ever be wrong, not even later.

State: ``(place, wire, pc, looks, published, report)``
- ``place``      where the content is: one of ``PLACES``
- ``wire``       requests that may still arrive, at any time and in any order: a set of (source, target)
- ``pc``         the owner's next step
- ``looks``      how often it has found the ticket, and then could not take it back
- ``published``  how often the content became visible
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

PLACES = ("private", "ticket", "swept", "target", "second", "gone")
PUBLISH, BACK = ("ticket", "target"), ("ticket", "private")
_LOOKS_MAX = 2

State = tuple[str, frozenset[tuple[str, str]], str, int, int, str]


@dataclass(frozen=True)
class Model:
    """Each False leaves out one thing that the fence does: ``takes_back`` a ticket before it reports failure;
    ``looks`` for the content when a rename finds no source; ``elsewhere``: reports ``unknown`` if the content
    is nowhere; ``other_ticket`` for the next attempt; ``ticket_first``: looks for it before the target."""

    takes_back: bool = True
    looks: bool = True
    elsewhere: bool = True
    other_ticket: bool = True
    ticket_first: bool = True

    @property
    def order(self) -> tuple[str, ...]:
        """The steps of the doubt."""
        rest = ("see private", "see swept")
        return (
            ("see ticket", *rest, "see target") if self.ticket_first else ("see target", "see ticket", *rest)
        )


def search(model: Model) -> tuple[int, set[str], str | None]:
    """The number of states, the reports that were made, and what is broken in one of them (None: nothing)."""
    start: State = ("ticket", frozenset(), "send", 0, 0, "")
    seen, frontier, reports = {start}, [start], set()
    while frontier:
        state = frontier.pop()
        reports.add(state[5])
        if broken := _broken(state):
            return len(seen), reports, f"{broken}: {state}"
        for after in _moves(model, state):
            if after not in seen:
                seen.add(after)
                frontier.append(after)
    return len(seen), reports, None


def _broken(state: State) -> str:
    _, _, _, _, published, report = state
    if published > 1:
        return "published twice"
    if report == "failed" and published:
        return "reported as failed, and published"
    return "reported as published, and not" if report == "ok" and not published else ""


def _moves(model: Model, state: State) -> Iterator[State]:
    place, wire, pc, looks, published, report = state
    # Others.
    if place == "ticket":
        yield ("swept", wire, pc, looks, published, report)
    if place in ("swept", "target"):
        yield ("gone", wire, pc, looks, published, report)
    for request in wire:  # it arrives at last
        moved, count = _renamed(place, request, published)
        yield (moved, wire - {request}, pc, looks, count, report)
    # The owner.
    if pc == "send":
        yield from _sent(model, state, PUBLISH)
    elif pc == "back":
        yield from _sent(model, state, BACK)
    elif pc.startswith("see "):
        yield from _seen(model, state, pc.removeprefix("see "))
    elif pc == "again":  # the next attempt takes the content where it is, and does not publish any more
        for source in ("private", "swept"):
            if place == source:
                ticket = "second" if model.other_ticket else "ticket"
                yield (ticket, wire, "end", looks, published, report)


def _renamed(place: str, request: tuple[str, str], published: int) -> tuple[str, int]:
    source, target = request
    if place != source:
        return place, published
    return target, published + (target == "target")


def _sent(model: Model, state: State, request: tuple[str, str]) -> Iterator[State]:
    place, wire, pc, looks, published, _ = state
    after, count = _renamed(place, request, published)
    done = "ok" if request == PUBLISH else "failed"
    doubt = model.order[0]
    if after != place:
        yield (after, wire, "again" if done == "failed" else "end", looks, count, done)
        # The reply was lost; the library repeats the call, and is told that there is no source.
        yield from _no_source(model, (after, wire, pc, looks, count, ""), request)
    else:
        yield from _no_source(model, state, request)
    if request == PUBLISH:
        yield (after, wire, doubt, looks, count, "")  # an error after the effect
        yield (place, wire | {request}, doubt, looks, published, "")  # and one before it
    else:
        yield (after, wire, "end", looks, count, "unknown")
        yield (place, wire | {request}, "end", looks, published, "unknown")


def _no_source(model: Model, state: State, request: tuple[str, str]) -> Iterator[State]:
    place, wire, _, looks, published, _ = state
    if request == PUBLISH and not model.looks:
        yield (place, wire, "again", looks, published, "failed")
    elif request == PUBLISH or looks < _LOOKS_MAX:
        yield (place, wire, model.order[0], looks + 1, published, "")
    else:
        yield (place, wire, "end", looks, published, "unknown")


def _seen(model: Model, state: State, where: str) -> Iterator[State]:
    place, wire, pc, looks, published, _ = state
    if place != where:
        at = model.order.index(pc) + 1
        if at < len(model.order):
            yield (place, wire, model.order[at], looks, published, "")
        else:
            yield (place, wire, "end", looks, published, "unknown" if model.elsewhere else "failed")
    elif where == "target":
        yield (place, wire, "end", looks, published, "ok")
    elif where == "ticket" and model.takes_back:
        yield (place, wire, "back", looks, published, "")
    else:
        yield (place, wire, "again", looks, published, "failed")
