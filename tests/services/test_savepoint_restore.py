"""Goal: a savepoint keeps an instant's files, a restore brings exactly that state back, and nobody loses
anything that was not to be removed.

Method: small tables with writers in flight, compactions and dead writers are saved, restored, interrupted
at every storage call and gone on with; every answer is compared with the one before.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import Invalid, RolledBack, Unavailable, Unsupported
from mainstem.formats.avro_container import encode_container
from mainstem.readers.planning.table_state import TableState
from mainstem.services import compaction, restore_plan, restoring, rolling_back
from mainstem.services.claim import claim
from mainstem.storage import paths
from mainstem.timeline.active import load_timeline
from mainstem.timeline.commit_metadata import schema_text
from mainstem.timeline.plans import RollbackPlan
from mainstem.writers.stream_guard import StreamGuard
from tests.services.city_table import QUICK, aged, content, make, rows
from tests.storage.steps import Dead, Mortal, before_naming, entered

pytestmark = pytest.mark.supports("Services", "savepoint, restore, rollback of an instant")


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    return make(tmp_path / "t")


def data_files(table: mainstem.Table) -> set[str]:
    found = (p for p in Path(table.path).rglob("*") if paths.file_id_of(p.name) is not None)
    return {str(p.relative_to(table.path)) for p in found if paths.HOODIE not in p.parts}


def plan_clean(table: mainstem.Table, path: str) -> None:
    """A pending clean of one file, as its planner would leave it."""
    record = {
        "policy": "KEEP_LATEST_COMMITS",
        "filePathsToBeDeletedPerPartition": {
            os.path.dirname(path): [{"filePath": f"file:{table.path}/{path}", "isBootstrapBaseFile": False}]
        },
        "version": 2,
    }
    name = f"{table.timeline()[-1].completion}.clean.requested"
    data = encode_container(schema_text("HoodieCleanerPlan"), record)
    (Path(table.path) / paths.TIMELINE / name).write_bytes(data)


# -- savepoints ----------------------------------------------------------------------------------


def test_a_savepoint_is_of_the_instant_completed_last_and_names_its_files(table):
    table.upsert(rows(range(8), 1))
    table.compact()
    last = table.upsert(rows(range(4), 2))
    saved = table.savepoint(user="ann", comment="before the migration")
    assert saved.instant == last.instant
    assert (saved.user, saved.comment) == ("ann", "before the migration")
    assert table.savepoints() == [saved]
    read = [f for f in data_files(table) if f.endswith(".parquet") or last.instant in f]
    assert saved.files == len(read)  # not the log files that the compaction merged
    assert "before the migration" in saved.describe()


def test_a_second_savepoint_of_one_instant_gives_the_first(table):
    table.upsert(rows(range(4), 1))
    first = table.savepoint(comment="one")
    assert table.savepoint(comment="two") == first


def test_a_deleted_savepoint_leaves_no_file(table):
    before = set(os.listdir(Path(table.path) / paths.TIMELINE))
    instant = table.upsert(rows(range(4), 1)).instant
    table.savepoint(instant)
    table.delete_savepoint(instant)
    assert table.savepoints() == []
    left = set(os.listdir(Path(table.path) / paths.TIMELINE)) - before
    assert all(instant in name and "savepoint" not in name for name in left)
    with pytest.raises(Invalid, match="there is no savepoint"):
        table.delete_savepoint(instant)


def test_only_completed_writes_of_the_timeline_can_be_saved(table):
    with pytest.raises(Invalid, match="nothing is completed yet"):
        table.savepoint()
    with table.begin() as txn:
        txn.write(rows(range(4), 1))
        with pytest.raises(Invalid, match="only a completed instant"):
            table.savepoint(txn.instant)
        txn.commit()
    with pytest.raises(Invalid, match="no write on the active timeline"):
        table.savepoint("20200101000000000")


def test_user_and_comment_of_a_savepoint_are_texts(table):
    table.upsert(rows(range(2), 1))
    with pytest.raises(Invalid, match="user of a savepoint: 5, expected text"):
        table.savepoint(user=5)
    assert table.savepoints() == []


def test_an_older_instant_is_saved_with_the_files_below_a_later_compaction(table):
    first = table.upsert(rows(range(8), 1))
    old = data_files(table)
    table.upsert(rows(range(8), 2))
    table.compact()
    saved = table.savepoint(first.instant)
    assert saved.files == len(old)


def test_an_instant_whose_files_are_gone_cannot_be_saved(table):
    first = table.upsert(rows(range(8), 1))
    log = sorted(data_files(table))[0]
    table.upsert(rows(range(8), 2))
    table.compact()
    plan_clean(table, log)
    with pytest.raises(Invalid, match="a clean removed, or is about to"):
        table.savepoint(first.instant)
    table.savepoint()  # of the compaction: its files stay


# -- restores ------------------------------------------------------------------------------------


def test_a_restore_brings_back_rows_schema_and_files_of_the_savepoint(table):
    table.upsert(rows(range(8), 1))
    table.compact()
    table.upsert(rows(range(4), 2))
    saved = table.savepoint()
    before, files, schema = content(table), data_files(table), table.schema
    table.delete(rows(range(2), 4))
    table.compact()
    table.upsert(rows(range(6, 12), 3))
    table.upsert(rows(range(12), 5).append_column("note", pa.array(["n"] * 12)))
    done = table.restore(saved.instant)
    assert len(done.instants) == 4
    assert content(table).equals(before)
    assert data_files(table) == files
    assert table.schema.equals(schema)
    assert "4 instants" in done.describe()
    assert table.restore(saved.instant).restore is None  # it is there already


def test_writers_compactions_and_savepoints_go_on_after_a_restore(table):
    table.upsert(rows(range(8), 1))
    saved = table.savepoint()
    table.upsert(rows(range(8), 2))
    table.restore(saved.instant)
    table.upsert(rows(range(4), 3, "w"))
    table.compact()
    assert content(table)["value"].to_pylist() == [f"{'w' if k < 4 else 'v'}{k}" for k in range(8)]
    again = table.savepoint()
    table.upsert(rows(range(8), 4))
    table.restore(again.instant)
    assert content(table)["value"].to_pylist() == [f"{'w' if k < 4 else 'v'}{k}" for k in range(8)]


def test_what_was_requested_early_and_completed_late_goes(table):
    late = table.begin()
    late.write(rows(range(4, 8), 9, "late"))
    table.upsert(rows(range(4), 1))
    saved = table.savepoint()
    before = content(table)
    done = late.commit()
    assert done.instant < saved.instant
    assert table.restore(saved.instant).instants == (done.instant,)
    assert content(table).equals(before)


def test_what_was_requested_late_and_completed_early_stays(table):
    slow = table.begin()
    slow.write(rows(range(4), 1))
    quick = table.upsert(rows(range(4, 8), 1))
    saved = table.savepoint(slow.commit().instant)
    assert quick.instant > saved.instant
    before = content(table)
    table.upsert(rows(range(8), 2))
    table.restore(saved.instant)
    assert content(table).equals(before)


def test_a_live_writer_stops_a_restore_which_names_it(table):
    table.upsert(rows(range(4), 1))
    saved = table.savepoint()
    table.upsert(rows(range(4), 2))
    files = data_files(table)
    with table.begin() as txn:
        txn.write(rows(range(4), 3, "live"))
        with pytest.raises(Invalid, match=f"{txn.instant} of a living writer"):
            table.restore(saved.instant)
        txn.commit()
    assert files < data_files(table)
    assert content(table)["value"].to_pylist() == [f"live{k}" for k in range(4)]


def test_dead_writers_go_with_a_restore_and_leave_no_file(table):
    table.upsert(rows(range(4), 1))
    saved = table.savepoint()
    files = data_files(table)
    dead = table.begin()
    dead.write(rows(range(4), 2))
    table.upsert(rows(range(4), 3))
    aged(table)
    table.restore(saved.instant)
    assert data_files(table) == files
    with pytest.raises(RolledBack):
        dead.write(rows(range(4, 8), 2))
    assert data_files(table) == files


def test_a_restore_says_why_it_cannot_be(table):
    first = table.upsert(rows(range(4), 1)).instant
    with pytest.raises(Invalid, match="there is no savepoint of"):
        table.restore(first)
    with pytest.raises(Invalid, match="no restore is pending"):
        table.restore()
    table.savepoint(first)
    second = table.upsert(rows(range(4), 2)).instant
    table.savepoint(second)
    with pytest.raises(Invalid, match=f"{second}, which has a savepoint"):
        table.restore(first)
    table.delete_savepoint(second)
    plan_clean(table, sorted(data_files(table))[0])
    with pytest.raises(Invalid, match="a clean removed, or is about to"):
        table.restore(first)


def test_a_compaction_in_flight_across_the_savepoint_changes_nothing(table):
    """Planned before the savepoint and executed after it, it stays, as in Java."""
    table.upsert(rows(range(8), 1))
    planned = table.schedule_compaction()
    table.upsert(rows(range(4), 2))
    saved = table.savepoint()
    before = content(table)
    table.run_compaction(planned)
    table.upsert(rows(range(8), 3))
    assert planned not in table.restore(saved.instant).instants
    assert content(table).equals(before)


def test_a_compaction_planned_after_the_savepoint_goes_with_its_plan(table):
    table.upsert(rows(range(8), 1))
    saved = table.savepoint()
    before, files = content(table), data_files(table)
    table.upsert(rows(range(4), 2))
    planned = table.schedule_compaction()
    assert planned in table.restore(saved.instant).instants
    assert content(table).equals(before)
    assert data_files(table) == files
    assert not [name for name in os.listdir(Path(table.path) / paths.TIMELINE) if planned in name]


# -- beside a restore ----------------------------------------------------------------------------


@pytest.fixture
def planned(table):
    """A table with a restore that is planned and not begun: (table, rows to come back, restore)."""
    table.upsert(rows(range(8), 1))
    table.compact()
    saved = table.savepoint()
    before = content(table)
    table.upsert(rows(range(4), 2))
    table.compact()
    table.upsert(rows(range(8), 3))
    ctx = table.writer_context()
    return table, before, restoring.schedule(ctx, saved.instant)


def test_nothing_is_begun_planned_or_saved_while_a_restore_is_pending(planned):
    table, _, time = planned
    with pytest.raises(Unsupported, match=f"a restore \\({time}\\) is pending"):
        table.upsert(rows(range(4), 4))
    for refused in (table.savepoint, table.schedule_compaction):
        with pytest.raises(Unavailable, match=f"the restore {time} is not finished"):
            refused()
    with pytest.raises(Unavailable, match=f"the restore {time} to this savepoint"):
        table.delete_savepoint(table.savepoints()[0].instant)
    assert table.rollback_failed_writes() == []
    assert table.restore().restore == time
    table.upsert(rows(range(4), 4))


def test_queries_see_the_restored_table_from_the_plan_on(planned):
    table, before, _ = planned
    assert content(table).equals(before)
    table.restore()
    assert content(table).equals(before)


def test_a_query_that_listed_the_timeline_before_the_restore_starts_again(table, monkeypatch):
    table.upsert(rows(range(8), 1))
    saved = table.savepoint()
    before = content(table)
    table.upsert(rows(range(8), 2))
    listed = TableState.partitions
    restores = []

    def restored_meanwhile(state):
        if not restores:
            restores.append(None)
            restores[0] = mainstem.open_table(table.path, QUICK).restore(saved.instant)
        return listed(state)

    monkeypatch.setattr(TableState, "partitions", restored_meanwhile)
    assert content(table).equals(before)
    assert restores[0].completion is not None


def test_a_writer_that_wakes_up_while_its_restore_is_pending_commits_nothing(table):
    table.upsert(rows(range(4), 1))
    saved = table.savepoint()
    before = content(table)
    table.upsert(rows(range(4), 2))
    stopped = table.begin()
    stopped.write(rows(range(4), 9, "stopped"))
    ctx = mainstem.open_table(table.path, QUICK).writer_context()
    monkey = restore_plan.roll_back_failed_writes
    restore_plan.roll_back_failed_writes = lambda ctx: aged(table)  # it dies between the look and the lock
    try:
        time = restoring.schedule(ctx, saved.instant)
    finally:
        restore_plan.roll_back_failed_writes = monkey
    with pytest.raises(RolledBack, match=f"the restore {time} removes this transaction"):
        stopped.commit()
    table.restore()
    assert content(table).equals(before)


def dying(path: Path, at: int) -> tuple[mainstem.Table, Mortal]:
    opened = mainstem.open_table(path, QUICK)
    storage = Mortal(opened.opened.seams.storage, at)
    opened.opened.seams = dataclasses.replace(opened.opened.seams, storage=storage)
    return opened, storage


@pytest.fixture(scope="module")
def busy(tmp_path_factory) -> tuple[Path, str]:
    """A table with a savepoint, and what a restore has to remove: writes, a compaction, one that is half
    done, and a dead writer's files."""
    table = make(tmp_path_factory.mktemp("busy") / "t")
    table.upsert(rows(range(8), 1))
    table.compact()
    table.upsert(rows(range(4), 2))
    saved = table.savepoint()
    table.upsert(rows(range(8), 3))
    table.compact()
    dead = table.begin()
    dead.write(rows(range(4), 4))
    dead._appender.close()
    table.upsert(rows(range(8), 5))
    planned = table.schedule_compaction()
    ctx = table.writer_context()
    with compaction.executing(ctx, planned) as execution:
        execution.tasks[0].run("ab")
    aged(table)
    return Path(table.path), saved.instant


def at_every_call(path: Path, folder: Path, work, step: int) -> Iterator[Path]:
    """A copy of the table for each call at which ``work`` died, until it does not die any more."""
    for calls in range(0, 1000, step):
        copy = folder / str(calls)
        shutil.copytree(path, copy)
        try:
            work(dying(copy, calls + 1)[0])
            return
        except Dead:
            yield copy


@pytest.mark.timeout(600)
def test_a_restore_that_dies_at_any_step_is_finished_by_the_next(busy, tmp_path):
    path, saved = busy
    table = mainstem.open_table(path, QUICK)
    before = content(table)
    shutil.copytree(path, tmp_path / "whole")
    whole = mainstem.open_table(tmp_path / "whole", QUICK)
    whole.restore(saved)
    after, files = content(whole), data_files(whole)
    deaths = 0
    for copy in at_every_call(path, tmp_path, lambda table: table.restore(saved), 4):
        heir = mainstem.open_table(copy, QUICK)
        begun = any(i.action == "restore" for i in heir.timeline())
        assert content(heir).equals(after if begun else before)
        aged(heir)
        entered(heir)
        heir.restore(saved)
        heir.rollback_failed_writes()
        assert content(heir).equals(after)
        assert data_files(heir) == files
        heir.upsert(rows(range(4), 9))
        deaths += 1
    assert deaths > 10


def test_two_restorers_at_once_remove_the_same_and_one_completes(busy, tmp_path):
    path, saved = busy
    shutil.copytree(path, tmp_path / "t")
    first, storage = dying(tmp_path / "t", 10**9)
    second = mainstem.open_table(tmp_path / "t", QUICK)
    listed = storage.entries
    done = []

    def overtaken(folder, **which):
        # It is stopped for long before it lists the first partition to delete from.
        if folder == "a" and not done and restoring.pending(load_timeline(storage)):
            done.append(None)
            aged(second)
            done[0] = second.restore()
            second.upsert(rows(range(8), 9, "new"))
        return listed(folder, **which)

    storage.entries = overtaken
    late = first.restore(saved)
    assert late.completion == done[0].completion
    assert content(second)["value"].to_pylist() == [f"new{k}" for k in range(8)]


@pytest.mark.disk("on a store its file comes all the same, and nobody shows it (SAFETY.md)")
def test_an_executor_that_looked_at_its_plan_before_the_restore_leaves_nothing(table):
    table.upsert(rows(range(8), 1))
    saved = table.savepoint()
    before, files = content(table), data_files(table)
    table.upsert(rows(range(8), 2))
    planned = table.schedule_compaction()
    stopped = []

    def restored_meanwhile(target):
        if target.endswith(".parquet") and not stopped:
            stopped.append(target)
            mainstem.open_table(table.path, QUICK).restore(saved.instant)

    with before_naming(restored_meanwhile), pytest.raises(Unavailable):
        table.run_compaction(planned)
    assert data_files(table) == files
    assert content(table).equals(before)


def test_a_micro_batch_that_was_restored_away_is_written_again(table):
    def write(opened: mainstem.Table, batch: int) -> str:
        with opened.begin(guard=StreamGuard("stream", batch)) as txn:
            txn.write(rows(range(batch, batch + 2), batch))
            return txn.commit().status

    other = mainstem.open_table(table.path, QUICK)
    assert write(table, 1) == "committed"
    saved = table.savepoint()
    assert write(table, 2) == "committed"
    assert write(other, 2) == "already_committed"  # it knows the batch now
    table.restore(saved.instant)
    assert write(other, 1) == "already_committed"
    assert write(other, 2) == "committed"
    assert write(table, 2) == "already_committed"
    table.rollback(table.timeline()[-1].requested)
    assert write(other, 2) == "committed"


def test_a_micro_batch_that_a_pending_restore_removes_no_longer_counts_as_committed(table):
    table.upsert(rows(range(4), 1))
    saved = table.savepoint()
    with table.begin(guard=StreamGuard("stream", 5)) as txn:
        txn.write(rows(range(4), 5))
        txn.commit()
    restoring.schedule(table.writer_context(), saved.instant)
    other = mainstem.open_table(table.path, QUICK)
    for opened in (table, other):  # else the stream would go on, and the batch be lost
        with pytest.raises(Unsupported, match=r"a restore .* is pending"):
            opened.begin(guard=StreamGuard("stream", 5))


# -- rolling back one instant --------------------------------------------------------------------


def test_the_write_completed_last_is_taken_back(table):
    table.upsert(rows(range(8), 1))
    before, files = content(table), data_files(table)
    last = table.upsert(rows(range(4), 2))
    done = table.rollback(last.instant)
    assert done.instant == last.instant
    assert done.files == last.files
    assert content(table).equals(before)
    assert data_files(table) == files
    with pytest.raises(Invalid, match="not on the active timeline"):
        table.rollback(last.instant)
    table.upsert(rows(range(4), 3))


def test_a_compaction_completed_last_is_taken_back_with_its_plan(table):
    table.upsert(rows(range(8), 1))
    before, files = content(table), data_files(table)
    (compaction,) = table.compact()
    table.rollback(compaction.requested)
    assert content(table).equals(before)
    assert data_files(table) == files
    names = os.listdir(Path(table.path) / paths.TIMELINE)
    assert not [n for n in names if n.startswith(compaction.requested)]
    table.compact()
    assert content(table).equals(before)


def test_a_planned_compaction_is_taken_back_unless_somebody_executes_it(table):
    table.upsert(rows(range(8), 1))
    before, files = content(table), data_files(table)
    planned = table.schedule_compaction()
    ctx = mainstem.open_table(table.path, QUICK).writer_context()
    assert claim(ctx, planned)
    with pytest.raises(Invalid, match="its executor lives"):
        table.rollback(planned)
    aged(table)
    table.rollback(planned)
    assert compaction.pending(ctx.publisher.timeline()) == []
    assert content(table).equals(before)
    assert data_files(table) == files


def test_a_pending_write_is_taken_back_if_its_writer_is_dead(table):
    txn = table.begin()
    txn.write(rows(range(4), 1))
    with pytest.raises(Invalid, match="its writer lives"):
        table.rollback(txn.instant)
    aged(table)
    table.rollback(txn.instant)
    assert data_files(table) == set()
    with pytest.raises(RolledBack):
        txn.commit()


def test_an_instant_that_others_rest_on_stays(table):
    first = table.upsert(rows(range(8), 1))
    second = table.upsert(rows(range(8), 2))
    with pytest.raises(Invalid, match=f"{second.instant} completed after it"):
        table.rollback(first.instant)
    table.savepoint(second.instant)
    with pytest.raises(Invalid, match="it has a savepoint"):
        table.rollback(second.instant)
    table.delete_savepoint(second.instant)
    planned = table.schedule_compaction()
    with pytest.raises(Invalid, match=f"compaction {planned} reads its files"):
        table.rollback(second.instant)
    table.run_compaction()
    with pytest.raises(Invalid, match=f"{planned} completed after it"):
        table.rollback(second.instant)
    plan_clean(table, sorted(data_files(table))[0])
    with pytest.raises(Invalid, match="is not finished"):
        table.rollback(planned)


def test_a_view_that_a_rollback_changed_is_refused(table):
    first = table.upsert(rows(range(4), 1))
    before = content(table)
    last = table.upsert(rows(range(4), 2))
    table.rollback(last.instant)
    table.upsert(rows(range(4), 3))
    assert content(table, as_of_completion=first.completion_time).equals(before)
    with pytest.raises(Invalid, match="before a rollback that took back"):
        content(table, as_of_completion=last.completion_time)


def test_a_rollback_that_died_after_its_plan_is_gone_on_with_by_the_next_writer(table):
    table.upsert(rows(range(4), 1))
    before, files = content(table), data_files(table)
    last = table.upsert(rows(range(4), 2))
    ctx = table.writer_context()
    instant = next(i for i in table.timeline() if i.requested == last.instant)
    plan = RollbackPlan(last.instant, instant.action, instant.completion)
    rolling_back._publish(ctx, instant, plan)
    assert content(table).equals(before)  # to queries it is gone already
    (done,) = table.rollback_failed_writes()
    assert done.instant == last.instant
    assert content(table).equals(before)
    assert data_files(table) == files


@pytest.mark.parametrize("last", ["write", "compaction"])
def test_a_rollback_that_dies_at_any_step_is_gone_on_with(tmp_path, last):
    table = make(tmp_path / "t")
    table.upsert(rows(range(8), 1))
    before, files = content(table), data_files(table)
    if last == "write":
        instant = table.upsert(rows(range(4), 2)).instant
    else:
        instant = table.compact()[0].requested
    newest = content(table)
    copies = tmp_path / "copies"
    for copy in at_every_call(Path(table.path), copies, lambda table: table.rollback(instant), 5):
        heir = mainstem.open_table(copy, QUICK)
        begun = any(i.action == "rollback" for i in heir.timeline())
        assert content(heir).equals(before if begun else newest)
        aged(heir)
        heir.rollback_failed_writes()
        assert data_files(heir) == (files if begun else data_files(table))


def test_the_commands_save_restore_and_roll_back(table, capsys):
    table.upsert(rows(range(4), 1))
    before = content(table)
    path = table.path
    assert main(["savepoint", path, "--comment", "why"]) == 0
    assert main(["savepoint", path, "--list"]) == 0
    assert capsys.readouterr().out.count("why") == 2
    saved = table.savepoints()[0].instant
    last = table.upsert(rows(range(4), 2)).instant
    table.upsert(rows(range(4), 3))
    assert main(["rollback", path, "--instant", last]) == 1
    assert "completed after it" in capsys.readouterr().err
    assert main(["restore", path, saved]) == 0
    assert f"restored to savepoint {saved}" in capsys.readouterr().out
    assert content(table).equals(before)
    last = table.upsert(rows(range(4), 2)).instant
    assert main(["rollback", path, "--instant", last]) == 0
    assert main(["savepoint", path, "--delete", saved]) == 0
    assert main(["savepoint", path, "--list", "--json"]) == 0
    assert content(table).equals(before)
