"""Goal: the benchmarks measure what they say, and stay runnable.

Method: the data generator, the judging of rows and the table are checked on small cases; one race of
two processes runs for a fraction of a second.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import bound, compaction, data, flink, locks, read_tables, row
from benchmarks.race import race
from benchmarks.report import finish, markdown, table
from benchmarks.systems import BUCKETS, SYSTEMS
from tests.servers.zookeeper import ZooKeeperServer


def test_batches_are_half_updates_and_half_new_keys() -> None:
    made = list(data.batches(4, 100))
    assert [b.num_rows for b in made] == [100] * 4
    assert all(b.schema == data.SCHEMA for b in made)
    keys = [set(b[data.KEY].to_pylist()) for b in made]
    assert [len(k) for k in keys] == [100] * 4, "a batch names a key twice"
    seen: set[str] = set()
    for number, batch in enumerate(keys):
        assert len(batch & seen) == (50 if number else 0)
        seen |= batch
    assert len(seen) == 250


def test_keys_are_a_function_of_their_number_and_look_like_uuids() -> None:
    first, again = data.keys(np.arange(1000)), data.keys(np.arange(500, 1500))
    assert first.slice(500).equals(again.slice(0, 500))
    assert len(pa.concat_arrays([first, again]).unique()) == 1500
    assert all(len(k) == 36 and k.count("-") == 4 for k in first.to_pylist())


def test_a_row_is_judged_by_its_ratio_and_a_baseline_may_come_from_another_suite() -> None:
    java = row("java", 10.0, "x/s", id="java.x")
    good, bad = (
        row("a", 30.0, "x/s", against="j", baseline_id="java.x", target=3),
        row("b", 29.0, "x/s", against="j", baseline_id="java.x", target=3),
    )
    lost = row("c", 1.0, "x/s", against="k", baseline_id="nobody", target=3)
    done = finish([java, good, bad, lost])
    assert [r["ok"] for r in done] == [None, True, False, None]
    assert done[1]["ratio"] == 3.0 and "nobody was not measured" in done[3]["note"]
    assert bound("aborts", 0, "aborts", most=0)["ok"] and not bound("aborts", 1, "", most=0)["ok"]
    assert "MISSED" in table(done) and "| MISSED |" in markdown(done, {"mode": "test"})


def test_a_race_of_two_processes_counts_commits_and_finds_every_key_once() -> None:
    result = race("mainstem-nosync", 2, rows=20, seconds=0.5)
    assert result.aborts == 0 and result.rows == 20
    assert len(result.commits) == 2 and len(result.latencies) == sum(result.commits)


def test_a_bare_commit_makes_the_files_of_one_of_ours_and_takes_away_what_it_takes_away(tmp_path) -> None:
    system = SYSTEMS["bare-commit"]()
    system.create(tmp_path / "t")
    pattern = {f.name: f.stat().st_size for f in (tmp_path / "t/pattern").iterdir()}
    writer = system.open(tmp_path / "t")
    for _ in range(2):
        writer.upsert(data.repeated(100, version=0))
    made = [f for f in (tmp_path / "t").rglob("*") if f.is_file() and "pattern" not in f.parts]
    assert len(made) == 2 * (3 + BUCKETS), "requested, inflight and completed file, and a log file per bucket"
    assert sum(f.stat().st_size for f in made) == 2 * sum(pattern.values())


def test_the_bound_of_small_commits_encodes_the_rows_that_it_is_given(tmp_path) -> None:
    system = SYSTEMS["unavoidable"]()
    system.create(tmp_path / "t")
    system.open(tmp_path / "t").upsert(data.repeated(100, version=0))
    logs = [f.read_bytes() for f in (tmp_path / "t/data").iterdir()]
    assert len(logs) == BUCKETS and all(log.startswith(b"#HUDI#") for log in logs)
    keys = data.repeated(100, version=0)[data.KEY].to_pylist()
    assert all(any(key.encode() in log for log in logs) for key in keys)


def test_a_read_table_holds_base_files_and_logs_that_a_snapshot_merges(tmp_path):
    table = read_tables.create(tmp_path / "t", buckets=2)
    read_tables.insert(table, 0, 100)
    read_tables.compacted(table, group_rows=20)
    read_tables.insert(table, 90, 20, version=1)
    found = table.scan().to_arrow()
    assert len(found[data.KEY].unique()) == found.num_rows == 110
    assert [s.base_file is None for s in table.scan().splits()] == [False, False]
    assert all(s.log_files for s in table.scan().splits())


def test_reads_after_a_compaction_are_compared_with_bare_parquet(tmp_path):
    path = compaction.mor(tmp_path / "t", 300, 160, buckets=2)
    rows = compaction.reads_after(path, repeats=1)
    assert rows[0]["against"] == "pyarrow" and rows[0]["baseline"]
    assert rows[0]["work"].startswith("snapshot of 380 rows")


def test_a_streams_rate_is_counted_from_the_end_of_its_first_seconds_on():
    first = [[100.0, 7.0], [103.0, 500.0]]  # workers come up: not counted
    assert flink.rate([[107.0, 30.0], *first, [105.0, 10.0]]) == 10.0
    with pytest.raises(RuntimeError, match="run longer"):
        flink.rate(first)
    assert flink.quantile([3.0, 1.0, 2.0, 4.0], 0.5) == 3.0
    assert flink.quantile([1.0], 0.99) == 1.0


def test_a_contest_for_the_zookeeper_lock_counts_every_acquisition_of_every_process():
    pytest.importorskip("kazoo.client")
    with ZooKeeperServer(tick_ms=100) as server:
        for kind in (locks.OURS, locks.KAZOO):
            turns = locks.contest(kind, server.connect_string, f"/{kind}", 2, 0.4)
            assert len(turns.counts) == 2 and min(turns.counts) > 0
            assert len(turns.waits) == sum(turns.counts) == round(turns.rate * 0.4)
            assert 0 < turns.evenness <= 1 and turns.wait_ms(0.5) <= turns.wait_ms(0.99)
