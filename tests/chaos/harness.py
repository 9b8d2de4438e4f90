"""A run: starts everybody, deals faults for a time, lets everybody finish."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import mainstem
from mainstem.options.locks import EXPLICIT
from tests.chaos.actors import (
    Actor,
    Place,
    changer,
    flink_writer,
    indexer,
    python_writer,
    reader,
    service,
    spark_writer,
)
from tests.chaos.bucket import Bucket, BucketObserver
from tests.chaos.faults import Deal, pack
from tests.chaos.rows import SCHEMA
from tests.multiprocess import table_files
from tests.multiprocess.test_writer_processes import Observer
from tests.servers.zookeeper_ensemble import SERVERS, ZooKeeperEnsemble

LOCK = "/hudi/locks/t"
PYTHON = ("python-0", "python-1")
SPARK = ("spark-0", "spark-1")
FLINK = ("flink-0", "flink-1")
SERVICES = ("compact", "clean", "archive")
INDEXERS = ("indexer-0", "indexer-1", "dropper")
READERS = ("reader-0",)
CHANGERS = ("editor-0", "editor-1", "clusterer", "resizer")
#: what tells where keys are; a table of the second has no buckets
KINDS = ("BUCKET", "SIMPLE")
_LOOK_S = 0.05
_ANSWER_S = 0.5
_START_S = 600.0
_FINISH_S = 600.0
# A process that was hurt is left alone for so long, and a writer until it has committed so many batches.
_REST_S = 2.0
_REST_BATCHES = 2
# ... who left something behind in a store: ten times a heartbeat's time, and a bit.
_DEAD_S = 24.0


class Trouble:
    """Trouble with one service: one at a time, and then some time for everybody to work."""

    def __init__(self, run: Harness, serves: Callable[[], bool]) -> None:
        self._run, self._serves = run, serves
        self.there = False
        self._rests_until = 0.0

    @property
    def may_begin(self) -> bool:
        """Nothing is wrong, and everybody had time to work."""
        return not self.there and time.monotonic() > self._rests_until

    def begin(self) -> None:
        """Something is done to the service now."""
        self.there = True

    def end_when_it_serves(self) -> None:
        """What was done is undone: the trouble is over as soon as the service serves again."""
        if self._serves():
            self.there = False
            self._rests_until = time.monotonic() + self._run.session_s
        else:
            self._run.later(0.2, self.end_when_it_serves)


@dataclass(frozen=True)
class Contender:
    """A node of the lock's queue."""

    session: int
    pid: int | None


class Harness:
    """One run in ``folder``. ``session_s``: how long a writer's ZooKeeper session outlives its silence."""

    def __init__(
        self, ensemble: ZooKeeperEnsemble | None, folder: Path, *, seed: int, session_s: float,
        writers: Sequence[str], services: Sequence[str] = SERVICES, sabotage: Mapping[str, str] | None = None,
        indexers: Sequence[str] = (), readers: Sequence[str] = (), bucket: Bucket | None = None,
        changers: Sequence[str] = (), index: str = KINDS[0],
    ) -> None:  # fmt: skip
        self.index = index
        left_out = set() if index == "BUCKET" else {"resizer"}
        self.changers = tuple(name for name in changers if name not in left_out)
        self.ensemble, self.session_s, self.bucket = ensemble, session_s, bucket
        self.place = Place(folder, None if bucket is None else bucket.url)
        self.seed, self.sabotage = seed, dict(sabotage or {})
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.overtaken = 0
        self.ensemble_trouble = Trouble(self, self._ensemble_serves)
        self.store_trouble = Trouble(self, lambda: bucket is None or bucket.serves())
        self.frozen: set[str] = set()
        self.slowest_stall_s = self.slowest_whole_s = 0.0
        self._since_commit: float | None = None
        self._since_whole = time.monotonic()
        self._watched = self._ending = False
        self._rests: dict[str, tuple[float, int]] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._look_at = None if ensemble is None else ensemble.client()
        if self._look_at is not None:
            self._look_at.start(timeout=30)
        self.lock = f"{LOCK}-{folder.name}"
        self.indexers, self.readers = tuple(indexers), tuple(readers)
        self._create_table()
        self.actors = self._cast(writers, services)
        self.observer = Observer(self.place.table) if bucket is None else BucketObserver(bucket)
        self.deal = Deal(pack(self), self.chance)

    def _create_table(self) -> None:
        """The table of the run, which carries its lock."""
        bucket = self.bucket
        create_table(
            self.place.url, self.ensemble, self.lock, metadata=bool(self.indexers), index=self.index,
            more={} if bucket is None else {**bucket.direct, **bucket.properties()},
        )  # fmt: skip

    def open(self) -> mainstem.Table:
        """The table, past the proxy, as who checks it opens it."""
        if self.bucket is None:
            return mainstem.open_table(self.place.table)
        return mainstem.open_table(self.place.url, {**self.writer_properties(), **self.bucket.direct})

    def files(self) -> Path:
        """A folder with the table's files as they are now."""
        if self.bucket is not None:
            self.bucket.copy(self.place.table)
        return self.place.table

    def age(self) -> None:
        """All who died are long dead afterwards."""
        if self.bucket is None:
            table_files.age(self.place.table)
        else:
            time.sleep(_DEAD_S)

    def writer_properties(self) -> dict[str, str]:
        """What every process says."""
        of_store = {} if self.bucket is None else {**self.bucket.options(), **self.bucket.writer_properties()}
        return {**writer_properties(self.session_s), **of_store}

    def _cast(self, writers: Sequence[str], services: Sequence[str]) -> list[Actor]:
        properties = self.writer_properties()
        cast = []
        for name in writers:
            if name in SPARK:
                cast.append(spark_writer(self.place, name, properties))
            elif name in FLINK:
                cast.append(flink_writer(self.place, name, properties, self.index))
            else:
                spoiled = self.sabotage.get(name, "")
                cast.append(python_writer(self.place, name, properties, spoiled))
        for number, name in enumerate(self.indexers):
            cast.append(indexer(self.place, name, properties, self.seed + number))
        for number, name in enumerate(self.changers):
            cast.append(changer(self.place, name, properties, self.seed + number))
        cast += [reader(self.place, name, properties) for name in self.readers]
        return cast + [service(self.place, name, {**properties, **SERVICE_OPTIONS}) for name in services]

    # What faults use

    def may_hurt(self, actor: Actor) -> bool:
        """It runs, and had its rest."""
        running = actor.process is not None and actor.process.poll() is None
        until_s, until_batches = self._rests.get(actor.name, (0.0, 0))
        rested = until_s <= time.monotonic() and self._batches(actor) >= until_batches
        return running and rested and actor.name not in self.frozen

    def rest(self, actor: Actor) -> None:
        """Leave it alone for some time, and a writer until it has written again."""
        self._rests[actor.name] = (
            time.monotonic() + _REST_S,
            self._batches(actor) + _REST_BATCHES * actor.is_writer,
        )

    def _batches(self, actor: Actor) -> int:
        """Batches in its journal, if it writes one."""
        journal = self.place.journal(actor.name)
        return journal.read_bytes().count(b"\n") if journal.exists() else 0

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do ``what`` in some seconds."""
        heapq.heappush(self._agenda, (time.monotonic() + seconds, next(self._numbers), what))

    def _ensemble_serves(self) -> bool:
        return self.ensemble is None or all(self.ensemble.mode(number) for number in range(SERVERS))

    def queue(self, most: int | None = None) -> list[Contender]:
        """Who stands at the lock, the holder first; nobody if ZooKeeper does not answer."""
        found: list[Contender] = []
        if self._look_at is None:
            return found
        try:
            names = self._ask("get_children_async", self.lock)
            for name in sorted(names, key=lambda name: name[-10:])[:most]:
                data, info = self._ask("get_async", f"{self.lock}/{name}")
                found.append(Contender(info.ephemeralOwner, json.loads(data).get("pid")))
        except Exception:  # gone by now, not there yet, or nobody answers
            return found
        return found

    def _ask(self, what: str, path: str):
        return getattr(self._look_at, what)(path).get(timeout=_ANSWER_S)

    def holder_of_the_lock(self) -> int | None:
        """Its process."""
        holders = self.queue(most=1)
        return holders[0].pid if holders else None

    # The run

    def run(
        self, seconds: float, *, rounds: int | None = None, pause: tuple[float, float] = (0.3, 1.5),
        least_batches: int = 0,
    ) -> None:  # fmt: skip
        """Deal faults for so long, or until so many packs are dealt; then everybody finishes. Each writer has
        written ``least_batches`` before."""
        for actor in self.actors:
            actor.start()
        self._until(self._all_have_written, "a writer does not write", _START_S)
        self._since_whole, self._watched = time.monotonic(), True
        act = time.monotonic()
        end = act + seconds
        while time.monotonic() < end:
            self._look()
            dealt = rounds is not None and self.deal.rounds >= rounds
            if rounds and dealt and not self._agenda:
                break
            if time.monotonic() >= act and not dealt:
                if name := self.deal.next(self):
                    self.done[name] += 1
                act = time.monotonic() + (self.chance.uniform(*pause) if name else _LOOK_S)
        self._watched = False
        self._until(lambda: self._all_have_written(least_batches), "too few batches are written", _FINISH_S)
        self._finish()

    def _all_have_written(self, batches: int = 1) -> bool:
        return all(self._batches(actor) >= batches for actor in self.actors if actor.is_writer)

    def _until(self, holds: Callable[[], bool], what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                logs = "\n".join(f"{a.name}: {a.tail()[-1500:]}" for a in self.actors)
                raise AssertionError(f"{what} within {seconds:.0f} s; seed {self.seed}\n{logs}")
            self._look()

    def _look(self) -> None:
        """One step of the watch: what is due, who died, what became visible."""
        while self._agenda and self._agenda[0][0] <= time.monotonic():
            heapq.heappop(self._agenda)[2]()
        for actor in self.actors:
            actor.restart_if_dead(self._may_end_with)
        before = self.observer.listings[1]
        self.observer.look()
        if self._watched:
            self._note_stall(self.observer.listings[1] - before)
        time.sleep(_LOOK_S)

    def _may_end_with(self, status: int) -> bool:
        """Writers end by themselves; a service that is told to end before it listens ends by the signal."""
        return self.place.stop.exists() and status in ((0, -signal.SIGTERM) if self._ending else (0,))

    def _note_stall(self, new: set[str]) -> None:
        """The longest time without a commit, and the longest of it while no server was in trouble."""
        now = time.monotonic()
        if new or self.ensemble_trouble.there or self.store_trouble.there:
            self._since_whole = now
        if new or self._since_commit is None:
            self._since_commit = now
        self.slowest_stall_s = max(self.slowest_stall_s, now - self._since_commit)
        self.slowest_whole_s = max(self.slowest_whole_s, now - self._since_whole)

    def _finish(self) -> None:
        """No more faults: everything is repaired, writers end behind a batch, services on a signal."""
        due = [what for _, _, what in sorted(self._agenda)]
        self._agenda.clear()
        for what in due:
            what()
        self._until(lambda: not self._agenda, "the servers do not come back", _FINISH_S)
        if self.bucket is not None:
            self.bucket.clear()
        self.place.stop.touch()
        writers = [actor for actor in self.actors if actor.is_writer]
        self._until(lambda: all(a.process.poll() == 0 for a in writers), "a writer does not end", _FINISH_S)
        self._ending = True
        services = [actor for actor in self.actors if not actor.is_writer]
        for actor in services:
            actor.signal(signal.SIGTERM)
        self._until(
            lambda: all(a.process.poll() is not None for a in services), "a service does not end", _FINISH_S
        )

    def close(self) -> None:
        """Nothing of it runs any more."""
        for actor in self.actors:
            actor.end()
        if self._look_at is not None:
            self._look_at.stop()
            self._look_at.close()


def create_table(
    place: Path | str, ensemble: ZooKeeperEnsemble | None, lock: str, *, metadata: bool = False,
    index: str = KINDS[0], more: Mapping[str, object] = MappingProxyType({}),
) -> mainstem.Table:  # fmt: skip
    """The table of a run, which carries its lock: ZooKeeper's, or without an ensemble its place's own."""
    base_path, _, key = lock.rpartition("/")
    of_zookeeper = {} if ensemble is None else {
        "hoodie.write.lock.provider": EXPLICIT,
        "hoodie.write.lock.zookeeper.url": ensemble.connect_string,
        "hoodie.write.lock.zookeeper.base_path": base_path,
        "hoodie.write.lock.zookeeper.lock_key": key,
    }  # fmt: skip
    return mainstem.create_table(
        place, SCHEMA, record_key="id", ordering="ts", partition_by="city",
        buckets=2 if index == "BUCKET" else None,
        properties={
            "hoodie.index.type": index,
            "hoodie.mainstem.exclusive": True,
            "hoodie.mainstem.fsync": False,
            "hoodie.metadata.enable": metadata,
            **of_zookeeper,
            **more,
        },
    )  # fmt: skip


def writer_properties(session_s: float) -> dict[str, str]:
    """What every process says; the lock's place is in the table."""
    return {
        "hoodie.write.lock.zookeeper.session_timeout_ms": str(round(session_s * 1000)),
        "hoodie.client.heartbeat.interval_in_ms": "500",
        "hoodie.client.heartbeat.tolerable.misses": "3",
        "hoodie.mainstem.fsync": "false",  # processes die here, the machine does not
    }


SERVICE_OPTIONS = {
    "hoodie.compact.inline.max.delta.commits": "6",
    "hoodie.clean.commits.retained": "6",
    "hoodie.keep.min.commits": "12",
    "hoodie.keep.max.commits": "20",
}
