"""Goal: a frame of Daft answers any filter as Daft answers it on the rows, with and without Ray.

Method: random filters over nulls, NaN and odd values, beside Daft on the rows themselves; everything that
every engine does is done again by Daft without Ray, in a process of its own.
"""

from __future__ import annotations

import datetime
import os
import random
import subprocess
import sys
from pathlib import Path

import daft
import pyarrow as pa
import pytest
from daft import col, lit

import mainstem
import mainstem.daft as md

ROOT = Path(__file__).resolve().parents[2]
DAY = datetime.date(2026, 1, 1)
SCHEMA = pa.schema([
    ("id", pa.string()), ("n", pa.int32()), ("f", pa.float64()), ("r", pa.float32()), ("s", pa.string()),
    ("d", pa.date32()), ("b", pa.bool_()), ("t", pa.timestamp("us", "UTC")),
])  # fmt: skip
VALUES = {
    "n": [-1, 0, 1, 2], "f": [float("nan"), float("inf"), -0.0, 0.0, 1.5], "r": [0.1, 0.5, 3.3],
    "s": ["", "a", "Ä", "aa"], "d": [DAY, datetime.date(1969, 12, 31)], "b": [True, False],
    "t": [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)],
}  # fmt: skip


def leaf(rng: random.Random) -> daft.Expression:
    name = rng.choice(list(VALUES))
    column, value = col(name), lit(rng.choice(VALUES[name]))
    return rng.choice([
        column == value, column != value, column < value, column <= value, column > value, column >= value,
        value < column, column.is_null(), column.not_null(), column.between(value, value),
        column.is_in([value, lit(VALUES[name][0])]),
    ])  # fmt: skip


def tree(rng: random.Random, depth: int) -> daft.Expression:
    if not depth or rng.random() < 0.3:
        return leaf(rng)
    left, right = tree(rng, depth - 1), tree(rng, depth - 1)
    return rng.choice([left & right, left | right, ~left])


def test_any_filter_gives_what_daft_gives_on_the_rows(tmp_path) -> None:
    rng = random.Random(5)
    columns = {name: [rng.choice([None, *VALUES[name]]) for _ in range(300)] for name in VALUES}
    rows = pa.table({"id": [f"k{i}" for i in range(300)], **columns}, SCHEMA)
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=2)
    table.upsert(rows)
    frame, plain, pushed = md.read(table), daft.from_arrow(rows), 0
    for _ in range(40):
        question = tree(rng, 3)
        found = sorted(frame.where(question).select("id").to_pydict()["id"])
        assert found == sorted(plain.where(question).select("id").to_pydict()["id"]), question
        pushed += md.as_arrow(question, SCHEMA) is not None
    assert pushed > 10


@pytest.mark.skipif("ONLY_DAFT" in os.environ, reason="runs in the process that this test starts")
def test_all_of_this_holds_without_ray_too() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "daft", "tests/engines"]
    alone = {**os.environ, "DAFT_RUNNER": "native", "ONLY_DAFT": "1"}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:]
