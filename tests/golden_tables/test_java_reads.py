"""Goal: what Java Hudi reads from its own tables, we read, in every cell.

Method: every snapshot, read optimized, time travel and incremental query of the golden tables is
asked of mainstem and compared with Java's rows, meta columns included; file slices are compared
with Java's file system view. Deliberate differences stand in tests/golden/differences.json with
their exact rows: one that is missing there fails, one that no longer differs fails too. Where Java
refuses a time travel query, we must refuse it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.readers.rows.split import read_split
from mainstem.spark.types import spark_schema
from mainstem.storage.local import LocalStorage
from tests.golden_tables.features import FEATURES, features, marked
from tests.golden_tables.tables import (
    GOLDEN,
    NAMES,
    encoded,
    encoded_rows,
    expectations,
    row_text,
    run_query,
    unpack,
)

pytestmark = pytest.mark.versions
FLINK = "as in ddl"  # Flink SQL says no types
KINDS = ("snapshot", "read_optimized", "time_travel", "incremental")
DIFFERENCES = json.loads((GOLDEN / "differences.json").read_text("utf-8"))
REFUSALS = ("HoodieTimeTravelException", "Cleaner cleaned up the timestamp of interest")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


def listed(name: str, query: dict[str, Any]) -> dict[str, Any] | None:
    """The entry of the list of differences for this query."""
    for entry in DIFFERENCES:
        same = entry["kind"] == query["kind"] and entry["options"] == query["options"]
        if entry["table"] == name and same:
            return entry
    return None


def compare(name: str, query: dict[str, Any], unpacked) -> dict[str, Any]:
    """How our answer differs from Java's; {} where it does not."""
    path = unpack(name, unpacked)
    refused = any(text in query.get("error", "") for text in REFUSALS)
    if refused and query["kind"] == "time_travel":
        with pytest.raises(Invalid, match="as_of="):
            run_query(path, name, query)
        return {}
    try:
        found = run_query(path, name, query)
    except MainstemError as error:
        return {"our_error": type(error).__name__, "java_rows": query.get("count", "error")}
    if "error" in query:
        return {"java_error": True, "ours_only": sorted(encoded(found).elements())}
    if "rowset" not in query:
        return {} if found.num_rows == query["count"] else {"rows": found.num_rows}
    java = expectations(name)["rowsets"][query["rowset"]]
    # Flink SQL asked for the user columns only; with virtual keys Java shows no meta columns.
    assert set(java["columns"]) <= set(found.schema.names)
    assert set(found.schema.names) - set(java["columns"]) in (set(), set(META_FIELDS))
    found = found.select(java["columns"])
    kinds = [field.dataType.simpleString() for field in spark_schema(found.schema)]
    assert java["types"][0] == FLINK or kinds == java["types"], name
    theirs = Counter(row_text(row) for row in java["rows"])
    ours = encoded(found)
    if ours == theirs:
        return {}
    return {
        "ours_only": sorted((ours - theirs).elements()),
        "java_only": sorted((theirs - ours).elements()),
    }


@pytest.mark.parametrize("name", marked(NAMES))
def test_every_query_gives_javas_rows_or_a_listed_difference(name, unpacked):
    for query in expectations(name)["queries"]:
        if query["kind"] not in KINDS:
            continue
        found = compare(name, query, unpacked)
        entry = listed(name, query)
        expected = {} if entry is None else entry["difference"]
        assert found == expected, f"{name}: {query['kind']} {query['options']}"


def test_every_table_shows_something_and_every_feature_has_a_table():
    assert [name for name in NAMES if len(features(name)) < 2] == []
    assert [line for line in FEATURES if not any(line[1:] in features(name) for name in NAMES)] == []


def test_the_list_of_differences_names_queries_that_exist_and_a_reason():
    for entry in DIFFERENCES:
        queries = expectations(entry["table"])["queries"]
        assert any(q["kind"] == entry["kind"] and q["options"] == entry["options"] for q in queries)
        assert len(entry["rule"]) > 20
        assert entry["difference"]


@pytest.mark.parametrize("name", [n for n in NAMES if "buckets" in expectations(n)])
def test_every_record_key_is_read_from_the_bucket_that_java_wrote_it_to(name, unpacked):
    rows = mainstem.open_table(unpack(name, unpacked)).scan().to_arrow().to_pylist()
    found = {(r["_hoodie_record_key"], int(r["_hoodie_file_name"][:8])) for r in rows}
    assert found == {(b[0], b[-1]) for b in expectations(name)["buckets"]}
    assert len(rows) == len(expectations(name)["buckets"])


@pytest.mark.parametrize("name", [n for n in NAMES if "file_slices" in expectations(n)])
def test_file_slices_are_those_of_javas_file_system_view(name, unpacked):
    table = mainstem.open_table(unpack(name, unpacked))
    ours = [
        {
            "partition": s.partition,
            "fileId": s.file_id,
            "baseInstant": s.base_instant,
            "baseFile": s.base_file,
            "logFiles": list(s.log_files),
            "latest": s.latest,
        }
        for s in table.file_slices()
        if not s.pending  # Java's list leaves slices of pending compactions out
    ]
    by_name = lambda s: (s["partition"], s["fileId"], s["baseInstant"])  # noqa: E731
    assert sorted(ours, key=by_name) == sorted(expectations(name)["file_slices"], key=by_name)


@pytest.mark.parametrize("name", ["basic_mor", "nbcc_two_writers", "partial_ignore_defaults"])
def test_batches_columns_and_filters_give_the_same_rows_as_the_whole_table(name, unpacked):
    import pyarrow as pa
    import pyarrow.compute as pc

    table = mainstem.open_table(unpack(name, unpacked))
    whole = table.scan().to_arrow()
    batches = pa.Table.from_batches(list(table.scan().to_batches()), whole.schema)
    assert encoded(batches) == encoded(whole)
    for columns in ([c] for c in whole.schema.names):
        assert encoded(table.scan(columns=columns).to_arrow()) == encoded(whole.select(columns))
    assert table.scan(columns=[]).to_arrow().num_rows == whole.num_rows
    late = pc.field("ts") > pc.scalar(1020)
    expected = whole.filter(late).select(["id", "_hoodie_record_key"])
    assert 0 <= expected.num_rows < whole.num_rows
    found = table.scan(columns=["id", "_hoodie_record_key"], filter=late).to_arrow()
    assert encoded(found) == encoded(expected)


def test_java_1_0_2s_failure_is_not_ours_java_1_2_0_gives_our_rows(unpacked):
    """The list of differences claims it: the same script written and read by Java 1.2.0."""
    old, new = "nbcc_two_writers_by_1_0_2.pending2", "nbcc_two_writers.pending2"
    ours = mainstem.open_table(unpack(old, unpacked)).scan().to_arrow()
    (query,) = [q for q in expectations(new)["queries"] if q["kind"] == "snapshot"]
    rows = expectations(new)["rowsets"][query["rowset"]]["rows"]
    user = ours.select(ours.schema.names[5:])
    assert encoded(user) == Counter(row_text(row[5:]) for row in rows)


DAMAGED = [f"corrupt_{kind}" for kind in (
    "bad_size", "first_cut10", "garbage_tail", "half_block", "middle_corrupt_then_good", "tail_cut10"
)]  # fmt: skip
HARMLESS = ["corrupt_alien_names", "corrupt_dup_version2", "corrupt_zero_log"]


def test_every_damaged_table_is_read_in_both_ways():
    assert sorted(DAMAGED + HARMLESS) == [name for name in NAMES if name.startswith("corrupt_")]


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_in_a_committed_log_file_is_an_error_with_path_and_offset(name, unpacked):
    table = mainstem.open_table(unpack(name, unpacked))
    with pytest.raises(CorruptTable) as caught:
        table.scan().to_arrow()
    assert ".log." in caught.value.path
    assert isinstance(caught.value.offset, int)
    assert "offset" in str(caught.value)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_loses_no_row_is_no_damage(name, unpacked):
    """Alien names, an empty log file, a block that is there twice: Java's rows, without an option."""
    (query,) = [q for q in expectations(name)["queries"] if q["kind"] == "snapshot"]
    rows = expectations(name)["rowsets"][query["rowset"]]["rows"]
    found = mainstem.open_table(unpack(name, unpacked)).scan().to_arrow()
    assert encoded(found) == Counter(row_text(row) for row in rows)


def test_no_file_of_a_whole_table_is_missed(unpacked):
    """Commits name the files that they wrote, and their sizes; cleans, rollbacks and restores took many."""
    for name in NAMES:
        if name in ("corrupt_first_cut10", "corrupt_tail_cut10"):
            continue
        table = mainstem.open_table(unpack(name, unpacked), {"hoodie.metadata.enable": "false"})
        assert table.scan().splits() is not None
        table.changes().splits()


def test_damage_in_the_files_of_a_writer_that_was_killed_is_not_looked_at(tmp_path):
    """Its instant never completed: whatever its files hold, they are not read."""
    name = "killed_nbcc.killed"
    path = unpack(name, tmp_path)
    before = mainstem.open_table(path).scan().to_arrow()
    (dead,) = [i.requested for i in mainstem.open_table(path).timeline() if not i.is_completed]
    files = [file for file in path.rglob(".*") if f"_{dead}.log." in file.name]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-10] + b"garbage")
    table = mainstem.open_table(path)
    assert encoded(table.scan().to_arrow()) == encoded(before)
    assert table.changes().to_arrow().num_rows


def test_columns_keep_their_ids_when_only_services_are_left_on_the_timeline(unpacked, monkeypatch):
    """Compactions record the schema as well; here the writes are taken for such."""
    from mainstem.readers.planning import query_schema

    table = mainstem.open_table(unpack("schema_on_read", unpacked))
    before = table.scan().to_arrow()
    monkeypatch.setattr(query_schema, "_NO_DATA_OPERATIONS", ("UPSERT", "ALTER_SCHEMA"))
    assert table.scan().to_arrow().equals(before)


@pytest.mark.supports("Queries", "schema on read: every change of type that Hudi allows")
def test_old_files_in_the_newest_schema_give_the_rows_that_java_rewrote(unpacked):
    """Every write rewrote the base file: rows that it only copied stand in the older ones as well, under
    older names and types."""
    path = unpack("schema_on_read_types", unpacked)
    (newest,) = mainstem.open_table(path).scan().splits()
    storage = LocalStorage(str(path))
    meta = ["_hoodie_commit_time", "_hoodie_record_key"]
    user = [name for name in newest.spec.schema.names if name not in META_FIELDS]

    def rows_of(file: str) -> dict[tuple, str]:
        (table,) = read_split(storage, replace(newest, base_file=file))
        ids = zip(*(table.column(name).to_pylist() for name in meta), strict=True)
        return dict(zip(ids, map(row_text, encoded_rows(table.select(user))), strict=True))

    now = rows_of(newest.base_file)
    older = sorted(file.name for file in path.glob("*.parquet") if file.name != newest.base_file)
    copied = [(key, row) for file in older for key, row in rows_of(file).items() if key in now]
    assert len({key for key, _ in copied}) == 8
    for key, row in copied:
        assert row == now[key]


def test_a_partial_row_of_a_range_gives_the_columns_that_it_set(unpacked):
    """The others are unknown, as the row was written outside of the range; nulls would be believed."""
    table = mainstem.open_table(unpack("merge_into_partial.logs", unpacked))
    after = "20261120100436536"
    with pytest.raises(Unsupported, match=r"partial updates .* columns .*name"):
        table.changes(after=after).to_arrow()
    found = table.changes(after=after, columns=["_hoodie_record_key", "ts"]).to_arrow()
    assert sorted(found.column("_hoodie_record_key").to_pylist()) == ["1", "2", "3"]
    assert found.column("ts").null_count == 0


@pytest.mark.supports("Keys and partitions", "TIMESTAMP key generator (read; its column as text)")
@pytest.mark.supports("Keys and partitions", "slash-separated date partitions (read)")
@pytest.mark.parametrize(("name", "column"), [("keys_timestamp", "m"), ("keys_slash_date", "d")])
def test_a_filter_on_a_partition_column_sees_what_the_query_shows(name, column, unpacked):
    """The files hold a number, or a date spelled otherwise."""
    import pyarrow.compute as pc

    table = mainstem.open_table(unpack(name, unpacked))
    whole = table.scan().to_arrow()
    value = whole.column(column)[0]
    chosen = table.scan(filter=pc.field(column) == value, columns=["a"]).to_arrow()
    assert encoded(chosen) == encoded(whole.filter(pc.field(column) == value).select(["a"]))
    assert 0 < chosen.num_rows < whole.num_rows


def test_the_example_of_the_document_runs(unpacked, capsys):
    for name in ("vectors", "schema_on_read", "corrupt_tail_cut10"):
        unpack(name, unpacked)
    text = (GOLDEN.parents[1] / "docs" / "tables.md").read_text("utf-8")
    names = {"tables": str(unpacked)}
    exec(compile(text.split("```python")[1].split("```")[0], "docs/tables.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "fixed_size_list<element: float not null>[4]",
        "['id', 'title', 'price', 'ts', 'city']",
    ]
    assert names["titles"].column("title").null_count == 0
    assert 0 < names["rest"].num_rows < 16
