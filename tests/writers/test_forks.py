"""Goal: a forked child works with its copy of an open table, and cannot touch what its parent has open.

Method: real forks beside open tables, transactions, claims, held locks and busy threads; the child reports
over a pipe what it saw, and the parent goes on. ``multiprocessing`` forks and spawns the same.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager

import pytest
from small_table import content, rows

import mainstem
from mainstem import errors
from mainstem.services.claim import claim, claimed
from mainstem.storage import paths

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
CLAIM = "20260101000000000"
FORKED = "a forked child has no threads of the library of stores, and is refused"
SHORT = {"hoodie.client.heartbeat.interval_in_ms": 200}
PATIENCE_S = 60


def in_child(work: Callable[[], object]) -> object:
    """What ``work`` returns or raises in a forked child; the child ends at once after it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = error
        os.write(write_end, pickle.dumps(answer))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        alarm = threading.Timer(PATIENCE_S, os.kill, (child, 9))
        alarm.start()
        told = pipe.read()
        alarm.cancel()
    os.waitpid(child, 0)
    assert told, "the child hung or died"
    return pickle.loads(told)


def files_of(table) -> dict[str, bytes]:
    found = {}
    for folder, _, names in os.walk(table.path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(os.path.join(folder, name), table.path)] = file.read()
    return found


# -- an open table -------------------------------------------------------------------------------------


@pytest.mark.here(FORKED)
def test_a_child_writes_and_reads_with_the_table_that_its_parent_opened(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    assert in_child(lambda: table.upsert(rows([2], ts=1)).status) == "committed"
    assert in_child(lambda: content(table)) == {"k1": "v1", "k2": "v2"}
    table.upsert(rows([3], ts=1))
    assert content(table) == {"k1": "v1", "k2": "v2", "k3": "v3"}


@pytest.mark.here(FORKED)
def test_a_childs_own_transaction_stays_alive_beside_one_of_its_parent(make_table):
    table = mainstem.open_table(make_table().path, SHORT)
    with table.begin() as txn:
        txn.write(rows([1], ts=1))

        def write_slowly():
            with table.begin() as own:
                own.write(rows([2], ts=1))
                time.sleep(1.2)
                other = mainstem.open_table(table.path, SHORT)
                rolled = [r.instant for r in other.rollback_failed_writes()]
                return rolled, own.commit().status

        assert in_child(write_slowly) == ([], "committed")
        assert txn.commit().status == "committed"
    assert content(table) == {"k1": "v1", "k2": "v2"}


@pytest.mark.disk("a store tells whole seconds, so half a second of silence is no death")
def test_a_child_is_rolled_back_when_it_dies_and_its_parent_goes_on(make_table):
    table = mainstem.open_table(make_table().path, SHORT)
    with table.begin() as txn:
        txn.write(rows([1], ts=1))

        def die():
            own = table.begin()
            own.write(rows([2], ts=1))
            return own.instant

        dead = in_child(die)
        time.sleep(0.7)
        assert [r.instant for r in table.rollback_failed_writes()] == [dead]
        assert txn.commit().status == "committed"
    assert content(table) == {"k1": "v1"}


# -- an open transaction ---------------------------------------------------------------------------------


def batch():
    return rows([9], ts=9)


USES = {
    "write": lambda txn: txn.write(batch()),
    "commit": lambda txn: txn.commit(),
    "abort": lambda txn: txn.abort(),
    "detach": lambda txn: txn.detach(),
    "task_spec": lambda txn: txn.task_spec(),
    "add_staged": lambda txn: txn.add_staged(["x"]),
    "add_task_result": lambda txn: txn.add_task_result(b"{}"),
    "declare": lambda txn: txn.declare(batch().schema),
}


@pytest.mark.parametrize("use", USES)
def test_a_child_is_refused_its_parents_transaction_at_once(make_table, use):
    table = make_table()
    with table.begin() as txn:
        txn.write(rows([1], ts=1))
        before = files_of(table)
        error = in_child(lambda: USES[use](txn))
        assert isinstance(error, errors.Invalid), error
        assert f"belongs to process {os.getpid()}" in str(error) and error.instant == txn.instant
        assert files_of(table) == before
        txn.write(rows([2], ts=1))
        assert txn.commit().status == "committed"
    assert content(table) == {"k1": "v1", "k2": "v2"}


@pytest.mark.parametrize("how", ["the block's end", "an error", "garbage", "exit"])
def test_a_child_that_leaves_its_parents_transaction_changes_nothing(make_table, how):
    table = make_table()
    before = {}

    def leave():
        try:
            with table.begin() as txn:
                txn.write(rows([1], ts=1))
                before.update(files_of(table))
                child = os.fork()
                if child == 0:
                    if how == "an error":
                        raise KeyError("of the child")
                    if how == "exit":
                        raise SystemExit(0)
                    if how == "garbage":
                        del txn
                    gc.collect()
                    return None
                os.waitpid(child, 0)
                assert files_of(table) == before
                txn.write(rows([2], ts=1))
                return txn.commit().status
        finally:
            if os.getpid() != parent:
                gc.collect()
                os._exit(0)

    parent = os.getpid()
    assert leave() == "committed"
    assert content(table) == {"k1": "v1", "k2": "v2"}


def test_the_heartbeat_of_a_parents_transaction_beats_on_while_children_come_and_go(make_table):
    table = mainstem.open_table(make_table().path, SHORT)
    with table.begin() as txn:
        txn.write(rows([1], ts=1))
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            assert in_child(lambda: table.writer_context().heartbeats._live) == {}
        assert table.rollback_failed_writes() == []
        assert txn.commit().status == "committed"


@pytest.mark.here(FORKED)
def test_a_child_takes_a_detached_transaction_over(make_table):
    table = make_table()
    spec = table.begin().detach()

    def finish():
        txn = table.resume(spec)
        txn.write(rows([1], ts=1))
        return txn.commit().status

    assert in_child(finish) == "committed"
    assert content(table) == {"k1": "v1"}


def test_a_child_is_refused_at_once_that_was_forked_while_another_thread_wrote(make_table, monkeypatch):
    from mainstem.writers import transaction

    inside, go = threading.Event(), threading.Event()
    rows_in = transaction.rows_in

    def slowly(batch):
        inside.set()
        go.wait(PATIENCE_S)
        return rows_in(batch)

    table = make_table()
    with table.begin() as txn:
        with monkeypatch.context() as patched:
            patched.setattr(transaction, "rows_in", slowly)
            writing = threading.Thread(target=lambda: txn.write(rows([1], ts=1)))
            writing.start()
            inside.wait()
        try:
            for use in ("commit", "abort"):
                assert isinstance(in_child(lambda use=use: USES[use](txn)), errors.Invalid)
            assert in_child(lambda: txn.__exit__(None, None, None)) is None
        finally:
            go.set()
            writing.join()
        assert txn.commit().status == "committed"
    assert content(table) == {"k1": "v1"}


# -- claims, locks, mutexes ------------------------------------------------------------------------------


@pytest.mark.here(FORKED)
def test_a_child_neither_ends_nor_has_its_parents_claim(make_table):
    table = make_table()
    ctx = table.writer_context()
    beat = f"{table.path}/{paths.heartbeat(CLAIM)}"
    with claimed(ctx, CLAIM, "the work") as ours:
        assert ours

        def end():
            ctx.heartbeats.stop(CLAIM)
            return os.path.exists(beat), claim(ctx, CLAIM)

        assert in_child(end) == (True, False)
    assert not os.path.exists(beat)


def test_the_end_of_a_claims_block_in_a_child_leaves_the_claim(make_table):
    table = make_table()
    ctx = table.writer_context()
    beat = f"{table.path}/{paths.heartbeat(CLAIM)}"

    @contextmanager
    def parents():
        with claimed(ctx, CLAIM, "the work") as ours:
            yield ours

    block = parents()
    assert block.__enter__()
    in_child(lambda: block.__exit__(None, None, None))
    assert os.path.exists(beat)
    block.__exit__(None, None, None)
    assert not os.path.exists(beat)


@pytest.mark.here(FORKED)
def test_a_child_that_is_forked_while_the_table_lock_is_held_neither_has_nor_frees_it(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    lease = table.opened.seams.lock.acquire()

    def use():
        try:
            lease.check()
        except errors.LeaseLost as error:
            lease.release()
            return str(error)

    assert "belongs to the parent" in str(in_child(use))
    lease.check()
    lease.release()
    assert in_child(lambda: table.upsert(rows([2], ts=1)).status) == "committed"


@pytest.mark.here(FORKED)
def test_a_child_is_not_held_up_by_threads_that_its_parent_had(make_table):
    table = make_table()
    ctx = table.writer_context()
    held, go = threading.Event(), threading.Event()

    def hold():
        with ctx.mutex.held, ctx.heartbeats._guard.held:
            held.set()
            go.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(PATIENCE_S)
    try:
        assert in_child(lambda: table.upsert(rows([1], ts=1)).status) == "committed"
    finally:
        go.set()
        thread.join()


def test_every_mutex_is_free_in_a_child_and_still_held_in_its_parent():
    from mainstem.forks import Mutex

    mutex = Mutex()
    with mutex.held:
        assert in_child(lambda: mutex._lock.acquire(blocking=False)) is True
        tried = []
        thread = threading.Thread(target=lambda: tried.append(mutex._lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        assert tried == [False]


def test_services_in_the_background_start_anew_in_a_child(make_table):
    table = make_table()
    table.upsert(rows([1], ts=1))
    with table.services_in_background(every_s=60) as background:
        assert "not running" in str(in_child(lambda: repr(background)))

        def again():
            background.start()
            found = repr(background)
            return found, background.stop(PATIENCE_S)

        answer = in_child(again)
        assert ", running" in answer[0] and answer[1] is True
        assert ", running" in repr(background)


# -- multiprocessing --------------------------------------------------------------------------------------


def upsert_one(table, key, results):
    results.put(table.upsert(rows([key], ts=1)).status)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("fork", marks=pytest.mark.here(FORKED)),
        pytest.param("spawn", marks=pytest.mark.disk("its other processes know only disks")),
    ],
)
def test_multiprocessing_hands_an_open_table_to_its_processes(make_table, method):
    table = make_table()
    table.upsert(rows([0], ts=1))
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    workers = [context.Process(target=upsert_one, args=(table, key, results)) for key in (1, 2)]
    for worker in workers:
        worker.start()
    assert [results.get() for _ in workers] == ["committed"] * 2
    for worker in workers:
        worker.join(PATIENCE_S)
    assert content(table) == {"k0": "v0", "k1": "v1", "k2": "v2"}


def test_a_spawned_process_is_not_given_an_open_transaction(make_table):
    table = make_table()
    with table.begin() as txn:
        worker = multiprocessing.get_context("spawn").Process(target=print, args=(txn,))
        with pytest.raises(errors.Invalid, match=r"neither be copied nor pickled"):
            worker.start()
