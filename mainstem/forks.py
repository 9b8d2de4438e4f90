"""Handles forks: a child inherits locks of threads that it does not have, and its parent's open transactions.

A child has copies of everything, but only the thread that forked. A mutex held by another thread at that
moment would stay locked in the child for ever, and only the parent may end what it has open (heartbeats,
leases, transactions). So objects that hold either are notified in the child (``told_of_forks``), and an
object that belongs to one process knows which one (``Home``).
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Protocol

from mainstem.errors import Invalid


class Forked(Protocol):
    """Something that is notified in a forked child."""

    def after_fork(self) -> None: ...


_told: weakref.WeakSet[Forked] = weakref.WeakSet()


def told_of_forks(thing: Forked) -> None:
    """Call ``thing.after_fork()`` in every forked child, before anything else runs there."""
    _told.add(thing)


def _tell() -> None:
    for thing in list(_told):
        thing.after_fork()


class LibraryThreads:
    """Threads that a library starts at its first use, and that a forked child lacks: its calls would hang."""

    def __init__(self) -> None:
        self._started = self._lost = False
        told_of_forks(self)

    def after_fork(self) -> None:
        """In a forked child."""
        self._lost = self._started

    def usable(self) -> bool:
        """Whether the library may be called here, which starts its threads; False in a child of a process
        that had called it."""
        if self._lost:
            return False
        self._started = True
        return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)


class Mutex:
    """A lock between the threads of one process; a forked child starts with a free one.

    The thread that holds it may take it again, because the garbage collector may call code that needs it at
    any moment. Use it as ``with mutex.held:``. That is Python's own lock: an interrupt (Ctrl-C) on the way
    into the block cannot leave it locked, as it could with a method written here.
    """

    def __init__(self) -> None:
        self.after_fork()
        told_of_forks(self)

    def after_fork(self) -> None:
        """Start with a free lock: its holder was a thread of the parent."""
        self._lock = threading.RLock()

    @property
    def held(self) -> AbstractContextManager[object]:
        """The lock itself, for a ``with`` statement."""
        return self._lock


class Home:
    """The process in which something was begun."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def left(self) -> bool:
        """Whether this is another process: a forked child, or a child's child."""
        return self._pid != os.getpid()

    def check(self, what: str, table: str, instant: str | None = None) -> None:
        """Raise ``Invalid`` in any other process; ``what`` names the thing that belongs to this one."""
        if self.left:
            raise Invalid(
                f"{what} belongs to process {self._pid}, which began it; this is process {os.getpid()},"
                " forked from it, and can neither write to it nor end it: begin one of your own here (the"
                " open table may be used), or fork before you begin",
                table=table,
                instant=instant,
            )
