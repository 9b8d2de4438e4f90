"""Goal: another number of buckets changes no row, in no query, and loses none of what is written beside it.

Method: tables through the public API, opened by several writers, before, between and after. What happens
beside a resize happens between a transaction's begin and its commit, or within the resize's own steps. Deaths
are those of ``tests/crash``, races the simulator's (``tests/sim/resize_world.py``).
"""

from __future__ import annotations

import json
import random
import threading
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small_table import SCHEMA, content, rows

import mainstem
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, RolledBack, Unavailable, Unsupported
from mainstem.layout.properties import load_config
from mainstem.services import compaction, resizing
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.truetime.instant_times import instant_text, parse_wall
from mainstem.writers.staged_rows import Stager
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.write_task import write_task

pytestmark = pytest.mark.supports("Services", "resize: another number of buckets beside writers")


@pytest.fixture
def table(make_table):
    """Partitions a (k0 to k19) and b (k20 to k39) of four buckets, in base files and log files."""
    made = make_table(buckets=4)
    made.upsert(pa.concat_tables([rows(range(20), ts=1), rows(range(20, 40), ts=1, city="b")]))
    made.compact()
    made.upsert(pa.concat_tables([rows(range(8), ts=2, value="w"), rows(range(20, 28), ts=2, city="b")]))
    made.delete(rows([0, 20], ts=0).set_column(1, "city", pa.array(["a", "b"])).select(["id", "city"]))
    return made


def again(table, **options):
    """The same table in another writer."""
    return mainstem.open_table(table.path, {"hoodie.mainstem.fsync": "false", **options})


def without_file(table, **options):
    """All rows with Hudi's columns, but for the file that a row names."""
    found = table.scan(**options).to_arrow().drop_columns(["_hoodie_file_name"])
    return found.sort_by("_hoodie_record_key")


def buckets_of(table):
    """Partition -> buckets that hold rows."""
    slices = table.scan(columns=["_hoodie_file_name", "city"]).to_arrow().to_pylist()
    return {(one["city"], int(one["_hoodie_file_name"][:8])) for one in slices}


def check_indexes(table):
    report = table.validate_metadata()
    assert report is None or (report.ok and not report.differences), report


@pytest.mark.parametrize("count", [8, 2, 7, 1])
def test_a_resize_changes_no_row_now_or_in_the_past(table, count):
    before, optimized = without_file(table), content(table, mode="read_optimized")
    moment = max(i.completion or "" for i in table.timeline())
    reader = again(table)
    done = table.resize(count)
    assert (done.before, done.after, done.rounds) == (4, count, 1) and done.rows == before.num_rows
    for one in (table, reader, again(table)):
        assert without_file(one).equals(before)
        assert without_file(one, as_of_completion=moment).equals(before)
        assert content(one, mode="read_optimized") == content(one) != optimized
        for key in ("k5", "k27", "k0"):
            asked = pc.field("id") == key
            wanted = {k: v for k, v in content(table).items() if k == key}
            assert content(one, filter=asked) == wanted
            assert content(one, filter=asked, as_of_completion=moment) == wanted
    assert len(buckets_of(table)) == 2 * count
    assert table.changes(after=moment).to_arrow().num_rows == 0
    assert table.changes(after=moment, deletes=True).to_arrow().num_rows == 0
    assert table.resize(count).describe() == f"the table has {count} buckets already"


def test_a_writer_that_opened_the_table_before_writes_on_after_it(table):
    old, stale = again(table), again(table)
    old.upsert(rows([1], ts=3, value="x"))
    table.resize(6)
    for number, one in enumerate((old, table, stale, again(table), old)):
        keys = [1, 30 + number, 100 + number]
        one.upsert(pa.concat_tables([rows(keys[:1], 4 + number, "y"), rows(keys[1:], 4 + number, "y", "b")]))
        found = content(table)
        assert found["k1"] == "y1" and found[f"k{100 + number}"] == f"y{100 + number}"
    assert len(content(table)) == 43
    assert load_config(LocalStorage(table.path)).buckets == 6


def test_what_is_open_during_a_resize_goes_to_where_its_keys_live_now(table):
    wanted = content(table)
    old = again(table)
    guard = StreamGuard("stream", 0)
    txns = {
        "upsert": old.begin("upsert"),
        "delete": old.begin("delete"),
        "guarded": old.begin("upsert", guard=guard),
        "tasks": old.begin("upsert"),
        "empty": old.begin("upsert"),
    }
    txns["upsert"].write(rows(range(3, 6), ts=9, value="up"))
    txns["upsert"].write(rows(range(5, 7), ts=10, value="up again"))
    txns["delete"].write(rows([8, 9], ts=0).select(["id", "city"]))
    txns["guarded"].write(rows(range(200, 220), ts=9, value="guarded"))
    for task in range(2):
        part = rows(range(300 + 5 * task, 305 + 5 * task), ts=9, value="task", city="c")
        done = write_task(
            txns["tasks"].task_spec(), part.to_batches(), task_partition=task, stage=0, attempt=0
        )
        txns["tasks"].add_task_result(done)
    table.resize(7)
    outcomes = {name: txn.commit() for name, txn in txns.items()}
    assert {name: one.status for name, one in outcomes.items()} == {**dict.fromkeys(txns, "committed"),
                                                                    "empty": "empty"}  # fmt: skip
    assert [outcomes[name].rows for name in ("upsert", "delete", "guarded", "tasks")] == [5, 2, 20, 10]
    wanted |= {"k3": "up3", "k4": "up4", "k5": "up again5", "k6": "up again6"}
    wanted |= {f"k{k}": f"guarded{k}" for k in range(200, 220)}
    wanted |= {f"k{k}": f"task{k}" for k in range(300, 310)}
    del wanted["k8"], wanted["k9"]
    assert content(table) == wanted
    assert old.begin("upsert", guard=guard).already_committed
    assert not [i for i in table.timeline() if i.completion is None]
    table.compact()
    assert content(table) == wanted


def test_deletes_keep_their_ordering_value_and_partial_rows_their_columns(make_table):
    table = make_table(
        buckets=4, hoodie__table__partial__update__mode="IGNORE_DEFAULTS",
        hoodie__record__merge__property__hoodie__payload__delete__field="value",
        hoodie__record__merge__property__hoodie__payload__delete__marker="gone",
    )  # fmt: skip
    table.upsert(rows(range(10), ts=5))
    old = again(table)
    deleting, updating = old.begin("upsert"), old.begin("update_columns")
    gone = rows([1, 2], ts=0)
    gone = gone.set_column(2, "ts", pa.array([4, 6])).set_column(3, "value", pa.array(["gone", "gone"]))
    deleting.write(gone)
    updating.write(rows([3], ts=9, value="part").select(["id", "city", "ts", "value"]))
    table.resize(5)
    deleting.commit()
    updating.commit()
    found = content(table)
    assert "k1" in found and "k2" not in found and found["k3"] == "part3" and len(found) == 9


def staged(table, *keys, sink="s"):
    spec = table.staging_spec(SCHEMA)
    stager = Stager(LocalStorage(table.path, sync=False), spec, sink, random.SystemRandom())
    return [stager.stage(rows(some, ts=9, value=value)) for some, value in keys]


def test_rows_that_were_staged_before_a_resize_are_committed_after_it(table):
    wanted = content(table)
    lines = staged(table, (range(3, 6), "one"), ([5], "two"))
    table.resize(8)
    lines += staged(again(table), ([6], "three"))
    with table.begin("upsert") as txn:
        assert txn.add_staged(lines) == 5
        table.resize(3)
        txn.commit()
    assert content(table) == wanted | {"k3": "one3", "k4": "one4", "k5": "two5", "k6": "three6"}
    other = json.loads(lines[0])
    other["table"] = "0" * 16
    with table.begin("upsert") as txn, pytest.raises(Invalid, match="another table"):
        txn.add_staged([json.dumps(other)])


def test_an_overwrite_beside_a_resize_is_made_again_and_a_bulk_insert_ends(table):
    old = again(table)
    overwrite, bulk = old.begin("insert_overwrite"), old.begin("bulk_insert")
    overwrite.write(rows(range(3), ts=0, value="new"))
    bulk.write(rows(range(500, 510), ts=0, city="new"))
    table.resize(6)
    assert overwrite.commit().status == "committed"
    with pytest.raises(RolledBack, match="resize to 6 buckets"):
        bulk.commit()
    found = content(table)
    assert len(found) == 3 + 19 and [found[f"k{k}"] for k in range(3)] == ["new0", "new1", "new2"]


def test_writers_in_threads_lose_nothing_while_the_table_is_resized_again_and_again(make_table):
    table = make_table(buckets=2)
    table.upsert(rows(range(50), ts=0))
    stop, counts, failed = threading.Event(), [0, 0], []

    def write(number):
        mine = again(table)
        try:
            while not stop.is_set():
                counts[number] += 1
                mine.upsert(rows(range(10 * number, 10 * number + 30), ts=counts[number], value="w"))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        rounds = [table.resize(count).rounds for count in (5, 3)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed and all(rounds) and all(counts)
    found = table.scan(columns=["id", "ts"]).to_arrow()
    assert found.num_rows == 50
    ts = dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True))
    newest = {k: [counts[n] for n in range(2) if 10 * n <= k < 10 * n + 30] for k in range(50)}
    assert ts == {f"k{k}": max(some, default=0) for k, some in newest.items()}


def passing(monkeypatch, table, rounds, work):
    """Let ``work`` happen in each of the first rounds, once its files are there."""
    made, done = resizing._Round.make_files, []

    def make_files(self, *given):
        made(self, *given)
        if len(done) < rounds:
            done.append(self.instant)
            work(len(done))

    monkeypatch.setattr(resizing._Round, "make_files", make_files)


def test_partitions_that_nobody_touched_keep_their_files_in_the_next_round(table, monkeypatch):
    wanted, put = content(table), []
    base = resizing._BaseFiles.put
    monkeypatch.setattr(resizing._BaseFiles, "put", lambda self, p, new: (put.append(p), base(self, p, new)))
    passing(monkeypatch, table, 1, lambda n: again(table).upsert(rows([7], ts=9, value="late")))
    assert table.resize(8).rounds == 2
    assert content(table) == wanted | {"k7": "late7"}
    assert put.count("a") == 16 and put.count("b") == 8
    assert not [i for i in table.timeline() if i.completion is None]


def test_a_writer_waits_for_the_last_round_and_is_routed_anew(table, monkeypatch):
    wanted, told = content(table), []
    monkeypatch.setattr(resizing, "_OPEN_ROUNDS", 0)
    late = threading.Thread(target=lambda: told.append(again(table).upsert(rows([7], ts=9, value="late"))))

    def work(number):
        late.start()
        late.join(0.3)
        assert not told

    passing(monkeypatch, table, 1, work)
    done = table.resize(8)
    late.join()
    assert done.rounds == 1 and told[0].status == "committed" and told[0].completion_time > done.completion
    assert content(table) == wanted | {"k7": "late7"}


def plan_both(monkeypatch, table):
    assert table.schedule_compaction() is None and table.schedule_log_compaction(if_due=True) is None
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "is_under_way", lambda *given: False)
        assert table.schedule_compaction()


@pytest.mark.parametrize("planned", [True, False], ids=["planned before", "planned meanwhile"])
def test_a_compaction_beside_a_resize_brings_nothing_back(table, monkeypatch, planned):
    wanted, other = content(table), again(table)
    if planned:
        other.schedule_compaction()
        passing(monkeypatch, table, 1, lambda n: other.run_compaction())
    else:  # as another engine may plan it; ours wait
        passing(monkeypatch, table, 1, lambda n: plan_both(monkeypatch, other))
    done = table.resize(3)
    assert done.rounds == (1 if planned else 2)
    assert content(table) == wanted
    other.run_compaction()
    table.compact()
    assert content(table) == wanted == content(table, mode="read_optimized")


def test_a_log_compaction_that_is_pending_is_named(table, monkeypatch):
    table.upsert(rows([3], ts=3))
    planned = table.schedule_log_compaction()
    assert planned
    monkeypatch.setattr(resizing, "_PENDING_MAX_MS", 0)
    with pytest.raises(Unavailable, match=planned):
        table.resize(8)
    table.run_log_compaction()
    wanted = content(table)
    table.resize(8)
    assert content(table) == wanted


def test_a_resize_that_died_before_its_properties_is_ended_by_the_next_writer(table, monkeypatch):
    wanted, old = content(table), again(table)
    with monkeypatch.context() as patched:
        patched.setattr(resizing, "settle", lambda ctx: None)
        table.resize(8)
    assert load_config(LocalStorage(table.path)).buckets == 4
    assert content(old, filter=pc.field("id") == "k7") == {"k7": "w7"}
    for number, one in enumerate((old, again(table))):
        one.upsert(rows([7], ts=9 + number, value=f"late{number}-"))
        assert content(table) == wanted | {"k7": f"late{number}-7"}
        assert load_config(LocalStorage(table.path)).buckets == 8


def test_a_resize_that_comes_to_nothing_leaves_the_table_as_it_was(table, monkeypatch):
    wanted = content(table)
    with monkeypatch.context() as patched:
        patched.setattr(resizing._Round, "complete", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.resize(8)
    config = load_config(LocalStorage(table.path))
    assert config.buckets == 4 and not config.resizes
    assert not [i for i in table.timeline() if i.completion is None]
    again(table).upsert(rows([7], ts=9, value="late"))
    assert content(table) == wanted | {"k7": "late7"}


def test_indexes_say_where_keys_are_after_a_resize(make_table):
    table = make_table(buckets=2, hoodie__metadata__enable=True)
    for kind in ("column_stats", "record_index"):
        table.create_index(kind)
    table.create_index("secondary_index", ["value"], name="by_value")
    table.upsert(pa.concat_tables([rows(range(20), ts=1), rows(range(20, 40), ts=1, city="b")]))
    with again(table).begin("upsert") as txn:
        txn.write(rows(range(15, 25), ts=2, value="w"))
        table.resize(5)
        check_indexes(table)
        txn.commit()
    for count in (3, 1):
        check_indexes(table)
        assert content(table, filter=pc.field("id") == "k17") == {"k17": "w17"}
        assert content(table, filter=pc.field("value") == "v30") == {"k30": "v30"}
        table.resize(count)
    check_indexes(table)


def test_change_sets_across_a_resize_tell_each_key_once(table):
    start = max(i.completion or "" for i in table.timeline())
    table.delete(rows([3, 4], ts=0).select(["id", "city"]))
    table.upsert(rows([5, 6], ts=9, value="up"))
    table.resize(7)
    table.upsert(rows([3], ts=9, value="back"))
    table.delete(rows([5], ts=0).select(["id", "city"]))
    found = table.changes(after=start, deletes=True, columns=["_hoodie_record_key", "_change_type"])
    told = sorted((row["_hoodie_record_key"], row["_change_type"]) for row in found.to_arrow().to_pylist())
    assert told == [("k3", "upsert"), ("k4", "delete"), ("k5", "delete"), ("k6", "upsert")]


def test_a_bucket_that_does_not_fit_into_memory_is_read_for_each_new_one(table, monkeypatch):
    wanted = without_file(table)
    monkeypatch.setattr(resizing._Rehashed, "_held", lambda self, sources: None)
    table.resize(8)
    assert without_file(table).equals(wanted)


def test_jobs_may_go_on_with_the_old_number_in_their_options(table):
    table.resize(8)
    old = again(table, **{"hoodie.bucket.index.num.buckets": "4"})
    old.upsert(rows([7], ts=9, value="late"))
    assert content(table)["k7"] == "late7" and len(content(table)) == 38
    with pytest.raises(Invalid, match="contradicts the table"):
        again(table, **{"hoodie.bucket.index.num.buckets": "5"}).upsert(rows([7], ts=9))


def test_what_cannot_be_resized_is_refused_by_name(table, tmp_path):
    for wrong in (0, -1, True, "8", 2.0, 10**9):
        with pytest.raises(Invalid, match="buckets="):
            table.resize(wrong)
    plain = mainstem.create_table(
        tmp_path / "plain", SCHEMA, record_key="id", ordering="ts",
        properties={"hoodie.index.type": "SIMPLE"},
    )  # fmt: skip
    with pytest.raises(Unsupported, match="no buckets"):
        plain.resize(8)
    storage = table.opened.seams.storage
    storage.delete(f"{paths.FENCE}/{paths.MADE_HERE}")
    with pytest.raises(Unsupported, match="another engine"):
        again(table).resize(8)


@pytest.mark.disk("a file is made by hand")
def test_a_write_of_another_engine_in_flight_is_named(table, monkeypatch):
    storage, wanted = table.opened.seams.storage, content(table)
    newest = max(i.requested for i in table.timeline())
    theirs = instant_text(parse_wall(newest) + timedelta(milliseconds=1))

    def begin(_number=0):
        for state in ("requested", "inflight"):
            storage.put_new(paths.timeline_file(f"{theirs}.deltacommit.{state}"), b"", durable=False)
        storage.put_new(paths.heartbeat(theirs), b"", durable=False)

    def end():
        for state in ("inflight", "requested"):
            storage.delete(paths.timeline_file(f"{theirs}.deltacommit.{state}"))
        storage.delete(paths.heartbeat(theirs))

    begin()
    with pytest.raises(Unavailable, match=f"{theirs} of another engine"):
        table.resize(8)
    end()
    with monkeypatch.context() as patched:
        passing(patched, table, 1, begin)
        with pytest.raises(Unavailable, match=f"{theirs} of another engine"):
            table.resize(8)
    assert load_config(storage).buckets == 4 and content(table) == wanted
    end()
    table.resize(8)
    assert content(table) == wanted


def test_rows_in_another_bucket_than_that_of_their_key_stop_a_resize(table):
    old = again(table)
    with old.begin("upsert") as txn:
        txn._spec = mainstem.writers.transaction.replace(txn._spec, buckets=1)
        txn.write(rows(range(600, 610), ts=1))
        txn._follows = lambda *given: None
        txn.commit()
    wanted = content(table)
    with pytest.raises(CorruptTable, match="lie in another bucket"):
        table.resize(8)
    assert content(table) == wanted and not load_config(LocalStorage(table.path)).resizes


def test_two_resizes_at_once_do_not_mix(table, monkeypatch):
    refused = []

    def other(_number):
        with pytest.raises(Invalid, match="another process resizes") as told:
            again(table).resize(3)
        refused.append(told)

    passing(monkeypatch, table, 1, other)
    wanted = content(table)
    assert table.resize(8).after == 8 and refused
    assert content(table) == wanted and again(table).resize(3).before == 8
    assert content(table) == wanted


def test_a_resize_is_neither_restored_away_nor_rolled_back(table):
    table.savepoint()
    done = table.resize(8)
    with pytest.raises(Invalid, match="another number of buckets"):
        table.rollback(done.instant)
    with pytest.raises(Invalid, match="another number of buckets"):
        table.restore(table.savepoints()[0].instant)
    table.savepoint()
    wanted = content(table)
    table.upsert(rows([7], ts=9, value="late"))
    table.restore(table.savepoints()[-1].instant)
    assert content(table) == wanted


def test_services_go_on_after_a_resize(table):
    wanted = content(table)
    table.resize(2)
    for number in range(6):
        table.upsert(rows([7], ts=9 + number, value="late"))
        table.run_services(if_due=False)
    assert content(table) == wanted | {"k7": "late7"}
    check_indexes(table)


def test_the_command_resizes_a_table(table, capsys):
    assert main(["resize", table.path, "--buckets", "8"]) == 0
    assert "4 buckets became 8" in capsys.readouterr().out
    assert main(["resize", table.path, "--buckets", "0"]) == 1
    assert "expected a number from 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "way_out"),
    [
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "table.cluster"),
        ({"hoodie.bucket.index.partition.expressions": "a,2"}, "partition.expressions"),
    ],
)
def test_tables_whose_buckets_are_not_one_number_are_refused(tmp_path, options, way_out):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=4,
        properties={"hoodie.mainstem.fsync": False, **options},
    )  # fmt: skip
    table.upsert(rows(range(20), ts=1))
    with pytest.raises(Unsupported, match=way_out):
        table.resize(8)
    assert len(table.scan().to_arrow()) == 20
