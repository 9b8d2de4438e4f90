"""Scenario ``publishers``: the fence and the publishing primitive alone, without rows and schemas.

Ten times faster than whole transactions, so that rare interleavings of the handshake come up.
"""

from __future__ import annotations

from mainstem.api.real_seams import fence_of, needs_no_lock
from mainstem.errors import LeaseLost, LockUnavailable, OutcomeUnknown, Unavailable
from mainstem.publish.publisher import Publisher
from mainstem.readers.planning import table_state
from mainstem.storage import paths
from mainstem.storage.links import has_links, links
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import encode_commit
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from tests.sim.simulation import Simulation
from tests.sim.world import INTERRUPTS, Process, Violation


class Publishers(Simulation):
    """Three to five processes, each requesting and completing instants without content."""

    scenario = "publishers"

    def build(self) -> None:
        for folder in paths.INITIAL_FOLDERS:
            self.disk.make_folders(folder)
        for folder in list(self.disk.folders):
            self.disk.sync_folder(folder)
        self.left = {f"p{n}": 6 for n in range(self.random.choice([2, 3, 3, 5]))}
        for name in self.left:
            self.start(name, self._body)
        self.after = ""
        if self.random.random() < 0.5 or self.world.faults.torn_listing > 0.5:
            self.start("reader", self._reader, counted=False)

    def _body(self, process: Process) -> None:
        seams = self.seams(process)
        fence, lock_free = fence_of(seams, None, exclusive=True), needs_no_lock(seams)
        publisher = Publisher(
            seams, InstantTimes(), fence, skew=ClockSkew(200), exclusive=True, lock_free=lock_free
        )
        while self.left[process.name] > 0:
            self.left[process.name] -= 1
            try:
                self._commit(seams, publisher)
                self.world.counts.commits += 1
            except (LeaseLost, LockUnavailable, Unavailable, OutcomeUnknown, OSError):
                self.world.counts.refused += 1
            except INTERRUPTS as error:
                self.interrupted(error)

    def _commit(self, seams: Seams, publisher: Publisher) -> None:
        storage = seams.storage
        beats = Heartbeats(storage, seams.clock, 60_000, 2)
        instant = publisher.begin("deltacommit", beats).time
        prepared = f"{paths.OWN}/prepared-{instant}"
        content = encode_commit([], {}, "UPSERT")
        inflight = paths.timeline_file(f"{instant}.deltacommit.inflight")
        storage.put_new(prepared, content, durable=True)
        if has_links(storage):
            links(storage).link(prepared, inflight)
        else:
            storage.put_new(inflight, content, durable=True)
        self.world.sleep(self.random.random() ** 2 * 100)
        publisher.publish(lambda time: f"{instant}_{time}.deltacommit", prepared=prepared, carries=True)
        storage.delete(prepared)

    def _reader(self, process: Process) -> None:
        """Reads windows of completion times one behind the other, as an incremental query does."""
        storage = self.seams(process).storage
        while self.running > 0:
            try:
                self._window(storage)
            except OSError:
                self.world.counts.refused += 1
            self.pause_between(process, 50)

    def _window(self, storage: Storage) -> None:
        after, crashes = self.after, self.world.counts.host_crashes
        found = [i for i in table_state.steady_timeline(storage).completed if (i.completion or "") > after]
        shown = sorted(i.requested for i in found)
        until = max((i.completion or "" for i in found), default=after)  # it goes on from there
        if crashes != self.world.counts.host_crashes:
            return
        meant = sorted(p.requested for p in self.watch.published if after < p.completion <= until)
        if shown != meant:
            raise Violation("windows", f"({after}, {until}] shows {shown}, expected {meant}")
        self.world.counts.reads += 1
        self.after = until

    def _host_crashed(self) -> None:
        super()._host_crashed()
        self.after = ""  # a reader's position was on the same machine

    def settle(self) -> None:
        self.finish("publishers")
