"""Goal: on tables without buckets a clustering makes few files of many, changes no answer, stops no writer.

Method: tables through the public API. What happens beside a transaction happens between its begin and its
commit, or at its last moment; what happens beside a clustering, while it executes.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_table import SCHEMA, content, rows

import mainstem
from mainstem.cli.main import main
from mainstem.errors import CorruptTable, Invalid, Unavailable, Unsupported
from mainstem.indexing.index_build import create
from mainstem.indexing.index_spec import IndexSpec
from mainstem.metadata.index_definitions import PARTITIONED, Definition
from mainstem.metadata.metadata_partitions import RECORD_INDEX
from mainstem.services import claim, cluster_group, clustering
from mainstem.services.cluster_group import OutputTask
from mainstem.services.other_attempts import sweep_private
from mainstem.storage import paths
from mainstem.timeline.clustering_plans import (
    ClusteredSlice,
    ClusteringGroup,
    ClusteringPlan,
    encode_clustering_plan,
    load_clustering_plan,
)
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.truetime.instant_times import instant_text, parse_wall
from mainstem.writers import placed_rows, rollback
from mainstem.writers.keys_placed_meanwhile import KeysPlacedMeanwhile

GIVEN = {
    "hoodie.simple.index.update.partition.path": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.mainstem.services": "off",
}
OPTION = "hoodie.clustering.plan.strategy."


@pytest.fixture
def make(make_table):
    """A table under an index, with ``count`` file groups of ten keys each in partition a."""

    def make(kind="SIMPLE", count=3, **more):
        table = make_table(kind, buckets=None, hoodie__index__type=kind, **{**GIVEN, **more})
        if kind.endswith("RECORD_LEVEL_INDEX"):
            table.create_index("record_index")
        for number in range(count):
            table.upsert(rows(range(10 * number, 10 * number + 10), ts=1))
        return table

    return make


@pytest.fixture
def plain(make):
    """Keys k0 to k29 in three file groups of partition a; k5 to k14 are updated."""
    return updated(make())


@pytest.fixture(params=["SIMPLE", "RECORD_LEVEL_INDEX"])
def table(request, make):
    """The same, with and without a record index."""
    return updated(make(request.param))


def updated(table):
    table.upsert(rows(range(5, 15), ts=2, value="new"))
    return table


def again(table, **more):
    """The same table in another writer."""
    return mainstem.open_table(table.path, {**table.properties, **GIVEN, **more})


def groups(table):
    """Record key -> file id of its row."""
    found = table.scan(columns=["_hoodie_record_key", "_hoodie_file_name"]).to_arrow().to_pylist()
    every = {row["_hoodie_record_key"]: row["_hoodie_file_name"][:36] for row in found}
    assert len(every) == len(found), "a key is doubled"
    return every


def check(table, expected):
    """The rows, each key once, and indexes that agree."""
    assert content(table) == expected
    groups(table)
    report = table.validate_metadata()
    assert report is None or report.ok, report


def commit_of(table, done):
    """The commit's metadata, decoded."""
    path = paths.timeline_file(f"{done.requested}_{done.completion}.replacecommit")
    return decode_commit(table.opened.seams.storage.read(path, max_bytes=1 << 20), path=path)


# -- what a clustering does --------------------------------------------------------------------------


@pytest.mark.supports("Services", "clustering of tables without buckets, beside running writers")
def test_small_file_groups_become_one_and_no_answer_changes(table):
    before, old = content(table), set(groups(table).values())
    (done,) = table.cluster()
    assert (done.replaced, done.rows, len(done.files)) == (3, 30, 1)
    check(table, before)
    assert len(set(groups(table).values())) == 1 and old.isdisjoint(groups(table).values())
    commit = commit_of(table, done)
    assert {file_id[:36] for file_id in commit.replaced["a"]} == old
    assert commit.operation == "CLUSTER" and "value" in commit.schema
    assert content(table, mode="read_optimized") == before
    assert table.cluster() == []  # it ends


def test_rows_keep_their_commit_times_and_know_their_file(plain):
    columns = ["_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key"]
    before = plain.scan(columns=columns).to_arrow().sort_by("_hoodie_record_key")
    (done,) = plain.cluster()
    assert plain.scan(columns=columns).to_arrow().sort_by("_hoodie_record_key") == before
    names = plain.scan(columns=["_hoodie_file_name"]).to_arrow()["_hoodie_file_name"].unique().to_pylist()
    assert [f"a/{name}" for name in names] == list(done.files)


@pytest.mark.parametrize("strategy", ["linear", "z-order", "hilbert"])
def test_rows_come_in_the_order_that_is_asked_for(make, strategy):
    table = make()
    before = content(table)
    (done,) = table.cluster(["value", "ts"], strategy=strategy)
    assert done.order == f"{strategy}:value,ts"
    check(table, before)
    if strategy == "linear":
        with table.opened.seams.storage.open_input(done.files[0]) as file:
            values = pq.read_table(file)["value"].to_pylist()
        assert values == sorted(values)
    assert table.cluster(["value", "ts"], strategy=strategy) == []
    assert table.cluster("id")[0].replaced == 1  # a group alone, in another order


@pytest.mark.parametrize("order", [None, "value", "curve"])
def test_what_is_larger_than_the_target_becomes_several_files(make, order):
    table = make(count=0)
    for number in range(4):
        keys = [hashlib.sha256(f"{k}".encode()).hexdigest() for k in range(500 * number, 500 * number + 500)]
        table.upsert(rows(keys, ts=1))
    before = content(table)
    size = max(table.opened.seams.storage.stat(f"a/{n}").size for n in bases(table))
    small = again(table, **{f"{OPTION}target.file.max.bytes": str(2 * size)})
    how = {"columns": ["value", "id"], "strategy": "hilbert"} if order == "curve" else {"columns": order}
    (done,) = small.cluster(**how)
    assert len(done.files) == 2 and done.rows == 2000
    check(table, before)
    parts = []
    for file in done.files:
        with table.opened.seams.storage.open_input(file) as source:
            parts.append(pq.read_table(source)["value"].to_pylist())
    assert all(parts)
    if order == "value":
        assert max(parts[0]) < min(parts[1])
    assert small.cluster(**how) == []


def bases(table, city="a"):
    found = table.opened.seams.storage.names(city)
    return [name for name in found if paths.parse_base_name(name) is not None]


def test_hudis_options_say_what_goes_together(make):
    table = make(count=4)
    size = max(table.opened.seams.storage.stat(f"a/{n}").size for n in bases(table))
    assert again(table, **{f"{OPTION}small.file.limit": "100"}).cluster() == []
    pairs = {f"{OPTION}max.bytes.per.group": str(2 * size + 10), f"{OPTION}max.num.groups": "1"}
    assert [done.replaced for done in again(table, **pairs).cluster()] == [2]
    with pytest.raises(Invalid, match=r"max\.num\.groups"):
        again(table, **{f"{OPTION}max.num.groups": "0"})


def test_only_the_partitions_that_are_named_are_clustered(make):
    table = make(count=2)
    for number in range(2):
        table.upsert(rows(range(100 + 5 * number, 105 + 5 * number), ts=1, city="b"))
    (done,) = table.cluster(partitions=["b"])
    assert done.replaced == 2 and done.files[0].startswith("b/")
    (done,) = table.cluster()
    assert done.replaced == 2 and done.files[0].startswith("a/")


def test_deleted_rows_are_gone_and_come_back_once(table):
    table.delete(rows([3, 4], ts=9))
    (done,) = table.cluster()
    assert done.rows == 28
    table.upsert(rows([3, 50], ts=3, value="back"))
    found = content(table)
    assert len(found) == 30 and found["k3"] == "back3" and "k4" not in found
    check(table, found)


# -- writers go on -----------------------------------------------------------------------------------


def test_a_write_in_flight_goes_to_where_its_keys_live_after_a_clustering(table):
    table.delete(rows([7], ts=2))  # the clustering leaves it out
    with again(table).begin() as txn:
        txn.write(rows([1, 12, 25, 7, 40], ts=5, value="late"))
        txn.write(rows([41, 1], ts=6, value="last"))
        (done,) = table.cluster()
        assert txn.commit().status == "committed"
    home = done.files[0].rpartition("/")[2][:36]
    expected = {f"k{k}": f"{'new' if 5 <= k < 15 else 'v'}{k}" for k in range(30)}
    expected |= {f"k{k}": f"late{k}" for k in (12, 25, 7, 40)} | {f"k{k}": f"last{k}" for k in (41, 1)}
    check(table, expected)
    assert {groups(table)[f"k{k}"] for k in (1, 12, 25)} == {home}
    wrote = table.changes(after=done.completion).to_arrow()["id"].to_pylist()
    assert sorted(wrote) == sorted(["k1", "k12", "k25", "k7", "k40", "k41"])  # each once
    table.compact()
    check(table, expected)


def test_under_a_global_index_a_write_in_flight_moves_too(make):
    table = updated(make("GLOBAL_SIMPLE"))
    with again(table).begin() as txn:
        txn.write(rows([1, 40], ts=5, value="late", city="b"))
        table.cluster()
        txn.commit()
    found = table.scan(columns=["id", "_hoodie_partition_path", "value"]).to_arrow().to_pylist()
    found = {row["id"]: (row["_hoodie_partition_path"], row["value"]) for row in found}
    assert (found["k1"], found["k40"]) == (("a", "late1"), ("b", "late40")) and len(found) == 31


def test_deletes_in_flight_meet_their_rows_after_a_clustering(table):
    with again(table).begin("delete") as txn:
        txn.write(rows([1, 12, 60], ts=0).select(["id", "city"]))
        table.cluster()
        txn.commit()
    found = content(table)
    assert len(found) == 28 and "k1" not in found and "k12" not in found
    check(table, found)


def test_new_keys_that_another_writer_placed_before_a_clustering_are_found_behind_it(table):
    with again(table).begin() as txn:
        txn.write(rows([70, 71], ts=5, value="mine"))
        table.upsert(rows([70, 72], ts=4, value="other"))
        table.cluster()
        txn.commit()
    found = content(table)
    assert (found["k70"], found["k71"], found["k72"]) == ("mine70", "mine71", "other72")
    check(table, found)


def test_two_clusterings_within_one_transaction(plain):
    with again(plain).begin() as txn:
        txn.write(rows([1, 28], ts=5, value="late"))
        plain.cluster()
        txn.write(rows([2, 80], ts=5, value="late"))
        plain.upsert(rows(range(90, 95), ts=1))
        plain.cluster()
        txn.commit()
    found = content(plain)
    assert [found[f"k{k}"] for k in (1, 28, 2, 80)] == ["late1", "late28", "late2", "late80"]
    check(plain, found)
    assert len(found) == 36


@pytest.mark.parametrize("late", [False, True], ids=["files_can_be_taken_back", "puts_may_be_late"])
def test_a_clustering_at_the_last_moment_is_found_under_the_lock(table, monkeypatch, late):
    move, clustered = KeysPlacedMeanwhile.move, []

    def then_a_clustering(self, timeline):
        found = move(self, timeline)
        if not clustered:
            clustered.append(1)
            again(table).cluster()
        return found

    monkeypatch.setattr(KeysPlacedMeanwhile, "move", then_a_clustering)
    if late:
        monkeypatch.setattr(placed_rows, "has_swaps", lambda storage: True)
    assert table.upsert(rows([1, 12, 30], ts=5, value="late")).status == "committed"
    found = content(table)
    assert [found[f"k{k}"] for k in (1, 12, 30)] == ["late1", "late12", "late30"]
    check(table, found)
    assert len(found) == 31


def test_rows_that_were_filled_into_a_small_file_group_move_with_it(make, monkeypatch):
    table = again(make("RECORD_LEVEL_INDEX"), **{"hoodie.parquet.small.file.limit": "1000000"})
    move, clustered = KeysPlacedMeanwhile.move, []

    def then_a_clustering(self, timeline):
        found = move(self, timeline)
        if len(clustered) < 1:
            clustered.append(1)
            self._appender.finish()  # new keys lie in a log file by now
            again(table).cluster()
        return found

    monkeypatch.setattr(KeysPlacedMeanwhile, "move", then_a_clustering)
    table.upsert(rows([1, 40, 41], ts=5, value="late"))
    found = content(table)
    assert [found[f"k{k}"] for k in (1, 40, 41)] == ["late1", "late40", "late41"] and len(found) == 32
    check(table, found)


def test_columns_that_came_within_a_transaction_move_with_their_rows(plain):
    more = rows([2, 90], ts=5, value="late").append_column("extra", pa.array([7, 8]))
    with again(plain).begin() as txn:
        txn.write(rows([1], ts=5, value="late"))
        txn.write(more)
        plain.cluster()
        txn.commit()
    found = {r["id"]: r["extra"] for r in plain.scan(columns=["id", "extra"]).to_arrow().to_pylist()}
    assert (found["k1"], found["k2"], found["k90"], found["k3"]) == (None, 7, 8, None)
    assert content(plain)["k1"] == "late1"


def test_a_writer_takes_back_a_plan_of_its_file_groups_and_goes_on(table):
    planned = table.schedule_clustering()
    again(table).upsert(rows([99], ts=1))  # of new keys it has nothing
    assert clustering.pending(table.writer_context().timeline()) == [planned]
    again(table).upsert(rows([1, 2], ts=5, value="late"))
    assert clustering.pending(table.writer_context().timeline()) == []
    assert table.run_clustering() == []
    (done,) = table.cluster()
    assert done.completion is not None
    found = content(table)
    assert found["k1"] == "late1" and len(found) == 31
    check(table, found)


def test_a_clustering_whose_plan_went_while_it_executed_is_planned_anew(plain, monkeypatch):
    run, wrote = OutputTask.run, []

    def beside_a_writer(self, storage, identity):
        if not wrote:
            wrote.append(again(plain).upsert(rows([1], ts=5, value="late")))
        return run(self, storage, identity)

    monkeypatch.setattr(OutputTask, "run", beside_a_writer)
    first, second = plain.cluster()
    assert first.completion is None and "taken back" in first.describe()
    assert second.completion is not None and content(plain)["k1"] == "late1"
    assert not [name for name in plain.opened.seams.storage.names("a") if first.requested in name]
    check(plain, content(plain))


def test_a_clusterer_whose_new_file_goes_with_its_plan_steps_back(plain, monkeypatch):
    def made(*given, **more):
        info = make_file(*given, **more)
        again(plain).upsert(rows([1], ts=5, value="late"))  # takes the plan back, and its files
        return info

    make_file = cluster_group.make_file
    monkeypatch.setattr(cluster_group, "make_file", made)
    (done,) = plain.run_clustering(plain.schedule_clustering())
    assert done.completion is None and "taken back" in done.describe()
    assert content(plain)["k1"] == "late1"
    check(plain, content(plain))


@pytest.mark.disk("elsewhere an object tells the time")
def test_the_file_that_tells_the_time_may_go_with_the_plan_that_is_claimed(plain, monkeypatch):
    @contextmanager
    def swept_once(seams, owner, data):
        with prepared(seams, owner, data) as path:
            if not swept:
                swept.append(path)
                sweep_private(seams.storage, owner)
            yield path

    swept, prepared = [], claim.prepared
    monkeypatch.setattr(claim, "prepared", swept_once)
    assert claim.store_now_ms(plain.writer_context(), plain.schedule_clustering()) > 0
    assert len(swept) == 1


def test_a_write_that_left_the_plan_alone_is_found_by_the_clustering(plain, monkeypatch):
    """As one of another engine."""
    monkeypatch.setattr(KeysPlacedMeanwhile, "_plans", lambda self, timeline: iter(()))
    planned = plain.schedule_clustering()
    again(plain).upsert(rows([1], ts=5, value="late"))
    (done,) = plain.run_clustering(planned)
    assert done.completion is None and "wrote to its file groups" in done.why
    assert clustering.pending(plain.writer_context().timeline()) == []
    assert content(plain)["k1"] == "late1"
    (done,) = plain.cluster()
    assert done.completion is not None and content(plain)["k1"] == "late1"


@pytest.mark.disk("a file is made by hand")
def test_a_clustering_steps_back_for_another_engines_write_in_flight(plain):
    newest = max(i.requested for i in plain.timeline())
    theirs = instant_text(parse_wall(newest) + timedelta(milliseconds=1))
    storage = plain.opened.seams.storage
    for state in ("requested", "inflight"):
        storage.put_new(paths.timeline_file(f"{theirs}.deltacommit.{state}"), b"", durable=False)
    storage.put_new(paths.heartbeat(theirs), b"", durable=False)
    found = plain.cluster()
    assert len(found) == 3 and all(done.completion is None for done in found)
    assert theirs in found[0].why and "another engine" in found[0].why
    for state in ("inflight", "requested"):
        storage.delete(paths.timeline_file(f"{theirs}.deltacommit.{state}"))
    storage.delete(paths.heartbeat(theirs))
    assert plain.cluster()[0].completion is not None


# -- executors ---------------------------------------------------------------------------------------


def test_another_process_finishes_the_plan_of_one_that_died(plain, monkeypatch):
    before = content(plain)
    small = again(plain, **{f"{OPTION}target.file.max.bytes": "1000"})
    planned = small.schedule_clustering("value")
    run, died = OutputTask.run, []

    def once(self, storage, identity):
        if self.number == 1 and not died:
            died.append(1)
            raise OSError(5, "the disk is gone")
        return run(self, storage, identity)

    monkeypatch.setattr(OutputTask, "run", once)
    with pytest.raises(Unavailable, match="its plan stays"):
        small.run_clustering(planned)
    (done,) = again(plain).run_clustering(planned)
    assert done.completion is not None and len(done.files) > 2
    check(plain, before)
    assert plain.run_clustering() == []
    with pytest.raises(Invalid, match="no clustering"):
        plain.run_clustering(planned)


def test_a_pending_clustering_is_rolled_back_by_name(plain):
    planned = plain.schedule_clustering()
    done = plain.rollback(planned)
    assert (done.instant, done.action) == (planned, "clustering")
    assert clustering.pending(plain.writer_context().timeline()) == []
    assert plain.cluster()[0].completion is not None


def test_a_strategy_that_is_not_known_is_refused_by_name(plain, monkeypatch):
    monkeypatch.setattr(
        clustering, "ClusteringPlan", lambda groups, **how: ClusteringPlan(groups, "org.acme.Shuffle", **how)
    )
    plain.schedule_clustering()
    with pytest.raises(Unsupported, match=r"org\.acme\.Shuffle"):
        plain.run_clustering()
    assert len(content(plain)) == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: {"base_file": "../../etc/passwd"}, "not in the partition|no base file"),
        (lambda one: {"log_files": (one.base_file,)}, "no log file"),
        (lambda one: {"partition": "../b"}, "leaves the table"),
        (lambda one: {"file_id": "another-0"}, "for the file group"),
        (lambda one: {"base_file": None, "log_files": ()}, "names no file"),
        (lambda one: {"base_file": one.base_file.replace("-0_", "-0_9")}, "does not exist"),
    ],
    ids=["outside", "no_log", "partition", "another_group", "empty", "gone"],
)
def test_a_hostile_or_damaged_plan_is_refused_before_anything_is_done(make, change, message):
    table = make()
    ctx, storage = table.writer_context(), table.opened.seams.storage
    planned = table.schedule_clustering()
    plan = load_clustering_plan(storage, planned)
    first = plan.groups[0].slices[0]
    fields = {"partition": "a", "file_id": first.file_id, "base_file": first.base_file, "log_files": ()}
    bad = ClusteredSlice(**{**fields, **change(first)})
    bad_plan = ClusteringPlan((ClusteringGroup((bad,), 1),))
    path = paths.timeline_file(f"{planned}.clustering.requested")
    storage.put(path, encode_clustering_plan(bad_plan, ctx.written_base), durable=False)
    with pytest.raises(CorruptTable, match=message):
        table.run_clustering()
    assert len(content(table)) == 30


def test_the_command_clusters_a_table_without_buckets(plain, capsys):
    before = content(plain)
    assert main(["cluster", plain.path]) == 0
    assert "3 file groups became 1, 30 rows" in capsys.readouterr().out
    assert main(["cluster", plain.path, "--json"]) == 0
    assert content(plain) == before


def test_a_rollback_of_a_plan_that_died_is_finished_by_the_next_writer(plain, monkeypatch):
    planned = plain.schedule_clustering()
    with monkeypatch.context() as patched:
        patched.setattr(rollback, "execute_rollback", died)
        with pytest.raises(Unavailable), again(plain).begin() as txn:
            txn.write(rows([1], ts=5, value="dies"))
            txn.commit()
    again(plain).upsert(rows([1], ts=5, value="late"))
    assert content(plain)["k1"] == "late1"
    assert planned not in [i.requested for i in plain.timeline()]


def died(*given, **named):
    """The rollback's plan is published."""
    raise OSError(5, "the process is gone")


def test_a_table_with_buckets_has_no_clusterings_to_run(make_table):
    with pytest.raises(Unsupported, match="has buckets"):
        make_table().run_clustering()


# -- other services ----------------------------------------------------------------------------------


def test_compactions_leave_the_file_groups_of_a_plan_alone(plain):
    plain.upsert(rows(range(100, 110), ts=1, city="b"))
    plain.upsert(rows([5, 105], ts=7, value="late", city="b").slice(1))
    plain.upsert(rows([5], ts=7, value="late"))
    planned = plain.schedule_clustering(partitions=["a"])
    done = plain.compact()
    assert [file[0] for one in done for file in one.files] == ["b"]
    plain.log_compact()
    found = content(plain)
    assert plain.run_clustering(planned)[0].completion is not None
    check(plain, found)


def test_replaced_file_groups_are_cleaned_archived_and_never_shown_again(make):
    kept = {"clean.commits.retained": "1", "keep.min.commits": "2", "keep.max.commits": "3"}
    table = again(make(), **{f"hoodie.{name}": value for name, value in kept.items()})
    old = set(bases(table))
    (done,) = table.cluster()
    for number in range(6):
        table.upsert(rows([number], ts=2 + number, value="more"))
    found = content(table)
    table.clean()
    assert old.isdisjoint(bases(table))
    for _ in range(3):
        table.archive()
    assert done.requested not in [i.requested for i in table.timeline()]
    check(table, found)
    table.upsert(rows([9, 200], ts=50, value="end"))
    check(table, {**found, "k9": "end9", "k200": "end200"})


def test_a_restore_brings_the_replaced_file_groups_back(table):
    before = content(table)
    point = table.savepoint()
    with again(table).begin() as txn:
        txn.write(rows([1, 300], ts=5, value="late"))
        table.cluster()
        txn.commit()
    assert content(table)["k1"] == "late1"
    table.restore(point.instant)
    check(table, before)
    table.upsert(rows([1], ts=6, value="after"))
    check(table, {**before, "k1": "after1"})


def test_views_of_the_past_and_changes_see_no_clustering(plain):
    before = content(plain)
    newest = max(i.completion for i in plain.timeline() if i.completion)
    (done,) = plain.cluster()
    plain.upsert(rows([1], ts=5, value="late"))
    assert content(plain, as_of_completion=newest) == before
    assert content(plain, as_of_completion=done.completion) == before
    assert plain.changes(after=newest, until=done.completion).to_arrow().num_rows == 0
    assert plain.changes(after=newest).to_arrow()["id"].to_pylist() == ["k1"]


def test_a_table_without_partitions_is_clustered(make_table):
    table = make_table(partition_by=(), buckets=None, hoodie__index__type="SIMPLE", **GIVEN)
    for number in range(3):
        table.upsert(rows([number, 10 + number], ts=1))
    (done,) = table.cluster("value")
    assert done.replaced == 3 and len(content(table)) == 6
    assert SCHEMA.names == ["id", "city", "ts", "value"]


# ------------------------------------------------------------------------- beside overwrites and moves


@pytest.mark.parametrize("operation", ["insert_overwrite_table", "insert_overwrite", "truncate"])
def test_an_overwrite_hides_what_a_clustering_wrote_anew_while_it_was_in_flight(table, operation):
    if operation == "truncate":
        txn, given, expected = table.begin("insert_overwrite_table"), None, {}
    else:
        txn, given = table.begin(operation), rows([3, 50], ts=1, value="over")
        expected = {"k3": "over3", "k50": "over50"}
    assert all(one.completion for one in again(table).cluster())
    if given is not None:
        txn.write(given)
    txn.commit()
    assert content(table) == expected
    assert table.validate_metadata() is None or table.validate_metadata().ok


def test_an_overwrite_beside_a_planned_clustering_is_refused_and_hides_nothing(table):
    before = content(table)
    with pytest.raises(Unavailable, match="clustering"), table.begin("insert_overwrite_table") as txn:
        assert table.schedule_clustering() is not None
        txn.write(rows([3], ts=1, value="over"))
        txn.commit()
    assert content(table) == before


@pytest.mark.parametrize("moment", ["before the rows", "after the rows"])
def test_a_write_whose_keys_move_meets_a_clustering(make_table, moment):
    given = {**GIVEN, "hoodie.simple.index.update.partition.path": "true"}
    table = make_table("moves", buckets=None, hoodie__index__type="GLOBAL_SIMPLE", **given)
    for number in range(3):
        table.upsert(rows(range(10 * number, 10 * number + 10), ts=1))
    other = mainstem.open_table(table.path, {**table.properties, **given})
    moved, kept = rows([1], ts=2, value="moved", city="b"), rows([2], ts=2, value="kept")
    with table.begin() as txn:
        if moment == "before the rows":
            other.cluster()
        txn.write(pa.concat_tables([moved, kept]))
        if moment == "after the rows":
            other.cluster()
        txn.commit()
    expected = {f"k{n}": f"v{n}" for n in range(30)} | {"k1": "moved1", "k2": "kept2"}
    assert content(table) == expected
    assert table.scan(columns=["id"]).to_arrow().num_rows == 30


@pytest.mark.parametrize("moment", ["before the rows", "after the rows", "at the last moment"])
def test_a_global_record_index_does_not_hide_a_move_behind_a_clustering(make_table, monkeypatch, moment):
    """Its rows count in the order of requested times. Java makes such an index on tables with partitions."""
    kind = "GLOBAL_RECORD_LEVEL_INDEX"
    given = {**GIVEN, "hoodie.record.index.update.partition.path": "true"}
    made = make_table("moves", buckets=None, hoodie__index__type=kind, **given)
    given |= made.properties
    mainstem.open_table(made.path, given).create_index("files")
    definition = Definition(RECORD_INDEX, RECORD_INDEX, "", (), {PARTITIONED: "false"}, "V1")
    table = mainstem.open_table(made.path, given)
    create(table.index_context(), IndexSpec(RECORD_INDEX, 2, definition=definition))
    table, other = mainstem.open_table(made.path, given), mainstem.open_table(made.path, given)
    for number in range(2):
        table.upsert(rows(range(10 * number, 10 * number + 10), ts=1))
    moved, move = rows([1], ts=2, value="moved", city="b"), KeysPlacedMeanwhile.move

    def then_a_clustering(self, timeline):
        found = move(self, timeline)
        monkeypatch.undo()
        other.cluster()
        return found

    with table.begin() as txn:
        if moment == "before the rows":
            other.cluster()
        txn.write(moved)
        if moment == "after the rows":
            other.cluster()
        if moment == "at the last moment":
            monkeypatch.setattr(KeysPlacedMeanwhile, "move", then_a_clustering)
        assert txn.commit().instant > txn.instant
    check(table, {f"k{n}": f"v{n}" for n in range(20)} | {"k1": "moved1"})
    table.upsert(rows([1], ts=3, value="back"))
    check(table, {f"k{n}": f"v{n}" for n in range(20)} | {"k1": "back1"})


@pytest.mark.parametrize("moment", ["before the rows", "after the rows"])
def test_a_key_that_others_wrote_and_deleted_before_a_clustering_is_new_again_for_the_record_index(
    make, moment
):
    """Its rows count in the order of requested times: that of the other writer would hide ours."""
    table = again(make("RECORD_LEVEL_INDEX"))
    mine = rows([1, 77], ts=5, value="late")

    def others():
        again(table).upsert(rows([1, 77], ts=2))
        again(table).delete(rows([1, 77], ts=9))
        again(table).cluster()

    with table.begin() as txn:
        if moment == "before the rows":
            others()
        txn.write(mine)
        if moment == "after the rows":
            others()
        assert txn.commit().instant > txn.instant
    found = content(table)
    assert (found["k1"], found["k77"], len(found)) == ("late1", "late77", 31)
    table.upsert(rows([1, 77], ts=6, value="more"))
    check(table, {**found, "k1": "more1", "k77": "more77"})
