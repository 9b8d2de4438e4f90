"""Goal: a default table waits for no clock, since its times lie in the past; it waits for what is left of
another engine's newer time. Tables that Hudi 1.0 may write wait out Hudi's 200 ms. An exclusive table waits
for nothing, until another kind of writer is seen; from then on it does for good.

Method: the waits are counted on an injected clock, not timed. A foreign instant is a pair of timeline
files without our mark, as Java leaves them.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta

import pyarrow as pa
import pytest
from small_table import rows

import mainstem
from mainstem import errors
from mainstem.formats.avro_container import encode_container
from mainstem.timeline.commit_metadata import schema_text
from mainstem.truetime.clock import SystemClock
from mainstem.truetime.instant_times import InstantTimes, parse_wall


@pytest.fixture
def waits(monkeypatch):
    """Milliseconds of every wait of 50 ms and more (the lock polls in shorter steps)."""
    seen = []
    monkeypatch.setattr(
        SystemClock, "sleep_ms", lambda self, ms: seen.append(ms) if ms >= 50 else None
    )
    return seen


def leave_foreign_commit(table, requested="20200101000000000", completion="20200101000000500"):
    """A completed delta commit without stats, as Java's Flink writer may leave one."""
    record = {"partitionToWriteStats": {}, "compacted": False, "extraMetadata": {},
              "version": None, "operationType": "UPSERT"}  # fmt: skip
    data = encode_container(schema_text("HoodieCommitMetadata"), record)
    timeline = os.path.join(table.path, ".hoodie/timeline")
    for name, content in (
        (f"{requested}.deltacommit.requested", b""),
        (f"{requested}.deltacommit.inflight", b""),
        (f"{requested}_{completion}.deltacommit", data),
    ):
        with open(os.path.join(timeline, name), "wb") as file:
            file.write(content)


def before_now(ms):
    """The time so many milliseconds ago."""
    return InstantTimes().format(time.time_ns() // 1_000_000 - ms)


def test_a_default_table_waits_for_nothing_and_its_times_lie_in_the_past(make_table, waits):
    table = make_table(**{"hoodie.mainstem.exclusive": False})
    for n in range(3):
        outcome = table.upsert(rows([n], ts=1))
        assert outcome.instant < outcome.completion_time <= before_now(300)
    assert waits == []


@pytest.mark.disk("how long a store takes decides what is left to wait")
def test_where_hudi_1_0_may_write_the_skew_is_waited_out_at_begin_and_at_commit(make_table, waits):
    table = make_table(table_version=8, **{"hoodie.mainstem.exclusive": False})
    began = before_now(0)
    outcome = table.upsert(rows([1], ts=1))
    assert [100 <= ms <= 204 for ms in waits] == [True, True]
    assert began <= outcome.instant < outcome.completion_time


@pytest.mark.disk("how long a store takes decides what is left to wait")
def test_a_time_above_another_engines_is_waited_for_until_it_lies_in_the_past(make_table, waits):
    table = make_table(**{"hoodie.mainstem.exclusive": False})
    table.upsert(rows([1], ts=1))
    newest = before_now(0)
    leave_foreign_commit(table, before_now(100), newest)
    outcome = table.upsert(rows([2], ts=1))
    assert newest < outcome.instant < outcome.completion_time
    assert [100 < ms <= 305 for ms in waits] == [True, True]
    assert [c["id"] for c in table.changes(newest).to_arrow().to_pylist()] == ["k2"]


def test_an_exclusive_table_does_not_wait(make_table, waits):
    table = make_table()
    for n in range(3):
        table.upsert(rows([n], ts=1))
    assert waits == []


@pytest.mark.disk("how long a store takes decides what is left to wait")
def test_an_instant_of_another_kind_of_writer_brings_the_wait_back_for_good(make_table, waits):
    table = make_table()
    table.upsert(rows([1], ts=1))
    requested = before_now(100)
    leave_foreign_commit(table, requested, before_now(0))
    with pytest.warns(mainstem.MixedWritersWarning, match="exclusive"):
        table.upsert(rows([2], ts=1))
    assert len(waits) == 2
    timeline = os.path.join(table.path, ".hoodie/timeline")
    for name in os.listdir(timeline):
        if name.startswith(requested):
            os.remove(os.path.join(timeline, name))
    mainstem.open_table(table.path).upsert(rows([3], ts=1))
    assert len(waits) == 4, "for good: also for a process that never saw the foreign instant"


@pytest.mark.parametrize("torn", [b"", bytes(300), b"Obj\x01\x04\x16avro", b"Obj\x01".ljust(300, b"\0")])
def test_a_pending_file_that_a_crash_of_the_machine_cut_off_shows_no_other_kind_of_writer(
    make_table, waits, torn
):
    table = make_table()
    table.upsert(rows([1], ts=1))
    path = os.path.join(table.path, ".hoodie/timeline/20200101000000000.deltacommit.")
    for state, content in (("requested", b""), ("inflight", torn)):
        with open(path + state, "wb") as file:
            file.write(content)
    table.upsert(rows([2], ts=1))
    assert not os.path.exists(os.path.join(table.path, ".hoodie/.mainstem/fence/foreign"))


def test_own_rollbacks_do_not_count_as_foreign(make_table, waits):
    table = make_table()
    with table.begin() as txn:
        txn.write(rows([1], ts=1))
        txn.abort()
    mainstem.open_table(table.path).upsert(rows([2], ts=1))
    assert waits == []


def test_a_table_in_local_time_is_written_only_with_its_zone_given(make_table):
    table = make_table()
    path = os.path.join(table.path, ".hoodie/hoodie.properties")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace("timeline.timezone=UTC", "timeline.timezone=LOCAL"))
    with pytest.raises(errors.Invalid, match=r"hoodie\.mainstem\.timeline\.zone"):
        mainstem.open_table(table.path).upsert(rows([1], ts=1))
    given = {"hoodie.mainstem.timeline.zone": "Asia/Tokyo"}
    outcome = mainstem.open_table(table.path, properties=given).upsert(rows([1], ts=1))
    utc = make_table("utc").upsert(rows([1], ts=1))
    ahead = parse_wall(outcome.instant) - parse_wall(utc.instant)
    assert timedelta(hours=8, minutes=59) < ahead < timedelta(hours=9, minutes=1)


@pytest.mark.disk("only a disk has lock files in folders of one's choice")
def test_writers_with_different_locks_are_refused(make_table, tmp_path):
    table = make_table()
    table.upsert(rows([1], ts=1))
    other = {
        "hoodie.write.lock.filesystem.path": os.path.join(table.path, ".hoodie/.aux"),
    }
    with pytest.raises(errors.Invalid, match="lock"):
        mainstem.open_table(table.path, properties=other).upsert(rows([2], ts=1))
    flink = mainstem.create_table(
        tmp_path / "flink",
        pa.schema([("id", pa.string())]),
        record_key="id",
        buckets=1,
        properties={"hoodie.write.lock.filesystem.path": str(tmp_path / "flink/.hoodie/.aux")},
    )
    flink.upsert(pa.table({"id": ["a"]}))
    assert flink.scan(columns=["id"]).to_arrow().num_rows == 1


@pytest.mark.disk("a store tells the table's first moment in whole seconds")
def test_the_first_commit_of_a_table_with_a_metadata_table_does_not_wait_either(make_table, waits):
    table = make_table(**{"hoodie.mainstem.exclusive": False, "hoodie.metadata.enable": True})
    table.upsert(rows([1], ts=1))
    assert waits == []
