"""Heartbeats: ``.hoodie/.heartbeat/<instant>`` shows that an instant's writer lives.

HoodieHeartbeatClient's files and settings (``hoodie.client.heartbeat.interval_in_ms`` 60000,
``hoodie.client.heartbeat.tolerable.misses`` 2). Java judges by its own clock against the file's
time; mainstem compares two times of the *store*, so a skewed clock kills nobody.

**Who says when a writer counts as dead.** The writer itself: its file holds for how long it may stay without
a beat (``encode_promise``), and everybody judges it by that, whatever they were opened with. Who takes a
heartbeat over (``adopt``) beats so often that what the file says holds. Java's files are empty, and so is one
of ours that a crash of the machine cut: they are judged by the longest of the own settings and those of the
table, or Hudi's defaults where the table has none. Java in turn never looks into a file and judges ours by
its own settings: ours are refreshed at least as often as the table, or Hudi's default, asks for.

**Fork.** A child has none of its parent's heartbeats: it neither refreshes nor ends them, and begins its own.
"""

from __future__ import annotations

import json
import warnings
import weakref
from collections import deque
from collections.abc import Callable

from mainstem.errors import CorruptTable
from mainstem.forks import Mutex, told_of_forks
from mainstem.limits import HEARTBEAT_BYTES_MAX, HEARTBEAT_EXPIRE_MS_MAX, HEARTBEAT_EXPIRE_MS_MIN
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.truetime.clock import Clock, Periodic

HUDI_INTERVAL_MS, HUDI_MISSES = 60_000, 2
_EXPIRES = "expires_after_ms"


def encode_promise(expire_ms: int) -> bytes:
    """Content of a heartbeat: after how many milliseconds without a beat its writer counts as dead."""
    return json.dumps({"mainstem": 1, _EXPIRES: expire_ms}, separators=(",", ":")).encode() + b"\n"


def parse_promise(content: bytes) -> int | None:
    """What ``encode_promise`` was given; None for an empty file, Java's, and for anything damaged."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return None
    found = fields.get(_EXPIRES) if isinstance(fields, dict) else None
    if type(found) is not int or not HEARTBEAT_EXPIRE_MS_MIN <= found <= HEARTBEAT_EXPIRE_MS_MAX:
        return None
    return found


class Heartbeats:
    """Keeps the heartbeats of one process's open transactions on one table fresh.

    ``interval_ms`` and ``misses`` are this process's, ``table`` the table's own for both, which others go by.
    ``path``: where the heartbeat of an instant is, another one for work that has no instant.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        interval_ms: int,
        misses: int,
        path: Callable[[str], str] = paths.heartbeat,
        *,
        table: tuple[int, int] = (HUDI_INTERVAL_MS, HUDI_MISSES),
    ) -> None:
        self._storage = storage
        self._path = path
        self._clock = clock
        self.interval_ms = interval_ms
        self.expire_ms = interval_ms * misses
        #: for how long whoever shows no promise counts as alive: Java's writers and executors
        self.silent_ms = max(self.expire_ms, table[0] * table[1])
        self._often_ms = min(interval_ms, table[0])
        self._guard = Mutex()
        self._live: dict[str, object] = {}
        self._inherited: set[str] = set()
        self._dropped: deque[tuple[str, object]] = deque()
        self._reserved: dict[str, float] = {}
        self._task: Periodic | None = None
        self._task_ms = 0
        told_of_forks(self)

    def after_fork(self) -> None:
        """In a forked child: nothing beats here, and what the parent began is the parent's."""
        self._inherited |= set(self._live)
        self._live = {}
        self._dropped = deque()
        self._task = None

    def start(self, instant: str) -> None:
        """First beat, before the requested file exists; then one each interval, beside the caller."""
        promised_ms = self.expire_ms
        if not self._made(instant):
            self._storage.renew(self._path(instant))
            promised_ms = self._promised_ms(instant)
        self._hold(instant, promised_ms)

    def reserve(self, instant: str) -> bool:
        """``start``, for a time that must be nobody else's: False, and nothing is done, if it has a
        heartbeat."""
        self._reserved[instant] = self._clock.monotonic_ms()
        if not self._made(instant):
            del self._reserved[instant]
            return False
        try:
            self._hold(instant, self.expire_ms)
        except BaseException:
            self.stop(instant)
            raise
        return True

    def kept(self, instant: str) -> bool:
        """Whether a reserved heartbeat is still there. It is not looked up before anybody could have removed
        it."""
        since_ms = self._clock.monotonic_ms() - self._reserved.pop(instant)
        return since_ms < self.expire_ms / 2 or self._storage.stat(self._path(instant)) is not None

    def claim(self, instant: str, store_now_ms: Callable[[], int]) -> bool:
        """Begin to beat for work that one process at a time does, unless somebody alive does it.

        ``store_now_ms`` gives the store's clock. A heartbeat that has expired is taken over.
        """
        if self._storage.stat(self._path(instant)) is not None:
            if not self.expired(instant, store_now_ms()):
                return False
        elif not self._made(instant):
            return False
        self.adopt(instant)
        return True

    def _made(self, instant: str) -> bool:
        try:
            self._storage.put_new(self._path(instant), encode_promise(self.expire_ms), durable=False)
        except FileExistsError:
            return False
        self._inherited.discard(instant)
        return True

    def _hold(self, instant: str, promised_ms: int) -> None:
        """Beat for an instant from now on, at least twice within what its file says."""
        interval_ms = min(self._often_ms, promised_ms // 2)
        with self._guard.held:
            self._live[instant] = object()
            if self._task is not None and interval_ms < self._task_ms:
                self._task.stop()
                self._task = None
            if self._task is None:
                self._task_ms = interval_ms
                self._task = self._clock.every_ms(interval_ms, self.beat, "heartbeat")

    def beat(self) -> None:
        """Refresh all; a heartbeat that a rollback removed is not brought back."""
        self._forget_dropped()
        for instant in sorted(self._live):
            try:
                self._storage.renew(self._path(instant))
            except FileNotFoundError:
                self._live.pop(instant, None)
            except OSError:
                continue  # slow or failing storage: the next beat tries again

    def adopt(self, instant: str) -> None:
        """Keep the heartbeat of a transaction that another process began; a removed one stays away.

        Whoever is interrupted in here has adopted nothing: no caller knows of it, to end it.
        """
        self._inherited.discard(instant)
        try:
            self._hold(instant, self._promised_ms(instant))
            self.beat()
        except BaseException:
            self.leave(instant)
            raise

    def end_with(self, owner: object, instant: str) -> None:
        """Beat for an instant no longer than ``owner`` lives.

        What is dropped without having ended is named by a ``ResourceWarning`` and counts as dead when its
        heartbeat has expired.
        """
        beat = self._live.get(instant)
        if beat is not None:
            finalizer = weakref.finalize(owner, self._drop, instant, beat)
            finalizer.atexit = False  # the process ends, and with it the beats

    def _drop(self, instant: str, beat: object) -> None:
        # Of garbage collection, in any thread and between any two steps: no lock, no storage, nothing shared
        # is changed in place. The next beat finds it.
        if self._live.get(instant) is not beat:
            return
        self._dropped.append((instant, beat))
        warnings.warn(
            f"the open transaction {instant} was dropped without commit or abort: nothing of it will be"
            " visible, and a later writer rolls it back when its heartbeat has expired; use it as a context"
            f" manager [table {self._storage.base}]",
            ResourceWarning,
            stacklevel=2,
        )

    def _forget_dropped(self) -> None:
        while self._dropped:
            instant, beat = self._dropped.popleft()
            if self._live.get(instant) is beat:
                self.leave(instant)

    def leave(self, instant: str) -> None:
        """No more beats from this process; the file stays, for another process adopts it."""
        with self._guard.held:
            self._live.pop(instant, None)
            if not self._live and self._task is not None:
                self._task.stop()
                self._task = None

    def stop(self, instant: str) -> None:
        """No more beats; the file goes, now or, if that fails, with a later clean-up.

        That of the process from which this one was forked stays.
        """
        self.leave(instant)
        self._reserved.pop(instant, None)
        if instant in self._inherited:
            return
        try:
            self._storage.delete(self._path(instant))
        except OSError:
            return

    def expired(self, instant: str, store_now_ms: int) -> bool:
        """Whether a writer counts as dead: no heartbeat, or none for as long as it said itself.

        ``store_now_ms`` is the store's clock (the time of a file just written), not this machine's.
        """
        info = self._storage.stat(self._path(instant))
        if info is None:
            return True
        silent_ms = store_now_ms - info.mtime_ms
        return silent_ms > HEARTBEAT_EXPIRE_MS_MIN and silent_ms > self._promised_ms(instant)

    def _promised_ms(self, instant: str) -> int:
        """For how long its writer, or whoever keeps it, may be silent."""
        try:
            content = self._storage.read(self._path(instant), max_bytes=HEARTBEAT_BYTES_MAX)
        except (FileNotFoundError, CorruptTable):
            return self.silent_ms
        told = parse_promise(content)
        return self.silent_ms if told is None else told
