"""Exceptions that are no trouble of storage, raised before and after every storage, clock and lock call.

Ctrl-C, a signal handler that exits or times out, memory that runs out, a task that is cancelled: the work
unwinds, with effects, and its process lives on. ``Interrupter`` counts the calls that the thread which made
it does through the seams (of the real file system, the real clock and the real locks), and raises at one; in
the main thread by a signal, for those kinds that a signal brings.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from mainstem.storage.local import LocalStorage, LocalUpload
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.locks.file_system import FileLease, FileSystemLock
from mainstem.truetime.locks.in_process import InProcessLease, InProcessLock


class TimedOut(Exception):
    """What the signal handler of a time-out raises, or a callback of the user."""


KINDS: tuple[type[BaseException], ...] = (
    KeyboardInterrupt,
    TimedOut,
    MemoryError,
    SystemExit,
    asyncio.CancelledError,
    RecursionError,
    GeneratorExit,
)

_READING = ("read", "read_range", "view", "private", "open_input", "stat", "names", "entries", "same_file")
_WRITING = ("put", "put_new", "upload", "settle", "link", "rename", "renew", "delete", "delete_tree",
            "make_folder", "sync_folder")  # fmt: skip
CALLS: dict[type, tuple[str, ...]] = {
    LocalStorage: _READING + _WRITING,
    LocalUpload: ("append", "close"),
    SystemClock: ("now_ms", "monotonic_ms", "sleep_ms"),
    FileSystemLock: ("acquire",),
    FileLease: ("check", "release"),
    InProcessLock: ("acquire",),
    InProcessLease: ("check", "release"),
}


#: what Ctrl-C sends, and what the handlers of ``handled`` raise
SIGNALS: dict[type[BaseException], int] = {
    KeyboardInterrupt: signal.SIGINT,
    SystemExit: signal.SIGTERM,
    TimedOut: signal.SIGUSR1,
}


def _leave(number: int, frame: object) -> None:
    sys.exit("interrupted by a signal")


def _time_out(number: int, frame: object) -> None:
    raise TimedOut("interrupted by a signal")


@contextmanager
def handled() -> Iterator[None]:
    """Signals raise in the main thread, as in a program: Ctrl-C, a handler that leaves, a time-out."""
    handlers = {
        signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _leave, signal.SIGUSR1: _time_out
    }  # fmt: skip
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupter:
    """Raises ``kind`` at call ``at``, before its effect or after it; counts calls otherwise.

    ``where`` names the call that was interrupted, "" if the work had fewer.
    """

    def __init__(self, at: int | None, *, after: bool = False, kind: type[BaseException] = KeyboardInterrupt):
        self.at, self.after, self.kind = at, after, kind
        self.count = 0
        self.where = ""
        self._thread = threading.get_ident()
        self._inside = False

    def call(self, name: str, work: Callable[[], Any]) -> Any:
        """One call through a seam; those that it makes itself are not counted."""
        if threading.get_ident() != self._thread or self._inside:
            return work()
        number, self.count = self.count, self.count + 1
        if number != self.at:
            return self._within(work)
        self.where = f"{'after' if self.after else 'before'} {name}"
        if self.after:
            self._within(work)
        if self.kind in SIGNALS and threading.current_thread() is threading.main_thread():
            signal.raise_signal(SIGNALS[self.kind])
        raise self.kind(f"interrupted {self.where}")

    def _within(self, work: Callable[[], Any]) -> Any:
        self._inside = True
        try:
            return work()
        finally:
            self._inside = False


@contextmanager
def interrupted(interrupter: Interrupter) -> Iterator[Interrupter]:
    """Every call through the seams of this process passes through ``interrupter``."""
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            stack.enter_context(handled())
        stack.enter_context(patch.object(LocalStorage, "width", 1))  # no call in another thread
        for owner, names in CALLS.items():
            for name in names:
                stack.enter_context(patch.object(owner, name, _counted(interrupter, owner, name)))
        yield interrupter


def _counted(interrupter: Interrupter, owner: type, name: str) -> Callable[..., Any]:
    original = getattr(owner, name)

    def call(self: Any, *given: Any, **named: Any) -> Any:
        return interrupter.call(f"{owner.__name__}.{name}", lambda: original(self, *given, **named))

    return call


@contextmanager
def heartbeats_made() -> Iterator[list[Heartbeats]]:
    """All ``Heartbeats`` that are made meanwhile, to see which of them go on beating."""
    made: list[Heartbeats] = []
    begin = Heartbeats.__init__

    def noted(self: Heartbeats, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(self)

    with patch.object(Heartbeats, "__init__", noted):
        yield made


def beating(made: list[Heartbeats]) -> set[str]:
    """What is kept alive still."""
    return {name for heartbeats in made for name in heartbeats._live}
