"""A process's clock in the simulated world: skewed, sometimes jumping; sleeping costs no real time."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.world import Process, World


class SimPeriodic:
    """A periodic task as an actor of its own: it may run late, or be caught in the middle by stop."""

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class SimClock:
    """``Clock`` of one process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def now_ms(self) -> int:
        strikes = self._world.point("clock.now", "")
        faults, rng = self._world.faults, self._world.random
        if faults.clock_jump and not self._process.immune and rng.random() < faults.clock_jump:
            self._process.skew_ms = rng.uniform(-faults.skew_ms, faults.skew_ms)
        self._struck(strikes)
        return int(self._world.now + self._process.skew_ms)

    def monotonic_ms(self) -> float:
        self._struck(self._world.point("clock.monotonic", ""))
        return self._world.now

    def sleep_ms(self, duration_ms: float) -> None:
        strikes = self._world.point("clock.sleep", f"{duration_ms:.3f}")
        self._world.sleep(duration_ms)
        self._struck(strikes)

    def _struck(self, strikes: bool) -> None:
        if strikes and self._world.interrupted():
            self._world.strike()  # interrupted; where it would be killed, the next call does that

    def every_ms(self, interval_ms: float, task: Callable[[], None], name: str) -> SimPeriodic:
        world, periodic = self._world, SimPeriodic()

        def body() -> None:
            while not periodic.stopped:
                late = 0.0
                if world.faults.starve and world.random.random() < world.faults.starve:
                    late = interval_ms * world.random.uniform(0, 6)
                world.sleep(interval_ms + late)
                if periodic.stopped:
                    return
                world.point("periodic", name)
                task()

        world.spawn(self._process, f"{self._process.name}/{name}", body).periodic = True
        return periodic
