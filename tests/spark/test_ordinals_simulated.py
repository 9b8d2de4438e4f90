"""Goal: drivers that share a register count right under crashes, pauses, torn listings and I/O errors.

Method: the production code in the simulated world. Every driver writes one batch several times; a
driver that dies starts again as a new run. In every run the n-th write must get ordinal n - 1, and no
acknowledged entry may disappear from the register. A seeded bug must be found.
"""

from __future__ import annotations

import pytest

from mainstem.errors import Unavailable
from mainstem.writers import write_ordinals
from mainstem.writers.write_ordinals import StreamWrite, allocate, finish, stream_folder
from tests.sim.sim_storage import Disk, SimStorage
from tests.sim.world import Faults, Process, Violation, World

WRITES = 4
DRIVERS = 3
RUNS_MAX = 10
FAULTS = Faults(
    crash=0.004, pause=0.02, pause_ms_max=2_000.0, error_before=0.004, error_after=0.004,
    torn_listing=0.3, slow=0.02,
)  # fmt: skip


class Drivers:
    """Three drivers on one checkpoint; each is started again when it dies."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, FAULTS)
        self.storage = SimStorage(self.world, Disk(self.world), "/t")
        self.acknowledged: list[tuple[str, int]] = []  # (write, ordinal)
        self.finished = 0
        self.runs = 0
        for number in range(DRIVERS):
            self._start(number)

    def _start(self, number: int) -> None:
        run = f"driver-{number}-run-{self.runs}"
        self.runs += 1
        process = self.world.process(run)
        if self.runs <= RUNS_MAX:
            process.on_death = lambda: self._start(number)
        else:
            process.immune = True
        self.world.spawn(process, run, lambda: self._write(process, run))

    def _write(self, process: Process, run: str) -> None:
        for position in range(WRITES):
            what = StreamWrite("chk", "query", 0, run, f"{run}/{position}")
            found = self._insist(lambda w=what: allocate(self.storage, process.random, w))
            if found != position:
                raise Violation("ordinals", f"write {position} of {run} got {found}")
            self.acknowledged.append((what.write, found))
            self._insist(lambda w=what: finish(self.storage, process.random, w, ok=True))
        self.finished += 1

    @staticmethod
    def _insist(call):  # type: ignore[no-untyped-def]
        while True:
            try:
                return call()
            except Unavailable:
                continue

    def run(self) -> Violation | None:
        done = self.world.run(lambda: self.finished >= DRIVERS, ms=600_000, calls=60_000)
        self.world.close()
        if self.world.failure is not None:
            return self.world.failure
        assert done, "the drivers did not come to an end"
        return self._lost()

    def _lost(self) -> Violation | None:
        disk = self.storage.disk
        folder = f"/t/{stream_folder('chk')}".lstrip("/")
        names = disk.folders.get(folder) or disk.folders[stream_folder("chk")]
        newest = max((n for n in names if n.startswith("state-")), key=lambda n: int(n[6:]))
        inode = names[newest]
        assert inode is not None
        text = bytes(inode.data).decode()
        lost = [write for write, _ in self.acknowledged if f'"{write}"' not in text]
        return Violation("register", f"acknowledged and gone: {lost}") if lost else None


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_every_run_counts_from_0_and_nothing_acknowledged_is_lost(first: int) -> None:
    for seed in range(first, first + 50):
        violation = Drivers(seed).run()
        assert violation is None, f"seed {seed}: {violation}"


def _never_swept(register: write_ordinals._Register, newest: int, own: str) -> None:
    """A sweep that leaves the tickets of others: a stopped maker goes on where it was."""
    for number in sorted(register._versions(register._storage.names(register._folder))):
        if number < newest - 1:
            register._storage.delete(register._path(number))


def test_the_world_finds_a_register_that_builds_on_swept_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_ordinals._Register, "_sweep", _never_swept)
    for seed in range(1_000):
        if Drivers(seed).run() is not None:
            return
    pytest.fail("1,000 seeds did not find the bug")
