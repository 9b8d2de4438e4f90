"""Goal: a writer that lives is alive to everybody, whatever each of them was opened with.

Method: heartbeats of processes with other intervals than those that judge them, aged by the file's time;
first ``Heartbeats`` by itself in all pairs, then tables opened with such options.
"""

from __future__ import annotations

import itertools
import os
import time

import pyarrow as pa
import pytest

import mainstem
from mainstem import errors
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.heartbeats import Heartbeats

INSTANT = "20260101000000000"
INTERVAL, MISSES = "hoodie.client.heartbeat.interval_in_ms", "hoodie.client.heartbeat.tolerable.misses"
SETTINGS = [(100, 1), (1_000, 2), (60_000, 2), (60_000, 10), (3_600_000, 3)]
PAIRS = list(itertools.product(SETTINGS, SETTINGS))
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.string())])


class Pace:
    """A clock whose periodic tasks only tell how often they were to run."""

    def __init__(self) -> None:
        self.paces: list[float] = []

    def every_ms(self, interval_ms, task, name):
        self.paces.append(interval_ms)
        return self

    def stop(self) -> None:
        pass


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path))


def age(storage, ms: float, name: str = INSTANT) -> None:
    then = time.time() - ms / 1000
    os.utime(f"{storage.base}/{paths.heartbeat(name)}", (then, then))


def expired(hearts, name: str = INSTANT) -> bool:
    return hearts.expired(name, int(time.time() * 1000))


@pytest.mark.parametrize(("writer", "judge"), PAIRS)
def test_every_process_judges_a_writer_by_what_the_writer_said(storage, writer, judge):
    writing, judging = (Heartbeats(storage, Pace(), *settings) for settings in (writer, judge))
    writing.start(INSTANT)
    promised = writer[0] * writer[1]
    age(storage, promised * 0.9 - 5)
    assert not expired(judging)
    age(storage, promised * 1.1 + 1000)
    assert expired(judging)


@pytest.mark.parametrize(("began", "goes_on"), PAIRS)
def test_whoever_takes_a_heartbeat_over_keeps_what_its_file_says(storage, began, goes_on):
    clock = Pace()
    Heartbeats(storage, clock, *began).start(INSTANT)
    Heartbeats(storage, clock, *goes_on).adopt(INSTANT)
    assert clock.paces[-1] <= began[0] * began[1] / 2


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_heartbeat_is_as_frequent_as_java_wants_which_does_not_look_into_files(storage, settings):
    clock = Pace()
    Heartbeats(storage, clock, *settings).start(INSTANT)
    Heartbeats(storage, clock, *settings, table=(500, 2)).start(INSTANT)
    assert clock.paces[0] <= 60_000 and clock.paces[1] <= 500


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"mainstem":1,"expires_after_ms":-5}'])
@pytest.mark.parametrize("judge", SETTINGS)
def test_a_heartbeat_that_says_nothing_lives_as_long_as_hudi_lets_it(storage, judge, content):
    storage.put_new(paths.heartbeat(INSTANT), content, durable=False)
    hearts = Heartbeats(storage, Pace(), *judge)
    patience = max(120_000, judge[0] * judge[1])
    age(storage, patience - 5_000)
    assert not expired(hearts)
    age(storage, patience + 5_000)
    assert expired(hearts)


def test_a_table_that_says_how_often_hearts_beat_is_believed_about_silent_ones(storage):
    storage.put_new(paths.heartbeat(INSTANT), b"", durable=False)
    hearts = Heartbeats(storage, Pace(), 1_000, 2, table=(1_000, 3))
    age(storage, 2_500)
    assert not expired(hearts)
    age(storage, 4_000)
    assert expired(hearts)


def test_a_promise_is_read_as_it_was_written_and_none_is_found_in_anything_else():
    from mainstem.truetime.heartbeats import encode_promise, parse_promise

    assert parse_promise(encode_promise(120_000)) == 120_000
    told = b'{"expires_after_ms":%s}'
    for content in (b"", b"\xff", b"1", b"{}", told % b"true", told % b"1e3", told % b"99", b"[" * 9000):
        assert parse_promise(content) is None


def test_a_second_claim_waits_for_as_long_as_the_first_one_said(storage):
    slow, fast = Heartbeats(storage, Pace(), 60_000, 2), Heartbeats(storage, Pace(), 100, 1)
    now = lambda: int(time.time() * 1000)  # noqa: E731
    assert slow.claim(INSTANT, now)
    age(storage, 60_000)
    assert not fast.claim(INSTANT, now)
    age(storage, 130_000)
    assert fast.claim(INSTANT, now)
    assert not slow.claim(INSTANT, now)


# -- tables ----------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    options = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}
    return mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=1, properties=options)


def opened(table, interval: int, misses: int = 2):
    return mainstem.open_table(table.path, {INTERVAL: interval, MISSES: misses})


def silent(table, instant: str, ms: float) -> None:
    age(LocalStorage(table.path), ms, instant)


def one(key: str):
    return pa.table({"id": [key], "v": ["v"]}, schema=SCHEMA)


@pytest.mark.parametrize(
    ("writer", "other"), [(60_000, 1_000), (60_000, 100), (3_600_000, 60_000), (1_000, 100)]
)
def test_a_writer_with_a_shorter_interval_leaves_one_with_a_longer_alone(table, writer, other):
    txn = opened(table, writer).begin()
    txn.write(one("a"))
    silent(table, txn.instant, writer * 1.5)
    impatient = opened(table, other)
    assert impatient.rollback_failed_writes() == []
    impatient.upsert(one("b"))
    assert txn.commit().status == "committed"
    assert sorted(table.scan(["id"]).to_arrow()["id"].to_pylist()) == ["a", "b"]


def test_a_dead_writer_with_a_longer_interval_is_rolled_back_in_the_end(table):
    txn = opened(table, 60_000).begin()
    silent(table, txn.instant, 121_000)
    assert [r.instant for r in opened(table, 1_000).rollback_failed_writes()] == [txn.instant]
    with pytest.raises(errors.RolledBack):
        txn.write(one("a"))
        txn.commit()


def test_a_java_writers_empty_heartbeat_is_not_judged_by_our_shorter_interval(table):
    txn = opened(table, 60_000).begin()
    beat = f"{table.path}/{paths.heartbeat(txn.instant)}"
    open(beat, "wb").close()
    silent(table, txn.instant, 100_000)
    assert opened(table, 1_000).rollback_failed_writes() == []
    txn.abort()


def test_what_a_table_says_about_heartbeats_holds_for_those_who_are_given_nothing(tmp_path):
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", buckets=1,
        properties={INTERVAL: 5_000, MISSES: 3, "hoodie.mainstem.exclusive": True},
    )  # fmt: skip
    assert made.properties[INTERVAL] == "5000"
    for found in (made, mainstem.open_table(made.path)):
        hearts = found.writer_context().heartbeats
        assert (hearts.interval_ms, hearts.expire_ms, hearts.silent_ms) == (5_000, 15_000, 15_000)
    hearts = opened(made, 60_000).writer_context().heartbeats
    assert (hearts.expire_ms, hearts.silent_ms) == (120_000, 120_000)


def test_a_claim_of_a_slow_service_is_not_taken_over_by_a_fast_one(table):
    from mainstem.services.claim import claim

    slow, fast = opened(table, 60_000).writer_context(), opened(table, 100).writer_context()
    assert claim(slow, INSTANT)
    silent(table, INSTANT, 90_000)
    assert not claim(fast, INSTANT)
    slow.heartbeats.stop(INSTANT)
    assert claim(fast, INSTANT)
    fast.heartbeats.stop(INSTANT)


def test_a_real_heartbeat_keeps_a_writer_alive_that_somebody_with_a_longer_interval_took_over(table):
    first = opened(table, 200)
    spec = first.begin().detach()
    taken = opened(table, 60_000).resume(spec)
    time.sleep(0.9)
    assert first.rollback_failed_writes() == []
    taken.write(one("a"))
    assert taken.commit().status == "committed"


def test_the_clock_of_heartbeats_is_a_thread_that_ends_with_the_last_of_them(storage):
    hearts = Heartbeats(storage, SystemClock(0), 60_000, 2)
    hearts.start(INSTANT)
    assert hearts._task is not None
    hearts.stop(INSTANT)
    assert hearts._task is None
