"""Goal: long work says how far it is on standard error: by a bar in a terminal, else by lines.

Method: the progress of both kinds, and commands run in a real pseudo-terminal.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli import progress_shown

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])


def test_long_work_tells_how_far_it_is_on_standard_error_and_short_work_does_not(capsys) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic_ms=lambda: now[0])
    opened = SimpleNamespace(seams=SimpleNamespace(clock=clock))
    progress = progress_shown.ProgressLine(SimpleNamespace(opened=opened))
    for done in range(1, 9):
        now[0] += 900
        progress("compaction 1, file groups", done, 8)
    assert capsys.readouterr().err.splitlines() == [
        "mainstem: compaction 1, file groups: 4 of 8", "mainstem: compaction 1, file groups: 7 of 8",
    ]  # fmt: skip
    progress("clean 2, files", 1, 1)
    assert capsys.readouterr().err == ""


def in_a_terminal(command: list[str]) -> tuple[str, str]:
    """Standard output, and what a terminal on standard error was sent."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True, timeout=120)
    os.close(theirs)
    sent = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        sent += part
    os.close(ours)
    return done.stdout, sent.decode()


@pytest.mark.here("another process reads the table")
def test_a_terminal_is_shown_a_bar_which_is_gone_when_the_rows_are_there(tmp_path: Path) -> None:
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=4)
    table.upsert({"id": list(range(100)), "ts": [1] * 100})
    arguments = ["scan", str(tmp_path / "t"), "--format", "csv", "--columns", "id"]
    set_up = "from mainstem.cli import main, progress_shown; progress_shown._BAR_AFTER_S = 0"
    rows, sent = in_a_terminal([sys.executable, "-c", f"{set_up}; main.main({arguments})"])
    assert len(rows.splitlines()) == 101 and "scan" not in rows
    assert "scan, file slices" in sent and "/4 [" in sent
    assert sent.rstrip(" ").endswith("\r")  # tqdm has wiped the line


def test_the_rows_are_counted_by_file_slices(tmp_path: Path) -> None:
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=4)
    table.upsert({"id": list(range(100)), "ts": [1] * 100})
    told: list[tuple[str, int, int]] = []
    assert table.scan().count_rows(progress=lambda *step: told.append(step)) == 100
    assert told == [("scan, file slices", done, 4) for done in range(1, 5)]
    told.clear()
    assert sum(b.num_rows for b in table.scan().to_batches(progress=lambda *step: told.append(step))) == 100
    assert told[-1] == ("scan, file slices", 4, 4)
