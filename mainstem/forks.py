"""What a forked child inherits and may not use: locks of threads that it does not have, open transactions.

A child has copies of everything and one thread, the one that forked. A mutex that another thread held then
would stay locked in it for ever, and what its parent has open (heartbeats, leases, transactions) is the
parent's to end. So whatever remembers either of them is told in the child (``told_of_forks``), and an object
that belongs to one process knows which (``Home``).
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Protocol

from mainstem.errors import Invalid


class Forked(Protocol):
    """Something that is told in a forked child."""

    def after_fork(self) -> None: ...


_told: weakref.WeakSet[Forked] = weakref.WeakSet()


def told_of_forks(thing: Forked) -> None:
    """Call ``thing.after_fork()`` in each child that is forked, before anything else runs there."""
    _told.add(thing)


def _tell() -> None:
    for thing in list(_told):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)


class Mutex:
    """A lock between the threads of one process; a forked child starts with a free one.

    The thread that holds it may take it again: what garbage collection calls may want it at any moment.
    Use it as ``with mutex.held:``. That is Python's own lock, which an interrupt (Ctrl-C) cannot leave taken
    on the way into the block, as it could a method written here.
    """

    def __init__(self) -> None:
        self.after_fork()
        told_of_forks(self)

    def after_fork(self) -> None:
        """Whoever held it is a thread of the parent."""
        self._lock = threading.RLock()

    @property
    def held(self) -> AbstractContextManager[object]:
        """The lock itself, to be entered."""
        return self._lock


class Home:
    """The process in which something was begun."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def left(self) -> bool:
        """Whether this is another process: a forked child, at whatever remove."""
        return self._pid != os.getpid()

    def check(self, what: str, table: str, instant: str | None = None) -> None:
        """``Invalid`` in any other process; ``what`` was begun here."""
        if self.left:
            raise Invalid(
                f"{what} belongs to process {self._pid}, which began it; this is process {os.getpid()},"
                " forked from it, and can neither write to it nor end it: begin one of your own here (the"
                " open table may be used), or fork before you begin",
                table=table,
                instant=instant,
            )
