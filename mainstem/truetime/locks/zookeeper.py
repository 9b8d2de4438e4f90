"""The ZooKeeper lock: the node that Java's ``ZookeeperBasedLockProvider`` locks, by Curator's recipe.

Curator's ``InterProcessMutex`` (and Hudi's ``HoodieInterProcessMutex``) creates an ephemeral sequential
child ``_c_<uuid>-lock-<sequence>`` of the lock node. All children are ordered by what follows the last
``lock-`` in their names (``StandardLockInternalsDriver``). The first one holds the lock; every other one
watches its predecessor, so the lock is granted first come, first served. kazoo's own ``Lock`` sorts by other
names and does not exclude Curator.

What we add to the recipe:

* ``check`` asks ZooKeeper about the lease: after a ``sync``, the node must exist, come first, and belong to
  our current session. What the client library believes does not count.
* If the answer to a create is lost, we look for the uuid in the names, so that we never leave a second node.
  If our nodes cannot be removed, we end the whole session, and they vanish with it.
* A child of another recipe (kazoo's ``Lock``, Curator's read/write lock) means that someone uses the node in
  a way that does not exclude us: we refuse.

There is one session per provider and process, opened at the first ``acquire`` and kept between critical
sections.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import socket
import threading
import weakref
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainstem.errors import Invalid, LeaseLost, MainstemError
from mainstem.options.locks import AUTH, RETRIES, WAIT_MS
from mainstem.truetime.locks.option_values import shown
from mainstem.truetime.locks.options import LockOptions
from mainstem.truetime.locks.patience import Patience
from mainstem.truetime.locks.zookeeper_options import ZooKeeperOptions
from mainstem.truetime.locks.zookeeper_session import Away, ZooKeeperSession, import_kazoo

if TYPE_CHECKING:
    from mainstem.truetime.clock import Clock
    from mainstem.truetime.seams import Randomness

_log = logging.getLogger(__name__)

_LOCK = "lock-"
_CONTENDER = re.compile(r"lock--?\d{10}$")
_OTHER_RECIPE = re.compile(r"(__r?lock__|__READ__|__WRIT__|lease-)-?\d{10}$")
# A watch wakes a waiter; it also looks by itself after this time, in case a watch was lost.
_LOOK_MS = 5_000
_AGAIN_MS = 20.0
_DESCRIBE_MS = 1_000
_CLOSE_S = 2.0
_DATA_SHOWN_MAX = 120

_open_locks: weakref.WeakSet[ZooKeeperLock] = weakref.WeakSet()


def _forget_sessions() -> None:
    for lock in list(_open_locks):
        lock.after_fork()


def _close_sessions() -> None:
    for lock in list(_open_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_sessions)
atexit.register(_close_sessions)


def place_in_line(name: str) -> str:
    """Curator's sort key of a child: the part after the last ``lock-``, or the whole name without one.

    The key compares by UTF-16 code units, as Java's strings do.
    """
    _, found, rest = name.rpartition(_LOCK)
    return (rest if found else name).encode("utf-16-be", "surrogatepass").hex()


class ZooKeeperLock:
    """A table lock in ZooKeeper, shared with Java writers. Threads and processes may use it concurrently."""

    weaker: str | None = None

    def __init__(
        self, options: LockOptions, place: ZooKeeperOptions, *, clock: Clock, random: Randomness
    ) -> None:
        self.identity = options.identity
        self.options = options
        self.place = place
        self.clock = clock
        self.random = random
        self.host = socket.gethostname() or "?"
        self.after_fork()
        _open_locks.add(self)

    def __reduce__(self) -> Any:
        raise TypeError("a ZooKeeper lock belongs to its process: open the table again in the other one")

    def after_fork(self) -> None:
        """A child has no session: kazoo's threads and the connection belong to the parent."""
        self._mutex = threading.Lock()
        self._session: ZooKeeperSession | None = None
        if finalizer := getattr(self, "_finalizer", None):
            finalizer.detach()
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def session(self) -> ZooKeeperSession:
        """The session of this process, opened if there is none; raises ``Unavailable``."""
        with self._mutex:
            if self._session is not None and self._session.ended:
                self._leave_session()
            if self._session is None:
                session = ZooKeeperSession(self.place, self.options.base)
                session.connect()
                self._session = session
                self._finalizer = weakref.finalize(self, session.close_later)
                self._finalizer.atexit = False
            return self._session

    def _leave_session(self) -> ZooKeeperSession | None:
        session, self._session = self._session, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        return session

    def end_session(self, session: ZooKeeperSession) -> None:
        """Give up a session whose nodes we could not remove: they vanish with it."""
        with self._mutex:
            if self._session is session:
                self._leave_session()
        session.close_later()

    def close(self) -> None:
        """End the session, if there is one; the server removes its remaining nodes. Idempotent."""
        with self._mutex:
            session = self._leave_session()
        if session is not None:
            with suppress(RuntimeError):  # the interpreter ends; then the session expires by itself
                session.start_closing().join(_CLOSE_S)

    def acquire(self) -> ZooKeeperLease:
        """Wait for the lock, first come first served, for at most ``options.patience_ms``.

        Raises ``LockUnavailable`` (who holds it, what to do), ``Unavailable`` (no server at the first
        connection, kazoo missing) or ``Invalid`` (settings that ZooKeeper refuses).
        """
        contender = _Contender(self)
        try:
            return contender.wait()
        except BaseException:
            contender.give_up()
            raise


class _Node:
    """Our child of the lock node, and how to find it again after a lost answer."""

    def __init__(self, lock: ZooKeeperLock) -> None:
        self.lock = lock
        self.clock = lock.clock
        self.folder = lock.place.folder
        self.uuid = str(UUID(int=lock.random.getrandbits(128), version=4))
        self.name: str | None = None
        self.session: ZooKeeperSession | None = None
        self.asked = False
        self.kazoo = import_kazoo()

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    def children(self, timeout_ms: float) -> list[str]:
        """All children in Curator's order."""
        assert self.session is not None
        (_, found) = self.session.ask(
            timeout_ms,
            lambda client: client.sync_async(self.folder),
            lambda client: client.get_children_async(self.folder),
        )
        return in_line(found)

    def own(self, children: list[str]) -> list[str]:
        return [name for name in children if self.uuid in name]

    def create(self, timeout_ms: float) -> None:
        """Take one place in the queue; if an earlier create went unanswered, look for its node first."""
        assert self.session is not None
        if self.asked and (found := self.own(self._children_or_none(timeout_ms))):
            self.name = found[0]
            return
        self.asked = True
        data = json.dumps({"mainstem": 1, "pid": os.getpid(), "host": self.lock.host}).encode()
        start = f"{self.folder}/_c_{self.uuid}-{_LOCK}"
        try:
            (path,) = self.session.ask(
                timeout_ms,
                lambda client: client.create_async(start, data, ephemeral=True, sequence=True),
            )
        except self.kazoo.exceptions.NoNodeError:
            self._make_folders(timeout_ms)
            self.create(timeout_ms)
            return
        except self.kazoo.exceptions.NoAuthError as error:
            raise self._refused("create a node in", self.folder) from error
        self.name = path.rpartition("/")[2]

    def _children_or_none(self, timeout_ms: float) -> list[str]:
        try:
            return self.children(timeout_ms)
        except self.kazoo.exceptions.NoNodeError:
            return []

    def _make_folders(self, timeout_ms: float) -> None:
        """Create the path of the lock node as Hudi does, one persistent node per segment."""
        assert self.session is not None
        exceptions = self.kazoo.exceptions
        path = ""
        for name in self.folder.split("/")[1:]:
            path += "/" + name
            (found,) = self.session.ask(timeout_ms, methodcaller("exists_async", path))
            if found is not None:
                continue
            try:
                self.session.ask(timeout_ms, methodcaller("create_async", path, b""))
            except exceptions.NodeExistsError:
                continue
            except exceptions.NoAuthError as error:
                raise self._refused("create", path) from error
            except exceptions.NoNodeError as error:
                if path.count("/") > 1:
                    raise Away(f"{path} vanished while it was made") from error
                raise Invalid(
                    f"the chroot {self.lock.place.chroot} of {self.lock.place.connect_string} does not"
                    " exist: create it, or leave it out",
                    table=self.lock.options.base,
                ) from error

    def _refused(self, what: str, path: str) -> Invalid:
        return Invalid(
            f"ZooKeeper does not let this process {what} {path} at {self.lock.place.connect_string}:"
            f" set {AUTH}, or let an administrator change the node's ACL",
            table=self.lock.options.base,
        )

    def remove(self, patience_ms: float) -> None:
        """Remove our nodes, or end the session if that fails. Raises nothing but interrupts."""
        if self.session is None or not self.asked:
            return
        until = self.clock.monotonic_ms() + patience_ms
        while (left := until - self.clock.monotonic_ms()) > 0 and not self.session.ended:
            try:
                names = [self.name] if self.name else self.own(self._children_or_none(left))
                for name in names:
                    with suppress(self.kazoo.exceptions.NoNodeError):
                        path = f"{self.folder}/{name}"
                        self.session.ask(left, methodcaller("delete_async", path))
                return
            except Away:
                self.clock.sleep_ms(_AGAIN_MS)
            except (MainstemError, self.kazoo.exceptions.KazooException):
                break
        _log.warning("node %s could not be removed: the ZooKeeper session is ended", self.uuid)
        self.lock.end_session(self.session)


def in_line(names: list[str]) -> list[str]:
    """Children of the lock node in Curator's order; the whole name breaks ties."""
    return sorted(names, key=lambda name: (place_in_line(name), name))


class _Contender:
    """One call of ``acquire``: its node in the queue, and what it knows of the holder."""

    def __init__(self, lock: ZooKeeperLock) -> None:
        self.lock = lock
        self.options = lock.options
        self.clock = lock.clock
        self.node = _Node(lock)
        self.kazoo = self.node.kazoo
        self.wake = threading.Event()
        self.patience = Patience(self.options, self.clock, self.node.folder)
        self.held_by = "nobody that was seen"
        self.unanswered = ""

    def give_up(self) -> None:
        """Leave no node behind."""
        self._use(None)
        self.node.remove(self.lock.place.connection_ms)

    def wait(self) -> ZooKeeperLease:
        while True:
            left_ms = self.patience.left_ms(self.held_by, self._refusal)
            try:
                lease = self._look(left_ms)
            except Away as error:
                self.unanswered = str(error)
                self.held_by = f"nobody that could be asked: ZooKeeper did not answer ({error})"
                self.clock.sleep_ms(min(_AGAIN_MS, left_ms))
                continue
            if lease is not None:
                return lease
            self.unanswered = ""

    def _refusal(self, waited_ms: float) -> str:
        servers = self.lock.place.connect_string
        allowed = f"for the {waited_ms:.0f} ms that {WAIT_MS} and {RETRIES} allow"
        if self.unanswered:
            return (
                f"ZooKeeper at {servers} does not answer ({self.unanswered}): node {self.node.folder} was"
                f" waited for {allowed}. Check the servers and the network, then try again; nothing was"
                " published"
            )
        return (
            f"ZooKeeper node {self.node.folder} at {servers} was held by {self.held_by} {allowed}. Wait for"
            " that writer or stop it; the node of a dead one goes when its session ends"
        )

    def _use(self, session: ZooKeeperSession | None) -> None:
        """Use this session, and be woken by changes of its connection only."""
        if self.node.session is not session:
            if self.node.session is not None:
                self.node.session.forget(self.wake)
            if session is not None:
                session.wake_on_change(self.wake)
                self.node.session = session
                self.node.name, self.node.asked = None, False

    def _look(self, left_ms: float) -> ZooKeeperLease | None:
        """A lease if we are first; otherwise wait for our predecessor and return None."""
        self._use(self.lock.session())
        node, session = self.node, self.node.session
        assert session is not None
        left_ms = min(left_ms, self.lock.place.session_ms)
        if node.name is None:
            node.create(left_ms)
        self.wake.clear()
        losses, number = session.losses, session.number
        try:
            info, children = session.ask(
                left_ms,
                lambda client: client.exists_async(node.path),
                lambda client: client.get_children_async(node.folder),
            )
        except self.kazoo.exceptions.NoNodeError:
            info, children = None, []
        if info is None or info.ephemeralOwner != number:
            node.name = None  # the session that created it has expired: back to the end of the queue
            return None
        children = in_line(children)
        self._refuse_other_recipes(children)
        before = children[: children.index(node.name)] if node.name in children else children
        if not before:
            self._use_up(children)
            return ZooKeeperLease(node, session, number, losses)
        self._wait_for(before[-1], before[0], left_ms)
        return None

    def _use_up(self, children: list[str]) -> None:
        """We hold the lock: remove a second node left by a lost answer, and stop listening."""
        node = self.node
        assert node.session is not None
        for name in node.own(children):
            if name != node.name:
                path = f"{node.folder}/{name}"
                node.session.ask(
                    self.lock.place.session_ms, methodcaller("delete_async", path)
                )
        node.session.forget(self.wake)

    def _refuse_other_recipes(self, children: list[str]) -> None:
        for name in children:
            if _OTHER_RECIPE.search(name) and not _CONTENDER.search(name):
                raise Invalid(
                    f"ZooKeeper node {self.node.folder} has the child {shown(name)} of another kind of"
                    " lock (kazoo's Lock, a read/write lock), which does not exclude Hudi's writers:"
                    " lock with Hudi's provider everywhere, or give the table a node of its own",
                    table=self.options.base,
                )

    def _wait_for(self, before: str, holder: str, left_ms: float) -> None:
        """Wait until our predecessor goes or the connection changes.

        Like Curator, watch the data: a watch on the existence of a node that is already gone would never be
        removed.
        """
        node = self.node
        assert node.session is not None
        path = f"{node.folder}/{before}"
        self._name(holder)
        asked_at = self.clock.monotonic_ms()
        try:
            node.session.ask(left_ms, lambda client: client.get_async(path, watch=self._woken))
        except self.kazoo.exceptions.NoNodeError:
            return
        except self.kazoo.exceptions.NoAuthError:
            # Only its owner may read it: servers since 3.8.4 report nothing about such a node, not even its
            # removal (CVE-2024-23944), but they do report changes of the parent's children.
            (names,) = node.session.ask(
                left_ms, lambda client: client.get_children_async(node.folder, watch=self._woken)
            )
            if before not in names:
                return
        left_ms -= self.clock.monotonic_ms() - asked_at
        if not self.wake.wait(max(min(left_ms, _LOOK_MS), 0) / 1000):
            self._describe(holder)

    def _woken(self, _event: object) -> None:
        self.wake.set()

    def _name(self, holder: str) -> None:
        """Note the holder for messages, as far as it is known without a request."""
        if not self.held_by.startswith(shown(holder)):
            self.held_by = shown(holder)
            if not _CONTENDER.search(holder):
                self.held_by += " (no contender's node: somebody put it there, and it blocks all writers)"

    def _describe(self, holder: str) -> None:
        """Add the data of the holder's node to messages after a vain wait. The text is untrusted."""
        if self.held_by != shown(holder):
            return
        node = self.node
        assert node.session is not None
        with suppress(self.kazoo.exceptions.NoAuthError, self.kazoo.exceptions.NoNodeError):
            path = f"{node.folder}/{holder}"
            ((data, info),) = node.session.ask(_DESCRIBE_MS, lambda client: client.get_async(path))
            text = data[:_DATA_SHOWN_MAX].decode("utf-8", "replace")
            kind = "" if info.ephemeralOwner else ", not ephemeral: it stays until somebody deletes it"
            self.held_by += f" ({text!r}{kind})"


class ZooKeeperLease:
    """The lock is ours until released or lost; only ``ZooKeeperLock.acquire`` creates leases."""

    def __init__(self, node: _Node, session: ZooKeeperSession, number: int, losses: int) -> None:
        self._node = node
        self._session = session
        self._number = number
        self._losses = losses
        self._pid = os.getpid()
        self._released = False

    def check(self) -> None:
        """Ask ZooKeeper, for at most a session timeout; raises ``LeaseLost`` if the lock is not ours."""
        reason = self._why_lost()
        if reason:
            raise LeaseLost(
                f"ZooKeeper node {self._node.path} is not ours any more: {reason}",
                table=self._node.lock.options.base,
            )

    def _why_lost(self) -> str | None:
        if self._pid != os.getpid():
            return "it was taken before the process forked and belongs to the parent"
        if self._released:
            return "it was released already"
        clock, patience_ms = self._node.clock, self._node.lock.place.session_ms
        until = clock.monotonic_ms() + patience_ms
        while True:
            if self._session.losses != self._losses or self._session.ended:
                return "the session expired"
            left_ms = until - clock.monotonic_ms()
            if left_ms <= 0:
                return f"ZooKeeper did not answer for {patience_ms} ms, as long as a session lasts"
            try:
                return self._look(left_ms)
            except Away:
                clock.sleep_ms(min(_AGAIN_MS, left_ms))

    def _look(self, timeout_ms: float) -> str | None:
        node = self._node
        try:
            _, info, children = self._session.ask(
                timeout_ms,
                lambda client: client.sync_async(node.folder),
                lambda client: client.exists_async(node.path),
                lambda client: client.get_children_async(node.folder),
            )
        except node.kazoo.exceptions.NoNodeError:
            return "the lock node itself is gone"
        if info is None:
            return "the node is gone (the session expired, or somebody deleted it)"
        if info.ephemeralOwner != self._number or self._session.number not in (0, self._number):
            return "it belongs to another session"
        first = min(children, key=lambda name: (place_in_line(name), name))
        return None if first == node.name else f"{shown(first)} came in before it"

    def release(self) -> None:
        """Remove our node, which nobody else can own; without an answer, end the session."""
        if self._released or self._pid != os.getpid():
            return
        self._released = True
        self._node.remove(self._node.lock.place.connection_ms)
