"""Goal: a reader that knows nothing of merged blocks, but for what they hold, reads merged logs right.

Method: hudi-rs reads tables before and after log compactions of ours, and after what follows.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import mainstem
from tests.hudi_rs.reading import read

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])


def rows(keys, ts: int, value: str) -> pa.Table:
    keys = list(keys)
    found = {"id": [f"k{k}" for k in keys], "ts": [ts] * len(keys), "v": [f"{value}{k}" for k in keys]}
    return pa.table(found, schema=SCHEMA)


@pytest.mark.supports("Services", "log compaction")
@pytest.mark.parametrize("ordering", [["ts"], []], ids=["event time", "commit time"])
def test_hudi_rs_reads_merged_logs_as_we_do(tmp_path, ordering):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering=ordering, buckets=1,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False},
    )  # fmt: skip

    def same() -> list[dict]:
        ours = table.scan(columns=SCHEMA.names).to_arrow().sort_by("id").to_pylist()
        theirs, error = read(table.path)
        assert theirs is not None, error
        assert theirs.select(SCHEMA.names).sort_by("id").to_pylist() == ours
        return ours

    for number in range(3):
        table.upsert(rows(range(number, 6), 7 - number, f"{number}-"))
    table.delete(rows([5], 0, "").select(["id"]))
    before = same()
    table.log_compact()
    assert same() == before
    table.upsert(rows([2, 5], 0, "late"))
    before = same()
    table.log_compact()
    assert same() == before
