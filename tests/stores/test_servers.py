"""Goal: real servers keep the contract of stores; a table is read from them, and a server that ignores
conditions is found.

Method: the same contract as in memory, the probe and a few golden tables, against MinIO, versitygw and
Azurite; s3rver is probed. ``make stores`` installs them and runs this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainstem
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.storage import object_store, paths
from mainstem.storage.probe import probe
from mainstem.storage.side_by_side import side_by_side
from tests.golden_tables.tables import expectations, unpack
from tests.servers.object_stores import SERVERS, S3rver, StoreServer
from tests.storage.store_contract import CONTRACT
from tests.storage.test_golden_in_a_store import KINDS, answer

GOLDEN = ("nbcc_two_writers_mdt", "all_types", "archive_lsm", "keys_simple_hive_urlencode")
_numbers = itertools.count()


@pytest.fixture(scope="module", params=SERVERS, ids=lambda kind: kind.name)
def server(request) -> Iterator[StoreServer]:
    with request.param() as running:
        running.make_bucket("bucket")
        yield running


@pytest.mark.parametrize("contract", CONTRACT, ids=lambda function: function.__name__)
def test_a_server_keeps_the_contract(contract, server: StoreServer) -> None:
    contract(server.storage("bucket", f"contract/{next(_numbers)}"))


def test_the_probe_accepts_it(server: StoreServer) -> None:
    storage = server.storage("bucket", "probed")
    probe(storage, "probes", "nonce")
    assert storage.names("") == []


@pytest.mark.supports("Stores", "tables that were copied into a store, Java's too (read)")
@pytest.mark.parametrize("name", GOLDEN)
def test_every_query_gives_the_rows_of_the_local_table(name, server: StoreServer, tmp_path: Path) -> None:
    local, storage = unpack(name, tmp_path), server.storage("bucket", name)
    for path in local.rglob("*"):
        if path.is_file():
            storage.put(path.relative_to(local).as_posix(), path.read_bytes(), durable=True)
    for query in expectations(name)["queries"]:
        if query["kind"] in KINDS:
            there = answer(server.location("bucket", name), name, query)
            assert there == answer(local, name, query), query


def test_keys_with_odd_characters_are_found_again(server: StoreServer) -> None:
    storage = server.storage("bucket", "odd")
    names = ["a b", "a+b", "a%20b", "ä#?&=", ".hidden", "x=1", "('a')", "tilde~", "a@b:c", "*"]
    for name in names:
        storage.put_new(f"f/{name}/{name}", name.encode(), durable=True)
    assert sorted(storage.names("f")) == sorted(names)
    for name in names:
        assert storage.read(f"f/{name}/{name}", max_bytes=99) == name.encode()
        assert storage.names(f"f/{name}") == [name] and storage.delete(f"f/{name}/{name}")
    assert storage.names("f") == []


@pytest.mark.supports("Stores", "objects in parts")
def test_a_long_object_is_put_in_parts_where_there_are_any(server: StoreServer, monkeypatch) -> None:
    monkeypatch.setattr(object_store, "STORE_PUT_BYTES_MAX", 1)
    storage, content = server.storage("bucket", "long"), bytes(range(256)) * (20 * 4096)
    storage.put_new("one", content, durable=True)
    assert bytes(storage.view("one")) == content and storage.names(paths.LONG) == []
    with pytest.raises(FileExistsError):
        storage.put_new("one", content[::-1], durable=True)
    assert storage.names("") == ["one"]


def test_more_names_than_one_page_are_listed_and_removed(server: StoreServer) -> None:
    storage = server.storage("bucket", "many")
    names = [f"{number:05}" for number in range(1100)]
    side_by_side(storage, lambda name: storage.put_new(f"f/{name}", b"", durable=True), names)
    assert sorted(storage.names("f")) == names and storage.names("f", after="01097") == ["01098", "01099"]
    storage.delete_tree("f")
    assert storage.names("") == []


def test_a_bucket_that_is_not_there_is_said_to_be_missing(server: StoreServer) -> None:
    with pytest.raises((Invalid, Unavailable), match="bucket"):
        mainstem.open_table(server.location("no-such-bucket", "t"))


def test_a_server_that_ignores_conditions_is_refused() -> None:
    with S3rver() as server, pytest.raises(Unsupported, match="If-None-Match"):
        probe(server.storage("bucket", "t"), "probes", "nonce")
