"""Goal: the collision tells right from wrong, and our writers come through it.

Method: tables made wrong on purpose are judged; the command runs small, with our plain writers alone and
two of them killed.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from demos.collision import Progress, main
from demos.collision_load import KEY, ORDERING, Load, Verdict

LOAD = Load(keys=200, writers=3, batches=4, seed=5)


def _merged(load: Load, done: list[int]) -> pa.Table:
    """The right table when writer w committed its first ``done[w]`` batches."""
    parts = [load.first_rows()]
    parts += [load.rows(writer, batch) for writer, count in enumerate(done) for batch in range(count)]
    rows = pa.concat_tables(parts)
    return rows.group_by(KEY).aggregate([(ORDERING, "max")]).rename_columns([KEY, ORDERING])


def test_every_writer_updates_every_key_once_with_times_of_its_own() -> None:
    times = []
    for writer in range(LOAD.writers):
        rows = pa.concat_tables(LOAD.rows(writer, batch) for batch in range(LOAD.batches))
        assert sorted(rows[KEY].to_pylist()) == [f"k{number:07d}" for number in range(LOAD.keys)]
        times += rows[ORDERING].to_pylist()
    assert len(set(times)) == LOAD.keys * LOAD.writers
    assert Load.from_json(LOAD.to_json()).rows(1, 2).equals(LOAD.rows(1, 2))


@pytest.mark.parametrize("done", [[4, 4, 4], [4, 2, 0]])
def test_a_table_with_the_newest_rows_is_right_and_unacknowledged_rows_may_stand(done: list[int]) -> None:
    found = _merged(LOAD, done)
    assert LOAD.judge(found, done) == Verdict(0, 0, 0)
    assert LOAD.judge(found, [max(0, count - 1) for count in done]).right


def test_lost_doubled_and_foreign_rows_are_counted() -> None:
    done = [4, 4, 4]
    found = _merged(LOAD, done).sort_by(KEY)
    assert LOAD.judge(found.slice(3), done) == Verdict(0, 3, 0)
    assert LOAD.judge(pa.concat_tables([found, found.slice(0, 2)]), done) == Verdict(2, 0, 0)
    assert LOAD.judge(_merged(LOAD, [4, 4, 3]), done).lost > 0
    newer = found[ORDERING].to_numpy() + np.eye(1, LOAD.keys, 7, dtype=np.int64)[0]
    assert LOAD.judge(found.set_column(1, ORDERING, pa.array(newer)), done) == Verdict(0, 0, 1)


def test_a_restarted_writer_goes_on_after_its_last_acknowledged_batch() -> None:
    progress = Progress()
    for said in ({"in": 2, "repeated": 1}, {"refused": 3, "repeated": 4, "why": "x"}):
        progress.note(said)
    progress.note({"in": 1, "repeated": 0})  # a replay
    assert (progress.done, progress.refused, progress.repeated, progress.why) == (3, 1, 5, "x")


@pytest.mark.timeout(600)
def test_eight_killed_writers_lose_double_and_abort_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--keys", "4000", "--batches", "2", "--kill-every", "1"]
    assert main([*sizes, "--kinds", "python", "--peers", "", "--folder", str(tmp_path / "c")]) == 0
    score = capfd.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"mainstem +16 of 16 +[\d,]+ +0 +0 +\d+ +0 +0 +\d+ s", score)


def test_an_unknown_peer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--peers", "delta,nobody", "--folder", str(tmp_path / "c")])
    assert "unknown peers nobody; there are delta, iceberg, paimon" in capsys.readouterr().err
