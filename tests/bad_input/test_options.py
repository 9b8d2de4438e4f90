"""Goal: an option that is wrong, unknown or in contradiction to the table is refused before a
write.

Method: each option is given to ``open_table`` and a write is tried; the text names key, value and
what was expected.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import mainstem
from bad_input.common import SCHEMA, refused, rows
from mainstem.errors import Invalid, LockUnavailable, Unsupported

WRONG = {
    "number": (
        {"hoodie.client.heartbeat.interval_in_ms": "soon"},
        Invalid,
        ("'soon'", "whole number"),
    ),
    "negative": (
        {"hoodie.time.generator.max_expected_clock_skew_ms": "-1"},
        Invalid,
        ("max_expected_clock_skew_ms", "'-1'", "0 to 600000"),
    ),
    "flag": ({"hoodie.mainstem.fsync": "maybe"}, Invalid, ("fsync", "'maybe'", "true or false")),
    "typing_error": (
        {"hoodie.mainstem.exclusiv": "true"},
        Invalid,
        (r"unknown option 'hoodie\.mainstem\.exclusiv'", r"hoodie\.mainstem\.exclusive"),
    ),
    "optimistic": (
        {"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"},
        Invalid,
        ("OPTIMISTIC", "NON_BLOCKING_CONCURRENCY_CONTROL"),
    ),
    "unknown_mode": (
        {"hoodie.write.concurrency.mode": "FAST"},
        Invalid,
        ("'FAST'", "NON_BLOCKING_CONCURRENCY_CONTROL"),
    ),
    "eager_rollback": (
        {"hoodie.clean.failed.writes.policy": "EAGER"},
        Invalid,
        ("EAGER", "LAZY", "live writers"),
    ),
    "zone": (
        {"hoodie.mainstem.timeline.zone": "Mars/Olympus"},
        Invalid,
        ("Mars/Olympus", "Europe/Paris"),
    ),
    "zookeeper": (
        {
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock."
            "ZookeeperBasedLockProvider"
        },
        (Unsupported, Invalid),
        ("ZookeeperBasedLockProvider",),
    ),
    "lock_wait": (
        {"hoodie.write.lock.wait_time_ms": "1.5"},
        Invalid,
        ("wait_time_ms", "'1.5'", "milliseconds"),
    ),
    "lock_folder_relative": (
        {"hoodie.write.lock.filesystem.path": "locks"},
        Invalid,
        ("'locks'", "absolute"),
    ),
    "lock_folder_remote": (
        {"hoodie.write.lock.filesystem.path": "hdfs://x/locks"},
        (Unsupported, Invalid),
        ("hdfs",),
    ),
    "other_table_name": (
        {"hoodie.table.name": "other"},
        Invalid,
        ("'other'", "contradicts", "'t'"),
    ),
    "other_record_key": (
        {"hoodie.datasource.write.recordkey.field": "city"},
        Invalid,
        ("recordkey.field", "'city'", "contradicts", "'id'"),
    ),
    "other_bucket_count": (
        {"hoodie.bucket.index.num.buckets": "7"},
        Invalid,
        ("num.buckets", "'7'", "contradicts", "'2'"),
    ),
    "other_engine": (
        {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
        Invalid,
        ("bucket.engine", "CONSISTENT_HASHING", "contradicts", "SIMPLE"),
    ),
    "other_index": ({"hoodie.index.type": "BLOOM"}, Invalid, ("index.type", "BLOOM", "BUCKET")),
    "other_merge_mode": (
        {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"},
        Invalid,
        ("merge.mode", "contradicts", "EVENT_TIME_ORDERING"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_refused_with_key_value_and_what_was_expected(name, table, path) -> None:
    options, kind, needles = WRONG[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    with pytest.raises(kinds) as caught:
        mainstem.open_table(path, options).upsert(rows("d"))
    with refused(path, type(caught.value), *needles):
        mainstem.open_table(path, options).upsert(rows("d"))


AT_ONCE = {
    "unsafe operation": ({"hoodie.datasource.write.operation": "delete_partition"}, Unsupported, "rows"),
    "nonsense": ({"hoodie.nonsense": "1"}, Unsupported, r"'hoodie\.nonsense' is not supported"),
    "typing error": ({"hoodie.mainstem.fsynk": "false"}, Invalid, r"'hoodie\.mainstem\.fsync'"),
    "Flink's alone": ({"write.tasks": "4"}, Invalid, r"unknown option 'write\.tasks'"),
    "two names, two values": (
        {"hoodie.table.precombine.field": "ts", "hoodie.table.ordering.fields": "amount"},
        Invalid, "contradicts",
    ),
    "trigger": ({"hoodie.compact.inline.trigger.strategy": "OFTEN"}, Invalid, "'OFTEN', expected NUM_"),
    "number": ({"hoodie.compact.inline.max.delta.commits": "0"}, Invalid, "'0', expected a whole"),
    "strategy": ({"hoodie.compaction.strategy": "Best"}, Unsupported, "LogFileSizeBased"),
    "retention": ({"hoodie.clean.commits.retained": "few"}, Invalid, "'few', expected a whole"),
    "bounds": ({"hoodie.keep.min.commits": "30", "hoodie.keep.max.commits": "20"}, Invalid, "greater than"),
    "archive below clean": (
        {"hoodie.keep.min.commits": "10", "hoodie.clean.commits.retained": "20"},
        Invalid, "the cleaner keeps",
    ),
    "switch": ({"hoodie.clean.automatic": "perhaps"}, Invalid, "'perhaps', expected true or false"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_ONCE)
def test_what_cannot_be_meant_is_refused_when_a_table_is_opened_or_made(name, table, path: Path) -> None:
    options, kind, text = AT_ONCE[name]
    with refused(path, kind, text):
        mainstem.open_table(path, options)
    with pytest.raises(kind, match=text):
        mainstem.create_table(path.parent / "new", SCHEMA, record_key="id", properties=options)
    assert not (path.parent / "new").exists()


def test_options_without_effect_are_told_when_a_table_is_opened_and_made(table, path: Path) -> None:
    options = {"hoodie.upsert.shuffle.parallelism": "4"}
    with pytest.warns(UserWarning, match=r"no effect in mainstem: hoodie\.upsert\.shuffle\.parallelism"):
        mainstem.open_table(path, options).upsert(rows("d"))
    with pytest.warns(UserWarning, match="no effect in mainstem"):
        mainstem.create_table(path.parent / "new", SCHEMA, record_key="id", properties=options)


@pytest.mark.parametrize("nothing", ["", "  ", 20260101000000000])
def test_an_instant_that_is_no_name_is_refused_by_every_method_that_takes_one(nothing, table, path) -> None:
    for call in (
        table.rollback, table.savepoint, table.delete_savepoint, table.restore, table.run_compaction,
        table.run_log_compaction,
    ):  # fmt: skip
        with refused(path, Invalid, "names no instant", "requested time"):
            call(nothing)


def test_tables_and_background_services_say_what_they_are(table, path: Path) -> None:
    assert repr(table) == f"Table({str(path)!r}, name='t', version=9)"
    services = table.services_in_background(every_s=5)
    assert repr(services) == "Background(rounds every 5 s, not running)"
    with services:
        assert repr(services) == "Background(rounds every 5 s, running)"


@pytest.mark.parametrize(
    ("call", "needles"),
    [
        (lambda t: t.scan(mode="fast").to_arrow(), ("mode='fast'", "snapshot", "read_optimized")),
        (lambda t: t.scan(as_of="yesterday").to_arrow(), ("as_of", "yesterday")),
        (lambda t: t.scan(columns=["nope"]).to_arrow(), ("nope", "id")),
        (lambda t: t.changes(after="x").to_arrow(), ("after", "'x'")),
        (lambda t: t.changes(until="20x6").to_arrow(), ("until", "20x6")),
        (lambda t: t.begin("upsurt"), ("'upsurt'", "upsert", "delete")),
    ],
)
def test_a_wrong_argument_is_refused(call, needles, table, path) -> None:
    with refused(path, Invalid, *needles):
        call(table)


def test_a_lock_that_a_foreign_writer_holds_names_it_and_the_way_out(table, path: Path) -> None:
    lock = path / ".hoodie" / "lock"
    lock.write_text("")
    impatient = mainstem.open_table(
        path,
        {
            "hoodie.write.lock.wait_time_ms": 10,
            "hoodie.write.lock.client.num_retries": 1,
            "hoodie.write.lock.client.wait_time_ms_between_retry": 10,
        },
    )
    with refused(
        path, LockUnavailable, str(lock), "foreign writer", "delete the file", "filesystem.expire"
    ):
        impatient.upsert(rows("d"))
    assert lock.exists(), "a foreign lock without an expiry was removed"


@pytest.mark.disk("only a disk has lock files in folders of one's choice")
def test_a_lock_folder_that_is_away_is_said_with_its_path(
    table, path: Path, tmp_path: Path
) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("not a folder")
    other = mainstem.open_table(path, {"hoodie.write.lock.filesystem.path": f"{blocker}/locks"})
    with refused(path, Invalid, "lock", "other writers", "locks"):
        other.upsert(rows("d"))


@pytest.mark.disk("only a disk has lock files in folders of one's choice")
def test_two_writers_with_different_locks_are_told(table, path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "locks"
    other = mainstem.open_table(path, {"hoodie.write.lock.filesystem.path": str(elsewhere)})
    with refused(path, Invalid, str(elsewhere), "exclude each other"):
        other.upsert(rows("d"))
    assert not elsewhere.exists()


def test_a_newest_instant_far_ahead_of_the_clock_is_an_error_by_name(table, path: Path) -> None:
    behind = mainstem.open_table(path, clock_offset_ms=-3_600_000)
    with refused(path, Invalid, "ahead of", "clock", r"hoodie\.mainstem\.timeline\.ahead\.max\.ms"):
        behind.upsert(rows("d"))
