"""Goal: a search finds no row that an overwrite hid, and finds the new ones, with and without a refresh.

Method: an index is built, partitions are overwritten, and each vector is searched for by itself.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import mainstem
from mainstem.writers.rows_in import as_table
from mainstem.writers.write_task import write_task

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("v", pa.list_(pa.float32(), 8))]
)


def rows(count: int, name: str, seed: int) -> dict:
    vectors = np.random.default_rng(seed).random((count, 8), dtype=np.float32)
    keys = [f"{name}{i}" for i in range(count)]
    return {"id": keys, "ts": [1] * count, "city": ["a"] * count, "v": vectors}


def test_a_search_finds_what_an_overwrite_brought_and_nothing_that_it_hid(tmp_path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2
    )
    old, new = rows(300, "old", 1), rows(20, "new", 2)
    table.upsert(old)
    table.create_index("vector", ["v"])
    assert table.search("v", old["v"][5], k=1)["id"].to_pylist() == ["old5"]
    table.insert_overwrite(new)
    for _ in ("as built before", "refreshed"):
        assert table.search("v", new["v"][7], k=1)["id"].to_pylist() == ["new7"]
        found = table.search("v", old["v"][5], k=30)["id"].to_pylist()
        assert sorted(found) == sorted(new["id"])
        table.refresh_index("v")
    table.truncate()
    assert table.search("v", new["v"][7], k=3).num_rows == 0


def test_vectors_that_tasks_wrote_in_parts_and_that_are_written_again_stay_as_they_are(tmp_path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2
    )
    old, new = rows(10, "old", 1), rows(20, "new", 2)
    table.upsert(old)
    with table.begin("insert_overwrite") as txn:
        for task, half in enumerate((slice(0, 10), slice(10, 20))):
            part = as_table({name: values[half] for name, values in new.items()})
            txn.add_task_result(
                write_task(txn.task_spec(), part.to_batches(), task_partition=task, stage=1, attempt=0)
            )
        mainstem.open_table(table.path).schedule_compaction()
        txn.commit()
    found = table.scan(columns=["id", "v"]).to_arrow()
    assert found.num_rows == 20
    stored = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    for name, vector in zip(new["id"], new["v"], strict=True):
        assert np.array_equal(np.array(stored[name], np.float32), vector)
