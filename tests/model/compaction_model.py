"""Hudi's merge rules for one key, row by row, and every short history in which a compaction matters.

A history is the writes of one key in the order of their *requested* times. Log files merge in that order,
whatever order they complete in. A compaction takes in what has completed when it is planned; what
completes later lies on top of its base file, also if it was requested earlier (RFC-66). So all that
compactions do to a history is to cut it into *layers*: ``layers[i]`` is the number of compactions planned
before write ``i`` completed. The answer without compactions is that of the layers (0, 0, ...).

Rules: ``EventTimeRecordMerger``, ``CommitTimeRecordMerger``, ``PartialUpdateMode`` of Hudi 1.2, and of
1.3 for tables of version 10 and LSM trees; nothing of mainstem is imported.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

ORDERS = (1, 2, 3)
Cells = tuple[int | None, int | None]


@dataclass(frozen=True)
class Mode:
    """How a table merges; ``partial``: a cell without a value is taken from the row that lost.

    ``in_order``: a delete with an ordering value counts behind ``delete()`` (table version 10).
    ``one_by_one``: log records merge onto the base file's row, not among themselves first (an LSM tree).
    """

    name: str
    event_time: bool
    partial: bool = False
    in_order: bool = False
    one_by_one: bool = False


EVENT = Mode("event time", True)
COMMIT = Mode("commit time", False)
PARTIAL_COMMIT = Mode("partial, commit time", False, True)
PARTIAL_EVENT = Mode("partial, event time", True, True)
NATIVE_EVENT = replace(EVENT, name="version 10, event time", in_order=True)
TREE_EVENT = replace(NATIVE_EVENT, name="lsm tree, event time", one_by_one=True)
TREE_PARTIAL_COMMIT = replace(
    PARTIAL_COMMIT, name="lsm tree, partial, commit time", in_order=True, one_by_one=True
)
TREE_PARTIAL_EVENT = replace(TREE_EVENT, name="lsm tree, partial, event time", partial=True)
MODES = (
    EVENT, COMMIT, PARTIAL_COMMIT, PARTIAL_EVENT,
    NATIVE_EVENT, TREE_EVENT, TREE_PARTIAL_COMMIT, TREE_PARTIAL_EVENT,
)  # fmt: skip


@dataclass(frozen=True)
class Write:
    """One write of the key: a row, a delete with an ordering value, or ``delete()`` without one.

    ``columns``: which of the row's two cells have a value; it is the number of the write.
    """

    kind: str  # row, flag, delete
    order: int = 0
    columns: str = "ab"

    def __str__(self) -> str:
        if self.kind == "delete":
            return "delete()"
        what = "row" if self.columns == "ab" else f"row({self.columns})"
        return f"{what if self.kind == 'row' else 'delete'}@{self.order}"


@dataclass(frozen=True)
class State:
    """What the logs, or a base file, hold of the key. ``order`` None: a delete without one; ``place``: where
    in the order of requested times the log record lies that won."""

    order: int | None
    cells: Cells | None
    place: float = 0

    @property
    def deleted(self) -> bool:
        return self.cells is None


History = tuple[Write, ...]
Layers = tuple[int, ...]
DELETE = Write("delete")


def writes(mode: Mode) -> list[Write]:
    """Everything that can be written to the key."""
    orders = ORDERS if mode.event_time else ORDERS[:1]
    columns = ("a", "b", "ab") if mode.partial else ("ab",)
    rows = [Write("row", order, names) for order in orders for names in columns]
    return [*rows, *(Write("flag", order) for order in orders), DELETE]


def _overlaid(winner: Cells, loser: Cells) -> Cells:
    a, b = (w if w is not None else old for w, old in zip(winner, loser, strict=True))
    return a, b


def _newer_wins(mode: Mode, old: State, new: State) -> bool:
    if not mode.event_time:
        return True
    if new.deleted:
        if old.deleted and old.order is None:
            return mode.in_order
        return new.order is None or new.order >= old.order
    return old.order is None or new.order >= old.order


def _merged(mode: Mode, old: State | None, new: State) -> State:
    if old is None:
        return new
    wins = _newer_wins(mode, old, new)
    winner, loser = (new, old) if wins else (old, new)
    if mode.partial and winner.cells is not None and loser.cells is not None:
        return State(winner.order, _overlaid(winner.cells, loser.cells), winner.place)
    return winner


def _record(number: int, write: Write, mode: Mode) -> State:
    """What a write leaves in a log."""
    if write.kind == "row":
        a, b = (number if name in write.columns else None for name in "ab")
        return State(write.order, (a, b), number)
    timed = write.kind == "flag" and mode.event_time
    return State(write.order if timed else None, None, number)


def fold(mode: Mode, records: Sequence[State], state: State | None = None) -> State | None:
    """Log records merged among themselves, or onto a state, in the order of their places."""
    for new in sorted(records, key=lambda record: record.place):
        state = _merged(mode, state, new)
    return state


#: when a compaction that keeps deletes does so: while the writes that cross it are in flight, or behind them
IN_FLIGHT, ENDED = "in flight", "ended"


def answer(
    mode: Mode, history: Sequence[Write], layers: Sequence[int], begun: Layers | None = None, keep: str = ""
) -> Cells | None:
    """The key's row when all of the history has completed, None if it has none.

    ``keep``: the compactions keep deletes, ``IN_FLIGHT`` or ``ENDED``. ``begun[i]`` is then the number of
    compactions planned before write ``i`` was requested; by default all writes were requested before.
    """
    began = (0,) * len(history) if begun is None else begun
    base: State | None = None
    kept: State | None = None
    for layer in range(max(layers) + 1):
        log = [_record(n, w, mode) for n, w in enumerate(history) if layers[n] == layer]
        log += [] if kept is None else [kept]
        over = fold(mode, log)
        base = _onto_base(mode, base, log)
        if keep:
            crossing = [n for n, at in enumerate(layers) if began[n] <= layer < at]
            place = sum(at <= layer for at in began) - 0.5  # behind what was requested before
            kept = _kept(over, [_record(n, history[n], mode) for n in crossing], place, keep)
    return None if base is None else base.cells


def _kept(over: State | None, crossing: Sequence[State], place: float, keep: str) -> State | None:
    """The delete that a compaction keeps, at its own place, if none lies between that it would wrong."""
    if over is None or not over.deleted or over.order is None:
        return None
    behind = [record for record in crossing if record.place > over.place]
    if keep == ENDED:
        ties = [record for record in behind if not record.deleted and record.order == over.order]
        behind = [*ties, *(record for record in crossing if record.deleted and record.order is None)]
    return None if behind else State(over.order, None, place)


def _onto_base(mode: Mode, base: State | None, log: Sequence[State]) -> State | None:
    """A base file knows rows only: a delete is forgotten with the row that it deletes."""
    over = fold(mode, log)
    if mode.one_by_one or over is None:
        merged = fold(mode, log, base)
    else:
        merged = _merged(mode, base, over)
    return None if merged is None or merged.deleted else merged


#: an overwrite of the key's partition: with a row of the key, or without
OVERWRITES = (*(Write("overwrite", order) for order in ORDERS), Write("emptied"))


def sequential(mode: Mode, history: Sequence[Write], layers: Sequence[int], *, keeps: bool) -> Cells | None:
    """``answer`` where each write ends before the next one begins, and an overwrite may be among them: it
    hides all that is older, kept deletes too (``INSERT_OVERWRITE``). ``layers`` are in order."""
    base: State | None = None
    kept: State | None = None
    log: list[State] = []
    for number, write in enumerate(history):
        if number and layers[number] > layers[number - 1]:
            log += [] if kept is None else [kept]
            base = _onto_base(mode, base, log)
            kept = _kept(fold(mode, log), (), number - 0.5, ENDED) if keeps else None
            log = []
        if write.kind in ("overwrite", "emptied"):
            row = write.kind == "overwrite"
            base = State(write.order, (number, number), number) if row else None
            kept, log = None, []
        else:
            log.append(_record(number, write, mode))
    base = _onto_base(mode, base, log if kept is None else [*log, kept])
    return None if base is None else base.cells


def cuts(length: int, compactions: int) -> Iterator[Layers]:
    """All ways in which up to so many compactions cut a history, the uncut one left out."""
    for layers in itertools.product(range(compactions + 1), repeat=length):
        used = set(layers)
        if len(used) > 1 and used == set(range(len(used))):
            yield layers


def changed(
    mode: Mode, history: History, layers: Layers, begun: Layers | None = None, keep: str = ""
) -> bool:
    return answer(mode, history, layers, begun, keep) != answer(mode, history, (0,) * len(history))


def is_minimal(
    mode: Mode, history: History, layers: Layers, begun: Layers | None = None, keep: str = ""
) -> bool:
    """Whether the answer changes, and no part of the history would change it too."""
    if not changed(mode, history, layers, begun, keep):
        return False
    for left_out in range(len(history)):
        fewer = history[:left_out] + history[left_out + 1 :]
        cut = layers[:left_out] + layers[left_out + 1 :]
        began = None if begun is None else begun[:left_out] + begun[left_out + 1 :]
        if fewer and changed(mode, fewer, cut, began, keep):
            return False
    return True


def begins(layers: Layers) -> Iterator[Layers]:
    """All ways in which the writes may have been requested before and after the compactions that cut them."""
    for begun in itertools.product(*(range(at + 1) for at in layers)):
        if list(begun) == sorted(begun):
            yield begun


def minimal_kept(
    mode: Mode, length: int, compactions: int, keep: str
) -> Iterator[tuple[History, Layers, Layers]]:
    """(history, layers, begun) of every minimal history that compactions change though they keep deletes."""
    for layers in cuts(length, compactions):
        for begun in begins(layers):
            for history in itertools.product(writes(mode), repeat=length):
                if is_minimal(mode, history, layers, begun, keep):
                    yield history, layers, begun


def minimal(mode: Mode, length: int, compactions: int = 1) -> Iterator[tuple[History, Layers]]:
    """Every minimal history of this length in which compactions change the answer."""
    for layers in cuts(length, compactions):
        for history in itertools.product(writes(mode), repeat=length):
            if is_minimal(mode, history, layers):
                yield history, layers


def case(mode: Mode, history: History, layers: Layers) -> str | None:
    """Name of a minimal history's case (docs/services.md); None: it has none."""
    kinds = [w.kind for w in history]
    rows = [n for n, kind in enumerate(kinds) if kind == "row"]
    deletes = [n for n, kind in enumerate(kinds) if kind != "row"]
    if len(history) == 2:
        return _case_of_two(mode, history, layers)
    if mode.event_time and "delete" in kinds and "flag" in kinds:
        return "two kinds of deletes"
    if mode.event_time and kinds == ["flag", "flag", "row"] and history[2].order < history[0].order:
        return "late row"  # behind the first delete, which is forgotten because the second is in flight
    if mode.event_time and kinds == ["row", "flag", "flag"] and layers[0] > layers[1]:
        return "crossing write"  # as of the row and the first delete, which is forgotten in the same way
    if len(history) == 3 and len(deletes) == 1 and _covered(layers, rows, deletes[0]):
        return "covered delete"
    return "late partial rows" if mode.event_time and mode.partial else None


def _case_of_two(mode: Mode, history: History, layers: Layers) -> str | None:
    first, second = history
    crossing = layers[0] > layers[1]
    if crossing and (not mode.event_time or DELETE in history or first.order == second.order):
        return "crossing write"
    base, later = (second, first) if crossing else (first, second)
    if mode.event_time and base.kind == "flag" and later.kind == "row" and later.order < base.order:
        return "late row"
    return None


def _covered(layers: Layers, rows: list[int], delete: int) -> bool:
    """A row in the base file, and above it a delete with a row behind it."""
    base, later = min(rows, key=lambda n: layers[n]), max(rows)
    return base < delete < later and layers[base] < layers[delete] == layers[later]


def parse(text: str) -> tuple[History, Layers]:
    """A history as the documentation writes it: ``row@1..., delete(), compaction, row(a)@2``.

    ``...``: in flight while the compaction is planned.
    """
    history, layers, planned = [], [], 0
    for word in (part.strip() for part in text.split(",")):
        if word == "compaction":
            planned += 1
            continue
        crossing = word.endswith("...")
        word = word.removesuffix("...")
        history.append(DELETE if word == "delete()" else _parsed(word))
        layers.append(planned + crossing)
    return tuple(history), tuple(layers)


def _parsed(word: str) -> Write:
    what, _, order = word.partition("@")
    name, _, columns = what.rstrip(")").partition("(")
    return Write("flag" if name == "delete" else "row", int(order or ORDERS[0]), columns or "ab")
