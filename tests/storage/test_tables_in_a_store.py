"""Goal: a table that was copied into an object store, or out of one, is read by every door, and written there
as docs/stores.md says.

Method: a table of ours with a metadata table, copied into a store in memory and back; the requests of a read
are counted.
"""

from __future__ import annotations

import json
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Invalid
from mainstem.storage import object_store
from mainstem.storage.backends import location_of
from mainstem.storage.memory_store import forget, memory_store
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.range_file import TAIL_BYTES
from mainstem.vectors.index import versions
from tests.storage.requests_made import Requests
from tests.storage.test_golden_in_a_store import put_folder

URL = "memory://mine/tables/t"
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])


def batch(first: int, count: int) -> pa.Table:
    rows = range(first, first + count)
    return pa.table([[str(n) for n in rows], [f"day{n % 3}" for n in rows], list(rows)], schema=SCHEMA)


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("store") / "t"
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="day", buckets=2,
        properties={"hoodie.metadata.enable": "true", "hoodie.mainstem.fsync": "false"},
    )  # fmt: skip
    table.upsert(batch(0, 30))
    table.compact()
    table.upsert(batch(20, 20))
    return path


@pytest.fixture
def url(local: Path):
    put_folder(local, "mine", "tables/t")
    yield URL
    forget("mine")


def test_rows_changes_and_filters_are_those_of_the_local_table(local: Path, url: str) -> None:
    here, there = mainstem.open_table(local), mainstem.open_table(url)
    assert there.path == url and there.schema == here.schema
    for read in (
        lambda table: table.scan().to_arrow(),
        lambda table: table.scan(filter=pc.field("id") == "25").to_arrow(),
        lambda table: table.scan(filter=pc.field("day") == "day1", columns=["v"]).to_arrow(),
        lambda table: table.changes(after="0").to_arrow(),
        lambda table: table.dataset().to_table(filter=pc.field("v") > 25).sort_by("v"),
    ):
        assert read(there).equals(read(here)) and read(there).num_rows


def test_the_command_line_reads_it(local: Path, url: str, capsys) -> None:
    for command in ("scan", "timeline", "slices"):
        assert main([command, "--json", url]) == 0
        there = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert main([command, "--json", str(local)]) == 0
        assert there == [json.loads(line) for line in capsys.readouterr().out.splitlines()] and there


def test_a_copy_of_a_table_on_a_disk_is_written_with_the_lock_of_its_place(local: Path, url: str) -> None:
    there = mainstem.open_table(url)
    there.upsert(batch(40, 20))
    there.compact()
    assert there.scan().to_arrow().num_rows == 60
    assert mainstem.open_table(local).scan().to_arrow().num_rows == 40
    assert mainstem.open_table(url).upsert(batch(50, 1)).status == "committed"
    assert there.validate_metadata().ok


def put_into_folder(bucket: str, prefix: str, folder: Path) -> None:
    """Copy all objects below a prefix, as ``aws s3 sync`` does."""
    store = memory_store(bucket)
    for one in (one for page in obstore.list(store, f"{prefix}/") for one in page):
        path = folder / one["path"].removeprefix(f"{prefix}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(obstore.get(store, one["path"]).bytes()))


@pytest.mark.disk("the copy lies on a disk, without a gate")
@pytest.mark.parametrize("born", ["on a disk", "in the store"])
def test_a_copy_of_a_table_in_a_store_goes_on_on_a_disk(born: str, tmp_path: Path, url: str) -> None:
    if born == "in the store":
        url = f"{url}2"
        born_there = mainstem.create_table(
            url, SCHEMA, record_key="id", partition_by="day", buckets=2,
            properties={"hoodie.metadata.enable": "true"},
        )  # fmt: skip
        born_there.upsert(batch(0, 40))
    there = mainstem.open_table(url)
    there.upsert(batch(40, 20))
    there.compact()
    put_into_folder("mine", url.removeprefix("memory://mine/"), tmp_path)
    here = mainstem.open_table(tmp_path)
    assert here.scan().to_arrow().num_rows == 60
    here.upsert(batch(60, 10))
    here.compact()
    assert here.scan().to_arrow().num_rows == 70 and here.validate_metadata().ok
    assert not (tmp_path / ".hoodie" / ".mainstem" / "gate.json").exists()
    assert mainstem.open_table(tmp_path).upsert(batch(0, 1)).status == "committed"
    put_folder(tmp_path, "mine", "tables/back")
    back = mainstem.open_table("memory://mine/tables/back")
    back.upsert(batch(70, 10))
    assert back.scan().to_arrow().num_rows == 80 and back.validate_metadata().ok


def test_a_place_without_a_table_is_said_to_be_one(url: str) -> None:
    with pytest.raises(Invalid, match="no table"):
        mainstem.open_table(f"{url}/no")


def test_a_table_in_memory_does_not_travel_and_one_in_a_bucket_does(url: str) -> None:
    with pytest.raises(TypeError, match="only in this process"):
        mainstem.open_table(url).__reduce__()


def test_options_of_the_store_are_no_options_of_the_table(url: str) -> None:
    table = mainstem.open_table(url, {"hoodie.mainstem.storage.width": "2", "fs.s3a.secret.key": "hidden"})
    assert table.opened.seams.storage.width == 2 and "hidden" not in f"{table!r}{table.opened.given}"
    with pytest.raises(Invalid, match="unknown option"):
        mainstem.open_table(url, {"hoodie.mainstem.storage.wide": "2"})


def test_the_requests_of_a_scan_are_few(local: Path, url: str, monkeypatch) -> None:
    """A file of rows costs two: one that says whether it is whole, and one that reads it."""
    calls = Requests()
    made = ObjectStorage.__init__

    def counting(self, *args, **how) -> None:
        made(self, *args, **{**how, "calls": calls})

    monkeypatch.setattr(object_store.ObjectStorage, "__init__", counting)
    table = mainstem.open_table(url)
    calls.made.clear()
    assert table.scan().to_arrow().num_rows == 40
    files = sum(1 for path in local.rglob("*") if path.suffix == ".parquet" or ".log." in path.name)
    assert calls.made["get_range"] == 0 and calls.made["list_with_delimiter"] <= 8
    assert calls.made["head"] <= files and calls.made["get"] <= files + 20, calls.log
    assert all(path.stat().st_size < TAIL_BYTES for path in local.rglob("*.parquet"))


def test_a_location_in_a_bucket_is_one_place_by_its_url() -> None:
    assert location_of("S3://bucket//a/b/").base == "s3://bucket/a/b" == location_of("s3://bucket/a/b").base
    assert location_of("s3://bucket").path == "" and location_of("s3://bucket/").below("x").path == "/x"


@pytest.mark.parametrize("spill", [False, True])
def test_vectors_are_searched_where_they_are(tmp_path: Path, monkeypatch, spill: bool) -> None:
    if spill:
        monkeypatch.setattr(versions, "VECTOR_MEMORY_BYTES_MAX", 0)
    schema = pa.schema([("id", pa.string()), ("x", pa.list_(pa.float32()))])
    here = mainstem.create_table(
        tmp_path / "t", schema, record_key="id", vectors={"x": "VECTOR(2)"},
        properties={"hoodie.mainstem.fsync": "false"},
    )  # fmt: skip
    rows = [{"id": str(n), "x": [float(n), 1.0]} for n in range(20)]
    here.upsert(pa.Table.from_pylist(rows, schema=schema))
    here.create_index("vector", ["x"], options={"engine": "flat"})
    put_folder(tmp_path / "t", "vectors", "t")
    there = mainstem.open_table("memory://vectors/t")
    found = there.search("x", [[3.0, 1.0]], 3, columns=["id"])
    assert found.num_rows == 3 and found.equals(here.search("x", [[3.0, 1.0]], 3, columns=["id"]))
    assert there.explain_search("x", [[3.0, 1.0]], 3) == here.explain_search("x", [[3.0, 1.0]], 3)
    forget("vectors")
