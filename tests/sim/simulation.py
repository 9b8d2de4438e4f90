"""One simulated run: what every scenario shares, and the result that a seed gives."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from mainstem.errors import Invalid, LeaseLost, LockUnavailable, MainstemError, Unavailable
from mainstem.publish import gate_fence
from mainstem.publish.gate import INLINE_BYTES_MAX
from mainstem.storage.private_files import PrivateFiles
from mainstem.truetime.locks.storage_record import LOCK_PATH
from mainstem.truetime.seams import Seams
from tests.sim.checkers import Watch
from tests.sim.sim_clock import SimClock
from tests.sim.sim_lock import LockService, SimLock
from tests.sim.sim_storage import Disk, SimStorage
from tests.sim.sim_store import Bucket, SimStore, drawn_bucket
from tests.sim.world import INTERRUPTS, Counts, Faults, Process, Violation, World, is_interrupt

# Two runs in one interpreter must not meet in a cache that is keyed by the table's path.
_bases = itertools.count()

#: what the table lies on: a local disk, or an object store
BODIES = ("disk", "store")

#: errors that a public call may end with while faults are about
EXPECTED = (LeaseLost, LockUnavailable, Unavailable)


@dataclass
class Result:
    """What one seed gave. ``failure`` None is a good run."""

    seed: int
    scenario: str
    counts: Counts
    trace: str
    failure: Violation | None
    story: list[str] = field(default_factory=list)
    body: str = "disk"


class Simulation:
    """A world with one disk or store, one lock, processes that are restarted, and a watch on the disk.

    ``body``: one of ``BODIES``. Where it is a store, ``disk`` is what lies in it.
    """

    scenario = "?"
    fenced = True

    def __init__(
        self, seed: int, *, faults: Faults | None = None, log: bool = False, body: str = "disk"
    ) -> None:
        rng = random.Random(f"{self.scenario}/{seed}")
        self.session_ms = rng.choice([500, 2000, 6000])
        given = None if faults is None else replace(faults)
        self.manners = random.Random(f"manners of {self.scenario}/{seed}")
        deaths = random.Random(f"deaths of {self.scenario}/{seed}")
        drawn = given or Faults.drawn(rng, self.session_ms).with_manners(self.manners, seed).with_deaths(
            deaths, seed
        )
        if body == "store" and given is None:
            drawn = drawn.on_a_store(random.Random(f"store of {self.scenario}/{seed}"))
        self.body = body
        #: of some stores' tables the lock lies in the table: writers of an exclusive one do without it.
        #: Whoever
        #: declares a table exclusive that another engine writes has no order between the two until it is seen
        lies_in_table = body == "store" and self.fenced and random.Random(f"lock of {seed}").random() < 0.6
        self.lock_identity = f"storage:{LOCK_PATH}" if lies_in_table else SimLock.identity
        #: how much of a decision lies in a store's gate: in some seeds so little that contents lie beside it
        self.inline_bytes = random.Random(f"gate of {seed}").choice([INLINE_BYTES_MAX, INLINE_BYTES_MAX, 400])
        self.world = World(rng.getrandbits(64), drawn)
        self.log_bytes_max = drawn.log_bytes_max
        self.seed = seed
        if log:
            self.world.log = []
        self.random = self.world.random
        if body == "disk":
            self.disk = Disk(self.world)
        else:
            self.disk = drawn_bucket(self.world, f"{self.scenario}/{seed}")
        self.base = f"/simulated/{next(_bases)}"
        self.lock = LockService(self.world, self.session_ms)
        self.watch = Watch(self.world, self.disk, fenced=self.fenced)
        self.world.on_host_crash = self._host_crashed
        self.running = 0
        self.calm = False
        #: processes in the middle of nothing
        self.idle: set[Process] = set()

    # -- processes --------------------------------------------------------------------------------

    def seams(self, process: Process) -> Seams:
        """The four seams of one process."""
        return Seams(
            self.storage(),
            SimClock(self.world, process),
            SimLock(self.lock, process, identity=self.lock_identity),
            process.random,
        )

    def storage(self) -> SimStorage | PrivateFiles:
        """The table's storage, as one process opens it; the running actor decides whose call it is."""
        if isinstance(self.disk, Bucket):
            return PrivateFiles(SimStore(self.world, self.disk, self.base))
        return SimStorage(self.world, self.disk, self.base)

    def start(
        self, name: str, body: Callable[[Process], None], *, counted: bool = True, immune: bool = False
    ) -> Process:
        """Start a process; when it is killed, an heir with the same work starts a little later.

        ``counted``: the run goes on until it has finished.
        """
        process = self.world.process(name)
        process.immune = immune
        process.speed = self.random.choice([1.0, 1.0, 1.0, 3.0, 0.3])
        self.running += counted

        def died() -> None:
            self.running -= counted
            delay = self.random.choice([1.0, 100.0, 2 * self.session_ms]) * self.random.random()
            if self.world.faults.restart_ms_max:
                delay += self.world.deaths.random() * self.world.faults.restart_ms_max
            self.running += counted  # it is owed
            self.world.after(delay, again)

        def again() -> None:
            self.running -= counted
            self.start(name, body, counted=counted, immune=immune)

        def main() -> None:
            while True:
                try:
                    body(process)
                    break
                except INTERRUPTS as error:
                    self.interrupted(error)  # whoever sits before it starts the same work again
            process.on_death = None  # it lives on, with its periodic tasks
            self.running -= counted

        process.on_death = died
        self.world.spawn(process, name, main)
        return process

    def interrupted(self, error: BaseException) -> None:
        """An interrupt has unwound the work of the running actor: its process goes on, or dies after all."""
        if not is_interrupt(error):
            raise error
        self.world.counts.refused += 1
        if self.manners.random() < 0.3:
            self.world.die()

    def _host_crashed(self) -> None:
        self.disk.crash()
        if self.body == "disk":  # a store keeps what was put
            self.watch.host_crashed()

    def pause_between(self, process: Process, longest_ms: float) -> None:
        """Let the actor do nothing for a while."""
        self.world.point("idle", process.name)
        self.idle.add(process)
        self.world.sleep(self.random.random() ** 2 * longest_ms)
        self.idle.discard(process)

    # -- the run ----------------------------------------------------------------------------------

    def run(self) -> Result:
        """Build, run under faults, let the faults end, settle, audit."""
        with patch.object(gate_fence, "INLINE_BYTES_MAX", self.inline_bytes):
            return self._run()

    def _run(self) -> Result:
        world = self.world
        try:
            self.build()
            world.run(lambda: self.running == 0, ms=self.busy_ms, calls=self.busy_calls)
            self._calm()
            if world.failure is None:
                self.settle()
        except Violation as violation:
            world.fail(violation)
        finally:
            world.close()
        return Result(
            self.seed,
            self.scenario,
            world.counts,
            world.trace_hash(),
            world.failure,
            list(world.log if world.log is not None else world.recent),
            self.body,
        )

    busy_ms = 600_000.0
    busy_calls = 4000
    settle_calls = 20_000

    def _calm(self) -> None:
        """No more faults: clocks stay skewed, the dead are restarted, leases are kept, nothing travels."""
        self.calm = True
        self.world.faults = Faults(skew_ms=self.world.faults.skew_ms)
        if isinstance(self.disk, Bucket):
            self.disk.arrive()
        if self.lock.holder is not None:
            self.lock.holder.expires_at = None
        self.world.note("faults off")

    def finish(self, what: str) -> None:
        """Run until everybody is done; not getting there is a violation of its own."""
        done = self.world.run(
            lambda: self.running == 0, ms=3_600_000.0, calls=self.settle_calls
        )
        if not done and self.world.failure is None:
            raise Violation("liveness", f"{what}: not finished although all faults ended")

    def build(self) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        raise NotImplementedError


def refused(error: MainstemError) -> bool:
    """Whether an error is one that faults may cause, by its class."""
    return isinstance(error, (*EXPECTED, Invalid))
