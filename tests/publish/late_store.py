"""An object store in memory, in the simulated world: puts that arrive late, replies that get lost.

It knows no rename and no link. A put is conditional or not, a tag is a hash of the content (so the same bytes
have the same tag), reads and listings show what is there. Every call is one request. What may happen to it:

- ``kill before`` and ``kill after`` its effect; ``stop before`` and ``stop after``: the process stands still
  for an hour, while others go on
- ``lost``: it has its effect, and the caller gets an error
- ``late``: the caller gets an error now, and the effect comes up to two hours later
- ``never``: the caller gets an error, and there is no effect
- ``interrupt before`` and ``interrupt after``: Ctrl-C, and the process goes on with other work
- ``twice``: the client sends it again by itself after a lost reply, and hands out the second answer
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from mainstem.errors import CorruptTable
from mainstem.storage.location import Location
from mainstem.storage.one_by_one import create_each, delete_each
from mainstem.storage.protocol import Content, FileInfo
from tests.sim.world import World

T = TypeVar("T")
HOUR_MS = 3_600_000.0
FAULTS = (
    "kill before", "kill after", "stop before", "stop after", "lost", "late", "never", "twice",
    "interrupt before", "interrupt after",
)  # fmt: skip


class Objects:
    """What lies in the store; ``watch`` is called with (event, path) at each change."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.data: dict[str, tuple[bytes, float]] = {}
        self.watch: Callable[[str, str], None] = lambda event, path: None
        #: requests whose effect is still to come
        self.travelling = 0
        #: (process, its how-manieth request) -> fault; and requests so far
        self.faults: dict[tuple[str, int], str] = {}
        self.requests: dict[str, int] = {}
        #: chance of each fault, and the chance of none
        self.chances: dict[str, float] = {}

    def put(self, path: str, data: bytes) -> None:
        event = "replaced" if path in self.data else "created"
        self.data[path] = (data, self.world.now)
        self.watch(event, path)

    def fault(self, process: str) -> str:
        count = self.requests[process] = self.requests.get(process, 0) + 1
        found = self.faults.get((process, count), "")
        if not found and self.chances:
            drawn = self.world.random.random()
            for name, chance in self.chances.items():
                drawn -= chance
                if drawn < 0:
                    return name
        return found


def tag_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class LateStore:
    """``Storage`` and ``Swappable`` over objects, as one process of the world uses them."""

    swaps = True
    links = False
    width = 1
    base = "late://bucket/table"
    location = Location("late", "bucket", "/table")

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def _request(self, kind: str, path: str, effect: Callable[[], T]) -> T:
        world = self.objects.world
        world.point(kind, path)
        actor = world.current
        if actor is None:
            return effect()
        process = actor.process
        fault = self.objects.fault(process.name)
        if actor.periodic and fault.startswith("interrupt"):
            fault = ""  # no signal interrupts a thread of its own
        if fault == "kill before":
            process.kill()
        elif fault in ("stop before", "stop after"):
            if fault == "stop after":
                result = effect()
            process.paused_from, process.paused_until = world.now, world.now + HOUR_MS
            world.sleep(0.0)
            return effect() if fault == "stop before" else result
        elif fault == "interrupt before":
            raise KeyboardInterrupt
        elif fault == "never":
            raise OSError(errno.ETIMEDOUT, "no answer, and it never arrives", path)
        elif fault == "late":
            self._later(effect)
            raise OSError(errno.ETIMEDOUT, "no answer, and it arrives later", path)
        world.sleep(0.0)  # raises for a killed process
        result = effect()
        if fault == "kill after":
            process.kill()
            world.sleep(0.0)
        if fault == "interrupt after":
            raise KeyboardInterrupt
        if fault == "lost":
            raise OSError(errno.ETIMEDOUT, "the reply was lost", path)
        if fault == "twice":
            result = effect()
        return result

    def _later(self, effect: Callable[[], object]) -> None:
        objects = self.objects
        objects.travelling += 1

        def arrives() -> None:
            objects.travelling -= 1
            with suppress(OSError):  # nobody waits for the answer
                effect()

        objects.world.after(objects.world.random.random() ** 3 * 2 * HOUR_MS, arrives)

    def _need(self, path: str) -> tuple[bytes, float]:
        if path not in self.objects.data:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return self.objects.data[path]

    # -- reading -----------------------------------------------------------------------------------

    def read(self, path: str, *, max_bytes: int) -> bytes:
        data = self._request("GET", path, lambda: self._need(path)[0])
        if len(data) > max_bytes:
            raise CorruptTable(f"object of {len(data)} bytes, at most {max_bytes} expected", path=path)
        return data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._request("GET", path, lambda: self._need(path)[0][offset : offset + length])

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        return [info.name for info in self.entries(folder, prefix=prefix, after=after)]

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        above = f"{folder}/" if folder else ""

        def effect() -> list[FileInfo]:
            found = {}
            for path, (data, time) in self.objects.data.items():
                if path.startswith(above):
                    name, slash, _ = path.removeprefix(above).partition("/")
                    found[name] = FileInfo(name, 0 if slash else len(data), int(time), bool(slash))
            return [found[name] for name in sorted(found)]

        listed = self._request("LIST", folder, effect)
        return [info for info in listed if info.name.startswith(prefix) and info.name > after]

    def stat(self, path: str) -> FileInfo | None:
        def effect() -> FileInfo | None:
            if path in self.objects.data:
                data, time = self.objects.data[path]
                return FileInfo(path.rpartition("/")[2], len(data), int(time) // 1000 * 1000, False)
            if any(other.startswith(f"{path}/") for other in self.objects.data):
                return FileInfo(path.rpartition("/")[2], 0, 0, True)
            return None

        return self._request("HEAD", path, effect)

    # -- writing -----------------------------------------------------------------------------------

    def put_new(self, path: str, data: Content, *, durable: bool) -> None:
        content = _joined(data)

        def effect() -> None:
            if path in self.objects.data:
                raise FileExistsError(errno.EEXIST, "412", path)
            self.objects.put(path, content)

        self._request("PUT", path, effect)

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        content = _joined(data)
        self._request("PUT", path, lambda: self.objects.put(path, content))

    def renew(self, path: str) -> None:
        self._request("PUT", path, lambda: self.objects.put(path, self._need(path)[0]))

    def delete(self, path: str) -> bool:
        def effect() -> bool:
            if self.objects.data.pop(path, None) is not None:
                self.objects.watch("deleted", path)
            return True  # a store does not tell

        return self._request("DELETE", path, effect)

    def delete_tree(self, path: str) -> None:
        for info in self.entries(path):
            (self.delete_tree if info.is_folder else self.delete)(f"{path}/{info.name}")

    def create_all(self, paths: Iterable[str]) -> None:
        create_each(self, paths)

    def delete_all(self, paths: Iterable[str]) -> None:
        delete_each(self, paths)

    def settle(self, uploads: Sequence[object], folders: Iterable[str] = (), *, durable: bool) -> None:
        """An answered put is durable."""

    # -- swapping ----------------------------------------------------------------------------------

    def read_tagged(self, path: str, *, max_bytes: int = 2**22) -> tuple[bytes, str] | None:
        def effect() -> tuple[bytes, str] | None:
            found = self.objects.data.get(path)
            return None if found is None else (found[0], tag_of(found[0]))

        return self._request("GET", path, effect)

    def swap(self, path: str, data: Content, tag: str | None) -> str | None:
        content = _joined(data)

        def effect() -> str | None:
            found = self.objects.data.get(path)
            if (None if found is None else tag_of(found[0])) != tag:
                return None
            self.objects.put(path, content)
            return tag_of(content)

        return self._request("SWAP", path, effect)


def _joined(data: Content) -> bytes:
    return bytes(data) if isinstance(data, bytes) else b"".join(data)
