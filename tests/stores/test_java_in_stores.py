"""Goal: Java Hudi reads a table of ours in a bucket, and writes it beside two mainstem processes.

Method: MinIO; Hudi 1.2.0 in Spark 3.5 with hadoop-aws, and its own storage lock with a stand-in for the
client of hudi-aws (``java/``). Maven fetches the jars once. Java gets no option of a lock: the table's
properties name it. hudi-rs reads the same table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.hudi_rs.reading import read as read_with_hudi_rs
from tests.interop.java_hudi import PYTHON, QUICK_JVM, JavaHudi, nbcc_options
from tests.servers.object_stores import Minio, StoreServer
from tests.stores.jars import jars, lock_classes
from tests.stores.table_life import Rows, batch, check_metadata, content, create, open_there, put_into
from tests.stores.test_writer_processes_in_stores import BATCHES, OPTIONS, Writer, expected_rows

pytestmark = [pytest.mark.timeout(600), pytest.mark.nothing_lost]
LOCK = "hoodie.write.lock."
LOCK_FILE = ".hoodie/.locks/table_lock.json"


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with Minio() as running:
        running.make_bucket("bucket")
        yield running


@pytest.fixture(scope="module")
def java(server: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    if not PYTHON.exists():
        pytest.skip("needs the environment of make interop")
    hadoop = jars("s3a-jars", "s3a.xml")
    found, made = lock_classes(tmp_path_factory)
    given = server.options()
    settings = {
        "spark.driver.extraClassPath": f"{made}:{found}/*:{hadoop}/*",
        **{f"spark.hadoop.{key}": value for key, value in given.items()},
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }
    log = tmp_path_factory.mktemp("java") / "stderr.log"
    with JavaHudi(
        cores=2, memory="1g", log=log, jvm=QUICK_JVM, settings=settings, environment=aws_environment(server),
    ) as running:
        yield running


def aws_environment(server: StoreServer) -> dict[str, str]:
    given = server.options()
    return {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": given["fs.s3a.access.key"],
        "AWS_SECRET_ACCESS_KEY": given["fs.s3a.secret.key"],
    }


def java_options(metadata: bool) -> dict[str, str]:
    """Options of a Java job that names no lock."""
    options = nbcc_options(
        "shared", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2,
        extra={"hoodie.metadata.enable": str(metadata).lower()},
    )  # fmt: skip
    return {key: value for key, value in options.items() if not key.startswith(LOCK)}


def by_java(java: JavaHudi, url: str) -> Rows:
    rows = java.read_by_default(url).to_pylist()
    found = {row["id"]: (row["ts"], row["v"]) for row in rows}
    assert len(found) == len(rows), "a key comes twice"
    return found


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_java_reads_the_same_rows_by_default(java: JavaHudi, server: StoreServer, metadata: bool) -> None:
    path = f"read-{metadata}"
    table = create(server, "bucket", path, {"hoodie.metadata.enable": metadata})
    expected = Rows()
    for ts in range(3):
        table.upsert(batch(range(ts, ts + 10), ts))
        put_into(expected, batch(range(ts, ts + 10), ts))
        if ts == 1:
            table.compact()
    assert by_java(java, f"s3a://bucket/{path}") == content(table) == expected
    if metadata:  # hudi-rs 0.5 then leaves out file groups of log files only, on local disks too
        return
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**aws_environment(server), "AWS_ALLOW_HTTP": "true"}.items():
            patch.setenv(name, value)
        rows, error = read_with_hudi_rs(f"s3://bucket/{path}")
    assert rows is not None, error
    assert {row["id"]: (row["ts"], row["v"]) for row in rows.to_pylist()} == expected


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_java_writes_beside_two_mainstem_processes(
    java: JavaHudi, server: StoreServer, tmp_path: Path, metadata: bool
) -> None:
    path = f"shared-{metadata}"
    create(server, "bucket", path, {"hoodie.metadata.enable": metadata}, name="shared")
    writers = [Writer(server, path, tmp_path, number) for number in range(2)]
    expected = expected_rows()
    commits = 3
    try:
        for number in range(commits):
            rows = java_batch(number)
            put_into(expected, rows)
            java.write(f"s3a://bucket/{path}", rows, java_options(metadata))
        for writer in writers:
            assert writer.child.wait(240) == 0
    finally:
        for writer in writers:
            writer.end()
    lock = server.storage("bucket", path)
    before = lock.read(LOCK_FILE, max_bytes=1 << 16)
    rows = java_batch(commits)
    put_into(expected, rows)
    java.write(f"s3a://bucket/{path}", rows, java_options(metadata))
    after = lock.read(LOCK_FILE, max_bytes=1 << 16)
    assert json.loads(before)["owner"] != json.loads(after)["owner"], "Java took the lock of the table"
    for writer in writers:
        said = writer.entries()
        assert [entry.get("status") for entry in said] == ["committed"] * BATCHES, said
    table = open_there(server, "bucket", path, **OPTIONS)
    done = [i for i in table.timeline() if i.action == "deltacommit" and i.completion]
    assert len(done) == 2 * BATCHES + commits + 1
    assert content(table) == expected == by_java(java, f"s3a://bucket/{path}")
    check_metadata(table)
    table.compact()
    assert content(table) == expected == by_java(java, f"s3a://bucket/{path}")
    check_metadata(table)


def java_batch(number: int) -> pa.Table:
    """Rows of a Java commit; half of them have keys of the other writers."""
    names = [f"j{number}-{n}" for n in range(4)] + [f"s{n}" for n in range(4)]
    ts = number * 250 + 50
    columns = [names, ["ab"[n % 2] for n in range(8)], [ts] * 8, [f"java/{number}"] * 8]
    return pa.table(columns, schema=batch([], 0).schema)
