"""Goal: Java reads what we clustered, goes on with it, and executes a plan of ours that clusters.

Method: tables with a metadata table (column statistics and record index among its partitions) whose base
files mainstem wrote in an order; Java reads them with default options and through the metadata table, with
filters on the ordered columns, with logs on top, and then upserts and compacts; a plan of file groups
without logs is left to Java.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem

pytestmark = pytest.mark.supports("Engines", "Java Hudi 1.2.0 reads, writes and compacts clustered tables")

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()),
     ("note", pa.string())]
)  # fmt: skip
METADATA = {"hoodie.metadata.enable": "true"}
SKIPPING = {**METADATA, "hoodie.enable.data.skipping": "true"}
COUNT = 6000


def options(**more: str) -> dict[str, str]:
    return nbcc_options(
        "clustered", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2,
        extra={key.replace("__", "."): value for key, value in more.items()},
    )  # fmt: skip


def rows_of(ids: range, ts: int) -> pa.Table:
    numbers = np.array(ids)
    return pa.table(
        {
            "id": [f"k{n:05d}" for n in ids],
            "city": [("paris", "rome")[n % 2] for n in ids],
            "ts": [ts] * len(ids),
            "fare": pa.array(numbers * 7919 % COUNT + 0.5, mask=numbers % 97 == 0),
            "note": [f"n{n * 31 % 500:03d}" for n in ids],
        },
        schema=SCHEMA,
    )


def make(path: str, *indexes: str, **properties: object) -> mainstem.Table:
    """A table of two partitions with two buckets each, and 6,000 rows in base files."""
    given = {
        **properties, "hoodie.parquet.block.size": 32 * 1024, "hoodie.mainstem.services": "off",
        "hoodie.metadata.enable": bool(indexes),
    }  # fmt: skip
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="clustered",
        properties=given,
    )  # fmt: skip
    for kind in indexes:
        table.create_index(kind)
    table.upsert(rows_of(range(COUNT), 100))
    table.upsert(rows_of(range(0, COUNT, 3), 110))
    table.compact()
    return table


def check_same(java: JavaHudi, table: mainstem.Table) -> None:
    """Every query of Java's gives our rows."""
    rows = table.scan().to_arrow()
    assert_same(java.read(table.path), rows, ["id"])
    assert_same(java.read_by_default(table.path), rows, ["id"])
    assert_same(java.read_optimized(table.path), table.scan(mode="read_optimized").to_arrow(), ["id"])
    fare, note = pc.field("fare"), pc.field("note")
    few = table.scan(filter=(fare >= 1000) & (fare < 1040) & (note < "n250")).to_arrow()
    assert 0 < few.num_rows < 100
    where = "fare >= 1000 and fare < 1040 and note < 'n250'"
    assert_same(java.read_by_default(table.path, where), few, ["id"])
    if table.config.metadata_partitions:
        assert_same(java.read(table.path, SKIPPING, where), few, ["id"])
    assert_same(java.changes(table.path, "000"), rows, ["id"])


def test_java_reads_what_we_clustered_writes_on_it_and_compacts_it(java: JavaHudi, path: str) -> None:
    table = make(path, "column_stats", "record_index")
    (done,) = table.cluster(["fare", "note"], strategy="z-order")
    assert len(done.files) == 4 and done.rows == COUNT and done.log_files == 0
    assert pq.read_metadata(Path(path) / done.files[0]).num_row_groups > 3
    check_same(java, table)
    table.upsert(rows_of(range(0, COUNT, 5), 120))
    table.delete(rows_of(range(50, 60), 0).select(["id", "city"]))
    check_same(java, table)
    assert table.validate_metadata().ok
    table.drop_index("record_index")  # Java's writers of a bucket index do not keep it
    of_java = options(hoodie__metadata__enable="true")
    java.write(path, rows_of(range(COUNT - 10, COUNT + 300), 130), of_java)
    (done,) = table.cluster(["fare", "note"], strategy="hilbert")
    assert done.log_files
    check_same(java, table)
    table.upsert(rows_of(range(0, COUNT, 4), 140))
    java.compact(path, of_java)
    (done,) = table.cluster(["fare", "note"], strategy="hilbert")
    assert done.log_files == 0, "Java compacted them, and not in this order"
    check_same(java, table)


def test_java_executes_a_plan_of_file_groups_without_logs(java: JavaHudi, path: str) -> None:
    table = make(path)
    table.upsert(rows_of(range(0, 40, 2), 120))  # logs in one partition only
    planned = table.schedule_clustering("fare")
    assert planned is not None
    table.upsert(rows_of(range(7), 400))
    check_same(java, table)
    java.run_compaction(path, options(), planned)
    assert not [i for i in table.timeline() if i.action == "compaction"]
    check_same(java, table)
    assert table.cluster("fare")
    check_same(java, table)
