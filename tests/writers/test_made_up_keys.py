"""Goal: rows of a table without record key fields are all there, each once, and are changed by the keys that
queries show of them.

Method: tables through the public API, with other writers, clusterings and restarts beside them.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.writers.staged_rows import Stager
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.write_spec import DELETE_MARK, MERGE_ROWS
from mainstem.writers.write_task import write_task
from tests.storage.steps import storage_at

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("city", pa.string())])
KEY = "_hoodie_record_key"


def rows(*ids: int, name: str = "a", city: str = "oslo") -> pa.Table:
    return pa.table({"id": ids, "name": [name] * len(ids), "city": [city] * len(ids)}, schema=SCHEMA)


@pytest.fixture(params=["shared", "partitions", "exclusive"])
def table(request, tmp_path):
    """Of an exclusive one small file groups are filled up by log files."""
    by, exclusive = ("city" if request.param == "partitions" else ()), request.param == "exclusive"
    given = {"hoodie.mainstem.exclusive": exclusive, "hoodie.mainstem.fsync": False}
    made = mainstem.create_table(tmp_path / "t", SCHEMA, partition_by=by, properties=given)
    assert "hoodie.table.recordkey.fields" not in made.properties
    return made


def shown(table) -> Counter:
    found = table.scan().to_arrow()
    assert pc.count_distinct(found[KEY]).as_py() == found.num_rows, "two rows have one key"
    return Counter(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def renamed(found: pa.Table, name: str) -> pa.Table:
    return found.set_column(found.schema.get_field_index("name"), "name", pa.array([name] * found.num_rows))


@pytest.mark.supports("Writing", "Tables without record key: keys are made up, as Hudi's SQL does")
def test_equal_rows_are_all_there_whatever_writes_them(table):
    table.insert(rows(1, 1, 2))
    table.bulk_insert(rows(1, 2))
    table.insert(table.scan().to_arrow())  # rows of a query have keys, which are not taken for theirs
    assert shown(table) == {(1, "a"): 6, (2, "a"): 4}
    table.compact()
    table.insert_overwrite(rows(3, 3))
    assert shown(table) == {(3, "a"): 2}


def test_rows_are_updated_and_deleted_by_the_keys_that_a_query_shows(table):
    table.insert(rows(1, 1, 2, 3))
    found = table.scan().to_arrow()
    table.upsert(renamed(found.filter(pc.equal(found["id"], 1)), "set"))
    table.delete(found.filter(pc.equal(found["id"], 2)).select([KEY, "city"]))
    assert shown(table) == {(1, "set"): 2, (3, "a"): 1}
    marks = pa.array([True, False])
    merged = pa.concat_tables([found.filter(pc.equal(found["id"], 3)), rows(4)], promote_options="default")
    with table.begin(MERGE_ROWS) as txn:
        txn.write(merged.append_column(DELETE_MARK, marks))
        txn.commit()
    assert shown(table) == {(1, "set"): 2, (4, "a"): 1}
    table.compact()
    assert shown(table) == {(1, "set"): 2, (4, "a"): 1}


def test_rows_without_a_key_are_neither_updated_nor_deleted(table):
    table.insert(rows(1))
    for write in (table.upsert, table.delete):
        with pytest.raises(Unsupported, match=r"without record key .* in SQL use UPDATE") as told:
            write(rows(1))
        assert "\n" not in str(told.value)
    found = table.scan().to_arrow()
    nobody = pa.array([None], pa.string())
    with pytest.raises(Invalid, match="null or empty in 1 of 1 rows, first in row 0"):
        table.upsert(found.set_column(found.schema.get_field_index(KEY), KEY, nobody))
    assert shown(table) == {(1, "a"): 1}


def test_a_table_without_record_key_has_no_buckets(tmp_path):
    for given in ({"buckets": 4}, {"properties": {"hoodie.index.type": "BUCKET"}}):
        with pytest.raises(Invalid, match="buckets need a record key"):
            mainstem.create_table(tmp_path / "t", SCHEMA, **given)


def test_inserts_at_once_meet_nobody_and_read_no_keys(table, monkeypatch):
    from mainstem.readers.queries import key_places

    def none(*_: object) -> None:
        raise AssertionError("keys were looked for")

    monkeypatch.setattr(key_places.KeyPlaces, "find", none)
    monkeypatch.setattr(key_places.KeyPlaces, "keys_of", none)
    with table.begin("insert") as txn:
        txn.write(rows(1, 2))
        mainstem.open_table(table.path).insert(rows(1, 3))
        txn.write(rows(1))
        txn.commit()
    assert shown(table) == {(1, "a"): 3, (2, "a"): 1, (3, "a"): 1}


def test_updates_follow_rows_that_a_clustering_moved(table):
    for number in range(3):
        table.insert(rows(number, number))
    found = table.scan().to_arrow()
    with table.begin("upsert") as txn:
        txn.write(renamed(found.filter(pc.less(found["id"], 2)), "set"))
        mainstem.open_table(table.path).services.cluster()
        txn.commit()
    assert shown(table) == {(0, "set"): 2, (1, "set"): 2, (2, "a"): 2}


def test_tasks_hand_rows_over_and_the_commit_makes_their_keys(table):
    table.insert(rows(7))
    old = table.scan().to_arrow()
    with table.begin("insert") as txn:
        spec = pickle.loads(pickle.dumps(txn.task_spec()))
        for number in range(2):
            batches = rows(1, 1).to_batches()
            txn.add_task_result(write_task(spec, batches, task_partition=number, stage=1, attempt=0))
        txn.commit()
    assert shown(table) == {(1, "a"): 4, (7, "a"): 1}
    with table.begin(MERGE_ROWS) as txn:
        merged = pa.concat_tables([renamed(old, "set"), rows(8)], promote_options="default")
        batches = merged.append_column(DELETE_MARK, pa.array([False, False])).to_batches()
        txn.add_task_result(write_task(txn.task_spec(), batches, task_partition=0, stage=1, attempt=0))
        txn.commit()
    assert shown(table) == {(1, "a"): 4, (7, "set"): 1, (8, "a"): 1}


def test_a_checkpoint_that_is_committed_again_doubles_nothing(table):
    spec = pickle.loads(pickle.dumps(table.staging_spec(SCHEMA, "insert")))
    stager = Stager(storage_at(table.path), spec, "s", random.Random(1))
    lines = [stager.stage(rows(1, 1)), stager.stage(rows(2))]
    for status in ("committed", "already_committed"):
        with table.begin("insert", guard=StreamGuard("flink/s", 1)) as txn:
            txn.add_staged(lines)
            assert txn.commit().status == status
    assert shown(table) == {(1, "a"): 2, (2, "a"): 1}
