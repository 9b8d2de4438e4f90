"""Goal: under a global index a key moves with its partition, as in Hudi, and has one row whoever moves it.

Method: tables through the public API. What happens beside a transaction happens between its begin and its
commit, or at the last moment before it takes the lock.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small_table import content, rows

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.writers import moved_rows
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile
from mainstem.writers.write_spec import DELETE_MARK

FILES, RECORDS = "GLOBAL_SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"
MOVE = {"hoodie.record.index.update.partition.path": "true"}


@pytest.fixture
def make(make_table):
    """A table under an index whose keys move; of a record index's kinds, with that index."""

    def make(kind=FILES, **more):
        options = {name.replace(".", "__"): value for name, value in MOVE.items()}
        table = make_table(kind, buckets=None, hoodie__index__type=kind, **{**options, **more})
        table = again(table)
        if kind == RECORDS:
            table.create_index("record_index")
        return table

    return make


@pytest.fixture(params=[FILES, RECORDS])
def table(request, make):
    """Keys k0 to k4 in partition a, with ordering value 5."""
    made = make(request.param)
    made.upsert(rows(range(5), ts=5))
    return made


def again(table, **more):
    """The same table in another writer."""
    return mainstem.open_table(table.path, {**table.properties, **MOVE, **more})


def places(table):
    """Record key -> partition and value; every key has one row, and every index finds it."""
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "city", "value"]
    found = table.scan(columns=columns).to_arrow()
    keys = found["_hoodie_record_key"].to_pylist()
    assert len(keys) == len(set(keys)), "a key is doubled"
    assert found["city"].to_pylist() == found["_hoodie_partition_path"].to_pylist()
    report = table.validate_metadata()
    assert report is None or report.ok, report
    for key in keys:
        assert table.scan(columns=["id"], filter=pc.field("id") == key).to_arrow().num_rows == 1
    shown = zip(found["city"].to_pylist(), found["value"].to_pylist(), strict=True)
    return dict(zip(keys, shown, strict=True))


def data_files(table):
    storage = table.opened.seams.storage
    names = [name for city in ("a", "b", "c") for name in storage.names(city)]
    return [name for name in names if not name.startswith(".hoodie")]


@pytest.mark.supports("Writing", "Tables without buckets: keys that move to another partition")
@pytest.mark.parametrize("kind", [FILES, "GLOBAL_BLOOM", "RECORD_INDEX", RECORDS])
def test_a_row_with_another_partition_moves_its_key(make, kind):
    table = make(kind)
    table.upsert(rows(range(3), ts=1))
    table.upsert(pa.concat_tables([rows([1], ts=2, city="b", value="new"), rows([2, 3], ts=2, value="w")]))
    assert places(table) == {"k0": ("a", "v0"), "k1": ("b", "new1"), "k2": ("a", "w2"), "k3": ("a", "w3")}
    table.upsert(rows([1], ts=3, value="back"))
    assert places(table)["k1"] == ("a", "back1") and len(content(table)) == 4


@pytest.mark.parametrize(("ts", "moves"), [(4, False), (5, True), (6, True)])
def test_a_smaller_ordering_value_moves_nothing(table, ts, moves):
    before = data_files(table)
    outcome = table.upsert(rows([1], ts=ts, city="b", value="new"))
    assert places(table)["k1"] == (("b", "new1") if moves else ("a", "v1"))
    if not moves:
        assert outcome.status == "empty" and data_files(table) == before


def test_a_key_that_comes_with_several_partitions_is_one_row(table):
    with table.begin() as txn:
        txn.write(pa.concat_tables([rows([1, 9], ts=7, city="b", value="x"), rows([9], ts=8, city="c")]))
        txn.write(pa.concat_tables([rows([1], ts=6, city="c"), rows([9], ts=8, city="a", value="last")]))
        txn.commit()
    assert places(table)["k1"] == ("b", "x1") and places(table)["k9"] == ("a", "last9")


def test_a_delete_finds_a_key_whatever_partition_it_names(table):
    table.upsert(rows([1], ts=6, city="b"))
    table.delete(pa.table({"id": ["k1", "k2", "k77"], "city": ["c", "c", "c"]}))
    assert set(places(table)) == {"k0", "k3", "k4"}
    table.upsert(rows([1, 2], ts=1, city="b", value="anew"))  # a deleted key is a new one
    assert places(table)["k1"] == ("b", "anew1") and places(table)["k2"] == ("b", "anew2")


def test_a_delete_of_rows_that_were_read_keeps_their_ordering_values(table):
    with table.begin("delete_rows") as txn:
        txn.write(pa.concat_tables([rows([1, 2, 9], ts=4), rows([1, 3], ts=7, city="b")]))
        txn.commit()
    assert places(table).keys() == {"k0", "k2", "k4"}
    table.upsert(rows([1, 3], ts=6))
    assert places(table).keys() == {"k0", "k2", "k4"}
    table.upsert(rows([1, 3], ts=8))
    assert places(table).keys() == {"k0", "k1", "k2", "k3", "k4"}


def test_a_merge_deletes_keys_beside_rows_that_move(table):
    with table.begin("merge_rows") as txn:  # k1 moves, k2 goes, k3 is updated late, k9 is new
        given = pa.concat_tables([rows([1, 9], ts=6, city="b"), rows([2, 3, 4], ts=5)])
        txn.write(given.append_column(DELETE_MARK, pa.array([False, False, True, False, True])))
        again(table).upsert(rows([3, 4], ts=7, city="c"))
        txn.commit()
    found = places(table)
    assert {key: city for key, (city, _) in found.items()} == {
        "k0": "a", "k1": "b", "k3": "c", "k4": "c", "k9": "b"
    }  # fmt: skip
    with table.begin("merge_rows") as both, pytest.raises(Unsupported, match="'k1' is deleted in one part"):
        given = pa.concat_tables([rows([1], ts=8, city="b"), rows([1], ts=8)])
        both.write(given.append_column(DELETE_MARK, pa.array([True, False])))
        both.commit()
    assert places(table) == found


def test_a_flagged_delete_decides_by_its_ordering_value_wherever_the_row_is(table):
    flagged = rows([1, 2], ts=6, city="b").append_column("_hoodie_is_deleted", pa.array([False, False]))
    table.upsert(flagged)
    for ts, left in ((5, True), (6, False)):
        gone = rows([1], ts=ts, city="c").append_column("_hoodie_is_deleted", pa.array([True]))
        table.upsert(gone)
        assert ("k1" in places(table)) == left


@pytest.mark.parametrize(("mine", "theirs"), [(7, 8), (8, 7)])
def test_of_two_movers_of_one_key_the_higher_ordering_value_wins(table, mine, theirs):
    with again(table).begin() as other, table.begin() as txn:
        other.write(rows([1, 2], ts=theirs, city="c", value="other"))
        txn.write(rows([1, 3], ts=mine, city="b", value="mine"))
        other.commit()
        txn.commit()
    found = places(table)
    assert found["k1"] == (("b", "mine1") if mine > theirs else ("c", "other1"))
    assert found["k2"] == ("c", "other2") and found["k3"] == ("b", "mine3") and len(found) == 5
    table.compact()
    assert places(table) == found


@pytest.mark.parametrize(("mine", "theirs"), [(7, 8), (8, 7)])
def test_a_move_meets_the_update_that_completed_beside_it(table, mine, theirs):
    with again(table).begin() as other, table.begin() as txn:
        other.write(rows([1], ts=theirs, value="other"))
        txn.write(rows([1, 20], ts=mine, city="b", value="mine"))
        other.commit()
        txn.commit()
    assert places(table)["k1"] == (("b", "mine1") if mine > theirs else ("a", "other1"))


def test_an_update_follows_the_key_that_moved_beside_it(table):
    with again(table).begin() as other, table.begin() as txn:
        other.write(rows([1, 2], ts=7, city="b", value="other"))
        txn.write(pa.concat_tables([rows([1], ts=8, value="mine"), rows([2], ts=6, value="mine")]))
        other.commit()
        txn.commit()
    assert places(table)["k1"] == ("a", "mine1") and places(table)["k2"] == ("b", "other2")


def test_a_delete_follows_the_key_that_moved_beside_it(table):
    with again(table).begin() as other, table.begin("delete") as txn:
        other.write(rows([1], ts=7, city="b"))
        txn.write(pa.table({"id": ["k1"], "city": ["a"]}))
        other.commit()
        txn.commit()
    assert set(places(table)) == {"k0", "k2", "k3", "k4"}


def test_a_row_that_would_be_hidden_behind_a_later_request_gets_a_later_one(table):
    with table.begin() as txn:
        txn.write(rows([1], ts=9, city="b", value="mine"))
        again(table).upsert(rows([1], ts=8, city="c", value="other"))  # requested later, completed earlier
        assert txn.commit().instant > txn.instant
    assert places(table)["k1"] == ("b", "mine1")


@pytest.mark.parametrize("late", [False, True], ids=["files_can_be_taken_back", "puts_may_be_late"])
@pytest.mark.parametrize("other", [6, 8])
def test_a_move_at_the_last_moment_is_found_under_the_lock(table, monkeypatch, late, other):
    move, moved = KeysPlacedMeanwhile.move, []

    def then_another(self, timeline):
        found = move(self, timeline)
        if not moved:
            moved.append(1)
            early.write(pa.concat_tables([rows([1], ts=other, city="c", value="other"), rows([2], ts=6)]))
            early.commit()
        return found

    early = again(table).begin()
    if late:
        monkeypatch.setattr(moved_rows, "has_swaps", lambda storage: True)
        monkeypatch.setattr("mainstem.writers.placed_rows.has_swaps", lambda storage: True)
    monkeypatch.setattr(KeysPlacedMeanwhile, "move", then_another)
    mine = rows([1], ts=7, city="b", value="mine")
    outcome = table.upsert(pa.concat_tables([mine, rows([2, 3, 30], ts=7)]))
    found = places(table)
    assert found["k1"] == (("b", "mine1") if other < 7 else ("c", "other1")) and len(found) == 6
    assert len([name for name in data_files(table) if outcome.instant in name]) == outcome.files


def test_services_and_later_moves_keep_every_key_once(table):
    for number in range(6):
        city = "abc"[number % 3]
        table.upsert(rows(range(number % 4, 5), ts=6 + number, city=city, value=f"r{number}-"))
        if number == 2:
            table.compact()
        if number == 3:
            table.log_compact()
    before = places(table)
    table.compact()
    table.clean()
    table.archive()
    assert places(table) == before and len(before) == 5
    table.upsert(rows(range(5), ts=50, city="b", value="last"))
    assert set(places(table).values()) == {("b", f"last{k}") for k in range(5)}


def test_of_commit_time_tables_the_last_row_moves_its_key(make):
    table = make(ordering=(), hoodie__record__merge__mode="COMMIT_TIME_ORDERING")
    table.upsert(rows([1, 2], ts=9))
    table.upsert(rows([1], ts=1, city="b", value="new"))
    assert places(table) == {"k1": ("b", "new1"), "k2": ("a", "v2")}


def test_a_record_index_follows_moves_that_the_files_decide(make):
    table = make(FILES)
    table.upsert(rows(range(4), ts=1))
    table.create_index("record_index")
    table.upsert(rows([1], ts=2, city="b"))
    table.upsert(rows([1], ts=3, city="c"))
    assert places(table)["k1"] == ("c", "v1")


def test_columns_that_come_with_a_move_are_added(table):
    table.upsert(rows([1], ts=6, city="b").append_column("extra", pa.array([7])))
    found = table.scan(columns=["id", "extra"]).to_arrow().to_pylist()
    assert {row["id"]: row["extra"] for row in found}["k1"] == 7 and places(table)["k1"] == ("b", "v1")


def test_an_aborted_move_leaves_nothing(table):
    before, files = places(table), data_files(table)
    with table.begin() as txn:
        txn.write(rows([1], ts=6, city="b"))
    assert places(table) == before and data_files(table) == files


def test_writers_of_a_table_must_agree_whether_keys_move(table):
    name = "simple" if table.config.raw["hoodie.index.type"] == FILES else "record"
    stay = {f"hoodie.{name}.index.update.partition.path": "false"}
    with pytest.raises(Invalid, match="let them 'move'"):
        again(table, **stay).upsert(rows([1], ts=9))
    assert places(table)["k1"] == ("a", "v1")


def test_where_rows_are_merged_by_columns_a_move_is_refused(make):
    table = make(hoodie__table__partial__update__mode="IGNORE_DEFAULTS")
    table.upsert(rows([1], ts=1))
    files = data_files(table)
    with pytest.raises(Unsupported, match="lies in partition 'a'"):
        table.upsert(rows([1], ts=2, city="b"))
    assert data_files(table) == files and content(table) == {"k1": "v1"}
