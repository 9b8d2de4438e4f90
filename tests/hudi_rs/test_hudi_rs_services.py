"""Goal: a reader of others' making reads a table that lives with services as we and a plain model do.

Method: a table is written commit by commit, with a round of all services after each (compacted, cleaned and
archived again and again); hudi-rs and mainstem are asked on the way, a dict knows what must be there.
"""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from tests.hudi_rs.reading import read

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
OFTEN = {
    "hoodie.mainstem.exclusive": True,
    "hoodie.mainstem.fsync": False,
    "hoodie.compact.inline.max.delta.commits": 3,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 6,
}


@pytest.mark.supports("Services", "services in rounds, by any number of processes")
def test_hudi_rs_reads_what_rounds_of_services_left_as_we_do(tmp_path: Path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="p", buckets=2, properties=OFTEN
    )
    chance, expected = random.Random(3), {}
    for ts in range(24):
        keys = sorted(chance.sample(range(30), 12))
        ids, parts = [f"k{k}" for k in keys], ["ab"[k % 2] for k in keys]
        table.upsert(pa.table({"id": ids, "p": parts, "ts": [ts] * 12}, SCHEMA))
        expected |= dict.fromkeys(zip(ids, parts, strict=True), ts)
        assert all(run.error is None for run in table.run_services())
        if ts % 6 == 5:
            theirs, error = read(tmp_path / "t")
            assert theirs is not None, error
            for found in (table.scan(columns=SCHEMA.names).to_arrow(), theirs.select(SCHEMA.names)):
                rows = {(row["id"], row["p"]): row["ts"] for row in found.to_pylist()}
                assert rows == expected and found.num_rows == len(expected)
    assert {i.action for i in table.timeline()} == {"commit", "deltacommit", "clean"}
    assert len(table.timeline()) < 14


@pytest.mark.supports("Services", "resize: another number of buckets beside writers")
def test_hudi_rs_reads_a_table_that_was_given_more_buckets_and_fewer(tmp_path: Path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="p", buckets=2, properties=OFTEN
    )
    expected = {}
    for ts, buckets in enumerate((5, 3, 1)):
        for keys in (range(20), range(15, 30)):
            ids, parts = [f"k{k}" for k in keys], ["ab"[k % 2] for k in keys]
            table.upsert(pa.table({"id": ids, "p": parts, "ts": [ts] * len(ids)}, SCHEMA))
            expected |= dict.fromkeys(ids, ts)
        table.resize(buckets)
        for _ in range(2):
            theirs, error = read(tmp_path / "t")
            assert theirs is not None, error
            found = dict(zip(theirs["id"].to_pylist(), theirs["ts"].to_pylist(), strict=True))
            assert found == expected and theirs.num_rows == len(expected)
            table.upsert(pa.table({"id": ["k7"], "p": ["b"], "ts": [ts]}, SCHEMA))


RINGED = {
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING", "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.parquet.max.file.size": "1",
}  # fmt: skip
KEY_INDEX = "GLOBAL_RECORD_LEVEL_INDEX"
LAYOUTS = {
    "buckets": {},
    "split and merged": RINGED,
    "by partition": {
        "hoodie.bucket.index.partition.expressions": "a,3",
        "hoodie.bucket.index.partition.rule.type": "regex",
    },
    **{kind: {"hoodie.index.type": kind} for kind in ("SIMPLE", "GLOBAL_SIMPLE", KEY_INDEX)},
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hudi_rs_reads_every_layout_through_overwrites_and_clusterings(layout: str, tmp_path: Path) -> None:
    options = LAYOUTS[layout]
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="p",
        buckets=None if "hoodie.index.type" in options else 2,
        properties={"hoodie.mainstem.fsync": False, "hoodie.mainstem.services": "off", **options},
    )  # fmt: skip
    if layout == KEY_INDEX:
        table.create_index("record_index")
    expected: dict[str, int] = {}

    def rows(keys: range, ts: int) -> pa.Table:
        columns = {"id": [f"k{k}" for k in keys], "p": ["ab"[k % 2] for k in keys], "ts": [ts] * len(keys)}
        return pa.table(columns, SCHEMA)

    def check() -> None:
        theirs, error = read(tmp_path / "t")
        assert theirs is not None, error
        for found in (table.scan(columns=SCHEMA.names).to_arrow(), theirs):
            assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == expected
            assert found.num_rows == len(expected)

    for ts, keys in ((1, range(20)), (2, range(10, 30))):
        table.upsert(rows(keys, ts))
        expected |= {f"k{k}": ts for k in keys}
    table.compact()
    table.upsert(rows(range(5, 8), 3))
    table.delete(rows(range(8, 10), 3))
    expected = {**expected, **{f"k{k}": 3 for k in range(5, 8)}}
    expected = {key: ts for key, ts in expected.items() if key not in ("k8", "k9")}
    check()
    assert table.cluster("ts")
    check()
    table.upsert(rows(range(24, 34), 4))
    expected |= {f"k{k}": 4 for k in range(24, 34)}
    check()
    table.insert_overwrite(rows(range(0, 60, 12), 0))
    expected = {key: ts for key, ts in expected.items() if int(key[1:]) % 2}
    expected |= {f"k{k}": 0 for k in range(0, 60, 12)}
    table.upsert(rows(range(0, 50, 25), 5))
    expected |= {f"k{k}": 5 for k in range(0, 50, 25)}
    table.compact()
    check()
