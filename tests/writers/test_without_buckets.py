"""Goal: on a table without buckets every key has one file group, whoever inserts it, and nobody aborts.

Method: tables through the public API, also tables that Java made. What happens beside a transaction happens
between its begin and its commit.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pyarrow as pa
import pytest
from small_table import SCHEMA, content, rows

import mainstem
from mainstem.errors import Invalid, RolledBack, Unsupported
from mainstem.readers.queries import key_places
from mainstem.services import archive_plan, archiving
from mainstem.truetime.instant_times import instant_text, parse_wall
from mainstem.writers import placed_rows
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile

FILES = ("SIMPLE", "BLOOM")
RATIO = "hoodie.logfile.to.parquet.compression.ratio"
GLOBAL = ("GLOBAL_SIMPLE", "GLOBAL_BLOOM", "RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX")
STAY = {
    "hoodie.simple.index.update.partition.path": "false",
    "hoodie.bloom.index.update.partition.path": "false",
}


@pytest.fixture
def make(make_table):
    """A table under an index, which other engines may write; of a record index's kinds, with that index."""

    def make(kind="SIMPLE", **more):
        properties = {"hoodie__index__type": kind, "hoodie.mainstem.exclusive": False, **more}
        table = make_table(kind, buckets=None, **properties)
        if kind.endswith("RECORD_LEVEL_INDEX"):
            table.create_index("record_index")
        return table

    return make


@pytest.fixture(params=["SIMPLE", "BLOOM", "RECORD_LEVEL_INDEX"])
def table(request, make):
    """Keys k0 to k9 in partition a."""
    made = make(request.param)
    made.upsert(rows(range(10), ts=1))
    return made


def again(table, **more):
    """The same table in another writer."""
    return mainstem.open_table(table.path, {**table.properties, **more})


def groups(table):
    """Record key -> file groups that it has a row in."""
    found = table.scan(columns=["_hoodie_record_key", "_hoodie_file_name"]).to_arrow().to_pylist()
    every: dict[str, set[str]] = {}
    for row in found:
        assert row["_hoodie_record_key"] not in every, "a key is doubled"
        every[row["_hoodie_record_key"]] = row["_hoodie_file_name"][:36]
    return every


def data_files(table):
    storage = table.opened.seams.storage
    return [name for city in ("a", "b") for name in storage.names(city) if not name.startswith(".hoodie")]


@pytest.mark.supports("Writing", "Tables without buckets: SIMPLE, BLOOM, record indexes, global kinds")
def test_updates_go_to_the_file_group_of_their_key_and_new_keys_to_a_new_one(table):
    before = groups(table)
    table.upsert(rows(range(5, 15), ts=2, value="new"))
    assert content(table) == {f"k{k}": f"{'new' if k >= 5 else 'v'}{k}" for k in range(15)}
    after = groups(table)
    assert {k: after[k] for k in before} == before
    assert len({after[f"k{k}"] for k in range(10, 15)}) == 1
    fills = table.config.raw["hoodie.index.type"] == "RECORD_LEVEL_INDEX"
    assert (after["k10"] in before.values()) == fills


@pytest.mark.parametrize("kind", FILES)
def test_new_keys_become_base_files_where_java_looks_for_them(make, kind):
    table = make(kind)
    table.upsert(rows(range(10), ts=1))
    table.upsert(rows(range(5, 20), ts=1))
    before = content(table)
    assert len(before) == 20 and set(content(table, mode="read_optimized")) == set(before)


def test_under_a_record_index_small_file_groups_are_filled_up(make):
    table = make("RECORD_LEVEL_INDEX")
    for number in range(4):
        table.upsert(rows([*range(10 * number, 10 * number + 10), 0], ts=1 + number))
    assert len(set(groups(table).values())) == 1
    table.compact()
    assert len(content(table)) == 40 and len(set(groups(table).values())) == 1
    alone = again(table, **{"hoodie.parquet.small.file.limit": 0})
    alone.upsert(rows(range(40, 50), ts=1))
    assert len(set(groups(table).values())) == 2
    assert table.validate_metadata().ok


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("first", ["the update", "the insert"])
@pytest.mark.parametrize("kind", ["SIMPLE", "GLOBAL_BLOOM", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_a_key_that_was_deleted_compacted_away_and_inserted_beside_its_update_is_there_once(
    make, kind, first, large, monkeypatch
):
    quick = {**STAY, "hoodie.mainstem.fsync": False, "hoodie.parquet.small.file.limit": 0}
    table, other = (mainstem.open_table(path, quick) for path in [make(kind).path] * 2)
    table.upsert(rows(range(3), ts=1))
    with table.begin() as update, other.begin() as insert:
        monkeypatch.setattr(placed_rows, "_KEPT_BYTES_MAX", 0 if large else 1 << 20)
        update.write(rows([0, 1], ts=9, value="updated"))  # k0 is known
        table.delete(rows([0], ts=0).select(["id", "city"]))
        table.compact()
        insert.write(rows([0, 7], ts=5, value="inserted"))  # k0 lies nowhere
        if first == "the insert":
            insert.commit()
            assert (update.commit().instant > update.instant) is large  # else it is placed again as it is
        else:
            update.commit()
            insert.commit()
    assert content(table) == {"k0": "updated0", "k1": "updated1", "k2": "v2", "k7": "inserted7"}
    assert len(groups(table)) == 4
    table.compact()
    assert len(groups(table)) == 4
    report = table.validate_metadata()
    assert report is None or report.ok


def archived_as_java_does(table, requested, monkeypatch):
    """Archive one instant that was requested before every pending write, as Java's archiver would."""
    (instant,) = [i for i in table.timeline() if i.requested == requested and i.is_completed]
    with monkeypatch.context() as java:
        for module in (archive_plan, archiving):
            java.setattr(module, "instants_to_archive", lambda *given, **named: [instant])
        assert table.archive()
    assert requested not in {i.requested for i in table.timeline()}


@pytest.fixture
def compacting(make):
    """k0 to k2 in one base file, k0 deleted, and a compaction planned that will leave it out."""
    quick = {**STAY, "hoodie.mainstem.fsync": False, "hoodie.parquet.small.file.limit": 0}
    quick["hoodie.mainstem.archive.rest_ms"] = 0
    table = mainstem.open_table(make("SIMPLE").path, quick)
    table.upsert(rows(range(3), ts=1))
    table.delete(rows([0], ts=0).select(["id", "city"]))
    return table, mainstem.open_table(table.path, quick), table.schedule_compaction()


@pytest.mark.disk("a log file that was put is not taken back: on a store such an update ends as KeyTaken")
def test_a_key_that_left_by_a_compaction_archived_while_its_update_is_open_is_there_once(
    compacting, monkeypatch
):
    table, other, planned = compacting
    move = KeysPlacedMeanwhile.move
    with table.begin() as update, other.begin() as insert:
        update.write(rows([0, 1], ts=9, value="updated"))  # k0 is known
        table.run_compaction()
        insert.write(rows([0, 7], ts=5, value="inserted"))  # k0 lies nowhere

        def then(self, timeline):
            found = move(self, timeline)  # it has seen the compaction
            monkeypatch.undo()
            archived_as_java_does(other, planned, monkeypatch)
            insert.commit()
            return found

        monkeypatch.setattr(KeysPlacedMeanwhile, "move", then)
        update.commit()
    assert content(table) == {"k0": "updated0", "k1": "updated1", "k2": "v2", "k7": "inserted7"}
    assert len(groups(table)) == 4


def test_an_insert_finds_the_update_of_a_key_that_left_by_a_compaction_archived_since(
    compacting, monkeypatch
):
    table, other, planned = compacting
    with table.begin() as update, other.begin() as insert:
        update.write(rows([0, 1], ts=9, value="updated"))  # k0 is known
        table.run_compaction()
        insert.write(rows([0, 7], ts=5, value="inserted"))  # k0 lies nowhere
        archived_as_java_does(other, planned, monkeypatch)
        update.commit()
        insert.commit()
    assert content(table) == {"k0": "updated0", "k1": "updated1", "k2": "v2", "k7": "inserted7"}
    assert len(groups(table)) == 4


@pytest.mark.parametrize("kind", ["SIMPLE", "GLOBAL_BLOOM"])
def test_where_only_mainstem_writes_small_file_groups_are_filled_up_without_an_index(make, kind):
    table = make(kind, **{"hoodie.mainstem.exclusive": True, "hoodie.mainstem.services": "off"})

    def writer(**more):
        return again(table, **STAY, **more)

    writer().upsert(rows(range(10), ts=1))
    with writer().begin() as first, writer().begin() as second:  # both find k10 nowhere
        first.write(rows([3, 10, 11], ts=2, value="first"))
        second.write(rows([10, 12], ts=3, value="second"))
        second.commit()
        first.commit()
    writer().upsert(rows([11, 12], ts=4, value="late"))  # which are in log files
    found = content(table)
    assert len(set(groups(table).values())) == 1 and len(found) == 13
    assert [found[f"k{n}"] for n in (3, 10, 11, 12)] == ["first3", "second10", "late11", "late12"]
    size = sum(table.opened.seams.storage.stat(f"a/{name}").size for name in data_files(table))
    full = writer(**{"hoodie.parquet.small.file.limit": size, RATIO: "1"})
    full.upsert(rows([20], ts=1))  # its log files count: the file group is as large as that
    assert len(set(groups(table).values())) == 2
    roomy = writer(**{"hoodie.parquet.small.file.limit": size, RATIO: "0.1"})
    roomy.upsert(rows([21], ts=1))
    last = writer(**{"hoodie.parquet.max.file.size": 1000})
    last.upsert(rows([22], ts=1))  # it would become too large
    assert len(set(groups(table).values())) == 3 and len(content(table)) == 16
    writer().compact()
    assert len(content(table, mode="read_optimized")) == 16
    writer().upsert(rows(range(30), ts=9))
    assert len(groups(table)) == 30
    with pytest.raises(Invalid, match="expected a number from 0 to 1"):
        writer(**{RATIO: "much"}).upsert(rows([1], ts=9))


@pytest.mark.parametrize("limit", ["0", "1000000"])
def test_two_writers_of_a_record_index_insert_keys_at_once(make, limit):
    table = again(make("RECORD_LEVEL_INDEX"), **{"hoodie.parquet.small.file.limit": limit})
    table.upsert(rows(range(10), ts=1))
    with table.begin() as first, again(table).begin() as second:
        first.write(rows([20, 21, 22], ts=5, value="first"))
        second.write(rows([21, 23], ts=6, value="second"))
        second.commit()
        first.commit()
    assert len(groups(table)) == 14 and content(table)["k21"] == "second21"
    assert table.validate_metadata().ok


def test_two_writers_insert_one_key_at_once_and_one_row_is_left(table):
    with table.begin() as first, again(table).begin() as second:
        first.write(rows([20, 21, 3], ts=5, value="first"))
        second.write(rows([20, 22], ts=4, value="second"))
        assert second.commit().status == first.commit().status == "committed"
    found = content(table)
    assert found["k20"] == "first20" and found["k21"] == "first21" and found["k22"] == "second22"
    assert len(found) == 13 and found["k3"] == "first3"
    groups(table)  # none is doubled
    table.compact()
    assert content(table) == found


@pytest.mark.parametrize("late", [False, True], ids=["files_can_be_taken_back", "puts_may_be_late"])
def test_a_key_that_is_placed_at_the_last_moment_is_found_under_the_lock(table, monkeypatch, late):
    move, placed = KeysPlacedMeanwhile.move, []

    def then_another(self, timeline):
        found = move(self, timeline)
        if not placed:
            placed.append(1)
            again(table).upsert(rows([20, 21], ts=4, value="other"))
        return found

    monkeypatch.setattr(KeysPlacedMeanwhile, "move", then_another)
    if late:
        monkeypatch.setattr(placed_rows, "has_swaps", lambda storage: True)
    outcome = table.upsert(rows([20, 22, 1], ts=5, value="mine"))
    assert outcome.status == "committed"
    found = content(table)
    assert (found["k20"], found["k21"], found["k22"], found["k1"]) == ("mine20", "other21", "mine22", "mine1")
    assert len(groups(table)) == 13
    report = table.validate_metadata()
    assert report is None or report.ok
    assert len([name for name in data_files(table) if outcome.instant in name]) == outcome.files


def test_the_higher_ordering_value_wins_whoever_inserted_first(table):
    with table.begin() as late:
        late.write(rows([20], ts=3, value="older"))
        again(table).upsert(rows([20], ts=4, value="newer"))
        late.commit()
    assert content(table)["k20"] == "newer20"


def test_a_delete_meets_the_row_that_was_inserted_beside_it(table):
    gone = rows([20], ts=9).append_column("_hoodie_is_deleted", pa.array([True]))
    flagged = rows([1], ts=2).append_column("_hoodie_is_deleted", pa.array([False]))
    table.upsert(flagged)
    with table.begin() as txn:
        txn.write(gone)
        again(table).upsert(rows([20], ts=4).append_column("_hoodie_is_deleted", pa.array([False])))
        txn.commit()
    assert "k20" not in content(table)


def test_deleted_keys_are_gone_and_those_that_were_never_there_change_nothing(table):
    assert table.delete(pa.table({"id": ["k1", "k2"], "city": ["a", "a"]})).status == "committed"
    assert set(content(table)) == {"k0", *(f"k{k}" for k in range(3, 10))}
    assert table.delete(pa.table({"id": ["k77"], "city": ["a"]})).status == "empty"
    assert table.delete(pa.table({"id": ["k3"], "city": ["nowhere"]})).status == "empty"
    table.upsert(rows([1], ts=1, value="back"))
    assert content(table)["k1"] == "back1" and len(content(table)) == 9
    table.compact()
    assert len(content(table)) == 9


def test_a_key_of_several_batches_becomes_one_row(table):
    with table.begin() as txn:
        txn.write(rows([30, 31], ts=2, value="b"))
        txn.write(rows([30], ts=1, value="a"))
        txn.write(rows([31], ts=3, value="c"))
        txn.commit()
    assert content(table)["k30"] == "b30" and content(table)["k31"] == "c31"


def test_keys_are_unique_in_their_partition(make):
    table = make("SIMPLE")
    table.upsert(pa.concat_tables([rows([1], ts=1), rows([1], ts=1, city="b", value="other")]))
    table.upsert(rows([1], ts=2, city="b", value="newer"))
    found = table.scan(columns=["city", "value"]).to_arrow().to_pylist()
    assert sorted((row["city"], row["value"]) for row in found) == [("a", "v1"), ("b", "newer1")]


@pytest.mark.parametrize("kind", GLOBAL)
def test_a_global_index_keeps_a_row_where_its_key_is(make, kind):
    table = make(kind, **{name.replace(".", "__"): value for name, value in STAY.items()})
    table = again(table, **STAY)
    table.upsert(rows([1, 2], ts=1))
    table.upsert(pa.concat_tables([rows([1, 3], ts=2, city="b", value="new"), rows([3], ts=3, value="n")]))
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "value"]
    found = table.scan(columns=columns).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        ("k1", "a", "new1"), ("k2", "a", "v2"), ("k3", "a", "n3")
    ]  # fmt: skip


def test_writers_that_mean_keys_to_be_unique_elsewhere_are_refused(make, tmp_path):
    table = make("SIMPLE")
    table.upsert(rows([1], ts=1))
    with pytest.raises(Invalid, match="contradicts the table"):
        again(table, **{"hoodie.index.type": "GLOBAL_SIMPLE"}).upsert(rows([1], ts=1))


@pytest.mark.disk("a file is changed by hand")
def test_writers_of_a_table_that_names_no_index_must_agree_where_keys_are_unique(make):
    table = make("SIMPLE")
    table.upsert(rows([1], ts=1))
    path = os.path.join(table.path, ".hoodie/hoodie.properties")
    with open(path) as file:
        lines = [line for line in file if not line.startswith("hoodie.index.type")]
    with open(path, "w") as file:
        file.writelines(lines)
    with pytest.raises(Unsupported, match=r"give hoodie\.index\.type"):
        mainstem.open_table(table.path).upsert(rows([1], ts=1))
    for kind in ("SIMPLE", "BLOOM", "RECORD_LEVEL_INDEX"):
        mainstem.open_table(table.path, {"hoodie.index.type": kind}).upsert(rows([1], ts=1))
    with pytest.raises(Invalid, match="unique in its table, but other writers"):
        mainstem.open_table(table.path, {"hoodie.index.type": "GLOBAL_SIMPLE"}).upsert(rows([1], ts=1))
    assert content(table) == {"k1": "v1"}


def test_options_of_buckets_and_another_index_exclude_each_other(make_table):
    with pytest.raises(Invalid, match="exclude each other"):
        make_table(buckets=4, hoodie__index__type="SIMPLE")


def test_an_aborted_insert_leaves_nothing(table):
    files = data_files(table)
    with table.begin() as txn:
        txn.write(rows(range(50, 60), ts=1))
    assert data_files(table) == files
    assert len(content(table)) == 10


def test_columns_that_come_with_new_keys_are_added(table):
    more = rows([40], ts=1).append_column("extra", pa.array([7]))
    with table.begin() as txn:
        txn.write(rows([41, 1], ts=2))
        txn.write(more)
        txn.commit()
    found = table.scan(columns=["id", "extra"]).to_arrow().to_pylist()
    assert {row["id"]: row["extra"] for row in found if row["id"] in ("k40", "k41", "k1")} == {
        "k40": 7, "k41": None, "k1": None
    }  # fmt: skip


def test_services_and_queries_work_as_on_any_table(table):
    for number in range(4):
        table.upsert(rows(range(number, number + 8), ts=2 + number, value=f"r{number}-"))
    before = content(table)
    table.log_compact()
    assert content(table) == before
    table.compact()
    assert content(table) == content(table, mode="read_optimized") == before
    table.clean()
    table.archive()
    assert content(table) == before
    report = table.validate_metadata()
    assert report is None or report.ok


@pytest.mark.parametrize("change", ["dropped", "built anew", "taken back"])
def test_a_transaction_looks_for_keys_while_the_record_index_is_built_anew(make, change):
    table = make("RECORD_LEVEL_INDEX")
    table.upsert(rows(range(10), ts=1))
    with again(table).begin() as txn:
        txn.write(rows([1, 50], ts=5, value="w"))
        if change == "taken back":
            table.rollback(table.upsert(rows([3], ts=2)).instant)
        else:
            table.drop_index("record_index")
        if change == "built anew":
            table.create_index("record_index")
        table.upsert(rows([7, 51, 52], ts=6))
        txn.write(rows([2, 52], ts=7, value="w"))
        txn.commit()
    assert groups(table).keys() == content(table).keys()  # each once
    assert content(table) == {f"k{k}": f"v{k}" for k in [*range(10), 51]} | {
        f"k{k}": f"w{k}" for k in (1, 2, 50, 52)
    }
    assert table.validate_metadata().ok


@pytest.mark.disk("a file is changed by hand")
def test_a_pending_clustering_of_another_engine_ends_a_write_to_its_rows(table):
    from mainstem.storage import paths

    timeline = f"{table.path}/{paths.TIMELINE}"
    with table.begin() as txn:
        txn.write(rows([1], ts=2))
        later = instant_text(parse_wall(txn.instant) + timedelta(milliseconds=1))
        with open(f"{timeline}/{later}.clustering.requested", "wb"):
            pass
        with pytest.raises(RolledBack, match="clustering"):
            txn.commit()
    table.upsert(rows([99], ts=2))  # of new keys it has nothing


def test_a_table_of_hive_style_and_composite_keys(tmp_path):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key=["id", "ts"], ordering="ts", partition_by="city",
        properties={
            "hoodie.index.type": "SIMPLE", "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.mainstem.fsync": False,
        },
    )  # fmt: skip
    table.upsert(rows([1, 2], ts=1))
    table.upsert(rows([1, 3], ts=1, value="new"))
    assert content(table) == {"k1": "new1", "k2": "v2", "k3": "new3"}


def test_a_table_without_partitions(make_table):
    table = make_table(partition_by=(), buckets=None, hoodie__index__type="GLOBAL_SIMPLE")
    table.upsert(rows([1, 2], ts=1))
    table.upsert(rows([1, 3], ts=2, city="b", value="new"))
    assert content(table) == {"k1": "new1", "k2": "v2", "k3": "new3"}


@pytest.mark.parametrize("cities", ["ab", "ba"])
def test_of_rows_of_one_new_key_in_two_partitions_the_later_one_counts(make_table, cities):
    table = make_table(buckets=None, ordering=[], hoodie__index__type="GLOBAL_SIMPLE")
    table = mainstem.open_table(table.path, {**table.properties, **STAY})
    first, later = cities
    table.upsert(pa.concat_tables([rows([1], ts=9, city=first), rows([1], ts=1, value="later", city=later)]))
    assert content(table) == {"k1": "later1"}


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({"hoodie.copyonwrite.insert.auto.split": "false", "hoodie.copyonwrite.insert.split.size": "30"}, 4),
        ({"hoodie.parquet.max.file.size": "20480", "hoodie.copyonwrite.record.size.estimate": "1024"}, 5),
        ({"hoodie.parquet.max.file.size": "4096"}, 2),  # by what the rows take in memory
        ({}, 1),
    ],
)
def test_new_keys_open_file_groups_by_hudis_sizing_options(make, options, files):
    table = again(make(), **options)
    table.upsert(rows(range(100), ts=1))
    assert len(set(groups(table).values())) == files and len(content(table)) == 100


def test_many_keys_of_any_length_are_found_in_many_files(make, monkeypatch):
    monkeypatch.setattr(key_places, "KEYS_MIN", 1)  # as 20,000 keys are
    table = make()
    names = ["", "é", "short", "12345678", "exactly8", "a-long-key-0", "a-long-key-1", "x" * 300, "日本語"]
    keys = [f"{name}{number}" for name in names for number in range(5)]
    batch = rows(range(len(keys)), ts=2).set_column(0, "id", pa.array(keys))
    table.upsert(batch.slice(0, 30))
    table.upsert(batch.slice(20))
    table.upsert(batch.set_column(3, "value", pa.array([f"new{n}" for n in range(len(keys))])))
    found = content(table)
    assert {key: found[key] for key in keys} == {key: f"new{n}" for n, key in enumerate(keys)}
    assert len(groups(table)) == len(keys)
