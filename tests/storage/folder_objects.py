"""An object store whose objects are files of a folder: tests that look at a table's files run on it, too.

It has no links and no renames, and swaps by a hash of the content, as S3 does. Not for use outside of tests:
a process that dies inside ``swap`` keeps its lock only as long as it lives, but nothing here is durable.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mainstem.limits import SWAPPED_BYTES_MAX
from mainstem.storage.local import LocalStorage
from mainstem.storage.location import Location
from mainstem.storage.private_files import PrivateFiles
from mainstem.storage.protocol import Storage, Upload
from mainstem.storage.side_by_side import side_by_side
from mainstem.storage.swaps import Tag


class _Upload:
    def __init__(self, storage: FolderObjects, path: str) -> None:
        self._storage, self._path, self._content = storage, path, [bytearray()]
        self.size = 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        for part in buffers:
            self._content[0] += memoryview(part).cast("B")
        self.size = len(self._content[0])

    def forget(self) -> None:
        self._content.clear()

    def close(self, *, durable: bool) -> None:
        with suppress(IndexError):
            self._storage.put_new(self._path, bytes(self._content.pop()), durable=durable)


class FolderObjects(LocalStorage):
    """``Storage`` and ``Swappable`` over the files below a folder."""

    links = False
    swaps = True

    def __init__(self, base: str, *, sync: bool, location: Location | None = None) -> None:
        super().__init__(base, sync=sync)
        self._place = location

    @property
    def location(self) -> Location:
        """The URL by which it was opened, if one was."""
        return self._place or super().location

    def read_tagged(self, path: str, *, max_bytes: int = SWAPPED_BYTES_MAX) -> tuple[bytes, Tag] | None:
        try:
            data = self.read(path, max_bytes=max_bytes)
        except FileNotFoundError:
            return None
        return data, _tag(data)

    def swap(self, path: str, data: Any, tag: Tag | None) -> Tag | None:
        content = data if isinstance(data, bytes) else b"".join(data)
        with _alone(f"{self.base}/{path}"):
            found = self.read_tagged(path, max_bytes=1 << 40)
            if (None if found is None else found[1]) != tag:
                return None
            for _ in range(20):
                with suppress(FileNotFoundError):  # a delete removes the empty folder at this moment
                    super().put(path, content, durable=False)
                    break
        return _tag(content)

    def nonce_at(self, path: str) -> str | None:
        """No request is repeated here, so none needs a nonce."""
        return "none needed"

    def put_new(self, path: str, data: Any, *, durable: bool) -> None:
        if self.swap(path, [data] if isinstance(data, memoryview) else data, None) is None:
            raise FileExistsError(path)

    def put(self, path: str, data: Any, *, durable: bool) -> None:
        with _alone(f"{self.base}/{path}"):
            super().put(path, data, durable=durable)

    def upload(self, path: str) -> Any:
        return _Upload(self, path)

    def settle(self, uploads: Sequence[Upload], folders: Any = (), *, durable: bool) -> None:
        for found in side_by_side(self, _closed, uploads):
            if found is not None:
                raise found

    def delete(self, path: str) -> bool:
        with _alone(f"{self.base}/{path}"):
            found = super().delete(path)
        folder = Path(self.base, path).parent
        with suppress(OSError):  # an object store has no empty folders
            while found and folder != Path(self.base):
                folder.rmdir()
                folder = folder.parent
        return found

    def delete_all(self, paths: Any) -> None:
        for path in paths:
            self.delete(path)

    def delete_tree(self, path: str) -> None:
        for info in self.entries(path):
            (self.delete_tree if info.is_folder else self.delete)(f"{path}/{info.name}")

    def link(self, *given: Any, **named: Any) -> None:
        raise AssertionError("an object store has no links")

    rename = same_file = move_folder = link  # type: ignore[assignment]


def _closed(upload: Upload) -> Exception | None:
    try:
        upload.close(durable=False)
    except Exception as error:
        return error
    return None


def _tag(data: bytes) -> Tag:
    return hashlib.md5(data, usedforsecurity=False).hexdigest(), None


class _alone:
    """One at a time for each name, in this and other processes. No generator: an interrupt in one could keep
    the file open, and with it the lock."""

    def __init__(self, name: str) -> None:
        folder = Path(tempfile.gettempdir(), f"mainstem-objects-{os.getuid()}")
        folder.mkdir(exist_ok=True)
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        self._path = folder / digest[:3]
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


def folder_objects(location: Location, sync: bool) -> Storage:
    """For ``storage.backends.BACKENDS``."""
    return PrivateFiles(FolderObjects(location.path, sync=False, location=location))
