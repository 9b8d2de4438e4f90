"""The file-system lock: ``<folder>/lock``, which Java's ``FileSystemBasedLockProvider`` respects.

Java takes the lock by creating the file without overwriting, and frees it by deleting it, whoever owns
it. We add what is needed when a holder dies, is suspended or loses its file to another writer:

* The file is **put in place whole, by link**, with the owner record in it and an OS lock
  (``flock``) already held. So a file with our record and a free OS lock belongs to a dead holder.
* A file with our record is judged by its OS lock if the record names this boot of this kernel.
  Otherwise, or if the owner is alive but suspended, it is judged by its time, which a live holder refreshes.
* A file without our record is Java's. It is removed only after
  ``hoodie.write.lock.filesystem.expire`` minutes (0 = never).
* The file is **mode 0444**: Hadoop's local ``create(overwrite=false)`` is ``exists`` followed by an
  open that truncates (``RawLocalFileSystem``), so a Java writer could overwrite a lock file created in
  between. On a read-only file that open fails (except for root); ``check`` also compares the content.
* ``check`` asks the folder, not memory: same inode, same content, refreshed in time.
* To remove a file, a contender first **renames it to a private name and looks again**; if it is not the
  file that was judged, it is put back. Contenders remove files one at a time.

Private files live in ``<folder>/.mainstem/locks``: one ``wait-*`` per waiting thread (its name is
its place in the queue, its content the record that it will put in place), ``gone-*`` while a file
is being removed, ``idle-*`` between two turns, and the permanent ``removal``. Files that dead processes left
there are swept.

**One file for many turns.** Who frees the lock gives the file an idle name again and keeps its OS lock. So a
turn makes and removes no file, which is what costs a file system most. Two leases never have one file: it is
used again only after it was taken from its place whole, and each turn begins with a new time. It goes when
the process ends, or has no turn when leases are refreshed.

``fork``: a child inherits no lock. Python's own ``os.fork`` closes our descriptors in the child
(``register_at_fork``), and ``exec`` closes them (``O_CLOEXEC``). A child forked by C code that does
not exec keeps the OS lock alive after its parent's death; then only the file's time shows that the
holder is dead.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import socket
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mainstem.errors import LeaseLost, Unavailable
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.options.locks import EXPIRE_MS, FOLDER, FOREIGN_EXPIRE_MIN, PROVIDER, RETRIES, WAIT_MS
from mainstem.truetime.locks.options import LOCK_NAME, LockOptions
from mainstem.truetime.locks.owner_record import OwnerRecord, parse_owner_record
from mainstem.truetime.locks.patience import Patience

if TYPE_CHECKING:
    from mainstem.forks import Forked
    from mainstem.truetime.clock import Clock, Periodic
    from mainstem.truetime.seams import Randomness

try:
    import fcntl
except ImportError:  # Windows: refused by name in FileSystemLock
    fcntl = None  # type: ignore[assignment]  # a module elsewhere

_log = logging.getLogger(__name__)

PRIVATE_FOLDERS = (".mainstem", "locks")
_REMOVAL = "removal"
WAIT = "wait-"  # prefix of the file of a waiting thread
_GONE = "gone-"
_IDLE = "idle-"
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER_FLAGS = os.O_RDONLY | _CLOEXEC | getattr(os, "O_DIRECTORY", 0)

# Java's expiry is at least one minute, so a refresh every 20 s is always in time.
REFRESH_MS_MAX = 20_000
# The first in the queue polls often, because a commit holds the lock for milliseconds.
_HEAD_PAUSE_MS = (0.5, 10.0)
_QUEUE_PAUSE_MS = (1.0, 20.0)
# A lock file that was just put in place is judged only if it is still there then. Before that, a look at it
# is one ``stat``.
_JUDGE_AFTER_MS = 20.0
# If the first in the queue leaves a free lock for this long, anyone may take it.
_GRACE_MS = 25.0
# A removal takes microseconds; one that takes this long was suspended or works on a slow disk.
_REMOVAL_PATIENCE_MS = 1_000
# Between creating and locking its private file, a process could lose it to the sweep.
_SWEEP_AGE_MS = 10_000
_SWEEP_COUNT_MAX = 1_000
# A process keeps so many files of turns before, each with two descriptors.
_IDLE_MAX = 16
_LINK_ATTEMPTS_MAX = 10
_MISSING_FEATURE = {
    errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK, errno.EMLINK, errno.EXDEV,
}  # fmt: skip
_NETWORK = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "fuse",
    "virtiofs",
    "ceph",
    "lustre",
    "gluster",
    "afs",
    "gfs2",
)

_to_close_in_children: weakref.WeakSet[Forked] = weakref.WeakSet()


# By lock file and expiry: files of turns before, shared by all who lock the table in this process.
_idle: dict[tuple[str, int], list[_OwnFile]] = {}


def _close_in_child() -> None:
    for thing in list(_to_close_in_children):
        thing.after_fork()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def boot_identity() -> str:
    """Identifies one boot of one kernel; containers on one machine share it, as they share OS locks."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            found = file.read(64).strip()
    except (OSError, ValueError):
        found = ""
    return found or f"host-{socket.gethostname()}"


@contextmanager
def _storage_trouble(path: str, base: str) -> Iterator[None]:
    """Turn an ``OSError`` into ``Unavailable`` with path, reason and advice."""
    try:
        yield
    except OSError as error:
        raise Unavailable(_trouble(path, error), table=base) from error


def _trouble(path: str, error: OSError) -> str:
    if error.errno in _MISSING_FEATURE:
        return _missing_feature(path, error)
    advice = {
        errno.ENOSPC: "free some space",
        errno.EDQUOT: "free some space or raise the quota",
        errno.EROFS: "mount the file system for writing",
        errno.EACCES: "give this user write permission on the lock folder",
        errno.EPERM: "give this user write permission on the lock folder and the file in it",
        errno.ELOOP: "remove the symbolic link in this path",
        errno.ENOTDIR: "replace what is no folder by a folder",
        errno.ENOENT: "check that the table still exists",
        errno.EMFILE: "raise the limit of open files",
    }.get(error.errno or 0, "look at the disk")
    return f"lock file {path}: {error.strerror}: {advice}, then try again; nothing was written"


def _missing_feature(path: str, error: OSError) -> str:
    return (
        f"lock file {path}: the file system gives no hard links or OS locks ({error.strerror}); "
        "without them a lock cannot be put in place whole: keep the lock folder on a local POSIX "
        f"file system ({FOLDER}) or use the in-process lock"
    )


def _try_flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # EBADF: some network file systems need a descriptor open for writing; then only the time decides.
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EBADF):
            return False
        raise
    return True


def _mtime_ms(info: os.stat_result) -> int:
    return info.st_mtime_ns // 1_000_000


def _same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def _anybody_may_change(folder: os.stat_result) -> bool:
    return bool(folder.st_mode & 0o002) and not folder.st_mode & stat.S_ISVTX


class _PrivateFolder:
    """A descriptor of ``<folder>/.mainstem/locks``; follows no symbolic link below ``folder``."""

    def __init__(self, folder: str, base: str) -> None:
        self.lock_path = f"{folder}/{LOCK_NAME}"
        self._folder = folder
        try:
            self.fd = self._open()
        except FileNotFoundError:
            if folder.startswith(base):
                os.stat(base)  # raises if the table was deleted: do not recreate its folder
            os.makedirs(folder, exist_ok=True)
            self.fd = self._open(make=True)
        self._close = weakref.finalize(self, os.close, self.fd)
        self._close.atexit = False
        info = os.fstat(self.fd)
        if _anybody_may_change(info):
            self.close()
            raise Unavailable(
                f"{folder}/{'/'.join(PRIVATE_FOLDERS)}: anybody may replace files in this folder "
                f"(mode {stat.S_IMODE(info.st_mode):o}): remove the write permission of others",
                table=base,
            )

    def _open(self, make: bool = False) -> int:
        fd = os.open(self._folder, _FOLDER_FLAGS)
        for name in PRIVATE_FOLDERS:
            try:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o775, dir_fd=fd)
                below = os.open(name, _FOLDER_FLAGS | _NOFOLLOW, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
        return fd

    def close(self) -> None:
        self._close()

    def stands(self) -> bool:
        """Whether the path still leads to this folder, and only we may change it."""
        try:
            there = os.stat(f"{self._folder}/{'/'.join(PRIVATE_FOLDERS)}", follow_symlinks=False)
        except OSError:
            return False
        return _same_file(there, os.fstat(self.fd)) and not _anybody_may_change(there)

    def displace(
        self, name: str, matches: Callable[[os.stat_result], bool], *, keep: bool = False
    ) -> bool:
        """Remove the lock file if it ``matches``: True if done, False if it is another one or gone.

        ``keep``: it stays under the private ``name``.

        POSIX has no conditional removal, so the file is renamed aside first and checked again. If it turns
        out to be another file, it is linked back. Should a third process take the lock in between, the holder
        of that file finds out through its own ``check``.
        """
        if not self._path_matches(matches):
            return False
        try:
            os.rename(self.lock_path, name, dst_dir_fd=self.fd)
        except FileNotFoundError:
            if not self._path_matches(matches):
                return False
            os.unlink(self.lock_path)  # our private folder was deleted under us
            return True
        matched = matches(os.stat(name, dir_fd=self.fd, follow_symlinks=False))
        if not matched:
            self._put_back(name)
        elif keep:
            return True
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)
        return matched

    def _put_back(self, name: str) -> None:
        try:
            os.link(name, self.lock_path, src_dir_fd=self.fd, follow_symlinks=False)
        except (FileExistsError, FileNotFoundError):
            return
        except PermissionError:
            # Linux forbids links to another user's read-only file (fs.protected_hardlinks).
            if not self._path_matches(lambda _: True):
                os.rename(name, self.lock_path, src_dir_fd=self.fd)

    def _path_matches(self, matches: Callable[[os.stat_result], bool]) -> bool:
        try:
            return matches(os.stat(self.lock_path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def sweep(self, names: list[str], now_ms: int, min_age_ms: float) -> None:
        """Remove private files whose processes are dead (their OS lock is free), unless brand-new."""
        for name in names[:_SWEEP_COUNT_MAX]:
            if name.startswith((WAIT, _GONE, _IDLE)):
                with suppress(OSError):
                    self._sweep_one(name, now_ms - min_age_ms)

    def _sweep_one(self, name: str, newest_ms: float) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NOFOLLOW | _CLOEXEC, dir_fd=self.fd)
        try:
            if _mtime_ms(os.fstat(fd)) <= newest_ms and _try_flock(fd):
                os.unlink(name, dir_fd=self.fd)
        finally:
            os.close(fd)


class _OwnFile:
    """A file with our owner record and our OS lock on it, first under a private name."""

    def __init__(self, private: _PrivateFolder, name: str, unique: str, record: bytes) -> None:
        self.private = private
        self.name = name
        self.unique = unique
        self.record = record
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _CLOEXEC
        self.fd = os.open(name, flags, 0o444, dir_fd=private.fd)
        self._close = weakref.finalize(self, os.close, self.fd)
        self._close.atexit = False
        _to_close_in_children.add(self)
        try:
            if not _try_flock(self.fd):  # only a sweep can hold it, and is removing the file
                raise FileNotFoundError(errno.ENOENT, "swept", name)
            if os.write(self.fd, record) != len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
            self.info = os.fstat(self.fd)
        except BaseException:
            self.drop_name()
            self._close()
            raise

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def touch(self) -> int:
        """Set the file's time to the store's current time and return it (milliseconds)."""
        os.utime(self.fd)
        return _mtime_ms(os.fstat(self.fd))

    def take_name(self, name: str) -> None:
        """Give it another private name."""
        os.rename(self.name, name, src_dir_fd=self.private.fd, dst_dir_fd=self.private.fd)
        self.name = name

    def intact(self) -> bool:
        return os.pread(self.fd, len(self.record) + 1, 0) == self.record

    def matches(self, info: os.stat_result) -> bool:
        return _same_file(info, self.info) and self.intact()

    def drop_name(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.private.fd)

    def close(self) -> None:
        """Drop the OS lock (idempotent)."""
        self._close()
        self.private.close()

    def after_fork(self) -> None:
        """In a forked child: an open descriptor would keep the OS lock after the parent's death."""
        self.close()


class FileLease:
    """The lock is ours until released or lost; only ``FileSystemLock.acquire`` creates leases."""

    def __init__(
        self,
        file: _OwnFile,
        options: LockOptions,
        clock: Clock,
        refreshed_ms: float,
        idle: str,
        take_back: Callable[[_OwnFile], None],
    ) -> None:
        self._file = file
        self._options = options
        self._clock = clock
        self._refreshed_ms = refreshed_ms
        self._idle = idle
        self._take_back = take_back
        self._is_released = False
        self._lost: str | None = None
        self._pid = os.getpid()
        self._mutex = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether it was released, or its file was closed."""
        return self._is_released or self._file.closed

    def check(self) -> None:
        """Raise ``LeaseLost`` unless the file is still our own, whole and refreshed in time."""
        if self._pid != os.getpid():
            self._raise("it was taken before the process forked and belongs to the parent")
        with self._mutex, _storage_trouble(self._file.private.lock_path, self._options.base):
            self._lost = self._lost or self._found_wrong()
        if self._lost:
            self._raise(self._lost)

    def release(self) -> None:
        """Remove the lock file if it is still our own, and keep it for the next turn; never raises."""
        if self._pid != os.getpid():
            return
        with self._mutex:
            if self.is_over:
                return
            is_ours = False
            try:
                is_ours = self._file.private.displace(self._idle, self._file.matches, keep=True)
            except OSError as error:
                # Without its OS lock the file counts as a dead holder's: the next mainstem writer takes over.
                _log.warning(
                    "lock file %s could not be removed (%s): mainstem writers will take it over, "
                    "Java writers wait for its expiry",
                    self._file.private.lock_path,
                    error,
                )
            finally:
                # After an interrupt it is called again. Then it must neither leave the OS lock held nor
                # remove the file of another turn.
                if is_ours and not self._lost:
                    self._is_released = True
                    self._file.name = self._idle
                    self._take_back(self._file)
                else:
                    self._file.close()

    def refresh(self) -> None:
        """Called by the provider's periodic task: show the others that this holder is alive."""
        with self._mutex:
            if self.is_over or self._lost:
                return
            try:
                self._lost = self._found_wrong()
                if not self._lost:
                    now = self._clock.monotonic_ms()
                    self._file.touch()
                    self._refreshed_ms = now
            except OSError as error:
                _log.warning(
                    "lock file %s could not be refreshed: %s", self._file.private.lock_path, error
                )

    def _found_wrong(self) -> str | None:
        if self.is_over:
            return "it was released already"
        path = self._file.private.lock_path
        try:
            info = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return "the file is gone (a Java writer deletes it when it closes, whoever holds it)"
        if not _same_file(info, self._file.info):
            return f"the file belongs to {_describe_path(path)} now"
        if not self._file.intact():
            return "the file was overwritten (Java's local create is not exclusive)"
        silent_ms = self._clock.monotonic_ms() - self._refreshed_ms
        if silent_ms > self._options.expire_ms:
            return (
                f"it was not refreshed for {silent_ms:.0f} ms (was this process stopped?) and "
                f"expired after {self._options.expire_ms} ms ({EXPIRE_MS})"
            )
        return None

    def _raise(self, reason: str) -> None:
        raise LeaseLost(
            f"the table lock {self._file.private.lock_path} is no longer ours: {reason}. Nothing "
            "was published; take the lock again",
            table=self._options.base,
        )


def _describe_path(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | _NOFOLLOW | _CLOEXEC)
    except OSError:
        return "another writer"
    try:
        record = parse_owner_record(os.pread(fd, LOCK_FILE_BYTES_MAX + 1, 0))
    except OSError:
        record = None
    finally:
        os.close(fd)
    return record.describe() if record else "a foreign writer (no owner record in it)"


class FileSystemLock:
    """A table lock in a file. Threads, processes and Java writers may use one path concurrently.

    ``weaker`` names the guarantees that are missing if the folder is on a network file system; else None.
    """

    def __init__(self, options: LockOptions, *, clock: Clock, random: Randomness) -> None:
        if fcntl is None:
            raise Unavailable(
                f"no POSIX file locks on {sys.platform}: set {PROVIDER} to the "
                "in-process lock and let one process write"
            )
        self.identity = options.identity
        self.weaker = _weakness(options.folder)
        self.options = options
        self._path = f"{options.folder}/{LOCK_NAME}"
        self.clock = clock
        self.random = random
        self.boot = boot_identity()
        self.host = socket.gethostname() or "?"
        # Waiters that missed their turn once; this provider does not wait for them again.
        self.passed: set[str] = set()
        self.swept = False
        self.after_fork()
        _to_close_in_children.add(self)

    def after_fork(self) -> None:
        """Threads and leases of the parent do not exist in a child."""
        self._mutex = threading.Lock()
        self._refresher: Periodic | None = None
        self._leases: weakref.WeakSet[FileLease] = weakref.WeakSet()

    def acquire(self) -> FileLease:
        """Wait for the lock, first come first served, for at most ``options.patience_ms``.

        Raises ``LockUnavailable`` (who holds it, what to do) or ``Unavailable`` (storage trouble).
        """
        waiter: _Waiter | None = None
        try:
            with _storage_trouble(f"{self.options.folder}/{LOCK_NAME}", self.options.base):
                waiter = _Waiter(self)
                lease = waiter.wait()
                self._keep_refreshed(lease)
            return lease
        except BaseException:  # including Ctrl-C: nothing would ever release this lock
            if waiter is not None:
                waiter.withdraw()
            raise

    def idle_file(self) -> _OwnFile | None:
        """A file of a turn before; None if there is none that may be used again."""
        files = _idle.get((self._path, self.options.expire_ms), [])
        while files:
            try:
                file = files.pop()
            except IndexError:  # another thread took it
                return None
            if not file.closed and file.private.stands():
                return file
            file.close()
        return None

    def take_back(self, file: _OwnFile) -> None:
        """Keep the file of a turn that is over, for any lock of this process on this path."""
        _idle.setdefault((self._path, self.options.expire_ms), []).append(file)
        _remove_idle(_IDLE_MAX)

    def _keep_refreshed(self, lease: FileLease) -> None:
        with self._mutex:
            self._leases.add(lease)
            if self._refresher is None:
                interval_ms = min(self.options.expire_ms / 3, REFRESH_MS_MAX)
                self._refresher = self.clock.every_ms(interval_ms, self._refresh, "lock-refresh")

    def _refresh(self) -> None:
        with self._mutex:
            leases = [lease for lease in self._leases if not lease.is_over]
            if not leases and self._refresher is not None:
                self._refresher.stop()
                self._refresher = None
        if not leases:  # whoever is idle keeps no file open
            while (file := self.idle_file()) is not None:
                _remove_file(file)
        for lease in leases:
            lease.refresh()


def _remove_idle(most: int = 0) -> None:
    """Remove files of turns before, until there are at most so many."""
    while sum(map(len, list(_idle.values()))) > most:
        with suppress(StopIteration, LookupError, RuntimeError):  # another thread is at it
            key = next(iter(_idle))
            files = _idle[key]
            if not files:
                _idle.pop(key, None)
                continue
            _remove_file(files.pop(0))


def _remove_file(file: _OwnFile) -> None:
    with suppress(OSError):
        file.drop_name()
    file.close()


atexit.register(_remove_idle)


class _Waiter:
    """One call of ``acquire``: its place in the queue, and what it has seen of the current holder."""

    def __init__(self, lock: FileSystemLock) -> None:
        self.lock = lock
        self.options = lock.options
        self.clock = lock.clock
        self.path = f"{self.options.folder}/{LOCK_NAME}"
        self.patience = Patience(self.options, self.clock, f"lock file {self.path}")
        self.file = self._queued() or self._new_file()
        self.ahead: list[str] = []
        self.free_since_ms: float | None = None
        self.removal_busy_since_ms: float | None = None
        self.seen: tuple[object, ...] | None = None
        self.seen_since_ms = 0.0
        # The lock file at the latest look, and when it was judged or first seen.
        self.looked_at: tuple[int, ...] | None = ()
        self.looked_ms = 0.0
        self.held_by = "another writer"

    def withdraw(self) -> None:
        """Leave the queue, and remove the lock file if it is ours already."""
        if not self.file.closed:
            with suppress(OSError):
                self.private.displace(self._gone_name(), self.file.matches)
            with suppress(OSError):
                self.file.drop_name()
            self.file.close()

    def wait(self) -> FileLease:
        while (lease := self._try()) is None:
            left_ms = self.patience.left_ms(self.held_by, self._refusal)
            self.clock.sleep_ms(min(self._pause_ms(self.patience.waited_ms), left_ms))
        return lease

    def _refusal(self, waited_ms: float) -> str:
        return (
            f"lock file {self.path} was held by {self.held_by} for the {waited_ms:.0f} ms that "
            f"{WAIT_MS} and {RETRIES} allow. Wait for that writer or stop it; if there is none, "
            f"delete the file, or set {FOREIGN_EXPIRE_MIN} for files that Java left"
        )

    def _pause_ms(self, waited_ms: float) -> float:
        """Milliseconds until the next look: the first in the queue starts at 0.5, the others wait longer."""
        low, high = _QUEUE_PAUSE_MS if self.ahead else _HEAD_PAUSE_MS
        pause = min(max(low * (1 + len(self.ahead)), waited_ms / 40), high)
        return pause * (0.5 + self.lock.random.random())

    def _try(self) -> FileLease | None:
        if self._is_as_before():
            self.free_since_ms = None
            return None
        self._look_at_queue()
        # A file that is put in place only now makes the link fail.
        if self.looked_at is not None and not self._look_at_lock():
            self.free_since_ms = None
            return None
        if self.ahead and not self._turn_was_missed():
            self.held_by = "nobody (other writers wait for it too)"
            return None
        return self._link()

    def _is_as_before(self) -> bool:
        """Whether the lock is held, and nothing more need be looked at now.

        The first look judges the holder. A later holder is judged once it has been there for a while: many
        waiters that read and judge the file of each holder take the time that the holders need.
        """
        try:
            info = os.stat(self.path, follow_symlinks=False)
            found: tuple[int, ...] | None = (info.st_dev, info.st_ino, info.st_mtime_ns)
        except FileNotFoundError:
            found = None
        now, before, self.looked_at = self.clock.monotonic_ms(), self.looked_at, found
        if found is None or before == ():
            self.looked_ms = now
            return False
        if found != before:
            self.looked_ms = now
            self._look_at_queue()
            return True
        if now - self.looked_ms < _JUDGE_AFTER_MS:
            return True
        self.looked_ms = now
        return False

    # The queue serves fairness, not safety.

    def _look_at_queue(self) -> None:
        names = os.listdir(self.private.fd)
        if not self.lock.swept:
            self.lock.swept = True
            self.private.sweep(names, self.file.touch(), _SWEEP_AGE_MS)
        self.lock.passed.intersection_update(names)
        mine = self.file.name
        queue = mine[: len(WAIT) + 9]  # only waiters on this machine: one clock orders their names
        self.ahead = [
            name
            for name in names
            if name < mine and name.startswith(queue) and name not in self.lock.passed
        ]

    def _turn_was_missed(self) -> bool:
        now = self.clock.monotonic_ms()
        if self.free_since_ms is None:
            self.free_since_ms = now
        if now - self.free_since_ms < _GRACE_MS:
            return False
        self.lock.passed.update(self.ahead)
        self.private.sweep(self.ahead, self.file.touch(), _GRACE_MS)
        return True

    # Taking the lock.

    @property
    def private(self) -> _PrivateFolder:
        return self.file.private

    def _place(self, unique: str) -> str:
        """The name of our place in the queue."""
        boot, began_us = self.lock.boot[:8], int(self.patience.started_ms * 1e3)
        return f"{WAIT}{boot:_<8}-{began_us:018d}-{unique}".replace("/", "_")

    def _queued(self) -> _OwnFile | None:
        """The file of a turn before, in the queue; None if there is none."""
        while (file := self.lock.idle_file()) is not None:
            try:
                file.take_name(self._place(file.unique))
                return file
            except OSError:  # swept while this process was stopped, say
                file.close()
            except BaseException:
                file.close()
                raise
        return None

    def _new_file(self) -> _OwnFile:
        private = _PrivateFolder(self.options.folder, self.options.base)
        try:
            return self._new_file_in(private)
        except BaseException:
            private.close()
            raise

    def _new_file_in(self, private: _PrivateFolder) -> _OwnFile:
        pid = os.getpid()
        for _ in range(_LINK_ATTEMPTS_MAX):
            unique = f"{pid}-{self.lock.random.getrandbits(64):016x}"
            record = OwnerRecord(
                owner=unique,
                host=self.lock.host,
                boot=self.lock.boot,
                pid=pid,
                created_ms=max(self.clock.now_ms(), 0),
                expire_ms=self.options.expire_ms,
            )
            with suppress(FileExistsError, FileNotFoundError):
                return _OwnFile(private, self._place(unique), unique, record.encode())
        raise FileNotFoundError(errno.ENOENT, "the private lock folder vanishes again and again")

    def _link(self) -> FileLease | None:
        for _ in range(_LINK_ATTEMPTS_MAX):
            now = self.clock.monotonic_ms()
            os.utime(self.file.fd)
            try:
                os.link(
                    self.file.name, self.path, src_dir_fd=self.private.fd, follow_symlinks=False
                )
            except FileExistsError:
                # A network file system may resend a successful call and report the second as a failure.
                if os.fstat(self.file.fd).st_nlink < 2 or not self._is_in_place():
                    return None
            except PermissionError as error:
                if error.errno != errno.EPERM:
                    raise
                # Linux file systems without hard links (FAT, some FUSE) answer EPERM.
                raise Unavailable(
                    _missing_feature(self.path, error), table=self.options.base
                ) from error
            except FileNotFoundError:  # swept while this process was stopped, or no folder
                os.stat(self.options.folder)
                self.file.close()
                self.file = self._new_file()
                continue
            return self._lease(now)
        raise FileNotFoundError(errno.ENOENT, "the private lock folder vanishes again and again")

    def _is_in_place(self) -> bool:
        try:
            return self.file.matches(os.stat(self.path, follow_symlinks=False))
        except FileNotFoundError:
            return False

    def _lease(self, refreshed_ms: float) -> FileLease:
        idle = self._gone_name().replace(_GONE, _IDLE, 1)
        lease = FileLease(
            self.file, self.options, self.clock, refreshed_ms, idle, self.lock.take_back
        )
        self.file.drop_name()
        return lease

    def _gone_name(self) -> str:
        return f"{_GONE}{os.getpid()}-{self.lock.random.getrandbits(64):016x}"

    # Judging the current holder.

    def _look_at_lock(self) -> bool:
        """True if the lock is free, also if this call just removed a dead or expired holder's file."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | _NOFOLLOW | _CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.ELOOP, errno.ENXIO):
                raise
            return self._judge_unreadable()
        try:
            info = os.fstat(fd)
            record = None
            if stat.S_ISREG(info.st_mode):
                content = os.pread(fd, LOCK_FILE_BYTES_MAX + 1, 0)
                record = parse_owner_record(content)
            if record is None:
                return self._judge_foreign(info)
            return self._judge_owner(fd, info, record, content)
        finally:
            os.close(fd)

    def _judge_unreadable(self) -> bool:
        try:
            return self._judge_foreign(os.stat(self.path, follow_symlinks=False))
        except FileNotFoundError:
            return True

    def _judge_foreign(self, info: os.stat_result) -> bool:
        if not stat.S_ISREG(info.st_mode):
            self.held_by = "something that is not a regular file (a link or a folder?)"
            return False
        age_ms = self.file.touch() - _mtime_ms(info)
        expire_ms = self.options.foreign_expire_ms
        expiry = f"expires at {expire_ms // 1000} s" if expire_ms else "never expires"
        self.held_by = (
            f"a foreign writer (file without owner record, age {age_ms / 1000:.1f} s, {expiry}: "
            f"{FOREIGN_EXPIRE_MIN})"
        )
        if not expire_ms or age_ms <= expire_ms:
            return False

        def unchanged(now: os.stat_result) -> bool:
            return _same_file(now, info) and now.st_mtime_ns == info.st_mtime_ns

        if not self._remove(unchanged):
            return False
        _log.warning("removed %s after %.0f s: %s", self.path, age_ms / 1000, self.held_by)
        with suppress(OSError):  # Hadoop's checksum of the removed file
            os.unlink(f"{self.options.folder}/.{LOCK_NAME}.crc")
        return True

    def _judge_owner(
        self, fd: int, info: os.stat_result, record: OwnerRecord, content: bytes
    ) -> bool:
        self.held_by = record.describe()
        dead = record.boot == self.lock.boot and _try_flock(fd)
        if not dead and not self._expired(info, record):
            return False

        def unchanged(now: os.stat_result) -> bool:
            return (
                _same_file(now, info)
                and now.st_mtime_ns == info.st_mtime_ns
                and os.pread(fd, len(content) + 1, 0) == content
            )

        if not self._remove(unchanged):
            return False
        reason = "died" if dead else f"did not refresh it for {record.patience_ms} ms"
        _log.warning("took over %s: %s %s", self.path, self.held_by, reason)
        return True

    def _expired(self, info: os.stat_result, record: OwnerRecord) -> bool:
        """Whether the file was not refreshed for the record's expiry, by our clock or by the store's.

        With the store's clock alone, a jump of the time of day would take the lock from a live holder. So we
        must also have watched the file stay unchanged for longer than a live holder's refresh interval.
        """
        now = self.clock.monotonic_ms()
        seen = (record.owner, info.st_mtime_ns)
        if seen != self.seen:
            self.seen, self.seen_since_ms = seen, now
        watched_ms = now - self.seen_since_ms
        if watched_ms <= 1.25 * min(record.patience_ms / 3, REFRESH_MS_MAX):
            return False
        return (
            watched_ms > record.patience_ms
            or self.file.touch() - _mtime_ms(info) > record.patience_ms
        )

    def _remove(self, unchanged: Callable[[os.stat_result], bool]) -> bool:
        """Remove another holder's file; one contender at a time, unless that one is stuck."""
        flags = os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | _NOFOLLOW | _CLOEXEC
        fd = os.open(_REMOVAL, flags, 0o664, dir_fd=self.private.fd)
        try:
            if not _try_flock(fd) and not self._removal_is_stuck():
                return False
            self.removal_busy_since_ms = None
            return self.private.displace(self._gone_name(), unchanged)
        finally:
            os.close(fd)

    def _removal_is_stuck(self) -> bool:
        now = self.clock.monotonic_ms()
        if self.removal_busy_since_ms is None:
            self.removal_busy_since_ms = now
        return now - self.removal_busy_since_ms > _REMOVAL_PATIENCE_MS


def _weakness(folder: str) -> str | None:
    kind = _file_system_kind(os.path.realpath(folder))
    if not kind or not kind.startswith(_NETWORK):
        return None
    return (
        f"the lock folder {folder} is on {kind}: OS locks and file times of other machines may be "
        "seen late there, a dead holder is replaced only after its expiry, and a writer that lost "
        "the lock may notice it late. Full promises hold on local POSIX file systems only"
    )


def _file_system_kind(path: str) -> str | None:
    """The type of the file system that holds ``path`` (Linux); None if it cannot be determined."""
    best, kind = -1, None
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                fields, _, tail = line.partition(" - ")
                point = fields.split(" ")[4].replace("\\040", " ").rstrip("/")
                if (path == point or path.startswith(point + "/")) and len(point) >= best:
                    best, kind = len(point), tail.split(" ")[0]
    except (OSError, IndexError):
        return None
    return kind
