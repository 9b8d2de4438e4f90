"""One critical section for several threads of a process that wait for the same lock.

Threads that begin and commit on one open table at the same moment would each take the lock, list the same
folders and sync the same folder, one behind the other. So each hands in its work (``SharedSections.run``),
and one of them *leads*: it takes the lock once, and does in one section whatever was handed in by then, in
the order in which it came. The others wait, and are told their own result or failure. Work that is handed in
later is the next leader's, who takes the lock anew: other processes have their turn in between.

**Who is told what.** A failure of one work is its owner's alone. A failure of the lock, or of a step that all
share, is told to everybody who had handed in work before it; the others go on under another leader.

**Interrupts** (Ctrl-C, a signal handler's time-out, an exception set by another thread) unwind one thread.

- If it leads, its own work ends there, as without company. Works that it had not finished are given back. If
  it had begun a step that shows (``Work.doubt``), the owner itself looks how that ended before anything
  else; otherwise the next leader takes them.
- If it waits, it takes its work back. If a leader has it in hands, it first waits for the end of that, so
  that nothing is done on its behalf once the call is over.

**From within a section** (a signal handler that writes, say) nobody waits for the leader, which is suspended
below: such a work goes alone, and finds the lock taken.

A process that dies is no matter of this module: what its section left is what a section of one work leaves.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from mainstem.errors import MainstemError
from mainstem.forks import Mutex, told_of_forks
from mainstem.limits import SECTION_WORKS_MAX
from mainstem.truetime.clock import Bell, Clock

T = TypeVar("T")
Order = TypeVar("Order")
Take = Callable[[], "list[Work[Order, Any]]"]

#: the ``SharedSections`` whose leader runs below, in this thread
_led: ContextVar[tuple[object, ...]] = ContextVar("mainstem_led", default=())


class Work(Generic[Order, T]):
    """What one thread hands in. Whoever leads calls ``done`` or ``fail``, once; ``end`` then tells the owner.

    ``doing``: what it is, for messages.
    """

    def __init__(self, doing: str, order: Order) -> None:
        self.doing = doing
        self.order = order
        self.result: T | None = None
        self.failure: Exception | None = None
        #: how the step that shows ended, if it is not known: the result, or None if it did not take effect
        self.doubt: Callable[[], T | None] | None = None
        #: a leader has it in hands
        self.taken = False
        #: what its owner has in hands, as a leader
        self.hands: list[Work[Order, Any]] = []
        self.ended = False
        self.bell: Bell | None = None

    @property
    def is_done(self) -> bool:
        return self.result is not None or self.failure is not None

    def done(self, result: T) -> None:
        self.result, self.doubt = result, None

    def fail(self, failure: Exception) -> None:
        self.failure, self.doubt = failure, None

    def ring(self) -> None:
        if self.bell is not None:
            self.bell.ring()


class SharedSections(Generic[Order]):
    """The works of one open table in one process.

    ``lead(leader, take)`` runs sections until what it took is done or in doubt: ``take()`` gives the works
    to do, once the lock is held. ``leader`` is the work of this thread. ``settle(works)`` ends the doubt of
    works once the lock is free, while somebody else may lead already.
    """

    def __init__(
        self,
        clock: Clock,
        lead: Callable[[Work[Order, Any], Take[Order]], None],
        settle: Callable[[list[Work[Order, Any]]], None],
    ) -> None:
        self._clock = clock
        self._lead = lead
        self._settle = settle
        self._guard = Mutex()
        #: nobody has done these; some may be in the hands of the leader
        self._waiting: list[Work[Order, Any]] = []
        self._leader: Work[Order, Any] | None = None
        told_of_forks(self)

    def after_fork(self) -> None:
        """In a forked child: those who wait are threads of the parent."""
        self._waiting, self._leader = [], None

    def run(self, work: Work[Order, T]) -> T:
        """The result of this work; raises its failure, or an interrupt of this thread."""
        if self in _led.get():
            self._lead(work, lambda: [] if work.is_done else [work])
            if work.doubt is not None:
                self._settle([work])
            return _outcome(work)
        interrupt: BaseException | None = None
        while True:
            try:
                if interrupt is None:
                    self._enter(work)
                    self._until_ended(work)
                else:
                    self._leave(work)
                break
            except BaseException as error:
                interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt
        return _outcome(work)

    def _enter(self, work: Work[Order, T]) -> None:
        with self._guard.held:
            self._waiting.append(work)
            if self._leader is None:
                self._leader = work
            else:
                work.bell = self._clock.bell()

    def _until_ended(self, work: Work[Order, T]) -> None:
        while not work.ended:
            if work.bell is not None:
                work.bell.silence()  # before the looks: a ring from now on ends the wait
            if self._leader is work:
                self._led_by(work)
            elif work.doubt is not None and not work.taken:
                self._end_doubt(work)
            elif not work.ended:
                assert work.bell is not None
                work.bell.wait()

    def _led_by(self, work: Work[Order, T]) -> None:
        """Lead once."""
        with self._guard.held:
            before = list(self._waiting)

        def take() -> list[Work[Order, Any]]:
            with self._guard.held:
                found = [one for one in self._waiting if not one.is_done and one.doubt is None]
                for one in found[:SECTION_WORKS_MAX]:
                    if one not in work.hands:
                        work.hands.append(one)
                    one.taken = True
                return found[:SECTION_WORKS_MAX]

        token = _led.set((*_led.get(), self))
        try:
            try:
                self._lead(work, take)
            except Exception as error:
                for one in before:
                    if not one.is_done and one.doubt is None:
                        one.fail(error if one is work else _copy(error))
            finally:
                _led.reset(token)
            self._pass_on(work, before)
            if work.hands:
                self._settle(list(work.hands))
        finally:
            self._give_back(work)

    def _pass_on(self, leader: Work[Order, T], told: Sequence[Work[Order, Any]] = ()) -> None:
        """Tell owners whose works are done, these among them; somebody else leads what is left. The leader
        keeps works in doubt in hands. May be repeated."""
        with self._guard.held:
            for one in (*leader.hands, *told):
                if one.is_done or one.doubt is not None:
                    self._forget(one)
                if one.doubt is None:
                    one.taken, one.ended = False, one.is_done
                    one.ring()  # it may wait for just that, to leave
            leader.hands[:] = [one for one in leader.hands if one.doubt is not None]
            if self._leader is leader:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.ring()

    def _give_back(self, leader: Work[Order, T]) -> None:
        """The leader has nothing in hands any more. If works are still in doubt, it was interrupted, and
        their owners end that. May be repeated."""
        with self._guard.held:
            if not leader.is_done:
                self._forget(leader)
            self._pass_on(leader)
            for one in leader.hands:
                one.taken = False
                one.ring()
            leader.hands.clear()

    def _forget(self, work: Work[Order, Any]) -> None:
        if work in self._waiting:
            self._waiting.remove(work)

    def _end_doubt(self, work: Work[Order, T]) -> None:
        """Its leader was interrupted."""
        assert work.doubt is not None
        try:
            found = work.doubt()
            if found is not None:
                work.done(found)
        except Exception as error:
            work.fail(error)
        work.ended = work.is_done
        if not work.ended:
            work.doubt = None
            self._enter(work)

    def _leave(self, work: Work[Order, T]) -> None:
        """This thread goes: nobody does its work any more."""
        self._give_back(work)
        while True:
            if work.bell is not None:
                work.bell.silence()
            with self._guard.held:
                if not work.taken:
                    self._forget(work)
                    break
                if work.bell is None:
                    work.bell = self._clock.bell()
            work.bell.wait()
        self._give_back(work)  # it may have been made the leader meanwhile


def _outcome(work: Work[Order, T]) -> T:
    if work.failure is not None:
        raise work.failure
    assert work.result is not None
    return work.result


def _copy(error: Exception) -> Exception:
    """Each thread raises an error of its own: a traceback grows where it is raised."""
    return copy.copy(error) if isinstance(error, (MainstemError, OSError)) else error
