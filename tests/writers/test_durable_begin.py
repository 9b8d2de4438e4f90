"""Goal: no data file of a write exists before its instant is durable on the timeline.

Method: the disk is slow, or fails, when the timeline's folder is synced; a look at every file that is made.
"""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Unavailable
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.writers import append

pytestmark = pytest.mark.disk("it watches a disk's fsync")

SCHEMA = pa.schema([("k", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
ROWS = pa.table({"k": [str(i) for i in range(200)], "p": ["x", "y"] * 100, "ts": list(range(200))})


def made(path: Path) -> mainstem.Table:
    return mainstem.create_table(
        str(path), SCHEMA, record_key=["k"], partition_by=["p"], ordering=["ts"], buckets=4
    )


@pytest.mark.parametrize("together", [1, append.TOGETHER_MIN], ids=["markers together", "a marker each"])
@pytest.mark.parametrize("work", ["upsert", "bulk_insert", "insert_overwrite"])
def test_the_first_file_waits_for_the_timelines_folder(
    tmp_path: Path, monkeypatch, work: str, together: int
) -> None:
    table = made(tmp_path / "t")
    table.upsert(ROWS.slice(0, 10))
    durable: list[float] = []
    early: list[str] = []

    def slow(self, path: str) -> None:
        time.sleep(0.2 if path == paths.TIMELINE else 0)
        sync(self, path)
        if path == paths.TIMELINE:
            durable.append(time.monotonic())

    def looked(self, path: str):
        if not durable and not path.startswith(".hoodie/.mainstem"):
            early.append(path)
        return upload(self, path)

    sync, upload = LocalStorage.sync_folder, LocalStorage.upload
    monkeypatch.setattr(append, "TOGETHER_MIN", together)
    monkeypatch.setattr(LocalStorage, "sync_folder", slow)
    monkeypatch.setattr(LocalStorage, "upload", looked)
    getattr(table, work)(ROWS)
    assert durable and not early
    assert table.scan().to_arrow().num_rows == 200


def test_where_the_timelines_folder_cannot_be_synced_nothing_is_left(tmp_path: Path, monkeypatch) -> None:
    table = made(tmp_path / "t")
    table.upsert(ROWS.slice(0, 10))
    before = set((tmp_path / "t").rglob("*.log.*"))

    def fails(self, path: str) -> None:
        if path == paths.TIMELINE:
            raise OSError(errno.EIO, "Input/output error", path)
        sync(self, path)

    sync = LocalStorage.sync_folder
    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "sync_folder", fails)
        with pytest.raises(Unavailable, match="Input/output error"):
            table.upsert(ROWS)
        assert set((tmp_path / "t").rglob("*.log.*")) == before
    assert table.scan().to_arrow().num_rows == 10
    table.upsert(ROWS)
    assert table.scan().to_arrow().num_rows == 200
