"""Goal: where columns have ids, a file's columns are found by id: renamed, moved, dropped, added again.

Method: schemas as Hudi's InternalSchema spells them, and rows as old files hold them, nested too; the
tables that Java wrote this way (schema_on_read*) are read in tests/golden_tables.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from mainstem.errors import CorruptTable
from mainstem.layout.field_ids import FieldIds, VersionedSchema, parse_history, parse_schema

pytestmark = pytest.mark.supports("Queries", "schema on read: renamed, dropped and re-added columns")


def column(number: int, name: str, kind: object = "int") -> dict:
    return {"id": number, "name": name, "optional": True, "type": kind}


def record(*fields: dict) -> dict:
    return {"type": "record", "fields": list(fields)}


def schema(version: int, *fields: dict) -> VersionedSchema:
    return parse_schema(json.dumps({"version_id": version, **record(*fields)}), "here")


def shown(old: VersionedSchema, new: VersionedSchema, table: pa.Table, wanted: list[str]) -> pa.Table:
    """What a query for ``wanted`` gets from a file of the old schema."""
    view = FieldIds.of(new, [old, new], {}).file(str(old.version))
    found = view.shown(table.select([n for n in view.names(wanted) if n in table.schema.names]))
    found.validate(full=True)
    return found


def test_a_renamed_column_is_read_under_its_new_name():
    found = shown(schema(1, column(5, "a")), schema(2, column(5, "b")), pa.table({"a": [1, 2]}), ["b"])
    assert found.to_pydict() == {"b": [1, 2]}


def test_two_columns_that_swapped_names_are_not_mixed_up():
    old, new = schema(1, column(1, "a"), column(2, "b")), schema(2, column(2, "a"), column(1, "b"))
    assert shown(old, new, pa.table({"a": [1], "b": [2]}), ["a", "b"]).to_pydict() == {"b": [1], "a": [2]}


def test_a_new_column_does_not_get_the_values_of_a_dropped_one_of_its_name():
    old, new = schema(1, column(1, "k"), column(2, "a")), schema(2, column(1, "k"), column(3, "a"))
    assert shown(old, new, pa.table({"k": [7], "a": [1]}), ["k", "a"]).to_pydict() == {"k": [7]}


def test_columns_without_an_id_keep_their_name():
    """Meta columns of writers that recorded the user's columns only."""
    old, new = schema(1, column(1, "a")), schema(2, column(1, "b"))
    table = pa.table({"_hoodie_record_key": ["x"], "a": [1]})
    assert shown(old, new, table, ["_hoodie_record_key", "b"]).to_pydict() == {
        "_hoodie_record_key": ["x"],
        "b": [1],
    }


NESTED = {
    "struct": (lambda r: r, lambda v: v),
    "array": (lambda r: {"type": "array", "element_id": 90, "element": r}, lambda v: [v, None]),
    "map": (
        lambda r: {"type": "map", "key_id": 90, "key": "string", "value_id": 91, "value": r},
        lambda v: [("k", v)],
    ),
}


@pytest.mark.parametrize("kind", sorted(NESTED))
def test_fields_inside_structs_lists_and_maps_are_found_by_id(kind):
    outer, around = NESTED[kind]
    old = schema(1, column(1, "a", outer(record(column(2, "x"), column(3, "y", "string"), column(4, "z")))))
    new = schema(2, column(1, "b", outer(record(column(3, "x", "string"), column(5, "z"), column(2, "w")))))
    struct = pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.int32())])
    kinds = {"struct": struct, "array": pa.list_(struct), "map": pa.map_(pa.string(), struct)}
    rows = [around({"x": 1, "y": "one", "z": 9}), None, around({"x": 2, "y": None, "z": 9})]
    found = shown(old, new, pa.table({"a": pa.array(rows, kinds[kind])}).slice(1), ["b"])
    expected = [None, around({"w": 2, "x": None})]
    assert found.column("b").to_pylist() == expected


def test_a_struct_of_which_every_field_was_dropped_keeps_its_nulls():
    old = schema(1, column(1, "a", record(column(2, "x"))))
    new = schema(2, column(1, "a", record(column(3, "y"))))
    found = shown(old, new, pa.table({"a": [{"x": 1}, None]}), ["a"])
    assert found.column("a").is_null().to_pylist() == [False, True]


def test_a_file_has_the_newest_schema_at_or_before_its_instant():
    versions = [schema(0, column(1, "a")), schema(20, column(1, "b")), schema(40, column(1, "c"))]
    ids = FieldIds.of(versions[-1], versions, {})
    assert [ids.file(time).names(["c"]) for time in ("5", "19", "20", "39", "41")] == [
        ["a"], ["a"], ["b"], ["b"], ["c"],
    ]  # fmt: skip


def test_the_schema_in_an_instants_own_metadata_wins():
    """A writer that began before a rename and was requested after it."""
    versions = [schema(0, column(1, "a")), schema(20, column(1, "b"))]
    ids = FieldIds.of(versions[-1], versions, {"21": versions[0]})
    assert ids.file("21").names(["b"]) == ["a"]
    assert ids.file("22").same


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"fields": [1]}', '{"version_id": "x", "fields": []}',
        json.dumps(record({"name": "a", "type": "int"})),
        json.dumps(record(column(1, "a"), column(1, "b"))),
        json.dumps(record(column(1, "a"), column(2, "a"))),
        json.dumps(record(column(1, "a", {"type": "union"}))),
        json.dumps(record(column(1, "a", {"type": "array"}))),
        '{"fields": ' + '[{"id": 1, "name": "a", "type": {"type": "record", "fields": ' * 200,
        "[" * 100_000,
    ],
    ids=range(12),
)  # fmt: skip
def test_damaged_schemas_are_errors_with_their_place(text):
    with pytest.raises(CorruptTable) as caught:
        parse_schema(text, "place")
    assert caught.value.path == "place"
    with pytest.raises(CorruptTable):
        parse_history('{"schemas": [' + text + "]}" if text else text, "place")


def test_nesting_and_field_count_are_bounded():
    deep = column(1, "a")
    for _ in range(100):
        deep = column(1, "a", record(deep))
    with pytest.raises(CorruptTable):
        schema(1, deep)
    with pytest.raises(CorruptTable):
        schema(1, *(column(i, f"c{i}") for i in range(10_001)))
