"""Goal: ``hudi_metadata`` shows what the metadata table holds, under Java's names.

Method: a table with every kind of record is read by the library itself, and its rows are shaped as Spark gets
them, without a session; ``test_quickstart_page`` asks by SQL.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem.metadata.metadata_partitions import Content
from mainstem.readers.planning.table_state import TableState
from mainstem.spark.metadata_rows import SCHEMA, records
from mainstem.spark.types import spark_schema

pytestmark = pytest.mark.spark
FIELDS = pa.schema([
    ("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("day", pa.date32()), ("city", pa.string()),
])  # fmt: skip


def test_each_kind_of_record_is_a_column_of_its_own_and_null_in_the_others(tmp_path: Path):
    table = mainstem.create_table(
        str(tmp_path), FIELDS, record_key="id", partition_by="city", buckets=1,
        properties={"hoodie.metadata.enable": "true", "hoodie.mainstem.index.unsafe.for.java": "true"},
    )  # fmt: skip
    table.create_index("column_stats", ["n", "x", "day", "id"])
    table.create_index("record_index")
    table.create_index("bloom_filters", options={"hoodie.mainstem.index.unsafe.for.java": "true"})
    table.create_index("secondary_index", ["n"], name="by_n")
    rows = [{"id": f"k{i}", "n": i, "x": i / 2, "day": None, "city": ("a", "b")[i % 2]} for i in range(6)]
    with table.begin("bulk_insert") as txn:
        txn.write(pa.Table.from_pylist(rows, FIELDS))
        txn.commit()
    opened = mainstem.open_table(str(tmp_path)).opened
    metadata = TableState.load(opened.seams.storage, opened.config).metadata_table
    assert metadata is not None
    shown: dict[str, list[dict]] = {}
    for partition in metadata.partitions:
        made = records(metadata.content(partition), metadata.read(partition))
        assert made.schema == SCHEMA
        shown[partition] = made.to_pylist()
        for row in shown[partition]:
            there = [name for name in SCHEMA.names[2:] if row[name] is not None]
            assert len(there) == 1, row
    files = {row["key"]: (row["type"], dict(row["filesystemMetadata"])) for row in shown["files"]}
    assert {key: kind for key, (kind, _) in files.items()} == {"__all_partitions__": 1, "a": 2, "b": 2}
    assert set(files["__all_partitions__"][1]) == {"a", "b"}
    ((name, told),) = files["a"][1].items()
    assert told == {"size": (tmp_path / "a" / name).stat().st_size, "isDeleted": False}
    stats = {
        (row["ColumnStatsMetadata"]["fileName"], row["ColumnStatsMetadata"]["columnName"]): row
        for row in shown["column_stats"]
    }
    of_n, of_x, of_day = (stats[name, column]["ColumnStatsMetadata"] for column in ("n", "x", "day"))
    assert (stats[name, "n"]["type"], of_n["valueCount"], of_n["nullCount"]) == (3, 3, 0)
    assert {k: v for k, v in of_n["minValue"].items() if v is not None} == {"member2": {"value": 0}}
    assert of_n["maxValue"]["member2"] == {"value": 4} and of_x["maxValue"]["member4"] == {"value": 2.0}
    assert (of_day["minValue"], of_day["nullCount"]) == (None, 3)
    places = {row["key"]: row["recordIndexMetadata"] for row in shown["record_index"]}
    assert {key: one["partitionName"] for key, one in places.items()} == {r["id"]: r["city"] for r in rows}
    assert {row["type"] for row in shown["bloom_filters"]} == {4}
    assert sorted(row["key"] for row in shown["secondary_index_by_n"]) == [f"{i}$k{i}" for i in range(6)]
    assert metadata.content("files") == Content.FILES and len(spark_schema(SCHEMA)) == 7
