"""Goal: Java reads through record and secondary indexes that mainstem built and keeps up.

Method: Java asks by key and by value, with data skipping and without: the same number of rows, of fewer file
slices. (What Java's own writes do to such indexes says docs/metadata.md.)
"""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from java_hudi import JavaHudi

import mainstem

pytestmark = [
    pytest.mark.supports("Indexes", "record index: maintained and built beside writers"),
    pytest.mark.supports("Indexes", "secondary index: maintained and built beside writers"),
]
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("name", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}


def rows_of(ids: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "city": [("paris", "rome")[i % 2] for i in ids],
            "name": [f"n{i}-{ts}" for i in ids],
            "ts": [ts] * len(ids),
        },
        schema=SCHEMA,
    )


def created(path: str, **more: str) -> mainstem.Table:
    """A table whose indexes were built between writes and compactions, and kept up since."""
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=4, name="keys", **more
    )
    table.upsert(rows_of(range(40), 100))
    table.compact()
    table.upsert(rows_of(range(30, 50), 110))
    table.create_index("secondary_index", ["name"])
    table = mainstem.open_table(path)
    table.upsert(rows_of(range(45, 60), 120))
    return table


def test_java_reads_through_indexes_of_keys(java: JavaHudi, path: str) -> None:
    created(path)
    for where, rows in (("id = 47", 1), ("name = 'n47-120'", 1), ("name = 'n3-100'", 1), ("name = 'no'", 0)):
        found, files = java.files_read(path, THROUGH, where)
        assert (found, files <= 1) == (rows, True), where
        assert java.files_read(path, {}, where) == (rows, 4)


def test_java_reads_through_indexes_of_keys_of_a_partitioned_table(java: JavaHudi, path: str) -> None:
    created(path, partition_by="city")
    every = java.files_read(path, {}, "id = 47")[1]
    found, files = java.files_read(path, THROUGH, "city = 'rome' and id = 47")
    assert found == 1 and files < every
    for where in ("id = 47", "name = 'n47-120'", "name = 'n3-100'"):
        assert java.files_read(path, THROUGH, where)[0] == 1


def test_java_reads_by_a_record_index_of_partitions_whose_names_hold_dots_and_dashes(
    java: JavaHudi, path: str
) -> None:
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="dots"
    )
    cities = ("v1.2", "a-b_c")
    for at, city in enumerate(cities):
        rows = rows_of(range(10 * at, 10 * at + 10), 100)
        table.upsert(rows.set_column(1, "city", pa.array([city] * 10)))
    table.create_index("record_index")
    later = rows_of(range(5, 15), 110)
    later = later.set_column(1, "city", pa.array([cities[i // 10] for i in range(5, 15)]))
    mainstem.open_table(path).upsert(later)
    assert any("%2E" in name for name in os.listdir(f"{path}/.hoodie/metadata/record_index"))
    for at, city in enumerate(cities):
        for key in (10 * at + 2, 10 * at + 4 + at, 10 * at + 8):
            where = f"city = '{city}' and id = {key}"
            assert java.files_read(path, THROUGH, where)[0] == 1, where
        assert java.files_read(path, THROUGH, f"city = '{city}' and id = {99 + at}")[0] == 0
