"""Storage in memory with the semantics of a POSIX file system, and its faults.

What a program sees (the volatile state) and what a crash of the machine leaves (the durable state) are
kept apart: bytes are durable up to the last sync of the file, a *name* once its folder was synced, and
a folder only if its own name in its parent is. Of what was not synced a crash keeps any part: nothing,
a prefix, pages in the wrong order; any of the unsynced names.

Calls that are not atomic in life have several scheduling points here: ``put_new`` (the bytes, then the
name: what dies in between leaves nothing), ``link`` with the sync of its folder, ``upload`` (whose name is
there before its bytes), ``delete_tree``, and listings (a name created or removed meanwhile may be shown or
not).
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from mainstem.errors import CorruptTable
from mainstem.storage.links import NotDurable
from mainstem.storage.location import Location
from mainstem.storage.one_by_one import create_each, delete_each
from mainstem.storage.protocol import Content, FileInfo
from tests.sim.world import World

T = TypeVar("T")
_PAGE = 4096


class Inode:
    """A file's bytes; several names may lead to it."""

    __slots__ = ("data", "doubtful", "mtime", "synced")

    def __init__(self, mtime: float) -> None:
        self.data = bytearray()
        self.synced = 0  # this many bytes survive a crash of the machine
        self.doubtful = False  # a sync failed: a later one that succeeds has no pages to write any more
        self.mtime = mtime


class Disk:
    """The file system that all processes of a world share, without scheduling and faults.

    A watcher is called with (event, path, source) at every change of a name (created, linked,
    replaced, deleted) and at every listing of a folder (listed).
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.folders: dict[str, dict[str, Inode | None]] = {"": {}}  # None: a folder
        self.durable: dict[str, dict[str, Inode | None]] = {"": {}}
        self.watchers: list[Callable[[str, str, str], None]] = []

    def empty(self) -> Inode:
        """A file without content, under no name yet."""
        return Inode(0.0)

    # -- names ------------------------------------------------------------------------------------

    @staticmethod
    def split(path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        return folder, name

    def get(self, path: str) -> Inode | None:
        folder, name = self.split(path)
        return self.folders.get(folder, {}).get(name)

    def exists(self, path: str) -> bool:
        folder, name = self.split(path)
        return path == "" or name in self.folders.get(folder, {})

    def need(self, path: str) -> Inode:
        inode = self.get(path)
        if inode is None:
            if self.exists(path):
                raise IsADirectoryError(errno.EISDIR, "is a folder", path)
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode

    def put(self, path: str, inode: Inode, event: str, source: str = "") -> None:
        folder, name = self.split(path)
        if folder not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", folder)
        self.folders[folder][name] = inode
        self.tell(event, path, source)

    def remove(self, path: str) -> bool:
        folder, name = self.split(path)
        entries = self.folders.get(folder, {})
        if name not in entries:
            return False
        if entries[name] is None:
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        del entries[name]
        self.tell("deleted", path)
        return True

    def make_folders(self, path: str) -> None:
        if path in self.folders:
            return
        parent, name = self.split(path)
        self.make_folders(parent)
        if name in self.folders[parent]:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
        self.folders[parent][name] = None
        self.folders[path] = {}

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        if self.folders.get(path):
            raise OSError(errno.ENOTEMPTY, "folder not empty", path)
        if path in self.folders:
            del self.folders[path]
            parent, name = self.split(path)
            self.folders[parent].pop(name, None)

    def move(self, source: str, target: str) -> None:
        """Rename a folder with all that is below it; what is durable of it stays so under both names."""
        if source not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", source)
        if self.folders.get(target) or self.get(target) is not None:
            raise FileExistsError(errno.ENOTEMPTY, "folder not empty", target)
        parent, name = self.split(target)
        if parent not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", parent)
        for shown in (self.folders, self.durable):
            for path in [p for p in shown if p == source or p.startswith(f"{source}/")]:
                shown[target + path[len(source) :]] = dict(shown[path])
        for path in [p for p in self.folders if p == source or p.startswith(f"{source}/")]:
            del self.folders[path]
        self.folders[parent][name] = None
        parent, name = self.split(source)
        self.folders[parent].pop(name, None)
        self.tell("moved", target, source)

    def sync_folder(self, path: str) -> None:
        if path not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        self.durable[path] = dict(self.folders[path])

    def tell(self, event: str, path: str, source: str = "") -> None:
        for watcher in self.watchers:
            watcher(event, path, source)

    # -- a crash of the machine ---------------------------------------------------------------------

    def crash(self) -> None:
        """Keep what is durable and an arbitrary part of the rest."""
        rng = self.world.random
        keep = rng.choice([0.0, 0.0, 0.5, 0.9])
        survived: dict[str, dict[str, Inode | None]] = {}
        shown = self.folders
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            before, now = self.durable.get(folder, {}), shown.get(folder, {})
            entries: dict[str, Inode | None] = {}
            for name in sorted(before.keys() | now.keys()):
                same = name in before and name in now and before[name] is now[name]
                source = now if same or rng.random() < keep else before
                if name in source:
                    entries[name] = source[name]
            survived[folder] = entries
            for name, inode in entries.items():
                if inode is None:
                    waiting.append(f"{folder}/{name}" if folder else name)
        for entries in survived.values():
            for inode in entries.values():
                if inode is not None:
                    self._tear(inode, keep)
        self.folders = survived
        self.durable = {folder: dict(entries) for folder, entries in survived.items()}

    def _tear(self, inode: Inode, keep: float) -> None:
        rng = self.world.random
        unsynced = len(inode.data) - inode.synced
        if unsynced > 0 and rng.random() >= keep:
            kept = inode.synced + (rng.randrange(unsynced) if rng.random() < 0.5 else 0)
            if rng.random() < 0.3 and kept - inode.synced > 16:  # the length arrived, a page did not
                hole = rng.randrange(inode.synced, kept)
                stop = min(kept, hole + _PAGE)
                inode.data[hole:stop] = bytes(stop - hole)
            del inode.data[kept:]
        inode.synced = len(inode.data)


class SimStorage:
    """``Storage`` of one table as seen by every process; the running actor decides whose call it is."""

    links = True
    width = 1  # one actor, one thread
    durable = True

    def __init__(self, world: World, disk: Disk, base: str) -> None:
        self.base = base
        self.disk = disk
        self._world = world

    @property
    def location(self) -> Location:
        return Location("simulated", "", self.base)

    def _call(self, kind: str, path: str, effect: Callable[[], T], *, writes: bool = False) -> T:
        """One scheduling point, then the effect, with what may go wrong before and after it."""
        world = self._world
        strikes = world.point(kind, path)
        actor, faults = world.current, world.faults
        failing = None
        if actor is not None and not actor.process.immune:
            rng = world.random
            if faults.error_before and rng.random() < faults.error_before:
                world.counts.errors += 1
                raise OSError(errno.EIO, "simulated I/O error (no effect)", path)
            if writes and faults.full_disk and rng.random() < faults.full_disk:
                world.counts.errors += 1
                raise OSError(errno.ENOSPC, "simulated full disk", path)
            if writes and faults.error_after and rng.random() < faults.error_after:
                failing = OSError(errno.EIO, "simulated I/O error (after the effect)", path)
        result = effect()
        if strikes:
            world.strike()
        if failing is not None:
            world.counts.errors += 1
            raise failing
        return result

    # -- reading ----------------------------------------------------------------------------------

    def read(self, path: str, *, max_bytes: int) -> bytes:
        def effect() -> bytes:
            data = bytes(self.disk.need(path).data)
            if len(data) > max_bytes:
                raise CorruptTable(
                    f"file of {len(data)} bytes, at most {max_bytes} expected", path=path
                )
            return data

        return self._call("read", path, effect)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._call(
            "read_range", path, lambda: bytes(self.disk.need(path).data[offset : offset + length])
        )

    def view(self, path: str) -> memoryview:
        return self._call("view", path, lambda: memoryview(bytes(self.disk.need(path).data)))

    def private(self, path: str, size: int, *, spill: bool) -> memoryview:
        return self.view(path)[:size]

    def open_input(self, path: str):
        import pyarrow as pa

        data = self._call("open_input", path, lambda: bytes(self.disk.need(path).data))
        return pa.PythonFile(io.BytesIO(data), mode="r")

    def stat(self, path: str) -> FileInfo | None:
        return self._call("stat", path, lambda: self._info(path))

    def _info(self, path: str) -> FileInfo | None:
        if not self.disk.exists(path):
            return None
        inode, name = self.disk.get(path), self.disk.split(path)[1]
        if inode is None:
            return FileInfo(name, 4096, int(self._world.now), True)
        return FileInfo(name, len(inode.data), int(inode.mtime), False)

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        def effect() -> list[str]:
            self.disk.tell("listed", folder)
            return sorted(self.disk.folders.get(folder, {}))

        shown = self._call("names", folder, effect)
        world = self._world
        torn = world.faults.torn_listing
        if torn and world.current is not None and world.random.random() < torn:
            world.point("names/2", folder)
            world.sleep(world.random.random() ** 2 * 50)  # a large folder takes several reads
            first, then = set(shown), set(effect())
            unsure = sorted(first ^ then)
            lucky = {name for name in unsure if world.random.random() < 0.5}
            shown = sorted((first & then) | lucky)
        if world.current is not None:
            world.random.shuffle(shown)
        return [name for name in shown if name > after and name.startswith(prefix)]

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        above = f"{folder}/" if folder else ""
        found = (self._info(above + name) for name in self.names(folder, prefix=prefix, after=after))
        return [info for info in found if info is not None]

    # -- writing ----------------------------------------------------------------------------------

    def put_new(self, path: str, data: Content, *, durable: bool) -> None:
        content = _joined(data)
        if content:
            self._call("put_new/bytes", path, lambda: None, writes=True)  # of a file without a name

        def effect() -> None:
            inode = self._new(path, content)
            inode.synced = len(content) if durable else 0

        self._call("put_new", path, effect, writes=True)

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        content = _joined(data)

        def effect() -> None:
            self.disk.make_folders(self.disk.split(path)[0])
            inode = Inode(self._world.now)
            inode.data += content
            inode.synced = len(content) if durable else 0
            self.disk.put(path, inode, "replaced" if self.disk.exists(path) else "created")

        self._call("put/bytes", path, lambda: None, writes=True)
        self._call("put", path, effect, writes=True)

    def _new(self, path: str, content: bytes = b"") -> Inode:
        if self.disk.exists(path):
            raise FileExistsError(errno.EEXIST, "file exists", path)
        self.disk.make_folders(self.disk.split(path)[0])
        inode = Inode(self._world.now)
        inode.data += content
        self.disk.put(path, inode, "created")
        return inode

    def _grow(self, inode: Inode, content: bytes) -> None:
        inode.data += content
        inode.mtime = self._world.now

    def upload(self, path: str) -> SimUpload:
        inode = self._call("upload", path, lambda: self._new(path), writes=True)
        return SimUpload(self, path, inode)

    def settle(self, uploads: Sequence[SimUpload], folders: Iterable[str] = (), *, durable: bool) -> None:
        """In any order, as a file system does that is asked for all at once."""
        steps: list[Callable[[], None]] = [lambda s=sink: s.close(durable=durable) for sink in uploads]
        if durable:
            steps += [lambda f=folder: self.sync_folder(f) for folder in folders]
        self._world.random.shuffle(steps)
        failure: OSError | None = None
        for step in steps:
            try:
                step()
            except OSError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        def effect() -> None:
            inode = self.disk.need(source)
            if self.disk.exists(target):
                raise FileExistsError(errno.EEXIST, "file exists", target)
            self.disk.put(target, inode, "linked", source)

        self._call("link", f"{source} -> {target}", effect, writes=True)
        if durable:
            try:
                self.sync_folder(self.disk.split(target)[0])
            except OSError as error:
                raise NotDurable(error.errno, error.strerror, target) from error

    def same_file(self, path: str, other: str) -> bool:
        def effect() -> bool:
            inode = self.disk.get(path)
            return inode is not None and inode is self.disk.get(other)

        return self._call("same_file", f"{path} {other}", effect)

    def rename(self, source: str, target: str, *, settle: Iterable[str] = ()) -> None:
        def effect() -> None:
            inode = self.disk.need(source)
            event = "replaced" if self.disk.exists(target) else "linked"
            self.disk.put(target, inode, event, source)
            self.disk.remove(source)

        self._call("rename", f"{source} -> {target}", effect, writes=True)
        try:
            self.settle([], settle, durable=True)
        except OSError as error:
            raise NotDurable(error.errno, error.strerror, target) from error

    def move_folder(self, source: str, target: str) -> None:
        moved = f"{source} -> {target}"
        self._call("move_folder", moved, lambda: self.disk.move(source, target), writes=True)

    def renew(self, path: str) -> None:
        def effect() -> None:
            self.disk.need(path).mtime = self._world.now
            self.disk.tell("touched", path)

        self._call("renew", path, effect)

    def delete(self, path: str) -> bool:
        return self._call("delete", path, lambda: self.disk.remove(path))

    def create_all(self, paths: Iterable[str]) -> None:
        create_each(self, paths)

    def delete_all(self, paths: Iterable[str]) -> None:
        delete_each(self, paths)

    def delete_tree(self, path: str) -> None:
        prefix = f"{path}/"
        for name in self._call("delete_tree", path, lambda: sorted(self.disk.folders.get(path, {}))):
            if prefix + name in self.disk.folders:
                self.delete_tree(prefix + name)
            else:
                self.delete(prefix + name)
        self._call("rmdir", path, lambda: self.disk.remove_folder(path))

    def make_folder(self, path: str) -> bool:
        def effect() -> bool:
            new = path not in self.disk.folders
            self.disk.make_folders(path)
            return new

        return self._call("make_folder", path, effect, writes=True)

    def sync_folder(self, path: str) -> None:
        self._call("sync_folder", path, lambda: self.disk.sync_folder(path), writes=True)


def _joined(data: Content) -> bytes:
    parts = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
    return b"".join(bytes(part) for part in parts)


class SimUpload:
    """A growing log file."""

    def __init__(self, storage: SimStorage, path: str, inode: Inode) -> None:
        self._storage = storage
        self._path = path
        self._inode = inode
        self.size = 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        content = b"".join(bytes(memoryview(b)) for b in buffers)
        half = len(content) // 2

        def first() -> None:
            self._storage._grow(self._inode, content[:half])

        def second() -> None:
            self._storage._grow(self._inode, content[half:])

        self._storage._call("append", self._path, first, writes=True)
        self._storage._call("append/2", self._path, second, writes=True)
        self.size += len(content)

    def close(self, *, durable: bool) -> None:
        def effect() -> None:
            if durable and not self._inode.doubtful:
                self._inode.synced = len(self._inode.data)

        try:
            self._storage._call("close", self._path, effect, writes=True)
        except OSError:
            self._inode.doubtful = self._inode.doubtful or durable
            raise
