"""Goal: a file that lacks an indexed column has statistics that say nulls, whoever made file and index.

Method: files come to lack a column in each way that there is: written before the column, and by a writer that
did not know it yet. Columns with a default and those of paths, which are no nulls, have no row.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.layout.properties import load_config
from mainstem.metadata.derive.lacking_columns import lacking
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.row_keys import column_stats_keys, partition_stats_keys
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from tests.storage.steps import storage_at

FAST = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
OLD = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64())])
NEW = OLD.append(pa.field("later", pa.int32()))


def rows(keys: str, ts: int, later: int | None = None, schema: pa.Schema = OLD) -> pa.Table:
    values = [list(keys), ["p"] * len(keys), [ts] * len(keys), [later] * len(keys)]
    return pa.table(values[: len(schema)], schema=schema)


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return mainstem.create_table(
        tmp_path / "t", OLD, record_key="id", ordering="ts", partition_by="part", buckets=1, properties=FAST
    )


def opened(table: mainstem.Table) -> mainstem.Table:
    return mainstem.open_table(table.path, properties=FAST)


def stored(table: mainstem.Table, column: str = "later") -> dict[str, tuple]:
    """File, or "" for the partition -> smallest value's kind, nulls and rows of its row."""
    storage = storage_at(table.path)
    state = TableState.load(storage, load_config(storage))
    metadata: MetadataTable = state.metadata_table
    names = sorted(name for listing in state.partitions() for name in listing.names)
    files = [name for name in names if paths.parse_log_name(name) or paths.parse_base_name(name)]
    many = [pa.array([text] * len(files)) for text in (column, "p")]
    found = metadata.lookup("column_stats", column_stats_keys(*many, pa.array(files))).to_pylist()
    if "partition_stats" in metadata.partitions:
        key = partition_stats_keys(pa.array([column]), pa.array(["p"]))
        found += [row | {"file": ""} for row in metadata.lookup("partition_stats", key).to_pylist()]
    return {row["file"]: (row["min_kind"], row["null_count"], row["value_count"]) for row in found}


def check(table: mainstem.Table) -> None:
    now = opened(table)
    assert now.validate_metadata().ok
    whole = now.scan().to_arrow()
    for condition in (pc.field("later") == 7, pc.field("later").is_null(), pc.field("later").is_valid()):
        for filter in (condition, condition & (pc.field("ts") > 1), condition | (pc.field("ts") == 1)):
            assert sorted(now.scan(filter=filter).to_arrow()["id"].to_pylist()) == sorted(
                whole.filter(filter)["id"].to_pylist()
            )


@pytest.mark.parametrize("kind", ["column_stats", "partition_stats"])
def test_an_index_built_later_has_rows_of_nulls_for_files_without_the_column(table, kind):
    table.bulk_insert(rows("abc", 1))
    opened(table).upsert(rows("de", 2))
    opened(table).upsert(rows("f", 3, 7, NEW))
    opened(table).create_index(kind)
    found = stored(table)
    whole = found.pop("", None)
    assert sorted(found.values()) == [(0, 2, 2), (0, 3, 3), (2, 0, 1)]
    assert whole in (None, (2, 5, 6))
    check(table)


def test_a_writer_that_did_not_know_the_column_leaves_rows_of_nulls(table):
    table.upsert(rows("a", 1))
    table.create_index("files")
    early = opened(table).begin()
    early.write(rows("bc", 2))
    opened(table).upsert(rows("d", 3, 7, NEW))
    opened(table).create_index("partition_stats")
    before = stored(table)
    early.commit()
    (name,) = stored(table).keys() - before.keys()
    assert stored(table)[name] == (0, 2, 2)
    assert before[""] == (2, 1, 2) and stored(table)[""] == (2, 3, 4)
    check(table)
    opened(table).compact()
    check(table)


def test_columns_with_a_default_and_those_of_paths_are_not_said_to_be_nulls():
    fields = [
        {"name": "plain", "type": ["null", "long"], "default": None},
        {"name": "inner", "type": ["null", {"type": "record", "name": "r", "fields": [
            {"name": "x", "type": ["null", "int"], "default": None}]}], "default": None},
        {"name": "given", "type": "long", "default": 5},
        {"name": "part", "type": ["null", "string"], "default": None},
    ]  # fmt: skip
    schema = json.dumps({"type": "record", "name": "t", "fields": fields})
    columns = ["_hoodie_record_key", "plain", "inner.x", "given", "part", "gone"]
    assert lacking([schema], columns, ["part"]) == {"plain": pa.int64(), "inner.x": pa.int32()}
    assert lacking([], columns, []) == {}


def test_the_tables_schema_is_asked_for_where_the_writers_does_not_have_a_column():
    def schema(*names: str) -> str:
        fields = [{"name": name, "type": ["null", "long"], "default": None} for name in names]
        return json.dumps({"type": "record", "name": "t", "fields": fields})

    def schemas(asked: list[str]):
        yield schema("a", "b")
        asked.append("the table's")
        yield schema("a", "c")

    for columns, expected in ((["a", "b"], []), (["a", "c"], ["the table's"])):
        asked: list[str] = []
        assert list(lacking(schemas(asked), columns, [])) == columns
        assert asked == expected


def test_columns_that_a_partial_update_did_not_set_are_not_said_to_be_nulls(table):
    table.upsert(rows("ab", 1, 7, NEW))
    given = {**FAST, "hoodie.mainstem.write.partial.blocks": "true"}
    partial = mainstem.open_table(table.path, properties=given)
    with pytest.warns(UserWarning, match="IS_PARTIAL"):
        partial.update_columns(rows("a", 2))
    opened(table).create_index("partition_stats")
    assert list(stored(table).values()) == [(2, 0, 2), (2, 0, 2)]  # of one file and of the partition
    with pytest.warns(UserWarning, match="IS_PARTIAL"):
        partial = mainstem.open_table(table.path, properties=given)
        partial.update_columns(rows("b", 3))
    assert list(stored(table).values()) == [(2, 0, 2), (2, 0, 2)]
    check(table)
