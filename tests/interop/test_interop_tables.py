"""Goal: real Hudi reads every kind of table that mainstem writes, and writes on where we stopped.

Method: tables are written by mainstem, and both Java Hudi 1.2.0 and mainstem read them: snapshot,
read-optimized, incremental over every instant of ours, time travel. Results must be equal in every
cell of all columns, Hudi's five meta columns included, and equal to what the test wrote.
"""

from __future__ import annotations

import datetime as dt
import glob
import math
import os
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa
import pytest
from compare import assert_same, without_meta
from java_hudi import (
    READ_OPTIMIZED,
    JavaFailed,
    JavaHudi,
    as_of_options,
    changes_options,
    nbcc_options,
)

import mainstem

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("ts", pa.int64()),
    ]
)
CITIES = ("paris", "rome", "oslo")


def rows_of(ids: Sequence[int], ts: int) -> pa.Table:
    """Full rows; every cell says which commit wrote it."""
    return pa.table(
        {
            "id": list(ids),
            "city": [CITIES[i % 3] for i in ids],
            "name": [None if i % 7 == 0 else f"name {i} at {ts} é𝄞" for i in ids],
            "price": [i + ts / 1000 for i in ids],
            "ts": [ts] * len(ids),
        },
        schema=SCHEMA,
    )


def key_columns(*names: str) -> pa.Schema:
    return pa.schema([SCHEMA.field(name) for name in names])


def check_all_queries(java: JavaHudi, path: str, key: Sequence[str]) -> pa.Table:
    """Snapshot, read-optimized, every incremental window, every time travel; gives the snapshot."""
    table = mainstem.open_table(path)
    done = sorted(
        (i for i in table.timeline() if i.completion and i.action in ("deltacommit", "commit")),
        key=lambda i: i.completion,
    )
    windows = [("000", None)] + [
        (done[k].completion, until) for k in range(len(done)) for until in (None, done[-1].completion)
    ]
    snapshot = table.scan().to_arrow()
    queries = [
        ({}, snapshot),
        (READ_OPTIMIZED, table.scan(mode="read_optimized").to_arrow()),
        *((changes_options(*window), table.changes(*window).to_arrow()) for window in windows),
        *((as_of_options(i.requested), table.scan(as_of=i.requested).to_arrow()) for i in done),
    ]
    answers = java.read_many(path, [options for options, _ in queries])
    for (options, ours), theirs in zip(queries, answers, strict=True):
        assert not isinstance(theirs, JavaFailed), f"{options}: {theirs}"
        assert_same(theirs, ours, [*key, "_hoodie_commit_time"])
    return snapshot


def test_java_reads_partial_rows_that_fill_each_other(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(
        path,
        SCHEMA,
        record_key=["id"],
        partition_by=["city"],
        buckets=2,
        properties={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
    )
    table.upsert(rows_of(range(30), 100))
    for turn in range(3):
        some = rows_of(range(turn, 30, 3), 200 + turn)
        table.update_columns(some.select(["id", "city", "price"]))
    table.update_columns(rows_of(range(25, 35), 300).select(["id", "city", "ts"]))
    snapshot = check_all_queries(java, path, ["id"])
    got = {r["id"]: (r["name"], r["price"], r["ts"]) for r in snapshot.to_pylist()}
    first = {r["id"]: r for r in rows_of(range(30), 100).to_pylist()}
    for i in range(30):
        ts = 300 if i >= 25 else 100
        assert got[i] == (first[i]["name"], i + (200 + i % 3) / 1000, ts)
    assert got[34] == (None, None, 300)
    options = nbcc_options("table", record_key=["id"], partition_by=["city"], buckets=2)
    java.compact(path, options)
    assert_same(snapshot.drop_columns(["_hoodie_file_name"]),
                table.scan().to_arrow().drop_columns(["_hoodie_file_name"]), ["id"])  # fmt: skip
    assert_same(java.read(path), table.scan().to_arrow(), ["id"])


TYPES = pa.schema(
    [
        ("id", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.float64()), ("label", pa.string())])),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("ts", pa.int64()),
    ]
)


def typed_rows(ts: int) -> pa.Table:
    """Ordinary values, extremes, float specials, empty ones and a row of nulls."""
    utc = dt.UTC
    plain = {
        "id": "plain", "flag": True, "small": 7, "big": 8, "single": 1.5, "double": 0.1,
        "text": "é𝄞\n", "raw": b"\0\xff", "day": dt.date(2024, 2, 29),
        "moment": dt.datetime(2024, 2, 29, 1, 2, 3, 456789, utc), "price": Decimal("12.30"),
        "wide": Decimal("1234567890.0123456789"), "tags": ["a", "b"],
        "place": {"x": 1.0, "label": "l"}, "counts": [("k", 1), ("m", 2)],
    }  # fmt: skip
    least = {
        "id": "least", "flag": False, "small": -(2**31), "big": -(2**63), "single": -math.inf,
        "double": math.nan, "text": "", "raw": b"", "day": dt.date(1, 1, 1),
        "moment": dt.datetime(1900, 1, 1, tzinfo=utc), "price": Decimal("-99999999.99"),
        "wide": Decimal("-" + "9" * 28 + "." + "9" * 10), "tags": [],
        "place": {"x": None, "label": None}, "counts": [],
    }  # fmt: skip
    most = {
        "id": "most", "flag": True, "small": 2**31 - 1, "big": 2**63 - 1, "single": math.inf,
        "double": -0.0, "text": "x" * 5000, "raw": bytes(range(256)), "day": dt.date(9999, 12, 31),
        "moment": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, utc),
        "price": Decimal("99999999.99"), "wide": Decimal("9" * 28 + "." + "9" * 10),
        "tags": ["x"] * 100, "place": {"x": 2.0, "label": None}, "counts": [("", 0)],
    }  # fmt: skip
    rows: list[dict[str, object]] = [plain, least, most, {"id": "nulls"}]
    return pa.Table.from_pylist([{**row, "ts": ts} for row in rows], schema=TYPES)


def test_java_reads_every_column_type_that_we_write(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(path, TYPES, record_key=["id"], ordering=["ts"], buckets=2)
    table.upsert(typed_rows(1))
    table.upsert(typed_rows(2).slice(0, 2))
    snapshot = check_all_queries(java, path, ["id"])
    wrote = pa.concat_tables([typed_rows(2).slice(0, 2), typed_rows(1).slice(2)])
    assert_same(wrote, without_meta(snapshot), ["id"])


def test_java_compacts_every_column_type_that_we_write(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(path, TYPES, record_key=["id"], ordering=["ts"], buckets=1, name="typed")
    table.upsert(typed_rows(1))
    options = nbcc_options("typed", record_key=["id"], ordering=["ts"], buckets=1)
    java.compact(path, options)
    ours = table.scan(mode="read_optimized").to_arrow()
    assert_same(typed_rows(1), without_meta(ours), ["id"])
    assert_same(java.read(path), table.scan().to_arrow(), ["id"])


HOUR = dt.timedelta(hours=61, microseconds=7)
KEYED = {
    "string": (["k"], [[f"k{i} é𝄞-ü/{i % 5}"] for i in range(300)]),
    "int": (["k"], [[i * 7919 - 1_000_000] for i in range(300)]),
    "long": (["k"], [[i * 7_919_000_000_007 - 2**60] for i in range(300)]),
    "date": (["k"], [[dt.date(1960, 1, 1) + dt.timedelta(days=61 * i)] for i in range(300)]),
    "decimal": (["k"], [[Decimal(i * 37 - 5000).scaleb(-2)] for i in range(300)]),
    "timestamp": (["k"], [[dt.datetime(1969, 12, 31, 23, tzinfo=dt.UTC) + i * HOUR] for i in range(300)]),
    "composite": (["k", "b"], [[f"part {i}", i % 11] for i in range(300)]),
    "composite_with_gaps": (
        ["k", "b"],
        [[None if i % 3 == 0 else "" if i % 3 == 1 else "x", i] for i in range(300)],
    ),
}
KEY_TYPES = {
    "string": [pa.string()], "int": [pa.int32()], "long": [pa.int64()], "date": [pa.date32()],
    "decimal": [pa.decimal128(10, 2)], "timestamp": [pa.timestamp("us", "UTC")],
    "composite": [pa.string(), pa.int64()], "composite_with_gaps": [pa.string(), pa.int64()],
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize("partition_by", [["city"], []], ids=["partitioned", "not_partitioned"])
def test_java_continues_our_table_with_the_same_file_groups(
    java: JavaHudi, path: str, kind: str, partition_by: list[str]
) -> None:
    key, values = KEYED[kind]
    fields = [(name, kind_) for name, kind_ in zip(key, KEY_TYPES[kind], strict=True)]
    schema = pa.schema([*fields, ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
    table = mainstem.create_table(
        path,
        schema,
        record_key=key,
        ordering=["ts"],
        partition_by=partition_by,
        buckets=5,
        name="t",
    )

    def batch(ts: int, begin: int, end: int) -> pa.Table:
        rows = [
            {**dict(zip(key, values[i], strict=True)), "city": CITIES[i % 3], "v": i, "ts": ts}
            for i in range(begin, end)
        ]
        return pa.Table.from_pylist(rows, schema=schema)

    table.upsert(batch(1, 0, 200))
    ours = {group_of(name) for name in log_files(path)}
    # Java is told nothing but the table's name: key, partition, buckets, index and lock come from
    # hoodie.properties.
    minimal = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.metadata.enable": "false",
        "hoodie.write.auto.upgrade": "false",
    }
    java.write(path, batch(2, 100, 300), minimal)
    table.upsert(batch(3, 250, 300))
    both = {group_of(name) for name in log_files(path)}
    assert len({bucket for _, bucket in both}) == 5
    assert {group for group in both if group[0] in {g[0] for g in ours}} == both
    assert all(len({f for p, f in both if p == part}) <= 5 for part, _ in both)
    found = java.read(path)
    assert_same(found, table.scan().to_arrow(), key)
    expected = [batch(1, 0, 100), batch(2, 100, 250), batch(3, 250, 300)]
    assert_same(pa.concat_tables(expected), without_meta(found), key)


def log_files(path: str) -> list[str]:
    """Log files of all partitions, relative."""
    names = glob.glob(os.path.join(path, "**", ".*.log.*"), recursive=True, include_hidden=True)
    return [os.path.relpath(n, path) for n in names if not n.endswith(".crc")]


def group_of(name: str) -> tuple[str, str]:
    """(partition, file id)."""
    folder, _, file = name.rpartition("/")
    return folder, file[1:].split("_")[0]


def test_java_and_we_delete_each_others_rows(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(
        path, SCHEMA, record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=3, name="t"
    )
    options = nbcc_options("t", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=3)
    table.upsert(rows_of(range(30), 100))
    java.write(path, rows_of(range(30, 60), 100), options)
    java.write(path, rows_of(range(5), 200), {**options, "hoodie.datasource.write.operation": "delete"})
    table.delete(rows_of(range(30, 35), 0).select(["id", "city"]))
    found = check_all_queries(java, path, ["id"])
    assert sorted(found["id"].to_pylist()) == [*range(5, 30), *range(35, 60)]


PARTITION_VALUES = {
    "plain": ["paris", "new york ", "Ünïcode", "50%", "x/y", "_a#b?c", ".[x]{y}*", None],
    "encoded": ["paris", "new york ", "Ünïcode", "50%", "x/y", "a=b", "a:b\\c", "1\n2", None],
}


@pytest.mark.parametrize("hive_style", ["false", "true"])
@pytest.mark.parametrize("encoded", ["false", "true"])
def test_java_continues_our_partitions_whatever_their_values(
    java: JavaHudi, path: str, hive_style: str, encoded: str
) -> None:
    styles = {
        "hoodie.datasource.write.hive_style_partitioning": hive_style,
        "hoodie.datasource.write.partitionpath.urlencode": encoded,
    }
    table = mainstem.create_table(
        path,
        SCHEMA,
        record_key=["id"],
        ordering=["ts"],
        partition_by=["city"],
        buckets=1,
        name="t",
        properties=styles,
    )
    cities = PARTITION_VALUES["encoded" if encoded == "true" else "plain"]
    first = pa.table(
        {
            "id": list(range(len(cities))),
            "city": cities,
            "name": ["ours"] * len(cities),
            "price": [1.0] * len(cities),
            "ts": [1] * len(cities),
        },
        schema=SCHEMA,
    )
    table.upsert(first)
    ours = {folder for folder, _ in map(group_of, log_files(path))}
    newer = first.set_column(4, SCHEMA.field("ts"), pa.array([2] * len(cities), pa.int64()))
    newer = newer.set_column(2, SCHEMA.field("name"), pa.array(["Java's"] * len(cities)))
    java.write(path, newer, {"hoodie.table.name": "t"})
    assert {folder for folder, _ in map(group_of, log_files(path))} == ours
    found = java.read(path)
    assert_same(newer, without_meta(found), ["id"])
    assert_same(found, table.scan().to_arrow(), ["id"])
