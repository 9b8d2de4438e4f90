"""Goal: a test that looks at files of a folder, and changes them, sees and changes what a server holds.

Method: a store in this process behind ``shown_files``; the folder is changed by hand between requests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from mainstem.storage import backends
from mainstem.storage.protocol import Storage
from tests.storage.shown_files import OnServer
from tests.storage.steps import storage_at


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with patch.dict(backends.BACKENDS, file=OnServer("memory://shown", {})):
        yield storage_at(tmp_path)


def test_what_is_written_is_shown_in_the_folder_and_read_from_the_server(
    storage: Storage, tmp_path: Path
) -> None:
    storage.put_new("a/x", b"1", durable=False)
    sink = storage.upload("a/y")
    sink.append([b"2", b"3"])
    storage.settle([sink], durable=False)
    assert (tmp_path / "a/x").read_bytes() == b"1" and (tmp_path / "a/y").read_bytes() == b"23"
    storage.delete("a/x")
    assert not (tmp_path / "a/x").exists() and storage.names("a") == ["y"]
    storage.delete_tree("a")
    assert storage.names("") == [] and not (tmp_path / "a").exists()


def test_what_is_done_by_hand_is_done_on_the_server_before_the_next_request(
    storage: Storage, tmp_path: Path
) -> None:
    for name in ("kept", "damaged", "removed"):
        storage.put(f"a/{name}", b"whole", durable=False)
    (tmp_path / "a/damaged").write_bytes(b"hole!")
    (tmp_path / "a/removed").unlink()
    (tmp_path / "a/b").mkdir()
    (tmp_path / "a/b/new").write_bytes(b"new")
    assert sorted(storage.names("a")) == ["b", "damaged", "kept"]
    assert storage.read("a/damaged", max_bytes=9) == b"hole!"
    assert storage.read("a/b/new", max_bytes=9) == b"new"
    with pytest.raises(FileNotFoundError):
        storage.read("a/removed", max_bytes=9)


def test_a_file_that_a_test_aged_is_as_old_until_it_is_written_again(
    storage: Storage, tmp_path: Path
) -> None:
    storage.put("beat", b"", durable=False)
    os.utime(tmp_path / "beat", (1_700_000_000, 1_700_000_000))
    aged = storage.stat("beat")
    assert aged is not None and aged.mtime_ms == 1_700_000_000_000
    storage.renew("beat")
    fresh = storage.stat("beat")
    assert fresh is not None and fresh.mtime_ms > aged.mtime_ms
