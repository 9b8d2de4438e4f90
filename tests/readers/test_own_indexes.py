"""Goal: reads through indexes that mainstem builds and maintains give what the full read gives.

Method: random histories of upserts, late rows, deletes, partial updates, compactions and log compactions over
tables with column statistics, built before them or between them; random filters on every column type are
asked with the indexes and without.
"""

from __future__ import annotations

import datetime
import decimal
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import mainstem

field = pc.field
FAST = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
PLAIN = FAST | {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("whole", pa.int32()),
        ("price", pa.float64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("amount", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
    ]
)
VALUES = {
    "id": [f"k{n}" for n in range(40)],
    "city": ["bern", "oslo"],
    "ts": list(range(100)),
    "whole": [None, *range(-20, 60)],
    "price": [None, float("nan"), -2.5, -0.0, 0.0, 1.5, 40.0, float("inf")],
    "text": [None, "", "a", "abc", "é", "z\uffff", "😀", "b" * 3000],
    "day": [None, *(datetime.date(2026, 1, day) for day in range(1, 20))],
    "amount": [None, *(decimal.Decimal(n) / 4 for n in range(-9, 30, 3))],
    "flag": [None, True, False],
}


def rows(chance: random.Random, count: int) -> pa.Table:
    """Rows of one step lie close together, as rows that arrive together do."""
    picked = {}
    for name, values in VALUES.items():
        first = chance.randrange(len(values))
        near = values[first : first + 6] + ([None] if None in values else [])
        picked[name] = [chance.choice(near) for _ in range(count)]
    picked["id"] = chance.sample(VALUES["id"], count)
    picked["city"] = [VALUES["city"][int(key[1:]) % 2] for key in picked["id"]]
    return pa.table(picked, schema=SCHEMA)


def step(table: mainstem.Table, chance: random.Random, partial: bool) -> None:
    what = chance.choice(["upsert", "upsert", "delete", "compact", "update"])
    if what == "upsert":
        table.upsert(rows(chance, 12))
    elif what == "delete":
        table.delete(rows(chance, 4))
    elif what == "compact":
        table.compact()
    elif partial:
        some = chance.sample(["whole", "price", "amount"], 2)
        given = rows(chance, 6).select(["id", "city", "ts", *some])
        whole = pc.and_(pc.is_valid(given[some[0]]), pc.is_valid(given[some[1]]))
        table.update_columns(given.filter(whole))


def filters(chance: random.Random) -> list[pc.Expression]:
    made = []
    for name in ("whole", "price", "text", "day", "amount", "flag", "ts", "id"):
        kind = SCHEMA.field(name).type
        held = [value for value in VALUES[name] if value is not None]
        one, low, high = field(name), chance.choice(held), chance.choice(held)
        low, high = pa.scalar(low, kind), pa.scalar(high, kind)
        made += [one.is_null(), one.is_valid(), one == low, one.isin(pa.array([low.as_py()], kind))]
        if name != "flag":
            made += [one > high, (one >= low) & (one <= high)]
    made += [chance.choice(made) & chance.choice(made) for _ in range(8)]
    made += [chance.choice(made) | chance.choice(made) for _ in range(8)]
    return chance.sample(made, 20)


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_same_with_our_indexes_and_without(tmp_path: Path, seed: int) -> None:
    chance, partial = random.Random(seed), seed % 2 == 1
    mode = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"} if partial else {}
    mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering=["ts"] if seed % 3 else [], partition_by="city",
        buckets=3, properties=FAST | mode,
    )  # fmt: skip
    table = mainstem.open_table(tmp_path / "t", properties=FAST)
    table.upsert(rows(chance, 20))
    step(table, chance, partial)
    late = seed < 2
    if not late:
        table.create_index("column_stats")
    for _ in range(6):
        step(table, chance, partial)
    if late:
        table.create_index("column_stats")
    whole = mainstem.open_table(tmp_path / "t", properties=PLAIN).scan().to_arrow()
    for expression in filters(chance):
        plan = table.scan(filter=expression)
        expected = sorted(ds.dataset(whole).to_table(filter=expression)["id"].to_pylist())
        assert sorted(plan.to_arrow()["id"].to_pylist()) == expected, str(expression)
    for beyond in (field("whole") > 1000, field("day") > datetime.date(2027, 1, 1)):
        assert table.scan(filter=beyond).explain().file_slices_read == 0


@pytest.mark.parametrize("built", ["before", "after"])
def test_rows_of_a_transaction_whose_schema_grew_on_the_way_are_found_as_nulls(tmp_path: Path, built) -> None:
    first = pa.table({"id": ["a"], "ts": [1]})
    grown = pa.table({"id": ["b"], "ts": [1], "price": [7.5]})
    table = mainstem.create_table(
        tmp_path / "t", first.schema, record_key="id", ordering="ts", buckets=1, properties=FAST
    )
    with table.begin() as txn:
        txn.write(first)
        if built == "before":
            other = mainstem.open_table(table.path)
            other.upsert(grown)
            other.create_index("column_stats", ["price"])
        txn.write(grown)
        txn.commit()
    if built == "after":
        mainstem.open_table(table.path).create_index("column_stats", ["price"])
    found = mainstem.open_table(table.path).scan(columns=["id"], filter=field("price").is_null())
    assert found.to_arrow().to_pylist() == [{"id": "a"}]


@pytest.mark.parametrize("at_once", [True, False])
def test_floats_in_a_column_that_became_double_are_found_by_the_doubles_they_are_shown_as(
    tmp_path: Path, at_once
) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("price", pa.float32())])
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key="id", ordering="ts", buckets=1, properties=FAST
    )
    table.create_index("column_stats", ["price"])
    with table.begin() as txn:
        txn.write(pa.table({"id": ["a"], "ts": [1], "price": pa.array([0.1], pa.float32())}))
        if at_once:  # both types in one file
            txn.write(pa.table({"id": ["b"], "ts": [1], "price": [0.3]}))
        txn.commit()
    if not at_once:
        table.upsert(pa.table({"id": ["b"], "ts": [1], "price": [0.3]}))
    found = mainstem.open_table(table.path).scan(columns=["id"], filter=field("price") <= 0.1)
    assert found.to_arrow().to_pylist() == [{"id": "a"}]
