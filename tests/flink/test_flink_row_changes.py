"""Goal: UPDATE and DELETE, as Hudi's Flink pages write them, are one commit each beside other writers.

Method: statements in both modes on a small table, which mainstem reads; another writer commits newer rows.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported

SCHEMA = pa.schema([
    ("uuid", pa.string()), ("fare", pa.float64()), ("age", pa.int32()), ("ts", pa.int64()),
    ("city", pa.string()),
])  # fmt: skip
_names = itertools.count()


def declared(t, path, more=""):
    name = f"changed_{next(_names)}"
    t.execute_sql(f"""
        CREATE TABLE {name} (uuid STRING, fare DOUBLE, age INT, ts BIGINT, city STRING,
            PRIMARY KEY (uuid) NOT ENFORCED) PARTITIONED BY (city)
        WITH ('connector' = 'hudi', 'path' = '{path}', 'table.type' = 'MERGE_ON_READ',
              'index.type' = 'BUCKET', 'hoodie.bucket.index.num.buckets' = '2' {more})
    """)
    return name


def shown(table):
    found = table.scan(columns=["uuid", "fare", "age", "ts"]).to_arrow().to_pylist()
    return {row["uuid"]: (row["fare"], row["age"], row["ts"]) for row in found}


@pytest.mark.supports("Engines", "Flink SQL: UPDATE and DELETE")
@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
def test_update_and_delete_change_the_rows_that_where_names(environment, tmp_path, mode):
    t, path = environment(**{"execution.runtime-mode": mode}), str(tmp_path / "t")
    table = mainstem.create_table(
        path, SCHEMA, record_key="uuid", ordering="ts", partition_by="city", buckets=2
    )
    fresh = {"fare": 1.0, "ts": 10, "city": "oslo"}
    table.upsert([{"uuid": c, "age": 20 + n, **fresh} for n, c in enumerate("abcd")])
    name, streamed = declared(t, path), declared(t, path, ", 'read.streaming.enabled' = 'true'")
    update = f"UPDATE {name} SET fare = fare * 2, ts = 1111 WHERE uuid = 'a' OR (age > 22)"
    (outcome,) = t.execute_sql(update).outcomes
    assert outcome.rows == 2
    dear = f"(SELECT uuid FROM {name} WHERE fare > 1.5)"
    t.execute_sql(f"UPDATE {name} AS u SET age = 1 WHERE u.uuid IN {dear}").wait()
    t.execute_sql(f"DELETE FROM {name} WHERE age > 20").wait()
    assert shown(table) == {"a": (2.0, 1, 1111), "d": (2.0, 1, 1111)}
    table.upsert([{"uuid": "b", "fare": 5.0, "age": 1, "ts": 9, "city": "oslo"}])  # older than its delete
    t.execute_sql(f"DELETE FROM {name} WHERE uuid = 'nobody'").wait()
    assert shown(table) == {"a": (2.0, 1, 1111), "d": (2.0, 1, 1111)}
    before = table.timeline()
    for text, kind, match in (
        (f"UPDATE {name} SET uuid = 'z'", Invalid, "uuid tells where a row lies"),
        (f"UPDATE {name} SET city = 'z' WHERE age = 1", Invalid, "city tells where a row lies"),
        (f"UPDATE {name} SET aeg = 1", Exception, "aeg"),
        (f"DELETE FROM {streamed}", (Invalid, Unsupported), "does not end|in streaming mode"),
    ):
        with pytest.raises(kind, match=match):
            t.execute_sql(text)
    assert table.timeline() == before
    t.execute_sql(f"DELETE FROM {name}").wait()
    assert not shown(table)
