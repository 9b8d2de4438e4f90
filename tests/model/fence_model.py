"""A model of the completion fence, small enough to be searched exhaustively.

The lock is not modelled at all: any writer may start, stop for ever (which is also a crash) or go on
between any two storage calls, and its clock may say anything. A *try* is the list of steps below.

State: ``(markers, last, failed, writers)``
- ``markers``  bit n set: the file ``epoch-<n>`` exists;
- ``last``     the newest published time;
- one tuple per writer: ``(pc, tries, epoch, sweep, clear, ticket, time, seen)`` with ``sweep`` the
  writers whose tickets are still to be deleted, ``clear`` the markers still to be deleted, ``ticket``
  0 or the epoch in the name of the own ticket, ``seen`` what a running folder listing is sure to show.

Folder listings are not atomic. A name that exists from before the listing until after it is shown; one
that is deleted meanwhile need not be, and one that is created meanwhile need not be either. So a
listing of markers, which are deleted by others, takes two steps, and the adversary shows as little as
the rule allows. Tickets and instants need one step: what is missed there was created later, or is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# The steps of one try, in the order in which ``publish.link_fence`` and ``publish.publisher`` make them.
CORRECT = (
    "look",  # list markers: own epoch = greatest + 1 (two steps)
    "look_end",
    "mark",  # create epoch-<n>, exclusive; taken: look again
    "list",  # list tickets and markers of smaller epochs
    "sweep",  # delete those tickets, one call each
    "clear",  # delete those markers, one call each (a constant number of files)
    "ticket",  # write the own ticket
    "check",  # list markers: is there a greater one? then drop the ticket (two steps)
    "check_end",
    "newest",  # read the newest time of the timeline, take a greater one
    "link",  # publish: fails when the ticket was swept
    "drop",  # unlink the ticket
)

IDLE = -1
PC, TRIES, EPOCH, SWEEP, CLEAR, TICKET, TIME, SEEN = range(8)
Writer = tuple[int, int, int, int, int, int, int, int]
State = tuple[int, int, tuple[Writer, ...]]


@dataclass(frozen=True)
class Model:
    """``guard`` False takes the clock alone; ``torn_listings`` False makes listings atomic."""

    writers: int
    tries: int
    steps: tuple[str, ...] = CORRECT
    guard: bool = True
    torn_listings: bool = True

    def start(self) -> State:
        return (1, 0, ((IDLE, self.tries, 0, 0, 0, 0, 0, 0),) * self.writers)


@dataclass(frozen=True)
class Result:
    """``states`` searched; ``trace`` is the shortest way to a violation, None when there is none."""

    states: int
    trace: list[str] | None
    published: int
    most_files: int


def search(model: Model) -> Result:
    """Visit every reachable state, breadth first, until one publishes out of order."""
    start = model.start()
    parent: dict[State, tuple[State, str] | None] = {start: None}
    frontier = [start]
    published = most_files = 0
    while frontier:
        following: list[State] = []
        for state in frontier:
            for step, after, broken in _moves(model, state):
                if broken:
                    return Result(len(parent), _trace(parent, state) + [step], published, most_files)
                published += step.endswith("link")
                if after not in parent:
                    parent[after] = (state, step)
                    following.append(after)
                    most_files = max(most_files, after[0].bit_count())
        frontier = following
    return Result(len(parent), None, published, most_files)


def _trace(parent: dict, state: State) -> list[str]:
    steps: list[str] = []
    while parent[state] is not None:
        state, step = parent[state]
        steps.append(step)
    return steps[::-1]


def _moves(model: Model, state: State) -> Iterator[tuple[str, State, bool]]:
    for index in range(model.writers):
        writer = state[2][index]
        if writer[PC] == IDLE:
            if writer[TRIES] == 0:
                continue
            writer = (0, writer[TRIES] - 1, 0, 0, 0, 0, 0, 0)
        name = model.steps[writer[PC]]
        for after, broken in _STEPS[name](model, state, index, writer):
            yield f"{index}:{name}", _canonical(after), broken


def _canonical(state: State) -> State:
    """Writers are alike: sorting them merges states that differ only in who is who."""
    markers, last, writers = state
    if all(w[SWEEP] == 0 for w in writers):  # sweep sets name writers by position
        writers = tuple(sorted(writers))
    return (markers, last, writers)


def _put(state: State, index: int, writer: Writer, markers: int | None = None) -> State:
    writers = state[2][:index] + (writer,) + state[2][index + 1 :]
    return (state[0] if markers is None else markers, state[1], writers)


def _next(writer: Writer, **changes: int) -> Writer:
    values = list(writer)
    for key, value in changes.items():
        values[globals()[key]] = value
    values[PC] += 1
    return tuple(values)  # type: ignore[return-value]


def _jump(model: Model, writer: Writer, name: str) -> Writer:
    return (model.steps.index(name), *writer[1:])  # type: ignore[return-value]


def _ended(writer: Writer) -> Writer:
    return (IDLE, writer[TRIES], 0, 0, 0, 0, 0, 0)


def _finish(model: Model, writer: Writer) -> Writer:
    return _ended(writer) if writer[PC] >= len(model.steps) else writer


def _look(model: Model, state: State, index: int, w: Writer):
    yield _put(state, index, _next(w, SEEN=state[0])), False


def _look_end(model: Model, state: State, index: int, w: Writer):
    for seen in {w[SEEN] if model.torn_listings else state[0], state[0]}:
        yield _put(state, index, _next(w, EPOCH=seen.bit_length(), SEEN=0)), False


def _mark(model: Model, state: State, index: int, w: Writer):
    bit = 1 << w[EPOCH]
    if state[0] & bit:
        yield _put(state, index, _jump(model, w, "look")), False
    else:
        yield _put(state, index, _next(w), state[0] | bit), False


def _list(model: Model, state: State, index: int, w: Writer):
    tickets = sum(1 << i for i, v in enumerate(state[2]) if 0 < v[TICKET] < w[EPOCH])
    markers = state[0] & ((1 << w[EPOCH]) - 1)
    yield _put(state, index, _next(w, SWEEP=tickets, CLEAR=markers)), False


def _sweep(model: Model, state: State, index: int, w: Writer):
    if not w[SWEEP]:
        yield _put(state, index, _next(w)), False
        return
    victim = (w[SWEEP] & -w[SWEEP]).bit_length() - 1
    rest = w[:SWEEP] + (w[SWEEP] & (w[SWEEP] - 1),) + w[SWEEP + 1 :]
    state = _put(state, index, rest)
    other = state[2][victim]
    if other[TICKET] and other[TICKET] < w[EPOCH]:
        state = _put(state, victim, other[:TICKET] + (0,) + other[TICKET + 1 :])
    yield state, False


def _clear(model: Model, state: State, index: int, w: Writer):
    if not w[CLEAR]:
        yield _put(state, index, _next(w)), False
        return
    bit = w[CLEAR] & -w[CLEAR]
    hidden = tuple(v[:SEEN] + (v[SEEN] & ~bit,) for v in state[2])  # a running listing may miss it
    state = (state[0] & ~bit, state[1], hidden)
    yield _put(state, index, w[:CLEAR] + (w[CLEAR] & ~bit,) + w[CLEAR + 1 :]), False


def _ticket(model: Model, state: State, index: int, w: Writer):
    yield _put(state, index, _next(w, TICKET=w[EPOCH])), False


def _check(model: Model, state: State, index: int, w: Writer):
    yield _put(state, index, _next(w, SEEN=state[0])), False


def _check_end(model: Model, state: State, index: int, w: Writer):
    seen = w[SEEN] if model.torn_listings else state[0]
    if seen >> (w[EPOCH] + 1):
        yield _put(state, index, _ended(w)), False  # the ticket is dropped with it
    else:
        yield _put(state, index, _next(w, SEEN=0)), False


def _newest(model: Model, state: State, index: int, w: Writer):
    """Any clock: one step further or two, so that two writers can choose in either order."""
    base = state[1] if model.guard else 0
    for time in (base + 1, base + 2):
        yield _put(state, index, _next(w, TIME=time)), False


def _link(model: Model, state: State, index: int, w: Writer):
    if not w[TICKET]:
        yield _put(state, index, _ended(w)), False
        return
    markers, last, writers = _put(state, index, _finish(model, _next(w)))
    yield (markers, w[TIME], writers), w[TIME] <= last


def _drop(model: Model, state: State, index: int, w: Writer):
    yield _put(state, index, _ended(w)), False


_STEPS = {
    "look": _look, "look_end": _look_end, "mark": _mark, "list": _list, "sweep": _sweep,
    "clear": _clear, "ticket": _ticket, "check": _check, "check_end": _check_end,
    "newest": _newest, "link": _link, "drop": _drop,
}  # fmt: skip


def without(*names: str) -> tuple[str, ...]:
    return tuple(step for step in CORRECT if step not in names)


def moved(name: str | tuple[str, ...], *, before: str) -> tuple[str, ...]:
    """The steps with some of them moved to stand right before another one."""
    names = (name,) if isinstance(name, str) else name
    rest = [step for step in CORRECT if step not in names]
    at = rest.index(before)
    return tuple(rest[:at]) + names + tuple(rest[at:])
