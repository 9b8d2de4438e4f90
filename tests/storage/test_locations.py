"""Goal: one parser decides what a path or URL names; what is not meant is refused with the way out; a
location travels whole and without secrets; nobody makes a store but by it.

Method: texts and what becomes of them, through the parser and through every front door; pickles; ``ast`` over
the package.
"""

from __future__ import annotations

import ast
import os
import pickle
import time
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.given_options import shared_location
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.storage.backends import BACKENDS, location_of, names_place, storage_of
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.local import LocalStorage
from mainstem.storage.location import Location
from mainstem.storage.store_options import KINDS
from mainstem.truetime.locks.option_values import local_folder

PACKAGE = Path(mainstem.__file__).parent
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
#: who may name the class of a store
_MAKERS = {"storage/backends.py"}
#: who may turn a location into a store: what opens tables, and what runs in tasks and workers
_OPENERS = {
    "api/real_seams.py", "api/table.py", "api/job_table.py", "api/neighbours.py", "writers/write_task.py",
    "services/compact_group.py", "spark/indexes.py", "spark/jobs.py", "spark/key_tasks.py",
    "spark/source_readers.py", "spark/stream_metrics.py", "spark/tasks.py", "flink/split_reader.py",
    "flink/stage_function.py", "api/purging.py", "catalogs/folder.py", "ui/found_tables.py",
    "engines/pinned.py", "engines/write_job.py",
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["/tmp/t", "/tmp/t/", "//tmp/t", "/tmp/x/../t", "file:/tmp/t", "file:///tmp/t", "FILE:///tmp/t",
     "File:/tmp/t/", "file://localhost/tmp/t", "file:////tmp/t", Path("/tmp/t")],
)  # fmt: skip
def test_all_spellings_of_a_local_folder_are_one_location(text) -> None:
    assert location_of(text) == Location("file", "", "/tmp/t") == shared_location(os.fspath(text))
    assert local_folder("hoodie.write.lock.filesystem.path", os.fspath(text)) == "/tmp/t"


@pytest.mark.parametrize("text", ["/tmp/a:b", "/tmp/s3://x", "./s3:/x", "a/b:c", "2026:t", "/tmp/a%20b"])
def test_a_local_path_may_have_a_colon_behind_its_first_slash(text: str) -> None:
    assert location_of(text).path == os.path.abspath(text)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("s3:/bucket/t", Invalid, r"names no bucket.*'\./s3:/bucket/t'"),
        ("s3a:///t", Invalid, "names no bucket: expected s3a://BUCKET/PATH"),
        ("S3://bucket/a/../t", Invalid, "no '..'"),
        ("abfss://@account.dfs.core.windows.net/t", Invalid, "names no bucket"),
        ("s3://my bucket/t", Invalid, "'my bucket' is no name of a bucket: expected letters"),
        ("abfss://c@account:443/t", Invalid, "'c@account:443' is no name of a bucket or container"),
        ("viewfs://n/t", Unsupported, "'viewfs'"),
        ("hdfs:t", Invalid, "hdfs:///PATH"),
        ("day:t", Unsupported, "'./day:t'"),
        ("C:\\t", Unsupported, "'c'"),
        ("file://host/x", Unsupported, "the host 'host'.*file:///x"),
        ("file:x", Invalid, "relative"),
        ("file:", Invalid, "relative"),
        ("file://localhost", Invalid, "relative"),
        ("", Invalid, "expected the folder of a table"),
        ("/tmp/a\0b", Invalid, "expected the folder of a table"),
    ],
)
def test_what_is_not_meant_is_refused_by_every_front_door(tmp_path, monkeypatch, text, error, said) -> None:
    monkeypatch.chdir(tmp_path)
    for door in (
        location_of,
        shared_location,
        mainstem.open_table,
        lambda path: mainstem.create_table(path, SCHEMA, record_key="id"),
    ):
        with pytest.raises(error, match=said):
            door(text)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "url",
    ["s3://me:hidden@bucket/t", "gs://hidden@bucket/t", "hdfs://me:hidden@host:8020/t", "http://me:hidden@h/t",
     "abfss://c:hidden@account.dfs.core.windows.net/t", "viewfs://me:hidden@h/t", "file://me:hidden@h/t",
     "abfss://c@account.dfs.core.windows.net/t?sv=2024&sig=hidden", "az://c/t?SIG=hidden",
     "s3://bucket/t?X-Amz-Algorithm=a&X-Amz-Signature=hidden", "https://h/t?X-Goog-Signature=hidden"],
)  # fmt: skip
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Invalid, match="which would end in logs and plans") as raised:
        mainstem.open_table(url)
    assert "hidden" not in str(raised.value)


def test_a_name_node_whose_host_nobody_knows_is_not_waited_for() -> None:
    pytest.importorskip("hdfs_native")
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"the name node's host 'no-such-host\.invalid' is not known"):
        mainstem.open_table("hdfs://no-such-host.invalid:8020/t")
    assert time.monotonic() - began < 60


@pytest.mark.disk("HDFS takes no colon in a path")
def test_a_path_object_of_a_url_is_refused_as_well(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Invalid, match=r"'s3:/bucket/t'.*'\./s3:/bucket/t'"):
        mainstem.create_table(Path("s3://bucket/t"), SCHEMA, record_key="id")
    table = mainstem.create_table("./s3:/t", SCHEMA, record_key="id")
    assert table.path == str(tmp_path / "s3:" / "t")


def test_a_job_takes_no_relative_path() -> None:
    with pytest.raises(Invalid, match="working folders"):
        shared_location("t")


def test_only_paths_and_urls_name_a_place() -> None:
    assert names_place("/t") and names_place("file:/t") and names_place("s3://b/t")
    assert not names_place("db.t") and not names_place("`a`.`b`")


def test_a_location_travels_and_gives_the_same_store(tmp_path: Path) -> None:
    storage = storage_of(location_of(tmp_path))
    storage.put_new("a/b", b"1", durable=False)
    again = storage_of(pickle.loads(pickle.dumps(storage.location)))
    assert again.read("a/b", max_bytes=1) == b"1"
    below = FolderStorage(storage, "a")
    assert below.location.base == below.base
    assert storage_of(below.location).read("b", max_bytes=1) == b"1"


def test_secrets_travel_by_the_name_of_a_variable_only(monkeypatch) -> None:
    location = Location("s3", "b", "/t", options=(("region", "x"),), secrets=(("key", "MY_KEY"),))
    monkeypatch.setenv("MY_KEY", "hidden-text")
    assert location.option_values() == {"region": "x", "key": "hidden-text"}
    assert "hidden-text" not in f"{location} {location!r}" and b"hidden-text" not in pickle.dumps(location)
    assert str(location) == "s3://b/t"
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(Invalid, match="MY_KEY"):
        location.option_values()


def test_a_store_is_added_by_one_line(monkeypatch, tmp_path: Path) -> None:
    assert list(BACKENDS) == ["file", "hdfs", *KINDS]
    monkeypatch.setitem(BACKENDS, "mem", lambda location, sync: LocalStorage(str(tmp_path), sync=sync))
    assert storage_of(Location("mem", "", "/t")).base == str(tmp_path)


def _named(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return names | {a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}


def test_stores_are_made_by_their_location_and_by_few() -> None:
    makers, openers = set(), set()
    for path in PACKAGE.rglob("*.py"):
        relative, names = path.relative_to(PACKAGE).as_posix(), _named(path)
        if "LocalStorage" in names and relative != "storage/local.py":
            makers.add(relative)
        if "storage_of" in names and not relative.startswith("storage/"):
            openers.add(relative)
    assert makers == _MAKERS
    assert openers == _OPENERS


def test_schemes_are_read_in_one_place() -> None:
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("startswith", "removeprefix", "split", "partition", "urlsplit", "urlparse")
        and any(isinstance(a, ast.Constant) and a.value in ("file:", "file://", "://") for a in node.args)
    }
    assert not readers
