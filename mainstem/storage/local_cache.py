"""Copies of large files of an object store on this machine, shared by its processes, up to a bound of bytes.

The name of a copy says what it is a copy of, size and checksum included, so a file that is replaced in the
store gets another name; whoever takes a copy compares its checksum before use. A copy appears whole, by a
rename, and never changes. One that is removed stays readable to those who have it open. So processes need
no lock: two that fetch the same file put the same copy, and the copies that were unused for the longest time
go first, whoever needs room.

The folder must belong to this user, and no other may write there; else nothing is kept.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import tempfile
import warnings
from contextlib import suppress
from typing import Protocol, cast

from mainstem.options.stores import CACHE_FOLDER
from mainstem.storage.protocol import Storage

_PART = ".part-"
# A process that died while it wrote a copy leaves a part.
_PART_LIVES_S = 3600
_CHUNK_BYTES = 16 * 1024 * 1024


class _Cached(Protocol):
    cache: LocalCache | None


def cache_of(storage: Storage) -> LocalCache | None:
    """The cache of a store's files; None where it is turned off, and for files on this machine."""
    return cast(_Cached, storage).cache if hasattr(storage, "cache") else None


def default_folder() -> str:
    """A folder of this user's for temporary files."""
    return os.path.join(tempfile.gettempdir(), f"mainstem-cache-{os.getuid()}")


class LocalCache:
    """The copies in ``folder`` (made when it is needed), of at most ``bytes_max`` bytes together.

    Nothing here raises: without room or permission, files are fetched from the store.
    """

    def __init__(self, folder: str, bytes_max: int) -> None:
        self._folder = folder
        self._bytes_max = bytes_max

    @staticmethod
    def name_of(*identity: object) -> str:
        """The name of the copy of a file that these values tell from all others."""
        return hashlib.sha256("\0".join(map(str, identity)).encode()).hexdigest()

    def get(self, name: str, size: int) -> memoryview | None:
        """The copy of this name and size, mapped; None if there is none."""
        try:
            file = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            info = os.fstat(file)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid() or info.st_size != size:
                return None
            found = memoryview(mmap.mmap(file, size, access=mmap.ACCESS_READ) if size else b"")
            with suppress(OSError):
                os.utime(file)  # used last
            return found
        except (OSError, ValueError):
            return None
        finally:
            os.close(file)

    def put(self, name: str, content: memoryview) -> memoryview:
        """Keep a copy; returns it, mapped, or ``content`` if it cannot be kept."""
        if content.nbytes > self._bytes_max or not self._is_ours():
            return content
        try:
            file, part = tempfile.mkstemp(prefix=_PART, dir=self._folder)
        except OSError:
            return content
        try:
            with os.fdopen(file, "wb", buffering=0) as out:
                self._make_room(part, content.nbytes)
                out.truncate(content.nbytes)  # others count it in full
                for start in range(0, content.nbytes, _CHUNK_BYTES):
                    _write(out.fileno(), content[start : start + _CHUNK_BYTES])
            os.replace(part, self._path(name))
        except OSError:
            with suppress(OSError):
                os.unlink(part)
            return content
        found = self.get(name, content.nbytes)
        return content if found is None else found

    def drop(self, name: str) -> None:
        """Remove a copy that is not what its name says."""
        with suppress(OSError):
            os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _is_ours(self) -> bool:
        """Whether the folder is there and nobody else can write to it; it is made if it is missing."""
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            info = os.stat(self._folder, follow_symlinks=False)
        except OSError:
            return False
        safe = stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid() and not info.st_mode & 0o022
        if not safe:
            warnings.warn(
                f"{self._folder!r} is not a folder of this user's that nobody else can write to: no copies"
                f" of vector indexes are kept there ({CACHE_FOLDER} names another)",
                stacklevel=2,
            )
        return safe

    def _make_room(self, part: str, size: int) -> None:
        """Remove copies until ``size`` bytes more are within the bound, and what dead processes left.

        ``part``: a file that was made just now; its time is the file system's clock.
        """
        now = os.stat(part).st_mtime
        found = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    if entry.path != part and stat.S_ISREG(info.st_mode):
                        found.append((info.st_mtime, info.st_size, entry.path, entry.name))
        total = size
        for changed, length, path, name in sorted(found, reverse=True):
            is_part = name.startswith(_PART)
            total += length
            if (now - changed > _PART_LIVES_S) if is_part else total > self._bytes_max:
                total -= length
                with suppress(FileNotFoundError):
                    os.unlink(path)


def _write(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]
