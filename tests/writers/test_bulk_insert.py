"""Goal: a bulk insert makes base files that nobody's rows vanish behind, and loses where Hudi's does.

Method: tables on the local file system through the public API. Base files are told by their names;
overlaps are made by opening a second transaction between a bulk insert's begin and its commit.
"""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_table import content, rows

import mainstem
from mainstem.errors import Invalid, RolledBack
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.write_task import write_task


def files(table, ending):
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(table.path)
        if ".hoodie" not in os.path.relpath(folder, table.path).split(os.sep)
        for name in names
        if ending in name
    )


def metadata(table):
    newest = table.timeline()[-1]
    name = f"{newest.requested}_{newest.completion}.{newest.action}"
    with open(os.path.join(table.path, ".hoodie", "timeline", name), "rb") as file:
        return decode_commit(file.read(), path=name)


@pytest.mark.supports("Writing", "insert and bulk_insert (base files)")
def test_a_bulk_insert_makes_one_base_file_per_partition_and_bucket(make_table):
    table = make_table(buckets=2)
    both = pa.concat_tables([rows(range(20), ts=1), rows(range(20, 30), ts=1, city="b")])
    outcome = table.bulk_insert(both)
    bases = files(table, ".parquet")
    assert outcome.files == len(bases) == 4 and not files(table, ".log.")
    assert {os.path.basename(b)[:8] for b in bases} == {"00000000", "00000001"}
    assert len(content(table)) == 30
    found = table.scan().to_arrow()
    assert set(found["_hoodie_file_name"].to_pylist()) == {os.path.basename(b) for b in bases}
    assert set(found["_hoodie_commit_time"].to_pylist()) == {outcome.instant}
    assert content(table, mode="read_optimized") == content(table)


def test_its_write_stats_are_those_of_new_base_files(make_table):
    table = make_table(buckets=1)
    table.bulk_insert(rows(range(5), ts=1))
    written = metadata(table)
    (stat,) = written.stats["a"]
    assert written.operation == "BULK_INSERT"
    assert (stat["prevCommit"], stat["numInserts"], stat["numUpdateWrites"]) == ("null", 5, 0)
    assert stat["logFiles"] is None and stat["baseFile"] is None and stat["logVersion"] is None
    assert stat["fileSizeInBytes"] == os.path.getsize(os.path.join(table.path, stat["path"]))


def test_later_upserts_and_deletes_merge_onto_its_base_files(make_table):
    table = make_table()
    table.bulk_insert(rows(range(10), ts=5, value="base"))
    table.upsert(rows(range(3), ts=6, value="new"))
    table.upsert(rows(range(3, 5), ts=4, value="late"))
    table.delete(rows([9], ts=0).select(["id", "city"]))
    assert content(table) == {f"k{k}": f"new{k}" if k < 3 else f"base{k}" for k in range(9)}


def test_buckets_that_have_files_get_log_blocks_and_nothing_becomes_invisible(make_table):
    table = make_table(buckets=1)
    table.upsert(rows(range(5), ts=1, value="old"))
    table.bulk_insert(rows(range(3, 8), ts=2, value="new"))
    assert not files(table, ".parquet")
    assert content(table) == {f"k{k}": f"old{k}" if k < 3 else f"new{k}" for k in range(8)}
    table.bulk_insert(rows(range(8, 9), ts=1, city="b"))
    assert len(files(table, ".parquet")) == 1 and len(content(table)) == 9


def test_rows_that_share_a_key_are_merged_before_they_are_written(make_table):
    table = make_table(buckets=1)
    twice = pa.concat_tables([rows(range(4), ts=5, value="new"), rows(range(2, 6), ts=4, value="late")])
    outcome = table.bulk_insert(twice)
    assert outcome.rows == 8
    assert pq.read_metadata(files(table, ".parquet")[0]).num_rows == 6
    assert content(table) == {f"k{k}": f"new{k}" if k < 4 else f"late{k}" for k in range(6)}


def test_batches_of_one_transaction_share_their_base_files(make_table):
    table = make_table(buckets=1)
    with table.begin("bulk_insert") as txn:
        txn.write(rows(range(5), ts=1))
        txn.write(rows(range(3, 9), ts=2, value="second"))
        assert txn.commit().files == 1
    assert content(table)["k3"] == "second3" and len(content(table)) == 9


def test_an_aborted_bulk_insert_leaves_no_file(make_table):
    table = make_table()
    txn = table.begin("bulk_insert")
    txn.write(rows(range(5), ts=1))
    txn.abort()
    assert not files(table, ".parquet") and not files(table, ".log.")
    assert [i.action for i in table.timeline()] == ["rollback"]


def test_it_loses_to_an_upsert_of_the_same_bucket_that_completed_meanwhile(make_table):
    table, other = make_table(buckets=1), None
    txn = table.begin("bulk_insert")
    txn.write(rows(range(5), ts=1))
    other = mainstem.open_table(table.path, table.properties)
    done = other.upsert(rows([7], ts=1))
    with pytest.raises(RolledBack, match=f"deltacommit {done.instant} reached for bucket 0"):
        txn.commit()
    assert content(table) == {"k7": "v7"}
    assert not files(table, ".parquet")
    assert table.bulk_insert(rows(range(5), ts=1)).status == "committed"
    assert len(content(table)) == 6


def test_it_wins_against_other_buckets_other_partitions_and_what_completes_later(make_table):
    table = make_table(buckets=1)
    txn, late = table.begin("bulk_insert"), table.begin("upsert")
    txn.write(rows(range(5), ts=1))
    late.write(rows(range(4, 6), ts=2, value="late"))
    table.upsert(rows([7], ts=1, city="b"))
    assert txn.commit().status == late.commit().status == "committed"
    assert content(table) == {**{f"k{k}": f"v{k}" for k in (0, 1, 2, 3, 7)}, "k4": "late4", "k5": "late5"}


def test_of_two_bulk_inserts_of_one_bucket_the_second_to_commit_loses(make_table):
    table = make_table(buckets=1)
    one, two = table.begin("bulk_insert"), table.begin("bulk_insert")
    one.write(rows(range(3), ts=1, value="one"))
    two.write(rows(range(3), ts=1, value="two"))
    assert two.commit().status == "committed"
    with pytest.raises(RolledBack, match="overlaps another write"):
        one.commit()
    assert content(table) == {f"k{k}": f"two{k}" for k in range(3)}


def test_of_two_drivers_with_one_micro_batch_the_second_is_told_that_it_is_committed(make_table):
    table, guard = make_table(buckets=1), StreamGuard("stream", 0)
    one, two = (table.begin("bulk_insert", guard=guard) for _ in range(2))
    one.write(rows(range(3), ts=1))
    two.write(rows(range(3), ts=1))
    first, second = two.commit(), one.commit()
    assert (first.status, second.status) == ("committed", "already_committed")
    assert second.instant == first.instant and len(content(table)) == 3


def test_an_insert_goes_to_log_files_and_updates_keys_that_are_there(make_table):
    table = make_table()
    table.insert(rows(range(5), ts=1))
    table.insert(rows(range(5), ts=2, value="again"))
    assert not files(table, ".parquet")
    assert metadata(table).operation == "INSERT"
    assert content(table) == {f"k{k}": f"again{k}" for k in range(5)}


def test_tasks_write_base_files_and_two_for_one_bucket_are_refused(make_table):
    table = make_table(buckets=1)
    with table.begin("bulk_insert") as txn:
        for number in (0, 1):
            result = write_task(
                txn.task_spec(), [rows([number], ts=1).to_batches()[0]],
                task_partition=number, stage=0, attempt=number,
            )  # fmt: skip
            assert json.loads(result)["files"][0][2].endswith(".parquet")
            txn.add_task_result(result)
        with pytest.raises(Invalid, match="two tasks wrote a base file for bucket 00000000"):
            txn.commit()
    assert content(table) == {} and not files(table, ".parquet")


def test_options_of_base_files_are_hudis_and_checked_when_writing_starts(make_table):
    given = {"hoodie.parquet.compression.codec": "zstd", "hoodie.parquet.bloom.filter.enabled": "false"}
    table = make_table()
    mainstem.open_table(table.path, given).bulk_insert(rows(range(5), ts=1))
    footer = pq.read_metadata(files(table, ".parquet")[0])
    assert footer.row_group(0).column(0).compression == "ZSTD"
    assert b"org.apache.hudi.bloomfilter" not in footer.metadata
    wrong = mainstem.open_table(table.path, {"hoodie.parquet.compression.codec": "rar"})
    with pytest.raises(Invalid, match=r"hoodie\.parquet\.compression\.codec='rar'"):
        wrong.upsert(rows([1], ts=1))
