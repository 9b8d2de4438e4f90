"""Goal: a table is born once, whoever makes it at the same moment, and nothing that is acknowledged is lost.

Method: six real processes make the same table with a metadata table at the same moment, in several rounds,
and write into it at once. Two writers, a reader and a process of services go on while the table is deleted
and made anew; rows name the table that they were written to.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from pathlib import Path

import mainstem
from tests.multiprocess import birth_worker as worker

CREATORS = 6
ROUNDS = 6


def test_of_six_creators_one_makes_the_table_and_every_row_of_all_is_read(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(CREATORS)
    processes = [
        context.Process(target=worker.births, args=(str(tmp_path), ROUNDS, n, together))
        for n in range(CREATORS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * CREATORS
    for number in range(ROUNDS):
        said = [(tmp_path / f"said-{number}-{n}").read_text().split("\n") for n in range(CREATORS)]
        assert sorted(words[0] for words in said) == ["made", *["opened"] * (CREATORS - 1)]
        table = mainstem.open_table(tmp_path / f"table-{number}")
        found = sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())
        assert found == sorted(key for words in said for key in words[1:])
        assert table.validate_metadata().ok


LIVES = 4


def test_processes_that_go_on_with_a_deleted_table_leave_the_new_one_alone(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    path = tmp_path / "t"
    worker.create(path)
    processes = [
        context.Process(target=worker.beside, args=(str(tmp_path), number, stop)) for number in range(4)
    ]
    for process in processes:
        process.start()
    kept = 0
    try:
        for life in range(LIVES):
            table = mainstem.open_table(path)
            until = time.monotonic() + 30
            while len(told(tmp_path, table)) < 4 and time.monotonic() < until:
                time.sleep(0.05)
            kept += check(tmp_path, table)
            path.rename(tmp_path / f"gone-{life}")
            shutil.rmtree(tmp_path / f"gone-{life}", ignore_errors=True)
            worker.create(path)
    finally:
        stop.set()
        for process in processes:
            process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    table = mainstem.open_table(path)
    kept += check(tmp_path, table)
    assert table.validate_metadata().ok
    assert kept >= 4 * LIVES
    said = [line for number in range(4) for line in (tmp_path / f"said-{number}").read_text().split("\n")]
    assert [line for line in said if line.startswith("error")] == []
    assert "refused" in said


def told(folder: Path, table: mainstem.Table) -> set[str]:
    """Rows of this table that were acknowledged."""
    lines = (line for number in range(2) for line in _lines(folder / f"said-{number}"))
    return {line for line in lines if line.startswith(f"{table.opened.identity}/")}


def _lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


def check(folder: Path, table: mainstem.Table) -> int:
    """What was acknowledged is read, and nothing of another table; how many rows were acknowledged."""
    meant, found = told(folder, table), worker.ids(table)
    assert meant <= set(found) and len(found) == len(set(found))
    assert all(name.startswith(f"{table.opened.identity}/") for name in found)
    return len(meant)
