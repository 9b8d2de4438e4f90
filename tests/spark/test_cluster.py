"""Goal: on a real cluster, data is written on the workers and committed on the driver, and the loss
of a worker in the middle of a write costs neither rows nor doubles, and leaves no file behind.

Method: a standalone master and two workers from the pyspark wheel, one core each. When both are in
the middle of a task, one worker with its executor is killed with SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import pyspark

import mainstem
from tests.servers.zookeeper import free_port
from tests.spark.cluster_driver import ROWS
from tests.spark.conftest import ROOT, until
from tests.spark.test_sink import _orphans

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

HOME = Path(pyspark.__file__).parent


class Cluster:
    """A master and two workers, each in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(HOME),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        name = "org.apache.spark.deploy.master.Master"
        self._start(name, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        until(lambda: _answers(port), "the master")
        self.workers = [self._worker(number) for number in (0, 1)]

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        name = "org.apache.spark.deploy.worker.Worker"
        work = str(self._folder / f"work-{number}")
        return self._start(name, self.master, "--host", "127.0.0.1", "-c", "1", "-m", "1g",
                           "-d", work, "--webui-port", "0")  # fmt: skip

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with open(self._folder / f"log-{len(self.processes)}", "wb") as log:
            process = subprocess.Popen(
                [str(HOME / "bin/spark-class"), *command], env=self._environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def driver(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", str(ROOT / "tests/spark/cluster_driver.py"),
             self.master, str(self._folder)],
            env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(120)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    started.stop()


def test_a_worker_killed_in_the_middle_of_a_write_costs_nothing(cluster: Cluster, tmp_path: Path) -> None:
    driver = cluster.driver()

    def logs() -> set[str]:
        return {p.name for p in (tmp_path / "t").glob(".*.log.*") if p.stat().st_size}

    def in_the_middle() -> bool:
        assert driver.poll() is None, driver.communicate()
        waiting = len(list(tmp_path.glob("task-*")))
        instants = sorted({name.split("_")[1].split(".")[0] for name in logs()})
        newest = [n for n in logs() if len(instants) == 2 and instants[1] in n]
        return waiting == 2 and len({name.rsplit("_", 1)[1] for name in newest}) == 2

    until(in_the_middle, "two tasks in the middle of their partitions")
    begun = logs()
    os.killpg(cluster.workers[0].pid, signal.SIGKILL)
    cluster.workers[0].wait(120)
    (tmp_path / "go").touch()
    out, err = driver.communicate(timeout=600)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert events == [
        {"executors": "committed", "rows": 2_000},
        {"source": "saved", "count": ROWS, "changed": ROWS},
    ], err[-3000:]
    assert begun - logs(), "the killed worker had written no file: the test proves nothing"
    assert not _orphans(tmp_path / "t")
    states = [(i.action, i.state) for i in mainstem.open_table(tmp_path / "t").timeline()]
    assert states == [("deltacommit", "completed")] * 2
