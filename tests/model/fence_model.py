"""A model of the completion fence, small enough to be searched exhaustively.

The lock is not modelled at all: any writer may start, stop for ever (which is also a crash) or go on
between any two storage calls, and its clock may say anything. A *try* is the list of steps below.

State: ``(markers, used, last, writers)``
- ``markers``  bit n set: the file ``epoch-<n>`` exists;
- ``used``     bit n set: somebody had this number (there is chance in it, so nobody takes it again);
- ``last``     the newest published time;
- one tuple per writer: ``(old, pc, tries, epoch, own, tickets, clear, ticket, time, seen)`` with ``old`` 1
  for a process of the version before (an empty marker of the next number, and a ticket beside it), ``own`` 1
  while the marker is the one that this try made, ``tickets`` the writers whose tickets are still to be
  deleted, ``clear`` the markers still to be deleted, ``ticket`` 1 while the own ticket is there (old ones
  only), ``seen`` what a running folder listing is sure to show.

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
    "mark",  # link the content to epoch-<n>: any number that nobody had before
    "list",  # list tickets and markers (two steps): a greater marker, and the try ends
    "list_end",
    "sweep",  # delete the listed tickets of smaller numbers, one call each
    "clear",  # delete the listed markers of smaller numbers, one call each and in any order
    "newest",  # read the newest time of the timeline, take a greater one
    "link",  # publish: fails when the marker was swept
)
# The same of the version before, which may run beside it.
BEFORE = (
    "look",  # list markers: own number = greatest + 1 (two steps)
    "look_end",
    "take",  # create epoch-<n>, empty, exclusive; taken: look again
    "all",  # list tickets and markers of smaller numbers
    "sweep",
    "clear",
    "ticket",  # write the own ticket
    "check",  # list markers: is there a greater one? then drop the ticket (two steps)
    "check_end",
    "newest",
    "link",  # publish: fails when the ticket was swept
    "drop",  # unlink the ticket
)

IDLE = -1
OLD, PC, TRIES, EPOCH, OWN, TICKETS, CLEAR, TICKET, TIME, SEEN = range(10)
Writer = tuple[int, ...]
State = tuple[int, int, int, tuple[Writer, ...]]
Move = tuple[State, str]  # with what is broken by it, or ""


@dataclass(frozen=True)
class Model:
    """``old``: how many of the writers are of the version before; ``guard`` False takes the clock alone;
    ``torn_listings`` False makes listings atomic; ``unique`` False takes a number that may have been there
    before; ``checks`` False does not ask for a greater marker. ``moves``: the fence of renames, where a
    marker goes with its publication, or when a section leaves that did not publish."""

    writers: int
    tries: int
    steps: tuple[str, ...] = CORRECT
    old: int = 0
    guard: bool = True
    torn_listings: bool = True
    unique: bool = True
    checks: bool = True
    moves: bool = False

    def start(self) -> State:
        writers = tuple(
            (int(n < self.old), IDLE, self.tries, *(0,) * 7) for n in range(self.writers)
        )
        return (1, 1, 0, writers)

    def steps_of(self, writer: Writer) -> tuple[str, ...]:
        return BEFORE if writer[OLD] else self.steps

    @property
    def greatest(self) -> int:
        """Numbers are drawn from 1 to this: enough for every order of all tries."""
        return self.writers * self.tries + 1


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
                    trace = [*_trace(parent, state), f"{step}: {broken}"]
                    return Result(len(parent), trace, published, most_files)
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


def _moves(model: Model, state: State) -> Iterator[tuple[str, State, str]]:
    for index in range(model.writers):
        writer = state[3][index]
        if writer[PC] == IDLE:
            if writer[TRIES] == 0:
                continue
            writer = (writer[OLD], 0, writer[TRIES] - 1, *(0,) * 7)
        name = model.steps_of(writer)[writer[PC]]
        for after, broken in _STEPS[name](model, state, index, writer):
            yield f"{index}:{name}", _canonical(after), broken


def _canonical(state: State) -> State:
    """Writers are alike: sorting them merges states that differ only in who is who."""
    markers, used, last, writers = state
    if all(w[TICKETS] == 0 for w in writers):  # these sets name writers by position
        writers = tuple(sorted(writers))
    return (markers, used, last, writers)


def _put(state: State, index: int, writer: Writer, made: int = 0) -> State:
    """``made``: a marker that is there from now on."""
    writers = state[3][:index] + (writer,) + state[3][index + 1 :]
    return (state[0] | made, state[1], state[2], writers)


def _with(writer: Writer, **changes: int) -> Writer:
    values = list(writer)
    for key, value in changes.items():
        values[globals()[key]] = value
    return tuple(values)


def _next(model: Model, writer: Writer, **changes: int) -> Writer:
    """One step further; after the last one the try is over."""
    after = _with(writer, PC=writer[PC] + 1, **changes)
    return after if after[PC] < len(model.steps_of(writer)) else _ended(after)


def _ended(writer: Writer) -> Writer:
    return (writer[OLD], IDLE, writer[TRIES], *(0,) * 7)


def _without_marker(state: State, bit: int) -> State:
    """The marker is deleted: a running listing may miss it, and whoever made it has it no more."""
    writers = tuple(
        _with(w, SEEN=w[SEEN] & ~bit, OWN=w[OWN] and int(1 << w[EPOCH] != bit)) for w in state[3]
    )
    return (state[0] & ~bit, state[1], state[2], writers)


# -- steps ----------------------------------------------------------------------------------------------


def _mark(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    markers, used, last, writers = state
    chosen = sum({1 << v[EPOCH] for v in writers if v[OLD] and v[EPOCH]})
    taken = used | markers | chosen if model.unique else markers
    for number in range(1, model.greatest + 1):
        if not taken >> number & 1:
            state = (markers, used | 1 << number, last, writers)
            yield _put(state, index, _next(model, w, EPOCH=number, OWN=1), 1 << number), ""


def _list(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    # Of the tickets those that are there before the markers are all listed: one step is the least.
    tickets = sum(1 << i for i, v in enumerate(state[3]) if v[TICKET] and v[EPOCH] < w[EPOCH])
    yield _put(state, index, _next(model, w, SEEN=state[0], TICKETS=tickets)), ""


def _list_end(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    seen = w[SEEN] if model.torn_listings else state[0]
    if model.checks and seen >> (w[EPOCH] + 1):
        yield _put(state, index, _with(_ended(w), TRIES=0)), ""  # it dies before its marker goes
        yield _put(_without_marker(state, 1 << w[EPOCH]), index, _ended(w)), ""
    else:
        clear = seen & ((1 << w[EPOCH]) - 1)
        yield _put(state, index, _next(model, w, SEEN=0, CLEAR=clear)), ""


def _sweep(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    if not w[TICKETS]:
        yield _put(state, index, _next(model, w)), ""
        return
    victim = (w[TICKETS] & -w[TICKETS]).bit_length() - 1
    state = _put(state, index, _with(w, TICKETS=w[TICKETS] & (w[TICKETS] - 1)))
    other = state[3][victim]
    if other[TICKET] and other[EPOCH] < w[EPOCH]:
        state = _put(state, victim, _with(other, TICKET=0))
    yield state, ""


def _clear(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    if not w[CLEAR]:
        yield _put(state, index, _next(model, w)), ""
        return
    for number in range(w[CLEAR].bit_length()):
        bit = 1 << number
        if w[CLEAR] & bit:
            yield _without_marker(_put(state, index, _with(w, CLEAR=w[CLEAR] & ~bit)), bit), ""


def _newest(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    """Any clock: one step further or two, so that two writers can choose in either order."""
    base = state[2] if model.guard else 0
    for time in (base + 1, base + 2):
        yield _put(state, index, _next(model, w, TIME=time)), ""
    if model.moves and w[OWN]:  # it has nothing to publish, and takes its marker back
        yield _put(_without_marker(state, 1 << w[EPOCH]), index, _ended(w)), ""


def _link(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    there = w[TICKET] if w[OLD] else state[0] >> w[EPOCH] & 1
    if not there:
        yield _put(state, index, _ended(w)), ""
        return
    broken = "out of order" if w[TIME] <= state[2] else ""
    if not (w[OLD] or w[OWN]):
        broken = "another's content"
    if model.moves:
        state = _without_marker(state, 1 << w[EPOCH])
    markers, used, _, writers = _put(state, index, _next(model, w))
    yield (markers, used, w[TIME], writers), broken


# -- of the version before ------------------------------------------------------------------------------


def _look(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    yield _put(state, index, _next(model, w, SEEN=state[0])), ""


def _look_end(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    for seen in {w[SEEN] if model.torn_listings else state[0], state[0]}:
        number = seen.bit_length()
        while state[1] >> number & 1:  # somebody's who draws from more numbers than could be hit
            number += 1
        yield _put(state, index, _next(model, w, EPOCH=number, SEEN=0)), ""


def _take(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    bit = 1 << w[EPOCH]
    if state[0] & bit:
        yield _put(state, index, _with(w, PC=0)), ""
    else:
        yield _put(state, index, _next(model, w), bit), ""


def _all(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    tickets = sum(1 << i for i, v in enumerate(state[3]) if v[TICKET] and v[EPOCH] < w[EPOCH])
    markers = state[0] & ((1 << w[EPOCH]) - 1)
    yield _put(state, index, _next(model, w, TICKETS=tickets, CLEAR=markers)), ""


def _ticket(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    yield _put(state, index, _next(model, w, TICKET=1)), ""


def _check_end(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    seen = w[SEEN] if model.torn_listings else state[0]
    superseded = bool(seen >> (w[EPOCH] + 1))
    yield _put(state, index, _ended(w) if superseded else _next(model, w, SEEN=0)), ""


def _drop(model: Model, state: State, index: int, w: Writer) -> Iterator[Move]:
    yield _put(state, index, _ended(w)), ""


_STEPS = {
    "mark": _mark, "list": _list, "list_end": _list_end, "sweep": _sweep, "clear": _clear, "newest": _newest,
    "link": _link, "look": _look, "look_end": _look_end, "take": _take, "all": _all, "ticket": _ticket,
    "check": _look, "check_end": _check_end, "drop": _drop,
}  # fmt: skip


def without(*names: str) -> tuple[str, ...]:
    return tuple(step for step in CORRECT if step not in names)


def moved(name: str | tuple[str, ...], *, before: str) -> tuple[str, ...]:
    """The steps with some of them moved to stand right before another one."""
    names = (name,) if isinstance(name, str) else name
    rest = [step for step in CORRECT if step not in names]
    at = rest.index(before)
    return tuple(rest[:at]) + names + tuple(rest[at:])
