"""Goal: rows written with an older schema come out in the table's schema, or are refused by name.

Method: every promotion that Hudi knows with its values, every pair that it does not know, nested
columns, and the golden table whose schema evolved while Java wrote it.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from mainstem.errors import Unsupported
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.formats.schema_resolution import project_to
from tests.formats.golden_logs import log_files


def _one(column: pa.Array, kind: pa.DataType) -> list:
    found = project_to(pa.table({"c": column}), pa.schema([("c", kind)]))
    assert found.schema == pa.schema([("c", kind)])
    return found["c"].to_pylist()


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
        (pa.array([1], pa.int32()), pa.float32(), [1.0]),
        (pa.array([2**60 + 1]), pa.float64(), [float(2**60)]),
        (pa.array([0.1, None, float("inf")], pa.float32()), pa.float64(), [0.1, None, float("inf")]),
        (pa.array([0.1, 1e10, None], pa.float32()), pa.string(), ["0.1", "1.0E10", None]),
        (pa.array(["2026-01-02", None]), pa.date32(), [datetime.date(2026, 1, 2), None]),
        (pa.array(["1.005", None, " -7"]), pa.decimal128(6, 2), [Decimal("1.01"), None, Decimal("-7.00")]),
        (pa.array([7, None]), pa.decimal128(12, 2), [Decimal("7.00"), None]),
        (pa.array([0.125, 2.5e9]), pa.decimal128(12, 2), [Decimal("0.13"), Decimal("2500000000.00")]),
        (pa.array([0.3], pa.float32()), pa.decimal128(12, 6), [Decimal("0.300000")]),
        (pa.array(["é"]), pa.binary(), ["é".encode()]),
        (pa.array(["é".encode()]), pa.string(), ["é"]),
        (pa.array([-5]), pa.string(), ["-5"]),
        (pa.array([datetime.date(2026, 1, 2)]), pa.string(), ["2026-01-02"]),
        (pa.array([Decimal("-1.50")]), pa.string(), ["-1.50"]),
        (pa.array([Decimal("1.5")]), pa.decimal128(10, 2), [Decimal("1.50")]),
        (
            pa.array([1000], pa.timestamp("ms", "UTC")),
            pa.timestamp("us", "UTC"),
            [datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)],
        ),
        (pa.array(["x", None]).dictionary_encode(), pa.string(), ["x", None]),
        (pa.nulls(2), pa.int64(), [None, None]),
        (pa.array([[1], None, []], pa.list_(pa.int32())), pa.list_(pa.int64()), [[1], None, []]),
        (
            pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
            pa.struct([("b", pa.string()), ("a", pa.int64())]),
            [{"b": None, "a": 1}, None],
        ),
        (
            pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
            pa.map_(pa.string(), pa.float64()),
            [[("k", 1.0)], None, []],
        ),
        (
            pa.array([[{"a": 1}], None, [None]], pa.list_(pa.struct([("a", pa.int32())]))),
            pa.list_(pa.struct([("a", pa.string())])),
            [[{"a": "1"}], None, [None]],
        ),
    ],
    ids=str,
)
def test_promotions_that_hudi_knows(source: pa.Array, target: pa.DataType, expected: list) -> None:
    assert _one(source, target) == expected
    padded = pa.concat_arrays([source, source, source]).slice(len(source), len(source))
    assert _one(padded, target) == expected


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.array([1]), pa.int32()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([1.5]), pa.float32()),
        (pa.array(["x"]), pa.decimal128(6, 2)),
        (pa.array([float("nan")]), pa.decimal128(6, 2)),
        (pa.array([12345]), pa.decimal128(6, 2)),
        (pa.array(["2026-13-01"]), pa.date32()),
        (pa.array(["1"]), pa.int64()),
        (pa.array([True]), pa.int32()),
        (pa.array([1], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([1], pa.timestamp("us", "UTC")), pa.int64()),
        (pa.array([Decimal("1.55")]), pa.decimal128(10, 1)),
        (pa.array([Decimal("100.5")]), pa.decimal128(3, 2)),
        (pa.array([[1]]), pa.int64()),
        (pa.array([{"a": "x"}]), pa.struct([("a", pa.int32())])),
        (pa.array([b"\xff"]), pa.string()),
    ],
    ids=str,
)
def test_pairs_without_a_promotion_are_refused_with_the_column(
    source: pa.Array, target: pa.DataType
) -> None:
    if source.type == pa.int64() and target == pa.int32():
        source = pa.array([2**40])
    with pytest.raises(Unsupported, match="'c"):
        _one(source, target)


def test_doubles_become_text_as_java_writes_them() -> None:
    """Values and texts of Java's Double.toString."""
    values = [0.0, -0.0, 1.0, -100.0, 9999999.0, 1e7, 12345678.9, 0.001, 9.99e-4, -2.5e-7, 1.5e308]
    texts = [
        "0.0", "-0.0", "1.0", "-100.0", "9999999.0", "1.0E7", "1.23456789E7", "0.001", "9.99E-4",
        "-2.5E-7", "1.5E308",
    ]  # fmt: skip
    assert _one(pa.array(values), pa.string()) == texts
    assert _one(pa.array([float("nan"), -float("inf")]), pa.string()) == ["NaN", "-Infinity"]


def test_columns_come_in_the_order_of_the_schema_and_unknown_ones_are_null() -> None:
    rows = pa.table({"a": [1, 2], "old": ["x", "y"], "b": [0.5, None]})
    schema = pa.schema([("b", pa.float64()), ("new", pa.string()), ("a", pa.int64())])
    found = project_to(rows, schema)
    assert found.schema == schema
    assert found.to_pydict() == {"b": [0.5, None], "new": [None, None], "a": [1, 2]}
    assert project_to(rows, pa.schema([])).num_columns == 0


def test_a_missing_column_that_may_not_be_null_is_refused() -> None:
    with pytest.raises(Unsupported, match="'id'"):
        project_to(pa.table({"a": [1]}), pa.schema([pa.field("id", pa.int64(), nullable=False)]))


def test_a_log_of_java_with_an_evolving_schema_is_read_in_its_newest_schema() -> None:
    tables = [
        block.table()
        for path, data in log_files("schema_evolution")
        for block in read_blocks(memoryview(data), path=path)
        if block.kind == BlockKind.AVRO_DATA
    ]
    tables.sort(key=lambda table: table["_hoodie_commit_time"][0].as_py())
    newest = tables[-1].schema
    assert len({tuple(table.schema.names) for table in tables}) > 1
    whole = pa.concat_tables([project_to(table, newest) for table in tables])
    assert whole.schema == newest
    assert whole.num_rows == sum(table.num_rows for table in tables)
    for table in tables:
        found = project_to(table, newest)
        for name in set(table.column_names) & set(newest.names):
            assert found[name].null_count == table[name].null_count


def test_a_two_level_list_of_lists_is_read_as_what_java_wrote() -> None:
    """pyarrow before 18 shows the inner lists of Java's legacy form as structs named ``array``."""
    inner = pa.struct([("array", pa.list_(pa.int64()))])
    source = pa.array([[{"array": [1]}, {"array": [2, 3]}], None, []], pa.list_(inner))
    target = pa.list_(pa.list_(pa.int64()))
    assert _one(source, target) == [[[1], [2, 3]], None, []]
