"""Goal: ``table.activity()`` and ``mainstem top`` show who writes a table, how fast, what is under way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Two writers, three commits, one transaction that stays open."""
    path = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="n", buckets=1,
        properties={"hoodie.mainstem.fsync": False},
    ).path  # fmt: skip
    for writer, rows in (("one", 30), ("two", 10), ("one", 20)):
        table = mainstem.open_table(path, {"hoodie.mainstem.writer.name": writer})
        table.upsert({"id": [str(n) for n in range(rows)], "n": [1] * rows})
    return path


@pytest.mark.supports("Services", "who writes a table, and how fast (top)")
def test_writers_are_shown_with_what_they_committed_and_open_work_with_whether_it_lives(path: str) -> None:
    table = mainstem.open_table(path)
    with table.begin("upsert") as open_one:
        found = table.activity()
        shown = [(one.writer, one.commits, one.rows) for one in found.writers]
        assert shown == [("one", 2, 50), ("two", 1, 10)]
        assert all(one.bytes > 0 and 0 <= one.last_s < 60 for one in found.writers)
        (pending,) = found.pending
        assert (pending.instant, pending.action, pending.alive) == (open_one.instant, "deltacommit", True)
        ahead = {"hoodie.mainstem.clock.offset_ms": 3_600_000}
        later = mainstem.open_table(path, ahead).activity()
        assert later.writers == () and [one.alive for one in later.pending] == [False]
        open_one.abort()
    assert table.activity().pending == ()


def test_who_holds_the_lock_and_who_waits_is_told(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = mainstem.open_table(path)
    free = table.activity().lock
    assert free is not None and (free.lock, free.holder, free.waiting) == ("filesystem:.hoodie/lock", "", ())
    lease = table.opened.seams.lock.acquire()
    waiting = threading.Thread(target=lambda: mainstem.open_table(path).opened.seams.lock.acquire().release())
    waiting.start()
    for _ in range(200):
        held = table.activity().lock
        assert held is not None and f"process {os.getpid()} on host" in (held.holder or "")
        if held.waiting:
            break
    assert len(held.waiting or ()) == 1 and 0 <= (held.since_s or 0) < 60
    assert main(["top", "--once", path]) == 0
    assert f"lock: {held.holder} for" in capsys.readouterr().out
    lease.release()
    waiting.join()
    Path(path, ".hoodie/lock").write_bytes(b"")  # Java's
    java = table.activity().lock
    assert java is not None and java.holder == "another engine"
    Path(path, ".hoodie/lock").unlink()


def test_the_lock_of_an_object_store_is_told_too() -> None:
    table = mainstem.create_table("memory://told-lock/t", SCHEMA, record_key="id", buckets=1)
    free = table.activity().lock
    lease = table.opened.seams.lock.acquire()
    held = table.activity().lock
    lease.release()
    assert free is not None and held is not None and (free.holder, free.waiting) == ("", None)
    assert "a mainstem writer" in (held.holder or "")


def test_the_command_looks_once_and_again_and_again(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", path]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: 3 commits within 60 s, 0 instants under way, 3 active")
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("one", "two"))] == ["one", "two"]
    assert main(["top", "--once", "--json", path]) == 0
    assert {one["writer"] for one in json.loads(capsys.readouterr().out)["writers"]} == {"one", "two"}
    command = [sys.executable, "-m", "mainstem", "top", "--json", "--every", "10ms", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 0 and [look["instants"] for look in looks] == [3, 3, 3]
