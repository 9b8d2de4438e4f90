"""Goal: rows that were staged before their commit was known are those that a transaction would have written.

Method: twin tables, one written directly and one by way of staged files, compared row by row and after a
compaction; files that other writers, crashes and hands changed in between. Lines are bent as JSON.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from small_table import SCHEMA, content, rows

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.flink.committer import Committer
from mainstem.flink.part_files import PartFiles
from mainstem.writers.staged_rows import Stager, parse_line
from tests.storage.steps import storage_at

SINK = "t1"


def stager(table, schema=SCHEMA, operation="upsert", sink=SINK, chance=None) -> Stager:
    """What a worker makes of the spec that was sent to it."""
    spec = pickle.loads(pickle.dumps(table.staging_spec(schema, operation)))
    return Stager(storage_at(spec.base), spec, sink, chance or random.SystemRandom())


def commit(table, *lines, operation="upsert"):
    with table.begin(operation) as txn:
        txn.add_staged(lines)
        return txn.commit()


def staged_files(table, sink=SINK):
    return storage_at(table.path).names(f".hoodie/.mainstem/flink/{sink}/staged")


def refused(table, kind, match, *lines):
    """The lines are refused by name, and nothing of them is committed."""
    before = table.scan().to_arrow().num_rows
    with pytest.raises(kind, match=match), table.begin("upsert") as txn:
        txn.add_staged(lines)
        txn.commit()
    assert [i for i in table.timeline() if not i.is_completed] == []
    assert table.scan().to_arrow().num_rows == before


# -- the same rows --------------------------------------------------------------------------------------


@pytest.mark.supports("Writing", "rows staged by workers, committed later")
def test_staged_rows_are_those_of_a_direct_write_before_and_after_a_compaction(make_table):
    direct, later = make_table("direct", buckets=4), make_table("later", buckets=4)
    batch = pa.concat_tables([rows(range(50), 5, city="a"), rows(range(50, 90), 5, city="b")])
    direct.upsert(batch)
    outcome = commit(later, stager(later).stage(batch))
    assert (outcome.rows, outcome.files) == (90, 8)
    for table in (direct, later):
        found = table.scan().to_arrow().sort_by("_hoodie_record_key")
        assert set(found["_hoodie_commit_time"].to_pylist()) == {table.timeline()[0].requested}
        assert len(set(found["_hoodie_commit_seqno"].to_pylist())) == 90
    same = ["_hoodie_record_key", "_hoodie_partition_path", *SCHEMA.names]
    for mode, names in (("snapshot", ["_hoodie_file_name", *same]), ("read_optimized", same)):
        one, other = (t.scan(columns=names, mode=mode).to_arrow().sort_by("id") for t in (direct, later))
        assert one == other
        for table in (direct, later):
            table.compact()
    assert content(later) == content(direct) and len(content(later)) == 90


def test_staged_rows_are_seen_by_nobody_before_their_commit_and_stay_after_it(make_table):
    table = make_table()
    line = stager(table).stage(rows(range(5), 1))
    assert len(staged_files(table)) == 1
    assert table.scan().to_arrow().num_rows == 0 and table.timeline() == []
    commit(table, line)
    assert len(content(table)) == 5 and len(staged_files(table)) == 1


def test_no_rows_make_no_file_and_an_empty_line_holds_none(make_table):
    table = make_table()
    assert stager(table).stage(rows([], 1)) == ""
    assert staged_files(table) == []
    assert commit(table, "", "").status == "empty"


def test_batches_of_one_commit_keep_their_order_and_that_of_lines_where_it_is_equal(make_table):
    table = make_table(ordering=())
    worker, other = stager(table), stager(table)
    late = worker.stage(rows([1, 2], 1, "late"), order="0002")
    first = other.stage(rows([1, 2, 3, 4], 1, "first"), order="0001")
    second = worker.stage(rows([2, 3], 1, "second"), order="0001")
    commit(table, late, first, second)
    assert content(table) == {"k1": "late1", "k2": "late2", "k3": "second3", "k4": "first4"}


def test_a_transaction_takes_staged_rows_and_rows_of_its_own(make_table):
    table = make_table(ordering=())
    line = stager(table).stage(rows([1, 2], 1, "staged"))
    with table.begin("upsert") as txn:
        txn.write(rows([1], 1, "before"))
        assert txn.add_staged([line]) == 2
        txn.write(rows([2], 1, "after"))
        assert txn.commit().rows == 4
    assert content(table) == {"k1": "staged1", "k2": "after2"}


def test_a_line_takes_the_place_of_another_that_is_there_and_is_left_out_if_it_is_not(make_table):
    table = make_table()
    one = stager(table)
    first, other = one.stage(rows([1, 2], 1)), one.stage(rows([3], 1))
    later = one.stage(rows([2], 5), instead=parse_line(first, source="t").stamp)
    none = one.stage(rows([], 1), instead=parse_line(later, source="t").stamp)
    commit(table, later, none)
    assert content(table) == {}
    commit(table, first, other, later)
    assert sorted(content(table)) == ["k2", "k3"]
    commit(table, one.stage(rows([4], 1)), later, none)
    assert sorted(content(table)) == ["k2", "k3", "k4"]
    parts = PartFiles(storage_at(table.path), SINK)
    part = "".join(f"{line}\n" for line in (first, later, none)).encode()
    storage_at(table.path).put_new(parts.path("part-0-0"), part, durable=False)
    assert Committer(table, SINK).commit_pending() == []
    assert staged_files(table) != [] and parse_line(first, source="t").stamp not in staged_files(table)


def test_columns_are_filled_in_where_the_table_updates_parts_of_rows(make_table):
    table = make_table(
        ordering=(), hoodie__table__partial__update__mode="IGNORE_DEFAULTS",
    )  # fmt: skip
    table.upsert(rows([1], 7, "old"))
    only_ts = pa.table({"id": ["k1"], "city": ["a"], "ts": pa.array([9], pa.int64())})
    commit(table, stager(table, operation="update_columns").stage(only_ts))
    assert table.scan(columns=["ts", "value"]).to_arrow().to_pylist() == [{"ts": 9, "value": "old1"}]


# -- deletes ----------------------------------------------------------------------------------------------


def test_deleted_rows_take_their_ordering_value_along(make_table):
    table = make_table()
    table.upsert(rows([1, 2, 3], 5, "old"))
    batch = pa.concat_tables([rows([1], 9), rows([2], 1), rows([3, 4], 9, "new")])
    gone = pa.array([True, True, False, False])
    outcome = commit(table, stager(table).stage(batch, gone))
    assert content(table) == {"k2": "old2", "k3": "new3", "k4": "new4"}, "k2 was deleted before its row"
    assert outcome.rows == 4


def test_a_row_after_the_deletion_of_its_key_stays_and_one_before_goes(make_table):
    table = make_table(ordering=())
    batch = rows([1, 1, 2, 2, 2, 3, 3, 3, 3], 1)
    values = pa.array([f"v{n}" for n in range(9)])
    batch = batch.set_column(3, "value", values)
    gone = pa.array([True, False, False, True, False, False, True, False, True])
    commit(table, stager(table).stage(batch, gone))
    assert content(table) == {"k1": "v1", "k2": "v4"}


def test_a_batch_of_deletions_alone_and_the_operation_delete(make_table):
    table = make_table()
    table.upsert(rows(range(4), 5))
    commit(table, stager(table).stage(rows([0], 9), pa.array([True])))
    keys = rows([1], 0).select(["id", "city"])
    line = stager(table, keys.schema, "delete").stage(keys)
    refused(table, Invalid, "of a delete, the transaction is a upsert", line)
    commit(table, line, operation="delete")
    assert set(content(table)) == {"k2", "k3"}


@pytest.mark.parametrize("flags", [[True], [True, None], [1, 0]])
def test_flags_that_are_not_one_boolean_per_row_are_refused(make_table, flags):
    table = make_table()
    with pytest.raises(Invalid, match="expected 2 booleans"):
        stager(table).stage(rows([1, 2], 1), pa.array(flags))
    assert staged_files(table) == []


# -- the schema moves ----------------------------------------------------------------------------------------


def test_columns_that_the_job_declared_come_with_the_commit_beside_those_of_others(make_table):
    table = make_table()
    mine = SCHEMA.append(pa.field("mine", pa.int32()))
    worker = stager(table, mine)
    lines = [worker.stage(rows([1], 1).append_column("mine", pa.array([7], pa.int32())))]
    assert "mine" not in table.schema.names
    theirs = rows([2], 1).append_column("theirs", pa.array([True]))
    mainstem.open_table(table.path).upsert(theirs)
    lines.append(worker.stage(rows([3], 1).append_column("mine", pa.array([8], pa.int32()))))
    commit(table, *lines)
    assert table.schema.names == [*SCHEMA.names, "theirs", "mine"]
    found = table.scan(columns=["id", "theirs", "mine"]).to_arrow().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in found] == [("k1", None, 7), ("k2", True, None), ("k3", None, 8)]


def test_rows_staged_before_a_column_became_wider_are_read_in_its_new_type(make_table):
    table = make_table()
    narrow = SCHEMA.append(pa.field("n", pa.int32()))
    line = stager(table, narrow).stage(rows([1], 1).append_column("n", pa.array([1], pa.int32())))
    table.upsert(rows([2], 1).append_column("n", pa.array([2**40], pa.int64())))
    commit(table, line)
    assert sorted(table.scan(columns=["n"]).to_arrow()["n"].to_pylist()) == [1, 2**40]


def test_rows_whose_column_became_another_type_are_refused(make_table):
    table = make_table()
    mine = SCHEMA.append(pa.field("n", pa.int32()))
    line = stager(table, mine).stage(rows([1], 1).append_column("n", pa.array([1], pa.int32())))
    table.upsert(rows([2], 1).append_column("n", pa.array(["text"])))
    refused(table, Invalid, "column 'n'", line)


# -- what cannot be staged, and what is not what it was ------------------------------------------------------


def test_what_has_no_place_for_an_instant_is_refused_by_name(make_table):
    with pytest.raises(Unsupported, match="bulk_insert cannot be staged"):
        make_table("a").staging_spec(SCHEMA, "bulk_insert")
    parquet = mainstem.open_table(make_table("b").path, {"hoodie.logfile.data.block.format": "parquet"})
    with pytest.raises(Unsupported, match=r"data\.block\.format=parquet"):
        parquet.staging_spec(SCHEMA)
    table = make_table("c")
    spec = table.begin("upsert").task_spec()
    with pytest.raises(Invalid, match="staging_spec"):
        Stager(storage_at(table.path), spec, SINK, random.SystemRandom())


def test_rows_that_the_table_cannot_hold_are_refused_and_leave_nothing(make_table):
    table = make_table()
    worker = stager(table)
    with pytest.raises(Invalid, match="columns missing: 'value'"):
        worker.stage(rows([1], 1).drop_columns(["value"]))
    with pytest.raises(Invalid, match="ordering field 'ts' is null"):
        worker.stage(rows([1], None).cast(SCHEMA))
    assert staged_files(table) == []


def test_the_file_group_that_another_writer_made_meanwhile_is_named_instead(make_table):
    table = make_table(buckets=1, partition_by=())
    line = stager(table).stage(rows([1], 1))
    other = "00000000-aaaa-bbbb-cccc-000000000000-0"
    (table_path(table) / f".{other}_20260101000000000.log.1_0-0-0").touch()
    commit(mainstem.open_table(table.path), line)
    assert table.scan(columns=["_hoodie_file_name", "id"]).to_arrow().to_pylist() == [
        {"_hoodie_file_name": other, "id": "k1"}
    ]
    assert {s.file_id for s in table.file_slices()} == {other}


def table_path(table) -> Path:
    return Path(table.path)


def test_a_file_group_whose_name_has_another_length_is_refused(make_table):
    table = make_table(buckets=1, partition_by=())
    line = stager(table).stage(rows([1], 1))
    (table_path(table) / ".00000000-aaaa-bbbb-cccc-000000000000_20260101000000000.log.1_0-0-0").touch()
    refused(mainstem.open_table(table.path), Unsupported, "Load a table before its streams start", line)


def test_a_stamp_that_is_in_the_rows_by_chance_is_drawn_again(make_table):
    table = make_table()
    stamp = json.loads(stager(table, chance=random.Random(5)).stage(rows([1], 1)))["file"]
    for name in staged_files(table):
        (table_path(table) / f".hoodie/.mainstem/flink/{SINK}/staged/{name}").unlink()
    line = stager(table, chance=random.Random(5)).stage(rows([1], 1, f"holds {stamp} "))
    assert json.loads(line)["file"] != stamp and staged_files(table) == [json.loads(line)["file"]]
    commit(table, line)
    assert content(table) == {"k1": f"holds {stamp} 1"}


def test_staged_rows_that_are_missing_cut_off_or_changed_are_refused(make_table):
    table = make_table()
    worker = stager(table)
    line = worker.stage(rows(range(9), 1))
    path = table_path(table) / f".hoodie/.mainstem/flink/{SINK}/staged/{json.loads(line)['file']}"
    good = path.read_bytes()
    for bad in (good[:-1], good + b"#", good.replace(b"k4", b"k\xff", 1)[:-9] + b"123456789"):
        path.write_bytes(bad)
        refused(table, CorruptTable, "staged rows are damaged", line)
    stamp = json.loads(line)["file"].encode()
    path.write_bytes(good.replace(stamp, b"x" * 17, 1))
    refused(table, CorruptTable, "staged rows are damaged", line)
    path.unlink()
    refused(table, CorruptTable, "staged rows are missing", line)
    path.write_bytes(good)
    refused(table, Invalid, "given twice", line, line)
    commit(table, line)
    assert len(content(table)) == 9


def bend(line, **changes):
    record = json.loads(line)
    for place, value in changes.items():
        name, _, index = place.partition("_")
        if index:
            record[name][0][int(index)] = value
        else:
            record[name] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"file": "../../../hoodie.properties"}, "does not parse"),
        ({"file": 5}, "does not parse"),
        ({"sink": ["x"]}, "does not parse"),
        ({"pieces": []}, "does not parse"),
        ({"pieces_0": "../other"}, "leaves the table"),
        ({"pieces_0": ".hoodie/timeline"}, "no place for rows"),
        ({"pieces_1": 1}, "no place for rows"),
        ({"pieces_2": "x"}, "no place for rows"),
        ({"pieces_3": -1}, "numbers"),
        ({"pieces_3": 2}, "staged rows are damaged"),
        ({"pieces_5": True}, "numbers"),
        ({"pieces_6": 10**15}, "staged rows are damaged"),
        ({"v": 3}, "does not parse"),
        ({"v": 3, "instead": "../t"}, "does not parse"),
        ({"v": 3, "instead": 5}, "does not parse"),
        ({"v": 3, "instead": "A" * 17, "pieces": []}, "does not parse"),
        ({"v": 3, "instead": "A" * 17, "file": ""}, "does not parse"),
    ],
)
def test_lines_that_lead_elsewhere_or_say_something_else_are_refused(make_table, changes, match):
    table = make_table(buckets=1)
    line = stager(table).stage(rows([1], 1))
    refused(table, CorruptTable, match, bend(line, **changes))


@pytest.mark.parametrize("line", ["{", "[]", "nonsense", "{}", '{"v":1}', "[" * 5000, "null"])
def test_lines_that_are_no_committables_are_refused(make_table, line):
    refused(make_table(), CorruptTable, "does not parse", line)


def test_lines_of_a_later_release_are_refused_by_name(make_table):
    table = make_table()
    with pytest.raises(Unsupported, match="version 9"), table.begin("upsert") as txn:
        txn.add_staged([bend(stager(table).stage(rows([1], 1)), v=9)])


def test_rows_of_a_table_that_was_dropped_are_not_committed_to_one_made_anew(make_table):
    table = make_table()
    line = stager(table).stage(rows([1], 1))
    staged = table_path(table) / ".hoodie/.mainstem/flink"
    kept = table_path(table).parent / "kept"
    shutil.move(staged, kept)
    shutil.rmtree(table.path)
    table = make_table()
    stager(table)
    shutil.move(kept, staged)
    refused(table, Invalid, "of another table", line)


@pytest.mark.parametrize("sink", ["t1", "t1_2", "größer / ..", ".hidden", "..", "a" * 255])
def test_a_sink_may_have_any_name_and_has_a_folder_of_its_own(make_table, sink):
    table = make_table()
    line = stager(table, sink=sink).stage(rows([1], 1))
    (folder,) = (table_path(table) / ".hoodie/.mainstem/flink").iterdir()
    assert len(list((folder / "staged").iterdir())) == 1
    commit(table, line)
    assert len(content(table)) == 1


@pytest.mark.parametrize("sink", ["", "a" * 256, "ü" * 100])
def test_a_name_that_makes_no_folder_is_refused(make_table, sink):
    with pytest.raises(Invalid, match="of a sink"):
        stager(make_table(), sink=sink)
