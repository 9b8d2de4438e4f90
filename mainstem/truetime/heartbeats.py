"""Heartbeats: the file ``.hoodie/.heartbeat/<instant>`` shows that an instant's writer is alive.

Files and settings are those of HoodieHeartbeatClient (``hoodie.client.heartbeat.interval_in_ms`` 60000,
``hoodie.client.heartbeat.tolerable.misses`` 2). Java compares its own clock with the file's time; mainstem
compares two times of the *store*, so a skewed clock never makes a live writer look dead.

**When a writer counts as dead.** The writer itself decides: its file says how long it may go without a beat
(``encode_promise``), and every mainstem process judges it by that, whatever its own settings are. A process
that takes a heartbeat over (``adopt``) beats often enough to keep that promise. Java's files are empty, and
so is one of ours that was truncated by a machine crash. Those are judged by the longer of this process's
settings and the table's, or Hudi's defaults where the table has none. Java never reads the content and judges
our files by its own settings, so we refresh them at least as often as the table, or Hudi's default, asks for.

**Fork.** A child inherits no heartbeats: it neither refreshes nor ends its parent's, and starts its own.
"""

from __future__ import annotations

import json
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from functools import lru_cache

from mainstem.errors import CorruptTable
from mainstem.forks import Mutex, told_of_forks
from mainstem.limits import HEARTBEAT_BYTES_MAX, HEARTBEAT_EXPIRE_MS_MAX, HEARTBEAT_EXPIRE_MS_MIN
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.truetime.clock import Clock, Periodic

HUDI_INTERVAL_MS, HUDI_MISSES = 60_000, 2
_EXPIRES = "expires_after_ms"
_WHOLE_SECONDS_MS = 1000


@lru_cache(maxsize=8)
def encode_promise(expire_ms: int) -> bytes:
    """Content of a heartbeat file: its writer counts as dead after ``expire_ms`` without a beat."""
    return json.dumps({"mainstem": 1, _EXPIRES: expire_ms}, separators=(",", ":")).encode() + b"\n"


def parse_promise(content: bytes) -> int | None:
    """The milliseconds given to ``encode_promise``; None for an empty file (Java's) or a damaged one."""
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

    ``interval_ms`` and ``misses`` are this process's settings; ``table`` holds the table's own pair, which
    other processes go by. ``path`` maps an instant to its heartbeat file; work without an instant passes
    another function.
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
        #: how long a writer without a promise (Java's writers and executors) counts as alive
        self.silent_ms = max(self.expire_ms, table[0] * table[1])
        self._often_ms = min(interval_ms, table[0])
        #: an object store tells whole seconds, of both times that are compared
        self._unsure_ms = _WHOLE_SECONDS_MS if has_swaps(storage) else 0
        self._guard = Mutex()
        self._live: dict[str, object] = {}
        self._inherited: set[str] = set()
        self._dropped: deque[tuple[str, object]] = deque()
        self._reserved: dict[str, float] = {}
        self._task: Periodic | None = None
        self._task_ms = 0
        told_of_forks(self)

    def after_fork(self) -> None:
        """In a forked child: nothing beats here, and the parent's heartbeats stay the parent's."""
        self._inherited |= set(self._live)
        self._live = {}
        self._dropped = deque()
        self._task = None

    def start(self, instant: str) -> None:
        """Beat once, before the requested file exists; then every interval, in the background."""
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
        """Start to beat for work that only one process may do at a time; False if a live one does it already.

        ``store_now_ms`` returns the store's time. An expired heartbeat is taken over.
        """
        found = self._storage.stat(self._path(instant))
        if found is not None and not self.expired(instant, store_now_ms()):
            return False
        try:
            if found is None and not self._made(instant):
                return False
            self.adopt(instant)
        except BaseException:  # an interrupt, too: the file would look alive, and nobody would end it
            self.stop(instant)
            raise
        return True

    def _made(self, instant: str) -> bool:
        try:
            self._storage.put_new(self._path(instant), encode_promise(self.expire_ms), durable=False)
        except FileExistsError:
            return False
        self._inherited.discard(instant)
        return True

    def _hold(self, instant: str, promised_ms: int) -> None:
        """Beat for an instant from now on, at least twice within the time that its file promises."""
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
        """Refresh all heartbeats; one that a rollback removed does not come back."""
        self._forget_dropped()
        for instant in sorted(self._live):
            try:
                self._storage.renew(self._path(instant))
            except FileNotFoundError:
                self._live.pop(instant, None)
            except OSError:
                continue  # slow or failing storage: the next beat tries again

    def adopt(self, instant: str) -> None:
        """Keep up the heartbeat of a transaction that another process began; a removed one stays removed.

        An interrupt in here undoes the adoption: the caller would not know that it has to end it.
        """
        self._inherited.discard(instant)
        try:
            self._hold(instant, self._promised_ms(instant))
            self.beat()
        except BaseException:
            self.leave(instant)
            raise

    def end_with(self, owner: object, instant: str) -> None:
        """Stop beating for an instant when ``owner`` is garbage collected.

        A transaction dropped before its end causes a ``ResourceWarning``, and counts as dead once its
        heartbeat has expired.
        """
        beat = self._live.get(instant)
        if beat is not None:
            finalizer = weakref.finalize(owner, self._drop, instant, beat)
            finalizer.atexit = False  # at exit the beats end with the process

    def _drop(self, instant: str, beat: object) -> None:
        # The garbage collector calls this, in any thread and between any two steps: so it takes no lock, uses
        # no storage and only appends to a deque. The next beat does the rest.
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
        """Stop beating in this process; the file stays for another process to adopt."""
        with self._guard.held:
            self._live.pop(instant, None)
            if not self._live and self._task is not None:
                self._task.stop()
                self._task = None

    def stop(self, instant: str) -> None:
        """Stop beating and delete the file; if that fails, a later clean-up deletes it.

        A heartbeat that belongs to the parent of a forked process is left alone.
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
        """Whether a writer counts as dead: it has no heartbeat, or has missed beats for its promised time.

        ``store_now_ms`` is the store's clock (the time of a file just written), not this machine's.
        """
        info = self._storage.stat(self._path(instant))
        if info is None:
            return True
        silent_ms = store_now_ms - info.mtime_ms - self._unsure_ms
        return silent_ms > HEARTBEAT_EXPIRE_MS_MIN and silent_ms > self._promised_ms(instant)

    def _promised_ms(self, instant: str) -> int:
        """How long the process that keeps this heartbeat may be silent."""
        try:
            content = self._storage.read(self._path(instant), max_bytes=HEARTBEAT_BYTES_MAX)
        except (FileNotFoundError, CorruptTable):
            return self.silent_ms
        told = parse_promise(content)
        return self.silent_ms if told is None else told
