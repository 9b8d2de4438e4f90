"""A real ZooKeeper ensemble for tests: three JVMs, each behind a TCP proxy of its own.

``with ZooKeeperEnsemble() as ensemble`` starts it within two seconds and in about 250 MB. Clients use
``connect_string``, which leads through the proxies; ``direct_string`` does not. Servers can be killed,
stopped and started again, alone or so many that the quorum is lost; connections can be cut and stalled;
and any session can be ended from outside, as if it had expired.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tests.servers.tcp_proxy import TcpProxy
from tests.servers.zookeeper import ZooKeeperServer, free_port

if TYPE_CHECKING:
    from kazoo.client import KazooClient

SERVERS = 3
# Servers come and go here, and kazoo says so many times a second.
_log = logging.getLogger("tests.servers.zookeeper")
_log.addHandler(logging.NullHandler())
_log.propagate = False
_START_S = 120.0
_LOOK_S = 1.0
# ZooKeeperServer.superSecret: a session's password follows from its number.
_SECRET = 0xB3415C00


class ZooKeeperEnsemble:
    """Servers 0, 1 and 2; a context manager. ``tick_ms`` as for one server."""

    def __init__(self, *, tick_ms: int = 200, memory: str = "96m") -> None:
        peers = {f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in range(SERVERS)}
        # Generous: on a busy machine a slow server must not look like a dead one.
        settings = {"initLimit": 10_000 // tick_ms, "syncLimit": 6_000 // tick_ms, **peers}
        self.servers = [
            ZooKeeperServer(tick_ms=tick_ms, memory=memory, settings=settings, number=number)
            for number in range(SERVERS)
        ]
        self.proxies: list[TcpProxy] = []

    def __enter__(self) -> ZooKeeperEnsemble:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connect_string(self) -> str:
        """Addresses of the proxies, as ``hoodie.write.lock.zookeeper.url`` wants them."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)

    @property
    def direct_string(self) -> str:
        """Addresses of the servers themselves."""
        return ",".join(server.connect_string for server in self.servers)

    def start(self) -> ZooKeeperEnsemble:
        """Start all; comes back when all serve."""
        try:
            for server in self.servers:
                server.port = free_port()
                server.launch()
            self.wait(range(SERVERS))
            self.proxies = [TcpProxy(server.port) for server in self.servers]
        except BaseException:
            self.close()
            raise
        return self

    def wait(self, numbers: Iterable[int]) -> None:
        """Until these servers serve clients."""
        end = time.monotonic() + _START_S
        for number in numbers:
            while not self.mode(number):
                if time.monotonic() > end:
                    log = self.servers[number].log()[-3000:]
                    raise RuntimeError(f"ZooKeeper server {number} does not serve; its log ends:\n{log}")
                time.sleep(0.05)

    def mode(self, number: int) -> str:
        """``leader``, ``follower``, or empty while the server serves nobody."""
        return self.servers[number].mode(_LOOK_S)

    def leader(self) -> int | None:
        """The number of the leader; None while there is none."""
        return next((n for n in range(SERVERS) if self.mode(n) == "leader"), None)

    def client(self, **more: Any) -> KazooClient:
        """A client that does not go through the proxies; to be started by the caller."""
        from kazoo.client import KazooClient

        return KazooClient(self.direct_string, **{"timeout": 30, "logger": _log, **more})

    def expire(self, session: int) -> bool:
        """End somebody's session: for its owner it has expired. False if there is no such session."""
        intruder = self.client(client_id=(session, session_password(session)), timeout=10)
        try:
            intruder.start(timeout=10)
            known = intruder.client_id is not None and intruder.client_id[0] == session
        except intruder.handler.timeout_exception:
            known = False
        intruder.stop()
        intruder.close()
        return known

    def close(self) -> None:
        """Kill everything and remove the data."""
        for proxy in self.proxies:
            proxy.close()
        for server in self.servers:
            server.close()


def session_password(session: int) -> bytes:
    """What ``ZooKeeperServer.generatePasswd`` gives: 16 bytes of ``java.util.Random``."""
    mask = (1 << 48) - 1
    state = (session ^ _SECRET ^ 0x5DEECE66D) & mask
    password = bytearray()
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += (state >> 16).to_bytes(4, "little")
    return bytes(password)
