"""Goal: a full disk or a read-only folder is an error with a way out, publishes nothing, and leaves
nothing behind that a later writer cannot remove.

Method: (1) a storage that refuses every write from the n-th on, for all n of a commit: the table
must read as before, and when there is space again the next writer cleans up and goes on. (2) A real
file system of 256 KiB, where the tests may mount one. (3) The same mounted read-only.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from bad_input.common import SCHEMA, edit_properties, failed, is_clear, picture, rows
from mainstem.api.table import Table
from mainstem.errors import OutcomeUnknown, Unavailable
from mainstem.storage.local import LocalStorage
from mainstem.truetime.locks import file_system


class _FullSink:
    def __init__(self, storage: FullStorage, sink) -> None:
        self._storage, self._sink = storage, sink

    @property
    def size(self) -> int:
        return self._sink.size

    def append(self, buffers) -> None:
        self._storage.spend("append")
        self._sink.append(buffers)

    def close(self, *, durable: bool) -> None:
        self._sink.close(durable=durable)
        if durable:
            self._storage.spend("close")


class FullStorage(LocalStorage):
    """A local folder with room for ``left`` more writes."""

    def __init__(self, base: str, left: int) -> None:
        super().__init__(base)
        self.left = left
        self.hits = 0

    def spend(self, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            self.hits += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{self.base} ({what})")

    def put_new(self, path, data, *, durable) -> None:
        self.spend("create")
        super().put_new(path, data, durable=durable)

    def put(self, path, data, *, durable) -> None:
        self.spend("replace")
        super().put(path, data, durable=durable)

    def upload(self, path):
        self.spend("open")
        return _FullSink(self, super().upload(path))

    def link(self, source, target, *, durable=False) -> None:
        self.spend("link")
        super().link(source, target, durable=durable)

    def make_folder(self, path) -> bool:
        self.spend("folder")
        return super().make_folder(path)


def _writes_of_a_commit(path: Path) -> int:
    full = FullStorage(str(path), 10**6)
    _on(path, full).upsert(rows("x", "y", "z", city="rome"))
    return 10**6 - full.left


def _on(path: Path, storage: LocalStorage) -> Table:
    real = mainstem.open_table(path)
    return Table(dataclasses.replace(real.opened.seams, storage=storage), real.config, {})


@pytest.mark.disk("it fills a disk; tests/publish fails every request")
def test_a_disk_that_fills_up_at_any_write_of_a_commit_loses_and_shows_nothing(table, path) -> None:
    total = _writes_of_a_commit(path)
    assert total > 8
    for left in range(total):
        before = picture(path)
        full = FullStorage(str(path), left)
        try:
            _on(path, full).upsert(rows("d", f"e{left}", "f", city=f"city{left}"))
        except (Unavailable, OutcomeUnknown) as error:
            assert full.hits
            is_clear(str(error), (r"[Nn]o space left|disk is full", str(path)))
            visible = isinstance(error, OutcomeUnknown)
        else:
            visible = True  # what failed came after the publication: tidying up
        after = picture(path)
        if not visible:
            assert after.rows == before.rows, f"a failed commit shows after {left} writes"
        later = mainstem.open_table(path, {"hoodie.client.heartbeat.interval_in_ms": 100})
        later.rollback_failed_writes()
        assert later.upsert(rows("g")).status == "committed"
        pending = [i for i in later.timeline() if not i.is_completed]
        assert not pending, f"pending after {left} writes: {pending}"
        assert not list((path / ".hoodie" / ".temp").iterdir()), f"markers after {left} writes"
        names = {p.name for p in path.rglob(".*.log.*")}
        done = {i.requested for i in later.timeline() if i.action == "deltacommit"}
        assert all(any(f"_{t}.log" in name for t in done) for name in names), (
            f"orphans after {left}"
        )
    private = path / ".hoodie" / ".mainstem"
    assert sum(1 for p in private.rglob("*") if p.is_file()) < 20, "private files pile up"


class ForgetfulStorage(LocalStorage):
    """A folder on a network: replies to links of the timeline are lost, the calls repeated by the client."""

    def __init__(self, base: str, *, swept: bool) -> None:
        super().__init__(base)
        self.swept = swept
        self.lost = 0

    def link(self, source, target, *, durable=False) -> None:
        super().link(source, target, durable=durable)
        if "/timeline/" not in target or (self.swept and "_" not in target):
            return
        self.lost += 1
        if self.swept:  # by the next holder of the lock, before the call was repeated
            self.delete(source)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)


@pytest.mark.parametrize("swept", [False, True])
def test_a_commit_whose_reply_was_lost_is_completed_once(table, path: Path, swept: bool) -> None:
    before = len(table.timeline())
    forgetful = ForgetfulStorage(str(path), swept=swept)
    outcome = _on(path, forgetful).upsert(rows("d"))
    assert forgetful.lost >= 1 and outcome.status == "committed"
    completed = [p.name for p in (path / ".hoodie/timeline").glob(f"{outcome.instant}_*")]
    assert completed == [f"{outcome.instant}_{outcome.completion_time}.deltacommit"]
    done = [i for i in mainstem.open_table(path).timeline() if i.is_completed]
    assert len(done) == before + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; skipped where mounting is not allowed (then part 1 stands
    alone).
    """
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system can only be mounted by root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=True)


def _large(count: int) -> pa.Table:
    # Arrow and numpy data only: the rows need not differ for the disk to fill.
    ids = pa.array(np.arange(count)).cast(pa.string())
    text = pa.array(["rome"]).take(pa.array(np.zeros(count, np.int64)))
    return pa.table(
        {"id": ids, "city": text, "ts": np.arange(count), "amount": np.ones(count)}, schema=SCHEMA
    )


@pytest.mark.here("it fills the disk under the table")
def test_a_full_file_system_is_said_and_the_table_goes_on_when_there_is_room(
    small_disk: Path, make
) -> None:
    table = make(folder=small_disk)
    path = Path(table.path)
    table.upsert(rows("a", "b", "c"))
    with failed(path, Unavailable, "[Nn]o space left|disk is full", "nothing was published"):
        table.upsert(_large(5_000))
    assert table.upsert(rows("d")).status == "committed"
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 4


@pytest.mark.here("it makes the disk under the table read-only")
def test_a_read_only_file_system_can_be_read_and_refuses_writes_with_the_reason(
    small_disk: Path, make
) -> None:
    table = make(folder=small_disk)
    path = Path(table.path)
    table.upsert(rows("a", "b", "c"))
    file_system._remove_idle()  # else it is open for some seconds yet
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    subprocess.run(remount, capture_output=True, check=True)
    with failed(path, Unavailable, "[Rr]ead-only file system", "t"):
        table.upsert(rows("d"))
    with failed(path, Unavailable, "[Rr]ead-only file system"):
        mainstem.open_table(path).upsert(rows("d"))
    with pytest.raises(Unavailable) as caught:
        make("second", folder=small_disk)
    is_clear(str(caught.value), ("[Rr]ead-only file system",))


@pytest.mark.here("it takes the disk's permission away")
def test_a_folder_without_write_permission_refuses_writes_with_the_reason(table, path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere; the read-only file system stands for this")
    timeline = path / ".hoodie"
    timeline.chmod(0o555)
    try:
        with failed(path, Unavailable, "[Pp]ermission denied", "write permission"):
            mainstem.open_table(path).upsert(rows("d"))
    finally:
        timeline.chmod(0o755)


@pytest.mark.disk("only a disk has lock files in folders of one's choice")
def test_a_lock_folder_that_cannot_be_made_is_said_with_its_path(table, path: Path) -> None:
    blocker = path.parent / "blocker"
    blocker.write_text("not a folder")
    (path / ".hoodie" / ".mainstem" / "lock-identity").unlink()
    folder = f"{blocker}/locks"
    edit_properties(path, hoodie__write__lock__filesystem__path=folder)
    with failed(path, Unavailable, "lock", str(blocker), "[Nn]ot a directory|folder"):
        mainstem.open_table(path).upsert(rows("d"))
