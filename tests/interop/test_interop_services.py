"""Goal: Java's table services run over our log files while we go on writing, and spoil nothing.

Method: mainstem writes, Java compacts (at once, or planned, with our commits between plan and
execution), cleans and archives, mainstem writes on; after every step both sides read the same
cells. A Java writer that knows nothing of non-blocking writers meets an open transaction of ours. A
table declared exclusive is written by Java.
"""

from __future__ import annotations

import glob
import os
import time
import warnings
from collections.abc import Sequence

import pyarrow as pa
import pytest
from compare import assert_same, without_meta
from dead_writes import dies_with_its_files, files_of, markers_of
from java_hudi import JavaFailed, JavaHudi, nbcc_options

import mainstem
from mainstem.truetime.instant_times import InstantTimes
from mainstem.writers.outcome import Outcome

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("name", pa.string()), ("ts", pa.int64())])
OPTIONS = nbcc_options("served", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=2)


def rows_of(ids: Sequence[int], ts: int) -> pa.Table:
    return pa.table(
        {
            "id": list(ids),
            "city": [("paris", "rome")[i % 2] for i in ids],
            "name": [f"{i} at {ts}" for i in ids],
            "ts": [ts] * len(ids),
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(path: str) -> mainstem.Table:
    """An empty table of two partitions with two buckets each."""
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="served"
    )


def check_same(java: JavaHudi, table: mainstem.Table, expected: dict[int, int]) -> None:
    """Snapshot and read-optimized are Java's, and every key has the event time that it should."""
    snapshot = table.scan().to_arrow()
    assert_same(java.read(table.path), snapshot, ["id"])
    optimized = table.scan(mode="read_optimized").to_arrow()
    assert_same(java.read_optimized(table.path), optimized, ["id"])
    times = dict(zip(snapshot["id"].to_pylist(), snapshot["ts"].to_pylist(), strict=True))
    assert times == expected


def test_we_commit_between_the_plan_and_the_execution_of_a_java_compaction(
    java: JavaHudi, table: mainstem.Table
) -> None:
    table.upsert(rows_of(range(20), 100))
    early = table.begin()
    early.write(rows_of(range(4), 400))  # requested before the plan, completed after it
    instant = java.schedule_compaction(table.path, OPTIONS)
    assert instant is not None
    table.upsert(rows_of(range(10, 25), 200))
    expected = dict.fromkeys(range(10), 100) | dict.fromkeys(range(10, 25), 200)
    check_same(java, table, expected)
    early.commit()
    expected |= dict.fromkeys(range(4), 400)
    check_same(java, table, expected)
    java.run_compaction(table.path, OPTIONS, instant)
    check_same(java, table, expected)
    slices = [s for s in table.file_slices() if s.base_instant == instant]
    assert len(slices) == 4


def test_java_archives_and_cleans_our_instants_while_we_write(java: JavaHudi, table: mainstem.Table) -> None:
    services = {
        **OPTIONS,
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
        "hoodie.clean.automatic": "true",
        "hoodie.clean.commits.retained": "1",
        "hoodie.archive.automatic": "true",
        "hoodie.keep.min.commits": "3",
        "hoodie.keep.max.commits": "4",
    }
    expected: dict[int, int] = {}
    for turn in range(1, 8):
        table.upsert(rows_of(range(turn, turn + 20), 10 * turn))
        java.write(table.path, rows_of(range(turn + 10, turn + 15), 10 * turn + 5), services)
        expected |= dict.fromkeys(range(turn, turn + 20), 10 * turn)
        expected |= dict.fromkeys(range(turn + 10, turn + 15), 10 * turn + 5)
        if turn % 3 == 1:
            check_same(java, table, expected)
    check_same(java, table, expected)
    assert glob.glob(os.path.join(table.path, ".hoodie/timeline/history/*.parquet"))
    assert any(i.action == "clean" for i in table.timeline())
    java_sees = java.changes(table.path, "000")
    assert_same(java_sees, table.changes(after="000").to_arrow(), ["id", "_hoodie_commit_time"])


def test_a_java_writer_that_knows_nothing_of_us_leaves_our_open_transaction_alone(
    java: JavaHudi, table: mainstem.Table
) -> None:
    table.upsert(rows_of(range(10), 100))
    open_one = table.begin()
    open_one.write(rows_of(range(5), 200))
    # No concurrency mode, lock, index, bucket count or key: Hudi's Spark writer takes them from
    # hoodie.properties. Without them it would be a SINGLE_WRITER and roll our instant back.
    plain = {"hoodie.table.name": "served", "hoodie.metadata.enable": "false"}
    java.write(table.path, rows_of(range(5, 15), 300), plain)
    outcome = open_one.commit()
    assert outcome.status == "committed"
    check_same(
        java,
        table,
        dict.fromkeys(range(5), 200) | dict.fromkeys(range(5, 15), 300),
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.bucket.index.num.buckets", "8"),
        ("hoodie.index.type", "BLOOM"),
        ("hoodie.write.concurrency.mode", "SINGLE_WRITER"),
        ("hoodie.metadata.enable", "true"),
        ("hoodie.datasource.write.recordkey.field", "city"),
    ],
)
def test_java_refuses_a_job_whose_options_contradict_our_table(
    java: JavaHudi, table: mainstem.Table, key: str, value: str
) -> None:
    table.upsert(rows_of(range(10), 100))
    with pytest.raises(JavaFailed, match="Config conflict"):
        java.write(table.path, rows_of(range(10), 200), {**OPTIONS, key: value})
    check_same(java, table, dict.fromkeys(range(10), 100))


def test_a_transaction_that_we_abort_leaves_nothing_that_java_sees(
    java: JavaHudi, table: mainstem.Table
) -> None:
    table.upsert(rows_of(range(10), 100))
    with table.begin() as txn:
        txn.write(rows_of(range(10), 900))
        dead = txn.instant
        txn.abort()
    assert not [n for n in _all_files(table.path) if dead in n and "rollback" not in n]
    java.write(table.path, rows_of(range(3), 200), OPTIONS)
    check_same(java, table, dict.fromkeys(range(3), 200) | dict.fromkeys(range(3, 10), 100))


def test_we_roll_back_a_dead_java_writer(java: JavaHudi, table: mainstem.Table) -> None:
    """The instant of a Java writer that died: requested, inflight and log files, heartbeat old."""
    table.upsert(rows_of(range(10), 100))
    java.write(table.path, rows_of(range(10), 900), OPTIONS)
    dead = table.timeline()[-1].requested
    _take_back(table.path, dead)
    check_same(java, table, dict.fromkeys(range(10), 100))
    rolled = table.rollback_failed_writes()
    assert [r.instant for r in rolled] == [dead]
    assert not [n for n in _all_files(table.path) if dead in os.path.basename(n)]
    java.write(table.path, rows_of(range(3), 200), OPTIONS)
    check_same(java, table, dict.fromkeys(range(3), 200) | dict.fromkeys(range(3, 10), 100))


def test_java_takes_back_our_dead_writer_whose_markers_are_lines_of_files(java: JavaHudi, path: str) -> None:
    """Java's cleaner finds its 80 files by two files of markers."""
    wide = nbcc_options("served", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=40)
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=40, name="served"
    )
    table.upsert(rows_of(range(400), 100))
    dead = dies_with_its_files(table, rows_of(range(400), 900))
    assert markers_of(path, dead) == ["MARKERS.type", "MARKERS0"]
    assert sum(".log." in file for file in files_of(path, dead)) == 80
    check_same(java, table, dict.fromkeys(range(400), 100))
    java.clean(path, {**wide, "hoodie.clean.commits.retained": "1"})
    assert [i.action for i in table.timeline() if i.action == "rollback" and i.is_completed]
    assert (files_of(path, dead), markers_of(path, dead)) == ([], [])
    java.write(path, rows_of(range(3), 200), wide)
    check_same(java, table, dict.fromkeys(range(3), 200) | dict.fromkeys(range(3, 400), 100))


def _take_back(path: str, instant: str) -> None:
    """Makes a completed Java instant what it was just before completion, its writer long dead."""
    for name in _all_files(path):
        if os.path.basename(name).startswith((f"{instant}_", f".{instant}_")):
            os.unlink(name)
        elif instant in name and ".log." in name and not name.endswith(".crc"):
            partition = os.path.relpath(os.path.dirname(name), path)
            folder = os.path.join(path, ".hoodie", ".temp", instant, partition)
            os.makedirs(folder, exist_ok=True)
            marker = os.path.join(folder, f"{os.path.basename(name)}.marker.CREATE")
            open(marker, "w").close()
    beat = os.path.join(path, ".hoodie", ".heartbeat", instant)
    open(beat, "w").close()
    old = time.time() - 3600
    os.utime(beat, (old, old))


def _lies_in_the_past(outcome: Outcome) -> bool:
    """Whether a time that had to be above Java's was shown when it was one and a half bounds ago."""
    assert outcome.completion_time is not None
    return outcome.completion_time <= InstantTimes().format(time.time_ns() // 1_000_000 - 1500)


def _all_files(path: str) -> list[str]:
    return [os.path.join(folder, n) for folder, _, names in os.walk(path) for n in names]


def test_after_an_instant_of_java_an_exclusive_table_keeps_clear_of_javas_clock_for_good(
    java: JavaHudi, path: str
) -> None:
    slow = {"hoodie.time.generator.max_expected_clock_skew_ms": "1000"}
    table = mainstem.create_table(
        path,
        SCHEMA,
        record_key="id",
        ordering="ts",
        partition_by="city",
        buckets=2,
        name="served",
        properties={"hoodie.mainstem.exclusive": "true", **slow},
    )
    # A busy machine takes that long now and then, not every time.
    assert any(table.upsert(rows_of(range(10), 1)).lock_held_ms < 1000 for _ in range(50))
    java.write(path, rows_of(range(5), 10), OPTIONS)
    with pytest.warns(mainstem.MixedWritersWarning, match="keeps clear of other clocks"):
        assert _lies_in_the_past(table.upsert(rows_of(range(10), 20)))
    java.write(path, rows_of(range(5), 10), OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = mainstem.open_table(path, slow)
        assert _lies_in_the_past(again.upsert(rows_of(range(10), 30)))
    found = java.read(path)
    assert_same(rows_of(range(10), 30), without_meta(found), ["id"])
