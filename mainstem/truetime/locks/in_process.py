"""A table lock inside one Python process, like Hudi's ``InProcessLockProvider`` inside one JVM.

It orders the threads of one process and nothing else: it does not keep out a second process, Python or Java.
Waiters are served first come, first served.
"""

from __future__ import annotations

import os
import threading
from collections import deque

from mainstem.errors import LeaseLost, LockUnavailable
from mainstem.options.locks import RETRIES, WAIT_MS
from mainstem.truetime.locks.options import LockOptions


class _Room:
    """The lock of one base path: its holder and its waiters, first come, first served."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.holder: object | None = None
        self.holder_name = ""
        self.waiting: deque[tuple[object, str, threading.Event]] = deque()

    def enter(self, token: object, timeout_ms: float) -> bool:
        name = threading.current_thread().name
        arrived = threading.Event()
        with self.mutex:
            if self.holder is None:
                self.holder, self.holder_name = token, name
                return True
            entry = (token, name, arrived)
            self.waiting.append(entry)
        try:
            if arrived.wait(min(timeout_ms / 1000, threading.TIMEOUT_MAX)):
                return True
        except BaseException:
            self._give_up(entry)
            raise
        return not self._give_up(entry, keep=True)

    def _give_up(self, entry: tuple[object, str, threading.Event], keep: bool = False) -> bool:
        """Stop waiting. False if the lock was handed over at the last moment; ``keep`` then keeps it."""
        with self.mutex:
            if entry in self.waiting:
                self.waiting.remove(entry)
                return True
        if not keep:
            self.leave(entry[0])
        return False

    def leave(self, token: object) -> None:
        with self.mutex:
            if self.holder is not token:
                return
            self.holder = None
            if self.waiting:
                self.holder, self.holder_name, arrived = self.waiting.popleft()
                arrived.set()


_rooms: dict[str, _Room] = {}
_rooms_mutex = threading.Lock()


def _forget_rooms() -> None:
    """A forked child starts with free locks: the threads that held them exist only in the parent."""
    global _rooms_mutex
    _rooms_mutex = threading.Lock()
    _rooms.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_rooms)


def _room(base: str) -> _Room:
    with _rooms_mutex:
        return _rooms.setdefault(base, _Room())


class InProcessLease:
    """The right to publish, among the threads of this process."""

    def __init__(self, room: _Room, token: object, base: str) -> None:
        self._room = room
        self._token = token
        self._base = base
        self._pid = os.getpid()

    def check(self) -> None:
        if self._pid != os.getpid():
            raise LeaseLost(
                "this lease was taken before the process forked and belongs to the parent",
                table=self._base,
            )
        if self._room.holder is not self._token:
            raise LeaseLost("this lease was released already", table=self._base)

    def release(self) -> None:
        if self._pid == os.getpid():
            self._room.leave(self._token)


class InProcessLock:
    """One lock per base path and process; all providers of one base path share it."""

    weaker: str | None = (
        "the in-process lock orders the threads of one process only; writers in other processes "
        "(and every Java writer) are not kept out"
    )

    def __init__(self, options: LockOptions) -> None:
        self.identity = options.identity
        self._options = options

    def acquire(self) -> InProcessLease:
        """Wait for the lock; raises ``LockUnavailable`` after ``options.patience_ms``."""
        room = _room(self._options.base)
        token = object()
        try:
            if room.enter(token, self._options.patience_ms):
                return InProcessLease(room, token, self._options.base)
        except BaseException:  # including Ctrl-C: nothing would ever free the lock
            room.leave(token)
            raise
        raise LockUnavailable(
            f"thread {room.holder_name!r} of this process held the in-process lock for the "
            f"{self._options.patience_ms} ms that {WAIT_MS} and {RETRIES} allow; try again, or "
            "raise them",
            table=self._options.base,
        )
