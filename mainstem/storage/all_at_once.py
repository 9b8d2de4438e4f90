"""Runs a few short waits (fsyncs) at the same time, in threads that stay.

A commit of eight log files waits for ten of them. Handing each to a thread, and waiting for each, would cost
more processor time than the fsyncs. So the caller works, too, and whoever is free takes the next one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from mainstem.storage.protocol import Storage

# A journaling file system writes its journal once for all concurrent fsyncs: eight files in sequence cost
# eight times as much as eight at once.
_THREADS_MAX = 8
_helped: SimpleQueue[_Round] = SimpleQueue()
_threads: list[None] = []


class _Round:
    """The tasks of one call. Threads other than the caller's count those that they work on."""

    def __init__(self, tasks: Sequence[Callable[[], None]], helpers: int | None = None) -> None:
        self._left = deque(tasks)
        # Half as many threads as tasks: each works on two, as the file system takes the second half while it
        # is still busy with the first.
        self._helpers = min(_THREADS_MAX, len(tasks) // 2) if helpers is None else helpers
        self._failures: deque[BaseException] = deque()
        self._guard = threading.Lock()
        self._busy = 0
        self._idle = threading.Event()

    def help(self) -> None:
        """In another thread."""
        with self._guard:
            self._busy += 1
        try:
            self._take()
        finally:
            with self._guard:
                self._busy -= 1
                if not self._busy:
                    self._idle.set()

    def _take(self) -> None:
        while True:
            try:
                task = self._left.popleft()
            except IndexError:
                return
            try:
                task()
            except BaseException as error:
                self._failures.append(error)

    def run(self) -> None:
        """In the caller's thread; raises the first failure after all have ended.

        An interrupt of the caller (Ctrl-C) is also raised only after all have ended: no task may still work
        on a file that its owner believes closed.
        """
        interrupts: list[BaseException] = []
        while True:
            try:
                self.ask_for_help()
                self._take()
                self._wait()
                break
            except BaseException as error:
                interrupts.append(error)
        # The caller's interrupt takes precedence over failures of the tasks.
        failures = sorted([*interrupts, *self._failures], key=lambda failure: isinstance(failure, Exception))
        for failure in failures[:1]:
            raise failure

    def ask_for_help(self) -> None:
        while self._helpers and _thread_is_there(self._helpers):
            self._helpers -= 1
            _helped.put(self)

    def _wait(self) -> None:
        """Nothing is left to take, so whoever comes to help from now on finds nothing to do."""
        while self._busy:
            self._idle.wait()
            with self._guard:
                if self._busy:
                    self._idle.clear()


def all_at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, concurrently if there are several; raise the first failure after all have ended."""
    _Round(tasks).run()


def begun(task: Callable[[], None]) -> Callable[[], None]:
    """Start a task in another thread; the function that is returned waits for it, and raises its failure.

    It does the task itself if no thread has taken it yet. It may be called again, with the same result.
    """
    only = _Round([task], helpers=1)
    only.ask_for_help()
    return only.run


def settled_later(storage: Storage, folder: str) -> Callable[[], None]:
    """Begin to make the names in a folder durable; the function that is returned waits until they are.

    Where the store cannot do that beside other work, they are durable when this returns.
    """
    later: Callable[[str], Callable[[], None]] | None = getattr(storage, "settle_later", None)
    if later is not None:
        return later(folder)
    storage.settle([], [folder], durable=True)
    return lambda: None


def _thread_is_there(number: int) -> bool:
    """Whether there are at least so many threads; they are started where they are not."""
    while len(_threads) < number:
        _threads.append(None)
        try:
            threading.Thread(target=_work, args=(_helped,), name="mainstem-sync", daemon=True).start()
        except BaseException as error:
            _threads.pop()
            if not isinstance(error, RuntimeError):
                raise
            return False  # no more threads, or the interpreter is ending: the caller does it alone
    return True


def _work(helped: SimpleQueue[_Round]) -> None:
    while True:
        helped.get().help()


def _forget_threads() -> None:
    """A forked child has no threads but the one that forked."""
    global _helped
    _helped = SimpleQueue()
    _threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
