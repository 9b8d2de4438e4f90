"""Goal: change feeds tell what happened, in Java's words where Java has them.

Method: every change data query of the golden CDC tables is compared with Java's answer in every cell;
deletes are asked for after deletes of each kind, on tables that mainstem or Java wrote.
"""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unsupported
from tests.golden_tables.tables import NAMES, encoded, expectations, row_text, unpack

pytestmark = pytest.mark.versions
LATE = "cdc_late_rows"
CDC_TABLES = [name for name in NAMES if name.startswith(("cdc_", "v10_cdc_")) and name != LATE]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("name", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


def cdc_queries(name):
    return [q for q in expectations(name)["queries"] if q["kind"] == "incremental_cdc"]


def bounds(query):
    options = query["options"]
    return {
        "after": options["hoodie.datasource.read.begin.instanttime"],
        "until": options.get("hoodie.datasource.read.end.instanttime"),
    }


def without_decimals(text):
    """Java's image of a row loses decimals: it holds ``{"zero":false}`` instead of the number."""
    return re.sub(r'(\\"(dec|wide)\\"):(\{\\"zero\\":(true|false)\}|\\"[-0-9.E+]+\\")', r"\1:0", text)


def rows(*values):
    columns = list(zip(*(v if len(v) == 5 else (*v, False) for v in values), strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def create(path, **settings):
    options = {
        "hoodie.time.generator.max_expected_clock_skew_ms": "0",
        "hoodie.mainstem.fsync": "false",
    }
    given = {"record_key": ["id"], "ordering": ["ts"], "partition_by": ["city"], "buckets": 2}
    mainstem.create_table(path, SCHEMA, **{**given, **settings}, properties=options)
    return mainstem.open_table(path, properties=options)


def changed(table, **asked):
    """(id, kind of change) of the change set with deletes."""
    found = table.changes(deletes=True, columns=["id", "_change_type"], **asked).to_arrow()
    return sorted(zip(*(c.to_pylist() for c in found.columns), strict=True))


# -------------------- change data


@pytest.mark.supports("Queries", "change data (CDC) with before and after images")
@pytest.mark.parametrize("name", CDC_TABLES)
def test_change_data_is_javas_in_every_cell(name, unpacked):
    table = mainstem.open_table(unpack(name, unpacked))
    assert cdc_queries(name)
    for query in cdc_queries(name):
        if "rowset" not in query:
            continue
        found = table.changes(mode="cdc", **bounds(query)).to_arrow()
        java = expectations(name)["rowsets"][query["rowset"]]
        assert found.schema.names == java["columns"]
        told = Counter(without_decimals(text) for text in encoded(found).elements())
        assert told == Counter(without_decimals(row_text(row)) for row in java["rows"]), query["options"]


def test_where_java_tells_changes_that_did_not_happen_the_snapshot_decides(unpacked):
    """A late delete that lost, and a late row of a deleted key: Java looks at the log file alone."""
    table = mainstem.open_table(unpack(LATE, unpacked))
    there = set(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())
    for query in cdc_queries(LATE):
        found = encoded(table.changes(mode="cdc", **bounds(query)).to_arrow())
        java = Counter(row_text(row) for row in expectations(LATE)["rowsets"][query["rowset"]]["rows"])
        assert not found - java
        wrong = sorted(json.loads(row) for row in java - found)
        told = [(op, json.loads(before or after)["id"]) for op, _, before, after in wrong]
        assert told == [("d", 3), ("i", 4)] and 3 in there and 4 not in there
        assert found.total() == query["count"] - 2 > 0


@pytest.mark.parametrize("name", CDC_TABLES)
def test_images_as_structs_hold_what_the_text_says(name, unpacked):
    table = mainstem.open_table(unpack(name, unpacked))
    structs = table.changes(mode="cdc", images="struct").to_arrow()
    texts = table.changes(mode="cdc").to_arrow()
    assert structs.schema.field("after").type.field("id").type == pa.int32()
    for side in ("before", "after"):
        for struct, text in zip(
            structs.column(side).to_pylist(), texts.column(side).to_pylist(), strict=True
        ):
            told = json.loads(text) if text is not None else None
            if told is None:
                assert struct is None
                continue
            for column in ("id", "city", "ts"):
                assert struct[column] == told.get(column)


def test_change_data_comes_in_pieces_that_can_be_pickled_filtered_and_projected(unpacked):
    table = mainstem.open_table(unpack("cdc_mor_op_key_only", unpacked))
    whole = table.changes(mode="cdc").to_arrow()
    plan = table.changes(mode="cdc", columns=["after", "op"], filter=pc.field("op") != "d")
    expected = whole.filter(pc.field("op") != "d").select(["after", "op"])
    assert 0 < expected.num_rows < whole.num_rows
    assert encoded(plan.to_arrow()) == encoded(expected)
    assert plan.schema == expected.schema
    pieces = pickle.loads(pickle.dumps(table.changes(mode="cdc").splits()))
    assert len(pieces) > 4
    tables = [t for piece in pieces for t in piece.read(table.opened.seams.storage)]
    assert encoded(pa.concat_tables(tables)) == encoded(whole)


REPLAYED = [
    "clustering_cow.done", "cow_bucket", "log_compaction", "merge_commit", "merge_event.logs",
    "merge_multi_ordering", "nbcc_two_writers", "partial_ignore_defaults", "savepoint_restore.before",
    "schema_evolution",
]  # fmt: skip


@pytest.mark.parametrize("name", REPLAYED)
def test_change_data_replayed_gives_the_snapshot_and_every_image_before_is_what_was_there(name, tmp_path):
    """Tables without change logs, their property set: all is inferred from base and log files."""
    path = unpack(name, tmp_path)
    with (path / ".hoodie/hoodie.properties").open("a") as properties:
        properties.write("\nhoodie.table.cdc.enabled=true\n")
    table = mainstem.open_table(path)
    snapshot = table.scan().to_arrow()
    completed = {i.requested: i.completion for i in table.timeline() if i.completion}
    user = [column for column in snapshot.schema.names if not column.startswith("_hoodie_")]

    def told(row):
        return None if row is None else repr([row[column] for column in user])

    def key(row):
        return row["_hoodie_partition_path"], row["_hoodie_record_key"]

    state = {}
    changes = table.changes(mode="cdc", images="struct").to_arrow().to_pylist()
    for change in sorted(changes, key=lambda c: (completed[c["ts_ms"]], c["op"] != "d")):
        before, after = change["before"], change["after"]
        at = key(before or after)
        assert {"i": (True, False), "u": (False, False), "d": (False, True)}[change["op"]] == (
            before is None,
            after is None,
        )
        assert state.pop(at, None) == told(before), change
        if after is not None:
            state[at] = told(after)
    assert state == {key(row): told(row) for row in snapshot.to_pylist()}
    assert {change["op"] for change in changes} >= {"i", "u"} or name == "clustering_cow.done"


def test_change_data_of_a_table_without_it_is_refused_with_the_way_to_enable_it(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x")))
    with pytest.raises(Unsupported, match=r"hoodie\.table\.cdc\.enabled=true"):
        table.changes(mode="cdc").to_arrow()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"mode": "all"}, "mode='all'"),
        ({"mode": "cdc", "images": "xml"}, "images='xml'"),
        ({"mode": "cdc", "deletes": True}, "deletes=True"),
        ({"after": "yesterday"}, "after='yesterday'"),
        ({"mode": "cdc", "columns": ["price"]}, "no column 'price'"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(asked, text, unpacked):
    table = mainstem.open_table(unpack("cdc_mor_op_key_only", unpacked))
    with pytest.raises(Invalid, match=text):
        table.changes(**asked).to_arrow()


def test_change_data_whose_files_are_gone_without_a_clean_is_refused(unpacked, tmp_path):
    path = unpack("cdc_mor_op_key_only", tmp_path)
    first = min(path.rglob("*.parquet"), key=lambda file: file.name.rsplit("_")[-1])
    first.unlink()
    with pytest.raises(CorruptTable, match=f"no clean removed it.*{first.name}"):
        mainstem.open_table(path).changes(mode="cdc").to_arrow()


# -------------------- deletes


@pytest.mark.supports("Queries", "changes with deletes")
def test_deletes_of_every_kind_are_rows_of_the_change_set(tmp_path):
    table = create(tmp_path / "t")
    first = table.upsert(rows((1, "a", 1, "x"), (2, "a", 1, "y"), (3, "b", 1, "z"), (4, "b", 1, "w")))
    table.delete(rows((1, "a", 1, "x")).select(["id", "city"]))
    table.upsert(rows((3, "b", 7, "z", True), (5, "b", 1, "new")))
    found = table.changes(after=first.completion_time, deletes=True).to_arrow()
    assert changed(table, after=first.completion_time) == [(1, "delete"), (3, "delete"), (5, "upsert")]
    by_id = {row["id"]: row for row in found.to_pylist()}
    by_block, by_marker = by_id[1], by_id[3]
    assert (by_block["_hoodie_record_key"], by_block["_hoodie_partition_path"]) == ("1", "a")
    assert (by_block["city"], by_block["ts"], by_block["name"]) == ("a", None, None)
    assert (by_marker["city"], by_marker["ts"], by_marker["name"]) == ("b", 7, None)
    assert by_block["_hoodie_commit_time"] < by_marker["_hoodie_commit_time"]
    assert table.changes(after=first.completion_time).to_arrow().column("id").to_pylist() == [5]


def test_a_key_that_is_written_again_is_no_delete_and_one_deleted_twice_is_one(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x"), (2, "a", 1, "y")))
    start = table.delete(rows((1, "a", 1, "x"), (2, "a", 1, "y")).select(["id", "city"]))
    assert changed(table) == [(1, "delete"), (2, "delete")]
    table.upsert(rows((1, "a", 9, "back")))
    table.delete(rows((2, "a", 1, "y")).select(["id", "city"]))
    assert changed(table) == [(1, "upsert"), (2, "delete")]
    assert changed(table, after=start.completion_time) == [(1, "upsert"), (2, "delete")]
    assert changed(table, until=start.completion_time) == [(1, "delete"), (2, "delete")]


def test_a_filter_picks_upserts_and_every_delete_is_shown(tmp_path):
    table = create(tmp_path / "t")
    table.upsert(rows((1, "a", 1, "x"), (2, "a", 1, "y"), (3, "a", 1, "z")))
    table.delete(rows((3, "a", 1, "z")).select(["id", "city"]))
    assert changed(table, filter=pc.field("name") == "y") == [(2, "upsert"), (3, "delete")]
    # A filter that hides the row which came back must not make it a delete.
    table.upsert(rows((3, "a", 9, "back")))
    assert changed(table, filter=pc.field("name") == "y") == [(2, "upsert")]


def test_composite_keys_of_delete_blocks_are_taken_apart_where_they_are_unambiguous(tmp_path):
    table = create(tmp_path / "t", record_key=["name", "id"])
    clear, unclear = (1, "a", 1, "x:y,z"), (2, "a", 1, "x,id:3")
    with pytest.warns(UserWarning, match="can get the same record key"):
        table.upsert(rows(clear, unclear))
        table.delete(rows(clear, unclear).select(["name", "id", "city"]))
    found = table.changes(deletes=True).to_arrow().to_pylist()
    keys = {row["_hoodie_record_key"]: (row["name"], row["id"]) for row in found}
    assert keys == {"name:x:y,z,id:1": ("x:y,z", 1), "name:x,id:3,id:2": (None, None)}


@pytest.mark.parametrize("name", CDC_TABLES)
def test_deletes_by_rewritten_files_and_replaced_groups_are_those_of_the_change_data(name, unpacked):
    """The last thing that change data says of a key in a window is what the change set says of it."""
    table = mainstem.open_table(unpack(name, unpacked))
    for query in cdc_queries(name):
        data = table.changes(mode="cdc", images="struct", **bounds(query)).to_arrow().to_pylist()
        data.sort(key=lambda row: (row["ts_ms"], row["op"] != "d"))
        last = {(row["after"] or row["before"])["id"]: row["op"] for row in data}
        told = {key: "delete" if op == "d" else "upsert" for key, op in last.items()}
        assert dict(changed(table, **bounds(query))) == told, query["options"]


def test_a_delete_that_was_compacted_since_is_still_told(unpacked):
    name = "cdc_mor_op_key_only"
    table = mainstem.open_table(unpack(name, unpacked))
    instants = expectations(name)["instants"]
    assert [i["action"] for i in instants][2:4] == ["deltacommit", "commit"]  # delete, compaction
    window = {"after": instants[1]["completion"], "until": instants[3]["completion"]}
    assert changed(table, **window) == [(1, "delete"), (2, "delete")]


def test_deletes_whose_log_files_are_gone_are_refused(tmp_path):
    table = create(tmp_path / "t")
    start = table.upsert(rows((1, "a", 1, "x")))
    gone = table.delete(rows((1, "a", 1, "x")).select(["id", "city"]))
    (file,) = (p for p in (tmp_path / "t/a").iterdir() if gone.instant in p.name)
    file.unlink()
    with pytest.raises(CorruptTable, match=rf"no clean removed it.*{file.name}"):
        table.changes(after=start.completion_time, deletes=True).to_arrow()


# -------------------- the documentation


def test_the_examples_of_the_documentation_run(tmp_path):
    text = (Path(__file__).parents[2] / "docs/changes.md").read_text("utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "spark" not in block]
    names = {"path": str(tmp_path / "t")}
    for code in blocks:
        exec(compile(code.replace("/tmp/", f"{tmp_path}/"), "docs/changes.md", "exec"), names)
    assert len(blocks) == 2
