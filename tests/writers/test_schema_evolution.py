"""Goal: a table's schema follows the rows as Hudi's does, and no writer hides another one's columns.

Method: batches with new columns and wider numbers are written and read back together with the older rows;
two transactions with different schemas are open at once, in every order of begin and commit; what Hudi
refuses by default (dropped columns) is refused. What must not evolve (keys, order) does not.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.writers.write_task import write_task

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32()), ("f", pa.float32()), ("ts", pa.int64())])
FAST = {"hoodie.mainstem.fsync": "false", "hoodie.mainstem.exclusive": "true"}


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2, properties=FAST
    )
    made.upsert(rows("a", n=1))
    return made


def rows(key: str, **more: object) -> pa.Table:
    """One row; values of Python's own types, as users have them (int64, float64)."""
    values = {"id": key, "n": 0, "f": 0.5, "ts": 1, **more}
    return pa.table({name: [v] if not isinstance(v, pa.Array) else v for name, v in values.items()})


def reopened(table: mainstem.Table) -> mainstem.Table:
    return mainstem.open_table(table.path, FAST)


def shown(table: mainstem.Table) -> dict[str, dict]:
    found = reopened(table).scan().to_arrow()
    return {
        row["id"]: {k: v for k, v in row.items() if not k.startswith("_hoodie_")} for row in found.to_pylist()
    }


@pytest.mark.supports("Writing", "schema evolution: new columns")
def test_a_new_column_is_added_at_the_end_and_older_rows_have_nulls(table: mainstem.Table) -> None:
    table.upsert(rows("b", city="Oslo", tags=pa.array([["x", None]])))
    found = reopened(table).schema
    assert found.names == ["id", "n", "f", "ts", "city", "tags"]
    assert (found.field("city").type, found.field("tags").type) == (pa.string(), pa.list_(pa.string()))
    assert shown(table)["a"]["city"] is None and shown(table)["a"]["tags"] is None
    assert shown(table)["b"]["city"] == "Oslo" and shown(table)["b"]["tags"] == ["x", None]


@pytest.mark.supports("Writing", "schema evolution: wider numbers")
@pytest.mark.parametrize(
    ("column", "value", "kind"),
    [("n", 2**40, pa.int64()), ("n", 1.5, pa.float64()), ("f", 0.1, pa.float64()), ("f", 99, pa.float32())],
)
def test_numbers_become_wider_only_when_a_value_needs_it(
    table: mainstem.Table, column: str, value: float, kind: pa.DataType
) -> None:
    table.upsert(rows("b", n=7))
    assert reopened(table).schema.equals(SCHEMA)
    table.upsert(rows("b", ts=2, **{column: value}))
    assert reopened(table).schema.field(column).type == kind
    assert shown(table)["b"][column] == value
    assert shown(table)["a"]["n"] == 1 and shown(table)["a"]["f"] == 0.5


def test_structs_get_fields_and_lists_wider_items(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.int32()))])
    schema = pa.schema([("id", pa.string()), ("s", inner), ("m", pa.map_(pa.string(), pa.int32()))])
    table = mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=FAST)
    table.upsert(pa.table([["a"], [{"a": 1, "l": [1]}], [[("k", 1)]]], schema=schema))
    wider = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.int64())), ("b", pa.string())])
    late = pa.schema([("id", pa.string()), ("s", wider), ("m", pa.map_(pa.string(), pa.int64()))])
    table.upsert(pa.table([["b"], [{"a": 2**40, "l": [2**41], "b": "x"}], [[("k", 2**42)]]], schema=late))
    assert shown(table) == {
        "a": {"id": "a", "s": {"a": 1, "l": [1], "b": None}, "m": [("k", 1)]},
        "b": {"id": "b", "s": {"a": 2**40, "l": [2**41], "b": "x"}, "m": [("k", 2**42)]},
    }


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 18, reason="pyarrow 16 and 17 go by place: refused")
def test_fields_of_structs_are_matched_by_name(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int32()), ("b", pa.string())])
    schema = pa.schema([("id", pa.string()), ("s", inner)])
    table = mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=FAST)
    other = pa.struct([("z", pa.int32()), ("b", pa.string()), ("a", pa.int64())])
    table.upsert(pa.table({"id": ["a"], "s": pa.array([{"z": 1, "b": "b", "a": 2**40}], other)}))
    table.upsert(pa.table({"id": ["b"], "s": pa.array([{"b": "b"}], pa.struct([("b", pa.string())]))}))
    assert shown(table)["a"]["s"] == {"a": 2**40, "b": "b", "z": 1}
    assert shown(table)["b"]["s"] == {"a": None, "b": "b", "z": None}


@pytest.mark.parametrize("kind", ["of a load's second batch", "of a task"])
def test_a_nested_field_that_comes_too_late_is_refused_and_not_dropped(tmp_path: Path, kind: str) -> None:
    inner, wider = pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int32()), ("b", pa.int32())])
    schema = pa.schema([("id", pa.string()), ("s", pa.list_(inner))])
    table = mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1, properties=FAST)
    late = pa.table({"id": ["b"], "s": pa.array([[{"a": 1, "b": 2}]], pa.list_(wider))})
    with (
        table.begin("upsert" if kind == "of a task" else "bulk_insert") as txn,
        pytest.raises(mainstem.Invalid, match=r"'s' .* has the field 'element\.b', which .* lacks"),
    ):
        if kind == "of a task":
            write_task(txn.task_spec(), late.to_batches(), task_partition=0, stage=1, attempt=0)
        txn.write(pa.table([["a"], [[{"a": 1}]]], schema=schema))
        txn.write(late)
    assert not shown(table)


def test_a_batch_that_lacks_a_column_is_refused_unless_the_option_fills_it(table: mainstem.Table) -> None:
    without = rows("b").drop_columns(["f"])
    with pytest.raises(mainstem.Invalid, match="missing: 'f'"):
        table.upsert(without)
    renamed = rows("b").rename_columns(["id", "n", "fraction", "ts"])
    with pytest.raises(mainstem.Invalid, match=r"does not have: 'fraction'.*missing: 'f'"):
        table.upsert(renamed)
    for option in ("hoodie.write.set.null.for.missing.columns", "hoodie.datasource.write.reconcile.schema"):
        filling = mainstem.open_table(table.path, {**FAST, option: "true"})
        filling.upsert(without)
        filling.upsert(renamed)
        for needed in ("id", "ts"):
            with pytest.raises(mainstem.Invalid, match=f"missing: '{needed}'"):
                filling.upsert(rows("b").drop_columns([needed]))
    assert reopened(table).schema.names == ["id", "n", "f", "ts", "fraction"]
    assert shown(table)["b"]["f"] is None


def test_columns_are_never_dropped(table: mainstem.Table) -> None:
    key = "hoodie.datasource.write.schema.allow.auto.evolution.column.drop"
    with pytest.raises(mainstem.Unsupported, match=r"column\.drop='true'.*set\.null\.for\.missing"):
        mainstem.open_table(table.path, {**FAST, key: "true"})


@pytest.mark.parametrize(
    ("batch", "needle"),
    [
        (rows("b", ts=1.5), "'ts'.*never widened"),
        (rows("b", n="seven"), "'n'.*int32"),
        (rows("b", N=1), "case"),
        (rows("b", _hoodie_mine=1), "does not have: '_hoodie_mine'"),
        (rows("b", nothing=None), "does not have: 'nothing'"),
        (rows("b", u=pa.array([1], pa.uint64())), "'u'.*uint64"),
        (rows("b").append_column("when", pa.array([0], pa.time64("us"))), "'when'.*time64"),
    ],
)
def test_what_a_schema_cannot_take_is_refused_and_changes_nothing(table, batch, needle) -> None:
    with pytest.raises(mainstem.Invalid, match=needle):
        table.upsert(batch)
    table.upsert(rows("c"))
    assert reopened(table).schema.equals(SCHEMA)
    assert sorted(shown(table)) == ["a", "c"]


def test_a_refused_batch_leaves_no_column_behind(table: mainstem.Table) -> None:
    with table.begin() as txn:
        with pytest.raises(mainstem.Invalid, match="null or empty"):
            txn.write(pa.table({**rows("b", extra=1).to_pydict(), "id": [""]}))
        txn.write(rows("b"))
        txn.commit()
    assert reopened(table).schema.equals(SCHEMA)


def test_delete_and_update_columns_do_not_change_the_schema(tmp_path: Path) -> None:
    properties = {**FAST, "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    table = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=1, properties=properties)
    table.upsert(rows("a"))
    with pytest.raises(mainstem.Invalid, match="does not have: 'extra'"):
        table.update_columns(pa.table({"id": ["a"], "extra": [1]}))
    table.delete(pa.table({"id": ["a"], "extra": [1]}))
    assert reopened(table).schema.equals(SCHEMA)


def test_a_bulk_insert_evolves_too(table: mainstem.Table) -> None:
    table.bulk_insert(rows("z", extra=1))
    assert shown(table)["z"]["extra"] == 1 and shown(table)["a"]["extra"] is None


CHANGES = {"first": {"x": "x", "n": 2**40}, "second": {"y": "y", "f": 0.1}, "none": {}}


@pytest.mark.supports("Writing", "schema evolution by several writers at once")
@pytest.mark.parametrize(
    ("changes", "commits"),
    list(itertools.product([list(CHANGES), list(CHANGES)[::-1]], itertools.permutations(range(3)))),
)
def test_writers_at_once_do_not_hide_each_others_columns(table, changes, commits) -> None:
    writers = [reopened(table) for _ in changes]
    open_ones = [writer.begin() for writer in writers]
    for txn, change in zip(open_ones, changes, strict=True):
        txn.write(rows(change, **CHANGES[change]))
    for place in commits:
        open_ones[place].commit()
        done = [changes[p] for p in commits[: commits.index(place) + 1]]
        found = shown(table)
        assert sorted(found) == sorted(["a", *done])
        for change in done:  # at every moment, whoever is still under way
            assert {k: found[change][k] for k in CHANGES[change]} == CHANGES[change]
    assert set(reopened(table).schema.names) == {*SCHEMA.names, "x", "y"}
    table.upsert(rows("after", x="x", y="y"))
    assert shown(table)["first"]["x"] == "x" and shown(table)["second"]["f"] == 0.1


def test_one_column_with_two_types_at_once_is_refused_to_the_second(table: mainstem.Table) -> None:
    one, other = reopened(table).begin(), reopened(table).begin()
    one.write(rows("b", x=1))
    other.write(rows("c", x="one"))
    one.commit()
    with pytest.raises(mainstem.Invalid, match=r"another writer.*'x'.*int64.*string"), other:
        other.commit()
    assert sorted(shown(table)) == ["a", "b"]
    assert [i for i in reopened(table).timeline() if not i.is_completed] == []


def test_the_schema_of_other_columns_stays_word_for_word(table: mainstem.Table) -> None:
    before = json.loads(table.properties["hoodie.table.create.schema"])
    table.upsert(rows("b", extra=1))
    newest = max(Path(table.path, ".hoodie", "timeline").glob("*.deltacommit"))
    after = json.loads(mainstem.timeline.commit_metadata.decode_commit(newest.read_bytes(), path="").schema)
    assert after["fields"][:4] == before["fields"] and after["name"] == before["name"]
    assert after["fields"][4] == {"name": "extra", "type": ["null", "long"], "default": None}


def test_a_transaction_can_be_told_the_types_of_rows_that_tasks_will_write(table: mainstem.Table) -> None:
    more = pa.schema([*SCHEMA.set(1, pa.field("n", pa.int64())), ("extra", pa.list_(pa.int8()))])
    with table.begin() as txn:
        txn.declare(more)
        rows_of_task = pa.record_batch([["b"], [1], [0.5], [1], [[7]]], schema=more)
        result = write_task(txn.task_spec(), [rows_of_task], task_partition=0, stage=0, attempt=0)
        txn.add_task_result(result)
        txn.commit()
    assert reopened(table).schema.field("n").type == pa.int64()
    assert shown(table)["b"]["extra"] == [7] and shown(table)["a"]["extra"] is None
    with table.begin() as txn:  # not told: a task cannot change the schema
        late = rows_of_task.append_column("late", pa.array([1]))
        with pytest.raises(mainstem.Invalid, match="does not have: 'late'"):
            write_task(txn.task_spec(), [late], task_partition=0, stage=0, attempt=0)
