"""Storage on a local POSIX file system: exclusive creation, link-or-fail, fsync of files and folders.

Beyond ``Storage`` it offers what ``storage.links``, ``storage.folders``, ``storage.maps`` and
``storage.turns`` need. The guarantees hold on ext4, xfs, btrfs, tmpfs and the like, but not on NFS (see
SAFETY.md). Deleting never follows symbolic links, and new files are created with O_NOFOLLOW.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, TypeVar

from mainstem.errors import CorruptTable
from mainstem.forks import told_of_forks
from mainstem.storage.all_at_once import all_at_once, begun
from mainstem.storage.links import NotDurable
from mainstem.storage.location import Location
from mainstem.storage.one_by_one import create_each, delete_each
from mainstem.storage.protocol import Alike, Content, FileInfo, Upload

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from mainstem.storage.inotify import FolderWatch

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

Result = TypeVar("Result")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IOV_MAX = 512
_REMOVALS_MAX = 5
_FOLDERS_MAX = 20
# Bytes per step of a copy.
_PIECE = 16 * 1024 * 1024
_WORK_THREADS_MAX = 8
_LARGE_PAGE = 2 * 1024 * 1024
_NAMELESS = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
# Errors of systems without nameless files (older kernels read the flags differently), or that cannot link one
# afterwards (no /proc, or no access to it).
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)
_NOT_NAMED = (*_NO_NAMELESS, errno.EPERM, errno.EACCES, errno.EXDEV)
_hidden = count(1)
# So many contents are remembered that new files may share.
_ALIKE_MAX = 4


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only: the cores that this process may use
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _write_all(fd: int, buffers: Sequence[bytes | memoryview]) -> int:
    pending = [memoryview(b).cast("B") for b in buffers]
    pending = [b for b in pending if b.nbytes]
    total = sum(b.nbytes for b in pending)
    start = 0
    while start < len(pending):
        written = os.writev(fd, pending[start : start + _IOV_MAX])
        while start < len(pending) and written >= pending[start].nbytes:
            written -= pending[start].nbytes
            start += 1
        if written:
            pending[start] = pending[start][written:]
    return total


def _memory(size: int) -> mmap.mmap:
    """Anonymous memory, in large pages where the system has them.

    It is read at random, and with small pages the page lookups would take longer than the reads.
    """
    made = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel was built without them
            made.madvise(mmap.MADV_HUGEPAGE)
    return made


class LocalUpload:
    """A growing log file; the descriptor stays open until ``close``."""

    def __init__(self, full_path: str, sync: bool) -> None:
        # ``close`` empties it in one step: a descriptor closed twice may belong to another file by then.
        self._fds = [os.open(full_path, _NEW, 0o666)]
        self._sync = sync
        self.size = 0

    def append(self, buffers: Sequence[bytes | memoryview]) -> None:
        if not self._fds:
            raise ValueError("the file was closed")
        self.size += _write_all(self._fds[0], buffers)

    def close(self, *, durable: bool) -> None:
        try:
            fd = self._fds.pop()
        except IndexError:
            return
        try:
            if durable and self._sync:
                os.fdatasync(fd)
        finally:
            os.close(fd)


def _identity(info: os.stat_result) -> tuple[int, ...]:
    """By which a file is known that nobody changes."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


class _Turn:
    """A folder's OS lock, which this process has or has not. A forked child never has it."""

    def __init__(self, full: str) -> None:
        self._fds = [os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        told_of_forks(self)

    def taken(self) -> bool:
        """Whether nobody else has it; also where there are no OS locks."""
        if fcntl is None:
            return True
        try:
            fcntl.flock(self._fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
        return True

    def after_fork(self) -> None:
        """In a forked child: an open descriptor would keep the lock after its parent."""
        self.end()

    def end(self) -> None:
        """Give it back."""
        with suppress(IndexError):
            os.close(self._fds.pop())


class LocalStorage:
    """``Storage`` below one folder.

    ``sync=False`` (``hoodie.mainstem.fsync=false``) skips every fsync outside a ``synced`` block.
    """

    links = True
    #: Names from which on a folder is watched (``storage.watches``): a look takes 5 us, a listing of 100
    #: names 40, of the 220 that some hundred commits a second leave, 80. A user has few watches, so shorter
    #: folders are listed.
    watched_from = 100
    #: whether this file system supports nameless files; the first attempt finds out
    _nameless = hasattr(os, "O_TMPFILE")

    def __init__(self, base: str, *, sync: bool = True) -> None:
        self.base = os.path.abspath(base)
        self._always = sync
        self._asked: list[object] = []
        #: by their content: a file that this process made, of which new ones may be further names, and its
        #: identity
        self._alike: dict[bytes, tuple[str, tuple[int, ...]]] = {}

    @property
    def _sync(self) -> bool:
        return self._always or bool(self._asked)

    @contextmanager
    def synced(self) -> Iterator[None]:
        """While the block runs, no fsync is skipped, in any thread."""
        asked = object()
        self._asked.append(asked)
        try:
            yield
        finally:
            self._asked.remove(asked)

    @contextmanager
    def turn(self, folder: str) -> Iterator[bool]:
        """See ``storage.turns``."""
        try:
            turn = _Turn(self._full(folder))
        except OSError:  # the folder is not there
            yield True
            return
        try:
            yield turn.taken()
        finally:
            turn.end()

    @property
    def location(self) -> Location:
        return Location("file", "", self.base)

    def _full(self, path: str) -> str:
        return f"{self.base}/{path}" if path else self.base

    def read(self, path: str, *, max_bytes: int) -> bytes:
        fd = os.open(self._full(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size > max_bytes:
                raise CorruptTable(
                    f"file of {size} bytes, at most {max_bytes} expected", path=path, table=self.base
                )
            parts, asked = [], max(size + 1, 4096)
            while part := os.read(fd, asked):
                parts.append(part)
                if len(part) <= size < asked:  # short, so the file ended there
                    break
            return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            os.close(fd)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        fd = os.open(self._full(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, length, offset)
        finally:
            os.close(fd)

    def view(self, path: str) -> memoryview:
        fd = os.open(self._full(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if size < 256 * 1024:
                return memoryview(os.pread(fd, size, 0))
            return memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ))
        finally:
            os.close(fd)

    def private(self, path: str, size: int, *, spill: bool) -> memoryview:
        with open(self._full(path), "rb", buffering=0) as source:
            if spill and size:
                with TemporaryFile(prefix="mainstem-", buffering=0) as target:
                    copied = 0
                    while copied < size and (part := source.read(min(size - copied, _PIECE))):
                        copied += _write_all(target.fileno(), [part])
                    mapped = mmap.mmap(target.fileno(), copied, prot=mmap.PROT_READ) if copied else b""
                    return memoryview(mapped)
            memory = memoryview(_memory(size) if size else b"")
            copied = 0
            while copied < size and (count := source.readinto(memory[copied : copied + _PIECE])):
                copied += count
            return memory[:copied].toreadonly()

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        # Not a memory map: pages read from a large file would count as this process's memory.
        return pa.OSFile(self._full(path), "r")

    def stat(self, path: str) -> FileInfo | None:
        try:
            s = os.stat(self._full(path), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _info(path.rsplit("/", 1)[-1], s)

    def names(self, folder: str, *, prefix: str = "", after: str = "") -> list[str]:
        try:
            found = os.listdir(self._full(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        if prefix or after:
            return [name for name in found if name > after and name.startswith(prefix)]
        return found

    def watch(self, folder: str) -> FolderWatch | None:
        """See ``storage.watches``."""
        from mainstem.storage.inotify import watched

        return watched(self._full(folder))

    def entries(self, folder: str, *, prefix: str = "", after: str = "") -> list[FileInfo]:
        found = []
        try:
            with os.scandir(self._full(folder)) as scan:
                for entry in scan:
                    if not (entry.name > after and entry.name.startswith(prefix)):
                        continue
                    try:
                        found.append(_info(entry.name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:
                        continue  # removed between listing and stat
        except (FileNotFoundError, NotADirectoryError):
            return []
        return found

    def _made(self, path: str, make: Callable[[str], Result]) -> Result:
        """Call ``make(full path)``, and create the folder if it is missing.

        A rollback may remove a marker folder just when its suspended writer wakes up and creates it. So this
        tries repeatedly; the writer learns of the rollback once it has its file.
        """
        full = self._full(path)
        for _ in range(_FOLDERS_MAX):
            try:
                return make(full)
            except FileNotFoundError:
                _make_folders(full.rpartition("/")[0])
        return make(full)

    def put_new(self, path: str, data: Content, *, durable: bool) -> None:
        buffers = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
        if isinstance(data, Alike) and not durable:
            self._put_alike(path, data)
        else:
            self._put_own(path, buffers, durable)

    def _put_own(self, path: str, buffers: Sequence[bytes | memoryview], durable: bool) -> None:
        if not any(len(part) for part in buffers):  # an empty file is whole once it has its name
            os.close(self._made(path, lambda full: os.open(full, _NEW, 0o666)))
        elif not self._put_nameless(path, buffers, durable):
            self._put_hidden(path, buffers, durable, self._name_it)

    def put(self, path: str, data: Content, *, durable: bool) -> None:
        buffers = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
        self._put_hidden(path, buffers, durable, os.rename)

    def _put_alike(self, path: str, data: Alike) -> None:
        """Make it a name of a file that was made with this content, or a new file."""
        source, known = self._alike.get(data, ("", ()))
        if not (source and self._made(path, lambda full: self._named_too(source, known, full))):
            if len(self._alike) >= _ALIKE_MAX:
                self._alike = {}
            self._put_own(path, [data], False)
            with suppress(FileNotFoundError):  # a rollback removed it
                full = self._full(path)
                self._alike[data] = full, _identity(os.stat(full, follow_symlinks=False))

    def _named_too(self, source: str, known: tuple[int, ...], full: str) -> bool:
        """Give a file another name; False if it is gone, is another one, or has as many as it may have."""
        try:
            os.link(source, full, follow_symlinks=False)
        except FileExistsError:
            raise
        except FileNotFoundError:
            if os.path.exists(source):
                raise  # the folder is missing
            return False
        except OSError:
            return False
        if _identity(os.stat(full, follow_symlinks=False)) == known:
            return True
        os.unlink(full)
        return False

    def _put_nameless(self, path: str, buffers: Sequence[bytes | memoryview], durable: bool) -> bool:
        """Write a nameless file, then link it to its name; False if the file system has no nameless files."""
        if not self._nameless:
            return False

        def make(full: str) -> bool:
            try:
                fd = os.open(os.path.dirname(full), _NAMELESS, 0o666)
            except OSError as error:
                if error.errno not in _NO_NAMELESS:
                    raise
                self._nameless = False
                return False
            try:
                self._fill(fd, buffers, durable)
                try:
                    # The unused ``src_dir_fd`` makes Python call linkat, which follows the /proc link.
                    os.link(f"/proc/self/fd/{fd}", full, src_dir_fd=fd, follow_symlinks=True)
                except OSError as error:
                    gone = error.errno == errno.ENOENT and os.path.exists(f"/proc/self/fd/{fd}")
                    if gone or error.errno not in (*_NOT_NAMED, errno.ENOENT):
                        raise  # the folder was removed meanwhile, or the name is taken
                    self._nameless = False
                return self._nameless
            finally:
                os.close(fd)

        return self._made(path, make)

    def _put_hidden(
        self,
        path: str,
        buffers: Sequence[bytes | memoryview],
        durable: bool,
        end: Callable[[str, str], None],
    ) -> None:
        """Write a file under a hidden name; ``end`` then gives it its real one."""

        def make(full: str) -> None:
            hidden = f"{os.path.dirname(full)}/.mainstem-{os.getpid()}-{next(_hidden)}.part"
            fd = os.open(hidden, _NEW, 0o666)
            try:
                try:
                    self._fill(fd, buffers, durable)
                finally:
                    os.close(fd)
                end(hidden, full)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(hidden)
                raise

        self._made(path, make)

    @staticmethod
    def _name_it(hidden: str, full: str) -> None:
        os.link(hidden, full, follow_symlinks=False)
        os.unlink(hidden)

    def _fill(self, fd: int, buffers: Sequence[bytes | memoryview], durable: bool) -> None:
        _write_all(fd, buffers)
        if durable and self._sync:
            os.fdatasync(fd)

    def upload(self, path: str) -> LocalUpload:
        return self._made(path, lambda full: LocalUpload(full, self._sync))

    def settle(self, uploads: Sequence[Upload], folders: Iterable[str] = (), *, durable: bool) -> None:
        def closing(sink: Upload) -> Callable[[], None]:
            return lambda: sink.close(durable=durable)

        def syncing(folder: str) -> Callable[[], None]:
            return lambda: self.sync_folder(folder)

        if not durable or not self._sync:
            with ExitStack() as closed:  # closes all, even if some fail
                for sink in uploads:
                    closed.callback(sink.close, durable=False)
            return
        all_at_once([*map(closing, uploads), *map(syncing, folders)])

    def settle_later(self, folder: str) -> Callable[[], None]:
        """See ``all_at_once.settled_later``."""
        return begun(lambda: self.sync_folder(folder)) if self._sync else lambda: None

    @property
    def width(self) -> int:
        # One more than there are cores, as some thread always waits for Python's lock or the disk.
        return 1 if _cores() < 2 else min(_cores() + 1, _WORK_THREADS_MAX)

    def link(self, source: str, target: str, *, durable: bool = False) -> None:
        os.link(self._full(source), self._full(target), follow_symlinks=False)
        if durable:
            try:
                self.sync_folder(target.rpartition("/")[0])
            except OSError as error:
                raise NotDurable(error.errno, error.strerror, target) from error

    def same_file(self, path: str, other: str) -> bool:
        try:
            one, two = (os.stat(self._full(name), follow_symlinks=False) for name in (path, other))
        except FileNotFoundError:
            return False
        return os.path.samestat(one, two)

    def rename(self, source: str, target: str, *, settle: Iterable[str] = ()) -> None:
        os.rename(self._full(source), self._full(target))
        try:
            self.settle([], settle, durable=True)
        except OSError as error:
            raise NotDurable(error.errno, error.strerror, target) from error

    def move_folder(self, source: str, target: str) -> None:
        try:
            os.rename(self._full(source), self._full(target))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
            raise

    def renew(self, path: str) -> None:
        os.utime(self._full(path))

    def delete(self, path: str) -> bool:
        try:
            os.unlink(self._full(path))
            return True
        except FileNotFoundError:
            return False

    def create_all(self, paths: Iterable[str]) -> None:
        create_each(self, paths)

    def delete_all(self, paths: Iterable[str]) -> None:
        delete_each(self, paths)

    def delete_tree(self, path: str) -> None:
        full = self._full(path)
        if os.path.islink(full):
            os.unlink(full)  # remove the link only: its target is not ours
            return
        if _is_flat_and_removed(full):
            return
        for attempt in range(_REMOVALS_MAX):
            try:
                shutil.rmtree(full, ignore_errors=False, onerror=_ignore_missing)
                return
            except OSError as error:
                # A suspended writer may wake up and add a marker while its folder is being removed.
                if error.errno != errno.ENOTEMPTY or attempt == _REMOVALS_MAX - 1:
                    raise

    def make_folder(self, path: str) -> bool:
        full = self._full(path)
        try:
            os.mkdir(full)
            return True
        except FileExistsError:
            return False
        except FileNotFoundError:
            os.makedirs(full, exist_ok=True)
            return True

    def sync_folder(self, path: str) -> None:
        if not self._sync:
            return
        fd = os.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @property
    def durable(self) -> bool:
        """Whether fsync is in force."""
        return self._sync


def _info(name: str, s: os.stat_result) -> FileInfo:
    folder = (s.st_mode & 0o170000) == 0o040000
    return FileInfo(name, s.st_size, s.st_mtime_ns // 1_000_000, folder)


def _make_folders(full: str) -> None:
    try:
        os.mkdir(full)
    except FileExistsError:
        return
    except FileNotFoundError:
        with suppress(FileNotFoundError):  # a parent folder was removed meanwhile
            os.makedirs(full, exist_ok=True)


def _is_flat_and_removed(full: str) -> bool:
    """Remove a folder of files; False, and some may be gone, if it is none, or others are in it."""
    try:
        fd = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        for name in os.listdir(fd):
            os.unlink(name, dir_fd=fd)
        os.rmdir(full)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _ignore_missing(
    function: Callable[..., object],
    path: str,
    failure: tuple[type[BaseException], BaseException, TracebackType],
) -> None:
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]
