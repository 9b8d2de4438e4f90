"""A real Kafka broker for tests: one JVM that is its own controller (KRaft), from Maven's jars.

``with KafkaBroker() as broker`` starts it on a free port of loopback; ``broker.servers`` is what
``bootstrap.servers`` wants. It can be killed and started again on the same data and port.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from scripts.stores import FOLDER
from tests.servers.zookeeper import find_java, free_port

_START_S = 120.0
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
_LOG = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c %m%n
"""


def jars() -> Path:
    """The folder of the broker's jars (``scripts/stores.py kafka``)."""
    return Path(os.environ.get("MAINSTEM_KAFKA_JARS", FOLDER / "kafka"))


def missing() -> str | None:
    """Why no broker can run here, if so."""
    if not list(jars().glob("kafka_2.13-*.jar")):
        return "Kafka is not installed: python scripts/stores.py kafka"
    return None


class KafkaBroker:
    """One broker; a context manager. ``settings`` are further lines of its properties."""

    def __init__(self, memory: str = "256m", settings: dict[str, object] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._memory = memory
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def servers(self) -> str:
        """``host:port``, as clients take it."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> KafkaBroker:
        self.port, controller = free_port(), free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "log.retention.check.interval.ms": 500,
            "log.cleaner.backoff.ms": 500,
            "log.cleaner.dedupe.buffer.size": 8 << 20,
            "num.network.threads": 2,
            "num.io.threads": 2,
            "log.initial.task.delay.ms": 500,
            **self._settings,
        }
        (self.folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        (self.folder / "log4j.properties").write_text(_LOG)
        formatting = self._command("kafka.tools.StorageTool")
        made = subprocess.run(
            [*formatting, "format", "-t", _CLUSTER, "-c", str(self.folder / "server.properties")],
            capture_output=True, text=True, timeout=_START_S,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"Kafka's storage cannot be formatted: {made.stdout}\n{made.stderr}")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self, main: str) -> list[str]:
        classpath = os.pathsep.join(map(str, sorted(jars().glob("*.jar"))))
        return [
            find_java(), f"-Xmx{self._memory}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j.configuration=file:{self.folder}/log4j.properties", "-cp", classpath, main,
        ]  # fmt: skip

    def start(self) -> None:
        """Start it; comes back when it answers."""
        command = [*self._command("kafka.Kafka"), str(self.folder / "server.properties")]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Kafka did not start; its log ends:\n{self.log()[-3000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            quiet = {"bootstrap.servers": self.servers, "log_level": 0}
            return bool(AdminClient(quiet).list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def processor_s(self) -> float:
        """Seconds of processor that it took so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        """What it said."""
        return (self.folder / "log").read_text(errors="replace")

    def make_topic(self, name: str, partitions: int = 1, **config: object) -> None:
        """Create a topic."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers})
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        for future in admin.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
            future.result(30)
