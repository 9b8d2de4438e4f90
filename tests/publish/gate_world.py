"""Writers, a rollback and an archiver that publish through the gate, over a store with late requests.

No lock keeps them apart: whatever order there is, the gate makes. ``GateWorld.check`` says what was promised
and not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mainstem.errors import (
    LeaseLost,
    LockUnavailable,
    OutcomeUnknown,
    RolledBack,
    Unavailable,
)
from mainstem.formats.avro_container import OUR_MARK
from mainstem.publish.gate_fence import GateFence
from mainstem.publish.publisher import Ahead, Guarded, Publisher, Section
from mainstem.storage import paths
from mainstem.timeline.active import ActiveTimeline
from mainstem.timeline.instant import parse_instant
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes
from mainstem.truetime.seams import Seams
from tests.publish.late_store import LateStore, Objects
from tests.sim.sim_clock import SimClock
from tests.sim.world import Faults, Process, World

ARCHIVE = ".hoodie/archive"
OK, FAILED, UNKNOWN = "ok", "failed", "unknown"
#: what a process is told in this world; any other error is a finding
REFUSED = (LeaseLost, LockUnavailable, Unavailable, OutcomeUnknown, OSError, KeyboardInterrupt)


class FreeLease:
    def check(self) -> None: ...

    def release(self) -> None: ...


class FreeLock:
    """A lock that everybody has at once."""

    identity = "free"

    def acquire(self) -> FreeLease:
        return FreeLease()


@dataclass
class GateWorld:
    """``faults`` of processes; of requests see ``Objects``. ``metadata``: commits have two files;
    ``clears``: decisions leave the gate once they are put; ``lock_free``: as on a table that only mainstem
    writes, where commits take along what others have decided."""

    seed: int
    metadata: bool = False
    clears: bool = False
    lock_free: bool = False
    size: int = 10
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.world = World(self.seed, self.faults)
        self.objects = Objects(self.world)
        self.objects.watch = self._changed
        self.storage: Any = LateStore(self.objects)
        for path in (paths.PROPERTIES, f"{paths.HISTORY}/_version_"):
            self.storage.put(path, b"", durable=True)
        self.told: dict[str, str] = {}  # instant -> what its writer was told last
        self.shown: dict[str, list[str]] = {}  # instant -> completed files that ever appeared
        self.ahead: set[str] = set()  # instants that the metadata table showed as completed
        self.planned: set[str] = set()  # instants against which a rollback's plan is visible
        self.came_back: list[str] = []  # completed files that appeared again after they were archived
        self.newest = ""
        self.broken: list[str] = []
        self.running = 0

    # -- actors ------------------------------------------------------------------------------------

    def start(self, name: str, body: Callable[[Process, Publisher, Seams], None]) -> None:
        process = self.world.process(name)
        storage: Any = LateStore(self.objects)
        seams = Seams(storage, SimClock(self.world, process), FreeLock(), process.random)
        publisher = Publisher(
            seams,
            InstantTimes(),
            GateFence(storage, seams.clock, seams.random, clears=self.clears),
            skew=ClockSkew(0),
            exclusive=self.lock_free,
            lock_free=self.lock_free,
        )
        self.running += 1

        def ended() -> None:
            self.running -= 1

        def run() -> None:
            try:
                body(process, publisher, seams)
            finally:
                process.on_death = None
                ended()

        self.world.spawn(process, name, run)

    def writer(self, commits: int) -> Callable[[Process, Publisher, Seams], None]:
        def body(process: Process, publisher: Publisher, seams: Seams) -> None:
            for _ in range(commits):
                self._commit(publisher, seams)
                self.world.sleep(self.world.random.random() * 50)

        return body

    def _commit(self, publisher: Publisher, seams: Seams) -> None:
        storage = seams.storage
        try:
            instant = publisher.begin("deltacommit", Heartbeats(storage, seams.clock, 60_000, 2)).time
        except REFUSED:
            return
        self.told[instant] = UNKNOWN
        prepared = paths.prepared(instant, f"{seams.random.getrandbits(64):016x}")
        ahead = None
        try:
            inflight = paths.timeline_file(f"{instant}.deltacommit.inflight")
            storage.put_new(inflight, OUR_MARK.encode(), durable=False)
            storage.put_new(prepared, self._content(instant), durable=True)
            if self.metadata:
                storage.put_new(f"{prepared}a", b"ahead" + instant.encode(), durable=True)
                ahead = Ahead(
                    (), f"{prepared}a", lambda time: f"{instant}_{time}.deltacommit", lambda _: True
                )
            publisher.publish(
                lambda time: f"{instant}_{time}.deltacommit",
                prepared=prepared,
                ahead=ahead,
                decide=lambda section: self._decide(storage, section, instant),
                carries=not self.metadata,
            )
            self._tell(instant, OK)
        except (OutcomeUnknown, KeyboardInterrupt):
            pass
        except (*REFUSED, RolledBack):
            self._tell(instant, FAILED)

    def _content(self, instant: str) -> bytes:
        return OUR_MARK.encode() + instant.encode() * self.size

    def _decide(self, storage: Any, section: Section, instant: str) -> str | None:
        completed = section.timeline.completion_times
        if instant in completed or any(n.startswith(f"{instant}_") for n in storage.names(ARCHIVE)):
            return "done"
        if instant in self._plans(storage, section.timeline):
            raise RolledBack("a rollback is planned")
        return None

    @staticmethod
    def _plans(storage: Any, timeline: ActiveTimeline) -> set[str]:
        plans = [n for n in timeline.names if n.endswith(".rollback.requested")]
        return {storage.read(paths.timeline_file(n), max_bytes=100).decode()[:17] for n in sorted(plans)}

    def rollbacks(self, process: Process, publisher: Publisher, seams: Seams) -> None:
        """Takes back whatever is pending and was not planned yet, dead or alive."""
        storage = seams.storage
        for _ in range(4):
            self.world.sleep(self.world.random.random() * 300)
            try:
                timeline = publisher.timeline()
                plans = self._plans(storage, timeline)
                for pending in [i.requested for i in timeline.pending if i.action == "deltacommit"]:
                    if pending in plans:
                        continue

                    def gone(section: Section, pending: str = pending) -> str | None:
                        section.store_now_ms()
                        seen = section.timeline.completion_times
                        archived = any(n.startswith(f"{pending}_") for n in storage.names(ARCHIVE))
                        planned = pending in self._plans(storage, section.timeline)
                        return "gone" if pending in seen or archived or planned else None

                    prepared = paths.prepared(pending, f"{seams.random.getrandbits(64):016x}")
                    storage.put_new(prepared, f"{pending} {OUR_MARK}".encode(), durable=True)
                    publisher.publish(
                        lambda time: f"{time}.rollback.requested", prepared=prepared, decide=gone
                    )
            except REFUSED:
                continue

    def archiver(self, process: Process, publisher: Publisher, seams: Seams) -> None:
        """Archives all that is completed, at once: no rest of 30 minutes."""
        storage = seams.storage

        def move(section: Guarded) -> None:
            done = [i.file_name for i in section.timeline.completed if i.action == "deltacommit"]
            for name in done:
                data = storage.read(paths.timeline_file(name), max_bytes=10**7)
                storage.put(f"{ARCHIVE}/{name}", data, durable=True)
            section.check()
            for name in done:
                for state in ("inflight", "requested"):
                    storage.delete(paths.timeline_file(f"{name.partition('_')[0]}.deltacommit.{state}"))
                storage.delete(paths.timeline_file(name))

        for _ in range(3):
            self.world.sleep(self.world.random.random() * 400)
            try:
                publisher.guarded(move)
            except REFUSED:
                continue

    # -- watching ----------------------------------------------------------------------------------

    def _tell(self, instant: str, outcome: str) -> None:
        self.told[instant] = outcome
        shown = self.shown.get(instant, [])
        if outcome == OK and not shown:
            self.broken.append(f"{instant}: told ok, and it is not shown")
        if outcome == FAILED and shown:
            self.broken.append(f"{instant}: told failed, and it is shown")

    def _changed(self, event: str, path: str) -> None:
        folder, _, name = path.rpartition("/")
        instant = parse_instant(name)
        if event == "deleted" or instant is None:
            return
        if folder == paths.METADATA_TIMELINE and instant.completion is not None:
            self.ahead.add(instant.requested)
        if folder != paths.TIMELINE:
            return
        if event == "replaced":
            self.broken.append(f"{name} was replaced")
        if instant.action == "rollback":
            self.planned.add(self.objects.data[path][0].decode()[:17])
        elif instant.completion is not None:
            self._shown(instant.requested, instant.completion, name)

    def _shown(self, requested: str, completion: str, name: str) -> None:
        files = self.shown.setdefault(requested, [])
        if name in files:
            self.came_back.append(name)  # with the same bytes: it counts once
            return
        files.append(name)
        if len(files) > 1:
            self.broken.append(f"{requested} was completed twice: {files}")
        if completion <= self.newest:
            self.broken.append(f"{name} became visible after {self.newest}")
        if self.told.get(requested) == FAILED:
            self.broken.append(f"{requested}: told failed, and it is shown later")
        if requested in self.planned:
            self.broken.append(f"{requested} was completed although its rollback was planned")
        if self.metadata and requested not in self.ahead:
            self.broken.append(f"{requested}: data without metadata")
        self.newest = max(self.newest, completion)

    # -- running -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Until nobody runs, nothing travels and what was decided is carried out."""
        over = self.world.run(
            lambda: self.running == 0 and self.objects.travelling == 0, ms=10**9, calls=100_000
        )
        if self.world.failure is not None:
            raise self.world.failure
        assert over, "it did not end"
        GateFence(self.storage, SimClock(self.world, self.world.process("last")), self.world.random).settle()
        self.world.close()

    def check(self) -> None:
        """Raises ``AssertionError`` for a broken promise."""
        for instant, outcome in self.told.items():
            here = [n for n in self.storage.names(paths.TIMELINE) if n.startswith(f"{instant}_")]
            there = [n for n in self.storage.names(ARCHIVE) if n.startswith(f"{instant}_")]
            counted = len({*here, *there})
            if outcome == OK and counted != 1:
                self.broken.append(f"{instant}: told ok, and it counts {counted} times in the end")
            if outcome == FAILED and counted:
                self.broken.append(f"{instant}: told failed, and it counts in the end")
            for name in {*here, *there}:
                held = [
                    p for p in (f"{paths.TIMELINE}/{name}", f"{ARCHIVE}/{name}") if p in self.objects.data
                ]
                if any(self.objects.data[p][0] != self._content(instant) for p in held):
                    self.broken.append(f"{name} has other bytes")
        assert not self.broken, f"seed {self.seed}: {self.broken[:5]}"
