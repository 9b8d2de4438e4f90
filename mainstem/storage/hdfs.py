"""Storage in HDFS, by the library hdfs-native, which needs no Java.

Beyond ``Storage`` it offers ``storage.renames`` and folders (``storage.folders``). No links, no memory maps,
and nothing is ever appended to a file that was closed.

**A file is visible, and empty, while it is written.** So content is written to a hidden name beside the
target, closed, and renamed. The hidden name is this call's alone: if the library says that the rename failed
and the hidden file is gone, a first try took effect whose reply was lost. (The library repeats a call after
a broken connection or a failover, whether it can be repeated or not, and without the number by which the name
node would know the repetition.) An upload has its final name from the beginning; what it is part of is
visible only later.

**Durability.** The name node has written a name to its log before it answers. A file's bytes are on as many
data nodes as ``dfs.namenode.replication.min`` says; with ``durable`` they are on their disks (``hsync``).

**Times** are the name node's. HDFS can set a file's time, but not to its own "now". So ``renew`` learns how
far the name node's clock is from this process's monotonic one, from a file that it makes once a minute.

**A writer that dies** leaves a hidden file, or part of an upload. Its lease keeps others from appending,
which nobody does; they may rename and delete it.

hdfs-native's threads do not survive ``fork``: in a forked child of a process that used it every call would
hang, so each refuses.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import secrets
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from mainstem.errors import CorruptTable, Unsupported
from mainstem.forks import LibraryThreads, told_of_forks
from mainstem.limits import MIB
from mainstem.storage.location import Location
from mainstem.storage.protocol import Content, FileInfo, Upload
from mainstem.storage.side_by_side import side_by_side
from mainstem.telemetry import steps

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
Result = TypeVar("Result")
_PART_BYTES = 8 * MIB
_FOLDERS_MAX = 5
_FOLDER_MODE = 0o755
# How long the name node's clock is taken to keep its distance from this process's monotonic one.
_CLOCK_S = 60.0
#: an access time that is left alone, -1 of a long
_AS_IT_IS = 2**64 - 1
_SAID_BYTES_MAX = 300
_HELD_BYTES_MAX = MIB
_TRIES_MAX, _PAUSE_S = 9, 0.2
_RPC = re.compile(r'(?:Fatal)?RPCError\("([\w.$]*\.)?([\w$]+)", "(.*?)(?:\\n|"\)|$)', re.DOTALL)
#: Java's exceptions, and what they are called here
_ERRNOS = {
    "AccessControlException": errno.EACCES,
    "AuthorizationException": errno.EACCES,
    "SafeModeException": errno.EROFS,
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
    "QuotaByStorageTypeExceededException": errno.EDQUOT,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "InvalidPathException": errno.EINVAL,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "StandbyException": errno.EAGAIN,
    "RetriableException": errno.EAGAIN,
}

_threads = LibraryThreads()


class _OpenWriters:
    """Files that are being written. In a forked child the garbage collector must not close its copies: only
    the parent may, and without the library's threads the child would hang."""

    def __init__(self) -> None:
        self._writers: weakref.WeakSet[Any] = weakref.WeakSet()
        told_of_forks(self)

    def add(self, writer: Any) -> None:
        self._writers.add(writer)

    def after_fork(self) -> None:
        for writer in list(self._writers):
            writer.close = lambda: None


_open_writers = _OpenWriters()


class HdfsUpload:
    """A growing file.

    Its first bytes are held in memory, so that they can be written to other data nodes if one is dead; then
    bytes go out as they come.
    """

    def __init__(self, storage: HdfsStorage, path: str, writer: Any) -> None:
        self._storage = storage
        self._path = path
        # ``close`` empties it in one step, as ``LocalUpload`` does.
        self._writers = [writer]
        self._held: bytearray | None = bytearray()
        self.size = 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        if not self._writers:
            raise ValueError("the file was closed")
        for part in buffers:
            if self._held is None:
                with self._storage.calling("write", self._path):
                    _write(self._writers[0], part)
            else:
                self._held += memoryview(part).cast("B")
                if len(self._held) > _HELD_BYTES_MAX:
                    self._writers = [self._written(self._writers[0], lambda writer: None)]
                    self._held = None
            self.size += memoryview(part).nbytes

    def _written(self, writer: Any, then: Callable[[Any], None]) -> Any:
        """Write what is held, then ``then``; again, with a new file, if a data node does not answer."""
        held, first = memoryview(self._held or b""), [writer]

        def write() -> Any:
            with self._storage.calling("write", self._path):
                one = first.pop() if first else self._storage.create(self._path, replaces=True)
                _write(one, held)
                then(one)
                return one

        return _until_it_works(write, errno.EIO)

    def close(self, *, durable: bool) -> None:
        try:
            writer = self._writers.pop()
        except IndexError:
            return
        if self._held is None:

            def finish() -> None:
                with self._storage.calling("close", self._path):
                    self._storage.finish(writer, self.size, durable)

            _until_it_works(finish)
        else:
            self._written(writer, lambda one: self._storage.finish(one, self.size, durable))


def _until_it_works(work: Callable[[], Result], *trouble: int) -> Result:
    """``work()``, again after an error of these numbers, for up to 50 seconds.

    ``EAGAIN``: a name node that is becoming the active one did nothing yet. ``EIO``, for work that may be
    done twice: a data node died, which the name node takes a while to notice. (Java's client names the ones
    that did not answer when it asks for others; hdfs-native cannot.)
    """
    for tries in range(_TRIES_MAX - 1):
        try:
            return work()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, *trouble):
                raise
            time.sleep(_PAUSE_S * 2**tries)
    return work()


def _asks(
    what: str,
) -> Callable[
    [Callable[Concatenate[HdfsStorage, str, P], Result]], Callable[Concatenate[HdfsStorage, str, P], Result]
]:
    """For methods that make calls on one path: errors become those of ``Storage``, and a name node that is
    not ready is asked again."""

    def asking(
        method: Callable[Concatenate[HdfsStorage, str, P], Result],
    ) -> Callable[Concatenate[HdfsStorage, str, P], Result]:
        @wraps(method)
        def ask(storage: HdfsStorage, path: str, /, *given: P.args, **named: P.kwargs) -> Result:
            def once() -> Result:
                with storage.calling(what, path):
                    return method(storage, path, *given, **named)

            return _until_it_works(once)

        return ask

    return asking


class HdfsStorage:
    """``Storage`` below one folder of a cluster.

    ``client``: a client of hdfs-native; ``width``: the number of concurrent calls, which mostly wait for
    files to be closed; ``sync=False`` (``hoodie.mainstem.fsync=false``) leaves bytes in the memory of the
    data nodes.
    """

    links = False
    swaps = False
    renames = True

    def __init__(self, client: Any, location: Location, *, width: int = 32, sync: bool = True) -> None:
        self.base = location.base
        self._client = client
        self._location = location
        self._root = location.path
        self._width = width
        self._sync = sync
        #: (name node's clock less the monotonic one, when that was learnt), in seconds
        self._clock: tuple[float, float] | None = None

    @property
    def location(self) -> Location:
        return self._location

    @property
    def width(self) -> int:
        return self._width

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root or "/"

    # -- reading -----------------------------------------------------------------------------------

    def _open(self, path: str) -> Any:
        return self._client.read(self._full(path))

    @_asks("read")
    def read(self, path: str, *, max_bytes: int) -> bytes:
        file = self._open(path)
        size = len(file)
        if size > max_bytes:
            raise CorruptTable(
                f"file of {size} bytes, at most {max_bytes} expected", path=path, table=self.base
            )
        return bytes(file.read_range(0, size)) if size else b""

    @_asks("read")
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        file = self._open(path)
        length = min(length, len(file) - offset)  # the library panics beyond the end
        return bytes(file.read_range(offset, length)) if length > 0 else b""

    @_asks("read")
    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """The bytes of (offset, length > 0) each."""
        file = self._open(path)
        return [memoryview(file.read_range(offset, length)) for offset, length in ranges]

    @_asks("read")
    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        """The last ``length`` bytes, fewer if the file is smaller, and the file's size."""
        file = self._open(path)
        size = len(file)
        length = min(length, size)
        return memoryview(file.read_range(size - length, length) if length else b""), size

    @_asks("read")
    def view(self, path: str) -> memoryview:
        """Whole content of a large file (``storage.maps``)."""
        file = self._open(path)
        content = memoryview(bytearray(len(file)))
        _fill(file, content)
        return content.toreadonly()

    @_asks("read")
    def private(self, path: str, size: int, *, spill: bool) -> memoryview:
        """A copy of the first bytes (``storage.maps``); in a nameless temporary file to ``spill``."""
        file = self._open(path)
        size = min(size, len(file))
        if spill and size:
            with TemporaryFile(prefix="mainstem-", buffering=0) as copy:
                copy.truncate(size)
                content = memoryview(mmap.mmap(copy.fileno(), size))
        else:
            content = memoryview(bytearray(size))
        _fill(file, content)
        return content.toreadonly()

    def open_input(self, path: str) -> pa.NativeFile:
        from mainstem.storage.range_file import open_ranges

        return open_ranges(self, path)

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        return [entry.name for entry in self.entries(folder, prefix=prefix, after=after)]

    @_asks("list")
    def _listed(self, path: str) -> list[FileInfo]:
        full = self._full(path)
        return [_info(one) for one in self._client.list_status(full) if one.path != full]

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        try:
            found = self._listed(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [one for one in found if one.name > after and one.name.startswith(prefix)]

    @_asks("stat")
    def _info(self, path: str) -> FileInfo:
        return _info(self._client.get_file_info(self._full(path)))

    def stat(self, path: str) -> FileInfo | None:
        try:
            return self._info(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    # -- writing -----------------------------------------------------------------------------------

    def create(self, path: str, *, parents: bool = True, replaces: bool = False) -> Any:
        """A new file to write to. ``parents``: make its folder where it is missing."""
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=replaces, create_parent=parents)
        writer = self._client.create(self._full(path), options)
        _open_writers.add(writer)
        return writer

    def finish(self, writer: Any, size: int, durable: bool) -> None:
        """Close a file that was written."""
        if durable and self._sync and size:
            writer.hsync()
        writer.close()

    def put_new(self, path: str, data: Content, *, durable: bool) -> None:
        self._put_hidden(path, data, durable, self.rename_new)

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        self._put_hidden(path, data, durable, self.rename_over)

    def _put_hidden(self, path: str, data: Content, durable: bool, end: Callable[[str, str], None]) -> None:
        """Write a file under a hidden name, which nobody else has; ``end`` gives it its real one."""
        hidden = _hidden_beside(path)

        def write() -> int:
            with self.calling("write", path):
                writer = self.create(hidden, replaces=True)
                size = sum(_write(writer, part) for part in _parts(data))
                self.finish(writer, size, durable)
                return size

        try:
            for _ in range(_FOLDERS_MAX):
                size = _until_it_works(write, errno.EIO)
                try:
                    end(hidden, path)
                    return
                except FileExistsError:
                    raise
                except OSError as error:
                    if self.stat(hidden) is not None:
                        raise
                    there = self.stat(path)
                    if there is not None and there.size == size:
                        return  # a first try took effect, and its reply was lost
                    if not isinstance(error, FileNotFoundError):
                        raise
                    # The folder was removed meanwhile, as rollbacks do, with the hidden file in it.
            raise FileNotFoundError(errno.ENOENT, "its folder comes and goes", path)
        except BaseException:
            with suppress(OSError):
                self.delete(hidden)
            raise

    @_asks("create")
    def upload(self, path: str) -> HdfsUpload:
        return HdfsUpload(self, path, self.create(path))

    @_asks("renew")
    def renew(self, path: str) -> None:
        now_ms = int(1000 * (time.monotonic() + self._ahead_s(path)))
        self._client.set_times(self._full(path), now_ms, _AS_IT_IS)

    def _ahead_s(self, path: str) -> float:
        """How far the name node's clock is ahead of the monotonic one, in seconds, or a little less."""
        if self._clock is None or time.monotonic() - self._clock[1] > _CLOCK_S:
            probe = _hidden_beside(path)
            # Without the folder there is no file to renew, and it must not come back.
            self.create(probe, parents=False).close()
            made_ms = self._client.get_file_info(self._full(probe)).modification_time
            self._clock = made_ms / 1000 - time.monotonic(), time.monotonic()
            self._client.delete(self._full(probe), False)
        return self._clock[0]

    @_asks("delete")
    def delete(self, path: str) -> bool:
        return bool(self._client.delete(self._full(path), False))

    def create_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileExistsError):
                self._create_empty(path)

    @_asks("create")
    def _create_empty(self, path: str) -> None:
        self.create(path).close()

    def delete_all(self, paths: Iterable[str]) -> None:
        failures = []

        def remove(path: str) -> None:
            try:
                self.delete(path)
            except OSError as error:
                failures.append(error)

        side_by_side(self, remove, list(paths))
        if failures:
            raise failures[0]

    @_asks("delete")
    def delete_tree(self, path: str) -> None:
        self._client.delete(self._full(path), True)

    def settle(self, uploads: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        def closed(upload: Upload) -> Exception | None:
            try:
                upload.close(durable=durable)
            except Exception as error:
                return error
            return None

        for failure in side_by_side(self, closed, uploads):
            if failure is not None:
                raise failure

    # -- renames and folders -----------------------------------------------------------------------

    @_asks("rename")
    def rename_new(self, source: str, target: str) -> None:
        self._client.rename(self._full(source), self._full(target), False)

    @_asks("rename")
    def rename_over(self, source: str, target: str) -> None:
        self._client.rename(self._full(source), self._full(target), True)

    @_asks("mkdirs")
    def make_folder(self, path: str) -> bool:
        there = self.stat(path) is not None
        self._client.mkdirs(self._full(path), _FOLDER_MODE, True)
        return not there

    def move_folder(self, source: str, target: str) -> None:
        # With ``overwrite`` an empty folder is replaced, and one that holds files is not.
        try:
            self.rename_over(source, target)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
            raise

    # -- calls -------------------------------------------------------------------------------------

    @contextmanager
    def calling(self, what: str, path: str) -> Iterator[None]:
        """Turn hdfs-native's errors into those of ``Storage``."""
        if not _threads.usable():
            raise Unsupported(
                "this process was forked from one that had used HDFS, whose threads it does not have: start"
                " processes by 'spawn' (multiprocessing.set_start_method), or fork before the first use",
                table=self.base,
            )
        where = f"{what} {self.base}/{path}"
        try:
            with steps.timed("storage.request", self.base, method=what):
                yield
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        except FileExistsError:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise OSError(errno.EIO, f"{where}: {_said(str(error))}", path) from None
        except RuntimeError as error:
            raise _as_os_error(str(error), where, path) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # pyo3's, of a fault in the library
                raise
            raise OSError(errno.EIO, f"{where}: {_said(str(error))}", path) from None


def _as_os_error(text: str, where: str, path: str) -> OSError:
    """An error of the name node, or of the library."""
    found = _RPC.search(text)
    if found is None:
        return OSError(errno.EIO, f"{where}: {_said(text)}", path)
    kind, said = found.group(2), _said(found.group(3))
    number = _ERRNOS.get(kind, errno.EIO)
    if kind == "SafeModeException":
        said = f"the name node is in safe mode and changes nothing (hdfs dfsadmin -safemode get): {said}"
    if "is not a directory" in said:  # with permissions off the name node calls it AccessControlException
        number = errno.ENOTDIR
    if "directory is not empty" in said:
        number = errno.ENOTEMPTY
    if "minReplication" in said:
        number = errno.ENOSPC
        said = f"no data node takes the file's bytes: are they running, and have they room? {said}"
    return OSError(number, f"{where}: {said} ({kind})", path)


def _said(text: str) -> str:
    return " ".join(text.partition("\n\tat ")[0].split())[:_SAID_BYTES_MAX]


def _info(status: Any) -> FileInfo:
    name = status.path.rstrip("/").rpartition("/")[2]
    return FileInfo(name, status.length, status.modification_time, status.isdir)


def _hidden_beside(path: str) -> str:
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}.mainstem-{secrets.token_hex(8)}.part"


def _parts(data: Content) -> Sequence[bytes | memoryview]:
    return [data] if isinstance(data, (bytes, bytearray, memoryview)) else data


def _write(writer: Any, part: bytes | memoryview) -> int:
    content = memoryview(part).cast("B")
    if content.nbytes:
        writer.write(content)
    return content.nbytes


def _fill(file: Any, content: memoryview) -> None:
    for start in range(0, len(content), _PART_BYTES):
        end = min(start + _PART_BYTES, len(content))
        content[start:end] = file.read_range(start, end - start)
