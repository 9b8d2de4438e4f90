"""Goal: a commit holds the offsets of its records, and no records are committed twice, whoever holds them.

Method: real tables through the public API; several tables opened on one path stand for the processes of a
consumer group, among them zombies; a thread holds one at its commit.
"""

from __future__ import annotations

import random
import threading

import pytest
from small_table import content, rows

import mainstem
from mainstem.errors import Invalid, RolledBack, Unavailable
from mainstem.writers.stream_positions import (
    CHECKPOINT_KEYS,
    Positions,
    StreamPositions,
    checkpoint_text,
    parse_checkpoint,
)


def moved(starts, ends, source="orders", **more):
    starts = {str(p): at for p, at in starts.items()}
    return StreamPositions(source, starts, {str(p): at for p, at in ends.items()}, topic=source, **more)


def written(table, keys, guard):
    with table.begin("upsert", guard=guard, at_once=True) as txn:
        if keys:
            txn.write(rows(keys, ts=1))
        return txn.commit()


def stands(table, source="orders"):
    return mainstem.open_table(table.path).opened.stream_positions(source)


def extra(table, outcome):
    ctx = table.opened.writer_context()
    return ctx.guards.extra_metadata(outcome.instant, ctx.timeline())


def test_each_commit_says_where_every_partition_of_the_stream_stands(make_table):
    table, other = make_table(), None
    other = mainstem.open_table(table.path)
    assert stands(table) == Positions()
    written(table, range(3), moved({0: None}, {0: 3}))
    written(other, range(3, 8), moved({1: None}, {1: 5}))
    last = written(table, range(8, 10), moved({0: 3}, {0: 5}))
    assert stands(table).ends == {"0": 5, "1": 5}
    assert stands(table).instant == last.instant
    assert len(content(table)) == 10


def test_of_two_processes_that_hold_the_same_records_one_commits_them(make_table):
    table = make_table()
    zombie = mainstem.open_table(table.path)
    written(table, range(3), moved({0: None, 1: None}, {0: 2, 1: 1}))
    late = zombie.begin("upsert", guard=moved({1: 1}, {1: 4}), at_once=True)
    late.write(rows(range(90, 93), ts=9))
    first = written(table, range(3, 6), moved({1: 1}, {1: 4}))
    outcome = late.commit()  # found under the lock
    assert (outcome.status, outcome.instant) == ("already_committed", first.instant)
    again = written(zombie, range(80, 83), moved({1: 1}, {1: 4}))  # found at begin
    assert again.status == "already_committed"
    assert sorted(content(table)) == [f"k{k}" for k in range(6)]
    assert stands(table).ends == {"0": 2, "1": 4}


def test_a_commit_that_others_of_its_stream_overtake_carries_their_offsets(make_table):
    table = make_table()
    other = mainstem.open_table(table.path)
    slow = table.begin("upsert", guard=moved({0: None}, {0: 7}), at_once=True)
    slow.write(rows(range(7), ts=1))
    ctx = table.opened.writer_context()
    carried = ctx.guards.positions.newest
    looked = threading.Event()

    def newest(source, timeline):
        found = carried(source, timeline)
        if not looked.is_set():  # between the look before the lock and the one under it
            looked.set()
            written(other, range(7, 9), moved({1: None}, {1: 2}))
        return found

    ctx.guards.positions.newest = newest
    outcome = slow.commit()
    assert outcome.status == "committed"
    assert stands(table).ends == {"0": 7, "1": 2}
    assert len(content(table)) == 9


def test_offsets_of_records_without_rows_are_committed(make_table):
    table = make_table()
    outcome = written(table, [], moved({0: None}, {0: 12}))
    assert outcome.status == "committed" and stands(table).ends == {"0": 12}
    assert content(table) == {}


def test_hudis_streamer_finds_its_checkpoint_and_its_own_is_gone_on_from(make_table):
    table = make_table()
    outcome = written(table, range(3), moved({10: None, 2: None}, {10: 1, 2: 2}))
    assert {extra(table, outcome)[key] for key in CHECKPOINT_KEYS} == {"orders,2:2,10:1"}
    with table.begin("upsert", extra_metadata={CHECKPOINT_KEYS[1]: "orders,2:5,10:1"}) as txn:
        txn.write(rows(range(3, 6), ts=1))
        txn.commit()  # as Hudi's streamer does
    assert stands(table).ends == {"2": 5, "10": 1}
    assert written(table, [7], moved({2: 2}, {2: 3})).status == "already_committed"
    assert written(table, [7], moved({2: 5}, {2: 6})).status == "committed"


@pytest.mark.parametrize("text", ["20260101000000000", "orders", "orders,x:1", "orders,1:2,", "s3://b/f.json"])
def test_checkpoints_of_other_sources_are_no_offsets(text):
    assert parse_checkpoint(text) is None


def test_a_checkpoint_reads_back():
    assert parse_checkpoint(checkpoint_text("a.b-c", {"0": 5, "1": 7})) == ("a.b-c", {"0": 5, "1": 7})


def test_streams_of_one_table_stand_apart(make_table):
    table = make_table()
    written(table, [1], moved({0: None}, {0: 4}))
    written(table, [2], moved({0: None}, {0: 9}, source="refunds"))
    assert stands(table).ends == {"0": 4}
    assert stands(table, "refunds").ends == {"0": 9}


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(make_table):
    table = make_table()
    first = written(table, [1], moved({0: None}, {0: 4}, about={"topic": "a"}))
    assert written(table, [2], moved({0: 4}, {0: 5}, about={"topic": "b"})).status == "already_committed"
    fresh = moved({}, {}, about={"topic": "b"}, anew=first.instant)
    assert written(table, [], fresh).status == "committed"
    assert stands(table).ends == {} and stands(table).about == {"topic": "b"}
    assert written(table, [], fresh).status == "already_committed"  # by two processes, once
    assert written(table, [2], moved({0: None}, {0: 1}, about={"topic": "b"})).status == "committed"


def test_a_restore_takes_offsets_back_with_their_rows(make_table):
    table = make_table()
    first = written(table, range(2), moved({0: None}, {0: 2}))
    table.savepoint(first.instant)
    written(table, range(2, 5), moved({0: 2}, {0: 5}))
    table.restore(first.instant)
    assert stands(table).ends == {"0": 2} and len(content(table)) == 2
    assert written(table, range(2, 5), moved({0: 2}, {0: 5})).status == "committed"


def test_offsets_are_found_when_their_commit_is_archived(make_table):
    table = make_table(hoodie__keep__min__commits=2, hoodie__keep__max__commits=3,
                       hoodie__cleaner__commits__retained=1)  # fmt: skip
    held = written(table, range(3), moved({0: None}, {0: 3}))
    for k in range(8):
        table.upsert(rows([100 + k], ts=1))
    table.compact()
    table.clean()
    table.archive()
    assert held.instant not in {i.requested for i in table.timeline()}, "the test archives it"
    assert stands(table).ends == {"0": 3}
    assert written(table, [1], moved({0: None}, {0: 1})).status == "already_committed"
    assert written(table, [1], moved({0: 3}, {0: 4})).status == "committed"


def test_positions_that_do_not_fit_together_are_refused():
    with pytest.raises(Invalid, match="a start and an end for each partition"):
        StreamPositions("orders", {"0": 1}, {"1": 2})


@pytest.mark.parametrize("seed", range(3))
def test_processes_that_all_hold_all_records_commit_each_of_them_once(make_table, seed):
    """Each takes whatever partitions it likes, from where it believes the table to stand, as if the group
    gave every partition to everybody. The rows of all commits are counted: none is written twice."""
    table, length, partitions = make_table(), 40, 3
    failed: list[BaseException] = []

    def working(number: int) -> None:
        chance, mine = random.Random(100 * seed + number), mainstem.open_table(table.path)
        try:
            stand: dict[str, int] = {}
            for _ in range(400):
                if chance.random() < 0.3 or not stand:
                    stand = dict(mine.opened.stream_positions("orders").ends)
                if sum(stand.values()) == partitions * length:
                    return
                chosen = chance.sample(range(partitions), chance.randint(1, partitions))
                starts = {p: stand.get(str(p)) for p in chosen}
                ends = {p: min(length, (at or 0) + chance.randint(1, 9)) for p, at in starts.items()}
                keys = [f"{p}-{n}" for p in chosen for n in range(starts[p] or 0, ends[p])]
                try:
                    outcome = written(mine, keys, moved(starts, ends))
                except (RolledBack, Unavailable):  # asks again, as ingestion does
                    stand = {}
                    continue
                if outcome.status == "committed":
                    stand |= {str(p): end for p, end in ends.items()}
                elif chance.random() < 0.7:
                    stand = {}
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=working, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert stands(table).ends == {str(p): length for p in range(partitions)}
    assert sorted(content(table)) == sorted(f"k{p}-{n}" for p in range(partitions) for n in range(length))
    assert sum(filter(None, table.history()["rows"].to_pylist())) == partitions * length
