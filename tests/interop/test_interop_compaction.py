"""Goal: Java reads what we compacted, executes what we planned, and the other way round.

Method: the same small table in every merge mode; mainstem or Java plans, mainstem or Java executes,
with a transaction of ours open in between; after every step both sides read the same cells, and Java
looks up keys in our bloom filters by reading the base files alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options
from test_interop_services import SCHEMA, rows_of

import mainstem

pytestmark = pytest.mark.supports(
    "Engines", "Java Hudi 1.2.0 reads what mainstem compacted and executes its plans"
)


def options(ordering: list[str]) -> dict[str, str]:
    return nbcc_options("packed", record_key=["id"], ordering=ordering, partition_by=["city"], buckets=2)


def make(path: str, ordering: list[str], properties: dict[str, str] | None = None) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering=ordering, partition_by="city", buckets=2, name="packed",
        properties=properties,
    )  # fmt: skip


def check_same(java: JavaHudi, table: mainstem.Table) -> None:
    assert_same(java.read(table.path), table.scan().to_arrow(), ["id"])
    optimized = table.scan(mode="read_optimized").to_arrow()
    assert_same(java.read_optimized(table.path), optimized, ["id"])
    newest = max(i.requested for i in table.timeline() if i.completion)
    assert_same(java.read_as_of(table.path, newest), table.scan(as_of=newest).to_arrow(), ["id"])


def compactions_shown(java: JavaHudi, path: str) -> set[str]:
    """What Hudi's procedure ``show_compaction`` lists."""
    java.call("sql", text=f"create table packed using hudi location '{path}'")
    rows = java.call("sql", text="call show_compaction(table => 'packed', limit => 100)")["rows"]
    java.call("sql", text="drop table packed")
    return {row[0] for row in rows}


@pytest.mark.parametrize(
    "ordering, properties",
    [
        pytest.param(["ts"], None, id="event time"),
        pytest.param([], None, id="commit time"),
        pytest.param([], {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, id="partial"),
    ],
)
def test_java_reads_what_we_compacted_and_everybody_writes_on(
    java: JavaHudi, path: str, ordering: list[str], properties: dict[str, str] | None
) -> None:
    table = make(path, ordering, properties)
    table.upsert(rows_of(range(20), 100))
    table.upsert(rows_of(range(10, 30), 50))
    table.delete(rows_of(range(2), 0).select(["id", "city"]))
    with table.begin() as early:
        early.write(rows_of(range(25, 35), 120))
        (done,) = table.compact()
        assert done.completion
        early.commit()
    assert table.scan(mode="read_optimized").to_arrow().num_rows == 28
    check_same(java, table)
    java.write(table.path, rows_of(range(5, 40), 75), options(ordering))
    table.upsert(rows_of(range(3, 8), 200))
    check_same(java, table)
    java.compact(table.path, options(ordering))
    check_same(java, table)
    table.upsert(rows_of(range(3, 8), 300))
    table.compact()
    check_same(java, table)


def test_java_executes_a_plan_that_we_made_and_we_one_that_java_made(java: JavaHudi, path: str) -> None:
    table = make(path, ["ts"])
    table.upsert(rows_of(range(20), 100))
    table.upsert(rows_of(range(10, 30), 50))
    planned = table.schedule_compaction()
    assert planned in compactions_shown(java, path)
    table.upsert(rows_of(range(4), 400))
    check_same(java, table)
    java.run_compaction(table.path, options(["ts"]), planned)
    assert not [i for i in table.timeline() if i.action == "compaction"]
    check_same(java, table)
    planned = java.schedule_compaction(table.path, options(["ts"]))
    table.upsert(rows_of(range(8), 500))
    (done,) = table.run_compaction(planned)
    assert done.completion and done.requested == planned
    check_same(java, table)


def test_java_reads_a_group_that_lost_all_its_rows(java: JavaHudi, path: str) -> None:
    table = make(path, ["ts"])
    table.upsert(rows_of([1, 2], 100))
    table.delete(rows_of([1], 0).select(["id", "city"]))
    table.compact()
    check_same(java, table)
    table.upsert(rows_of([1], 200))
    check_same(java, table)
    java.compact(table.path, options(["ts"]))
    check_same(java, table)


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
def test_java_reads_and_compacts_files_of_many_pages_and_row_groups(
    java: JavaHudi, path: str, blocks: str
) -> None:
    """Random keys, a key column that repeats the record key, and columns that gzip handles differently."""
    count, random = 60_000, np.random.default_rng(0)
    schema = pa.schema(
        [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("noise", pa.float64()),
         ("words", pa.list_(pa.string()))]
    )  # fmt: skip

    def rows(version: int, chosen: np.ndarray) -> pa.Table:
        ids = pa.array([f"{n * 0x9E3779B97F4A7C15 % 2**128:032x}{n % 9973:x}" for n in chosen.tolist()])
        words = pa.array([[f"w{n % 50}"] * (n % 3) if n % 10 else None for n in chosen.tolist()])
        noise = pa.array(random.random(len(chosen)))
        cities = pa.array(["rome" if n % 2 else None for n in chosen.tolist()])
        return pa.table([ids, cities, pa.array([version] * len(chosen)), noise, words], schema=schema)

    table = mainstem.create_table(
        path, schema, record_key="id", ordering="ts", buckets=1, name="packed",
        properties={
            "hoodie.parquet.block.size": str(4 << 20), "hoodie.logfile.data.block.format": blocks,
        },
    )  # fmt: skip
    table.upsert(rows(1, np.arange(count)))
    table.upsert(rows(2, np.arange(0, count, 7)))
    assert_same(java.read(path), table.scan().to_arrow(), ["id"])
    (done,) = table.compact()
    about = pq.read_metadata(f"{path}/{done.files[0]}")
    assert about.num_row_groups > 2 and about.row_group(0).column(2).compression == "GZIP"
    everything = table.scan().to_arrow()
    assert everything.num_rows == count
    assert_same(java.read(path), everything, ["id"])
    assert_same(java.read_optimized(path), everything, ["id"])
    one = everything.column("id")[4711].as_py()
    assert java.read_by_default(path, f"id = '{one}'").num_rows == 1
    # Updates alone: chunks of keys and the Bloom filter are taken over, from our base file and from Java's.
    table.upsert(rows(3, np.arange(0, count, 5)))
    table.compact()
    assert_same(java.read_optimized(path), table.scan().to_arrow(), ["id"])
    assert java.read_by_default(path, f"id = '{one}'").num_rows == 1
    table.upsert(rows(4, np.arange(0, count, 5)))
    java.compact(path, nbcc_options("packed", record_key=["id"], ordering=["ts"], buckets=1))
    assert_same(java.read_optimized(path), table.scan().to_arrow(), ["id"])
    table.upsert(rows(5, np.arange(0, count, 3)))
    table.compact()
    assert_same(java.read_optimized(path), table.scan().to_arrow(), ["id"])
