"""A standalone Spark cluster from the pyspark wheel: a master and workers, each on a host of its own or here.

Executors belong to their worker's host and die with it.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL

from tests.servers.hosts import Host
from tests.servers.zookeeper import free_port

ROOT = Path(__file__).resolve().parents[2]
_START_S = 120.0


def spark_home() -> Path:
    """Where the wheel has Spark."""
    found = find_spec("pyspark")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


class SparkCluster:
    """A context manager. ``logs``: a folder for what master and workers say; ``memory``: of each worker, for
    all of its executors."""

    def __init__(
        self, logs: Path, master: Host, workers: Sequence[Host], *, cores: int = 1, memory: str = "1g"
    ) -> None:
        self.master, self.workers = master, list(workers)
        self._logs, self._cores, self._memory = logs, cores, memory
        self.url = ""

    def environment(self, host: Host, more: Mapping[str, str] = {}) -> dict[str, str]:
        """Variables of a process of Spark on a host, the driver too."""
        return {
            "SPARK_HOME": str(spark_home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            # Daemons that do little: they start sooner, and take less.
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "SPARK_LOCAL_IP": host.address,
            **more,
        }

    def __enter__(self) -> SparkCluster:
        self._logs.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.url = f"spark://{self.master.address}:{port}"
        try:
            self._start(
                self.master, "master.Master", "--host", self.master.address, "--port", str(port),
                "--webui-port", "0",
            )  # fmt: skip
            self._wait(port)
            for number, worker in enumerate(self.workers):
                work = worker.place("work") if worker.disk is not None else str(self._logs / f"work-{number}")
                self._start(
                    worker, "worker.Worker", self.url, "--host", worker.address, "-c", str(self._cores),
                    "-m", self._memory, "-d", work, "--webui-port", "0",
                )  # fmt: skip
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all of it, and whatever else runs on its hosts."""
        for host in (*self.workers, self.master):
            host.kill()

    def _start(self, host: Host, role: str, *arguments: str) -> None:
        command = [str(spark_home() / "bin/spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
        with open(self._logs / f"{role.split('.')[1]}-{host.name}.log", "ab") as log:
            host.start(command, self.environment(host), stdin=DEVNULL, stdout=log, stderr=log)

    def _wait(self, port: int) -> None:
        end = time.monotonic() + _START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((self.master.address, port)) == 0:
                    return
            if time.monotonic() > end:
                raise RuntimeError(f"no master at {self.url}: see {self._logs}")
            time.sleep(0.05)
