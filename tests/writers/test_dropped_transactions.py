"""Goal: a transaction that its program forgot is a dead writer's, and says so.

Method: transactions are dropped in the ways in which programs drop them; the heartbeat's beats are asked for
by hand, and its file is made old.
"""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings

import pytest
from small_table import content, rows

import mainstem
from mainstem.storage import paths

QUICK = {"hoodie.client.heartbeat.interval_in_ms": 200}


def beat_of(table, instant):
    return f"{table.path}/{paths.heartbeat(instant)}"


def age(table, instant, seconds=600.0):
    past = time.time() - seconds
    os.utime(beat_of(table, instant), (past, past))


def dropped(table, write=True):
    """The instant of a transaction that was begun, and is garbage."""
    txn = table.begin()
    if write:
        txn.write(rows([7], ts=7, value="dropped"))
    return txn.instant


@pytest.mark.parametrize("write", [True, False])
def test_a_dropped_transaction_is_named_by_a_warning_and_beats_no_more(make_table, write):
    table = make_table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # transactions that other tests dropped
    with pytest.warns(ResourceWarning, match=r"open transaction \d{17} was dropped.*rolls it back") as found:
        instant = dropped(table, write)
        gc.collect()
    assert instant in str(found[0].message) and table.path in str(found[0].message)
    age(table, instant)
    table.writer_context().heartbeats.beat()
    assert time.time() - os.stat(beat_of(table, instant)).st_mtime > 500


def test_a_dropped_transaction_is_rolled_back_lazily_like_a_dead_writers(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    with pytest.warns(ResourceWarning):
        instant = dropped(table)
        gc.collect()
    assert [i.requested for i in table.timeline() if not i.is_completed] == [instant]
    assert table.rollback_failed_writes() == []  # it may still be somebody's for as long as its file said
    age(table, instant)
    table.writer_context().heartbeats.beat()
    assert [r.instant for r in table.rollback_failed_writes()] == [instant]
    assert content(table) == {"k1": "v1"}


@pytest.mark.disk("a store tells whole seconds, so half a second of silence is no death")
def test_the_thread_of_a_dropped_transactions_heartbeat_ends_and_the_writer_goes_on(make_table):
    table = mainstem.open_table(make_table().path, QUICK)
    others = set(threading.enumerate())
    with pytest.warns(ResourceWarning):
        instant = dropped(table)
        gc.collect()
    for _ in range(100):
        time.sleep(0.05)
        if not [t for t in threading.enumerate() if t.name == "mainstem-heartbeat" and t not in others]:
            break
    else:
        pytest.fail("its heartbeat goes on")
    time.sleep(0.5)
    table.upsert(rows([2], ts=2))
    assert instant not in {i.requested for i in table.timeline()}
    assert content(table) == {"k2": "v2"}


@pytest.mark.parametrize("end", ["commit", "abort", "with", "detach", "error in with"])
def test_a_transaction_that_was_ended_is_dropped_without_a_word(make_table, end):
    table = make_table()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        txn = table.begin()
        if end != "detach":
            txn.write(rows([1], ts=1))
        if end == "commit":
            txn.commit()
        elif end == "abort":
            txn.abort()
        elif end == "detach":
            txn.detach()
        elif end == "with":
            with txn:
                pass
        else:
            with pytest.raises(KeyError), txn:
                raise KeyError
        del txn
        gc.collect()


def test_the_end_of_a_transaction_does_not_end_another_one_that_was_dropped_before(make_table):
    table = make_table()
    with pytest.warns(ResourceWarning):
        dropped(table)
        gc.collect()
    with table.begin() as txn:
        age(table, txn.instant)
        table.writer_context().heartbeats.beat()
        assert time.time() - os.stat(beat_of(table, txn.instant)).st_mtime < 60
        txn.write(rows([1], ts=1))
        assert txn.commit().status == "committed"


def test_garbage_that_is_collected_while_heartbeats_are_changed_blocks_nobody(make_table):
    table = make_table()
    hearts = table.writer_context().heartbeats
    txn = table.begin()
    cycle = [txn]
    cycle.append(cycle)
    del txn, cycle
    done = threading.Event()

    def collect():
        with pytest.warns(ResourceWarning), hearts._guard.held:
            gc.collect()
        hearts.beat()
        done.set()

    threading.Thread(target=collect, daemon=True).start()
    assert done.wait(20)
    assert hearts._live == {}


def test_a_dropped_transaction_that_was_taken_over_from_another_process_is_named_too(make_table):
    table = make_table()
    spec = table.begin().detach()
    with pytest.warns(ResourceWarning, match=spec.instant):
        mainstem.open_table(table.path).resume(spec)
        gc.collect()
