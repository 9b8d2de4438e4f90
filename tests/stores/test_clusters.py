"""Goal: a stream on a Spark cluster and a job on a Flink cluster whose hosts share nothing but a store are
exactly once, though a worker's host is lost in the middle, and Spark's driver, too.

Method: master, workers, drivers and MinIO on machines of their own, which see no files of one another: table,
checkpoints and lock lie in the store. Nothing is started again but the driver, on another machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mainstem
from tests.servers.flink_cluster import FlinkCluster, remote
from tests.servers.hosts import Host
from tests.servers.machines import Machines, why_not
from tests.servers.object_stores import PROGRAMS, Minio
from tests.servers.spark_cluster import SparkCluster
from tests.spark.conftest import ROOT, until
from tests.stores.jars import jars

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.nothing_lost,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]
STREAM_ROWS, NUMBERS, RATE = 300, 30_000, 1_000


@pytest.fixture(scope="module")
def lab() -> Iterator[Machines]:
    with Machines() as running:
        yield running


@pytest.fixture(scope="module")
def minio(lab: Machines) -> Iterator[Minio]:
    with Minio(lab.machine("store")) as server, pytest.MonkeyPatch.context() as patch:
        server.make_bucket("bucket")
        for name, value in server.variables().items():  # every process has them, on all machines
            patch.setenv(name, value)
        yield server


class Speaker:
    """A process on a host that says what it does."""

    def __init__(self, host: Host, script: str, given: dict[str, Any], variables: dict[str, str], log: Path):
        self.said: list[dict[str, Any]] = []
        self._log = log
        with open(log, "ab") as errors:
            self.process = host.start(
                [sys.executable, "-W", "ignore", str(ROOT / "tests/stores" / script), json.dumps(given)],
                variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    self.said.append(json.loads(line))

    def wait_for(self, what: Callable[[list[dict[str, Any]]], bool], name: str) -> None:
        """Until it has said something."""

        def there() -> bool:
            assert self.process.poll() in (None, 0), self._log.read_text()[-4000:]
            return what(list(self.said))

        until(there, name)

    def end(self) -> None:
        """Close its input, and see it end in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(300) == 0, self._log.read_text()[-4000:]
        self._listener.join()


def test_a_stream_on_a_spark_cluster_loses_a_host_and_its_driver_and_no_row(
    lab: Machines, minio: Minio, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    if not (PROGRAMS / "spark-s3a").is_dir():
        pytest.skip("python scripts/stores.py spark-s3a")
    url = "s3://bucket/spark/t"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.bucket.index.num.buckets": 2,
        "hoodie.mainstem.spark.driver.rows.max": 0,
        "hoodie.table.services.enabled": False,
        "hoodie.client.heartbeat.interval_in_ms": 2_000,
    }
    services = {
        "hoodie.table.services.enabled": True,  # they are off for the stream, which makes the table
        "hoodie.compact.inline.max.delta.commits": 2,
        "hoodie.archive.automatic": False,
    }
    workers = [lab.machine(f"spark-worker-{number}") for number in (1, 2)]
    drivers = [lab.machine(f"spark-driver-{number}") for number in (1, 2)]
    with SparkCluster(tmp_path / "logs", lab.machine("spark-master"), workers, cores=2) as cluster:

        def driver(host: Host) -> Speaker:
            given = {"base": "s3://bucket/spark", "master": cluster.url, "host": host.address,
                     "rows": STREAM_ROWS, "options": options,
                     "services": services}  # fmt: skip
            log = tmp_path / f"{host.name}.log"
            return Speaker(host, "spark_on_cluster.py", given, cluster.environment(host), log)

        first = driver(drivers[0])
        first.wait_for(lambda _: len(commits(url)) >= 2, "two batches")
        until(lambda: bool(commits(url, completed=False)), "a batch on its way")
        workers[0].kill()
        before = len(commits(url))
        first.wait_for(lambda _: len(commits(url)) >= before + 2, "batches without the host")
        first.wait_for(compacted, "a compaction by tasks")
        until(lambda: bool(commits(url, completed=False)), "a batch on its way")
        drivers[0].kill()
        first.process.stdin.close()
        before = len(commits(url))
        second = driver(drivers[1])
        second.wait_for(lambda _: len(commits(url)) >= before + 2, "batches of another driver")
        second.end()
    table = mainstem.open_table(url)
    table.rollback_failed_writes()
    found = table.scan(columns=["id", "v"]).to_arrow()
    rows = sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert rows == [(n, n * 10) for n in range(len(rows))]
    assert len(rows) == STREAM_ROWS * len(commits(url)), "a batch was committed twice, or in part"
    assert len(commits(url)) >= 6


def compacted(said: list[dict[str, Any]]) -> bool:
    return any(entry.get("service") == "compact" and entry["results"] for entry in said)


def commits(url: str, completed: bool = True) -> list[str]:
    """The writes that were completed, or are on their way; none without a table."""
    try:
        found = mainstem.open_table(url).timeline()
    except mainstem.Invalid:
        return []
    return [i.requested for i in found if i.action == "deltacommit" and bool(i.completion) == completed]


def test_a_job_on_a_flink_cluster_loses_a_host_and_no_row(
    lab: Machines, minio: Minio, tmp_path: Path
) -> None:
    pytest.importorskip("pyflink")
    (jar,) = jars("flink-jars", "flink.xml").glob("*.jar")
    variables = minio.variables()
    s3 = {
        "s3.endpoint": minio.endpoint,
        "s3.endpoint.region": variables["AWS_REGION"],
        "s3.access-key": variables["AWS_ACCESS_KEY_ID"],
        "s3.secret-key": variables["AWS_SECRET_ACCESS_KEY"],
        "s3.path.style.access": "true",
    }
    options = {"ordering.fields": "no_precombine", "hoodie.archive.automatic": "false"}
    workers = [lab.machine(f"flink-worker-{number}") for number in (1, 2)]
    manager, client = lab.machine("flink-manager"), lab.machine("flink-client")
    with FlinkCluster(
        tmp_path / "logs", manager, workers, settings=s3, plugins={"s3-fs-hadoop": jar}
    ) as cluster:
        given = {
            "path": "s3a://bucket/flink/t", "checkpoints": "s3://bucket/flink/checkpoints", "count": NUMBERS,
            "rate": RATE, "settings": remote(manager.address, cluster.port), "options": options,
        }  # fmt: skip
        log = tmp_path / "client.log"
        job = Speaker(client, "flink_on_cluster.py", given, cluster.prepare(client), log)
        job.wait_for(lambda said: bool(said), "the job")
        name = job.said[0]["job"]
        until(lambda: bool(commits("s3://bucket/flink/t")), "a commit")
        busy = next(host for host in workers if host.name in cluster.places(name))
        busy.kill()
        job.wait_for(lambda said: "rows" in said[-1], "the end of the job")
        job.end()
        assert busy.name not in cluster.places(name, "FINISHED")
        assert max(cluster.places(name, "FINISHED").values()) >= 1, "the host was lost too late"
    found = mainstem.open_table("s3://bucket/flink/t").scan(columns=["id", "text"]).to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(1, NUMBERS + 1))
    assert found["text"].to_pylist() == [str(n) for n in found["id"].to_pylist()]
    assert job.said[-1]["rows"] == NUMBERS, "rows that a restart wrote again were committed"
