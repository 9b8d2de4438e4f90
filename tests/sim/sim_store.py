"""An object store in memory, with the semantics of a real one, and its faults.

``mainstem.storage.object_store.ObjectStorage`` runs as it is, over the requests below, which stand for
obstore and the store behind it. No renames, no links, no folders: a folder is what its objects' names say.
An object is put whole or not at all and is durable at once, so a crash of the machine is the death of its
processes.

Each request is a scheduling point. What may happen to it, besides what happens to every call (the process is
killed, stopped or interrupted before or after the effect):

- ``error_before``: it never arrives, and the caller gets an error; ``throttle``: the same after a while, in
  which the client has tried again and again
- ``error_after``: it takes effect, and the reply is lost
- ``repeated``: the same, but the client sends it again by itself and hands out the second answer, as obstore
  does: a condition is refused because of the own first try, a put overwrites what others put in between, a
  delete removes what others made in between
- ``late``: it is carried out up to ten minutes later, and nobody waits for the answer: its sender got an
  error, was interrupted, or is dead
- ``torn_listing``: a listing takes several requests; a name that is put or deleted meanwhile may be shown or
  not

The store has a clock of its own. A tag is a hash of the content, as on S3: the same bytes have the same tag.
Half of the stores tell whether a deleted object was there (Azure), half do not (S3).
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError

from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage
from tests.sim.sim_storage import Disk, Inode
from tests.sim.world import Process, World

T = TypeVar("T")
#: how late a request may be carried out, in milliseconds: each is as likely
LATENESS_MS = (50.0, 500.0, 5_000.0, 60_000.0, 600_000.0)
#: how late a client sends again by itself
AGAIN_MS = (1.0, 100.0, 3_000.0)


class Stored(Inode):
    """An object: bytes that never change, and the metadata that its put gave."""

    __slots__ = ("attributes",)

    def __init__(self, mtime: float, data: bytes, attributes: dict[str, str]) -> None:
        super().__init__(mtime)
        self.data += data
        self.synced = len(data)
        self.attributes = attributes

    @property
    def tag(self) -> str:
        return hashlib.md5(self.data, usedforsecurity=False).hexdigest()


class Bucket(Disk):
    """What lies in the store, without scheduling and faults; checkers read it as they read a disk.

    ``clock_ms`` is how far its clock is ahead of the world's, ``tells`` whether it says that a deleted
    object was not there. ``travelling`` are requests whose effect is still to come.
    """

    #: whether requests of task attempts arrive late, too: one that lost may leave a file for other engines
    late_tasks = False

    def __init__(self, world: World, *, clock_ms: float = 0.0, tells: bool = False) -> None:
        super().__init__(world)
        self.clock_ms = clock_ms
        self.tells = tells
        self.travelling: dict[int, tuple[Process, Callable[[], object], str]] = {}
        #: who sent the request that is just carried out late
        self.sender: Process | None = None
        self._sent = 0
        #: paths that no put brings back any more: their senders' signatures have expired
        self.closed: set[str] = set()
        #: on which condition the latest put was made
        self.mode = ""

    @property
    def durable(self) -> Any:
        return self.folders

    @durable.setter
    def durable(self, shown: Any) -> None:
        """Everything is durable."""

    def now(self) -> float:
        return self.world.now + self.clock_ms

    def empty(self) -> Inode:
        return Stored(0.0, b"", {})

    def store(self, path: str, data: bytes, attributes: dict[str, str], *, mode: str = "overwrite") -> Stored:
        """Put an object. ``mode``: "create", "swap" or "overwrite", for checkers."""
        self.mode = mode
        if path in self.closed:
            raise GenericError("simulated 403: the request has expired")
        event = "replaced" if self.get(path) is not None else "created"
        made = Stored(self.now(), data, attributes)
        self.make_folders(self.split(path)[0])
        self.put(path, made, event)
        return made

    def remove(self, path: str) -> bool:
        if self.get(path) is None or not super().remove(path):
            return False
        folder = self.split(path)[0]
        while folder and not self.folders[folder]:
            self.remove_folder(folder)
            folder = self.split(folder)[0]
        return True

    def below(self, folder: str) -> list[str]:
        """Paths of all objects below a folder, in order."""
        above = f"{folder}/" if folder else ""
        return sorted(
            f"{shown}/{name}" if shown else name
            for shown, entries in self.folders.items()
            if shown == folder or shown.startswith(above)
            for name, inode in entries.items()
            if inode is not None
        )

    def travels(self, sender: Process, effect: Callable[[], object], path: str, delay_ms: float) -> None:
        """Carry a request out later; nobody waits for the answer."""
        if "/" in sender.name and not self.late_tasks:
            return
        self._sent += 1
        number = self._sent
        self.travelling[number] = sender, effect, path
        self.world.after(delay_ms, lambda: self._arrives(number))

    def lose(self, instant: str) -> None:
        """Requests about data files of this instant arrive no more: as after half an hour."""
        for number, (_, _, path) in list(self.travelling.items()):
            if f"_{instant}." in path and not path.startswith(".hoodie/"):
                del self.travelling[number]

    def arrive(self) -> None:
        """All requests that still travel are carried out now."""
        for number in list(self.travelling):
            self._arrives(number)

    def _arrives(self, number: int) -> None:
        if number not in self.travelling:
            return
        self.sender, effect, _ = self.travelling.pop(number)
        with suppress(OSError, BaseError):
            effect()
        self.sender = None

    def crash(self) -> None:
        """The machines of the processes crash, not the store."""


class SimStore(ObjectStorage):
    """``ObjectStorage`` of one table as seen by every process; the running actor decides whose call it is."""

    def __init__(self, world: World, bucket: Bucket, base: str) -> None:
        location = Location("simulated", "bucket", base)
        super().__init__(bucket, location, width=1, calls=Requests(world, bucket, base.strip("/")))
        self.disk = bucket

    def open_input(self, path: str) -> pa.NativeFile:
        """Read whole by one request: pyarrow asks for ranges from threads of its own."""
        return pa.BufferReader(self.view(path))


class Requests:
    """The functions of the module ``obstore``, on a ``Bucket``, below one prefix of it."""

    def __init__(self, world: World, bucket: Bucket, prefix: str) -> None:
        self._world = world
        self._bucket = bucket
        self._prefix = prefix

    def _path(self, key: str | None) -> str:
        return (key or "").removeprefix(self._prefix).lstrip("/")

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}"

    def _request(self, kind: str, path: str, effect: Callable[[], T], *, writes: bool = False) -> T:
        """One scheduling point, then the effect, with what may go wrong before and after it."""
        world = self._world
        strikes = world.point(kind, path)
        actor, faults, rng = world.current, world.faults, world.trouble
        if actor is None or actor.process.immune:
            return effect()

        def happens(chance: float) -> bool:
            return bool(chance) and rng.random() < chance

        if strikes:
            if writes and happens(8 * faults.late):
                self._travels(path, effect)  # carried out when its sender is dead or does other work
            else:
                with suppress(OSError, BaseError):
                    effect()
            world.strike()
        if happens(faults.error_before):
            raise self._trouble("connection reset, nothing sent")
        if happens(faults.throttle):
            world.sleep(rng.random() * 3000)
            raise self._trouble("503 SlowDown, after retries")
        if writes and happens(faults.late):
            self._travels(path, effect)
            world.sleep(rng.random() * rng.choice(AGAIN_MS))
            raise self._trouble("timed out; it arrives later")
        if writes and happens(faults.repeated):
            with suppress(OSError, BaseError):
                effect()
            world.note(f"{kind} {path} is sent again by the client")
            world.sleep(rng.random() * rng.choice(AGAIN_MS))
            return effect()
        result = effect()
        if writes and happens(faults.error_after):
            raise self._trouble("timed out; it took effect")
        return result

    def _trouble(self, what: str) -> GenericError:
        self._world.counts.errors += 1
        return GenericError(f"simulated {what}")

    def _travels(self, path: str, effect: Callable[[], object]) -> None:
        rng = self._world.trouble
        delay_ms = rng.random() * rng.choice(LATENESS_MS)
        self._world.note(f"{path} travels for {delay_ms:.0f} ms")
        self._world.counts.late += 1
        assert self._world.current is not None
        self._bucket.travels(self._world.current.process, effect, path, delay_ms)

    # -- reading ----------------------------------------------------------------------------------

    def _need(self, path: str) -> Stored:
        found = self._bucket.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        assert isinstance(found, Stored)
        return found

    def _meta(self, path: str, found: Inode, *, whole_seconds: bool) -> dict[str, Any]:
        assert isinstance(found, Stored)
        millis = int(found.mtime) // 1000 * 1000 if whole_seconds else int(found.mtime)
        since = datetime.timedelta(milliseconds=millis)
        time = datetime.datetime.fromtimestamp(0, datetime.UTC) + since
        size = len(found.data)
        return {
            "path": self._key(path),
            "last_modified": time,
            "size": size,
            "e_tag": found.tag,
            "version": None,
        }

    def get(self, store: object, key: str, *, options: dict[str, Any] | None = None) -> Answer:
        path, options = self._path(key), options or {}
        head = options.get("head", False)

        def effect() -> Answer:
            found = self._need(path)
            if options.get("if_match", found.tag) != found.tag:
                raise PreconditionError("another content")
            data, asked = bytes(found.data), options.get("range")
            if isinstance(asked, dict):
                data = data[-asked["suffix"] :]
            elif asked is not None:
                data = data[asked[0] : asked[1]]
            return Answer(
                self._meta(path, found, whole_seconds=True), found.attributes, b"" if head else data
            )

        return self._request("HEAD" if head else "GET", path, effect)

    def get_range(self, store: object, key: str, *, start: int, length: int) -> bytes:
        path = self._path(key)

        def effect() -> bytes:
            data = bytes(self._need(path).data)
            if start >= len(data):
                raise GenericError("416 Range Not Satisfiable")
            return data[start : start + length]

        return self._request("GET", path, effect)

    def head(self, store: object, key: str) -> dict[str, Any]:
        path = self._path(key)
        return self._request("HEAD", path, lambda: self._meta(path, self._need(path), whole_seconds=True))

    def list_with_delimiter(self, store: object, key: str | None) -> dict[str, list[Any]]:
        folder = self._path(key)
        above = f"{folder}/" if folder else ""

        def effect() -> dict[str, Inode | None]:
            self._bucket.tell("listed", folder)
            return dict(self._bucket.folders.get(folder, {}))

        shown = self._torn(folder, self._request("LIST", folder, effect), effect)
        objects = [
            self._meta(above + name, inode, whole_seconds=False)
            for name, inode in sorted(shown.items())
            if inode is not None
        ]
        prefixes = [self._key(above + name) for name, inode in sorted(shown.items()) if inode is None]
        return {"objects": objects, "common_prefixes": prefixes}

    def _torn(
        self, folder: str, shown: dict[str, Inode | None], again: Callable[[], dict[str, Inode | None]]
    ) -> dict[str, Inode | None]:
        """A long listing takes several requests."""
        world, rng = self._world, self._world.trouble
        torn = world.faults.torn_listing
        if not torn or world.current is None or rng.random() >= torn:
            return shown
        world.point("LIST/2", folder)
        world.sleep(rng.random() ** 2 * 50)
        then = again()
        both = {name: then[name] for name in sorted(shown.keys() & then.keys())}
        lucky = {
            name: {**shown, **then}[name] for name in sorted(shown.keys() ^ then.keys()) if rng.random() < 0.5
        }
        return both | lucky

    def list(self, store: object, key: str | None, **how: Any) -> Listing:
        folder = self._path(key)

        def effect() -> list[dict[str, Any]]:
            return [
                self._meta(path, self._need(path), whole_seconds=False) for path in self._bucket.below(folder)
            ]

        return Listing(self._request("LIST", folder, effect))

    # -- writing ----------------------------------------------------------------------------------

    def put(
        self,
        store: object,
        key: str,
        content: Any,
        *,
        attributes: dict[str, str],
        mode: Any,
        use_multipart: bool,
    ) -> dict[str, Any]:
        path, data = self._path(key), bytes(content)

        def effect() -> dict[str, Any]:
            found = self._bucket.get(path)
            if mode == "create" and found is not None:
                raise AlreadyExistsError("412")
            if isinstance(mode, dict):
                assert found is None or isinstance(found, Stored)
                if found is None or found.tag != mode["e_tag"]:
                    raise PreconditionError("412")
            how = mode if isinstance(mode, str) else "swap"
            made = self._bucket.store(path, data, attributes, mode=how)
            return {"e_tag": made.tag, "version": None}

        kind = (
            {"create": "PUT new", "overwrite": "PUT"}.get(mode, "SWAP") if isinstance(mode, str) else "SWAP"
        )
        return self._request(kind, path, effect, writes=True)

    def delete(self, store: object, keys: str | Sequence[str]) -> None:
        """Several keys by one request: as the store likes, some of them are deleted, and others are not."""
        named = [keys] if isinstance(keys, str) else list(keys)
        missing = False

        def effect() -> None:
            nonlocal missing
            for key in named:
                missing = not self._bucket.remove(self._path(key)) or missing

        shown = self._path(named[0]) if len(named) == 1 else f"{len(named)} objects"
        if len(named) > 1 and (self._world.trouble.random() < self._world.faults.error_before):
            named = self._world.trouble.sample(named, len(named) // 2)
            self._request("DELETE", shown, effect, writes=True)
            raise self._trouble("some of the objects could not be deleted")
        self._request("DELETE", shown, effect, writes=True)
        if missing and self._bucket.tells:
            raise FileNotFoundError(errno.ENOENT, "no such object", shown)


class Answer:
    """A ``GetResult``."""

    def __init__(self, meta: dict[str, Any], attributes: dict[str, str], data: bytes) -> None:
        self.meta = meta
        self.attributes = attributes
        self._data = data

    def bytes(self) -> bytes:
        return self._data


class Listing:
    """A ``ListStream``: chunks of objects."""

    def __init__(self, found: list[dict[str, Any]]) -> None:
        self._found = found

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        return iter([self._found] if self._found else [])

    def __next__(self) -> list[dict[str, Any]]:
        return next(iter(self))

    def collect(self) -> list[dict[str, Any]]:
        return self._found


def drawn_bucket(world: World, seed: str) -> Bucket:
    """A store whose clock and manners the seed draws."""
    rng = random.Random(f"store of {seed}")
    clock_ms = rng.choice([0.0, 0.0, 700.0, -90_000.0, 3_600_000.0])
    return Bucket(world, clock_ms=clock_ms, tells=rng.random() < 0.5)
