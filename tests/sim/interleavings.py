"""Which pairs of actions the simulated world really ran at the same time, in different processes.

An action lasts from its first call to its last, in virtual time: a transaction from its begin to its commit,
abort or its process' death, a service, an index's life or a read from call to return. What changed no file
(a service that found nothing to do, a writer that was told "already committed") counts as none; files of the
fence and of preparation are no changes. Every storage, clock and lock call is a scheduling point, so two
actions that overlap were cut by each other. Nothing here draws a random number or asks a seam, so a run makes
the same calls with and without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any
from unittest.mock import patch

from mainstem.api import create
from mainstem.api.indexes import Indexes
from mainstem.api.services import Services
from mainstem.api.vectors import Vectors
from mainstem.readers.queries.scan_plan import ScanPlan
from mainstem.services.metadata import metadata_archiving, metadata_cleaning, metadata_compaction
from mainstem.storage import paths
from mainstem.vectors.index import lifecycle
from mainstem.writers import transaction
from mainstem.writers.transaction import Transaction
from tests.sim.births_world import Births
from tests.sim.compactor import Compactor
from tests.sim.mixed_world import Mixed
from tests.sim.sim_storage import Disk
from tests.sim.simulation import Simulation
from tests.sim.world import Actor, Process, World

READ = "read"
PENDING = "compaction pending"  # from the plan to its completion, whoever is at it or nobody
_PLAN = re.compile(r"\.hoodie/timeline/(\d+)(?:\.compaction\.requested|_\d+\.commit)$")
_SILENT = (f"{paths.FENCE}/", f"{paths.PREPARED}/")

#: who is called for which kind of action; a transaction has its own rules
CALLS: tuple[tuple[Any, str, str], ...] = (
    *((Services, name, "rollback") for name in ("rollback", "rollback_failed_writes")),
    (transaction, "roll_back_failed_writes", "rollback"),
    *((Services, name, "compaction") for name in ("compact", "run_compaction", "schedule_compaction")),
    (Compactor, "run", "compaction"),
    *(
        (Services, name, "log compaction")
        for name in ("log_compact", "run_log_compaction", "schedule_log_compaction")
    ),
    *((Services, name, "clean") for name in ("clean", "schedule_clean")),
    (Services, "archive", "archiving"),
    *((Services, name, "savepoint") for name in ("savepoint", "delete_savepoint")),
    (Services, "restore", "restore"),
    (Indexes, "create", "index build"),
    (Indexes, "drop", "index drop"),
    (Indexes, "refresh", "vector refresh"),
    (metadata_compaction, "run", "metadata compaction"),
    (metadata_cleaning, "run", "metadata clean"),
    (metadata_archiving, "run", "metadata archiving"),
    (create, "put_table", "creation"),
    (Births, "_remove_by_name", "deletion"),
    (Mixed, "_java_commit", "Java-like commit"),
    (ScanPlan, "to_arrow", READ),
    (Vectors, "search", READ),
)
WRITES = ("delta commit", "bulk insert", "sink commit")
KINDS: tuple[str, ...] = tuple(dict.fromkeys((*WRITES, *(kind for _, _, kind in CALLS), PENDING)))


@dataclass(eq=False)
class Action:
    """One action of one process; ``ended`` None while it runs. A plan that is pending is of no process."""

    kind: str
    process: Process | None
    began: float
    ended: float | None = None
    counts: bool = False


@dataclass
class Pair:
    """How often two kinds overlapped, and how often a death or a stop of one of them fell into it."""

    times: int = 0
    struck: int = 0


@dataclass
class Interleavings:
    """Adds up over runs, each of which is to be made within ``watching``."""

    actions: Counter[str] = field(default_factory=Counter)
    pairs: dict[tuple[str, str], Pair] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._world: World | None = None
        self._ours: list[Action] = []
        self._open: dict[Actor, list[Action]] = {}
        self._blows: dict[Process | None, list[float]] = {}
        self._plans: dict[str, Action] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Every simulation that runs meanwhile is watched."""
        with ExitStack() as stack:
            for owner, name, kind in CALLS:
                whole = getattr(owner, name)
                stack.enter_context(patch.object(owner, name, self._call(whole, kind)))
            for one in self._patches():
                stack.enter_context(one)
            yield

    def _patches(self) -> list[Any]:
        begin, add_staged = Transaction.begin.__func__, Transaction.add_staged
        run, kill, stop, tend = Simulation.run, Process.kill, World._pause, lifecycle.tend
        tell = Disk.tell

        def begun(cls: Any, ctx: Any, spec: Any, **given: Any) -> Transaction:
            kind = "bulk insert" if spec.operation == "bulk_insert" else "delta commit"
            action = self._begin(kind)
            try:
                txn = begin(cls, ctx, spec, **given)
            except BaseException:
                self._end(action)
                raise
            if action is not None:
                txn._action = action
                action.counts = not txn.already_committed
                if txn.already_committed:
                    self._end(action)
            return txn

        def staged(txn: Any, *given: Any, **named: Any) -> int:
            if action := getattr(txn, "_action", None):
                action.kind = "sink commit"
            return add_staged(txn, *given, **named)

        def watched(simulation: Simulation) -> Any:
            self._world = simulation.world
            try:
                return run(simulation)
            finally:
                self._count()

        def told(disk: Disk, event: str, path: str, source: str = "") -> None:
            self._event(event, path)
            tell(disk, event, path, source)

        def killed(process: Process) -> None:
            if not process.dead:
                self._strike(process)
                self._die(process)
            kill(process)

        def stopped(world: World, process: Process) -> None:
            self._strike(process)
            stop(world, process)

        def tended(*given: Any, **named: Any) -> Iterator[Any]:
            action = self._begin("vector refresh")
            try:
                yield from tend(*given, **named)
            finally:
                self._end(action)

        return [
            patch.object(Transaction, "begin", classmethod(begun)),
            patch.object(Transaction, "add_staged", staged),
            patch.object(Transaction, "commit", self._ending(Transaction.commit)),
            patch.object(Transaction, "abort", self._ending(Transaction.abort)),
            patch.object(Simulation, "run", watched),
            patch.object(Disk, "tell", told),
            patch.object(Process, "kill", killed),
            patch.object(World, "_pause", stopped),
            patch.object(lifecycle, "tend", tended),
        ]

    # -- one action -------------------------------------------------------------------------------

    def _call(self, whole: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            action = self._begin(kind)
            try:
                return whole(*given, **named)
            finally:
                self._end(action)

        return called

    def _ending(self, whole: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def called(txn: Any) -> Any:
            try:
                return whole(txn)
            finally:
                if txn._turns.ended:
                    self._end(getattr(txn, "_action", None))

        return called

    def _begin(self, kind: str) -> Action | None:
        world = self._world
        if world is None or world.current is None or world.current.process.dead:
            return None  # building the world, or unwinding it
        actor = world.current
        action = Action(kind, actor.process, world.now, counts=kind == READ)
        self._ours.append(action)
        self._open.setdefault(actor, []).append(action)
        return action

    def _end(self, action: Action | None) -> None:
        if action is None or action.ended is not None or self._world is None:
            return
        action.ended = self._world.now
        for running in self._open.values():
            if action in running:
                running.remove(action)

    def _event(self, event: str, path: str) -> None:
        """A name on the disk has changed: whatever the running actor is at has an effect."""
        world = self._world
        if world is None or world.current is None or event == "listed" or path.startswith(_SILENT):
            return
        for action in self._open.get(world.current, ()):
            action.counts = True
        if event != "moved" and (found := _PLAN.match(path)):
            self._plan(found[1], event != "deleted" and path.endswith(".requested"), world.now)

    def _plan(self, instant: str, begins: bool, now: float) -> None:
        """A plan appeared; or it completed, or was restored away (or archived, long after it completed)."""
        if begins:
            self._plans[instant] = Action(PENDING, None, now, counts=True)
            self._ours.append(self._plans[instant])
        elif instant in self._plans and self._plans[instant].ended is None:
            self._plans[instant].ended = now

    def _strike(self, process: Process) -> None:
        assert self._world is not None
        self._blows.setdefault(process, []).append(self._world.now)

    def _die(self, process: Process) -> None:
        for running in list(self._open.values()):
            for action in [one for one in running if one.process is process]:
                self._end(action)

    # -- one run ----------------------------------------------------------------------------------

    def _count(self) -> None:
        world = self._world
        assert world is not None
        known = [action for action in self._ours if action.counts]
        self.actions.update(action.kind for action in known)
        for one, other in combinations(known, 2):
            if one.process is not other.process or one.process is None:
                self._meet(one, other, world.now)
        self._world, self._ours, self._open, self._blows, self._plans = None, [], {}, {}, {}

    def _meet(self, one: Action, other: Action, now: float) -> None:
        begin = max(one.began, other.began)
        end = min(now if action.ended is None else action.ended for action in (one, other))
        if begin >= end:
            return
        first, second = sorted((one.kind, other.kind), key=KINDS.index)
        pair = self.pairs.setdefault((first, second), Pair())
        pair.times += 1
        blows = (*self._blows.get(one.process, ()), *self._blows.get(other.process, ()))
        pair.struck += any(begin <= blow <= end for blow in blows)


def matrix(found: Interleavings) -> str:
    """A table in Markdown: how often each kind of action overlapped each (and how
    often one of the two died or was stopped just then)."""
    kinds = [kind for kind in KINDS if found.actions[kind]]
    head = "| | " + " | ".join(str(n) for n in range(1, len(kinds) + 1)) + " |"
    lines = [head, "|---|" + "---:|" * len(kinds)]
    for number, row in enumerate(kinds, start=1):
        cells = []
        for column in kinds:
            pair = found.pairs.get(tuple(sorted((row, column), key=KINDS.index)))
            cells.append(_cell(pair) if kinds.index(column) <= number - 1 else "")
        lines.append(f"| {number} {row} ({found.actions[row]}) | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(pair: Pair | None) -> str:
    return "**0**" if pair is None else f"{pair.times}/{pair.struck}"
