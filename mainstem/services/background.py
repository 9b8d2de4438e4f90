"""Runs services in a background thread of this process.

The thread holds nothing that others wait for: only the services' own short critical sections take the
table lock. It ends with the process; if that interrupts a service, the next process that runs services
continues it.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor  # noqa: F401  # its exit hook is registered before ours

from mainstem.errors import Invalid
from mainstem.forks import Mutex, told_of_forks

#: how long the current step may still take when the process ends
LAST_STEP_S = 60.0
# In so many parts is the time divided that work may go on before that.
_GRACE_PARTS = 40
#: when woken by commits: how often a failed round is repeated before the next commit, and the first pause
RETRIES = 5
RETRY_S = 2.0

#: one round: it gets a function that says whether to end early, and returns whether to repeat it soon
Work = Callable[[Callable[[], bool]], bool]


class Background:
    """Runs rounds in one thread: every ``every_s`` seconds, or, without it, when woken.

    Without ``every_s`` the thread exists only while there is work.
    """

    def __init__(self, work: Work, *, every_s: float | None = None, grace_s: float = 0.0) -> None:
        """``grace_s``: how long the work may go on, when the process ends, before it is told to stop."""
        number = isinstance(every_s, (int, float)) and not isinstance(every_s, bool)
        if every_s is not None and not (number and 0 < every_s <= threading.TIMEOUT_MAX):
            raise Invalid(f"pause between rounds: {every_s!r}, expected a number of seconds above 0")
        self._work = work
        self._every_s = every_s
        self.grace_s = grace_s
        self._mutex = Mutex()
        self.after_fork()
        told_of_forks(self)

    def after_fork(self) -> None:
        """In a forked child: the thread and those who wait for it belong to the parent."""
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._hurried = threading.Event()

    def __repr__(self) -> str:
        thread = self._thread
        state = "running" if thread is not None and thread.is_alive() else "not running"
        pace = "when woken" if self._every_s is None else f"every {self._every_s:g} s"
        return f"Background(rounds {pace}, {state})"

    def start(self) -> None:
        """Start the thread; does nothing while it runs."""
        with self._mutex.held:
            if self._thread is None or not self._thread.is_alive():
                self._stopped.clear()
                self._hurried.clear()
                self._thread = threading.Thread(target=self._run, name="mainstem-services", daemon=True)
                _known.add(self)
                self._thread.start()

    def wake(self) -> None:
        """Run a round now, or as soon as the current one has ended; none once the process is ending."""
        if not _ending.is_set():
            self._woken.set()
            self.start()

    def here(self, rounds: int | None = None) -> None:
        """Run rounds in the calling thread until ``stop`` (called by a signal handler or another thread)."""
        left = rounds
        while not self._stopped.is_set():
            self._work(self._stopped.is_set)
            left = None if left is None else left - 1
            if left == 0:
                return
            self._stopped.wait(self._every_s)

    def rest(self, seconds: float) -> bool:
        """Wait, within a round; False as soon as the process ends or ``stop`` is called."""
        return not _ending.is_set() and not self._hurried.wait(seconds)

    def hurry(self) -> None:
        """End a ``rest``."""
        self._hurried.set()

    def ended(self, timeout_s: float) -> bool:
        """Whether the thread has nothing left to do, or ends within ``timeout_s``."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def stop(self, timeout_s: float | None = LAST_STEP_S) -> bool:
        """End after the current step; False if that takes longer than ``timeout_s``."""
        self._stopped.set()
        self.hurry()
        self._woken.set()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def _run(self) -> None:
        if self._every_s is None:
            self._while_woken()
        else:
            self.here()

    def _while_woken(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            self._woken.clear()
            failures = failures + 1 if self._work(self._stopped.is_set) else 0
            with self._mutex.held:
                # Under the mutex, so that a later ``wake`` sees that the thread has ended.
                if not self._woken.is_set() and not 0 < failures <= RETRIES:
                    self._thread = None
                    return
            if failures:
                self._woken.wait(RETRY_S * 2 ** (failures - 1))

    def __enter__(self) -> Background:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop(None)


_known: weakref.WeakSet[Background] = weakref.WeakSet()
#: the process ends
_ending = threading.Event()


def _stop_all() -> None:
    """Stop all threads: one killed inside a library as the interpreter ends may change the exit code.

    They are daemons all the same, so that none can keep the process alive: an interrupt, or a step longer
    than ``LAST_STEP_S``, ends the wait. Whoever is cut off leaves a plan that others execute.
    """
    _ending.set()
    running = list(_known)
    for background in running:
        background.hurry()
    graceful = [one for one in running if one.grace_s]
    for _ in range(_GRACE_PARTS):
        graceful = [one for one in graceful if not one.ended(0)]
        if graceful:
            graceful[0].ended(graceful[0].grace_s / _GRACE_PARTS)
    for background in running:
        background.stop(0)
    for background in running:
        background.stop()


# Services use thread pools, which take no more work after their own exit hook; that runs before ``atexit``.
# Hooks run in reverse order of registration, so ours, registered after the import of the pools, runs first.
# Should Python drop this private name, running steps would fail at exit instead.
getattr(threading, "_register_atexit", atexit.register)(_stop_all)
