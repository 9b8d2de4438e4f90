"""Goal: Java Hudi reads, updates and compacts what the tasks of an engine wrote, by its own rules.

Method: jobs whose attempts are pickled as engines do, with random write tokens in their file names; Java's
snapshot is compared with ours after each step by either side.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from compare import assert_same, without_meta
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.engines.write_job import WriteJob

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())])


def rows(numbers: Sequence[int], ts: int) -> pa.Table:
    found = [(f"k{n}", ("oslo", "rome")[n % 2], ts, f"v{ts}-{n}") for n in numbers]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=SCHEMA)


def job(table: mainstem.Table, operation: str, parts: Sequence[pa.Table]) -> None:
    """Each part is written by two attempts; the second one counts."""
    writing = WriteJob(table, operation)
    task = pickle.dumps(writing.begin(SCHEMA))
    attempts = [[pickle.loads(task).write(part) for part in parts] for _ in range(2)]
    writing.commit(attempts[1])


def test_java_reads_updates_and_compacts_what_tasks_wrote(java: JavaHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="t",
        properties={"hoodie.mainstem.services": "off"},
    )  # fmt: skip
    options = nbcc_options("t", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2)

    def check() -> None:
        assert_same(without_meta(table.scan().to_arrow()), without_meta(java.read(path)), ["id"])

    job(table, "upsert", [rows(range(20), 1), rows(range(10, 30), 2)])
    check()
    java.write(path, rows(range(5, 15), 3), options)
    job(table, "delete", [rows([0, 1], 0), rows([6], 0)])
    check()
    java.compact(path, options)
    job(table, "upsert", [rows([2, 40], 9), rows([3], 9)])
    check()
    job(table, "insert_overwrite", [rows([1, 3, 5], 10), rows([5, 7], 11)])
    check()
    java.write(path, rows([5, 41], 12), options)
    check()
    assert table.scan().count_rows() == len({"k1", "k3", "k5", "k7", "k41"} | {
        f"k{n}" for n in (*range(2, 30, 2), 40) if n != 6
    })  # fmt: skip
