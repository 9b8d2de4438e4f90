"""Goal: a transaction on a table without buckets whose instant cannot complete, as others replaced its file
groups or placed its keys, commits all the same: under another instant, each row and delete once.

Method: tables through the public API. What others do happens between a transaction's rows and its commit, or
at the last moment, after it has looked. Transactions are kept as they are, or count as too large for that.
"""

from __future__ import annotations

import threading
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from small_table import content, rows

import mainstem
from mainstem.errors import RolledBack
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.writers import give_way, placed_anew, placed_rows
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile
from mainstem.writers.stream_guard import StreamGuard
from mainstem.writers.transaction import Transaction
from mainstem.writers.write_task import write_task

QUICK = {"hoodie.mainstem.fsync": False, "hoodie.parquet.small.file.limit": 0}
KINDS = ("SIMPLE", "GLOBAL_SIMPLE", "RECORD_LEVEL_INDEX")
STAY = {
    "hoodie.simple.index.update.partition.path": "false",
    "hoodie.record.index.update.partition.path": "false",
}


@pytest.fixture
def make(make_table):
    def make(kind="SIMPLE", name="t", **more):
        table = make_table(name, buckets=None, hoodie__index__type=kind, **{**STAY, **more})
        if "RECORD" in kind:
            table.create_index("record_index")
        table = opened(table, **more)
        for some in (range(5), range(5, 10)):
            table.upsert(rows(some, ts=1))
        table.upsert(rows(range(10, 15), ts=1, city="b"))
        return table

    return make


def opened(table, **more):
    return mainstem.open_table(table.path, {**table.properties, **QUICK, **STAY, **more})


def checked(table):
    """Key -> value; each key once, nothing is pending, and the indexes are whole."""
    found = table.scan(columns=["id"]).to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a key is doubled"
    assert not [i for i in table.timeline() if i.completion is None]
    report = table.validate_metadata()
    assert report is None or report.ok, report
    return content(table)


def overwrite(table):
    """Hides the rows of partition a; k2 and k30 are there afterwards."""
    table.insert_overwrite(rows([2, 30], ts=1, value="over"))
    return {"k2": "over2", "k30": "over30", **{f"k{n}": f"v{n}" for n in range(10, 15)}}


def cluster(table):
    """Puts small file groups together."""
    assert all(one.completion for one in table.cluster())
    return {f"k{n}": f"v{n}" for n in range(15)}


def flagged(batch, deleted=0):
    """With Hudi's column that tells deletes: the first ones are."""
    return batch.append_column("_hoodie_is_deleted", pa.array([n < deleted for n in range(batch.num_rows)]))


def gone(keys):
    return rows(keys, ts=9).select(["id", "city"])


@pytest.fixture(params=[False, True], ids=["kept", "read back"])
def large(request, monkeypatch):
    """Whether a transaction's batches are too large to be kept."""
    if request.param:
        monkeypatch.setattr(placed_rows, "_KEPT_BYTES_MAX", 0)
    return request.param


@pytest.mark.supports("Writing", "Tables without buckets: transactions whose file groups others replace")
@pytest.mark.parametrize("others", [overwrite, cluster])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_deletes_go_to_where_their_keys_live_by_then(make, kind, others, large):
    table = make(kind)
    with table.begin() as txn:
        txn.write(flagged(rows([1], ts=3, value="first")))
        txn.write(flagged(rows([12], ts=3, value="first", city="b")))
        txn.write(flagged(rows([3, 4, 40, 41], ts=4, value="first")))
        txn.write(flagged(rows([3, 4, 41, 1], ts=5, value="second"), 3))
        txn.write(flagged(rows([3], ts=6, value="third")))
        expected = others(opened(table))
        outcome = txn.commit()
    assert outcome.status == "committed" and outcome.rows == 11
    assert (outcome.instant > txn.instant) is (others is overwrite or large)
    mine = {"k1": "second1", "k3": "third3", "k12": "first12", "k40": "first40"}
    expected = {key: value for key, value in {**expected, **mine}.items() if key not in ("k4", "k41")}
    assert checked(table) == expected
    table.compact()
    assert checked(table) == expected


@pytest.mark.parametrize("others", [overwrite, cluster])
def test_plain_deletes_meet_the_rows_that_are_there_by_then(make, others, large):
    table = make()
    with table.begin("delete") as txn:
        txn.write(gone([1, 30, 50]))  # of which the last two lie nowhere
        expected = others(opened(table))
        opened(table).upsert(rows([50], ts=99, value="other"))
        txn.commit()
    assert checked(table) == {k: v for k, v in expected.items() if k not in ("k1", "k30", "k50")}


@pytest.mark.parametrize("others", [overwrite, cluster])
def test_updates_of_some_columns_keep_the_others(make, others, large):
    table = make("SIMPLE", "partial", **{"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"})
    with table.begin("update_columns") as txn:
        txn.write(rows([2, 11], ts=7).select(["id", "city", "ts"]).slice(0, 1))
        txn.write(rows([11], ts=7, city="b").select(["id", "city", "ts"]))
        expected = others(opened(table))
        txn.commit()
    assert checked(table) == expected
    found = table.scan(columns=["id", "ts"]).to_arrow().to_pylist()
    assert {row["id"] for row in found if row["ts"] == 7} == {"k2", "k11"}


def test_columns_that_came_within_a_transaction_come_along(make, large):
    table = make()
    with table.begin() as txn:
        txn.write(rows([1], ts=3, value="mine"))
        txn.write(rows([2, 60], ts=3, value="mine").append_column("extra", pa.array([7, 8])))
        expected = overwrite(opened(table))
        txn.commit()
    table = opened(table)
    assert checked(table) == {**expected, "k1": "mine1", "k2": "mine2", "k60": "mine60"}
    extra = table.scan(columns=["id", "extra"]).to_arrow().to_pylist()
    assert {row["id"]: row["extra"] for row in extra if row["extra"]} == {"k2": 7, "k60": 8}


@pytest.mark.parametrize("kind", ["GLOBAL_SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_keys_that_move_do_so_from_where_they_are_by_then(make, kind):
    moves = dict.fromkeys(STAY, "true")
    table = make(kind, **moves)
    with table.begin() as txn:
        txn.write(rows([1, 2, 11, 70], ts=5, value="mine", city="c"))
        txn.write(rows([12], ts=5, value="mine", city="b"))
        flags = pa.array([True])
        txn.write(rows([13], ts=6, city="b").append_column("_hoodie_is_deleted", flags))
        expected = overwrite(opened(table, **moves))
        opened(table, **moves).upsert(rows([1], ts=4, value="other", city="b"))
        outcome = txn.commit()
    assert outcome.instant > txn.instant
    mine = {f"k{n}": f"mine{n}" for n in (1, 2, 11, 12, 70)}
    del expected["k13"]
    assert checked(table) == {**expected, **mine}
    found = table.scan(columns=["id", "city"]).to_arrow().to_pylist()
    assert {row["city"] for row in found if row["id"] in ("k1", "k2", "k11", "k70")} == {"c"}


def test_an_overwrite_whose_files_cannot_be_taken_back_is_made_again(make, monkeypatch):
    table = make()
    early = opened(table).begin()
    early.write(rows([3, 80], ts=9, value="other"))
    move, done = KeysPlacedMeanwhile.move, []

    def then_another(self, timeline):
        found = move(self, timeline)
        if not done:
            done.append(1)
            early.commit()
        return found

    monkeypatch.setattr(KeysPlacedMeanwhile, "move", then_another)
    monkeypatch.setattr(placed_rows, "has_swaps", lambda storage: True)
    with table.begin("insert_overwrite") as txn:
        txn.write(rows([3, 80, 81], ts=1, value="mine"))
        assert txn.commit().rows == 3
    found = checked(table)
    assert (found["k81"], len(found)) == ("mine81", 8)


@pytest.mark.parametrize("large", [True], indirect=True)
def test_a_batch_of_a_stream_is_committed_once_and_told_once(make, large):
    table, told = make(), []
    guard = StreamGuard("s", 3)
    ctx = table.writer_context()
    ctx.told = told.append
    with table.begin(guard=guard, extra_metadata={"mine": "yes"}) as txn:
        txn.write(rows([1, 90], ts=5, value="batch"))
        expected = overwrite(opened(table))
        outcome = txn.commit()
    assert txn.commit() is outcome
    name = f"{outcome.instant}_{outcome.completion_time}.deltacommit"
    assert told == [name]
    commit = decode_commit(ctx.seams.storage.read(paths.timeline_file(name), max_bytes=1 << 20), path=name)
    assert commit.extra["mine"] == "yes" and give_way.PLACED_ANEW not in commit.extra
    again = opened(table).begin(guard=guard)
    assert again.already_committed
    assert again.commit().instant == outcome.instant
    assert checked(table) == {**expected, "k1": "batch1", "k90": "batch90"}


def test_rows_that_tasks_hand_over_are_placed_anew(make, large):
    table = make()
    storage = table.writer_context().seams.storage
    with table.begin() as txn:
        for task, some in enumerate(([1, 40], [2, 41])):
            batches = rows(some, ts=5, value="task").to_batches()
            token = {"task_partition": task, "stage": 1, "attempt": 0}
            txn.add_task_result(write_task(txn.task_spec(), batches, **token, storage=storage))
        expected = overwrite(opened(table))
        assert txn.commit().rows == 4
    assert checked(table) == {**expected, **{f"k{n}": f"task{n}" for n in (1, 2, 40, 41)}}


def passing(monkeypatch, times, work):
    """Do ``work`` after the first so many looks of transactions."""
    move, left, busy, mine = KeysPlacedMeanwhile.move, [times], [], threading.current_thread()

    def then(self, timeline):
        found = move(self, timeline)
        if left[0] and found is None and not busy and threading.current_thread() is mine:
            left[0] -= 1
            busy.append(1)
            work(left[0])
            busy.clear()
        return found

    monkeypatch.setattr(KeysPlacedMeanwhile, "move", then)
    return left


def test_several_rounds_end_and_each_instant_but_the_last_is_gone(make, monkeypatch):
    table = make()
    monkeypatch.setattr(placed_rows, "has_swaps", lambda storage: True)  # as where puts may be late
    with table.begin() as txn:
        txn.write(rows([1, *range(40, 50)], ts=5, value="mine"))
        left = passing(monkeypatch, 3, lambda n: opened(table).upsert(rows([40 + n], ts=4, value="other")))
        outcome = txn.commit()
    assert not left[0] and outcome.instant > txn.instant
    mine = {f"k{n}": f"mine{n}" for n in (1, *range(40, 50))}
    assert checked(table) == {**{f"k{n}": f"v{n}" for n in range(15)}, **mine}
    assert txn.instant not in {i.requested for i in table.timeline() if i.action == "deltacommit"}


def test_after_many_rounds_the_transaction_ends_and_leaves_nothing(make, monkeypatch):
    table = make()
    before = content(table)
    monkeypatch.setattr(placed_anew, "ROUNDS_MAX", 2)
    monkeypatch.setattr("mainstem.writers.transaction.ROUNDS_MAX", 2)
    monkeypatch.setattr(placed_rows, "has_swaps", lambda storage: True)
    with table.begin() as txn:
        txn.write(rows([1, *range(40, 50)], ts=5, value="mine"))
        passing(monkeypatch, 9, lambda n: opened(table).upsert(rows([40 + n], ts=4, value="other")))
        with pytest.raises(RolledBack, match="write its rows again"):
            txn.commit()
    monkeypatch.undo()
    found = checked(table)
    assert set(found.values()) - set(before.values()) <= {f"other{40 + n}" for n in range(9)}


@pytest.mark.parametrize("late", [True, False], ids=["puts may be late", "files can be taken back"])
def test_a_clustering_gives_way_to_whom_it_has_passed_by(make, monkeypatch, late):
    """Where the instant ends at once, and where it can follow two clusterings."""
    table = make()
    times = 1 if late or has_swaps(table.writer_context().seams.storage) else 3
    if late:
        monkeypatch.setattr(placed_rows, "has_swaps", lambda storage: True)
    monkeypatch.setattr(give_way, "PATIENCE_MS", 200)
    clustered = []

    def work(n):
        opened(table).upsert(rows([60 + n], ts=1))
        done = opened(table).cluster()
        clustered.append([one.completion is not None for one in done])
        if not done[-1].completion:
            assert "is about to complete" in done[-1].why

    with table.begin() as txn:
        txn.write(rows([1, 40], ts=5, value="mine"))
        passing(monkeypatch, times + 1, work)
        outcome = txn.commit()
    assert clustered[:times] == [[True]] * times and True not in clustered[times]
    assert outcome.instant > txn.instant
    assert content(table)["k1"] == "mine1" and content(table)["k40"] == "mine40"
    assert opened(table).cluster()[-1].completion
    checked(table)


def test_an_overwrite_waits_for_whom_it_has_passed_by(make, monkeypatch):
    table = make()
    overwritten = []

    def overwrite_beside(n):
        def work():
            overwritten.append(opened(table).insert_overwrite(rows([2, 30], ts=9, value="over")))

        late = threading.Thread(target=work)
        late.start()
        late.join(0.5 if n == 0 else 30)
        assert len(overwritten) == 1 and late.is_alive() is (n == 0)
        waiting.append(late)

    waiting = []
    with table.begin() as txn:
        txn.write(rows([1], ts=5, value="mine"))
        passing(monkeypatch, 2, overwrite_beside)
        outcome = txn.commit()
    for one in waiting:
        one.join()
    assert outcome.instant > txn.instant
    assert overwritten[0].completion_time < outcome.completion_time < overwritten[1].completion_time
    assert set(checked(table)) == {"k1", "k2", "k30", *(f"k{n}" for n in range(10, 15))}


def test_a_transaction_that_is_aborted_between_two_instants_leaves_neither(make, monkeypatch):
    table = make()
    commit, failed = Transaction._commit_once, []

    def fail_once(self):
        if self._anew and not failed:
            failed.append(1)
            raise mainstem.errors.LockUnavailable("the lock is busy")
        return commit(self)

    monkeypatch.setattr(Transaction, "_commit_once", fail_once)
    for ends in ("abort", "commit"):
        failed.clear()
        with table.begin() as txn:
            txn.write(rows([2, 40], ts=5, value=ends))
            expected = overwrite(opened(table))
            with pytest.raises(mainstem.errors.LockUnavailable):
                txn.commit()
            if ends == "commit":
                assert txn.commit().rows == 2
                expected |= {"k2": "commit2", "k40": "commit40"}
        assert checked(table) == expected


def test_rows_whose_order_is_not_known_any_more_are_refused(make, monkeypatch):
    table = make()
    monkeypatch.setattr(placed_rows, "_KEPT_BYTES_MAX", 0)
    with table.begin() as txn:
        txn.write(rows([1], ts=5, value="mine"))
        txn._appender.places.looked_again = True
        expected = overwrite(opened(table))
        with pytest.raises(RolledBack, match="write its rows again"):
            txn.commit()
    assert checked(table) == expected


def test_rows_of_many_types_come_back_as_they_were(tmp_path, monkeypatch):
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(12, 3)),
            ("ok", pa.bool_()), ("tags", pa.list_(pa.string())),
            ("inner", pa.struct([("x", pa.float64()), ("y", pa.binary())])),
        ]
    )  # fmt: skip
    table = mainstem.create_table(
        tmp_path / "t", schema, record_key=["id", "day"], ordering=["at", "price"], partition_by="day",
        properties={"hoodie.index.type": "SIMPLE", **QUICK},
    )  # fmt: skip

    def some(ids, value):
        made = [
            {
                "id": n, "day": date(2026, 1, 1 + n % 2), "at": datetime(2026, 1, 1, value), "ok": n % 2 == 0,
                "price": Decimal(n).scaleb(-3), "tags": [str(n), None] if n % 3 else None,
                "inner": {"x": n / 3, "y": bytes([n])} if n % 5 else None,
            }
            for n in ids
        ]  # fmt: skip
        return pa.Table.from_pylist(made, schema=schema)

    table.upsert(some(range(6), 1))
    monkeypatch.setattr(placed_rows, "_KEPT_BYTES_MAX", 0)
    mine = some([1, 2, 3, 20, 21], 5)
    flags = pa.array([False, True, False])
    with table.begin() as txn:
        txn.write(mine)
        txn.write(some([1, 2, 20], 6).append_column("_hoodie_is_deleted", flags))
        mainstem.open_table(table.path, table.properties).insert_overwrite_table(some([2, 5], 1))
        assert txn.commit().rows == 8
    found = table.scan(columns=schema.names).to_arrow().sort_by("id")
    expected = pa.concat_tables([some([1], 6), some([3], 5), some([5], 1), some([20], 6), some([21], 5)])
    assert found.to_pylist() == expected.to_pylist()
