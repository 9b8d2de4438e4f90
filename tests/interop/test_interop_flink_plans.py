"""Goal: Java reads what became of compactions that Flink jobs planned and did not execute.

Method: the golden table that Hudi's Flink left with such a plan; and a partitioned table, where Hudi's own
Flink compaction never commits, written by two pipelines as Flink's options make them: the first one plans
compactions and executes none, the second one executes them. Java reads both tables before and after, cell by
cell, base files alone too, and goes on with the second one.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options
from test_interop_concurrent import wait_for
from test_interop_staged import SCHEMA, commit, rows_of

import mainstem
from mainstem.flink.declared_table import Declared
from mainstem.flink.insert_target import open_target
from mainstem.flink.options import FlinkOptions
from mainstem.storage.local import LocalStorage
from mainstem.writers.staged_rows import Stager
from tests.golden_tables.tables import unpack

pytestmark = pytest.mark.supports("Services", "compaction: plans that Hudi's Flink left pending")


def check(java: JavaHudi, table: mainstem.Table, key: str) -> pa.Table:
    """Java and mainstem read the same snapshot and base files; the snapshot."""
    snapshot = table.scan().to_arrow()
    assert_same(java.read(table.path), snapshot, [key])
    optimized = table.scan(mode="read_optimized").to_arrow()
    assert_same(java.read_optimized(table.path), optimized, [key])
    return snapshot


def pending(table: mainstem.Table) -> list[str]:
    return [i.requested for i in table.timeline() if i.action == "compaction" and not i.is_completed]


def test_java_reads_the_plan_of_hudis_flink_that_we_finished(java: JavaHudi, tmp_path: Path) -> None:
    given = {"hoodie.bucket.index.num.buckets": "4", "hoodie.mainstem.timeline.zone": "UTC"}
    table = mainstem.open_table(unpack("flink_pending_compaction", tmp_path), given)
    before = check(java, table, "id")
    (planned,) = pending(table)
    (done,) = table.run_compaction()
    assert done.requested == planned and pending(table) == []
    moved = ["_hoodie_file_name"]
    assert_same(before.drop_columns(moved), check(java, table, "id").drop_columns(moved), ["id"])
    assert table.scan(mode="read_optimized").to_arrow().num_rows > 0


def pipeline(path: str, name: str, **more: str) -> mainstem.Table:
    """The table as an INSERT of a Flink job opens it, or makes it."""
    options = {
        "connector": "hudi", "path": path, "table.type": "MERGE_ON_READ", "index.type": "BUCKET",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.bucket.index.num.buckets": "2", "compaction.delta_commits": "2",
        "clean.async.enabled": "false", "hoodie.archive.automatic": "false", **more,
    }  # fmt: skip
    parsed = FlinkOptions.parse(options, name=name)
    declared = Declared(("c", "d", name), None, SCHEMA, ("id",), ("city",), parsed, options)
    return open_target(declared).table


def test_java_reads_plans_that_one_pipeline_left_and_another_one_finished(java: JavaHudi, path: str) -> None:
    plans = pipeline(path, "table", **{"compaction.async.enabled": "false"})
    stager = Stager(LocalStorage(path), plans.staging_spec(SCHEMA), "t1", random.SystemRandom())
    commit(plans, 0, [stager.stage(rows_of(range(20), 1, "first"))])
    commit(plans, 1, [stager.stage(rows_of(range(5, 25), 2, "second"))])
    wait_for(lambda: pending(plans))
    (planned,) = pending(plans)
    commit(plans, 2, [stager.stage(rows_of(range(3), 3, "after the plan"))])
    before = check(java, plans, "id")
    assert plans.scan(mode="read_optimized").to_arrow().num_rows == 0
    executes = pipeline(path, "table", **{"compaction.schedule.enabled": "false"})
    commit(executes, 3, [stager.stage(rows_of([30], 4, "new"))])
    wait_for(lambda: not pending(executes))
    assert planned in {i.requested for i in executes.timeline() if i.action == "commit"}
    after = check(java, executes, "id")
    assert executes.scan(mode="read_optimized").to_arrow().num_rows == 25
    kept = ["id", "name", "_hoodie_commit_time", "_hoodie_commit_seqno"]
    assert_same(before.select(kept), after.filter(pc.less(after["id"], 30)).select(kept), ["id"])
    options = nbcc_options("table", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2)
    java.write(path, rows_of([8], 9, "java"), options)
    java.compact(path, options)
    assert check(java, executes, "id").num_rows == 26
