"""Goal: Java Hudi reads a table of ours in a bucket, and writes it beside two mainstem processes.

Method: MinIO; Hudi 1.2.0 in Spark 3.5 with hadoop-aws, and its own storage lock with a stand-in for the
client of hudi-aws (``java/``). Maven fetches the jars once. Java gets no option of a lock: the table's
properties name it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop.java_hudi import JavaHudi
from tests.servers.object_stores import StoreServer
from tests.stores.beside_java import NAME, by_java, java_batch, java_options
from tests.stores.table_life import Rows, batch, check_metadata, content, create, open_there, put_into
from tests.stores.test_writer_processes_in_stores import BATCHES, OPTIONS, Writer, expected_rows

pytestmark = [pytest.mark.timeout(600), pytest.mark.nothing_lost]
LOCK_FILE = ".hoodie/.locks/table_lock.json"


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_java_reads_the_same_rows_by_default(java: JavaHudi, minio: StoreServer, metadata: bool) -> None:
    path = f"read-{metadata}"
    table = create(minio, "bucket", path, {"hoodie.metadata.enable": metadata})
    expected = Rows()
    for ts in range(3):
        table.upsert(batch(range(ts, ts + 10), ts))
        put_into(expected, batch(range(ts, ts + 10), ts))
        if ts == 1:
            table.compact()
    assert by_java(java, f"s3a://bucket/{path}") == content(table) == expected


@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_java_writes_beside_two_mainstem_processes(
    java: JavaHudi, minio: StoreServer, tmp_path: Path, metadata: bool
) -> None:
    path = f"shared-{metadata}"
    create(minio, "bucket", path, {"hoodie.metadata.enable": metadata}, name=NAME)
    writers = [Writer(minio, path, tmp_path, number) for number in range(2)]
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
    lock = minio.storage("bucket", path)
    before = lock.read(LOCK_FILE, max_bytes=1 << 16)
    rows = java_batch(commits)
    put_into(expected, rows)
    java.write(f"s3a://bucket/{path}", rows, java_options(metadata))
    after = lock.read(LOCK_FILE, max_bytes=1 << 16)
    assert json.loads(before)["owner"] != json.loads(after)["owner"], "Java took the lock of the table"
    for writer in writers:
        said = writer.entries()
        assert [entry.get("status") for entry in said] == ["committed"] * BATCHES, said
    table = open_there(minio, "bucket", path, **OPTIONS)
    done = [i for i in table.timeline() if i.action == "deltacommit" and i.completion]
    assert len(done) == 2 * BATCHES + commits + 1
    assert content(table) == expected == by_java(java, f"s3a://bucket/{path}")
    check_metadata(table)
    table.compact()
    assert content(table) == expected == by_java(java, f"s3a://bucket/{path}")
    check_metadata(table)
