"""Goal: a ZooKeeper that is away at the start or goes away for ever is a clear error, the table untouched.

Method: a table whose lock is in a real server that was never started, or is killed in the middle; every file
of the table with its time before and after.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import LockUnavailable, Unavailable
from mainstem.options.locks import EXPLICIT
from tests.multiprocess import table_files
from tests.multiprocess.writer_worker import SCHEMA, batch
from tests.servers.zookeeper import ZooKeeperServer, free_port

pytest.importorskip("kazoo.client")
URL = "hoodie.write.lock.zookeeper.url"
SOON = {
    "hoodie.write.lock.zookeeper.connection_timeout_ms": "400",
    "hoodie.write.lock.zookeeper.session_timeout_ms": "1000",
    "hoodie.write.lock.wait_time_ms": "1500",
    "hoodie.write.lock.client.num_retries": "0",
}

# Where there is a server, a busy machine's time to answer.
LATER = {
    **SOON,
    "hoodie.write.lock.zookeeper.connection_timeout_ms": "3000",
    "hoodie.write.lock.zookeeper.session_timeout_ms": "30000",
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tick_ms=100) as running:
        yield running


def create(path: Path, address: str, properties: dict[str, str] = LATER) -> mainstem.Table:
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        properties={
            "hoodie.mainstem.exclusive": True,
            "hoodie.write.lock.provider": EXPLICIT,
            URL: address,
            "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
            "hoodie.write.lock.zookeeper.lock_key": "t",
        },
    )  # fmt: skip
    return mainstem.open_table(path, properties)


def everything(base: Path) -> dict[str, int]:
    """Every file of a table -> when it was last changed."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names)
    return {os.path.relpath(path, base): os.stat(path).st_mtime_ns for path in files}


WRITES = {
    "begin": lambda table: table.begin("upsert"),
    "upsert": lambda table: table.upsert(batch(0, 0)),
    "delete": lambda table: table.delete(batch(0, 0)),
    "compact": lambda table: table.compact(if_due=False),
    "savepoint": lambda table: table.savepoint(),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_zookeeper_that_is_away_at_the_start_is_an_error_before_anything_is_written(tmp_path, write):
    address = f"127.0.0.1:{free_port()}"
    table = create(tmp_path / "t", address, SOON)
    before = everything(tmp_path / "t")
    with pytest.raises(Unavailable, match=rf"no ZooKeeper server of {URL}={address} answered within 400 ms"):
        WRITES[write](table)
    assert everything(tmp_path / "t") == before
    assert table.scan().to_arrow().num_rows == 0, "reading needs no lock"


def test_a_zookeeper_that_nobody_can_reach_is_corrected_by_the_right_address_alone(tmp_path, server):
    path = tmp_path / "t"
    create(path, wrong := f"127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable):
        mainstem.open_table(path, SOON).upsert(batch(0, 0))
    text = path / ".hoodie/hoodie.properties"
    text.write_text(text.read_text().replace(wrong.replace(":", "\\:"), server.connect_string))
    text.write_text(text.read_text().replace(wrong, server.connect_string))
    patient = {**LATER, "hoodie.write.lock.wait_time_ms": "60000"}
    assert mainstem.open_table(path, patient).upsert(batch(0, 0)).status == "committed"


def test_a_zookeeper_that_goes_away_for_ever_ends_the_commit_and_nothing_of_it_shows(tmp_path, server):
    base = tmp_path / "t"
    table = create(base, server.connect_string)
    table.upsert(batch(0, 0))
    rows, commits = table.scan().to_arrow(), table_files.commits(base)
    with pytest.raises(LockUnavailable, match=r"does not answer .*\d+ ms that hoodie.write.lock") as caught:
        write_while_the_server_dies(table, server)
    assert "nothing was published" in str(caught.value)
    assert table_files.commits(base) == commits
    assert mainstem.open_table(base).scan().to_arrow().equals(rows)


def write_while_the_server_dies(table: mainstem.Table, server: ZooKeeperServer) -> None:
    with table.begin("upsert") as txn:
        txn.write(batch(1, 1))
        server.kill()
        txn.commit()


def test_what_a_writer_left_whose_zookeeper_went_away_is_rolled_back_when_it_is_there_again(tmp_path, server):
    base = tmp_path / "t"
    table = create(base, server.connect_string)
    table.upsert(batch(0, 0))
    with pytest.raises(LockUnavailable):
        write_while_the_server_dies(table, server)
    server.restart()
    table_files.age(base)
    again = mainstem.open_table(base, LATER)
    again.upsert(batch(2, 2))
    again.rollback_failed_writes()
    assert table_files.leftovers(base) == []
    assert len(table_files.commits(base)) == 2
