"""Goal: Java Hudi gives our rows with the options that it has when nobody gives it any.

Method: tables of ours on which Java's defaults do what most of the other tests leave out: the metadata table
is asked and files are skipped by it, and dates before the Gregorian calendar are read as Spark reads them.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import JavaHudi

import mainstem

CITIES = ("paris", "rome", "oslo")
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64())])


def one_in_each(ids: str, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "city": CITIES, "ts": [ts] * 3}, SCHEMA)


@pytest.mark.parametrize("how", ["upsert", "bulk_insert", "compacted"])
def test_rows_of_one_bucket_in_several_partitions_are_found_by_statistics(
    java: JavaHudi, path: str, how: str
) -> None:
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=1,
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    table.create_index("column_stats")
    (table.bulk_insert if how == "bulk_insert" else table.upsert)(one_in_each("abc", 1))
    if how == "compacted":
        table.compact()
    found = [java.read_by_default(path, f"id = '{key}'")["city"].to_pylist() for key in "abc"]
    assert found == [[city] for city in CITIES]


def test_dates_and_times_of_an_older_calendar(java: JavaHudi, path: str) -> None:
    days = [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 14), dt.date(1582, 10, 15)]
    moments = [dt.datetime(d.year, d.month, d.day, 1, tzinfo=dt.UTC) for d in days[:3]]
    moments.append(dt.datetime(1899, 12, 31, 23, tzinfo=dt.UTC))
    rows = pa.table(
        {
            "id": list("abcd"), "day": days, "ts": [1] * 4,
            "moment": pa.array(moments, pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    for blocks in ("avro", "parquet"):
        there = f"{path}-{blocks}"
        table = mainstem.create_table(
            there, rows.schema, record_key="id", ordering="ts", buckets=1,
            properties={"hoodie.logfile.data.block.format": blocks},
        )  # fmt: skip
        table.upsert(rows.slice(0, 3))
        table.compact()
        table.upsert(rows.slice(2))
        assert_same(java.read_by_default(there), table.scan().to_arrow(), ["id"])


def test_java_loses_rows_by_indexes_that_are_built_for_those_who_insist(java: JavaHudi, path: str) -> None:
    """Once Java finds them, nobody need insist (``indexing/unsafe_for_java.py``)."""
    schema = pa.schema([("id", pa.string()), ("name", pa.string()), ("ts", pa.int64())])
    table = mainstem.create_table(
        path, schema, record_key="id", ordering="ts", buckets=1,
        properties={"hoodie.metadata.enable": True},
    )  # fmt: skip
    table.upsert(pa.table({"id": ["a"], "name": ["Abc"], "ts": [1]}, schema))
    insisting = {"hoodie.mainstem.index.unsafe.for.java": "true"}
    lower = {"expr": "lower", "type": "column_stats", **insisting}
    table.create_index("expr_index", ["name"], name="low", options=lower)
    assert java.read_by_default(path, "lower(name) = 'abc'").num_rows == 1
    assert java.read_by_default(path, "upper(name) = 'ABC'").num_rows == 0
    table.drop_index("low")
    assert java.read_by_default(path, "id = 'a'").num_rows == 1
    table.create_index("bloom_filters", options=insisting)
    assert java.read_by_default(path, "id = 'a'").num_rows == 0
