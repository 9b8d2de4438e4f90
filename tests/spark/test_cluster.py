"""Goal: on a real cluster, data is written on the workers and committed on the driver, and the loss
of a worker in the middle of a write costs neither rows nor doubles, and leaves no file behind.

Method: a standalone master and two workers from the pyspark wheel, one core each. When both are in
the middle of a task, one worker with its executor is killed with SIGKILL.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import mainstem
from tests.servers.hosts import Host
from tests.servers.spark_cluster import SparkCluster
from tests.spark.cluster_driver import ROWS
from tests.spark.conftest import ROOT, until
from tests.spark.test_sink import _orphans

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "logs", Host("master"), [Host("worker-0"), Host("worker-1")]) as started:
        yield started


def start_driver(cluster: SparkCluster, folder: Path) -> subprocess.Popen[str]:
    host, program = Host("driver"), str(ROOT / "tests/spark/cluster_driver.py")
    return host.start(
        [sys.executable, "-W", "ignore", program, cluster.url, str(folder)], cluster.environment(host),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_worker_killed_in_the_middle_of_a_write_costs_nothing(
    cluster: SparkCluster, tmp_path: Path
) -> None:
    driver = start_driver(cluster, tmp_path)

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
    cluster.workers[0].kill()
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
