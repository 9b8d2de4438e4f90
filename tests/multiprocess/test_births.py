"""Goal: a table is born once, whoever makes it at the same moment, and nothing that is acknowledged is lost.

Method: six real processes make the same table with a metadata table at the same moment, in several rounds,
and write into it at once.
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import mainstem
from tests.multiprocess import birth_worker as worker

CREATORS = 6
ROUNDS = 10


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
