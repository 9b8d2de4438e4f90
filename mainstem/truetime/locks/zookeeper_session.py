"""One ZooKeeper session: kazoo's client with defined behaviour for lost answers, expiry and fork.

A session belongs to one process and is used by all its threads. Every call returns an answer, raises
``Away`` (no connection, no answer in time, session expired: the request may or may not have taken effect),
or raises one of our own errors. ``losses`` counts expired sessions: kazoo silently opens a new one, and its
own lock recipe keeps trusting the old one.

kazoo runs its own threads for the connection, answers and watches. A forked child has none of them, so a
session is never used across ``fork`` (``zookeeper``).
"""

from __future__ import annotations

import _thread
import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, Unavailable
from mainstem.options.locks import AUTH, URL
from mainstem.truetime.locks.zookeeper_options import ZooKeeperOptions

if TYPE_CHECKING:
    from kazoo.client import KazooClient

# A server that is just starting may take a connection and never answer it.
_HANDSHAKE_MS = 5_000
_RECONNECT = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
# kazoo logs these twenty times a second while a server is away; we log once per change.
_REPEATED = ("Connection dropped", "Connection time-out", "Transition to CONNECTING", "Session has expired")


_STATES = {"LOST": "ended", "SUSPENDED": "no connection, trying again", "CONNECTED": "connected"}


class Away(Exception):
    """ZooKeeper gave no answer: the request may or may not have taken effect. Look, then ask again."""


class _NoSecrets(logging.Filter):
    """kazoo logs its requests, credentials included, and below DEBUG the session's password."""

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_REPEATED) and not _log.isEnabledFor(logging.DEBUG):
            return False
        parts = record.args if isinstance(record.args, tuple) else (record.args,)
        return record.levelno >= logging.DEBUG and not any(type(p).__name__ == "Auth" for p in parts)


_log = logging.getLogger("mainstem.zookeeper")
_log.addFilter(_NoSecrets())


def import_kazoo() -> Any:
    """The package kazoo; ``Unavailable`` says how to install it."""
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.security
    except ImportError as error:
        raise Unavailable(
            "the ZooKeeper lock needs the package kazoo, which is not installed:"
            " pip install 'mainstem[zookeeper]'"
        ) from error
    return kazoo


def _each_often(options: ZooKeeperOptions) -> str:
    """The connect string with the servers repeated, so that kazoo waits at most ``_HANDSHAKE_MS`` for each.

    kazoo waits for the session timeout divided by the number of servers. With a single server that is so long
    that the session it wants to resume has expired by then.
    """
    servers = options.connect_string.removesuffix(options.chroot)
    times = math.ceil(options.session_ms / (_HANDSHAKE_MS * len(options.hosts)))
    return ",".join([servers] * times) + options.chroot


class ZooKeeperSession:
    """A client that is or was connected; kazoo reconnects it until it is closed."""

    def __init__(self, options: ZooKeeperOptions, base: str) -> None:
        self.options = options
        #: sessions of this client that expired or were closed
        self.losses = 0
        self._base = base
        self._mutex = threading.Lock()
        self._wakes: list[threading.Event] = []
        self._kazoo = import_kazoo()
        self.client: KazooClient = self._kazoo.client.KazooClient(
            hosts=_each_often(options),
            timeout=options.session_ms / 1000,
            auth_data=[("digest", options.digest)] if options.digest else None,
            default_acl=self._kazoo.security.CREATOR_ALL_ACL if options.digest else None,
            connection_retry=_RECONNECT,
            logger=_log,
        )

    def connect(self) -> None:
        """Connect for the first time, within the connection timeout; raises ``Unavailable``."""
        self.client.add_listener(self._state_changed)
        if not self.client.start_async().wait(self.options.connection_ms / 1000):
            self.close_later()
            raise Unavailable(
                f"no ZooKeeper server of {URL}={self.options.connect_string} answered within"
                f" {self.options.connection_ms} ms: check address and network, then try again; nothing"
                " was written",
                table=self._base,
            )

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's connection thread, which must not wait."""
        if state == "LOST":
            self.losses += 1
        expected = state == "CONNECTED" or self.client.client_state == "CLOSED"
        level, text = logging.INFO if expected else logging.WARNING, _STATES.get(state, state)
        _log.log(level, "ZooKeeper session with %s: %s", self.options.connect_string, text)
        with self._mutex:
            wakes = list(self._wakes)
        for wake in wakes:
            wake.set()

    def wake_on_change(self, wake: threading.Event) -> None:
        """Set ``wake`` whenever the connection changes, until ``forget``."""
        with self._mutex:
            self._wakes.append(wake)

    def forget(self, wake: threading.Event) -> None:
        """The opposite of ``wake_on_change``."""
        with self._mutex, suppress(ValueError):
            self._wakes.remove(wake)

    @property
    def ended(self) -> bool:
        """True once kazoo has given up: the client was closed, or the server refused the credentials."""
        return self.client.client_state in ("CLOSED", "AUTH_FAILED")

    @property
    def number(self) -> int:
        """The current session's id; 0 while there is no connection."""
        found = self.client.client_id
        return found[0] or 0 if found else 0

    def ask(self, timeout_ms: float, *requests: Callable[[KazooClient], Any]) -> list[Any]:
        """Send requests in order on one connection, and return their answers.

        A request is a call of one of kazoo's ``*_async`` methods. kazoo's ``NoNodeError``,
        ``NodeExistsError`` and ``NoAuthError`` go through.
        """
        known = self._kazoo.exceptions
        try:
            answers = [request(self.client) for request in requests]
            return [answer.get(timeout=max(timeout_ms, 1) / 1000) for answer in answers]
        except (
            known.ConnectionLoss, known.SessionExpiredError, known.OperationTimeoutError,
            known.ConnectionClosedError, known.SessionMovedError,
            self.client.handler.timeout_exception,
        ) as error:  # fmt: skip
            raise Away(str(error) or type(error).__name__) from error
        except (known.NoNodeError, known.NodeExistsError, known.NoAuthError):
            raise
        except (known.AuthFailedError, known.InvalidACLError) as error:
            raise Invalid(
                f"ZooKeeper at {self.options.connect_string} refused the credentials of {AUTH}"
                f" ({type(error).__name__}): check user, password and what the server allows",
                table=self._base,
            ) from error
        except known.KazooException as error:
            raise Unavailable(
                f"ZooKeeper at {self.options.connect_string} failed for {self.options.folder}:"
                f" {type(error).__name__} {error}; try again",
                table=self._base,
            ) from error

    def close(self) -> None:
        """End the session now; the server removes its remaining nodes."""
        with suppress(Exception):  # kazoo raises all sorts of things when a server is gone
            self.client.stop()
            self.client.close()

    def close_later(self) -> None:
        """End the session from a separate thread: without a server, kazoo waits for a long time.

        ``_thread`` starts it because this also runs from finalizers: ``Thread.start`` takes a lock, which the
        thread that is collecting garbage may hold already.
        """
        with suppress(RuntimeError):  # the interpreter ends; then the session expires by itself
            _thread.start_new_thread(self.start_closing, ())

    def start_closing(self) -> threading.Thread:
        """Run ``close`` in a daemon thread, which does not keep the process alive."""
        closing = threading.Thread(target=self.close, name="mainstem-zookeeper-close", daemon=True)
        closing.start()
        return closing
