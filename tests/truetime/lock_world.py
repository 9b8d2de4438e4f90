"""A small world for the storage lock: processes that take turns at every request, in virtual time.

Requests take time on the way there and back; seeds or scripts decide which are lost, have their effect
without a reply, are repeated by the client, or arrive late. Processes can be stopped, and their clocks
differ. Everything runs in one thread; a seed gives the same run again.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable

import greenlet
import obstore
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import MemoryStore

from mainstem.storage.swaps import Tag
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.storage_lock import StorageLock
from mainstem.truetime.locks.storage_options import StorageLockOptions

START_MS = 1_795_433_443_000
KINDS = ("lost", "after", "again", "late")


class MemorySwaps:
    """``Swappable`` over an object store of obstore's."""

    swaps = True

    def __init__(self, store: object = None) -> None:
        self.store = store or MemoryStore()

    def read_tagged(self, path: str, *, max_bytes: int = 0) -> tuple[bytes, Tag] | None:
        try:
            found = obstore.get(self.store, path)
            return bytes(found.bytes()), (found.meta["e_tag"], None)
        except FileNotFoundError:
            return None
        except GenericError as error:
            raise OSError(str(error)) from error

    def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
        mode = "create" if tag is None else {"e_tag": tag[0]}
        try:
            return obstore.put(self.store, path, data, mode=mode)["e_tag"], None
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return None
        except GenericError as error:
            raise OSError(str(error)) from error


class HashedSwaps:
    """As S3: equal contents have equal tags."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def read_tagged(self, path: str, *, max_bytes: int = 0) -> tuple[bytes, Tag] | None:
        data = self.objects.get(path)
        return None if data is None else (data, (hashlib.md5(data).hexdigest(), None))

    def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
        found = self.read_tagged(path)
        if (found[1] if found else None) != tag:
            return None
        self.objects[path] = data
        return hashlib.md5(data).hexdigest(), None


class World:
    """Virtual time, and who goes on when."""

    def __init__(self, seed: int = 0, store: object = None) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.store = store or HashedSwaps()
        self.latency_ms = (2.0, 15.0)
        self._heap: list[tuple[float, int, Process | None, Callable[[], None]]] = []
        self._count = 0
        self._hub = greenlet.getcurrent()

    def at(self, when: float, process: Process | None, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, process, act))

    def wait(self, process: Process, duration_ms: float) -> None:
        me = greenlet.getcurrent()
        self.at(self.now + max(duration_ms, 0.001), process, me.switch)
        self._hub.switch()

    def spawn(self, process: Process, body: Callable[[], None]) -> None:
        def start() -> None:
            greenlet.greenlet(body, self._hub).switch()

        self.at(self.now, process, start)

    def run(self, until_ms: float = 1e12, done: Callable[[], bool] = lambda: False) -> None:
        while self._heap and not done():
            when, count, process, act = heapq.heappop(self._heap)
            if when > until_ms:
                heapq.heappush(self._heap, (when, count, process, act))
                self.now = until_ms
                return
            self.now = max(self.now, when)
            if process is None or not process.dead:
                if process is not None and process.stopped_until > self.now:
                    self.at(process.stopped_until, process, act)
                else:
                    act()


class Process:
    """One process: its own clock, its own way to the store. ``faults``: number of a request -> kind."""

    def __init__(
        self, world: World, name: str, skew_ms: float = 0, faults: dict[int, str] | None = None
    ) -> None:
        self.world = world
        self.name = name
        self.skew_ms = skew_ms
        self.faults = faults or {}
        self.chance = 0.0
        self.requests = 0
        self.stopped_until = 0.0
        self.dead = False

    # The clock.

    def now_ms(self) -> int:
        return int(START_MS + self.world.now + self.skew_ms)

    def monotonic_ms(self) -> float:
        return self.world.now

    def sleep_ms(self, duration_ms: float) -> None:
        self.world.wait(self, duration_ms)

    def every_ms(self, interval_ms: float, task: Callable[[], None], name: str) -> Ticking:
        ticking = Ticking()

        def body() -> None:
            while True:
                self.world.wait(self, interval_ms)
                if ticking.stopped:
                    return
                task()

        self.world.spawn(self, body)
        return ticking

    # The store.

    def read_tagged(self, path: str, *, max_bytes: int = 0) -> tuple[bytes, Tag] | None:
        kind = self._fault()
        self._travel()
        found = self.world.store.read_tagged(path)
        self._travel()
        if kind:
            raise OSError("503 SlowDown")
        return found

    def swap(self, path: str, data: bytes, tag: Tag | None) -> Tag | None:
        kind, store = self._fault(), self.world.store
        self._travel()
        if kind == "late":
            delay_ms = self.world.random.uniform(0, 20_000)
            self.world.at(self.world.now + delay_ms, None, lambda: store.swap(path, data, tag) and None)
        new = store.swap(path, data, tag) if kind not in ("lost", "late") else None
        self._travel()
        if kind == "again":
            return store.swap(path, data, tag)
        if kind:
            raise OSError("the connection was reset")
        return new

    def _travel(self) -> None:
        self.world.wait(self, self.world.random.uniform(*self.world.latency_ms) / 2)

    def _fault(self) -> str | None:
        self.requests += 1
        if self.chance and self.world.random.random() < self.chance:
            return self.world.random.choice(KINDS)
        return self.faults.get(self.requests)

    # Its lock.

    def lock(
        self, *, validity_ms: int = 300_000, wait_ms: int = 3_600_000, exclusive: bool = False
    ) -> StorageLock:
        options = LockOptions(
            provider="storage", base="memory://t", folder="", identity="storage", wait_ms=wait_ms, retries=0
        )
        settings = StorageLockOptions(validity_ms, validity_ms // 10, exclusive)
        chance = random.Random(self.world.random.random())
        return StorageLock(options, settings, self, clock=self, random=chance)


class Ticking:
    """A periodic task."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True
