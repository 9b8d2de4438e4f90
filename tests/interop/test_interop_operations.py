"""Goal: real Hudi reads, writes and compacts what the less common operations of mainstem leave behind.

Method: tables are written by mainstem with base files from bulk_insert, Parquet log blocks, deletes of
every kind and partial updates; Java Hudi 1.2.0 and mainstem read them and must agree in every cell, and
with what the test wrote; then Java writes to them and compacts them.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.errors import RolledBack

SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("seq", pa.int32()),
        ("name", pa.string()), ("_hoodie_is_deleted", pa.bool_()),
    ]
)  # fmt: skip
MARKER = "__not_known"


def rows_of(ids, ts, *, seq=0, name="n", gone=None) -> pa.Table:
    ids = list(ids)
    return pa.table(
        {
            "id": ids,
            "city": [("paris", "rome")[i % 2] for i in ids],
            "ts": [ts] * len(ids),
            "seq": [seq] * len(ids),
            "name": [None if name is None else f"{name}-{i}" if name != MARKER else name for i in ids],
            "_hoodie_is_deleted": [gone] * len(ids),
        },
        schema=SCHEMA,
    )


def agree(java: JavaHudi, path: str, **options: str) -> dict[int, str | None]:
    """Java's snapshot and ours, compared; id -> name."""
    ours = mainstem.open_table(path).scan().to_arrow()
    assert ours.num_rows > 0
    assert_same(java.read(path, options), ours, ["id"])
    return dict(zip(ours["id"].to_pylist(), ours["name"].to_pylist(), strict=True))


@pytest.mark.supports("Writing", "insert and bulk_insert (base files)")
@pytest.mark.supports("Writing", "log blocks as Avro or Parquet")
@pytest.mark.parametrize("block_format", ["avro", "parquet"])
def test_java_reads_upserts_and_compacts_what_a_bulk_insert_left(
    java: JavaHudi, path: str, block_format: str
) -> None:
    mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="city", ordering="ts", buckets=2
    )
    table = mainstem.open_table(path, {"hoodie.logfile.data.block.format": block_format})
    first = table.bulk_insert(rows_of(range(40), 100, name="bulk"))
    assert_same(java.read_optimized(path), table.scan(mode="read_optimized").to_arrow(), ["id"])
    table.upsert(rows_of(range(5), 200, name="new"))
    table.upsert(rows_of(range(5, 8), 50, name="late"))
    table.upsert(pa.concat_tables([rows_of([8], 150, gone=True), rows_of([9], 50, gone=True)]))
    table.delete(rows_of([10], 0).select(["id", "city"]))
    table.bulk_insert(rows_of(range(38, 45), 300, name="again"))
    expected = {i: f"bulk-{i}" for i in range(38) if i not in (8, 10)}
    expected |= {i: f"new-{i}" for i in range(5)} | {i: f"again-{i}" for i in range(38, 45)}
    positions = {"hoodie.merge.use.record.positions": "true"}
    assert agree(java, path, **positions) == agree(java, path) == expected
    window = table.changes(after=first.completion_time).to_arrow()
    assert_same(java.changes(path, first.completion_time), window, ["id", "_hoodie_commit_time"])

    options = nbcc_options(
        "table", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2
    )
    java.write(path, rows_of(range(20, 23), 400, name="java"), options)
    expected |= {i: f"java-{i}" for i in range(20, 23)}
    assert agree(java, path) == expected
    java.compact(path, options)
    table.upsert(rows_of([0], 500, name="after"))
    assert agree(java, path) == {**expected, 0: "after-0"}


EVERY = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "price": pa.array([Decimal("1.50"), None, Decimal("-99999999.25")], pa.decimal128(10, 2)),
        "large": pa.array([Decimal(10**30), None, Decimal(-1)], pa.decimal128(38, 0)),
        "at": pa.array([dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)] * 3, pa.timestamp("us", "UTC")),
        "day": pa.array([dt.date(1969, 12, 31), None, dt.date(2026, 1, 1)], pa.date32()),
        "raw": pa.array([b"\x00\xff", b"", None], pa.binary()),
        "tags": pa.array([["x", None], [], None], pa.list_(pa.string())),
        "marks": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "place": pa.array(
            [{"x": 1.5, "y": ["a"]}, None, {"x": None, "y": None}],
            pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))]),
        ),
        "half": pa.array([0.5, float("nan"), None], pa.float32()),
    }
)


@pytest.mark.parametrize("operation", ["bulk_insert", "upsert"])
def test_java_reads_every_kind_of_column_from_base_files_and_parquet_blocks(
    java: JavaHudi, path: str, operation: str
) -> None:
    mainstem.create_table(path, EVERY.schema, record_key="id", buckets=1)
    table = mainstem.open_table(path, {"hoodie.logfile.data.block.format": "parquet"})
    with table.begin(operation) as txn:
        txn.write(EVERY)
        txn.commit()
    ours = table.scan().to_arrow()
    assert ours.num_rows == 3
    assert_same(java.read(path), ours, ["id"])


@pytest.mark.supports("Merging", "several ordering fields")
def test_java_orders_rows_and_deletes_by_several_fields_as_we_do(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(path, SCHEMA, record_key="id", ordering=["ts", "seq"], buckets=1)
    table.bulk_insert(rows_of(range(3), 5, seq=2))
    table.upsert(rows_of(range(3, 6), 5, seq=2))
    table.upsert(
        pa.concat_tables(
            [rows_of([0, 3], 5, seq=1, gone=True), rows_of([1, 4], 5, seq=3, gone=True)]
        )
    )
    table.upsert(rows_of([2, 5], 4, seq=9, name="late"))
    assert agree(java, path) == {0: "n-0", 3: "n-3", 2: "n-2", 5: "n-5"}


@pytest.mark.supports("Merging", "partial updates: FILL_UNAVAILABLE")
@pytest.mark.supports("Merging", "deletes by a marker column (delete key and delete marker)")
def test_java_fills_what_is_unavailable_and_drops_marked_rows_as_we_do(
    java: JavaHudi, path: str
) -> None:
    prefix = "hoodie.record.merge.property."
    table = mainstem.create_table(
        path,
        SCHEMA,
        record_key="id",
        ordering="ts",
        buckets=1,
        properties={
            "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            prefix + "hoodie.write.partial.update.unavailable.value": MARKER,
            prefix + "hoodie.payload.delete.field": "name",
            prefix + "hoodie.payload.delete.marker": "d-9",
        },
    )
    table.bulk_insert(rows_of([1, 2, 3, 9], 5, name="old"))
    table.upsert(rows_of([4, 5], 5, name="old"))
    table.upsert(pa.concat_tables([rows_of([1, 4], 6, name=MARKER), rows_of([2, 5], 6, name=None)]))
    table.update_columns(rows_of([3], 7, seq=7).drop_columns(["name"]))
    table.upsert(rows_of([9], 6, name="d"))
    assert agree(java, path) == {1: "old-1", 2: None, 3: "old-3", 4: "old-4", 5: None}


def test_a_bulk_insert_of_ours_loses_to_an_upsert_by_java_that_completed_meanwhile(
    java: JavaHudi, path: str
) -> None:
    table = mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=1)
    options = nbcc_options("table", record_key=["id"], ordering=["ts"], buckets=1)
    with table.begin("bulk_insert") as txn:
        txn.write(rows_of(range(5), 1))
        java.write(path, rows_of([7], 1, name="java"), options)
        with pytest.raises(RolledBack, match="overlaps another write"):
            txn.commit()
    table.bulk_insert(rows_of(range(5), 1))
    assert agree(java, path) == {**{i: f"n-{i}" for i in range(5)}, 7: "java-7"}
