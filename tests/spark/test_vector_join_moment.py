"""Goal: a nearest-neighbour join is not refused beside writers that began before the newest commit.

Method: the moment as of which its tasks read, asked of tables in plain Python; no Spark session is started.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem.spark.nearest_join import moment_of
from tests.vectors.test_vector_search_exact import OPTIONS

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.list_(pa.float32()))])


def row(key: str) -> dict[str, list]:
    return {"id": [key], "ts": [1], "v": [[1.0, float(len(key))]]}


def test_a_join_reads_as_of_the_newest_commit_unless_an_older_write_is_under_way(tmp_path):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, properties=OPTIONS
    )
    assert moment_of(table) is None
    table.upsert(row("a"))
    first = table.timeline()[-1].requested
    assert moment_of(table) == first
    with table.begin() as late:
        late.write(row("bb"))
        assert moment_of(table) == first  # what begins later belongs to no earlier moment
        table.upsert(row("ccc"))
        assert moment_of(table) is None
        assert table.search("v", [1.0, 3.0], 1, as_of=moment_of(table))["id"].to_pylist() == ["ccc"]
        late.commit()
    newest = max(instant.requested for instant in table.timeline())
    assert moment_of(table) == newest
    assert table.search("v", [1.0, 2.0], 1, as_of=newest)["id"].to_pylist() == ["bb"]
