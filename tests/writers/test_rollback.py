"""Goal: a dead writer's instant is undone once and completely; a live one never.

Method: a transaction whose heartbeat file is made old stands for a dead process (the kill -9 tests run
real processes); the rollback is driven through the public API of another opened table.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from small_table import content, rows

import mainstem
from mainstem import errors

SHORT = {"hoodie.client.heartbeat.interval_in_ms": 60_000}


def die(table, txn):
    """Make the transaction's heartbeat old, as if its process had stopped two hours ago."""
    beat = os.path.join(table.path, ".hoodie/.heartbeat", txn.instant)
    past = time.time() - 7_200
    os.utime(beat, (past, past))


def files_of(table, instant):
    return [
        os.path.join(folder, name)
        for folder, folders, names in os.walk(table.path)
        for name in [*names, *folders]
        if instant in name
    ]


@pytest.mark.disk("on a store a writer that dies before its commit leaves no files")
def test_a_dead_writers_files_markers_heartbeat_and_instant_are_gone_after_its_rollback(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    dead = mainstem.open_table(table.path).begin()
    dead.write(rows(range(10), ts=9, value="dead"))
    die(table, dead)
    rolled = mainstem.open_table(table.path).rollback_failed_writes()
    assert [r.instant for r in rolled] == [dead.instant] and rolled[0].files == 2
    assert files_of(table, dead.instant) == []
    assert table.timeline()[-1].action == "rollback" and table.timeline()[-1].is_completed
    assert content(table) == {"k1": "v1"}


def test_a_writer_that_was_rolled_back_cannot_commit_nor_write_on(make_table):
    table = make_table()
    dead = mainstem.open_table(table.path).begin()
    dead.write(rows([1], ts=1))
    die(table, dead)
    mainstem.open_table(table.path).rollback_failed_writes()
    with pytest.raises(errors.RolledBack):
        dead.write(rows([2], ts=1))
    with pytest.raises(errors.RolledBack):
        dead.commit()
    assert content(table) == {} and files_of(table, dead.instant) == []


def test_a_live_writer_and_a_completed_one_are_left_alone(make_table):
    table = make_table()
    live = mainstem.open_table(table.path).begin()
    live.write(rows([1], ts=1))
    table.upsert(rows([2], ts=1))
    assert mainstem.open_table(table.path).rollback_failed_writes() == []
    assert live.commit().status == "committed"
    assert sorted(content(table)) == ["k1", "k2"]


def test_begin_rolls_dead_writers_back_at_most_once_per_heartbeat_interval(make_table):
    table = make_table()
    dead = mainstem.open_table(table.path).begin()
    dead.write(rows([1], ts=1))
    die(table, dead)
    other = mainstem.open_table(table.path, properties=SHORT)
    other.upsert(rows([2], ts=1))
    assert files_of(table, dead.instant) == []
    second = mainstem.open_table(table.path).begin()
    second.write(rows([3], ts=1))
    die(table, second)
    other.upsert(rows([4], ts=1))
    assert files_of(table, second.instant), "the interval has not passed yet"


def test_a_skewed_clock_kills_nobody(make_table):
    table = make_table()
    live = mainstem.open_table(table.path).begin()
    live.write(rows([1], ts=1))
    skewed = mainstem.open_table(
        table.path,
        clock_offset_ms=86_400_000,
        properties={"hoodie.mainstem.timeline.ahead.max.ms": 10**9},
    )
    assert skewed.rollback_failed_writes() == []
    assert live.commit().status == "committed"


def test_a_rollback_that_died_after_its_plan_is_taken_up_again(make_table, monkeypatch):
    from mainstem.writers import rollback

    table = make_table()
    dead = mainstem.open_table(table.path).begin()
    dead.write(rows([1], ts=1))
    die(table, dead)

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(rollback, "execute_rollback", crash)
        with pytest.raises(KeyboardInterrupt):
            mainstem.open_table(table.path).rollback_failed_writes()
    with pytest.raises(errors.RolledBack, match="rollback"):
        dead.commit()
    again = mainstem.open_table(table.path).rollback_failed_writes()
    assert [r.instant for r in again] == [dead.instant]
    assert files_of(table, dead.instant) == []


@pytest.mark.parametrize("action", ["compaction", "logcompaction", "clean", "rollback", "restore"])
def test_a_mark_of_an_executor_that_woke_up_when_its_plan_was_gone_hides_nothing_and_is_removed(
    make_table, action
):
    table = make_table()
    table.upsert(rows([1], ts=1))
    (written,) = table.timeline()
    mark = Path(table.path) / f".hoodie/timeline/20260101000000000.{action}.inflight"
    mark.touch()
    opened = mainstem.open_table(table.path)
    assert content(opened) == {"k1": "v1"} and opened.timeline() == [written]
    assert opened.rollback_failed_writes() == [] and not mark.exists()
    assert mainstem.open_table(table.path).upsert(rows([2], ts=1)).status == "committed"


def test_a_savepoint_begun_when_its_instant_was_already_rolled_back_does_not_stay_begun(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    (written,) = table.timeline()
    timeline = Path(table.path) / ".hoodie/timeline"
    of_nothing = timeline / "20260101000000000.savepoint.inflight"
    under_way = timeline / f"{written.requested}.savepoint.inflight"
    of_nothing.touch()
    under_way.touch()
    table.rollback_failed_writes()
    assert under_way.exists() and not of_nothing.exists()


def test_a_savepoint_whose_maker_died_long_ago_does_not_stay_begun_and_a_new_one_does(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    (written,) = table.timeline()
    begun = Path(table.path) / ".hoodie/timeline" / f"{written.requested}.savepoint.inflight"
    begun.touch()
    table.rollback_failed_writes()
    assert begun.exists()
    os.utime(begun, (time.time() - 86_400,) * 2)
    table.rollback_failed_writes()
    assert not begun.exists()
    assert table.savepoint(written.requested).instant == written.requested
    assert [i.state for i in table.timeline() if i.action == "savepoint"] == ["completed"]
