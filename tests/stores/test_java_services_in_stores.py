"""Goal: Java and mainstem write one table in a bucket and both serve it at the same time; nothing is lost or
doubled, and both read the same rows and the same changes.

Method: MinIO; two mainstem processes and Java upsert the same keys, Java cleans and archives after its
commits, this process runs mainstem's services all the while, and in the end each compacts what the other
wrote. The lock is ZooKeeper's, or Java's own in the store. (At the same time only one may compact: Java ends
a job whose inline compaction meets a plan that we execute. Under its own lock, which takes long to change
hands, the same happens to its cleaning: there we clean once Java's job has ended.)
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.options.locks import EXPLICIT, PROVIDER, STORAGE
from tests.interop.java_hudi import JavaHudi
from tests.servers.object_stores import StoreServer
from tests.servers.zookeeper import ZooKeeperServer
from tests.stores.beside_java import NAME, by_java, java_batch, java_options, rows_of
from tests.stores.table_life import check_metadata, content, create, open_there, put_into
from tests.stores.test_writer_processes_in_stores import BATCHES, Writer, expected_rows

pytestmark = [pytest.mark.timeout(900), pytest.mark.nothing_lost]
JAVAS = 6
SERVED = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "10",
    "hoodie.compact.inline.max.delta.commits": "4",
    "hoodie.clean.commits.retained": "4",
}
JAVA_SERVICES = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "3",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "5",
}


@pytest.fixture(params=["zookeeper", "storage"])
def lock(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A lock for the table's properties."""
    if request.param == "storage":
        yield {PROVIDER: STORAGE}
        return
    with ZooKeeperServer() as server:
        yield {
            PROVIDER: EXPLICIT,
            "hoodie.write.lock.zookeeper.url": server.connect_string,
            "hoodie.write.lock.zookeeper.base_path": "/locks",
            "hoodie.write.lock.zookeeper.lock_key": "shared",
        }


def test_both_write_and_serve_one_table_and_nothing_is_lost(
    java: JavaHudi, minio: StoreServer, lock: dict[str, str], tmp_path: Path
) -> None:
    path = f"served-{lock[PROVIDER].rpartition('.')[2]}"
    made = create(minio, "bucket", path, {"hoodie.metadata.enable": False, **lock}, name=NAME)
    assert lock.items() <= made.properties.items()
    table, url = open_there(minio, "bucket", path, **SERVED), f"s3a://bucket/{path}"
    files = [java.rows_file(java_batch(number)) for number in range(JAVAS)]
    writers = [Writer(minio, path, tmp_path, number, options=SERVED) for number in range(2)]
    only = "rollback,compact,archive" if lock[PROVIDER] == STORAGE else None
    try:
        java.send("write_loop", path=url, files=files, options=java_options(False, **JAVA_SERVICES))
        while not java.answered() or any(writer.child.poll() is None for writer in writers):
            for ran in table.run_services(only):
                assert ran.error is None, ran.describe()
        assert len(java.receive()["commits"]) == JAVAS
        assert [writer.child.returncode for writer in writers] == [0, 0]
    finally:
        for writer in writers:
            writer.end()
    assert all(ran.error is None for ran in table.run_services())
    for writer in writers:
        said = writer.entries()
        assert [entry.get("status") for entry in said] == ["committed"] * BATCHES, said
    expected = expected_rows()
    for number in range(JAVAS):
        put_into(expected, java_batch(number))
    check_same(java, table, url, expected)
    table.compact()
    java.write(url, java_batch(JAVAS), java_options(False, **JAVA_SERVICES))
    put_into(expected, java_batch(JAVAS))
    check_same(java, table, url, expected)
    # A client without a write does not ask the table's properties for the lock.
    java.compact(url, {**java_options(False), **lock})
    check_same(java, table, url, expected)
    check_served(table)


def check_same(java: JavaHudi, table: mainstem.Table, url: str, expected: dict) -> None:
    """Rows, the changes since the oldest commit that both still show, what the metadata table says."""
    assert content(table) == expected == by_java(java, url)
    done = sorted(i.completion for i in table.timeline() if i.completion and i.action == "deltacommit")
    mine = rows_of(table.changes(after=done[-2]).to_arrow())
    assert mine and rows_of(java.changes(url, done[-2])) == mine
    check_metadata(table)


def check_served(table: mainstem.Table) -> None:
    """Compactions and cleans were made, and the archive holds instants."""
    actions = {i.action for i in table.timeline() if i.completion}
    assert {"commit", "clean"} <= actions
    assert table.opened.seams.storage.names(".hoodie/timeline/history")
