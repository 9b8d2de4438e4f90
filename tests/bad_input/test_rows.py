"""Goal: rows that cannot be stored right are refused whole, by column and row, and leave no trace.

Method: each bad batch goes through ``upsert`` and through an open transaction; the text of the
error and a picture of the table before and after are compared.
"""

from __future__ import annotations

import decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from bad_input.common import SCHEMA, edit_properties, failed, is_clear, refused, rows
from mainstem.errors import Invalid, TableExists, Unsupported


def _with(name: str, values: list, kind: pa.DataType | None = None) -> pa.Table:
    base = rows("a", "x")
    place = base.schema.get_field_index(name)
    return base.set_column(place, name, pa.array(values, kind or base.schema.field(name).type))


BATCHES = {
    "null_record_key": (
        _with("id", ["a", None]),
        ("'id'", "null or empty", "row 1", "needs a key"),
    ),
    "empty_record_key": (_with("id", ["a", ""]), ("'id'", "null or empty", "row 1")),
    "missing_record_key": (rows("a").drop_columns(["id"]), ("missing", "'id'")),
    "null_ordering_value": (
        _with("ts", [1, None]),
        ("ordering field 'ts'", "null", "row 1", "EVENT_TIME_ORDERING", "fill or filter"),
    ),
    "missing_column": (rows("a").drop_columns(["amount"]), ("missing", "'amount'", "table has id")),
    "unknown_column": (
        rows("a").drop_columns(["amount"]).append_column("amuont", pa.array([1.0])),
        ("does not have", "'amuont'", "missing", "'amount'", "The table has id"),
    ),
    "column_twice": (
        rows("a").append_column("ts", pa.array([3])),
        ("given twice", "'ts'"),
    ),
    "wrong_type": (_with("ts", ["1", "x"], pa.string()), ("'ts'", "string", "int64")),
    "value_that_would_be_cut": (_with("ts", [1.0, 2.5], pa.float64()), ("'ts'", "double", "int64")),
    "nested_for_flat": (_with("amount", [[1.0], []], pa.list_(pa.float64())), ("'amount'", "list")),
    "partition_that_leaves_the_table": (
        _with("city", ["paris", "../../etc"]),
        ("'../../etc'", "'city'", "folder name"),
    ),
    "absolute_partition": (_with("city", ["paris", "/etc"]), ("'/etc'", "'city'")),
    "partition_inside_hoodie": (_with("city", ["a", ".hoodie"]), ("'.hoodie'", "'city'")),
    "partition_with_control_characters": (_with("city", ["a", "b\x1b[2J"]), ("'city'",)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_bad_batch_is_refused_and_leaves_no_trace(name: str, table, path: Path) -> None:
    batch, needles = BATCHES[name]
    with refused(path, Invalid, *needles, str(path)):
        table.upsert(batch)


@pytest.mark.parametrize("name", BATCHES)
def test_a_bad_batch_does_not_spoil_an_open_transaction(name: str, table, path: Path) -> None:
    batch, needles = BATCHES[name]
    with table.begin() as txn:
        txn.write(rows("d"))
        with pytest.raises(Invalid) as caught:
            txn.write(batch)
        is_clear(str(caught.value), needles)
        txn.write(rows("e"))
        outcome = txn.commit()
    assert outcome.rows == 2
    found = mainstem.open_table(path).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(found) == ["a", "b", "c", "d", "e"]


def test_a_bad_batch_in_a_transaction_that_is_left_takes_the_good_ones_with_it(table, path) -> None:
    with failed(path, Invalid, "'id'", "null or empty"), table.begin() as txn:
        txn.write(rows("d"))
        txn.write(BATCHES["null_record_key"][0])


def test_rows_that_are_no_arrow_data_are_refused_by_type(table, path) -> None:
    for wrong in ({"a"}, None, "rows", b"rows", 7, np.zeros((2, 2)), pa.array(["a"])):
        with refused(path, Invalid, type(wrong).__name__, "pyarrow"):
            table.upsert(wrong)
    for inside in ([["a"]], ["a"], iter([None])):
        with refused(path, Invalid, "item 0 of the given rows is a (list|str|NoneType)", "pyarrow"):
            table.upsert(inside)
    with refused(path, Invalid, "missing", "'city'"):
        table.upsert([{"id": "a"}])


def test_all_parts_of_a_composite_key_null_is_no_key(make) -> None:
    table = make("composite", record_key=["id", "city"], partition_by=())
    table.upsert(rows("a"))
    batch = pa.table({"id": [None], "city": [None], "ts": [1], "amount": [1.0]}, schema=SCHEMA)
    with refused(Path(table.path), Invalid, "id", "city", "null or empty", "row 0"):
        table.upsert(batch)


def test_a_null_in_a_column_that_has_none_is_refused(make) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    path = Path(make("strict", schema=schema, ordering=(), partition_by=()).path)
    text = mainstem.open_table(path).properties["hoodie.table.create.schema"]
    strict = text.replace('{"name":"n","type":["null","long"],"default":null}',
                          '{"name":"n","type":"long"}')  # fmt: skip
    assert strict != text
    edit_properties(path, hoodie__table__create__schema=strict.replace(":", "\\:"))
    with refused(path, Invalid, "'n'", "1 null"):
        mainstem.open_table(path).upsert(pa.table({"id": ["b"], "n": pa.array([None], pa.int64())}))


def test_a_delete_needs_key_and_partition(table, path) -> None:
    with refused(path, Invalid, "missing", "'city'"):
        table.delete(pa.table({"id": ["a"]}))
    with refused(path, Invalid, "'id'", "null or empty"):
        table.delete(pa.table({"id": pa.array([None], pa.string()), "city": ["paris"]}))


def test_update_columns_needs_a_table_that_merges_columns(table, path) -> None:
    with refused(path, Unsupported, "update_columns", "IGNORE_DEFAULTS"):
        table.update_columns(rows("a").select(["id", "city", "ts", "amount"]))


def test_update_columns_says_that_a_cell_cannot_be_set_to_null(make) -> None:
    table = make(
        "wide",
        ordering=(),
        properties={"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"},
    )
    table.upsert(rows("a"))
    batch = rows("a").set_column(3, "amount", pa.array([None], pa.float64()))
    with refused(Path(table.path), Invalid, "'amount'", "null", "cannot set a cell to null"):
        table.update_columns(batch)


TYPES = {
    "duration": pa.duration("ms"),
    "union": pa.sparse_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    "uint64": pa.uint64(),
    "map_with_number_keys": pa.map_(pa.int64(), pa.string()),
    "interval": pa.month_day_nano_interval(),
    "null": pa.null(),
    "decimal256": pa.decimal256(50, 2),
}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_that_hudi_cannot_hold_is_refused_at_creation_by_column(
    name: str, make, tmp_path: Path
) -> None:
    schema = SCHEMA.append(pa.field("strange", TYPES[name]))
    with pytest.raises((Invalid, Unsupported)) as caught:
        make("typed", schema=schema)
    is_clear(str(caught.value), ("strange",))
    assert not (tmp_path / "typed" / ".hoodie" / "hoodie.properties").exists()


def test_a_decimal_that_does_not_fit_is_refused(make) -> None:
    schema = pa.schema([("id", pa.string()), ("price", pa.decimal128(6, 2))])
    table = make("priced", schema=schema, ordering=(), partition_by=())
    table.upsert(pa.table({"id": ["a"], "price": [decimal.Decimal("1.25")]}, schema=schema))
    with refused(Path(table.path), Invalid, "'price'", "decimal"):
        table.upsert(pa.table({"id": ["b"], "price": [decimal.Decimal("123456789.25")]}))
    with refused(Path(table.path), Invalid, "'price'", "decimal"):
        table.upsert(pa.table({"id": ["b"], "price": [decimal.Decimal("1.255")]}))


@pytest.mark.parametrize(
    ("arguments", "needles"),
    [
        ({"record_key": [], "ordering": "ts"}, ("buckets need a record key",)),
        ({"record_key": "nope"}, ("record_key", "'nope'", "schema has id")),
        ({"ordering": "nope"}, ("ordering", "'nope'")),
        ({"partition_by": ["city", "city"]}, ("partition_by", "twice")),
        ({"buckets": 0}, ("num.buckets", "'0'", "1 to 100000")),
        ({"buckets": -3}, ("num.buckets",)),
        ({"table_version": 8, "ordering": ["ts", "amount"]}, ("ordering", "one ordering field")),
        ({"table_version": 8, "properties": {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}},
         ("hoodie.table.partial.update.mode", "version 8")),
        ({"table_version": 8, "properties": {"hoodie.write.table.version": "9"}}, ("differ",)),
        ({"table_version": 11}, ("table_version=11", "9", "8", "10")),
        ({"schema": SCHEMA.append(pa.field("_hoodie_x", pa.string()))}, ("_hoodie_x", "reserved")),
        ({"schema": {"id": "string"}}, ("schema", "dict", "pyarrow.Schema")),
    ],
)
def test_a_table_that_could_not_work_is_not_created(arguments, needles, make, tmp_path) -> None:
    with pytest.raises((Invalid, Unsupported)) as caught:
        make("never", **arguments)
    is_clear(str(caught.value), needles)
    assert not (tmp_path / "never" / ".hoodie" / "hoodie.properties").exists()


def test_a_second_table_in_the_same_place_is_refused(table, path, make) -> None:
    with refused(path, TableExists, "exists already", "open_table"):
        make()
