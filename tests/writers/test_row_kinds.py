"""Goal: rows that delete, rows that leave columns out and blocks of either format are written as Java
writes them, and read back as Java's merge rules say.

Method: tables on the local file system through the public API; the blocks of their log files are read
with the log file reader to see what was stored.
"""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.formats.java_properties import format_properties, parse_properties
from mainstem.formats.log_file import BlockKind, read_blocks

MARKER = "__not_known"
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("ts", pa.int64()), ("seq", pa.int32()), ("note", pa.string()),
        ("amount", pa.int64()), ("_hoodie_is_deleted", pa.bool_()),
    ]
)  # fmt: skip
FILL = {
    "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
    "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value": MARKER,
}


@pytest.fixture
def make(tmp_path):
    def build(*, ordering="ts", schema=SCHEMA, **more):
        given = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
        return mainstem.create_table(
            tmp_path / "t", schema, record_key="id", ordering=ordering, buckets=1,
            properties={**given, **more.pop("properties", {})}, **more,
        )  # fmt: skip

    return build


def row(key, ts, note="n", *, seq=0, amount=0, gone=None):
    return pa.Table.from_pylist(
        [{"id": key, "ts": ts, "seq": seq, "note": note, "amount": amount, "_hoodie_is_deleted": gone}],
        SCHEMA,
    )


def blocks(table):
    names = sorted(n for n in os.listdir(table.path) if ".log." in n)
    found = []
    for name in names:
        with open(os.path.join(table.path, name), "rb") as file:
            found += read_blocks(memoryview(file.read()), path=name)
    return found


def content(table, column="note"):
    found = table.scan(columns=["id", column]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found[column].to_pylist(), strict=True))


def reopened(table, **options):
    return mainstem.open_table(table.path, {"hoodie.mainstem.fsync": False, **options})


# -- block formats ---------------------------------------------------------------------------------


@pytest.mark.supports("Writing", "log blocks as Avro or Parquet")
def test_log_blocks_are_parquet_where_the_option_says_so(make):
    table = reopened(make(), **{"hoodie.logfile.data.block.format": "parquet"})
    table.upsert(pa.concat_tables([row("a", 1), row("b", 1), row("c", 1, gone=True)]))
    reopened(table).upsert(row("b", 2, "avro"))
    assert [b.kind for b in blocks(table)] == [
        BlockKind.PARQUET_DATA, BlockKind.DELETE, BlockKind.AVRO_DATA,
    ]  # fmt: skip
    assert content(table) == {"a": "n", "b": "avro"}
    with pytest.raises(Invalid, match="'HFILE', expected AVRO or PARQUET"):
        reopened(table, **{"hoodie.logfile.data.block.format": "hfile"}).upsert(row("a", 3))


# -- deletes ---------------------------------------------------------------------------------------


@pytest.mark.supports("Merging", "deletes by row flag (`_hoodie_is_deleted`), with their ordering values")
def test_a_flagged_row_becomes_a_delete_with_its_ordering_value_and_loses_to_newer_rows(make):
    table = make()
    table.upsert(pa.concat_tables([row("a", 5), row("b", 5)]))
    table.upsert(pa.concat_tables([row("a", 4, gone=True), row("b", 6, gone=True)]))
    deletes = blocks(table)[-1].deletes()
    assert deletes["ordering"].to_pylist() == [4, 6]
    assert deletes["ordering_is_default"].to_pylist() == [False, False]
    assert content(table) == {"a": "n"}


def test_the_delete_operation_is_unconditional(make):
    table = make()
    table.upsert(row("a", 5))
    table.delete(pa.table({"id": ["a"], "ts": [1]}))
    assert blocks(table)[-1].deletes()["ordering_is_default"].to_pylist() == [True]
    assert content(table) == {}


@pytest.mark.supports("Merging", "several ordering fields")
def test_with_several_ordering_fields_deletes_carry_them_all(make):
    table = make(ordering=["ts", "seq"])
    table.upsert(pa.concat_tables([row("a", 5, seq=2), row("b", 5, seq=2), row("c", 5, seq=2)]))
    table.upsert(pa.concat_tables([row("a", 5, seq=1, gone=True), row("b", 5, seq=3, gone=True)]))
    table.upsert(pa.concat_tables([row("c", 4, "late", seq=9), row("a", 5, "new", seq=2)]))
    (deletes,) = [b.deletes() for b in blocks(table) if b.kind is BlockKind.DELETE]
    assert [tuple(v.values()) for v in deletes["ordering"].to_pylist()] == [(5, 1), (5, 3)]
    assert content(table) == {"a": "new", "c": "n"}


@pytest.mark.supports("Merging", "deletes by a marker column (delete key and delete marker)")
@pytest.mark.parametrize("prefix", ["", "hoodie.record.merge.property."])
def test_a_row_with_the_tables_delete_marker_becomes_a_delete(make, prefix):
    marks = {f"{prefix}hoodie.payload.delete.field": "note", f"{prefix}hoodie.payload.delete.marker": "D"}
    table = make(properties=marks)
    assert table.properties["hoodie.record.merge.property.hoodie.payload.delete.marker"] == "D"
    table.upsert(pa.concat_tables([row("a", 5), row("b", 5)]))
    table.upsert(pa.concat_tables([row("a", 6, "D"), row("b", 4, "D")]))
    assert blocks(table)[-1].deletes()["ordering"].to_pylist() == [6, 4]
    assert content(table) == {"b": "n"}


def _add_operation_column(table):
    """As Hudi's changelog writers have it: one more meta column in the schema."""
    path = os.path.join(table.path, ".hoodie", "hoodie.properties")
    with open(path, "rb") as file:
        raw = dict(parse_properties(file.read(), path=path))
    field = '{"name":"_hoodie_operation","type":["null","string"],"default":null}'
    schema = raw["hoodie.table.create.schema"]
    raw["hoodie.table.create.schema"] = schema[: schema.rindex("]}")] + f",{field}]}}"
    with open(path, "wb") as file:
        file.write(format_properties(raw, comments=("", "")))
    return mainstem.open_table(table.path, {"hoodie.mainstem.fsync": False})


def test_rows_whose_hoodie_operation_says_so_become_deletes(make):
    table = _add_operation_column(make())
    kinds = pa.array(["I", "-U", "U", "D"])
    four = pa.concat_tables([row(k, 5) for k in "abcd"])
    table.upsert(four.append_column("_hoodie_operation", pa.array(["I"] * 4)))
    table.upsert(four.append_column("_hoodie_operation", kinds))
    assert blocks(table)[-1].deletes()["record_key"].to_pylist() == ["b", "d"]
    assert sorted(content(table)) == ["a", "c"]


# -- rows that leave columns out -------------------------------------------------------------------


@pytest.mark.supports("Merging", "partial updates: FILL_UNAVAILABLE")
def test_under_fill_unavailable_the_marker_keeps_the_older_value(make):
    table = make(properties=FILL)
    table.upsert(pa.concat_tables([row("a", 5, "old", amount=1), row("b", 5, "old", amount=1)]))
    table.upsert(pa.concat_tables([row("a", 6, MARKER, amount=2), row("b", 6, None, amount=2)]))
    assert content(table) == {"a": "old", "b": None}
    assert content(table, "amount") == {"a": 2, "b": 2}


def test_under_fill_unavailable_update_columns_fills_text_columns_with_the_marker(make):
    table = make(properties=FILL)
    table.upsert(row("a", 5, "old", amount=1))
    rest = pa.table({"id": ["a"], "ts": [6], "seq": pa.array([1], pa.int32()), "amount": [None]})
    rest = rest.set_column(3, "amount", pa.array([None], pa.int64()))
    table.update_columns(rest.append_column("_hoodie_is_deleted", pa.array([None], pa.bool_())))
    assert content(table) == {"a": "old"} and content(table, "amount") == {"a": None}
    with pytest.raises(Invalid, match="'seq' of type int32 is left out"):
        table.update_columns(row("a", 7).select(["id", "ts", "amount"]))


def test_update_columns_needs_a_table_that_can_keep_the_older_value(make):
    with pytest.raises(Unsupported, match="this one has none"):
        make().update_columns(row("a", 1).select(["id", "ts"]))


def test_update_columns_under_fill_unavailable_needs_the_marker(make):
    table = make(properties={"hoodie.table.partial.update.mode": "FILL_UNAVAILABLE"})
    with pytest.raises(Unsupported, match=r"unavailable\.value"):
        table.update_columns(row("a", 1).select(["id", "ts"]))


@pytest.mark.supports("Merging", "partial updates: IS_PARTIAL blocks")
@pytest.mark.parametrize("block_format", ["avro", "parquet"])
def test_partial_blocks_hold_the_given_columns_and_a_null_is_a_value(make, block_format):
    partial = {
        "hoodie.mainstem.write.partial.blocks": True,
        "hoodie.logfile.data.block.format": block_format,
    }
    table = reopened(make(), **partial)
    table.upsert(pa.concat_tables([row("a", 5, "old", amount=1), row("b", 5, "old", amount=1)]))
    with pytest.warns(UserWarning, match="ClassCastException"):
        table.update_columns(
            pa.table({"id": ["a", "b"], "ts": [6, 4], "note": pa.array([None, "late"], pa.string())})
        )
    (block,) = [b for b in blocks(table) if b.partial]
    assert block.table().column_names[5:] == ["id", "ts", "note"]
    assert content(table) == {"a": None, "b": "old"}
    assert content(table, "amount") == {"a": 1, "b": 1}
