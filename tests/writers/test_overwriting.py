"""Goal: an overwrite hides what was there before it, loses nothing written beside it, and aborts nobody.

Method: tables through the public API. What happens beside an overwrite happens between its begin and its
commit: writes, plans, compactions, bulk inserts and other overwrites.
"""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest
from small_table import content, rows

import mainstem
from mainstem.errors import Invalid, RolledBack, Unavailable, Unsupported
from mainstem.writers import overwriting
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.stream_positions import StreamPositions
from mainstem.writers.write_task import write_task


@pytest.fixture
def table(make_table):
    """Partitions a (k0 to k9) and b (k10 to k19), in base files and log files."""
    made = make_table(buckets=2)
    made.upsert(pa.concat_tables([rows(range(10), ts=1), rows(range(10, 20), ts=1, city="b")]))
    made.compact()
    made.upsert(pa.concat_tables([rows(range(5), ts=2), rows(range(10, 15), ts=2, city="b")]))
    return made


def again(table):
    """The same table in another writer."""
    return mainstem.open_table(table.path, table.properties)


def keys(table, **options):
    return {int(key[1:]) for key in content(table, **options)}


def passed_by(table, *beside, new=range(100, 104)):
    """The outcome of an overwrite of partition a beside which all this happened."""
    with table.begin("insert_overwrite") as txn:
        txn.write(rows(new, ts=0, value="new"))
        for step in beside:
            step(again(table))
        return txn.commit()


@pytest.mark.supports("Writing", "insert_overwrite, insert_overwrite_table, delete_partition, truncate")
def test_an_overwrite_replaces_the_partitions_of_its_rows_and_no_others(table):
    outcome = table.insert_overwrite(rows(range(3, 6), ts=0, value="new"))
    assert outcome.status == "committed" and outcome.rows == 3
    assert content(table) == {
        **{f"k{k}": f"new{k}" for k in range(3, 6)},
        **{f"k{k}": f"v{k}" for k in range(10, 20)},
    }
    assert content(table, mode="read_optimized") == content(table)


def test_an_overwritten_table_holds_the_new_rows_alone(table):
    table.insert_overwrite_table(rows([50], ts=0, city="c"))
    assert keys(table) == {50}


def test_a_deleted_partition_and_a_truncated_table_are_empty_and_can_be_written_again(table):
    table.delete_partition("a")
    assert keys(table) == set(range(10, 20))
    table.truncate()
    assert keys(table) == set()
    table.upsert(rows([1], ts=0, value="again"))
    assert content(table) == {"k1": "again1"}
    table.compact()
    assert content(table) == {"k1": "again1"}


def test_nothing_is_published_where_nothing_is_to_be_overwritten(make_table):
    table = make_table()
    assert table.truncate().status == "empty"
    assert table.insert_overwrite(rows([], ts=0)).status == "empty"
    assert table.timeline() == []


def test_older_rows_stay_hidden_after_upserts_compactions_cleaning_and_archiving(table):
    table.insert_overwrite(rows(range(3, 6), ts=0, value="new"))
    served = mainstem.open_table(
        table.path,
        {
            **table.properties,
            "hoodie.compact.inline.max.delta.commits": "1", "hoodie.clean.commits.retained": "1",
            "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3",
        },
    )  # fmt: skip
    for n in range(4):
        served.upsert(rows([3], ts=n + 5, value="later"))
        assert all(ran.error is None for ran in served.run_services())
    assert content(served) == {
        **{f"k{k}": f"new{k}" for k in (4, 5)}, "k3": "later3",
        **{f"k{k}": f"v{k}" for k in range(10, 20)},
    }  # fmt: skip


def test_a_time_before_the_overwrite_still_has_the_older_rows(table):
    before = table.timeline()[-1]
    table.insert_overwrite_table(rows([50], ts=0))
    assert keys(table, as_of=before.requested) == set(range(20))
    assert keys(table, as_of_completion=before.completion) == set(range(20))


def test_the_rows_of_an_overwrite_are_its_changes(table):
    done = table.timeline()[-1].completion
    outcome = table.insert_overwrite(rows(range(3, 6), ts=0, value="new"))
    found = table.changes(after=done).to_arrow()
    assert sorted(found["id"].to_pylist()) == ["k3", "k4", "k5"]
    assert set(found["_hoodie_commit_time"].to_pylist()) == {outcome.instant}


def test_a_change_set_tells_what_an_overwrite_hid(table):
    done = table.timeline()[-1].completion
    table.upsert(rows([6, 300], ts=9))
    with table.begin("insert_overwrite") as txn:
        txn.write(rows([3, 4, 400], ts=0, value="new"))
        again(table).upsert(rows([0], ts=0, value="beside"))
        txn.commit()
    found = table.changes(after=done, deletes=True).to_arrow().to_pylist()
    told = {row["id"]: row["_change_type"] for row in found}
    assert len(found) == len(told)
    gone = {"k1", "k2", "k5", "k6", "k7", "k8", "k9", "k300"}
    assert {key for key, kind in told.items() if kind == "delete"} == gone
    assert {key for key, kind in told.items() if kind != "delete"} == {"k0", "k3", "k4", "k400"}


def test_a_key_that_was_written_beside_an_overwrite_is_no_delete_of_it(table):
    with table.begin("insert_overwrite") as txn:
        txn.write(rows([400], ts=0, value="new"))
        beside = again(table).upsert(rows([1], ts=0, value="beside"))
        txn.commit()
    found = table.changes(after=beside.completion_time, deletes=True).to_arrow().to_pylist()
    gone = {row["id"] for row in found if row["_change_type"] == "delete"}
    assert gone == {f"k{key}" for key in range(10)} - {"k1"}


def test_what_completes_beside_an_overwrite_stays_on_top_of_it(table):
    def write(other):
        other.upsert(rows([1, 200], ts=-5, value="beside"))
        other.delete(rows([101], ts=0).select(["id", "city"]))

    passed_by(table, write)
    found = content(table)
    assert {k: found[k] for k in found if int(k[1:]) not in range(10, 20)} == {
        "k1": "beside1", "k200": "beside200", "k100": "new100", "k102": "new102", "k103": "new103",
    }  # fmt: skip


def test_a_write_that_began_before_and_ends_after_an_overwrite_stays(table):
    with again(table).begin() as txn:
        txn.write(rows([1, 200], ts=9, value="beside"))
        table.insert_overwrite(rows(range(100, 104), ts=0, value="new"))
        txn.commit()
    assert keys(table) - set(range(10, 20)) == {1, 200, 100, 101, 102, 103}


@pytest.mark.parametrize("executed", [True, False])
def test_an_overwrite_that_a_compaction_was_planned_beside_is_made_again_after_it(table, executed):
    begun = []

    def beside(other):
        begun.append(other.schedule_compaction())
        if executed:
            other.run_compaction()

    outcome = passed_by(table, beside)
    assert outcome.status == "committed" and outcome.rows == 4 and outcome.instant > begun[0]
    assert keys(table) - set(range(10, 20)) == {100, 101, 102, 103}
    table.run_compaction()
    assert keys(table) - set(range(10, 20)) == {100, 101, 102, 103}
    assert not [i for i in table.timeline() if not i.is_completed]


def test_a_compaction_that_was_planned_before_may_end_at_any_time(table):
    planned = table.schedule_compaction()
    passed_by(table, lambda other: other.run_compaction(planned))
    assert keys(table) - set(range(10, 20)) == {100, 101, 102, 103}

    table.upsert(rows([104], ts=1))
    planned = table.schedule_compaction()
    table.insert_overwrite(rows([105], ts=0))
    table.run_compaction(planned)
    assert keys(table) - set(range(10, 20)) == {105}


MERGING = {
    "hoodie.log.compaction.enable": "true", "hoodie.log.compaction.blocks.threshold": "2",
    "hoodie.mainstem.log.compaction.beside.writers": "true",
}  # fmt: skip


def test_a_log_compaction_beside_an_overwrite_brings_nothing_back(table):
    for n in range(4):
        table.upsert(rows(range(5), ts=10 + n))
    passed_by(table, lambda other: mainstem.open_table(table.path, MERGING).log_compact())
    assert keys(table) - set(range(10, 20)) == {100, 101, 102, 103}


def test_a_log_compaction_that_stays_pending_is_named_and_nothing_is_overwritten(table, monkeypatch):
    for n in range(4):
        table.upsert(rows(range(5), ts=10 + n))
    merging = mainstem.open_table(table.path, MERGING)
    planned = merging.schedule_log_compaction()
    before = content(table)
    monkeypatch.setattr(overwriting, "PENDING_MAX_MS", 200)
    with pytest.raises(Unavailable, match=f"logcompaction {planned}.*pending log compactions"):
        table.insert_overwrite(rows([105], ts=0))
    assert content(table) == before
    merging.run_log_compaction()
    table.insert_overwrite(rows([105], ts=0))
    assert keys(table) - set(range(10, 20)) == {105}


def test_an_overwrite_waits_for_a_log_compaction_that_ends_soon(table):
    for n in range(4):
        table.upsert(rows(range(5), ts=10 + n))
    merging = mainstem.open_table(table.path, MERGING)
    merging.schedule_log_compaction()
    ends = threading.Timer(0.5, merging.run_log_compaction)
    ends.start()
    table.insert_overwrite(rows([105], ts=0))
    ends.join()
    assert keys(table) - set(range(10, 20)) == {105}


def test_a_bulk_insert_that_completes_beside_an_overwrite_is_overwritten_with_the_rest(make_table):
    table = make_table(buckets=1)
    table.upsert(rows([1], ts=1, city="b"))
    outcome = passed_by(table, lambda other: other.bulk_insert(rows(range(5), ts=1)))
    assert outcome.status == "committed"
    assert keys(table) == {1, 100, 101, 102, 103}


def test_a_bulk_insert_loses_to_an_overwrite_of_its_bucket_as_to_any_write(make_table):
    table = make_table(buckets=1)
    with table.begin("bulk_insert") as txn:
        txn.write(rows(range(5), ts=1))
        again(table).insert_overwrite(rows([7], ts=1))
        with pytest.raises(RolledBack, match="bucket 0"):
            txn.commit()
    assert keys(table) == {7}


@pytest.mark.parametrize("ends", [("first", "second"), ("second", "first")], ids="-".join)
def test_of_two_overwrites_the_one_that_was_requested_later_stays_whichever_ends_first(table, ends):
    with table.begin("insert_overwrite") as first, again(table).begin("insert_overwrite") as second:
        first.write(rows([31], ts=0))
        second.write(rows([32], ts=0))
        open_ones = {"first": first, "second": second}
        for name in ends:
            open_ones[name].commit()
    assert keys(table) - set(range(10, 20)) == {32}


def test_an_aborted_overwrite_leaves_everything_as_it_was(table):
    before = content(table)
    txn = table.begin("insert_overwrite_table")
    txn.write(rows([50], ts=0))
    txn.abort()
    assert content(table) == before


def test_rows_of_tasks_are_overwritten_and_made_again_too(table):
    with table.begin("insert_overwrite") as txn:
        batches = rows(range(100, 104), ts=0, value="new").to_batches()
        txn.add_task_result(write_task(txn.task_spec(), batches, task_partition=3, stage=1, attempt=0))
        again(table).schedule_compaction()
        assert txn.commit().rows == 4
    assert keys(table) - set(range(10, 20)) == {100, 101, 102, 103}


BESIDE = pytest.mark.parametrize(
    "beside", [[], [lambda table: table.schedule_compaction()]], ids=["alone", "passed by a plan"]
)


def in_tasks(txn, *parts):
    """Each part is written by a task of its own."""
    for task, part in enumerate(parts):
        written = write_task(txn.task_spec(), part.to_batches(), task_partition=task, stage=1, attempt=0)
        txn.add_task_result(written)


def data_files(table, partition):
    """Names of base files of the newest write."""
    last = max(i.requested for i in table.timeline() if i.action == "deltacommit")
    return [name for name in os.listdir(f"{table.path}/{partition}") if last in name and name[0] != "."]


@BESIDE
def test_tasks_that_wrote_the_same_buckets_overwrite_them_together(table, beside):
    with table.begin("insert_overwrite") as txn:
        newer = rows(range(103, 106), ts=1, value="newer")
        in_tasks(txn, newer, rows(range(100, 104), ts=0, value="new"), rows(range(106, 110), ts=0, city="c"))
        txn.write(rows(range(110, 114), ts=0, value="driver"))
        for step in beside:
            step(again(table))
        assert txn.commit().rows == 15
    assert content(table) == {
        **{f"k{k}": f"new{k}" for k in range(100, 103)},
        **{f"k{k}": f"newer{k}" for k in range(103, 106)},
        **{f"k{k}": f"v{k}" for k in (*range(10, 20), *range(106, 110))},
        **{f"k{k}": f"driver{k}" for k in range(110, 114)},
    }
    assert content(table, mode="read_optimized") == content(table)
    assert len(data_files(table, "a")) == 2, "one file for each bucket, and none of the tasks' parts"


def flagged(keys, ts, deleted, city="a"):
    given = rows(keys, ts=ts, city=city)
    return given.append_column("_hoodie_is_deleted", pa.array([deleted] * given.num_rows, pa.bool_()))


@pytest.mark.parametrize("tasks", ["one task", "two tasks", "no task"])
def test_a_row_is_deleted_whichever_task_had_the_delete(table, tasks):
    gone, there = flagged([101, 102], 5, True), flagged(range(100, 103), 3, False)
    with table.begin("insert_overwrite") as txn:
        txn.declare(gone.schema)
        if tasks == "no task":
            txn.write(pa.concat_tables([gone, there]))
        elif tasks == "one task":
            in_tasks(txn, pa.concat_tables([gone, there]))
        else:
            in_tasks(txn, gone, there)
        txn.commit()
    assert keys(table) == {100, *range(10, 20)}
    assert table.scan(columns=["id"], mode="read_optimized").to_arrow().num_rows == 11


@BESIDE
@pytest.mark.parametrize("in_a_task", [False, True], ids=["here", "in a task"])
def test_a_partition_of_which_only_deletes_were_given_is_empty(table, in_a_task, beside):
    gone = flagged([1, 2], 9, True)
    with table.begin("insert_overwrite") as txn:
        txn.declare(gone.schema)
        in_tasks(txn, gone) if in_a_task else txn.write(gone)
        for step in beside:
            step(again(table))
        txn.commit()
    assert keys(table) == set(range(10, 20))


def test_the_parts_of_tasks_that_do_not_count_are_not_joined(table):
    with table.begin("insert_overwrite") as txn:
        lost = rows(range(200, 204), ts=9, value="lost")
        write_task(txn.task_spec(), lost.to_batches(), task_partition=0, stage=1, attempt=7)
        in_tasks(txn, rows(range(100, 104), ts=0), rows(range(104, 108), ts=0))
        assert txn.commit().rows == 8
    assert keys(table) == {*range(100, 108), *range(10, 20)}
    assert len(data_files(table, "a")) == 2


@BESIDE
def test_another_process_commits_what_tasks_overwrote_as_sparks_data_source_does(table, beside):
    spec = table.begin("insert_overwrite").detach()
    parts = [rows(range(100, 104), ts=0), rows(range(102, 108), ts=1)]
    results = [
        write_task(spec, part.to_batches(), task_partition=task, stage=1, attempt=0)
        for task, part in enumerate(parts)
    ]
    for step in beside:
        step(again(table))
    with again(table).resume(spec) as txn:
        for result in results:
            txn.add_task_result(result)
        assert txn.commit().status == "committed"
    assert keys(table) == {*range(100, 108), *range(10, 20)}
    assert len(data_files(table, "a")) == 2


def test_new_columns_come_with_an_overwrite(table):
    wider = rows([1], ts=0).append_column("more", pa.array([7]))
    with table.begin("insert_overwrite") as txn:
        txn.write(wider)
        again(table).schedule_compaction()
        txn.commit()
    found = table.scan(columns=["id", "more"]).to_arrow()
    assert dict(zip(*found.to_pydict().values(), strict=True))["k1"] == 7


@pytest.mark.parametrize("index", ["column_stats", "record_index", "secondary"])
def test_queries_by_indexes_find_what_is_there_and_nothing_that_was_overwritten(make_table, index):
    import pyarrow.compute as pc

    table = make_table(buckets=2)
    table.upsert(rows(range(10), ts=1))
    if index == "secondary":
        table.create_index("record_index")
        table.create_index("secondary_index", ["value"])
    else:
        table.create_index(index)
    table.insert_overwrite(rows(range(8, 12), ts=0, value="new"))
    table.upsert(rows([20], ts=0, value="later"))
    for key, value in (("k8", "new8"), ("k2", None), ("k20", "later20")):
        found = table.scan(filter=pc.field("id") == key).to_arrow()
        assert found["value"].to_pylist() == ([value] if value else [])
    assert table.scan(filter=pc.field("value") == "v3").to_arrow().num_rows == 0
    assert table.scan(filter=pc.field("value") == "new9").to_arrow()["id"].to_pylist() == ["k9"]
    report = table.validate_metadata()
    assert report is not None and report.ok, report


@pytest.mark.parametrize("name", ["nowhere", "", "a/../b", ".hoodie", ".."])
def test_only_a_partition_of_the_table_is_deleted(table, name):
    before = content(table)
    with pytest.raises(Invalid, match="no such partition"):
        table.delete_partition(name)
    assert content(table) == before


def test_a_micro_batch_is_no_overwrite(table):
    with pytest.raises(Unsupported, match="each batch"):
        table.begin("insert_overwrite", guard=StreamGuard("job", 1, 0))
    with pytest.raises(Unsupported, match="each batch"):
        table.begin("insert_overwrite", guard=StreamPositions("log", {"0": None}, {"0": 7}))


@pytest.mark.parametrize("first", ["this", "another"])
def test_a_stream_that_was_emptied_empties_the_table_once(table, first):
    guard = StreamPositions("log", {"0": None}, {"0": 7})

    def emptied(by, key):
        with by.begin("insert_overwrite_table", guard=guard) as txn:
            if not txn.already_committed:
                txn.write(rows([key], ts=0))
            if key == 200:
                again(table).schedule_compaction()  # so that it is made again
                if first == "another":
                    emptied(again(table), 300)
            return txn.commit().status

    assert emptied(table, 200) == ("committed" if first == "this" else "already_committed")
    kept = {200 if first == "this" else 300}
    assert keys(table) == kept
    table.upsert(rows([1], ts=3))
    assert emptied(again(table), 400) == "already_committed"
    table.run_compaction()
    assert keys(table) == kept | {1}
    assert table.opened.stream_positions("log").ends == {"0": 7}
    assert not [i for i in table.timeline() if not i.is_completed]


def test_empty_base_files_are_small(table):
    outcome = table.delete_partition("a")
    assert outcome.files == 2 and outcome.bytes < 20_000
    assert os.path.isdir(os.path.join(table.path, "a"))
