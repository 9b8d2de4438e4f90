"""The file-system lock on HDFS: ``<folder>/lock``, which Java's ``FileSystemBasedLockProvider`` respects.

Java takes the lock by creating the file without overwriting, which HDFS does atomically, and frees it by
deleting it, whoever owns it. Here each waiting thread has a file of its own, ``.mainstem/locks/wait-...`` in
the same folder, with its owner record. Taking the lock renames it to ``lock``, which fails if there is one;
freeing it renames it back. So a file is written once, and taking the lock costs two calls of about 1 ms.

* A file with our record is judged by its time, by the name node's clock: a live holder refreshes it. After
  ``hoodie.mainstem.lock.expire_ms`` of its holder it may be taken over.
* A file without our record is Java's. It is removed only after ``hoodie.write.lock.filesystem.expire``
  minutes (0 = never).
* ``check`` reads the file: it is ours if it holds our record, whose owner nobody else has.
* To remove a file, a contender renames it aside and looks again; another one than was judged is put back.

HDFS has no OS locks, so the death of a holder shows only by its silence, as on other machines in
``file_system``.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from mainstem.errors import CorruptTable, LeaseLost, Unavailable
from mainstem.forks import told_of_forks
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.options.locks import EXPIRE_MS, FOREIGN_EXPIRE_MIN, PROVIDER, RETRIES, WAIT_MS
from mainstem.storage.protocol import FileInfo, Storage
from mainstem.storage.renames import renames
from mainstem.truetime.locks.options import LOCK_NAME, LockOptions
from mainstem.truetime.locks.owner_record import OwnerRecord, parse_owner_record
from mainstem.truetime.locks.patience import Patience

if TYPE_CHECKING:
    from mainstem.truetime.clock import Clock, Periodic
    from mainstem.truetime.seams import Randomness

_log = logging.getLogger(__name__)

REFRESH_MS_MAX = 20_000
# A commit holds the lock for some ten milliseconds.
_PAUSE_MS = (5.0, 100.0)
# A waiting file belongs to a process that may be idle for long; one that finds it gone makes another.
_SWEEP_AGE_MS = 24 * 3_600_000
_TRIES_MAX = 3


class RenameLease:
    """The lock is ours until released or lost; only ``RenameLock.acquire`` creates leases."""

    def __init__(self, lock: RenameLock, private: str, record: bytes) -> None:
        self._lock = lock
        self._record = record
        self._private: str | None = private
        self._refreshed_ms = lock.clock.monotonic_ms()
        self._lost: str | None = None
        self._pid = os.getpid()
        self._mutex = threading.Lock()

    @property
    def held(self) -> bool:
        """Whether it is ours, as far as this process knows."""
        return self._private is not None and self._lost is None

    def check(self) -> None:
        """Raise ``LeaseLost`` unless the file is still our own and was refreshed in time."""
        if self._pid != os.getpid():
            self._raise("it was taken before the process forked and belongs to the parent")
        with self._mutex:
            if self._lost is None:
                try:
                    self._lost = self._found_wrong()
                except OSError as error:
                    raise self._lock.trouble(error) from error
        if self._lost:
            self._raise(self._lost)

    def refresh(self) -> None:
        """Show the others that this holder is alive."""
        with self._mutex:
            if not self.held:
                return
            try:
                self._lost = self._found_wrong()
                if self._lost is None:
                    now = self._lock.clock.monotonic_ms()
                    self._lock.storage.renew(self._lock.path)
                    self._refreshed_ms = now
            except OSError as error:
                _log.warning("%s could not be refreshed: %s", self._lock.place, error)

    def release(self) -> None:
        """Take the file away if it is still our own; never raises. After an interrupt it may be repeated."""
        if self._pid != os.getpid():
            return
        with self._mutex:
            private = self._private
            if private is None:
                return
            try:
                ours = self._lock.content() == self._record
                if ours:
                    with suppress(FileNotFoundError):
                        renames(self._lock.storage).rename_new(self._lock.path, private)
                # Only now, for an interrupt, and before the file may be another lease's.
                self._private = None
                if ours:
                    self._lock.keep(private, self._record)
            except (OSError, CorruptTable) as error:
                self._private = None
                _log.warning(
                    "%s could not be removed (%s): mainstem writers take it over after %d ms, Java writers"
                    " wait for its expiry", self._lock.place, error, self._lock.options.expire_ms,
                )  # fmt: skip

    def _found_wrong(self) -> str | None:
        if self._private is None:
            return "it was released already"
        found = self._lock.content()
        if found is None:
            return "the file is gone (a Java writer deletes it when it closes, whoever holds it)"
        if found != self._record:
            return f"the file belongs to {_describe(found)} now"
        silent_ms = self._lock.clock.monotonic_ms() - self._refreshed_ms
        if silent_ms > self._lock.options.expire_ms:
            return (
                f"it was not refreshed for {silent_ms:.0f} ms (was this process stopped?) and expired after"
                f" {self._lock.options.expire_ms} ms ({EXPIRE_MS})"
            )
        return None

    def _raise(self, reason: str) -> None:
        raise LeaseLost(
            f"the table lock {self._lock.place} is no longer ours: {reason}. Nothing was published; take the"
            " lock again",
            table=self._lock.options.base,
        )


class RenameLock:
    """A table lock in a file on HDFS, shared with Java. Threads and processes may use it concurrently."""

    weaker: str | None = None

    def __init__(self, options: LockOptions, storage: Storage, *, clock: Clock, random: Randomness) -> None:
        self.identity = options.identity
        self.options = options
        self.storage = storage
        self.clock = clock
        self.random = random
        folder = options.folder.removeprefix(options.base).strip("/")
        self.path = f"{folder}/{LOCK_NAME}"
        self.place = f"lock file {options.folder}/{LOCK_NAME}"
        self._privates = f"{folder}/.mainstem/locks"
        self._host = socket.gethostname() or "?"
        self.after_fork()
        told_of_forks(self)

    def after_fork(self) -> None:
        """Threads, files and leases of the parent do not exist in a child."""
        self._mutex = threading.Lock()
        self._refresher: Periodic | None = None
        self._leases: weakref.WeakSet[RenameLease] = weakref.WeakSet()
        #: private files that wait to be used again, with their records
        self._free: list[tuple[str, bytes]] = []
        self._swept = False

    def acquire(self) -> RenameLease:
        """Wait for the lock for at most ``options.patience_ms``.

        Raises ``LockUnavailable`` (who holds it, what to do) or ``Unavailable`` (storage trouble).
        """
        try:
            return self._wait()
        except OSError as error:
            raise self.trouble(error) from error

    def trouble(self, error: OSError) -> Unavailable:
        """An error of the store, as users see it."""
        return Unavailable(f"{self.place}: {error}; nothing was written", table=self.options.base)

    def content(self) -> bytes | None:
        """What the lock file holds; None if there is none."""
        try:
            return self.storage.read(self.path, max_bytes=LOCK_FILE_BYTES_MAX)
        except FileNotFoundError:
            return None

    def keep(self, private: str, record: bytes) -> None:
        """Use this private file again."""
        with self._mutex:
            self._free.append((private, record))

    # -- waiting -----------------------------------------------------------------------------------

    def _wait(self) -> RenameLease:
        patience = Patience(self.options, self.clock, self.place)
        pause_ms = _PAUSE_MS[0]
        private, record = self._own_file()
        try:
            for tries in range(1, 1_000_000):
                lease = RenameLease(self, private, record)
                try:
                    self.storage.renew(private)
                    if self._take(private, record):
                        self._keep_refreshed(lease)
                        return lease
                except FileNotFoundError:  # swept, or the table is gone
                    if tries > _TRIES_MAX and self.storage.stat("") is None:
                        raise
                    private, record = self._own_file(again=True)
                    continue
                held_by = self._judge(private)
                if held_by is None:
                    continue
                left_ms = patience.left_ms(held_by, partial(self._refusal, held_by))
                self.clock.sleep_ms(min(left_ms, pause_ms * (0.5 + self.random.getrandbits(16) / 2**16)))
                pause_ms = min(2 * pause_ms, _PAUSE_MS[1])
            raise AssertionError("unreachable")
        except BaseException:  # including Ctrl-C: nothing would ever free this lock
            with suppress(OSError, CorruptTable):
                if self.content() == record:
                    renames(self.storage).rename_new(self.path, private)
            self.keep(private, record)
            raise

    def _take(self, private: str, record: bytes) -> bool:
        try:
            renames(self.storage).rename_new(private, self.path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if self.content() != record:  # else the reply to a first try was lost
                raise
        return True

    def _own_file(self, *, again: bool = False) -> tuple[str, bytes]:
        """A private file with a record that nobody else has."""
        with self._mutex:
            if self._free and not again:
                return self._free.pop()
            sweeps, self._swept = not self._swept, True
        identity = f"{self.random.getrandbits(128):032x}"
        record = OwnerRecord(
            owner=identity,
            host=self._host,
            boot="none",  # no OS locks on HDFS
            pid=os.getpid(),
            created_ms=self.clock.now_ms(),
            expire_ms=self.options.expire_ms,
        ).encode()
        path = f"{self._privates}/wait-{identity}"
        if self.storage.stat("") is None:  # the table was deleted: do not bring its folder back
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        self.storage.put_new(path, record, durable=False)
        if sweeps:
            self._sweep(path)
        return path, record

    def _sweep(self, own: str) -> None:
        """Remove old private files, of processes that ended."""
        entries = {e.name: e.mtime_ms for e in self.storage.entries(self._privates)}
        now_ms = entries.get(own.rpartition("/")[2], 0)
        for name, mtime_ms in entries.items():
            if now_ms - mtime_ms > _SWEEP_AGE_MS:
                with suppress(OSError):
                    self.storage.delete(f"{self._privates}/{name}")

    # -- other holders -----------------------------------------------------------------------------

    def _judge(self, private: str) -> str | None:
        """Who holds the lock; None if it is free now. ``private`` was renewed just before."""
        info, now = self.storage.stat(self.path), self.storage.stat(private)
        if info is None or now is None:
            return None
        try:
            content = self.content()
        except CorruptTable:
            content = b""
        if content is None:
            return None
        record = parse_owner_record(content)
        patience_ms = self.options.foreign_expire_ms if record is None else record.patience_ms
        silent_ms = now.mtime_ms - info.mtime_ms
        if patience_ms and silent_ms > patience_ms:
            self._displace(info, content)
            return None
        return _describe(content)

    def _displace(self, info: FileInfo, content: bytes) -> None:
        """Remove a lock file that was judged dead, and no other one."""
        aside = f"{self._privates}/gone-{self.random.getrandbits(128):032x}"
        with suppress(FileNotFoundError, FileExistsError):
            renames(self.storage).rename_new(self.path, aside)
            found = self.storage.stat(aside)
            same = found is not None and (found.size, found.mtime_ms) == (info.size, info.mtime_ms)
            if same and self.storage.read(aside, max_bytes=LOCK_FILE_BYTES_MAX) == content:
                _log.warning("%s was taken over from %s", self.place, _describe(content))
                self.storage.delete(aside)
            else:
                renames(self.storage).rename_new(aside, self.path)

    def _refusal(self, held_by: str, waited_ms: float) -> str:
        return (
            f"{self.place} is held by {held_by}, waited {waited_ms / 1000:.1f} s ({WAIT_MS} and {RETRIES}"
            f" times). Nothing was written. If that writer is gone: {FOREIGN_EXPIRE_MIN} lets files of Java"
            f" expire, or delete the file; all writers of the table need the same {PROVIDER}"
        )

    # -- refreshing --------------------------------------------------------------------------------

    def _keep_refreshed(self, lease: RenameLease) -> None:
        with self._mutex:
            self._leases.add(lease)
            if self._refresher is None:
                interval_ms = min(self.options.expire_ms / 3, REFRESH_MS_MAX)
                self._refresher = self.clock.every_ms(interval_ms, self._refresh, "lock-refresh")

    def _refresh(self) -> None:
        with self._mutex:
            held = [lease for lease in self._leases if lease.held]
            if not held and self._refresher is not None:
                self._refresher.stop()
                self._refresher = None
        for lease in held:
            lease.refresh()


def _describe(content: bytes) -> str:
    record = parse_owner_record(content)
    return record.describe() if record else "a foreign writer (no owner record in it)"
