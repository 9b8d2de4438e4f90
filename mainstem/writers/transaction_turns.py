"""Decides which calls a transaction takes: one at a time, from its own process, until it has ended.

Calls from several threads wait for each other (``held``). A call from within another one (by a signal
handler) is refused, and so is one from a forked child.

A step that was cut off by an arbitrary exception (Ctrl-C, a signal handler's time-out, no memory) leaves the
transaction *in doubt*: it is unknown how far the step came, so only ``abort`` is allowed. A step is therefore
in doubt from its start until the transaction knows how it ended.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from mainstem.errors import Invalid
from mainstem.forks import Home, Mutex


class Turns:
    """Whose turn it is in one transaction of the table at ``base``."""

    def __init__(self, base: str) -> None:
        #: committed, aborted, failed or detached: no further call is allowed
        self.ended = False
        #: a step began, and it is unknown how far it came: the transaction unsets it when it knows
        self.in_doubt = False
        self._base = base
        self._home = Home()
        self._mutex = Mutex()
        #: locked while a step runs; nothing ever waits for it
        self._running = threading.Lock()
        self._step = ""

    @property
    def held(self) -> AbstractContextManager[object]:
        """The turn itself, for a ``with`` statement: waits for the calls of other threads."""
        return self._mutex.held

    @property
    def in_forked_child(self) -> bool:
        """Whether this is not the process that began the transaction."""
        return self._home.left

    def step(self, name: str) -> AbstractContextManager[object]:
        """Mark the call ``name`` as running and in doubt, for a ``with`` statement within ``held``.

        The mark is Python's own lock: no interrupt on the way into the block or out of it can leave it set,
        and the ``abort`` that follows is not refused. A context manager written here could be interrupted.
        """
        self._step, self.in_doubt = name, True
        return self._running

    def check_open(self, instant: str) -> None:
        """Raise ``Invalid`` unless the transaction may be written to or committed."""
        self.check_caller(instant)
        if self.ended:
            raise Invalid("this transaction has ended; begin a new one", table=self._base, instant=instant)
        if self.in_doubt:
            raise Invalid(
                "an earlier step of this transaction was interrupted, so nobody knows how far it came: abort"
                " it (a commit that became visible stays, and commit() then returns its outcome) and, if it"
                " is not committed, write all its batches again in a new transaction",
                table=self._base,
                instant=instant,
            )

    def check_caller(self, instant: str) -> None:
        """Raise ``Invalid`` in a forked child, and for a call from within a running step."""
        self._home.check("this transaction", self._base, instant)
        if self._running.locked():
            raise Invalid(
                f"{self._step}() of this transaction is running: nothing else may be called from within it"
                " (by a signal handler, say); raise an exception there instead",
                table=self._base,
                instant=instant,
            )
