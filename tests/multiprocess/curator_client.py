"""Java's side of a ZooKeeper lock: Curator's ``InterProcessMutex`` in a JVM of its own, driven over py4j.

This is what Hudi's ``ZookeeperBasedLockProvider`` locks with. As a program (arguments: JSON) it counts
critical sections like ``lock_worker.py`` and is driven by lines on standard input; it starts its JVM in
its own process group, so that both are stopped and killed together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway

from tests.multiprocess.lock_worker import critical_section
from tests.servers.zookeeper import curator_classpath, find_java

ROOT = Path(__file__).resolve().parents[2]


def start_jvm() -> tuple[JavaGateway, subprocess.Popen[str]]:
    """A small JVM that ends with its standard input, which ends with this process."""
    command = [
        find_java(), "-Xmx32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
        "-cp", curator_classpath(), "py4j.GatewayServer", "--die-on-broken-pipe", "0",
    ]  # fmt: skip
    jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                           stderr=subprocess.DEVNULL)  # fmt: skip
    assert jvm.stdout is not None
    port = int(jvm.stdout.readline())
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True)), jvm


class Curator:
    """Commands, as ``lock_worker.Worker`` has them."""

    def __init__(self, connect_string: str, folder: str, base: str, session_ms: int) -> None:
        self.base = base
        self.gateway, self.jvm = start_jvm()
        curator = self.gateway.jvm.org.apache.curator
        retry = curator.retry.BoundedExponentialBackoffRetry(50, 500, 15)
        self.client = curator.framework.CuratorFrameworkFactory.newClient(
            connect_string, session_ms, 15_000, retry
        )
        self.client.start()
        self.seconds = self.gateway.jvm.java.util.concurrent.TimeUnit.SECONDS
        self.mutex = curator.framework.recipes.locks.InterProcessMutex(self.client, folder)

    def pids(self) -> list[int]:
        return [os.getpid(), self.jvm.pid]

    def acquire(self, patience_s: str = "60") -> float:
        started = time.perf_counter()
        if not self.mutex.acquire(int(patience_s), self.seconds):
            raise TimeoutError("Curator did not get the lock")
        return (time.perf_counter() - started) * 1000

    def holds(self) -> bool:
        """What Curator believes; nobody asks ZooKeeper for that."""
        return self.mutex.isAcquiredInThisProcess()

    def release(self) -> None:
        self.mutex.release()

    def count(self, times: str, hold_ms: str) -> int:
        for _ in range(int(times)):
            self.acquire()
            critical_section(self.base, float(hold_ms))
            self.release()
        return int(times)


def main() -> None:
    curator = Curator(**json.loads(sys.argv[1]))
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        try:
            answer = {"answer": getattr(curator, name)(*arguments)}
        except Exception as error:  # py4j wraps whatever Java throws
            answer = {"error": type(error).__name__, "message": str(error)[:500]}
        print(json.dumps(answer), flush=True)
    curator.jvm.kill()


if __name__ == "__main__":
    main()
