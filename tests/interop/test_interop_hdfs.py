"""Goal: Java Hudi reads a table on HDFS that mainstem wrote, and writes it beside mainstem's writers.

Method: Hadoop 3.3.6 in a process (``make stores`` installs it; without it the test is skipped), the
file-system lock in the table. Java and two threads of ours upsert the same keys at the same moment; services
run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from compare import assert_same, without_meta
from java_hudi import JavaHudi, nbcc_options

import mainstem
from tests.servers import hdfs
from tests.servers.hdfs import Hdfs

pytestmark = pytest.mark.skipif(not hdfs.installed(), reason="HDFS is not installed: make stores")
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("by", pa.string()), ("p", pa.string())])
OURS = 6
JAVAS = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Hdfs]:
    with Hdfs() as running:
        yield running


def batch(by: str, number: int) -> pa.Table:
    """Rows of one commit: one of its own, and ten that everybody writes."""
    ids = [f"{by}-{number}", *(f"all-{n}" for n in range(10))]
    times = [number * 10 + len(by)] * len(ids)
    return pa.table(
        {"id": ids, "ts": times, "by": [by] * len(ids), "p": ["a", *["a", "b"] * 5]}, schema=SCHEMA
    )


def test_java_reads_and_writes_beside_us_on_hdfs(java: JavaHudi, cluster: Hdfs) -> None:
    table = mainstem.create_table(
        cluster.url("java/table"), SCHEMA, record_key="id", ordering="ts", partition_by="p", buckets=2,
        name="t", properties=cluster.options(),
    )  # fmt: skip
    options = nbcc_options("t", record_key=["id"], partition_by=["p"], ordering=["ts"], buckets=2)
    table.upsert(batch("ours", 0))
    assert_same(without_meta(java.read(table.path)), without_meta(table.scan().to_arrow()), key=["id"])

    failures: list[BaseException] = []

    def write(by: str) -> None:
        try:
            mine = mainstem.open_table(table.path, properties=cluster.options())
            for number in range(1, OURS):
                mine.upsert(batch(by, number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(by,)) for by in ("ours", "other")]
    for thread in threads:
        thread.start()
    for number in range(JAVAS):
        java.write(table.path, batch("java", number), options)
    for thread in threads:
        thread.join()
    assert not failures
    table.compact()
    table.clean()
    java.write(table.path, batch("java", JAVAS), options)

    ours = mainstem.open_table(table.path, properties=cluster.options()).scan().to_arrow()
    assert_same(without_meta(java.read(table.path)), without_meta(ours), key=["id"])
    written = [*(("ours", n) for n in range(OURS)), *(("other", n) for n in range(1, OURS))]
    written += [("java", n) for n in range(JAVAS + 1)]
    singles = {f"{by}-{number}" for by, number in written}
    assert singles | {f"all-{n}" for n in range(10)} == set(ours["id"].to_pylist())
    newest = max(number * 10 + len(by) for by, number in written)
    shared = [row["ts"] for row in ours.to_pylist() if row["id"].startswith("all-")]
    assert shared == [newest] * 10


def test_java_s_lock_and_ours_exclude_each_other_on_hdfs(java: JavaHudi, cluster: Hdfs) -> None:
    at_once = {"hoodie.write.lock.wait_time_ms": "200", "hoodie.write.lock.client.num_retries": "0"}
    table = mainstem.create_table(
        cluster.url("java/locked"), SCHEMA, record_key="id", ordering="ts", partition_by="p", buckets=1,
        name="t", properties={**cluster.options(), **at_once},
    )  # fmt: skip
    assert java.try_lock(table.path)
    with pytest.raises(mainstem.errors.LockUnavailable, match="foreign writer"):
        table.upsert(batch("ours", 0))
    java.unlock()
    table.upsert(batch("ours", 0))
    lease = table.writer_context().seams.lock.acquire()
    assert not java.try_lock(table.path)
    lease.release()
    assert java.try_lock(table.path)
    java.unlock()
