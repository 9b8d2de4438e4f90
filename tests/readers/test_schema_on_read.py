"""Goal: a table whose columns have ids is read by them, or refused with the place; never written.

Method: a schema history put beside a table of ours, whole, incomplete and damaged; what Java writes this
way (tables schema_on_read*) is read in tests/golden_tables.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import CorruptTable, Unsupported
from tests.golden_tables.tables import unpack

FAST = {"hoodie.time.generator.max_expected_clock_skew_ms": "0"}
ROWS = pa.table({"id": [1, 2], "name": ["one", "two"], "ts": [10, 10]})


@pytest.fixture
def table(tmp_path):
    made = mainstem.create_table(
        tmp_path / "t", ROWS.schema, record_key=["id"], ordering=["ts"], buckets=1, properties=FAST
    )
    made.upsert(ROWS)
    return made


def put_history(table, *names, name="{0}_{0}.schemacommit", text=None):
    """A schema change that completed with the table's first commit."""
    fields = [
        {"id": number, "name": column, "optional": True, "type": "int"}
        for number, column in enumerate(names)
    ]
    schema = {"version_id": 0, "max_column_id": len(fields), "type": "record", "fields": fields}
    text = json.dumps({"schemas": [schema]}) if text is None else text
    first = table.timeline()[0].requested
    folder = Path(table.path) / ".hoodie" / ".schema"
    folder.mkdir(exist_ok=True)
    (folder / name.format(first)).write_text(text)


def names_of(table):
    return table.scan(columns=["id", "name"]).to_arrow().sort_by("id").column("name").to_pylist()


def test_a_commit_without_ids_takes_those_of_the_history(table):
    put_history(table, "id", "name", "ts")
    assert names_of(table) == ["one", "two"]
    assert table.changes().to_arrow().num_rows == 2


@pytest.mark.supports("Writing", "refusal of tables with schema on read")
@pytest.mark.parametrize("action", ["upsert", "delete"])
def test_the_table_is_not_written(table, action):
    """What we wrote would lack the ids, and after the next rename Java would not find it."""
    put_history(table, "id", "name", "ts")
    table = mainstem.open_table(table.path, properties=FAST)  # Java makes a commit of its own with a history
    with pytest.raises(Unsupported, match=r"schema\.on\.read"):
        getattr(table, action)(ROWS if action == "upsert" else ROWS.select(["id"]))
    assert names_of(table) == ["one", "two"]


def test_a_column_without_an_id_is_an_error_that_names_it(table):
    put_history(table, "id", "name")
    with pytest.raises(CorruptTable, match="'ts' has no id"):
        table.scan().to_arrow()


@pytest.mark.parametrize("text", ["", "{}", '{"schemas": 7}', "[" * 5000])
def test_a_damaged_history_is_an_error_with_its_path(table, text):
    put_history(table, text=text)
    with pytest.raises(CorruptTable) as caught:
        table.scan().to_arrow()
    assert caught.value.path.startswith(".hoodie/.schema/")


@pytest.mark.parametrize(
    "name", ["{0}.schemacommit.inflight", "{0}.schemacommit", "20200101000000000_{0}.schemacommit", "x"]
)
def test_schema_changes_that_did_not_complete_are_not_believed(table, name):
    """Requested, of an instant that the timeline does not know as completed, or no such file at all."""
    put_history(table, "other", name=name)
    assert names_of(table) == ["one", "two"]
    table.upsert(ROWS)


def test_change_data_is_refused_and_the_rest_is_read(tmp_path):
    """The images in the change logs have the columns of their time."""
    table = mainstem.open_table(unpack("cdc_mor_data_before", tmp_path))
    before = table.scan().to_arrow()
    assert table.changes(mode="cdc").to_arrow().num_rows
    put_history(table, *table.schema.names)
    table = mainstem.open_table(table.path)  # a history does not come without a commit
    assert table.scan().to_arrow().equals(before)
    with pytest.raises(Unsupported, match="mode='cdc'"):
        table.changes(mode="cdc").to_arrow()
