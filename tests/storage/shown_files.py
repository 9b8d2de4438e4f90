"""A store of a real server whose files a test also finds, and changes, in a folder of this machine.

Tests give tables by a path and look at their files there. With ``ShownObjects`` and ``ShownHdfs`` every
request for such a table goes to the server, below a prefix made of the path; what was written is then shown
in the folder, and nothing is ever read from there. What a test does to the files there by hand (puts,
damages, ages or removes one) is done on the server just before the next request that could see it.

Only what this process writes is shown. The time of a file that a test aged is told instead of the server's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from mainstem.storage import hdfs_options, store_options
from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.final_files import forget_final
from mainstem.storage.hdfs import HdfsStorage
from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.private_files import PrivateFiles
from mainstem.storage.protocol import FileInfo, Storage, Upload

#: what tells one state of a file from another: inode, time, size
_Sign = tuple[int, int, int]
_AGED_S = 5.0


_LOOKS = (
    "read", "read_range", "read_ranges", "read_tail", "read_tagged", "view", "private", "open_input",
    "read_final", "open_final", "view_final", "final_ranges", "nonce_at",
)  # fmt: skip


def _looking(verb: str) -> Callable[..., Any]:
    def ask(self: Any, path: str, *given: Any, **named: Any) -> Any:
        self._take_over(path)
        return getattr(super(ShownFiles, self), verb)(path, *given, **named)

    return ask


class _Shown:
    """The files below one folder: the folder of the first table that was opened there, or around it."""

    def __init__(self) -> None:
        self.signs: dict[str, _Sign] = {}
        #: file that a test aged -> its time, in milliseconds
        self.times: dict[str, int] = {}
        self.storages: WeakSet[Any] = WeakSet()


_folders: dict[str, _Shown] = {}
_mutex = threading.RLock()
_making = tempfile.mkdtemp(prefix="mainstem-shown-")


def _shown_at(folder: str) -> _Shown:
    for above in (folder, *map(str, Path(folder).parents)):
        if above in _folders:
            return _folders[above]
    return _folders.setdefault(folder, _Shown())


def _sign(file: str) -> _Sign | None:
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _files_below(folder: str) -> Iterator[str]:
    if os.path.isfile(folder):
        yield folder
    for at, _, names in os.walk(folder):
        for name in names:
            yield f"{at}/{name}"


class ShownFiles:
    """Before a class of ``Storage``: ``at`` is the folder, ``location`` the place on the server."""

    _at: str
    _shown: _Shown
    remote: bool

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for verb in _LOOKS:
            if hasattr(cls, verb):  # what a store lacks it must not seem to have
                setattr(cls, verb, _looking(verb))

    def show_in(self, at: Location) -> None:
        """Bind it to a folder of this machine, whose name is the table's from now on.

        Only a folder of temporary files: what is there is put on the server.
        """
        assert at.path.startswith(tempfile.gettempdir() + "/"), at
        self.base, self._place, self._at = at.base, at, at.path
        self.remote = False  # tests compare what is there: nothing is removed a moment later (``Unwaited``)
        self._shown = _shown_at(at.path)
        self._shown.storages.add(self)
        self._take_over("")

    @property
    def location(self) -> Location:
        """The table's place, as tests name it."""
        return self._place

    def _file(self, path: str) -> str:
        return f"{self._at}/{path}" if path else self._at

    # -- from the folder to the server ---------------------------------------------------------------

    def _take_over(self, path: str) -> None:
        """Do on the server what was done by hand to the file or folder."""
        at = self._file(path)
        with _mutex:
            gone = [f for f in self._shown.signs if f == at or f.startswith(f"{at}/")]
            for file in (*_files_below(at), *gone):
                if _sign(file) != self._shown.signs.get(file):
                    self._take_over_file(file)

    def _take_over_file(self, file: str) -> None:
        path, sign = file[len(self._at) + 1 :], _sign(file)
        inner: Any = super()
        if sign is None:
            inner.delete(path)
            self._forget(file)
        else:
            inner.put(path, Path(file).read_bytes(), durable=False)
            self._shown.signs[file] = sign
            time_ms = sign[1] // 1_000_000
            if time_ms < 1000 * (time.time() - _AGED_S):
                self._shown.times[file] = time_ms
        for storage in self._shown.storages:
            forget_final(storage)

    # -- from the server to the folder ---------------------------------------------------------------

    def _show(self, path: str, data: Any) -> None:
        file = self._file(path)
        with _mutex:
            number, made = tempfile.mkstemp(dir=_making)
            with open(number, "wb") as sink:
                for part in [data] if isinstance(data, (bytes, bytearray, memoryview)) else data:
                    sink.write(memoryview(part).cast("B"))
            os.makedirs(os.path.dirname(file), exist_ok=True)
            os.replace(made, file)
            self._remember(file)

    def _remember(self, file: str) -> None:
        sign = _sign(file)
        self._shown.times.pop(file, None)
        if sign is not None:
            self._shown.signs[file] = sign

    def _hide(self, path: str) -> None:
        file = self._file(path)
        with _mutex:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.remove(file)
            self._forget(file)

    def _forget(self, file: str) -> None:
        self._shown.signs.pop(file, None)
        self._shown.times.pop(file, None)

    def _timed(self, path: str, info: FileInfo) -> FileInfo:
        aged = self._shown.times.get(self._file(path))
        return info if aged is None else FileInfo(info.name, info.size, aged, info.is_folder)

    # -- requests --------------------------------------------------------------------------------------

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        return [one.name for one in self.entries(folder, prefix=prefix, after=after)]

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        self._take_over(folder)
        inner: Any = super()
        found: list[FileInfo] = inner.entries(folder, prefix=prefix, after=after)
        return [self._timed(f"{folder}/{one.name}" if folder else one.name, one) for one in found]

    def stat(self, path: str) -> FileInfo | None:
        return self._told(path, "stat")

    def _told(self, path: str, verb: str) -> FileInfo | None:
        self._take_over(path)
        found: FileInfo | None = getattr(super(), verb)(path)
        return None if found is None else self._timed(path, found)

    def renew(self, path: str) -> None:
        self._take_over(path)
        inner: Any = super()
        inner.renew(path)
        with _mutex, suppress(FileNotFoundError):
            os.utime(self._file(path))
            self._remember(self._file(path))

    def put_new(self, path: str, data: Any, *, durable: bool) -> None:
        self._take_over(path)
        inner: Any = super()
        inner.put_new(path, data, durable=durable)
        self._show(path, data)

    def put(self, path: str, data: Any, *, durable: bool) -> None:
        inner: Any = super()
        inner.put(path, data, durable=durable)
        self._show(path, data)

    def delete(self, path: str) -> bool:
        self._take_over(path)
        inner: Any = super()
        found: bool = inner.delete(path)
        self._hide(path)
        return found

    def delete_all(self, paths: Any) -> None:
        listed = list(paths)
        for path in listed:
            self._take_over(path)
        inner: Any = super()
        inner.delete_all(listed)
        for path in listed:
            self._hide(path)

    def delete_tree(self, path: str) -> None:
        inner: Any = super()
        inner.delete_tree(path)
        at = self._file(path)
        with _mutex:
            shutil.rmtree(at, ignore_errors=True)
            for file in [one for one in self._shown.signs if one == at or one.startswith(f"{at}/")]:
                self._forget(file)


class ShownObjects(ShownFiles, ObjectStorage):
    """Objects of a bucket."""

    def file_info(self, path: str) -> FileInfo | None:
        return self._told(path, "file_info")

    def swap(self, path: str, data: Any, tag: Any) -> Any:
        self._take_over(path)
        made = super().swap(path, data, tag)
        if made is not None:
            self._show(path, data)
        return made

    def swap_once(self, path: str, data: Any, tag: Any) -> Any:
        self._take_over(path)
        made = super().swap_once(path, data, tag)
        if made is not None:
            self._show(path, data)
        return made


class _ShownUpload:
    """An upload to HDFS, shown once it is closed."""

    def __init__(self, storage: ShownHdfs, path: str, inner: Upload) -> None:
        self._storage, self._path, self._inner = storage, path, inner
        self._content: list[bytes] = []

    @property
    def size(self) -> int:
        return self._inner.size

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        copies = [bytes(memoryview(part).cast("B")) for part in buffers]
        self._inner.append(buffers)
        self._content += copies

    def close(self, *, durable: bool) -> None:
        self._inner.close(durable=durable)
        content, self._content = self._content, []
        if content:
            self._storage._show(self._path, content)


class ShownHdfs(ShownFiles, HdfsStorage):
    """Files of an HDFS cluster."""

    def show_in(self, at: Location) -> None:
        super().show_in(at)
        for folder, _, files in os.walk(at.path):
            if not files and folder != at.path:  # of a copy: HDFS has empty folders, too
                self.make_folder(folder[len(at.path) + 1 :])

    def _take_over_file(self, file: str) -> None:
        super()._take_over_file(file)
        # A folder that was removed by hand is gone as a whole: HDFS would keep it, empty.
        gone, above = None, os.path.dirname(file)
        while above.startswith(self._at) and not os.path.isdir(above):
            gone, above = above, os.path.dirname(above)
        if gone is not None:
            self.delete_tree(gone[len(self._at) + 1 :])

    def upload(self, path: str) -> Any:
        self._take_over(path)
        return _ShownUpload(self, path, super().upload(path))

    def create_all(self, paths: Any) -> None:
        listed = list(paths)
        super().create_all(listed)
        for path in listed:
            self._show(path, b"")

    def rename_new(self, source: str, target: str) -> None:
        self._take_over(source)
        self._take_over(target)
        super().rename_new(source, target)
        self._moved(source, target)

    def rename_over(self, source: str, target: str) -> None:
        self._take_over(source)
        super().rename_over(source, target)
        self._moved(source, target)

    def make_folder(self, path: str) -> bool:
        made = super().make_folder(path)
        os.makedirs(self._file(path), exist_ok=True)
        return made

    def _moved(self, source: str, target: str) -> None:
        """Show a file or a folder under its new name. (The hidden files of ``put`` are not shown.)"""
        old, new = self._file(source), self._file(target)
        with _mutex, suppress(FileNotFoundError):
            os.makedirs(os.path.dirname(new), exist_ok=True)
            files = list(_files_below(old))
            os.replace(old, new)
            for file in files:
                self._forget(file)
                self._remember(new + file[len(old) :])


class OnServer:
    """For ``storage.backends.BACKENDS``: paths are places below a URL of a server, with these options."""

    def __init__(self, url: str, options: dict[str, str]) -> None:
        self._url, self._options = url.rstrip("/"), options

    def __call__(self, at: Location, sync: bool) -> Storage:
        there = self._there(at)
        if there.scheme == hdfs_options.SCHEME:
            shown = ShownHdfs(hdfs_options.open_client(there), there, sync=sync)
            shown.show_in(at)
            return shown
        objects = ShownObjects(
            store_options.open_store(there),
            there,
            suffix=store_options.serves_suffixes(there),
            kept_bytes=store_options.kept_bytes(there),
            cache=store_options.cache(there),
        )
        objects.show_in(at)
        return PrivateFiles(objects)  # type: ignore[return-value]

    def around(self, at: Location) -> Storage:
        """A folder around tables: nothing of it is shown, and what lies there is not put on the server."""
        return storage_of(self._there(at) if at.scheme == "file" else at)

    def _there(self, at: Location) -> Location:
        return location_of(f"{self._url}/{at.path.strip('/')}", options=self._options)
