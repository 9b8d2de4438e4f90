"""Scenario ``together``: threads of one process share critical sections (``publish.shared_section``).

Scenario ``publishers`` with several actors in each process that have one publisher. Beside its rules: what a
thread was told holds. A commit that was told is there in the end, also after crashes of the machine; one that
was refused is not; and if a thread was interrupted, nobody commits on its behalf once it has unwound.
"""

from __future__ import annotations

from mainstem.api.real_seams import fence_of
from mainstem.errors import LeaseLost, LockUnavailable, OutcomeUnknown, Unavailable
from mainstem.publish.publisher import Publisher
from mainstem.storage import paths
from mainstem.storage.links import links
from mainstem.timeline.commit_metadata import encode_commit
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from tests.sim.publishers import Publishers
from tests.sim.world import INTERRUPTS, Process, Violation

_THREADS = 4


class Together(Publishers):
    """Two or three processes of four threads each."""

    scenario = "together"

    def build(self) -> None:
        #: instants of commits that were told, and of those that must not be there
        self.told: set[str] = set()
        self.refused: set[str] = set()
        super().build()
        self.left = {name: 4 * count for name, count in self.left.items()}

    def _body(self, process: Process) -> None:
        seams = self.seams(process)
        publisher = Publisher(
            seams, InstantTimes(), fence_of(seams, None, exclusive=True), skew=ClockSkew(200), exclusive=True
        )
        going = [_THREADS]

        def thread() -> None:
            while self.left[process.name] > 0:
                self.left[process.name] -= 1
                self._one(seams, publisher)
            going[0] -= 1

        for number in range(1, _THREADS):
            self.world.spawn(process, f"{process.name}/{number}", thread)
        thread()
        while going[0]:
            self.world.sleep(10)

    def _one(self, seams: Seams, publisher: Publisher) -> None:
        began: list[str] = []
        try:
            self._tell(seams, publisher, began)
            self.world.counts.commits += 1
        except (LeaseLost, LockUnavailable, Unavailable):
            self.world.counts.refused += 1
            self.refused.update(began)
        except (OutcomeUnknown, OSError):
            self.world.counts.refused += 1
        except INTERRUPTS as error:
            self.refused |= set(began) - {one.requested for one in self.watch.published}
            self.interrupted(error)

    def _tell(self, seams: Seams, publisher: Publisher, began: list[str]) -> None:
        storage = seams.storage
        instant = publisher.begin("deltacommit", Heartbeats(storage, seams.clock, 60_000, 2)).time
        prepared = f"{paths.OWN}/prepared-{instant}"
        content = encode_commit([], {}, "UPSERT")
        storage.put_new(prepared, content, durable=True)
        links(storage).link(prepared, paths.timeline_file(f"{instant}.deltacommit.inflight"))
        self.world.sleep(self.random.random() ** 3 * 60)
        began.append(instant)
        publisher.publish(lambda time: f"{instant}_{time}.deltacommit", prepared=prepared, carries=True)
        self.told.add(instant)
        began.clear()
        storage.delete(prepared)

    def settle(self) -> None:
        super().settle()
        shown = [one.requested for one in self.watch.published]
        if lost := self.told - set(shown):
            raise Violation("told", f"{sorted(lost)} were told as committed and are not there")
        if late := self.refused & set(shown):
            raise Violation("told", f"{sorted(late)} were refused or interrupted, and committed later")
        if len(shown) != len(set(shown)):
            raise Violation("told", f"an instant is completed twice: {sorted(shown)}")
