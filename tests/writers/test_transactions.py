"""Goal: what a writer was told is what everybody sees, and nobody waits for another writer.

Method: real tables on the local file system through the public API; several tables opened on one path
stand for several writers; a thread stands for a writer that is stopped inside ``write``.
"""

from __future__ import annotations

import json
import os
import threading

import pyarrow as pa
import pytest
from small_table import content, rows

import mainstem
from mainstem import errors
from mainstem.writers.stream_guard import StreamGuard


def own_files(table):
    """Names of everything under .hoodie that is not the timeline, relative."""
    found = []
    for folder, _, names in os.walk(os.path.join(table.path, ".hoodie")):
        relative = os.path.relpath(folder, table.path)
        if "timeline" not in relative:
            found += [os.path.join(relative, n) for n in names]
    return found


def log_files(table):
    return [
        name
        for folder, _, names in os.walk(table.path)
        if ".hoodie" not in os.path.relpath(folder, table.path).split(os.sep)
        for name in names
        if ".log." in name
    ]


def test_an_upsert_is_visible_with_its_completion_time_and_the_newest_event_time_wins(make_table):
    table = make_table()
    first = table.upsert(rows(range(10), ts=5, value="old"))
    table.upsert(rows(range(5), ts=7, value="new"))
    table.upsert(rows(range(10), ts=6, value="late"))
    assert first.status == "committed" and first.instant < first.completion_time
    assert content(table) == {
        f"k{k}": (f"new{k}" if k < 5 else f"late{k}") for k in range(10)
    }


def test_a_delete_removes_the_row_whatever_its_event_time(make_table):
    table = make_table()
    table.upsert(rows(range(4), ts=100))
    table.delete(rows([1, 2], ts=1).select(["id", "city"]))
    assert sorted(content(table)) == ["k0", "k3"]


def test_rows_of_a_transaction_become_visible_together_at_commit(make_table):
    table = make_table()
    with table.begin("upsert") as txn:
        txn.write(rows(range(3), ts=1))
        txn.write(rows(range(3, 6), ts=1, city="b"))
        assert content(table) == {}
        outcome = txn.commit()
    assert outcome.rows == 6 and len(content(table)) == 6
    assert txn.commit() == outcome


def test_several_transactions_may_be_open_and_each_has_log_files_of_its_own(make_table):
    table = make_table(ordering=())
    one, two = table.begin(), table.begin()
    one.write(rows(range(4), ts=1, value="one"))
    two.write(rows(range(4), ts=1, value="two"))
    assert two.commit().status == one.commit().status == "committed"
    # Commit-time ordering goes by requested time: the transaction begun last wins.
    assert content(table) == {f"k{k}": f"two{k}" for k in range(4)}
    assert len(log_files(table)) == len(set(log_files(table))) == 4


def test_while_one_writer_stands_still_inside_write_others_complete_ten_commits(make_table):
    table = make_table()
    entered, go_on = threading.Event(), threading.Event()

    def slow_batches():
        stopped = mainstem.open_table(table.path)
        with stopped.begin("upsert") as txn:
            txn.write(rows(range(3), ts=50, value="slow"))
            entered.set()
            assert go_on.wait(200)
            txn.write(rows(range(3, 6), ts=50, value="slow"))
            txn.commit()

    writer = threading.Thread(target=slow_batches)
    writer.start()
    assert entered.wait(200)
    other = mainstem.open_table(table.path)
    outcomes = [other.upsert(rows(range(6), ts=n, value=f"n{n}-")) for n in range(10)]
    assert [o.status for o in outcomes] == ["committed"] * 10
    go_on.set()
    writer.join(200)
    assert content(table) == {f"k{k}": f"slow{k}" for k in range(6)}


def test_an_abort_leaves_no_file_and_no_pending_instant(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    before = set(log_files(table))
    with pytest.raises(RuntimeError, match="stop"), table.begin() as txn:
        txn.write(rows(range(5), ts=9))
        raise RuntimeError("stop")
    assert set(log_files(table)) == before
    assert not [i for i in table.timeline() if not i.is_completed]
    assert content(table) == {"k1": "v1"}


def test_an_empty_transaction_publishes_nothing(make_table):
    table = make_table()
    with table.begin() as txn:
        assert txn.commit().status == "empty"
    assert table.upsert(rows([], ts=1)).status == "empty"
    assert table.timeline() == []


def test_the_number_of_own_files_does_not_grow_with_the_commits(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    few = len(own_files(table))
    for n in range(12):
        table.upsert(rows([n], ts=n))
    assert len(own_files(table)) == few


def test_times_increase_although_the_clocks_of_the_writers_differ_by_seconds(make_table):
    table = make_table()
    ahead = mainstem.open_table(table.path, clock_offset_ms=5_000)
    behind = mainstem.open_table(table.path, clock_offset_ms=-5_000)
    outcomes = [t.upsert(rows([n], ts=n)) for n, t in enumerate([ahead, behind, ahead, behind])]
    times = [t for o in outcomes for t in (o.instant, o.completion_time)]
    assert times == sorted(times) and len(set(times)) == len(times)


def test_a_timeline_far_ahead_of_the_clock_is_an_error_by_name(make_table):
    table = make_table()
    mainstem.open_table(table.path, clock_offset_ms=50_000).upsert(rows([1], ts=1))
    behind = mainstem.open_table(table.path, clock_offset_ms=-50_000)
    with pytest.raises(errors.Invalid, match="ahead of this machine's clock"):
        behind.upsert(rows([2], ts=1))
    assert content(table) == {"k1": "v1"}


def test_a_micro_batch_is_committed_once_however_often_it_is_replayed(make_table):
    table = make_table()
    guard = StreamGuard("stream-1", 4, 0)
    with table.begin(guard=guard) as txn:
        txn.write(rows([1], ts=1))
        first = txn.commit()
    replayed = mainstem.open_table(table.path)
    with replayed.begin(guard=guard) as txn:
        assert txn.already_committed and txn.write(rows([2], ts=1)) == 0
        assert txn.commit().status == "already_committed"
        assert txn.commit().instant == first.instant
    with replayed.begin(guard=StreamGuard("stream-1", 4, 1)) as txn:
        txn.write(rows([3], ts=1))
        assert txn.commit().status == "committed"
    with replayed.begin(guard=StreamGuard("stream-1", 3, 7)) as txn:
        assert txn.already_committed, "a stale driver must not write an older batch again"
    assert sorted(content(table)) == ["k1", "k3"]


def test_two_live_drivers_cannot_both_commit_one_micro_batch(make_table):
    table = make_table()
    guard = StreamGuard("s", 0, 0)
    one = mainstem.open_table(table.path).begin(guard=guard)
    two = mainstem.open_table(table.path).begin(guard=guard)
    one.write(rows([1], ts=1, value="one"))
    two.write(rows([1], ts=1, value="two"))
    assert one.commit().status == "committed"
    assert two.commit().status == "already_committed"
    assert content(table) == {"k1": "one1"}
    assert len(log_files(table)) == 1


def test_javas_archived_batches_are_found_though_a_later_one_of_ours_was_announced_and_died(make_table):
    from mainstem.timeline.commit_metadata import STREAM_KEY

    least = {"clean.commits.retained": "1", "keep.min.commits": "2", "keep.max.commits": "3"}
    table = mainstem.open_table(make_table().path, {f"hoodie.{key}": text for key, text in least.items()})
    dead = table.begin(guard=StreamGuard("s", 9))
    dead.write(rows([9], ts=1))
    table.writer_context().guards.announce(StreamGuard("s", 9), dead.instant)
    dead.abort()
    # A restore, or a checkpoint that was reset: Java goes on from an earlier batch, and stops.
    with table.begin(extra_metadata={STREAM_KEY: json.dumps({"s": "5"})}) as java:
        java.write(rows([5], ts=1))
        java.commit()
    table.begin(guard=StreamGuard("s", 6)).abort()
    for key in range(10, 16):
        table.upsert(rows([key], ts=1))
    table.clean()
    assert table.archive() is not None
    assert not any(i.requested == java.instant for i in table.timeline())
    with mainstem.open_table(table.path).begin(guard=StreamGuard("s", 5)) as replayed:
        assert replayed.already_committed


def test_the_guard_stands_in_the_instant_in_javas_form_too(make_table):
    from mainstem.timeline.commit_metadata import STREAM_KEY, decode_commit

    table = make_table()
    with table.begin(guard=StreamGuard("my-stream", 12, 0)) as txn:
        txn.write(rows([1], ts=1))
        txn.commit()
    path = os.path.join(table.path, ".hoodie/timeline", table.timeline()[0].file_name)
    with open(path, "rb") as file:
        extra = decode_commit(file.read(), path=path).extra
    assert json.loads(extra[STREAM_KEY]) == {"my-stream": "12"}


def test_update_columns_keeps_the_other_columns_and_refuses_nulls(make_table):
    table = make_table(
        ordering=(), **{"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    )
    table.upsert(rows(range(3), ts=1))
    update = pa.table({"id": ["k1"], "city": ["a"], "value": ["changed"]})
    table.update_columns(update)
    found = table.scan(columns=["id", "ts", "value"]).to_arrow().sort_by("id").to_pylist()
    assert found[1] == {"id": "k1", "ts": 1, "value": "changed"}
    with pytest.raises(errors.Invalid, match="cannot set a cell to null"):
        table.update_columns(pa.table({"id": ["k1"], "city": ["a"], "value": pa.nulls(1, pa.string())}))


def test_update_columns_is_refused_where_it_would_erase_the_other_columns(make_table):
    table = make_table()
    with pytest.raises(errors.Unsupported, match="IGNORE_DEFAULTS"):
        table.update_columns(pa.table({"id": ["k1"], "city": ["a"], "value": ["x"]}))


def test_changes_after_a_completion_time_are_exactly_the_later_commits(make_table):
    table = make_table()
    first = table.upsert(rows(range(3), ts=1))
    second = table.upsert(rows(range(2, 5), ts=2, value="w"))
    third = table.upsert(rows([9], ts=0))
    changed = table.changes(after=first.completion_time, until=second.completion_time)
    assert sorted(changed.to_arrow()["id"].to_pylist()) == ["k2", "k3", "k4"]
    later = table.changes(after=second.completion_time).to_arrow()
    assert later["id"].to_pylist() == ["k9"]
    assert third.completion_time > second.completion_time


@pytest.mark.disk("on a store nothing is written before the commit")
def test_a_transaction_whose_write_failed_halfway_cannot_be_committed(make_table, monkeypatch):
    from mainstem.storage.local import LocalUpload

    table = make_table(partition_by=(), buckets=8)
    real, calls = LocalUpload.append, []

    def full_disk(self, buffers):
        calls.append(self)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(self, buffers)

    txn = table.begin()
    with monkeypatch.context() as patched:
        patched.setattr(LocalUpload, "append", full_disk)
        with pytest.raises(errors.Unavailable, match="No space left"):
            txn.write(rows(range(50), ts=1))
    with pytest.raises(errors.Invalid, match="halfway"):
        txn.commit()
    txn.abort()
    assert content(table) == {} and log_files(table) == []
