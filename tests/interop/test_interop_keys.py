"""Goal: Java reads and continues what every key generator, table version 8, an evolved schema and every
column type of ours make.

Method: mainstem writes a table, Java 1.2.0 reads it cell by cell, writes newer rows of the same keys with
options from the table alone, and mainstem reads those back: had Java computed another key, path or bucket,
rows would be doubled. Tables of version 8 are read by Java 1.0.2 too.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import QUICK_JVM, JavaHudi, nbcc_options

import mainstem

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEMA = pa.schema([("a", pa.string()), ("b", pa.int32()), ("r", pa.string()), ("d", pa.string()),
                    ("m", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])  # fmt: skip
DAY = 86_400_000
ROWS = pa.table(
    [[f"k{i}" for i in range(6)], list(range(6)), ["eu/west", "us east", "ap=1"] * 2,
     ["2026-01-10", "2026-02-11"] * 3, [1_767_225_600_000 + i * DAY for i in range(6)], ["ours"] * 6,
     [1] * 6],
    schema=SCHEMA,
)  # fmt: skip
TIMES = {"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
         "hoodie.keygen.timebased.timezone": "UTC"}  # fmt: skip
WRITE = "hoodie.datasource.write."
GENERATORS = {
    "TIMESTAMP": (["m"], "TimestampBasedKeyGenerator",
                  {**TIMES, "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd"}),
    "CUSTOM": (["d:SIMPLE", "m:TIMESTAMP"], "CustomKeyGenerator",
               {**TIMES, "hoodie.keygen.timebased.output.dateformat": "yyyyMMdd"}),
    "slash dates": (["d"], "SimpleKeyGenerator", {WRITE + "slash.separated.date.partitioning": "true"}),
    "several levels": (["d", "b"], "ComplexKeyGenerator", {WRITE + "hive_style_partitioning": "true"}),
    "encoded": (["r", "d"], "ComplexKeyGenerator", {WRITE + "partitionpath.urlencode": "true"}),
}  # fmt: skip


def newer(rows: pa.Table, text: str) -> pa.Table:
    """The same keys with a later ordering value."""
    later = pa.array([value + 1 for value in rows["ts"].to_pylist()], pa.int64())
    rows = rows.set_column(rows.schema.get_field_index("ts"), "ts", later)
    return rows.set_column(rows.schema.get_field_index("v"), "v", pa.array([text] * rows.num_rows))


def shown(table: pa.Table) -> list[tuple]:
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "v"]
    return sorted(zip(*(table[c].to_pylist() for c in columns), strict=True))


@pytest.mark.parametrize("name", GENERATORS)
def test_java_reads_and_continues_every_key_generator(java: JavaHudi, path: str, name: str) -> None:
    fields, cls, properties = GENERATORS[name]
    cls = "org.apache.hudi.keygen." + cls
    table = mainstem.create_table(
        path, SCHEMA, record_key=["a"], ordering="ts", partition_by=fields, buckets=2, name="t",
        properties={**properties, WRITE + "keygenerator.class": cls},
    )  # fmt: skip
    table.upsert(ROWS)
    ours = table.scan().to_arrow()
    assert shown(java.read(path)) == shown(ours)
    options = {"hoodie.table.name": "t", WRITE + "keygenerator.class": cls,
               WRITE + "partitionpath.field": ",".join(fields), **properties}  # fmt: skip
    java.write(path, newer(ROWS, "Java's"), options)
    both = table.scan().to_arrow()
    assert [row[:2] for row in shown(both)] == [row[:2] for row in shown(ours)]
    assert set(both["v"].to_pylist()) == {"Java's"}
    assert shown(java.read(path)) == shown(both)


@pytest.fixture(scope="module")
def java_1_0() -> Iterator[JavaHudi]:
    with JavaHudi(cores=1, memory="1g", version="1.0.2", jvm=QUICK_JVM) as running:
        yield running


VERSION_8 = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64()),
                       ("_hoodie_is_deleted", pa.bool_())])  # fmt: skip


def of_version_8(*rows: tuple) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=VERSION_8)


def test_both_javas_read_our_version_8_and_the_newer_one_does_not_upgrade_it(
    java: JavaHudi, java_1_0: JavaHudi, path: str
) -> None:
    table = mainstem.create_table(
        path, VERSION_8, record_key="id", ordering="ts", partition_by="city", buckets=2, table_version=8,
        name="t",
    )  # fmt: skip
    table.upsert(of_version_8(*[(f"k{i}", "x", "first", 10, False) for i in range(6)]))
    # late, equal, newer; deletes with an older and a newer ordering value; a row after its delete
    table.upsert(of_version_8(("k0", "x", "late", 9, False), ("k1", "x", "equal", 10, False),
                              ("k2", "x", "newer", 11, False), ("k3", "x", "", 9, True),
                              ("k4", "x", "", 11, True), ("k5", "x", "", 11, True)))  # fmt: skip
    table.upsert(of_version_8(("k5", "x", "back", 12, False)))
    expected = [("k0", "city=x", "first"), ("k1", "x", "equal"), ("k2", "x", "newer"),
                ("k3", "x", "first"), ("k5", "x", "back")]  # fmt: skip
    expected = [(key, "x", text) for key, _, text in expected]
    assert shown(table.scan().to_arrow()) == expected
    assert shown(java.read(path)) == expected
    assert shown(java_1_0.read(path)) == expected
    more = of_version_8(("k0", "x", "Java's", 20, False), ("new", "y", "Java's", 1, False))
    java.write(path, more, {"hoodie.table.name": "t"})
    found = mainstem.open_table(path)
    assert found.config.version == 8
    expected = sorted([row for row in expected if row[0] != "k0"]
                      + [("k0", "x", "Java's"), ("new", "y", "Java's")])  # fmt: skip
    assert shown(found.scan().to_arrow()) == expected
    found.upsert(of_version_8(("k1", "x", "ours again", 30, False)))
    expected = sorted([row for row in expected if row[0] != "k1"] + [("k1", "x", "ours again")])
    assert shown(java.read(path)) == expected
    assert shown(java_1_0.read(path)) == expected


@pytest.mark.parametrize("name", ["basic_mor_by_1_0_2", "nbcc_two_writers_v8.crossed"])
def test_java_reads_what_we_add_to_its_tables_of_version_8(
    java: JavaHudi, java_1_0: JavaHudi, path: str, name: str
) -> None:
    made = json.loads((GOLDEN / f"{name}.json").read_text())
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(path)
    base = next(Path(path).rglob(".hoodie")).parent
    key = "hoodie.bucket.index.num.buckets"
    table = mainstem.open_table(
        base, {key: made["writer_options"][key], "hoodie.mainstem.timeline.zone": "UTC"}
    )
    seen = table.scan().to_arrow()
    (order,) = table.config.ordering
    rows = seen.select([c for c in seen.column_names if not c.startswith("_hoodie_")])
    raised = pa.array([v + 1_000 for v in rows[order].to_pylist()], rows.schema.field(order).type)
    table.upsert(rows.set_column(rows.schema.get_field_index(order), order, raised))

    def orders(found: pa.Table) -> list[tuple]:
        columns = (found["_hoodie_record_key"], found["_hoodie_partition_path"], found[order])
        return sorted(zip(*(c.to_pylist() for c in columns), strict=True))

    ours = orders(table.scan().to_arrow())
    assert len(ours) == seen.num_rows > 0
    assert orders(java.read(base)) == ours
    if table.properties.get("hoodie.table.precombine.field"):
        assert orders(java_1_0.read(base)) == ours


def test_time_partitions_of_timestamps_and_texts_are_javas(java: JavaHudi, path: str) -> None:
    schema = pa.schema([("a", pa.string()), ("t", pa.timestamp("us", "UTC")), ("v", pa.string()),
                        ("ts", pa.int64())])  # fmt: skip
    options = {"hoodie.keygen.timebased.timestamp.type": "EPOCHMICROSECONDS",
               "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd HH",
               "hoodie.keygen.timebased.timezone": "Europe/Paris",
               WRITE + "keygenerator.class": "org.apache.hudi.keygen.TimestampBasedKeyGenerator"}  # fmt: skip
    table = mainstem.create_table(
        path, schema, record_key="a", ordering="ts", partition_by="t", buckets=1, name="t", properties=options
    )
    moments = [datetime(2021, 3, 28, 0, 59, 59, tzinfo=UTC), datetime(2021, 3, 28, 1, tzinfo=UTC),
               datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), None]  # fmt: skip
    rows = pa.table([list("abcd"), moments, ["ours"] * 4, [1] * 4], schema=schema)
    table.upsert(rows)
    ours = shown(table.scan().to_arrow())
    java.write(path, newer(rows, "Java's"),
               {"hoodie.table.name": "t", WRITE + "partitionpath.field": "t", **options})  # fmt: skip
    assert [row[:2] for row in shown(table.scan().to_arrow())] == [row[:2] for row in ours]


def rows_of(path: str, java: JavaHudi) -> list[dict]:
    found = java.read(path)
    rows = found.select([c for c in found.column_names if not c.startswith("_hoodie_")]).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_java_reads_and_compacts_a_schema_that_grew(java: JavaHudi, path: str) -> None:
    inner = pa.struct([("a", pa.int32())])
    schema = pa.schema([("id", pa.string()), ("n", pa.int32()), ("f", pa.float32()), ("s", inner),
                        ("ts", pa.int64())])  # fmt: skip
    table = mainstem.create_table(path, schema, record_key="id", ordering="ts", buckets=1, name="t")
    first = pa.table([["a", "b"], [1, 2], [0.5, 0.5], [{"a": 1}, None], [1, 1]], schema=schema)
    table.upsert(first)
    wider = pa.struct([("a", pa.int64()), ("b", pa.string())])
    table.upsert(pa.table(
        [["b", "c"], [2**40, 3], [0.1, 0.5], [{"a": 2**41, "b": "x"}, {"a": 3, "b": None}], [2, 2],
         ["new", None], [[1, None], []]],
        schema=pa.schema([("id", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("s", wider),
                          ("ts", pa.int64()), ("city", pa.string()), ("l", pa.list_(pa.int64()))]),
    ))  # fmt: skip
    expected = [
        {"id": "a", "n": 1, "f": 0.5, "s": {"a": 1, "b": None}, "ts": 1, "city": None, "l": None},
        {"id": "b", "n": 2**40, "f": 0.1, "s": {"a": 2**41, "b": "x"}, "ts": 2, "city": "new",
         "l": [1, None]},
        {"id": "c", "n": 3, "f": 0.5, "s": {"a": 3, "b": None}, "ts": 2, "city": None, "l": []},
    ]  # fmt: skip
    assert rows_of(path, java) == expected
    java.compact(path, nbcc_options("t", record_key=["id"], ordering=["ts"], buckets=1))
    assert rows_of(path, java) == expected
    found = table.scan(mode="read_optimized").to_arrow().select(list(expected[0]))
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == expected


def test_java_sees_the_columns_of_both_of_two_writers_at_once(java: JavaHudi, path: str) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())])
    made = mainstem.create_table(path, schema, record_key="id", ordering="ts", buckets=1, name="t")
    made.upsert(pa.table({"id": ["a"], "ts": [1]}))
    early, late = mainstem.open_table(path).begin(), mainstem.open_table(path).begin()
    early.write(pa.table({"id": ["b"], "ts": [1], "x": ["x"]}))
    late.write(pa.table({"id": ["c"], "ts": [1], "y": ["y"]}))
    late.commit()
    early.commit()
    assert rows_of(path, java) == [
        {"id": "a", "ts": 1, "y": None, "x": None},
        {"id": "b", "ts": 1, "y": None, "x": "x"},
        {"id": "c", "ts": 1, "y": "y", "x": None},
    ]


def test_timestamps_of_every_unit_reach_java(java: JavaHudi, path: str) -> None:
    moment = datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)
    kinds = {f"{unit}{'_utc' if zone else ''}": pa.timestamp(unit, zone)
             for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")}  # fmt: skip
    schema = pa.schema([("id", pa.string()), *kinds.items(), ("size", pa.binary(4)), ("ts", pa.int64())])
    values = [[moment if kind.tz else moment.replace(tzinfo=None)] for kind in kinds.values()]
    table = mainstem.create_table(path, schema, record_key="id", ordering="ts", buckets=1, name="t")
    table.upsert(pa.table([["a"], *values, [b"abcd"], [1]], schema=schema))
    found = rows_of(path, java)[0]
    plain = moment.replace(tzinfo=None)
    assert {k: found[k].replace(tzinfo=None) for k in kinds} == dict.fromkeys(kinds, plain)
    assert found["size"] == b"abcd"


KEYED = {
    "float": (pa.float32(), [0.5, -0.0, 1e10, 1e7, 9_999_999, 1e-3, 1.5e-4, 16_777_216]),
    "double": (pa.float64(), [0.1, -0.0, 1e10, 1e7, 9_999_999.5, 1e-3, 1e-4, float("inf")]),
    "boolean": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("name", KEYED)
def test_java_makes_the_same_keys_and_paths_of_floats_and_booleans(
    java: JavaHudi, path: str, name: str
) -> None:
    kind, values = KEYED[name]
    schema = pa.schema([("a", kind), ("p", kind), ("v", pa.string()), ("ts", pa.int64())])
    table = mainstem.create_table(
        path, schema, record_key="a", ordering="ts", partition_by="p", buckets=3, name="t"
    )
    rows = pa.table([values, values, ["ours"] * len(values), [1] * len(values)], schema=schema)
    table.upsert(rows)
    ours = shown(table.scan().to_arrow())
    java.write(path, newer(rows, "Java's"), {"hoodie.table.name": "t"})
    both = shown(table.scan().to_arrow())
    assert [row[:2] for row in both] == [row[:2] for row in ours]
    assert {row[2] for row in both} == {"Java's"}
