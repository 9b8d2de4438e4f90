"""Goal: a table lives in an object store as on a local disk: every kind of write, every service, every index.

Method: on each server one table without and one with a metadata table goes through all of it; after each
step its rows are those that a dict computed.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import RolledBack, TableExists, Unsupported
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.write_ordinals import StreamWrite, allocate, finish
from tests.servers.object_stores import SERVERS, S3rver, StoreServer
from tests.stores.table_life import Rows, batch, check_metadata, content, create, open_there, put_into

QUICK = {"hoodie.time.generator.max_expected_clock_skew_ms": "10"}  # one machine
SHORT = {"hoodie.client.heartbeat.interval_in_ms": "1000", **QUICK}
UPKEEP = {
    **QUICK,
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
_numbers = itertools.count()


@pytest.fixture(scope="module", params=SERVERS, ids=lambda kind: kind.name)
def server(request) -> Iterator[StoreServer]:
    with request.param() as running:
        running.make_bucket("bucket")
        yield running


@pytest.mark.supports("Stores", "S3, Google Cloud Storage, Azure: every write and service")
@pytest.mark.parametrize("metadata", [False, True], ids=["plain", "metadata"])
def test_a_table_lives_there(server: StoreServer, metadata: bool) -> None:
    path, expected = f"tables/life-{metadata}", Rows()
    table = create(server, "bucket", path, {"hoodie.metadata.enable": metadata, **UPKEEP})
    with pytest.raises(TableExists):
        create(server, "bucket", path)

    def write(keys: range, ts: int) -> None:
        put_into(expected, batch(keys, ts))
        assert table.upsert(batch(keys, ts)).status == "committed"

    def check() -> None:
        assert content(table) == content(open_there(server, "bucket", path)) == expected
        check_metadata(table)

    table.bulk_insert(batch(range(10), 1))
    put_into(expected, batch(range(10), 1))
    write(range(5, 15), 2)
    write(range(4), 1)
    table.delete(batch([3, 11], 9).select(["id", "city"]))
    del expected["k3"], expected["k11"]
    check()
    assert table.log_compact()
    check()
    write(range(20, 24), 3)
    assert table.compact()
    check()
    write(range(21, 26), 4)
    savepoint = table.savepoint(comment="here")
    kept = dict(expected)
    write(range(26), 5)
    table.restore(savepoint.instant)
    expected = kept
    check()
    table.delete_savepoint(savepoint.instant)
    for ts in range(6, 10):
        write(range(ts, ts + 8), ts)
    table.compact()
    table.clean()
    check()
    runs = table.run_services(if_due=False)
    assert all(run.error is None for run in runs), runs
    table.archive()
    check()
    after = table.timeline()[-1].completion
    write(range(3), 20)
    changed = table.changes(after=after).to_arrow()
    assert sorted(changed["id"].to_pylist()) == ["k0", "k1", "k2"]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside Java"])
def test_instants_are_archived_at_once_unless_java_may_look_for_them(
    server: StoreServer, alone: bool
) -> None:
    given = {**UPKEEP, "hoodie.mainstem.exclusive": alone}
    table = create(server, "bucket", f"tables/archived-{alone}", given)
    expected = Rows()
    for ts in range(6):
        table.upsert(batch(range(4), ts))
        put_into(expected, batch(range(4), ts))
    table.compact()
    table.clean()
    archived = table.archive()
    assert bool(archived is not None and archived.instants) == alone
    assert content(table) == expected
    assert (len(table.timeline()) < 7) == alone


def test_a_writer_that_died_is_rolled_back(server: StoreServer) -> None:
    table = create(server, "bucket", "tables/died", SHORT)
    table.upsert(batch(range(4), 1))
    ours = open_there(server, "bucket", "tables/died", **SHORT)
    dead = ours.begin()
    dead.write(batch(range(9), 7))
    ours.writer_context().heartbeats.leave(dead.instant)  # nobody keeps it fresh any more
    rolled: list[str] = []
    end = time.monotonic() + 60
    while not rolled and time.monotonic() < end:
        rolled = [one.instant for one in table.rollback_failed_writes()]
        time.sleep(0.2)
    assert rolled == [dead.instant]
    with pytest.raises(RolledBack):
        dead.commit()
    assert len(content(table)) == 4
    storage = table.opened.seams.storage
    left = [name for folder in ("a", "b") for name in storage.names(folder) if dead.instant in name]
    assert left == []


@pytest.mark.supports("Stores", "S3, Google Cloud Storage, Azure: indexes")
def test_indexes_are_built_used_and_dropped(server: StoreServer) -> None:
    table = create(server, "bucket", "tables/indexed", {"hoodie.metadata.enable": True})
    table.upsert(batch(range(20), 1))
    table.compact()
    kinds = ("column_stats", "record_index", "bloom_filters")
    for kind in kinds:
        table.create_index(kind, options={"hoodie.mainstem.index.unsafe.for.java": "true"})
    table.upsert(batch(range(15, 30), 2))
    check_metadata(table)
    found = table.scan(filter=pa.compute.field("id") == "k17").to_arrow()
    assert found["ts"].to_pylist() == [2]
    for kind in kinds:
        assert table.drop_index(kind) is not None
    table.upsert(batch(range(2), 3))
    check_metadata(table)
    assert len(content(table)) == 30


@pytest.mark.supports("Stores", "S3, Google Cloud Storage, Azure: vector indexes")
@pytest.mark.parametrize("engine", ["flat", "hnsw"])
def test_vectors_are_indexed_and_searched(server: StoreServer, engine: str) -> None:
    schema = pa.schema([("id", pa.string()), ("x", pa.list_(pa.float32()))])
    chance = random.Random(1)
    rows = [{"id": f"{n}", "x": [chance.random() for _ in range(4)]} for n in range(200)]
    table = mainstem.create_table(
        server.location("bucket", f"tables/vectors-{engine}"), schema, record_key="id", buckets=2,
        vectors={"x": "VECTOR(4)"}, properties=server.options(),
    )  # fmt: skip
    table.upsert(pa.Table.from_pylist(rows, schema=schema))
    table.create_index("vector", ["x"], options={"engine": engine})
    asked = [rows[7]["x"]]
    first = table.search("x", asked, 3, columns=["id"])
    assert first["id"].to_pylist()[0] == "7"
    table.upsert(pa.Table.from_pylist([{"id": "new", "x": rows[7]["x"]}], schema=schema))
    again = table.search("x", asked, 3, columns=["id"])["id"].to_pylist()
    assert {"7", "new"} <= set(again)
    table.run_services("vectors", if_due=False)
    assert {"7", "new"} <= set(table.search("x", asked, 3, columns=["id"])["id"].to_pylist())
    assert table.search("x", asked, 3, columns=["id"], exact=True).num_rows == 3
    table.drop_index("x")
    assert table.search("x", asked, 3, columns=["id"], exact=True).num_rows == 3


@pytest.mark.supports("Stores", "S3, Google Cloud Storage, Azure: micro-batches are committed once")
def test_a_micro_batch_is_committed_once_and_its_writes_are_counted(server: StoreServer) -> None:
    table = create(server, "bucket", "tables/stream")
    storage, chance = table.opened.seams.storage, table.opened.seams.random
    for run in ("first", "replay"):
        for ordinal, name in enumerate("ab"):
            write = StreamWrite("chk", "query", 3, run, name, "upsert(id)")
            assert allocate(storage, chance, write) == ordinal
            with table.begin(guard=StreamGuard("chk", 3, ordinal)) as txn:
                txn.write(batch([ordinal], 1, run))
                said = txn.commit().status
            assert (said == "committed") == (run == "first"), said
            finish(storage, chance, write, ok=True)
    assert content(table) == {"k0": (1, "first0"), "k1": (1, "first1")}


@pytest.mark.supports("Stores", "a store that ignores the conditions of puts is refused")
def test_no_table_is_made_on_a_server_that_ignores_conditions() -> None:
    with S3rver() as server, pytest.raises(Unsupported, match="If-None-Match"):
        create(server, "bucket", "t")
