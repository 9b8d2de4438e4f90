"""Goal: on a table without buckets an overwrite hides what was there before it, and nothing written beside it
is lost or doubled.

Method: tables through the public API. What happens beside an overwrite happens between its begin and its
commit, or the other way round.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from small_table import content, rows

import mainstem
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile

KINDS = ("SIMPLE", "RECORD_LEVEL_INDEX")


@pytest.fixture
def make(make_table):
    def make(kind="SIMPLE", **more):
        table = make_table(kind, buckets=None, hoodie__index__type=kind, **more)
        if "RECORD" in kind:
            table.create_index("record_index")
        table.upsert(pa.concat_tables([rows(range(5), ts=5), rows(range(10, 13), ts=5, city="b")]))
        return table

    return make


@pytest.fixture(params=KINDS)
def table(request, make):
    """Keys k0 to k4 in partition a, k10 to k12 in b."""
    return make(request.param)


def again(table):
    return mainstem.open_table(table.path, table.properties)


def shown(table):
    """Key -> value; each key once, and the indexes are whole."""
    found = table.scan(columns=["id", "value"]).to_arrow()
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a key is doubled"
    report = table.validate_metadata()
    assert report is None or report.ok, report
    return content(table)


B = {"k10": "v10", "k11": "v11", "k12": "v12"}


@pytest.mark.supports("Writing", "Tables without buckets: overwrites, beside writers")
def test_an_overwrite_hides_the_older_rows_of_its_partitions(table):
    table.insert_overwrite(rows([3, 20], ts=1, value="new"))
    assert shown(table) == {"k3": "new3", "k20": "new20", **B}
    table.upsert(rows([1, 3, 20], ts=2, value="up"))
    expected = {"k1": "up1", "k3": "up3", "k20": "up20", **B}
    assert shown(table) == expected
    table.compact()
    assert shown(table) == content(table, mode="read_optimized") == expected
    table.insert_overwrite_table(rows([7], ts=1))
    assert shown(table) == {"k7": "v7"}
    table.clean()
    assert shown(table) == {"k7": "v7"}


@pytest.mark.parametrize("kind", ["SIMPLE", "GLOBAL_SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_partitions_are_deleted_and_tables_emptied(make, kind):
    table = make(kind)
    table.delete_partition("a")
    assert shown(table) == B
    table.upsert(rows([1, 2], ts=1, value="back"))
    assert shown(table) == {"k1": "back1", "k2": "back2", **B}
    table.truncate()
    assert shown(table) == {}
    table.upsert(rows([1, 10], ts=1, city="b", value="anew"))
    assert shown(table) == {"k1": "anew1", "k10": "anew10"}


@pytest.fixture(params=["GLOBAL_SIMPLE", "GLOBAL_RECORD_LEVEL_INDEX"])
def unique(request, make):
    """As ``table``, with keys that are unique in the table."""
    return make(request.param)


@pytest.mark.supports("Writing", "Tables without buckets: overwrites under global indexes")
@pytest.mark.parametrize("moves", ["true", "false"])
def test_an_overwrite_takes_its_keys_out_of_partitions_that_stay(make, moves):
    name = "hoodie.simple.index.update.partition.path"
    table = make("GLOBAL_SIMPLE", **{name: moves})
    table = mainstem.open_table(table.path, {**table.properties, name: moves})
    since = table.timeline()[-1].completion
    table.insert_overwrite(rows([3, 10, 20], ts=1, value="new"))
    expected = {"k3": "new3", "k10": "new10", "k20": "new20", "k11": "v11", "k12": "v12"}
    assert shown(table) == expected
    told = table.changes(since, deletes=True).to_arrow().to_pylist()
    gone = {(row["id"], row["_hoodie_partition_path"]) for row in told if row["_change_type"] == "delete"}
    assert ("k10", "b") in gone and {("k0", "a"), ("k1", "a"), ("k2", "a"), ("k4", "a")} <= gone
    table.upsert(rows([10, 11], ts=9, value="up", city="a"))
    assert shown(table) == {**expected, "k10": "up10", "k11": "up11"}
    table.compact()
    assert shown(table) == {**expected, "k10": "up10", "k11": "up11"}


def test_an_overwrite_of_the_whole_table_moves_keys_without_a_trace(unique):
    unique.insert_overwrite_table(rows([3, 10], ts=1, value="new", city="c"))
    assert shown(unique) == {"k3": "new3", "k10": "new10"}


@pytest.mark.parametrize("city", ["a", "b"])
def test_such_an_overwrite_is_made_again_after_any_write(unique, city):
    with unique.begin("insert_overwrite") as txn:
        txn.write(rows([3, 11], ts=1, value="new"))
        again(unique).upsert(rows([11, 12], ts=9, value="other", city=city))
        instant = txn.instant
        assert txn.commit().instant > instant
    stays = city == "b" or "RECORD" in unique.properties["hoodie.index.type"]  # keys move under the other one
    others = {"k10": "v10", **({"k12": "other12"} if stays else {})}
    assert shown(unique) == {"k3": "new3", "k11": "new11", **others}


def test_a_writer_in_flight_gives_way_to_an_overwrite_that_took_its_key(unique):
    with unique.begin() as txn:
        txn.write(rows([11, 30], ts=9, value="late", city="b"))
        again(unique).insert_overwrite(rows([11], ts=1, value="new"))
        assert txn.commit().rows == 2
    assert shown(unique) == {"k11": "late11", "k30": "late30", "k10": "v10", "k12": "v12"}


def test_a_write_to_hidden_file_groups_that_was_in_flight_lies_on_top(table):
    with table.begin() as txn:
        txn.write(rows([1, 30], ts=9, value="late"))
        again(table).insert_overwrite(rows([2], ts=1, value="new"))
        again(table).upsert(rows([1], ts=1, value="anew"))  # for this one the key is new
        outcome = txn.commit()
    assert outcome.rows == 2 and outcome.instant > txn.instant
    assert shown(table) == {"k1": "late1", "k2": "new2", "k30": "late30", **B}


def test_new_keys_in_flight_lie_on_top_of_an_overwrite(table):
    table = mainstem.open_table(table.path, {**table.properties, "hoodie.parquet.small.file.limit": 0})
    with table.begin() as txn:
        txn.write(rows([30, 31], ts=9, value="mine"))
        again(table).insert_overwrite(rows([2, 31], ts=1, value="new"))
        txn.commit()
    assert shown(table) == {"k2": "new2", "k30": "mine30", "k31": "mine31", **B}


@pytest.mark.parametrize("ts", [4, 8])
def test_what_completes_after_an_overwrite_began_lies_on_top_of_it(table, ts):
    with table.begin("insert_overwrite") as txn:
        txn.write(rows([1, 2, 30], ts=6, value="new"))
        again(table).upsert(rows([1, 3, 30], ts=ts, value="other"))
        txn.commit()
    mine = ts < 6
    expected = {"k1": "new1" if mine else "other1", "k30": "new30" if mine else "other30"}
    assert shown(table) == {**expected, "k2": "new2", "k3": "other3", **B}


def test_of_two_overwrites_the_one_that_commits_last_stays(table):
    with table.begin("insert_overwrite") as txn:
        txn.write(rows([1, 2], ts=1, value="mine"))
        again(table).insert_overwrite(rows([2, 3], ts=9, value="other"))
        outcome = txn.commit()
    assert outcome.status == "committed" and shown(table) == {"k1": "mine1", "k2": "mine2", **B}


def test_an_overwrite_that_a_compaction_passes_by_is_made_again(table):
    table.upsert(rows([1], ts=6))
    with table.begin("insert_overwrite") as txn:
        txn.write(rows([1, 2], ts=1, value="new"))
        again(table).schedule_compaction()
        assert txn.commit().rows == 2
    table.compact()
    assert shown(table) == {"k1": "new1", "k2": "new2", **B}


def test_an_aborted_overwrite_hides_nothing(table):
    before = shown(table)
    with table.begin("insert_overwrite") as txn:
        txn.write(rows([1], ts=9))
    assert shown(table) == before


def test_deleted_rows_of_an_overwrite_are_left_out(table):
    flags = pa.array([True, False])
    table.insert_overwrite(rows([1, 2], ts=9).append_column("_hoodie_is_deleted", flags))
    assert shown(table) == {"k2": "v2", **B}


def test_a_bulk_insert_updates_what_is_there(table):
    table.bulk_insert(rows([1, 40], ts=6, value="bulk"))
    found = shown(table)
    assert found["k1"] == "bulk1" and found["k40"] == "bulk40" and len(found) == 9


def test_an_overwrite_hides_all_rows_of_a_write_of_which_some_lost_against_hidden_ones(make):
    table = make("GLOBAL_SIMPLE")
    with table.begin("insert_overwrite_table") as txn:
        again(table).upsert(rows([1, 50], ts=4, city="b"))  # k1 stays in a, with ts 5
        txn.commit()
    assert shown(table) == {}


def test_a_row_that_lost_against_one_that_an_overwrite_hid_is_written_again(make, monkeypatch):
    table, move = make("GLOBAL_SIMPLE"), KeysPlacedMeanwhile.move

    def then_an_overwrite(self, timeline):
        found = move(self, timeline)
        monkeypatch.undo()
        again(table).truncate()
        return found

    monkeypatch.setattr(KeysPlacedMeanwhile, "move", then_an_overwrite)
    table.upsert(rows([1, 50], ts=4, city="b", value="late"))
    assert shown(table) == {"k1": "late1", "k50": "late50"}
