"""A model of the gate (``publish.gate_fence``), small enough to be searched exhaustively.

There is no lock and no clock: any actor may stop for ever (which is also a crash) or go on between any two
steps. Requests are kept apart from their replies. A swap or a put that was sent is carried out at any later
moment or never, also after its sender gave up waiting, went on, or ended. A reply may be lost. A sender that
gave up may send the same request again, and may then be refused because of its own first one. Reads and
listings show the store as it is at one moment; what their reader does with them may come any time later.

Actors, each with a number of tries:

- ``writer``     publishes its instant; with ``files`` 2 a file of the metadata table goes ahead. Two actors
                 may have the same instant (two executors of one plan). If it ``carries``, it takes along what
                 was decided and is missing, instead of putting it first
- ``rollback``   publishes a plan against an instant that is pending; from there on it must not complete
- ``archiver``   archives what is completed, then takes its files off the timeline
- ``restorer``   takes completed instants back: their files go, and they must not count again
- ``replacer``   replaces one file (``hoodie.properties``), by which writers decide

State: ``(gate, swapped, files, ever, archived, back, props, times, last, net, actors)``
- ``gate``      (nonce, newest time, pending targets)
- ``swapped``   bit n set: the swap with nonce n took effect (the gate's list of past nonces)
- ``files``     bit t set: target t is there now; ``ever``: was ever there
- ``archived``, ``back``  decisions that the archive holds, and that were taken back
- ``props``     the replaced file's content; ``last`` the newest time shown; ``times`` the time of each
                decision, or the content that a replacement found
- ``net``       requests on their way: (kind, number, tag, actor that waits or -1)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

READ, LIST, HELPING, SWAP, SWAPPING, LOOK, CANCEL, CANCELLING, PUT, PUTTING, ENDED = range(11)
STEPS = (
    "read", "list", "helping", "swap", "swapping", "look", "cancel", "cancelling", "put", "putting", "ended",
)  # fmt: skip
# An actor: step, attempt, tag and newest time and pending targets of the gate it read, reply, what is left to
# put, what it was told, and what it saw when it listed. Of a writer that carries also: what its swap takes
# along, the swaps that the gate knew when it was read, and these and the listing of the attempt before.
PC, ATTEMPT, TAG, NEWEST, PENDING, REPLY, LEFT, TOLD, SAW, CARRIED, SWAPS, BEFORE = range(12)
NONE, OK, NO = 0, 1, 2
UNTOLD, TOLD_OK, TOLD_FAILED = 0, 1, 2
META, DATA, PLAN, REPLACE = range(4)
Actor = tuple[Any, ...]
State = tuple[Any, ...]


@dataclass(frozen=True)
class Model:
    """``actors``: a kind and an instant's number each; ``clock``: how far above the newest time a time lies.

    Each of the other switches leaves out one rule: ``helps`` others' decisions, also ``all_files`` of them;
    ``nonce``: no two contents of the gate are alike; ``fresh``: nor of the replaced file; ``condition``: the
    gate is swapped, not put; ``own``: after a doubtful answer look for the own nonce; ``believes_412`` takes
    every refusal for somebody else's doing; ``cancel`` before a failure is told for good; ``lists_after`` the
    gate was read; ``metadata_first``; ``puts`` before success is told; ``withdrawn``: readers and sections
    leave out what was taken back; ``once``: what is archived and on the timeline is one instant;
    ``decides``: a replacement goes through the gate.

    ``carries``: writers take along what is decided and missing, and after a refusal they do not list again if
    nothing but writers' files was decided since (``only_commits``). ``carried_first``: they put it before
    their own; ``asks_gate``: a decision that others swapped over counts as put only if the gate does not name
    it; ``keeps``: their swap names what they carry; ``cancel_keeps``: so does a cancelling swap.

    ``log``: a store that has no swap, only puts if absent. The gate is a log of records: to decide is to put
    the record after the greatest, and anyone may sweep those below the greatest. So a put whose number was
    swept succeeds, and means nothing. ``looks_again`` after each put that succeeded.
    """

    actors: tuple[tuple[str, int], ...] = (("writer", 0), ("writer", 1))
    tries: int = 2
    files: int = 1
    clock: tuple[int, ...] = (1,)
    helps: bool = True
    all_files: bool = True
    nonce: bool = True
    fresh: bool = True
    condition: bool = True
    own: bool = True
    believes_412: bool = False
    cancel: bool = True
    lists_after: bool = True
    metadata_first: bool = True
    puts: bool = True
    withdrawn: bool = True
    once: bool = True
    decides: bool = True
    carries: bool = False
    only_commits: bool = True
    carried_first: bool = True
    asks_gate: bool = True
    keeps: bool = True
    cancel_keeps: bool = True
    log: bool = False
    looks_again: bool = True

    @property
    def count(self) -> int:
        """Decisions that there can be."""
        return len(self.actors) * self.tries

    def start(self) -> State:
        # The gate's first content has a nonce that no swap has.
        gate = (2 * self.count, 0, ())
        actor = (READ, 0, None, 0, (), NONE, (), UNTOLD, None, (), 0, None)
        return (gate, 0, 0, 0, 0, 0, 0, (0,) * self.count, 0, (), (actor,) * len(self.actors))

    def target(self, kind: int, decision: int) -> int:
        return kind * self.count + decision

    def targets(self, index: int, decision: int) -> tuple[int, ...]:
        """What a decision of this actor makes visible, in this order."""
        kind = self.actors[index][0]
        if kind == "writer":
            both = (META, DATA) if self.files == 2 else (DATA,)
            return tuple(self.target(k, decision) for k in (both if self.metadata_first else both[::-1]))
        if kind == "rollback":
            return (self.target(PLAN, decision),)
        return (self.target(REPLACE, decision),) if kind == "replacer" else ()

    def instant(self, decision: int) -> int:
        return self.actors[decision // self.tries][1]

    def removes(self) -> bool:
        return any(kind in ("archiver", "restorer") for kind, _ in self.actors)

    def tag(self, gate: tuple[Any, ...]) -> Any:
        """What a store gives as the tag: a hash of the content."""
        return gate[0] if self.nonce else gate[1:]

    def new_props(self, decision: int) -> int:
        """The content that a replacement puts: every other one takes the one before back."""
        return decision + 1 if self.fresh else 1 - self.actors[decision // self.tries][1]


@dataclass(frozen=True)
class Result:
    """``states`` searched; ``trace`` is the shortest way to a violation, None when there is none.

    States in which somebody was told, or a request is late: they show that the search gets that far.
    """

    states: int
    trace: list[str] | None
    told_ok: int = 0
    told_failed: int = 0
    late: int = 0


class Broken(Exception):
    """A promise was broken."""


def search(model: Model, most: int = 10**9) -> Result:
    """Visit every reachable state, breadth first, until a promise is broken. ``most``: states to visit."""
    start = model.start()
    parent: dict[State, tuple[State, str] | None] = {start: None}
    frontier, ok, failed, late = [start], 0, 0, 0
    while frontier and len(parent) < most:
        following: list[State] = []
        for state in frontier:
            moves = _moves(model, state)
            while True:
                try:
                    step, after = next(moves)
                except StopIteration:
                    break
                except Broken as broken:
                    return Result(len(parent), [*_trace(parent, state), str(broken)], ok, failed, late)
                after = _canonical(model, after)
                if after not in parent:
                    parent[after] = (state, step)
                    following.append(after)
                    ok += any(a[TOLD] == TOLD_OK for a in after[10])
                    failed += any(a[TOLD] == TOLD_FAILED for a in after[10])
                    late += any(request[3] < 0 for request in after[9])
        frontier = following
    return Result(len(parent), None, ok, failed, late)


def _trace(parent: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (one := parent[state]) is not None:
        state, step = one
        steps.append(step)
    return steps[::-1]


def _canonical(model: Model, state: State) -> State:
    """Leave out requests that nobody waits for and that can have no effect any more."""
    gate, files, net = state[0], state[2], state[9]
    kept = set()
    for request in net:
        kind, number, tag, waits = request
        if waits < 0:
            if kind in ("swap", "cancel") and model.nonce and model.condition and tag[0] != gate[0]:
                continue  # a nonce never comes back
            new = kind == "put" and number // model.count != REPLACE
            if new and files >> number & 1 and not model.removes():
                continue
        kept.add(request)
    # Actors of a kind that differ in nothing but their number are not merged: decisions are numbered by them.
    return (*state[:9], tuple(sorted(kept, key=repr)), state[10])


def _moves(model: Model, state: State) -> Iterator[tuple[str, State]]:
    for request in state[9]:
        after = _carry_out(model, state, request)
        yield f"carried out: {request[0]} {request[1]}", after
        if model.log and request[0] != "put" and request[3] >= 0 and after[10][request[3]][REPLY] == NO:
            # The number was swept: the put succeeds, below the greatest.
            swept = _with(after, request[3], after[10][request[3]], REPLY=OK)
            yield f"put below the greatest: {request[0]} {request[1]}", swept
    for index, actor in enumerate(state[10]):
        if actor[PC] != ENDED:
            for after in _STEP[actor[PC]](model, state, index, actor):
                yield f"{index}:{STEPS[actor[PC]]}", after


def _set(state: State, **changes: Any) -> State:
    values = list(state)
    for name, value in changes.items():
        values[_FIELDS.index(name)] = value
    return tuple(values)


_FIELDS = (
    "gate", "swapped", "files", "ever", "archived", "back", "props", "times", "last", "net", "actors",
)  # fmt: skip


def _with(state: State, index: int, actor: Actor, **changes: Any) -> State:
    values = list(actor)
    for name, value in changes.items():
        values[globals()[name]] = value
    actors = state[10]
    return (*state[:10], (*actors[:index], tuple(values), *actors[index + 1 :]))


def _send(state: State, kind: str, number: int, tag: Any, index: int) -> State:
    return _set(state, net=(*state[9], (kind, number, tag, index)))


def _gave_up(state: State, index: int) -> State:
    """The actor no longer waits; its request stays on its way."""
    return _set(state, net=tuple((k, n, t, -1 if w == index else w) for k, n, t, w in state[9]))


# -- what the store does --------------------------------------------------------------------------------


def _carry_out(model: Model, state: State, request: tuple[Any, ...]) -> State:
    kind, number, tag, waits = request
    state = _set(state, net=tuple(r for r in state[9] if r != request))
    if kind == "put":
        replaces = number // model.count == REPLACE
        state, done = (_replace if replaces else _put)(model, state, number, tag)
    else:
        state, done = _swap(model, state, kind, number, tag)
    if waits >= 0:
        state = _with(state, waits, state[10][waits], REPLY=OK if done else NO)
    return state


def _swap(model: Model, state: State, kind: str, decision: int, tag: Any) -> tuple[State, bool]:
    tag, newest, saw, carried = tag
    if model.condition and tag != model.tag(state[0]):
        return state, False
    index = decision // model.tries
    if kind == "cancel":
        gate = (model.count + decision, newest, carried)
        return _set(state, gate=gate, swapped=state[1] | 1 << gate[0]), True
    if model.actors[index][0] == "writer" and saw != state[6]:
        raise Broken("decided by lists that were replaced")
    time = state[7][decision] if model.actors[index][0] == "writer" else 0
    gate = (decision, max(newest, time), (*carried, *model.targets(index, decision)))
    return _set(state, gate=gate, swapped=state[1] | 1 << decision), True


def _put(model: Model, state: State, target: int, tag: Any) -> tuple[State, bool]:
    bit = 1 << target
    if state[2] & bit:
        return state, False
    kind, decision = divmod(target, model.count)
    again = state[3] & bit
    state = _set(state, files=state[2] | bit, ever=state[3] | bit)
    if kind == DATA:
        state = _shown(model, state, decision, bool(again))
    return state, True


def _shown(model: Model, state: State, decision: int, again: bool) -> State:
    """The completed file of an instant appears; ``again``: it was there before, and was removed."""
    if again:
        if state[5] >> decision & 1 and not model.withdrawn:
            raise Broken("taken back, and it counts again")
        if state[4] >> decision & 1 and not model.once:
            raise Broken("archived, and it counts twice")
        return state
    instant = model.instant(decision)
    if state[7][decision] <= state[8]:
        raise Broken("out of order")
    for other in range(model.count):
        same = model.instant(other) == instant
        kind = model.actors[other // model.tries][0]
        if same and other != decision and kind == "writer" and state[3] >> model.target(DATA, other) & 1:
            raise Broken("completed twice")
        if same and kind == "rollback" and state[3] >> model.target(PLAN, other) & 1:
            raise Broken("completed although its rollback was planned")
    if state[10][decision // model.tries][TOLD] == TOLD_FAILED:
        raise Broken("told failed, and it is shown")
    if model.files == 2 and not state[3] >> model.target(META, decision) & 1:
        raise Broken("data without metadata")
    return _set(state, last=state[7][decision])


def _replace(model: Model, state: State, target: int, was: Any) -> tuple[State, bool]:
    """A swap of the replaced file itself, on the condition of its old content."""
    if was != state[6]:
        return state, False
    decision = target % model.count
    if model.decides and target not in state[0][2]:
        raise Broken("an old replacement came back")
    return _set(state, props=model.new_props(decision), ever=state[3] | 1 << target), True


# -- what actors do -------------------------------------------------------------------------------------


def _own(model: Model, index: int, actor: Actor) -> int:
    """Number of the actor's decision in this attempt."""
    return index * model.tries + actor[ATTEMPT]


def _told(model: Model, state: State, index: int, actor: Actor, told: int) -> State:
    shown = state[3]
    if model.actors[index][0] == "writer":
        own = range(index * model.tries, (index + 1) * model.tries)
        same = [d for d in range(model.count) if model.instant(d) == model.actors[index][1]]
        if told == TOLD_OK and not any(shown >> model.target(DATA, d) & 1 for d in same):
            raise Broken("told ok, and it is not shown")
        if told == TOLD_FAILED and any(shown >> model.target(DATA, d) & 1 for d in own):
            raise Broken("told failed, and it is shown")
    return _with(
        state, index, actor, PC=ENDED, ATTEMPT=0, TAG=None, NEWEST=0, PENDING=(), REPLY=NONE, LEFT=(),
        SAW=None, TOLD=told, CARRIED=(), SWAPS=0, BEFORE=None,
    )  # fmt: skip


def _superseded(model: Model, state: State, index: int, actor: Actor) -> State:
    if actor[ATTEMPT] + 1 == model.tries:
        return _told(model, state, index, actor, TOLD_FAILED)
    return _with(
        state, index, actor, PC=READ, ATTEMPT=actor[ATTEMPT] + 1, TAG=None, NEWEST=0, PENDING=(),
        REPLY=NONE, SAW=None, CARRIED=(),
    )  # fmt: skip


def _read(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    gate = state[0]
    if not model.lists_after and actor[SAW] is None:  # the wrong way round: list first
        yield _with(state, index, actor, SAW=_seen(model, state, index))
        return
    if _may_carry(model, index):
        saw = _told_by_gate(model, state, actor[BEFORE]) or actor[SAW]
        actor = state[10][index]
        state = _with(state, index, actor, SAW=saw, SWAPS=state[1])
    yield _with(state, index, state[10][index], PC=LIST, TAG=model.tag(gate), NEWEST=gate[1], PENDING=gate[2])


def _may_carry(model: Model, index: int) -> bool:
    return model.carries and model.actors[index][0] == "writer"


def _told_by_gate(model: Model, state: State, before: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """What a listing would show, from that of the attempt before; None if the gate does not tell."""
    if before is None:
        return None
    swaps, (files, *others) = before
    for decision in range(2 * model.count):
        if (state[1] & ~swaps) >> decision & 1:
            if decision >= model.count or model.actors[decision // model.tries][0] != "writer":
                if model.only_commits:
                    return None
            elif model.target(DATA, decision) not in state[0][2]:
                files |= 1 << model.target(DATA, decision)
    return (files, *others)


def _seen(model: Model, state: State, index: int) -> tuple[int, int, int, int]:
    return (state[2], state[4], state[5], state[6])


def _list(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    files, archived, back, props = seen = actor[SAW] or _seen(model, state, index)
    kind, instant = model.actors[index]
    carried: tuple[int, ...] = ()
    if model.helps:
        looks = actor[PENDING] if model.all_files else actor[PENDING][:1]
        for target in looks:
            replaces = target // model.count == REPLACE
            was = state[7][target % model.count] if replaces else None
            missing = was == props if replaces else not files >> target & 1
            if missing and _may_carry(model, index) and target // model.count == DATA:
                carried += (target,)
                files |= 1 << target
            elif missing:  # put it, then list again
                tag = was
                sent = _send(state, "put", target, tag, index)
                yield _with(sent, index, actor, PC=HELPING, LEFT=(target,), SAW=None)
                return
    completed = planned = False
    done = 0  # decisions that are completed and on the timeline
    for d in range(model.count):
        who = model.actors[d // model.tries][0]
        data = files >> model.target(DATA, d) & 1
        done |= data << d
        if model.instant(d) == instant and who == "writer" and (data or (archived | back) >> d & 1):
            completed = True
        if model.instant(d) == instant and who == "rollback" and files >> model.target(PLAN, d) & 1:
            planned = True
    if kind in ("writer", "rollback") and completed:
        yield _told(model, state, index, actor, TOLD_OK if kind == "writer" else TOLD_FAILED)
        return
    if kind in ("writer", "rollback") and planned:
        yield _told(model, state, index, actor, TOLD_FAILED)
        return
    if kind in ("archiver", "restorer"):
        if not done:
            yield _told(model, state, index, actor, TOLD_FAILED)
            return
        saw: Any = done
    else:
        saw = props
    if kind == "replacer" and not model.decides:
        sent = _send(state, "put", model.targets(index, _own(model, index, actor))[0], props, index)
        yield _with(sent, index, actor, PC=PUTTING, LEFT=model.targets(index, _own(model, index, actor)))
        return
    own = _own(model, index, actor)
    for ahead in model.clock if kind == "writer" else (0,):
        times = list(state[7])
        times[own] = actor[NEWEST] + ahead if kind == "writer" else props if kind == "replacer" else 0
        at = _set(state, times=tuple(times))
        before = (actor[SWAPS], seen) if _may_carry(model, index) else None
        yield _with(at, index, actor, PC=SWAP, SAW=saw, CARRIED=carried, SWAPS=0, BEFORE=before)


def _helping(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    """With an answer or without one: list again."""
    yield _with(_gave_up(state, index), index, actor, PC=LIST, REPLY=NONE, LEFT=())


def _swap_sent(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    tag = (actor[TAG], actor[NEWEST], actor[SAW], actor[CARRIED] if model.keeps else ())
    sent = _send(state, "swap", _own(model, index, actor), tag, index)
    yield _with(sent, index, actor, PC=SWAPPING)


def _decided(model: Model, state: State, index: int, actor: Actor) -> State:
    own, carried = model.targets(index, _own(model, index, actor)), actor[CARRIED]
    left: tuple[Any, ...] = (*carried, *own) if model.carried_first else (*own, *carried)
    if model.actors[index][0] in ("archiver", "restorer"):
        left = ("first", "then")
    if not left or not model.puts:
        return _told(model, state, index, actor, TOLD_OK)
    return _with(
        state, index, actor, PC=PUT, REPLY=NONE, LEFT=left, TAG=None, NEWEST=0, PENDING=(), CARRIED=(),
        SAW=None if model.carries and model.actors[index][0] == "writer" else actor[SAW], BEFORE=None,
    )  # fmt: skip


def _swapping(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    if actor[REPLY] == OK:
        if not (model.log and model.looks_again):
            yield _decided(model, state, index, actor)
        # The answer was lost; the client library sent the swap again by itself, and was refused.
        yield _with(state, index, actor, REPLY=NO)
    elif actor[REPLY] == NO and model.believes_412:
        yield _superseded(model, _gave_up(state, index), index, actor)
    # refused, no answer, or the answer was lost
    yield _with(_gave_up(state, index), index, actor, PC=LOOK, REPLY=NONE)


def _look(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    """Read the gate after a doubtful answer."""
    own = _own(model, index, actor)
    if model.own and state[0][0] == own:
        yield _decided(model, state, index, actor)
    elif model.own and state[1] >> own & 1:  # who swapped after it has helped first
        yield _ended_by_others(model, state, index, actor)
    elif state[0][0] != own and model.tag(state[0]) == actor[TAG]:
        yield _with(state, index, actor, PC=SWAP)
        if model.cancel:
            yield _with(state, index, actor, PC=CANCEL)
        else:
            yield _told(model, state, index, actor, TOLD_FAILED)
    else:
        yield _superseded(model, state, index, actor)


def _ended_by_others(model: Model, state: State, index: int, actor: Actor) -> State:
    own = model.targets(index, _own(model, index, actor))
    if model.carries and model.asks_gate and set(own) & set(state[0][2]):
        return _decided(model, state, index, actor)  # they only took it along
    if model.actors[index][0] in ("archiver", "restorer"):
        return _told(model, state, index, actor, TOLD_FAILED)  # nothing was deleted yet
    return _told(model, state, index, actor, TOLD_OK)


def _cancel(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    tag = (actor[TAG], actor[NEWEST], None, actor[CARRIED] if model.cancel_keeps else ())
    sent = _send(state, "cancel", _own(model, index, actor), tag, index)
    yield _with(sent, index, actor, PC=CANCELLING)


def _cancelling(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    own = _own(model, index, actor)
    if actor[REPLY] == OK and not (model.log and model.looks_again):
        yield _told(model, state, index, actor, TOLD_FAILED)
        return
    state = _gave_up(state, index)
    if state[0][0] == own:
        yield _decided(model, state, index, actor)
    elif state[1] >> own & 1:
        yield _ended_by_others(model, state, index, actor)
    elif model.tag(state[0]) == actor[TAG] and not state[1] >> (model.count + own) & 1:
        yield _with(state, index, actor, PC=CANCEL, REPLY=NONE)
    else:
        yield _told(model, state, index, actor, TOLD_FAILED)


def _put_sent(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    target = actor[LEFT][0]
    if target == "first":  # the archive holds them; or it is known that they are taken back
        mask = actor[SAW]
        kind = model.actors[index][0]
        if kind == "archiver":
            state = _set(state, archived=state[4] | mask)
        else:
            state = _set(state, back=state[5] | mask)
        yield _with(state, index, actor, LEFT=("then",))
    elif target == "then":
        gone = 0
        for d in range(model.count):
            if actor[SAW] >> d & 1:
                gone |= 1 << model.target(DATA, d) | 1 << model.target(META, d)
        state = _set(state, files=state[2] & ~gone)
        yield _told(model, state, index, actor, TOLD_OK)
    else:
        tag = state[7][target % model.count] if target // model.count == REPLACE else None
        sent = _send(state, "put", target, tag, index)
        yield _with(sent, index, actor, PC=PUTTING)


def _putting(model: Model, state: State, index: int, actor: Actor) -> Iterator[State]:
    if actor[REPLY] == NONE:  # no answer: again
        replaces = actor[LEFT][0] // model.count == REPLACE
        if replaces and state[7][actor[LEFT][0] % model.count] != state[6]:
            yield _told(model, _gave_up(state, index), index, actor, TOLD_OK)
        else:
            yield _with(_gave_up(state, index), index, actor, PC=PUT)
        return
    left = actor[LEFT][1:]
    if left:
        yield _with(state, index, actor, PC=PUT, REPLY=NONE, LEFT=left)
    else:
        yield _told(model, state, index, actor, TOLD_OK)


_STEP = {
    READ: _read, LIST: _list, HELPING: _helping, SWAP: _swap_sent, SWAPPING: _swapping, LOOK: _look,
    CANCEL: _cancel, CANCELLING: _cancelling, PUT: _put_sent, PUTTING: _putting,
}  # fmt: skip
