"""A store whose private files stay in this process: nobody else reads them, and a store cannot rename them.

A private file (``publish.staging``) is content that gets its final name after a last look. On a disk a link
gives it that name; on an object store it is put there. So private files need no object of their own: they are
kept in memory, long ones in nameless temporary files. A process that dies leaves none.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterable, Sequence
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from mainstem.limits import MIB, SWAPPED_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.location import Location
from mainstem.storage.protocol import Content, FileInfo, Storage, Upload
from mainstem.storage.swaps import Tag, swappable

if TYPE_CHECKING:
    import pyarrow as pa

# Longer ones go to a temporary file.
_MEMORY_BYTES_MAX = 4 * MIB
_PREFIX = f"{paths.PREPARED}/"


class PrivateUpload:
    """A private file that grows; ``close`` gives it its private name."""

    def __init__(self, files: dict[str, memoryview], path: str) -> None:
        self._files = files
        self._path = path
        self._parts: list[bytearray] = [bytearray()]
        self._spilled: Any = None
        self.size = 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        if not self._parts:
            raise ValueError("the file was closed")
        for part in buffers:
            self._parts[0] += memoryview(part).cast("B")
        self.size += sum(memoryview(part).nbytes for part in buffers)
        if len(self._parts[0]) > _MEMORY_BYTES_MAX:
            if self._spilled is None:
                self._spilled = TemporaryFile(prefix="mainstem-", buffering=0)  # noqa: SIM115 - closed below
            _write(self._spilled, self._parts[0])
            self._parts[0] = bytearray()

    def close(self, *, durable: bool) -> None:
        try:
            last = self._parts.pop()
        except IndexError:
            return
        if self._spilled is None:
            self._files[self._path] = memoryview(last).toreadonly()
            return
        with self._spilled as file:
            _write(file, last)
            self._files[self._path] = _mapped(file, self.size)


def _write(file: Any, data: bytearray) -> None:
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _mapped(file: Any, size: int) -> memoryview:
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


class PrivateFiles:
    """``Storage`` and ``Swappable`` of ``inner``, an object store, but for private files."""

    links = False
    swaps = True

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.base: str = inner.base
        self._files: dict[str, memoryview] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)  # what only some stores have: ``read_ranges``, ``private``, ...

    @property
    def location(self) -> Location:
        return self._store.location

    @property
    def width(self) -> int:
        return self._store.width

    @property
    def _store(self) -> Storage:
        store: Storage = self.inner
        return store

    def _found(self, path: str) -> memoryview:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    # -- reading -----------------------------------------------------------------------------------

    def read(self, path: str, *, max_bytes: int) -> bytes:
        if _is_private(path):
            return bytes(self._found(path))
        return self._store.read(path, max_bytes=max_bytes)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if _is_private(path):
            return bytes(self._found(path)[offset : offset + length])
        return self._store.read_range(path, offset, length)

    def view(self, path: str) -> memoryview:
        """Whole content (``storage.maps``)."""
        if _is_private(path):
            return self._found(path)
        from mainstem.storage import maps

        return maps.view(self._store, path)

    def open_input(self, path: str) -> pa.NativeFile:
        if _is_private(path):
            import pyarrow as pa

            return pa.BufferReader(self._found(path))
        return self._store.open_input(path)

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        return self._store.names(folder, prefix=prefix, after=after)

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        return self._store.entries(folder, prefix=prefix, after=after)

    def stat(self, path: str) -> FileInfo | None:
        if _is_private(path):
            found = self._files.get(path)
            return None if found is None else FileInfo(path.rpartition("/")[2], found.nbytes, 0, False)
        return self._store.stat(path)

    def read_tagged(self, path: str, *, max_bytes: int = SWAPPED_BYTES_MAX) -> tuple[bytes, Tag] | None:
        return swappable(self._store).read_tagged(path, max_bytes=max_bytes)

    # -- writing -----------------------------------------------------------------------------------

    def put_new(self, path: str, data: Content | memoryview, *, durable: bool) -> None:
        if not _is_private(path):
            self._store.put_new(path, data, durable=durable)  # type: ignore[arg-type]
            return
        if path in self._files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._keep(path, data)

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        if _is_private(path):
            self._keep(path, data)
        else:
            self._store.put(path, data, durable=durable)

    def _keep(self, path: str, data: Content | memoryview) -> None:
        sink = PrivateUpload(self._files, path)
        sink.append([data] if isinstance(data, (bytes, bytearray, memoryview)) else data)
        sink.close(durable=False)

    def upload(self, path: str) -> Upload:
        return PrivateUpload(self._files, path) if _is_private(path) else self._store.upload(path)

    def swap(self, path: str, data: Content, tag: Tag | None) -> Tag | None:
        return swappable(self._store).swap(path, data, tag)

    def renew(self, path: str) -> None:
        if not _is_private(path):  # nobody sweeps those, also while they grow
            self._store.renew(path)

    def delete(self, path: str) -> bool:
        if _is_private(path):
            return self._files.pop(path, None) is not None
        return self._store.delete(path)

    def create_all(self, paths: Iterable[str]) -> None:
        self._store.create_all(paths)

    def delete_all(self, paths: Iterable[str]) -> None:
        others = []
        for path in paths:
            if _is_private(path):
                self._files.pop(path, None)
            else:
                others.append(path)
        if others:
            self._store.delete_all(others)

    def delete_tree(self, path: str) -> None:
        self._store.delete_tree(path)

    def settle(self, uploads: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        self._store.settle(uploads, folders, durable=durable)


def _is_private(path: str) -> bool:
    return path.startswith(_PREFIX)
