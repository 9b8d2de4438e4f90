"""Requests that nobody waits for, where each is a round trip: the removal of what a commit leaves, say.

They are made by threads that the interpreter waits for when it ends. A process that is killed leaves what
they would have removed, as if it had died just before them.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

from mainstem.forks import Mutex
from mainstem.storage.protocol import Storage

_AT_ONCE = 4
#: name of these threads
TIDYING = "mainstem-tidying"


class Unwaited:
    """Work on one storage; on a disk, and in a store in memory, it is done at once.

    A forked child starts with none: its parent does what it had begun.
    """

    def __init__(self, storage: Storage) -> None:
        self._remote = bool(getattr(storage, "remote", False))
        self._mutex = Mutex()
        self._running: list[Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        """Call ``work``, which raises nothing, now or soon. Waits while as many calls run as may run."""
        if not self._remote:
            work()
            return
        with self._mutex.held:
            self._running = [thread for thread in self._running if thread.is_alive()]
            while len(self._running) >= _AT_ONCE:
                self._running.pop(0).join()
            thread = Thread(target=work, name=TIDYING, daemon=False)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending
                work()
                return
            self._running.append(thread)

    def wait(self) -> None:
        """Until all that was given before is done."""
        for thread in list(self._running):
            thread.join()
