"""Goal: independent readers see rows that were staged and stamped as any others, and Java goes on with them.

Method: three checkpoints of a sink, with deletes, a new column and rows of one key in several of them, are
committed by the committer; Java Hudi 1.2.0, hudi-rs and mainstem read the table and must agree, before and
after Java upserted into it and compacted it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.flink.committer import Committer, folders
from mainstem.storage.local import LocalStorage
from mainstem.writers.staged_rows import Stager
from tests.hudi_rs.reading import read as read_with_hudi_rs

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
WIDER = SCHEMA.append(pa.field("note", pa.string()))
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_file_name")


def rows_of(ids, ts, name, schema=SCHEMA) -> pa.Table:
    ids = list(ids)
    columns = {
        "id": ids, "city": [("paris", "rome")[i % 2] for i in ids], "ts": [ts] * len(ids),
        "name": [f"{name}-{i}" for i in ids], "note": [f"note-{i}" for i in ids],
    }  # fmt: skip
    return pa.table({field.name: columns[field.name] for field in schema}, schema=schema)


def commit(table: mainstem.Table, number: int, lines: list[str]) -> None:
    parts = Path(folders(table, "t1")[1])
    parts.mkdir(parents=True, exist_ok=True)
    (parts / f"part-{number}").write_text("".join(f"{line}\n" for line in lines))
    assert len(Committer(table, "t1").commit_pending()) == 1


def agree(java: JavaHudi, path: str) -> dict[int, str]:
    ours = mainstem.open_table(path).scan().to_arrow()
    assert_same(java.read(path, {}), ours, ["id"])
    assert_same(java.read(path, {}).select(META), ours.select(META), ["_hoodie_record_key"])
    theirs, error = read_with_hudi_rs(Path(path))
    assert error is None and theirs is not None, error
    assert_same(theirs.select(["id", "name"]), ours.select(["id", "name"]), ["id"])
    return dict(zip(ours["id"].to_pylist(), ours["name"].to_pylist(), strict=True))


@pytest.mark.supports("Engines", "Java Hudi 1.2.0 reads, updates and compacts rows of Flink checkpoints")
def test_java_and_hudi_rs_read_staged_rows_and_java_compacts_them(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="city", ordering="ts", buckets=2
    )
    storage = LocalStorage(path)
    narrow = Stager(storage, table.staging_spec(SCHEMA), "t1", random.SystemRandom())
    wide = Stager(storage, table.staging_spec(WIDER), "t1", random.SystemRandom())
    commit(table, 0, [narrow.stage(rows_of(range(20), 1, "first")), narrow.stage(rows_of([3], 2, "again"))])
    gone = pa.array([True, True, False])
    mixed = pa.concat_tables([rows_of([4], 5, "x"), rows_of([5, 6], 0, "late")])
    commit(table, 1, [narrow.stage(mixed, gone)])
    commit(table, 2, [wide.stage(rows_of([7, 40], 3, "wide", WIDER))])
    expected = {i: f"first-{i}" for i in range(20) if i != 4}
    expected |= {3: "again-3", 7: "wide-7", 40: "wide-40"}
    assert agree(java, path) == expected
    options = nbcc_options("table", record_key=["id"], partition_by=["city"], ordering=["ts"], buckets=2)
    java.write(path, rows_of([8], 9, "java", WIDER), options)
    expected[8] = "java-8"
    assert agree(java, path) == expected
    java.compact(path, options)
    assert agree(java, path) == expected
    assert mainstem.open_table(path).scan(mode="read_optimized").to_arrow().num_rows == len(expected)
