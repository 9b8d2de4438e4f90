"""Goal: files of vector indexes in an object store are fetched once per machine, and a copy is never wrong.

Method: the cache alone, with its bound, its folder's owner and what dead processes leave; then searches of
the same index by several handles and another process, whose requests a server counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.storage import local_cache
from mainstem.storage.local_cache import LocalCache
from tests.servers.small_s3 import BUCKET, SmallS3


def view(size: int, letter: bytes = b"x") -> memoryview:
    return memoryview(letter * size)


def test_a_copy_is_found_by_its_name_and_size(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path / "cache"), 100)
    name = cache.name_of("s3://b/t", "path", 10, 7)
    assert name != cache.name_of("s3://b/t", "path", 10, 8) and cache.get(name, 10) is None
    kept = cache.put(name, view(10))
    assert kept == view(10) and kept.readonly
    assert cache.get(name, 10) == view(10) and cache.get(name, 11) is None
    assert cache.get(cache.name_of(), 0) is None and len(cache.put(cache.name_of(), view(0))) == 0
    cache.drop(name)
    assert cache.get(name, 10) is None and kept == view(10)  # who has it open still reads it


def test_the_copies_that_were_unused_for_the_longest_time_go_first(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path), 30)
    for number in range(3):
        cache.put(str(number), view(10))
        os.utime(tmp_path / str(number), (number, number))
    assert cache.get("0", 10) is not None  # used now
    cache.put("3", view(10))
    assert sorted(os.listdir(tmp_path)) == ["0", "2", "3"]
    big = view(31)
    assert cache.put("4", big) is big
    cache.put("5", view(30))
    assert os.listdir(tmp_path) == ["5"]


def test_parts_of_dead_processes_are_removed_and_those_of_living_ones_count(tmp_path: Path) -> None:
    cache = LocalCache(str(tmp_path), 30)
    dead, alive = tmp_path / ".part-dead", tmp_path / ".part-alive"
    for part in (dead, alive):
        part.write_bytes(b"x" * 15)
    os.utime(dead, (1, 1))
    cache.put("1", view(10))
    os.utime(tmp_path / "1", (5, 5))
    assert not dead.exists() and alive.exists()
    cache.put("2", view(10))
    assert sorted(os.listdir(tmp_path)) == [".part-alive", "2"]


def test_a_folder_where_others_may_write_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    content = view(5)
    with pytest.warns(UserWarning, match="not a folder of this user's"):
        assert LocalCache(str(tmp_path / "open"), 100).put("1", content) is content
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.warns(UserWarning, match="not a folder of this user's"):
        assert LocalCache(str(tmp_path / "link"), 100).put("1", content) is content
    (tmp_path / "file").write_bytes(b"")
    assert LocalCache(str(tmp_path / "file"), 100).put("1", content) is content
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "own" / "1").symlink_to(tmp_path / "file")
    assert LocalCache(str(tmp_path / "own"), 100).get("1", 0) is None


def test_a_full_disk_costs_the_copy_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    def full(file: int, data: memoryview) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(local_cache, "_write", full)
    content = view(10)
    assert LocalCache(str(tmp_path), 100).put("1", content) is content
    assert os.listdir(tmp_path) == []


SCHEMA = pa.schema([("id", pa.string()), ("x", pa.list_(pa.float32()))])
SEARCH = """
import sys
import mainstem
from tests.storage.test_local_cache import found
print(found(mainstem.open_table(sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:]))))
"""


def found(table: mainstem.Table) -> list[str]:
    return table.search("x", [[3.0, 1.0]], 3, columns=["id"]).column("id").to_pylist()


@pytest.fixture(scope="module")
def indexed(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "t"
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", vectors={"x": "VECTOR(2)"},
        properties={"hoodie.mainstem.fsync": "false", "hoodie.mainstem.exclusive": "true"},
    )  # fmt: skip
    rows = [{"id": str(n), "x": [float(n), 1.0]} for n in range(20)]
    table.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
    table.create_index("vector", ["x"], options={"engine": "flat"})
    return path


def test_an_index_is_fetched_once_for_all_handles_and_processes(indexed: Path, tmp_path: Path) -> None:
    with SmallS3() as server:
        for path in indexed.rglob("*"):
            if path.is_file():
                server.put(f"t/{path.relative_to(indexed).as_posix()}", path.read_bytes())
        options = {
            "fs.s3a.endpoint": f"http://127.0.0.1:{server.port}",
            "fs.s3a.access.key": "any",
            "fs.s3a.secret.key": "any-secret",
            "hoodie.mainstem.storage.cache_folder": str(tmp_path / "cache"),
        }
        url = f"s3://{BUCKET}/t"

        def fetched() -> list[str]:
            """The files of the index's versions that were fetched, without manifests."""
            keys = [key for method, key, _ in server.log if method != "LIST" and "/version=" in key]
            keys = [key for key in keys if not key.endswith("manifest.json")]
            server.log.clear()
            return keys

        first = found(mainstem.open_table(url, options))
        assert len(first) == 3 and fetched()
        assert found(mainstem.open_table(url, options)) == first and fetched() == []
        told = [f"{name}={text}" for name, text in options.items()]
        out = subprocess.run(
            [sys.executable, "-c", SEARCH, url, *told], capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == str(first) and fetched() == []
        for copy in (tmp_path / "cache").iterdir():  # damaged copies are noticed, and fetched again
            content = copy.read_bytes()
            copy.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        assert found(mainstem.open_table(url, options)) == first and fetched()
        assert found(mainstem.open_table(url, options)) == first and fetched() == []
        off = {**options, "hoodie.mainstem.storage.cache": "0"}
        assert found(mainstem.open_table(url, off)) == first and fetched()
