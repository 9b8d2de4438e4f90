"""Goal: hudi-rs reads the tables that mainstem writes as mainstem does, and Java's tables too.

Method: snapshots of both readers are compared in every cell, meta columns included, on the golden
tables and on tables written here in every merge mode. Where hudi-rs is wrong the case stands in
defects.json with what it does, reproduced on a table that Java wrote and whose rows as Java reads
them are ours (tests/golden_tables). A defect that is gone fails here, so that the list stays true.
"""

from __future__ import annotations

import datetime
import json
import struct
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.formats.avro_schema import META_FIELDS
from tests.golden_tables.tables import NAMES, encoded, expectations, unpack
from tests.hudi_rs.reading import read

pytest.importorskip("hudi")
DEFECTS = json.loads(Path(__file__).with_name("defects.json").read_text("utf-8"))
FAST = {"hoodie.time.generator.max_expected_clock_skew_ms": "0"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


def disagreement(path: Path) -> dict:
    """How hudi-rs differs from us; {} where it does not."""
    options = {"mainstem.read.damaged": "skip"}
    ours = mainstem.open_table(path, properties=options).scan().to_arrow()
    theirs, error = read(path)
    if error is not None:
        return {"error": error.splitlines()[0]}
    assert theirs is not None
    if not theirs.schema.names:
        return {"rows": 0} if ours.num_rows else {}
    names = [n for n in ours.schema.names if n in theirs.schema.names]
    assert set(ours.schema.names) - set(names) in (set(), set(META_FIELDS))  # virtual keys
    left, right = encoded(ours.select(names)), encoded(theirs.select(names))
    if left == right:
        return {}
    return {
        "only_mainstem": sorted((left - right).elements()),
        "only_hudi_rs": sorted((right - left).elements()),
    }


@pytest.mark.parametrize("name", NAMES)
def test_hudi_rs_agrees_on_javas_tables_or_the_defect_is_listed(name, unpacked):
    found = disagreement(unpack(name, unpacked))
    entry = DEFECTS.get(name)
    if expectations(name)["table_config"]["hoodie.table.version"] == "10":
        assert "version 6, 8, and 9" in found["error"] or "Multiple ordering fields" in found["error"]
    elif entry is None:
        assert found == {}
    elif "error_begins" in entry:
        assert found.get("error", "").startswith(entry["error_begins"]), found
    else:
        assert found == entry["found"]


def test_every_listed_defect_names_a_table_and_says_what_is_wrong():
    assert set(DEFECTS) <= set(NAMES)
    assert all(len(entry["defect"]) > 20 for entry in DEFECTS.values())


SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
    ]
)


def rows(*values):
    columns = zip(*values, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def create(path, merge_mode, **properties):
    options = {"hoodie.record.merge.mode": merge_mode, "hoodie.mainstem.exclusive": "true"}
    return mainstem.create_table(
        path,
        SCHEMA,
        record_key=["id"],
        ordering=["ts"],
        partition_by=["city"],
        buckets=3,
        properties={**options, **FAST, **properties},
    )


@pytest.mark.parametrize("merge_mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
def test_upserts_late_rows_ties_and_deletes_read_the_same(tmp_path, merge_mode):
    table = create(tmp_path / "t", merge_mode)
    table.upsert(rows(*((i, "ab"[i % 2], 10, f"v{i}", i / 4) for i in range(40))))
    table.upsert(rows(*((i, "ab"[i % 2], 5 + i % 7, f"w{i}", None) for i in range(0, 40, 2))))
    table.delete(pa.table({"id": [3, 4, 5], "city": ["b", "a", "b"]}))
    table.upsert(rows((4, "a", 1, "again", 0.5), (41, "b", 1, "new", None)))
    found = table.scan().to_arrow()
    assert found.num_rows == 39
    assert disagreement(tmp_path / "t") == {}


@pytest.mark.parametrize("merge_mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
def test_partial_updates_read_the_same(tmp_path, merge_mode):
    mode = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    table = create(tmp_path / "t", merge_mode, **mode)
    table.upsert(rows((1, "a", 50, "early", None), (2, "a", 50, "two", 2.0)))
    table.upsert(rows((1, "a", 300, None, 9.0), (2, "a", 60, None, None)))
    table.upsert(rows((1, "a", 150, "late", None), (2, "a", 60, None, 3.0)))
    by_id = {r["id"]: (r["name"], r["price"]) for r in table.scan().to_arrow().to_pylist()}
    first = "early" if merge_mode == "EVENT_TIME_ORDERING" else "late"
    assert by_id == {1: (first, 9.0), 2: ("two", 3.0)}
    assert disagreement(tmp_path / "t") == {}


@pytest.mark.parametrize("merge_mode", ["EVENT_TIME_ORDERING", "COMMIT_TIME_ORDERING"])
def test_rows_marked_as_deleted_read_the_same(tmp_path, merge_mode):
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    table = mainstem.create_table(
        tmp_path / "t",
        schema,
        record_key=["id"],
        ordering=["ts"],
        buckets=1,
        properties={"hoodie.record.merge.mode": merge_mode, **FAST},
    )

    def marked(*values):
        columns = zip(*values, strict=True)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.table(arrays, schema=schema)

    table.upsert(marked(*((i, "a", 5, "x", 1.0, False) for i in range(4))))
    table.upsert(
        marked(
            (0, "a", 4, "x", 1.0, True),
            (1, "a", 5, "x", 1.0, True),
            (2, "a", 6, "x", 1.0, True),
            (9, "a", 1, "new", 1.0, None),
        )
    )
    left = sorted(table.scan().to_arrow().column("id").to_pylist())
    assert left == ([0, 3, 9] if merge_mode == "EVENT_TIME_ORDERING" else [3, 9])
    assert disagreement(tmp_path / "t") == {}


@pytest.mark.parametrize("block_format", ["avro", "parquet"])
def test_base_files_of_a_bulk_insert_with_logs_of_either_format_read_the_same(tmp_path, block_format):
    table = create(
        tmp_path / "t", "EVENT_TIME_ORDERING", **{"hoodie.logfile.data.block.format": block_format}
    )
    table.bulk_insert(rows(*((i, "ab"[i % 2], 5, f"bulk{i}", i / 4) for i in range(40))))
    table.upsert(rows(*((i, "ab"[i % 2], i, f"v{i}", None) for i in range(0, 12, 2))))
    table.delete(pa.table({"id": [3, 4], "city": ["b", "a"]}))
    table.bulk_insert(rows(*((i, "ab"[i % 2], 9, f"again{i}", None) for i in range(38, 45))))
    names = {r["id"]: r["name"] for r in table.scan().to_arrow().to_pylist()}
    assert len(names) == 43 and (names[2], names[6], names[38]) == ("bulk2", "v6", "again38")
    assert disagreement(tmp_path / "t") == {}


@pytest.mark.supports("Engines", "hudi-rs 0.5 reads our tables, two cases without base files aside")
def test_crossed_writers_and_one_in_flight_read_the_same(tmp_path):
    table = create(tmp_path / "t", "COMMIT_TIME_ORDERING")
    with table.begin("upsert") as first, table.begin("upsert") as second:
        first.write(rows((1, "a", 1, "first", None), (2, "a", 1, "first", None)))
        second.write(rows((1, "a", 1, "second", None), (3, "b", 1, "second", None)))
        second.commit()
        first.commit()
    open_one = table.begin("upsert")
    open_one.write(rows((1, "a", 9, "in flight", None), (9, "b", 9, "in flight", None)))
    names = {r["id"]: r["name"] for r in table.scan().to_arrow().to_pylist()}
    assert names == {1: "second", 2: "first", 3: "second"}  # requested later wins
    assert disagreement(tmp_path / "t") == {}
    open_one.abort()
    assert disagreement(tmp_path / "t") == {}


def test_every_flat_type_reads_the_same(tmp_path):
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("ts", pa.int64()),
            ("i", pa.int32()),
            ("f", pa.float32()),
            ("d", pa.float64()),
            ("flag", pa.bool_()),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("money", pa.decimal128(12, 2)),
        ]
    )
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key=["key"], ordering=["ts"], buckets=2, properties=FAST
    )
    values = {
        "key": ["ä", "b", "日本"],
        "ts": [1, 2, 3],
        "i": [-1, None, 2**31 - 1],
        "f": [0.5, None, -0.0],
        "d": [float("inf"), None, 1e-300],
        "flag": [True, None, False],
        "raw": [b"\x00\xff", None, b""],
        "day": [datetime.date(1969, 7, 20), None, datetime.date(2026, 1, 1)],
        "at": [datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC), None, None],
        "money": [Decimal("-12.30"), None, Decimal("9999999999.99")],
    }
    table.upsert(pa.table(values, schema=schema))
    found = table.scan(columns=schema.names).to_arrow().to_pylist()
    expected = pa.table(values, schema=schema).to_pylist()
    assert sorted(found, key=lambda r: r["ts"]) == expected
    assert disagreement(tmp_path / "t") == {}


def test_vectors_are_read_as_the_bytes_that_java_stores(tmp_path):
    """As of Java's tables hudi-rs gives no lists (``vectors`` in defects.json)."""
    kinds = {"v": "VECTOR(2)", "b": "VECTOR(3, INT8)"}
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, properties=FAST, vectors=kinds
    )
    first = rows(*((i, "a", 1, "x", None) for i in range(5)))
    vectors = [[i, -0.5] for i in range(5)]
    first = first.append_column("v", pa.array(vectors)).append_column("b", pa.array([[1, -2, 3]] * 5))
    table.bulk_insert(first)
    table.upsert(first.slice(3).set_column(2, "ts", pa.array([2, 2])))
    for _ in range(2):
        found, error = read(tmp_path / "t")
        assert error is None
        cells = {row["id"]: (row["v"], row["b"]) for row in found.to_pylist()}
        assert cells == {i: (struct.pack("<2f", *vectors[i]), b"\x01\xfe\x03") for i in range(5)}
        table.compact()
