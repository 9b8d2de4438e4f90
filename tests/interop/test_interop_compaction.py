"""Goal: Java reads what we compacted, executes what we planned, and the other way round.

Method: the same small table in every merge mode; mainstem or Java plans, mainstem or Java executes,
with a transaction of ours open in between; after every step both sides read the same cells, and Java
looks up keys in our bloom filters by reading the base files alone.
"""

from __future__ import annotations

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
