"""Goal: a table with a metadata table is restored to a savepoint, and a completed commit of it is rolled
back; wherever that dies nothing wrong is seen, and the indexes are there again at the end.

Method: both are done on tables with statistics whose metadata table is compacted beyond the savepoint; they
die at every call that changes something and are gone on with. At every stage queries through the metadata
table and through folders give the same rows; at the end the metadata table is compared with the data.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.api.real_seams import fence_of
from mainstem.api.services import Services
from mainstem.errors import Invalid, Unavailable
from mainstem.indexing import index_build
from mainstem.indexing.index_plan import schedule as schedule_index
from mainstem.layout.properties import load_config
from mainstem.metadata.commits.setting_aside import to_rebuild
from mainstem.options import REBUILD
from mainstem.publish.publisher import Publisher
from mainstem.publish.staging import prepare
from mainstem.readers.planning.table_state import TableState
from mainstem.services import executor
from mainstem.services.metadata import metadata_compaction
from mainstem.services.restoring import restore
from mainstem.services.rolling_back import roll_back_instant
from mainstem.services.runner import ServiceWarning
from mainstem.storage import paths
from mainstem.timeline.plans import RollbackPlan
from mainstem.truetime.clock_skew import ClockSkew
from mainstem.truetime.instant_times import InstantTimes
from mainstem.writers.rollback import plan_of
from tests.services.test_metadata_compaction import SCHEMA, opened, replace_storage
from tests.storage.steps import Dead, Mortal, entered, storage_at

EVERY_2 = {"hoodie.metadata.compact.max.delta.commits": "2"}
INDEXES = {"files", "column_stats"}


def commit(table: mainstem.Table, value: int) -> str:
    return table.upsert(pa.table({"id": list(range(value, value + 4)), "ts": [value] * 4}, SCHEMA)).instant


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    """Two commits, the second saved, and two more; the metadata table is compacted after that."""
    path = tmp_path / "t"
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.metadata.enable": True, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    made = opened(path)
    made.create_index("column_stats")
    commit(made, 1)
    made.savepoint(commit(made, 2))
    commit(made, 3)
    commit(made, 4)
    assert metadata_compaction.run(made.writer_context(), if_due=False)
    return made


def same_rows(table: mainstem.Table) -> list:
    """What a query shows, whether or not it goes through the metadata table and its statistics."""
    found = []
    for through in (True, False):
        for filter in (None, pc.field("ts") > 0):
            scan = opened(table.path, hoodie__metadata__enable=through).scan(filter=filter)
            found.append(sorted(scan.to_arrow().select(["id", "ts"]).to_pylist(), key=str))
    assert all(rows == found[0] for rows in found)
    return found[0]


def is_whole(table: mainstem.Table) -> None:
    now = opened(table.path)
    assert {i.partition for i in now.indexes() if i.state == "ready"} == INDEXES
    assert not to_rebuild(load_config(storage_at(table.path)))
    report = now.validate_metadata()
    assert report is not None and report.ok, report
    same_rows(table)


def saved(table: mainstem.Table) -> str:
    return table.savepoints()[0].instant


@pytest.mark.supports("Services", "restore and rollback with a metadata table")
def test_after_a_restore_the_indexes_are_those_of_the_savepoint_and_go_on(table: mainstem.Table) -> None:
    done = table.restore(saved(table))
    assert done.completion and len(done.instants) == 2
    assert {row["ts"] for row in same_rows(table)} == {1, 2}
    is_whole(table)
    again = opened(table.path)
    for value in range(5, 10):
        commit(again, value)
    metadata_compaction.run(again.writer_context(), if_due=False)
    is_whole(table)


def test_the_newest_commit_is_rolled_back_though_the_metadata_table_was_compacted(table) -> None:
    newest = table.timeline()[-1].requested
    assert table.rollback(newest).instant == newest
    assert {row["ts"] for row in same_rows(table)} == {1, 2, 3}
    is_whole(table)
    commit(opened(table.path), 5)
    is_whole(table)


@pytest.mark.parametrize("seen", [True, False], ids=["completed", "pending again"])
def test_a_rollback_that_java_gave_up_over_a_compaction_is_ended_by_the_next_writer(table, seen) -> None:
    """Java plans it, finds the instant in a base file of the metadata table, and leaves the plan behind; its
    plans do not say whether the instant was completed."""
    ctx = table.writer_context()
    newest = table.timeline()[-1]
    plan = prepare(ctx.seams, "rollback", plan_of(ctx, RollbackPlan(newest.requested, newest.action)))
    ctx.publisher.publish(lambda time: f"{time}.rollback.requested", prepared=plan)
    if not seen:
        Path(table.path, paths.timeline_file(newest.file_name)).unlink()
    commit(opened(table.path), 5)
    assert {row["ts"] for row in same_rows(table)} == {1, 2, 3, 5}
    opened(table.path).run_services("metadata")
    is_whole(table)


@pytest.mark.parametrize("seen", [True, False], ids=["completed", "pending again"])
def test_files_that_an_index_lists_for_good_go_with_a_rollback_that_java_left_behind(tmp_path, seen) -> None:
    """The index was built after the commit, and before Java began to roll it back."""
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    commit(made, 1)
    commit(made, 2)
    opened(made.path).create_index("column_stats")
    ctx = opened(made.path).writer_context()
    newest = max((i for i in made.timeline() if i.action == "deltacommit"), key=lambda i: i.requested)
    plan = prepare(ctx.seams, "rollback", plan_of(ctx, RollbackPlan(newest.requested, newest.action)))
    ctx.publisher.publish(lambda time: f"{time}.rollback.requested", prepared=plan)
    if not seen:
        Path(made.path, paths.timeline_file(newest.file_name)).unlink()
    commit(opened(made.path), 5)
    assert {row["ts"] for row in same_rows(made)} == {1, 5}
    opened(made.path).run_services("metadata")
    is_whole(made)
    storage = storage_at(made.path)
    listed = TableState.load(storage, load_config(storage)).metadata_table.files()
    assert not [name for names in listed.values() for name in names if newest.requested in name]


def test_a_refused_rollback_leaves_the_metadata_table_as_it_is(table: mainstem.Table) -> None:
    with pytest.raises(Invalid, match="completed after it"):
        table.rollback(table.timeline()[-2].requested)
    is_whole(table)


def test_nothing_is_taken_back_while_an_index_is_being_built(table: mainstem.Table) -> None:
    ctx = table.writer_context()
    table.drop_index("column_stats")
    schedule_index(ctx, "column_stats", {})
    with pytest.raises(Invalid, match="index action"):
        table.rollback(max(i.requested for i in table.timeline() if i.action == "deltacommit"))
    with pytest.raises(Unavailable, match="indexing"):
        table.restore(saved(table))


def test_a_plan_of_the_metadata_table_that_is_pending_goes_and_its_late_executor_makes_nothing(table) -> None:
    ctx = table.writer_context()
    commit(table, 5)
    time = metadata_compaction.schedule(ctx, if_due=False)
    assert time is not None
    table.restore(saved(table))
    assert metadata_compaction.execute(ctx, time).completion is None
    is_whole(table)
    left = os.listdir(Path(table.path, paths.METADATA_TIMELINE))
    assert not [name for name in left if name.startswith(time)]


def test_an_executor_that_stood_still_through_a_restore_leaves_no_mark_of_a_plan(table, monkeypatch) -> None:
    """Java would take the mark for a compaction, and look for its plan at every query."""
    ctx = table.writer_context()
    commit(table, 5)
    time = metadata_compaction.schedule(ctx, if_due=False)
    real = executor.forget_other_attempt

    def late(*given: object) -> None:
        opened(table.path).restore(saved(table))
        real(*given)

    monkeypatch.setattr(executor, "forget_other_attempt", late)
    assert metadata_compaction.execute(ctx, time).completion is None
    opened(table.path).rollback_failed_writes()
    left = os.listdir(Path(table.path, paths.METADATA_TIMELINE))
    assert not [name for name in left if name.startswith(time)]
    is_whole(table)


@pytest.mark.filterwarnings("ignore::mainstem.services.runner.ServiceWarning")
def test_indexes_that_could_not_be_built_are_built_by_the_next_round(table, monkeypatch) -> None:
    from mainstem.indexing import creating

    def fails(*given: object, **how: object) -> None:
        raise Unavailable("no space")

    with monkeypatch.context() as patch:
        patch.setattr(creating, "create", fails)
        with pytest.warns(ServiceWarning, match="no space"):
            assert table.restore(saved(table)).completion
    assert to_rebuild(load_config(storage_at(table.path))) == ("column_stats", "files")
    assert not [i for i in opened(table.path).indexes() if i.state == "ready"]
    commit(opened(table.path), 6)  # writers go on without
    (done,) = opened(table.path).run_services("metadata")
    assert [r.describe().split()[1] for r in done.results[:2]] == ["files", "column_stats"]
    is_whole(table)


@pytest.mark.filterwarnings("ignore::mainstem.services.runner.ServiceWarning")
def test_a_build_that_fails_under_way_is_made_up_for_by_the_next_round(table, monkeypatch) -> None:
    def fails(*given: object) -> None:
        raise Unavailable("no space")

    with monkeypatch.context() as patch:
        patch.setattr(index_build._Build, "_complete", fails)
        table.restore(saved(table))
    assert to_rebuild(load_config(storage_at(table.path))) == ("column_stats", "files")
    assert opened(table.path).index("column_stats").columns, "the definition stays"
    opened(table.path).run_services("metadata")
    is_whole(table)


@pytest.mark.filterwarnings("ignore::mainstem.services.runner.ServiceWarning")
def test_an_index_of_a_column_that_the_restore_took_away_hinders_no_other(tmp_path: Path) -> None:
    path = tmp_path / "t"
    properties = {"hoodie.mainstem.exclusive": True, "hoodie.metadata.compact.max.delta.commits": 2}
    mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2, properties=properties)
    saved = commit(opened(path), 1)
    opened(path).savepoint(saved)
    opened(path).upsert(pa.table({"id": [9], "ts": [2], "color": ["red"]}))
    opened(path).create_index("column_stats", ["ts", "color"])
    opened(path).create_index("secondary_index", ["color"])
    opened(path).create_index("secondary_index", ["ts"])
    with pytest.warns(ServiceWarning, match="column_stats .* no column 'color'.*drop_index"):
        opened(path).restore(saved)
    there = {"files", "record_index", "secondary_index_ts"}
    assert {i.partition for i in opened(path).indexes() if i.state == "ready"} == there
    writer = opened(path, hoodie__table__services__enabled=False)
    for value in (3, 4, 5):
        commit(writer, value)
    (done,) = opened(path).run_services("metadata")
    assert "no column" in str(done.error) and "compaction" in done.describe()
    for index in ("column_stats", "secondary_index_color"):
        opened(path).drop_index(index)
    (done,) = opened(path).run_services("metadata")
    assert done.error is None and opened(path).validate_metadata().ok


def test_an_index_that_is_dropped_before_it_is_built_again_stays_away(table, monkeypatch) -> None:
    monkeypatch.setattr(Services, "_rebuild_metadata", lambda self: None)
    table.restore(saved(table))
    opened(table.path).drop_index("column_stats")
    assert load_config(storage_at(table.path)).raw[REBUILD] == "files"
    opened(table.path).run_services("metadata")
    assert [i.partition for i in opened(table.path).indexes()] == ["files"]


def dying(table: mainstem.Table, work, at: int) -> bool:
    """Do it in a process that dies at that call; whether it did."""
    ctx = table.writer_context()
    seams = replace(ctx.seams, storage=Mortal(ctx.seams.storage, at))
    publisher = Publisher(seams, InstantTimes(), fence_of(seams, None), skew=ClockSkew(0), exclusive=True)
    beats = replace_storage(ctx, seams.storage)
    try:
        work(replace(ctx, seams=seams, publisher=publisher, heartbeats=beats))
    except Dead:
        return True
    return False


@pytest.mark.parametrize("what", ["restore", "rollback"])
def test_what_dies_anywhere_shows_nothing_wrong_and_is_gone_on_with(table, tmp_path, what: str) -> None:
    savepoint, newest = saved(table), max(i.requested for i in table.timeline() if i.action == "deltacommit")
    before, seen = same_rows(table), []
    at, died = -3, True
    while died:
        at += 6
        copy = opened(shutil.copytree(table.path, tmp_path / f"copy{at}"))
        if what == "restore":
            died = dying(copy, lambda ctx: restore(ctx, savepoint), at)
        else:
            died = dying(copy, lambda ctx: roll_back_instant(ctx, newest), at)
        seen.append(same_rows(copy))
        for beat in Path(copy.path, paths.HEARTBEATS).glob("*"):
            os.utime(beat, (1_700_000_000, 1_700_000_000))
        now = opened(copy.path)
        entered(now)
        if what == "restore":
            now.restore(savepoint)
        elif any(i.requested == newest for i in now.timeline()):
            now.rollback(newest)
        else:
            now.run_services(["rollback", "metadata"])
        is_whole(copy)
        shutil.rmtree(copy.path)
    assert at > 25
    after = seen[-1]
    turned = seen.index(after)
    assert seen == [before] * turned + [after] * (len(seen) - turned), "before, then after, and nothing else"
