"""Goal: a lazy frame of a table answers as Polars answers on the same rows, and reads little where it may.

Method: random filters over columns with nulls, NaN and odd values, beside Polars on the rows themselves; what
is pushed to the files is compared with the whole filter; frames are written lazily.
"""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest

import mainstem
import mainstem.polars as mp
from mainstem.errors import Invalid

pl = pytest.importorskip("polars")

SCHEMA = pa.schema([
    ("id", pa.string()), ("ts", pa.int64()), ("n", pa.int32()), ("f", pa.float64()), ("s", pa.string()),
    ("d", pa.date32()), ("b", pa.bool_()), ("t", pa.timestamp("us", "UTC")), ("m", pa.decimal128(9, 2)),
    ("l", pa.list_(pa.int64())), ("r", pa.float32()),
])  # fmt: skip


def some_rows(count: int) -> pa.Table:
    rng, day = random.Random(7), datetime.date(2026, 1, 1)

    def one(*values: object) -> object:
        return rng.choice([None, *values])

    columns = {
        "id": [f"k{i}" for i in range(count)], "ts": [1] * count,
        "n": [one(-1, 0, 1, 2, 3) for _ in range(count)],
        "f": [one(float("nan"), float("inf"), -0.0, 0.0, 1.5, 2.5) for _ in range(count)],
        "s": [one("", "a", "b", "Ä", "aa") for _ in range(count)],
        "d": [one(day, day + datetime.timedelta(1), datetime.date(1969, 12, 31)) for _ in range(count)],
        "b": [one(True, False) for _ in range(count)],
        "t": [one(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)) for _ in range(count)],
        "m": [one(1, 2) for _ in range(count)], "l": [one([1], [1, 2]) for _ in range(count)],
        "r": [one(0.1, 0.5, 3.3) for _ in range(count)],
    }  # fmt: skip
    return pa.table(columns, SCHEMA)


@pytest.fixture
def table(tmp_path) -> mainstem.Table:
    made = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=3)
    made.bulk_insert(some_rows(400))
    made.upsert(some_rows(50).set_column(1, "ts", pa.array([2] * 50)))
    return made


def leaf(rng: random.Random) -> pl.Expr:
    day = datetime.date(2026, 1, 1)
    name, values = rng.choice([
        ("n", [0, 1, 2.5, -1]), ("f", [0.0, 1.5, float("nan"), 2]), ("s", ["", "a", "zz"]), ("d", [day]),
        ("b", [True]), ("t", [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)]), ("m", [1]),
        ("r", [0.1, 3.3]),
    ])  # fmt: skip
    column, value = pl.col(name), pl.lit(rng.choice(values))
    made = [
        column == value, column != value, column < value, column <= value, column > value, column >= value,
        column.is_null(), column.is_not_null(), value < column, column.is_between(value, value),
        column.is_between(value, value, closed="none"), column.eq_missing(value),
    ]  # fmt: skip
    return rng.choice(made)


def tree(rng: random.Random, depth: int) -> pl.Expr:
    if not depth or rng.random() < 0.3:
        return leaf(rng)
    left, right = tree(rng, depth - 1), tree(rng, depth - 1)
    return rng.choice([left & right, left | right, ~left, left & right])


@pytest.mark.supports("Engines", "Polars: lazy frames and sinks of a table")
def test_any_filter_gives_what_polars_gives_on_the_rows(table) -> None:
    rows = pl.from_arrow(table.scan().to_arrow())
    rng, pushed = random.Random(3), 0
    for _ in range(150):
        question = tree(rng, 3)
        found = mp.scan(table).filter(question).select("id").collect()
        meant = rows.filter(question).select("id")
        assert sorted(found["id"]) == sorted(meant["id"]), question
        pushed += mp.as_arrow(question, SCHEMA) is not None
    assert pushed > 50


def test_columns_and_filters_reach_the_files(table, monkeypatch) -> None:
    from mainstem.readers.queries.scan_plan import ScanPlan

    asked, refined = [], ScanPlan.refined
    monkeypatch.setattr(
        ScanPlan, "refined", lambda self, *how: (asked.append(how), refined(self, *how))[1]
    )
    found = mp.scan(table).filter((pl.col("n") == 1) & (pl.col("f") > 1)).select("id", "n").collect()
    assert found.columns == ["id", "n"] and set(found["n"]) == {1}
    (columns, expression), *_ = asked
    assert columns == ["id", "n", "f"] and str(expression) == "(n == 1)"
    assert mp.scan(table).head(5).collect().height == 5
    assert mp.scan(table).select(pl.len()).collect().item() == 400


def test_a_frame_is_read_again_each_time_and_as_of_a_time(table) -> None:
    frame = mp.scan(table)
    then = mp.scan(table, as_of=table.timeline()[-1].requested)
    table.delete({"id": ["k0"]})
    assert frame.collect().height == 399 and then.collect().height == 400


def test_lazy_frames_and_frames_are_written_in_one_transaction(table) -> None:
    before = len(table.timeline())
    outcome = mp.sink(mp.scan(table).select(SCHEMA.names).with_columns(ts=pl.lit(5), n=pl.lit(9)), table)
    assert outcome.rows == 400 and len(table.timeline()) == before + 1
    assert set(mp.scan(table).collect()["n"]) == {9}
    mp.sink(pl.DataFrame({"id": ["k1"]}), table, "delete")
    assert mp.scan(table).collect().height == 399
    broken = mp.scan(table).with_columns(n=pl.col("s").str.to_integer())
    with pytest.raises(pl.exceptions.PolarsError):
        mp.sink(broken, table)
    with pytest.raises(Invalid, match="DataFrame or LazyFrame, found dict"):
        mp.sink({"id": ["k2"]}, table)  # type: ignore[arg-type]
    assert mp.scan(table).collect().height == 399
