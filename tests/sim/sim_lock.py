"""The table lock of the simulated world: a lease service that may take a lease away at any point.

A lease is lost when its process is stopped for longer than the session, when the service expires it
for no reason, or when an operator removes it by hand. The loser hears of it when it asks, and with
``late_notice`` even then not at once (measured with ZooKeeper: the flag never fell).
"""

from __future__ import annotations

from mainstem.errors import LeaseLost, LockUnavailable
from tests.sim.world import Process, World


class SimLease:
    """``Lease`` of one acquisition."""

    def __init__(self, service: LockService, process: Process, number: int) -> None:
        self._service = service
        self.process = process
        self.number = number
        self.expires_at: float | None = None  # a fault: the service forgets it at this time
        self.lost_at: float | None = None
        self.abandoned_at: float | None = None  # its holder was interrupted while it gave it back
        self.believed_until = 0.0

    def check(self) -> None:
        world = self._service.world
        if world.point("lease.check", str(self.number)) and world.interrupted():
            world.strike()
        if self._service.holder is self:
            return
        if world.now < self.believed_until:
            return  # the client library has not heard of it yet
        raise LeaseLost("the table lock is held by somebody else now; begin the attempt again")

    def release(self) -> None:
        world = self._service.world
        self.abandoned_at = world.now
        strikes = world.point("lease.release", str(self.number))
        if self._service.holder is self:
            self._service.holder = None
        if strikes:
            world.strike()


class LockService:
    """Who holds the lock."""

    def __init__(self, world: World, session_ms: float) -> None:
        self.world = world
        self.session_ms = session_ms
        self.holder: SimLease | None = None
        self._number = 0

    def take(self, process: Process) -> SimLease | None:
        if self.holder is not None and not self._expired(self.holder):
            return None
        if self.holder is not None:
            self.lose("expired")
        self._number += 1
        lease = SimLease(self, process, self._number)
        faults, rng = self.world.faults, self.world.random
        if faults.lease_loss and not process.immune and rng.random() < faults.lease_loss:
            lease.expires_at = self.world.now + rng.random() ** 3 * self.session_ms
        self.holder = lease
        return lease

    def lose(self, why: str) -> None:
        """Take the lock from its holder."""
        lease = self.holder
        if lease is None:
            return
        faults, rng = self.world.faults, self.world.random
        lease.lost_at = self.world.now
        if rng.random() < faults.late_notice:
            lease.believed_until = self.world.now + rng.random() * 5 * self.session_ms
        if not lease.process.dead:
            self.world.counts.lease_losses += 1
        self.world.note(f"lease {lease.number} of {lease.process.name} lost: {why}")
        self.holder = None

    def _expired(self, lease: SimLease) -> bool:
        process, now = lease.process, self.world.now
        if process.dead:
            return now - process.died_at > self.session_ms
        if process.stopped_for() > self.session_ms:
            return True
        if lease.abandoned_at is not None and now - lease.abandoned_at > self.session_ms:
            return True
        return lease.expires_at is not None and now >= lease.expires_at


class SimLock:
    """``LockProvider`` of one process."""

    identity = "simulated"

    def __init__(
        self, service: LockService, process: Process, wait_ms: float = 60_000, identity: str = identity
    ) -> None:
        self.identity = identity
        self._service = service
        self._process = process
        self._wait_ms = wait_ms

    def acquire(self) -> SimLease:
        world = self._service.world
        deadline = world.now + self._wait_ms
        while True:
            strikes = world.point("lock.acquire", "")
            lease = self._service.take(self._process)
            if strikes:
                if lease is not None and world.interrupted():
                    lease.abandoned_at = world.now  # nobody renews it
                world.strike()
            if lease is not None:
                return lease
            if world.now > deadline:
                raise LockUnavailable("the table lock was not free in time; try again later")
            world.sleep(world.random.uniform(0.5, 40))
