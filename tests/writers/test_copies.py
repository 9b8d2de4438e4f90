"""Goal: a copy or a pickle of an open table works by itself; one of an open transaction is refused at once.

Method: every way in which Python copies, and use by several threads at once.
"""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
from small_table import content, rows

import mainstem
from mainstem import errors

WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "oldest pickle": lambda thing: pickle.loads(pickle.dumps(thing, protocol=2)),
}
INTERVAL = "hoodie.client.heartbeat.interval_in_ms"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("used", [False, True])
def test_a_copy_of_an_open_table_reads_and_writes_by_itself(make_table, way, used):
    table = mainstem.open_table(make_table().path, {INTERVAL: 7_000})
    if used:
        table.upsert(rows([1], ts=1))
        content(table)
    other = WAYS[way](table)
    assert other is not table and other.path == table.path
    assert other.writer_context() is not table.writer_context()
    assert other.writer_context().heartbeats.interval_ms == 7_000
    with table.begin() as one, other.begin() as two:
        one.write(rows([2], ts=1))
        two.write(rows([3], ts=1))
        assert two.commit().status == one.commit().status == "committed"
    assert set(content(table)) == set(content(other)) == {"k2", "k3"} | ({"k1"} if used else set())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", ["open", "committed", "aborted"])
def test_a_transaction_is_neither_copied_nor_pickled(make_table, way, state):
    table = make_table()
    with table.begin() as txn:
        txn.write(rows([1], ts=1))
        if state == "committed":
            txn.commit()
        elif state == "aborted":
            txn.abort()
        with pytest.raises(errors.Invalid, match=r"neither be copied nor pickled.*task_spec.*detach"):
            WAYS[way](txn)
        if state == "open":
            assert txn.commit().status == "committed"
    assert content(table) == ({} if state == "aborted" else {"k1": "v1"})


def test_what_another_process_is_meant_to_be_given_is_picklable(make_table):
    table = make_table()
    with table.begin() as txn:
        assert pickle.loads(pickle.dumps(txn.task_spec())) == txn.task_spec()
    spec = pickle.loads(pickle.dumps(table.begin().detach()))
    with table.resume(spec) as taken:
        taken.write(rows([1], ts=1))
        outcome = taken.commit()
    assert pickle.loads(pickle.dumps(outcome)) == outcome


@pytest.mark.parametrize("way", ["pickle", "oldest pickle"])
def test_a_query_is_copied_but_not_pickled(make_table, way):
    table = make_table()
    table.upsert(rows([1], ts=1))
    plan = table.scan()
    for one in (copy.copy(plan), copy.deepcopy(plan)):
        assert one.to_arrow().num_rows == 1
    for thing in (plan, table.dataset()):
        with pytest.raises(errors.Unsupported, match="open the table where it is read"):
            WAYS[way](thing)


def test_a_pickle_of_a_table_holds_no_credentials(make_table):
    path = make_table().path
    table = mainstem.open_table(path, {"hoodie.mainstem.lock.zookeeper.auth": "digest:me:secret"})
    with pytest.raises(errors.Invalid, match="MAINSTEM_ZOOKEEPER_AUTH"):
        pickle.dumps(table)
    assert copy.copy(table).path == path


# -- threads -----------------------------------------------------------------------------------------------


def test_threads_use_one_open_table_at_once_each_with_its_own_transactions(make_table):
    table = make_table()
    failures: list[BaseException] = []
    began = threading.Barrier(4)

    def work(number: int) -> None:
        try:
            began.wait(60)
            for turn in range(3):
                with table.begin() as txn:
                    txn.write(rows([number * 10 + turn], ts=1))
                    assert txn.commit().status == "committed"
                content(table)
                table.rollback_failed_writes()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(content(table)) == 12


def test_a_transaction_may_be_ended_by_another_thread_than_the_one_that_began_it(make_table):
    table = make_table()
    txn = table.begin()
    told = []
    for step in (lambda: txn.write(rows([1], ts=1)), lambda: txn.commit().status):
        thread = threading.Thread(target=lambda step=step: told.append(step()))
        thread.start()
        thread.join()
    assert told == [1, "committed"]
