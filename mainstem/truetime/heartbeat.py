"""Heartbeats: ``.hoodie/.heartbeat/<instant>`` shows that an instant's writer lives.

HoodieHeartbeatClient's files and settings (``hoodie.client.heartbeat.interval_in_ms`` 60000,
``hoodie.client.heartbeat.tolerable.misses`` 2). Java judges by its own clock against the file's
time; mainstem compares two times of the *store*, so a skewed clock kills nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.truetime.clock import Clock, Periodic


class Heartbeats:
    """Keeps the heartbeats of one process's open transactions on one table fresh.

    ``path``: where the heartbeat of an instant is, another one for work that has no instant.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        interval_ms: int,
        misses: int,
        path: Callable[[str], str] = paths.heartbeat,
    ) -> None:
        self._storage = storage
        self._path = path
        self._clock = clock
        self.interval_ms = interval_ms
        self.expire_ms = interval_ms * misses
        self._live: set[str] = set()
        self._guard = threading.Lock()
        self._task: Periodic | None = None

    def start(self, instant: str) -> None:
        """First beat, before the requested file exists; then one each interval, beside the caller."""
        try:
            self._storage.create(self._path(instant), b"", durable=False)
        except FileExistsError:
            self._storage.touch(self._path(instant))
        with self._guard:
            self._live.add(instant)
            if self._task is None:
                self._task = self._clock.every_ms(self.interval_ms, self.beat, "heartbeat")

    def beat(self) -> None:
        """Refresh all; a heartbeat that a rollback removed is not brought back."""
        for instant in sorted(self._live):
            try:
                self._storage.touch(self._path(instant))
            except FileNotFoundError:
                self._live.discard(instant)
            except OSError:
                continue  # slow or failing storage: the next beat tries again

    def adopt(self, instant: str) -> None:
        """Keep the heartbeat of a transaction that another process began; a removed one stays away.

        Whoever is interrupted in here has adopted nothing: no caller knows of it, to end it.
        """
        with self._guard:
            self._live.add(instant)
            if self._task is None:
                self._task = self._clock.every_ms(self.interval_ms, self.beat, "heartbeat")
        try:
            self.beat()
        except BaseException:
            self.leave(instant)
            raise

    def leave(self, instant: str) -> None:
        """No more beats from this process; the file stays, for another process adopts it."""
        with self._guard:
            self._live.discard(instant)
            if not self._live and self._task is not None:
                self._task.stop()
                self._task = None

    def stop(self, instant: str) -> None:
        """No more beats; the file goes, now or, if that fails, with a later clean-up."""
        self.leave(instant)
        try:
            self._storage.delete(self._path(instant))
        except OSError:
            return

    def expired(self, instant: str, store_now_ms: int) -> bool:
        """Whether a writer counts as dead: no heartbeat, or none for interval x misses.

        ``store_now_ms`` is the store's clock (the time of a file just written), not this machine's.
        """
        info = self._storage.stat(self._path(instant))
        return info is None or store_now_ms - info.mtime_ms > self.expire_ms
