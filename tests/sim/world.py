"""The scheduler: actors as greenlets, one virtual clock, one random source, faults at every call.

Greenlets and not threads: exactly one actor runs at any time by construction (no baton that could be
dropped), a switch costs less than a microsecond, and a run does not depend on the machine's scheduler.
The price: protocol code must not call the seams from a thread of its own; ``point`` refuses that.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
import re
import threading
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import greenlet

# Virtual time starts on 2026-01-01 00:00 UTC, in milliseconds.
START_MS = 1_767_225_600_000.0


#: What may be raised out of any call that is no trouble of storage: Ctrl-C, a signal handler that exits or
#: times out, memory that runs out, a generator or a task that is closed, a stack that is too deep.
INTERRUPTS: tuple[type[BaseException], ...] = (
    KeyboardInterrupt,
    SystemExit,
    MemoryError,
    GeneratorExit,
    RecursionError,
    asyncio.CancelledError,
)
_INTERRUPTED = "simulated interrupt"
_PINNED = 20
_PINNED_TO_NO_DEATHS = 130
#: Steps right after which a process may be killed often (``Faults.crash_after``): what others see of it has
#: changed, and nothing of what it does about that is done.
STEPS = (
    r"^link .*/\d+_\d+\.deltacommit$",
    r"^link .*/\d+_\d+\.\w+$",
    r"^link .*\.requested$",
    r"^delete .*timeline/",
    r"^rename ",
)
#: the same on an object store
STORE_STEPS = (
    r"^SWAP .*/gate\.json$",
    r"^PUT new .*/decided/",
    r"^PUT new .*/\d+_\d+\.\w+$",
    r"^PUT new .*\.requested$",
    r"^DELETE .*timeline/",
)


class Killed(BaseException):
    """The process of the running actor was killed; nothing that it does from here has an effect."""


class Violation(Exception):
    """A checker found a broken invariant. ``rule`` names it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


def is_interrupt(error: BaseException) -> bool:
    """Whether the world raised this error to interrupt an actor; others of the same class are findings."""
    return isinstance(error, INTERRUPTS) and str(error).startswith(_INTERRUPTED)


@dataclass
class Faults:
    """What may go wrong, as probabilities per call unless a unit is named; all 0 is a calm world."""

    crash: float = 0.0
    host_crash: float = 0.0
    pause: float = 0.0
    pause_ms_max: float = 0.0
    pause_before: str = ""  # a kind of calls: before every second one the process is stopped
    error_before: float = 0.0
    error_after: float = 0.0
    full_disk: float = 0.0
    torn_listing: float = 0.0
    lease_loss: float = 0.0  # per lease
    late_notice: float = 0.0  # per lost lease: the holder's client says "still yours" for a while
    lock_removed_by_hand: float = 0.0  # per second of virtual time
    skew_ms: float = 0.0  # clocks lie within +- this
    clock_jump: float = 0.0  # per clock reading
    starve: float = 0.0  # per beat of a periodic task
    slow: float = 0.0  # share of calls that take 20 times longer
    interrupt: float = 0.0  # an exception that is no trouble of storage, before or after the effect
    impolite: float = 0.0  # per refusal: the actor goes on with the same transaction as if nothing was
    log_bytes_max: int = 0  # writers begin a new log file at this size; 0: as ever
    crash_after: str = ""  # a pattern of calls, "kind path": right after the effect of one ...
    crash_after_often: float = 0.0  # ... the process is killed, per call
    restart_ms_max: float = 0.0  # an heir comes up to this much later than it would
    late: float = 0.0  # of a store: a request is carried out later, and nobody waits for the answer
    repeated: float = 0.0  # of a store: its client sends a request again whose reply was lost
    throttle: float = 0.0  # of a store: it refuses requests until the client gives up

    @staticmethod
    def drawn(rng: random.Random, session_ms: float) -> Faults:
        """Swarm: each run draws its own mixture; three runs in ten are mostly calm."""
        if rng.random() < 0.3:
            return Faults(skew_ms=rng.choice([0, 20, 90]), crash=rng.choice([0, 0, 0.0005]))

        def some(low: float, high: float, often: float = 0.5) -> float:
            return low * (high / low) ** rng.random() if rng.random() < often else 0.0

        return Faults(
            crash=some(0.0005, 0.008, 0.6),
            host_crash=some(0.0001, 0.0008, 0.25),
            pause=some(0.001, 0.02, 0.7),
            pause_ms_max=session_ms * rng.choice([0.5, 2, 10]),
            error_before=some(0.0005, 0.01, 0.4),
            error_after=some(0.0005, 0.01, 0.4),
            full_disk=some(0.0005, 0.01, 0.25),
            torn_listing=rng.choice([0, 0, 0.1, 0.5]),
            lease_loss=some(0.01, 0.5, 0.6),
            late_notice=rng.choice([0, 0.5, 1.0]),
            lock_removed_by_hand=some(0.01, 0.3, 0.2),
            skew_ms=rng.choice([0, 50, 100, 100, 1000, 20_000]),
            clock_jump=some(0.0005, 0.01, 0.3),
            starve=some(0.01, 0.3, 0.3),
            slow=some(0.001, 0.05, 0.5),
        )

    def with_manners(self, rng: random.Random, seed: int) -> Faults:
        """In three seeds of ten, interrupts and actors without manners too; ``rng`` draws nothing else.

        Not in the first seeds, to which seeded bugs are pinned that need neither.
        """
        if seed < _PINNED or rng.random() >= 0.3:
            return self
        return replace(
            self,
            interrupt=rng.choice([0.0, 0.0005, 0.002, 0.006]),
            impolite=rng.choice([0.0, 0.3, 0.8]),
            log_bytes_max=rng.choice([0, 1024, 1024, 4096]),
            error_before=max(self.error_before, rng.choice([0.0, 0.0, 0.003])),
            full_disk=max(self.full_disk, rng.choice([0.0, 0.0, 0.003])),
        )


    def with_deaths(self, rng: random.Random, seed: int) -> Faults:
        """In one seed of ten, processes that are killed right after one kind of step, whose heirs come late.

        Not in the first seeds, to which seeded bugs are pinned; ``rng`` draws nothing else.
        """
        if seed < _PINNED_TO_NO_DEATHS or rng.random() >= 0.1:
            return self
        return replace(
            self,
            crash_after=rng.choice(STEPS),
            crash_after_often=rng.choice([0.05, 0.2, 0.5]),
            restart_ms_max=rng.choice([0.0, 2000.0, 10_000.0]),
        )

    def on_a_store(self, rng: random.Random) -> Faults:
        """The same mixture for an object store: with late and repeated requests, without full disks.

        A crash of the machine is the death of all its processes; deaths come after a store's steps.
        """

        def some(low: float, high: float, often: float) -> float:
            return low * (high / low) ** rng.random() if rng.random() < often else 0.0

        return replace(
            self,
            full_disk=0.0,
            crash_after=rng.choice(STORE_STEPS) if self.crash_after else "",
            late=some(0.001, 0.02, 0.6),
            repeated=some(0.001, 0.03, 0.5),
            throttle=some(0.0005, 0.01, 0.3),
            error_after=max(self.error_after, some(0.0005, 0.01, 0.3)),
        )


@dataclass
class Counts:
    """Figures of one run."""

    calls: int = 0
    crashes: int = 0
    host_crashes: int = 0
    pauses: int = 0
    errors: int = 0
    interrupts: int = 0
    lease_losses: int = 0
    late: int = 0  # requests of a store that were carried out when nobody waited for the answer
    came_back: int = 0  # published files that a late put brought back after they had left the timeline
    commits: int = 0
    rollbacks: int = 0
    fenced: int = 0
    refused: int = 0
    reads: int = 0
    compactions: int = 0
    log_compactions: int = 0
    clusterings: int = 0
    cleans: int = 0
    savepoints: int = 0
    restores: int = 0
    archived: int = 0  # instants
    resizes: int = 0
    versions: int = 0  # times that the table was given another version
    routed: int = 0  # transactions whose rows went into a later instant
    virtual_ms: float = 0.0

    def add(self, other: Counts) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Process:
    """One operating-system process: its actors die, stop and go on together."""

    def __init__(self, world: World, name: str, skew_ms: float) -> None:
        self.world = world
        self.name = name
        self.skew_ms = skew_ms
        self.dead = False
        self.died_at = 0.0
        self.paused_from = 0.0
        self.paused_until = 0.0
        self.silent_ms = 0.0  # for how long it said that its heartbeats may be silent; 0: it did not say
        self.immune = False  # fault-free actors: readers that check, the final janitor
        self.uninterrupted = False  # stands for a program that is not ours
        self.speed = 1.0
        self.random = random.Random(world.random.getrandbits(64))
        self.on_death: Callable[[], None] | None = None

    def stopped_for(self) -> float:
        """Milliseconds that a running pause has lasted, 0 when the process runs."""
        now = self.world.now
        return now - self.paused_from if self.paused_until > now else 0.0

    def kill(self) -> None:
        if not self.dead:
            self.dead = True
            self.died_at = self.world.now
            self.world.note(f"{self.name} killed")
            if self.on_death is not None:
                self.world.after(0.0, self.on_death)


class Actor:
    """One thread of control of a process."""

    def __init__(self, world: World, process: Process, name: str, body: Callable[[], None]) -> None:
        self.process = process
        self.periodic = False  # a thread of its own, which no signal interrupts
        self.struck: BaseException | None = None  # is raised after the effect of the running call
        self.name = name
        self.body = body
        self.greenlet = greenlet.greenlet(self._run, parent=world.hub)
        self.world = world

    def _run(self) -> None:
        try:
            self.body()
        except Killed:
            pass
        except Violation as violation:
            self.world.fail(violation)
        except Exception as error:  # an error that nobody expected is a finding too
            text = "".join(traceback.format_exception(error))
            self.world.fail(Violation("unexpected error", f"in {self.name}: {text}"))


@dataclass(order=True)
class _Event:
    time: float
    number: int
    actor: Actor | None = field(compare=False)
    action: Callable[[], None] | None = field(compare=False)


class World:
    """Virtual time, actors, faults and the trace of one run. Nothing here depends on real time."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        #: of interrupts and of what actors do about them, so that the others' draws stay what they are
        self.manners = random.Random(f"manners of {seed}")
        #: of deaths right after a step and of how late heirs come, for the same reason
        self.deaths = random.Random(f"deaths of {seed}")
        #: of a store's requests, for the same reason
        self.trouble = random.Random(f"trouble of {seed}")
        self.faults = faults or Faults()
        self.now = START_MS
        self.counts = Counts()
        self.hub = greenlet.getcurrent()
        self.current: Actor | None = None
        self.processes: list[Process] = []
        self.failure: Violation | None = None
        self.recent: deque[str] = deque(maxlen=4000)
        self.log: list[str] | None = None  # a list: keep every call as text (replay)
        self.on_host_crash: Callable[[], None] | None = None
        self._thread = threading.get_ident()
        self._queue: list[_Event] = []
        self._number = 0
        self._end = 0.0
        self._limit = 0
        self._until: Callable[[], bool] = lambda: True
        self._hash = hashlib.blake2b(digest_size=16)

    # -- building ---------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        bound = self.faults.skew_ms
        created = Process(self, name, self.random.uniform(-bound, bound))
        self.processes.append(created)
        return created

    def spawn(self, process: Process, name: str, body: Callable[[], None]) -> Actor:
        actor = Actor(self, process, name, body)
        self._push(self.now + self.random.random(), actor, None)
        return actor

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run ``action`` in the scheduler itself (restarts, an operator's hand)."""
        self._push(self.now + delay_ms, None, action)

    def _push(self, time: float, actor: Actor | None, action: Callable[[], None] | None) -> None:
        self._number += 1
        heapq.heappush(self._queue, _Event(time, self._number, actor, action))

    # -- running ----------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool], *, ms: float, calls: int) -> bool:
        """Run until the condition holds; False when virtual time, calls or actors ran out first."""
        self._end, self._limit = self.now + ms, self.counts.calls + calls
        self._until = until
        started = self.now
        try:
            while not self._over():
                if not self._queue or self._queue[0].time > self._end or self._spent():
                    return False
                self._turn(heapq.heappop(self._queue))
            return self.failure is None
        finally:
            self.counts.virtual_ms += self.now - started

    def _over(self) -> bool:
        return self.failure is not None or self._until()

    def _spent(self) -> bool:
        return self.counts.calls > self._limit

    def _turn(self, event: _Event) -> None:
        actor = event.actor
        if actor is None:
            self.now = max(self.now, event.time)
            assert event.action is not None
            event.action()
            return
        process = actor.process
        if process.paused_until > event.time and not process.dead:
            self._push(process.paused_until + self.random.random(), actor, None)
            return
        self.now = max(self.now, event.time)
        self.current = actor
        actor.greenlet.switch()
        self.current = None

    def close(self) -> None:
        """Unwind what still runs, so that nothing of this run outlives it."""
        for process in self.processes:
            process.on_death = None
            process.dead = True
        while self._queue:
            actor = heapq.heappop(self._queue).actor
            if actor is not None and not actor.greenlet.dead and actor.greenlet:
                self.current = actor
                actor.greenlet.switch()
                self.current = None

    def fail(self, violation: Violation) -> None:
        if self.failure is None:
            self.failure = violation
            self.note(f"VIOLATION {violation}")

    # -- what the seams call ----------------------------------------------------------------------

    def sleep(self, delay_ms: float) -> None:
        """Let the current actor continue ``delay_ms`` later."""
        actor = self.current
        if actor is None:
            return
        wake = self.now + max(0.0, delay_ms)
        process = actor.process
        if not process.dead:
            queue = self._queue
            alone = not queue or queue[0].time > wake
            if alone and process.paused_until <= wake <= self._end and not (self._spent() or self._over()):
                self.now = wake  # nobody else is due: go on without a switch
            else:
                self._push(wake, actor, None)
                self.hub.switch()
                self.current = actor
        if process.dead:
            raise Killed

    def point(self, kind: str, detail: str, *, crashes: bool = True) -> bool:
        """A scheduling point. Returns True when ``strike`` is to be called *after* the effect.

        Raises ``Killed`` when the process dies before it, or is dead already, and one of ``INTERRUPTS``.
        """
        actor = self.current
        if actor is None:
            return False  # building or inspecting the world
        if threading.get_ident() != self._thread:
            raise RuntimeError("a seam was called from a thread of its own")
        process = actor.process
        if process.dead:
            raise Killed
        if actor.struck is not None:
            self.strike()  # after a call that has no effect of its own
        self.sleep(self._latency(process))
        self.counts.calls += 1
        self._record(actor, kind, detail)
        if process.immune:
            return False
        faults, rng = self.faults, self.random
        often = 0.5 if kind == faults.pause_before else faults.pause
        if often and rng.random() < often:
            self._pause(process)
        if crashes and faults.crash and rng.random() < faults.crash:
            self.counts.crashes += 1
            if rng.random() < 0.5:
                process.kill()
                raise Killed
            return True
        if crashes and faults.host_crash and rng.random() < faults.host_crash:
            self._crash_host()
        if crashes and faults.crash_after and self._dies_after(f"{kind} {detail}"):
            return True
        return self._interrupt(actor, kind) if faults.interrupt else False

    def _dies_after(self, call: str) -> bool:
        """Whether the running process is to be killed right after the effect of this call."""
        faults = self.faults
        if not re.search(faults.crash_after, call) or self.deaths.random() >= faults.crash_after_often:
            return False
        self.counts.crashes += 1
        return True

    def interrupted(self) -> bool:
        """Whether the running actor is to be interrupted after the effect of its call, not killed."""
        return self.current is not None and self.current.struck is not None

    def strike(self) -> None:
        """After an effect: interrupt the running actor, or kill its process."""
        actor = self.current
        assert actor is not None
        if actor.struck is not None:
            error, actor.struck = actor.struck, None
            raise error
        self.die()

    def die(self) -> None:
        """Kill the process of the running actor now."""
        assert self.current is not None
        self.current.process.kill()
        raise Killed

    def _interrupt(self, actor: Actor, kind: str) -> bool:
        """Raises an interrupt, or returns True where it is to be raised after the effect."""
        exempt = actor.periodic or actor.process.uninterrupted
        if exempt or self.manners.random() >= self.faults.interrupt:
            return False
        self.counts.interrupts += 1
        after = self.manners.random() < 0.5
        error = self.manners.choice(INTERRUPTS)(f"{_INTERRUPTED} {'after' if after else 'before'} {kind}")
        self.note(f"{actor.name} {type(error).__name__}: {error}")
        if not after:
            raise error
        actor.struck = error
        return True

    def note(self, text: str) -> None:
        """A line of the story that is not a call."""
        line = f"{self.now - START_MS:12.3f} -- {text}"
        self.recent.append(line)
        if self.log is not None:
            self.log.append(line)

    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def _latency(self, process: Process) -> float:
        rng = self.random
        latency = (0.05 + rng.random() * 0.5) / process.speed
        if self.faults.slow and rng.random() < self.faults.slow:
            latency *= 20
        return latency

    def _record(self, actor: Actor, kind: str, detail: str) -> None:
        line = f"{actor.name} {kind} {detail}"
        self._hash.update(f"{self.now:.3f} {line}\n".encode())
        self.recent.append(f"{self.now - START_MS:12.3f} {line}")
        if self.log is not None:
            self.log.append(self.recent[-1])

    def _pause(self, process: Process) -> None:
        duration = self.random.uniform(0.0, self.faults.pause_ms_max)
        self.counts.pauses += 1
        self.note(f"{process.name} stopped for {duration:.0f} ms")
        process.paused_from = self.now
        process.paused_until = self.now + duration
        self.sleep(duration)

    def _crash_host(self) -> None:
        self.counts.host_crashes += 1
        self.note("HOST CRASH")
        for process in self.processes:
            if not process.immune:
                process.kill()
        if self.on_host_crash is not None:
            self.on_host_crash()
        raise Killed
