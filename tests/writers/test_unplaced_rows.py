"""Goal: rows that workers hand over of a table without buckets are placed by whoever commits them, once.

Method: tasks and staged files as Spark and Flink make them, on tables of every kind of index, with other
writers between the worker's work and the commit; files that hands changed.
"""

from __future__ import annotations

import json
import pickle
import random

import pyarrow as pa
import pytest
from small_table import SCHEMA, content, rows

import mainstem
from mainstem.errors import CorruptTable, Invalid
from mainstem.writers.staged_rows import Stager
from mainstem.writers.write_task import write_task
from tests.storage.steps import storage_at

KINDS = ("SIMPLE", "RECORD_LEVEL_INDEX", "GLOBAL_SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX")
TASK_ROWS = ".hoodie/.mainstem/task-rows"


@pytest.fixture
def make(make_table):
    def make(kind="SIMPLE", **more):
        table = make_table(kind, buckets=None, hoodie__index__type=kind, **more)
        if "RECORD" in kind:
            table.create_index("record_index")
        table.upsert(rows(range(10), ts=1))
        return table

    return make


@pytest.fixture(params=KINDS)
def table(request, make):
    """Keys k0 to k9 in partition a."""
    return make(request.param)


def again(table):
    return mainstem.open_table(table.path, table.properties)


def shown(table):
    found = table.scan(columns=["id", "value"]).to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a key is doubled"
    report = table.validate_metadata()
    assert report is None or report.ok, report
    return content(table)


def task(spec, *tables, number=0):
    spec = pickle.loads(pickle.dumps(spec))
    batches = [batch for one in tables for batch in one.to_batches()]
    return write_task(spec, batches, task_partition=number, stage=1, attempt=0)


def stager(table, schema=SCHEMA, operation="upsert"):
    spec = pickle.loads(pickle.dumps(table.staging_spec(schema, operation)))
    return Stager(storage_at(spec.base), spec, "t1", random.SystemRandom())


def commit(table, *lines, operation="upsert"):
    with table.begin(operation) as txn:
        txn.add_staged(lines)
        return txn.commit()


@pytest.mark.supports("Writing", "Tables without buckets: rows of workers, placed at their commit")
def test_rows_of_tasks_go_where_their_keys_live_when_another_process_commits_them(table):
    spec = table.begin().detach()
    results = [task(spec, rows(range(8, 12), 2, "x")), task(spec, rows([20], 2), rows([9, 20], 3), number=1)]
    task(spec, rows([30], 2), number=2)  # of an attempt that does not count
    again(table).upsert(rows([10, 20], ts=1, value="other"))
    with again(table).resume(spec) as txn:
        for result in results:
            txn.add_task_result(result)
        txn.add_task_result(task(spec, number=3))  # without rows
        assert txn.commit().rows == 7
    expected = {**{f"k{k}": f"v{k}" for k in range(8)}, "k8": "x8", "k9": "v9", "k10": "x10", "k11": "x11"}
    assert shown(table) == {**expected, "k20": "v20"}
    left = storage_at(table.path).names(TASK_ROWS)
    assert [name.split("-")[1] for name in left] == ["2"]  # swept when it is old


@pytest.mark.parametrize("operation", ["insert_overwrite_table", "delete"])
def test_tasks_overwrite_and_delete(table, operation):
    with table.begin(operation) as txn:
        given = rows([3, 4], ts=5, value="new")
        given = given.select(["id", "city"]) if operation == "delete" else given
        txn.add_task_result(task(txn.task_spec(), given))
        txn.commit()
    kept = {f"k{k}": f"v{k}" for k in range(10) if k not in (3, 4)}
    assert shown(table) == (kept if operation == "delete" else {"k3": "new3", "k4": "new4"})


def test_staged_rows_and_deletions_are_applied_in_their_order(table):
    worker = stager(table)
    batch = pa.concat_tables([rows([1, 20, 21, 2], 3), rows([1, 20, 22], 4), rows([22], 5, "back")])
    deleted = pa.array([False, False, False, True, True, True, True, False])
    lines = [worker.stage(batch, deleted, order="2"), worker.stage(rows([21, 23], 9, "first"), order="1")]
    other = again(table)
    other.upsert(rows([20, 24], ts=1, value="other"))  # placed by another writer meanwhile
    assert commit(table, *lines).rows == 10
    expected = {f"k{k}": f"v{k}" for k in range(10) if k not in (1, 2)}
    assert shown(table) == {**expected, "k21": "first21", "k22": "back22", "k23": "first23", "k24": "other24"}


def test_staged_deletes_of_keys_that_lie_nowhere_are_committed(table):
    """Else a committer would commit their checkpoint again and again."""
    lines = [stager(table).stage(rows([40, 41], 3), pa.array([True, True]))]
    outcome = commit(table, *lines)
    assert (outcome.status, outcome.rows, outcome.files) == ("committed", 2, 0)
    assert shown(table) == {f"k{k}": f"v{k}" for k in range(10)}
    table.upsert(rows([40], ts=1))
    assert shown(table)["k40"] == "v40"


def test_columns_that_came_meanwhile_are_null_in_staged_rows_and_theirs_are_added(make):
    table = make()
    line = stager(table, SCHEMA.append(pa.field("mine", pa.int64()))).stage(
        rows([1, 20], 2).append_column("mine", pa.array([7, 8]))
    )
    table.upsert(rows([2, 21], 2).append_column("theirs", pa.array(["x", "y"])))
    commit(again(table), line)
    found = again(table).scan(columns=["id", "mine", "theirs"]).to_arrow().to_pylist()
    there = {row["id"]: (row["mine"], row["theirs"]) for row in found}
    assert (there["k1"], there["k20"], there["k21"]) == ((7, None), (8, None), (None, "y"))


def test_a_worker_refuses_what_the_commit_would_refuse(make):
    worker = stager(make())
    with pytest.raises(Invalid, match="key"):
        worker.stage(rows([1], 1).set_column(0, "id", pa.array([None], pa.string())))
    with pytest.raises(Invalid, match="value"):
        worker.stage(rows([1], 1).drop_columns(["value"]))
    assert not storage_at(worker._spec.base).names(".hoodie/.mainstem/flink/t1/staged")


@pytest.mark.parametrize("bend", ["flip", "cut", "gone", "rows"])
def test_damaged_rows_are_refused_and_nothing_is_committed(make, bend):
    table = make()
    line = stager(table).stage(rows([1, 20], 2))
    path = f".hoodie/.mainstem/flink/t1/staged/{json.loads(line)['file']}"
    storage = storage_at(table.path)
    data = bytearray(storage.read(path, max_bytes=10**6))
    if bend == "rows":
        record = json.loads(line)
        record["segments"][0][0] = 3
        line = json.dumps(record)
    else:
        storage.delete(path)
        data[-200] ^= 1
        if bend != "gone":
            storage.put_new(path, bytes(data if bend == "flip" else data[:-8]), durable=False)
    with pytest.raises(CorruptTable, match="handed over"):
        commit(table, line)
    assert len(shown(table)) == 10 and all(i.is_completed for i in table.timeline())


def test_rows_of_tables_with_and_without_buckets_are_not_taken_for_each_other(make, make_table):
    with_buckets = make_table("b", buckets=4)
    line = stager(with_buckets).stage(rows([1], 2))
    with pytest.raises(Invalid, match="another table"):
        commit(make(), line)
