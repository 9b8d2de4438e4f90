"""Goal: indexes whose rows are each of one file go from hand to hand: Java reads through ours and keeps them
up, we keep up Java's.

Method: a table of ours with the index, and a bucketed one on which Java made it; both write in turn, compact,
clean and compact the metadata table. After each turn ``validate_metadata`` finds nothing, and Java's queries
by way of the index give our rows.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.options import UNSAFE_FOR_JAVA

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("name", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
BLOOMS = "hoodie.metadata.index.bloom.filter.enable"
KEYS = [
    ("id in ('k07', 'k77')", pc.field("id").isin(["k07", "k77"])),
    ("id = 'k90'", pc.field("id") == "k90"),
]
NAMES = [
    ("upper(name) > 'N21'", pc.utf8_upper(pc.field("name")) > "N21"),
    ("upper(name) is null", pc.field("name").is_null()),
]


def rows_of(ids: range, ts: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"k{i:02d}" for i in ids],
            "city": [("paris", "rome")[i % 2] for i in ids],
            "name": [f"n{i}" for i in ids],
            "ts": [ts] * len(ids),
        },
        SCHEMA,
    )


def options(partition_by: tuple[str, ...] = (), **more: str) -> dict[str, str]:
    return nbcc_options(
        "by_file", record_key=["id"], ordering=["ts"], partition_by=partition_by, buckets=2,
        extra={
            "hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "false",
            "hoodie.metadata.auto.delete.partitions": "false",  # Java's services do not ask the table
            "hoodie.metadata.compact.max.delta.commits": "4", "hoodie.index.bloom.num_entries": "100", **more,
        },
    )  # fmt: skip


def opened(path: str) -> mainstem.Table:
    return mainstem.open_table(
        path,
        {
            "hoodie.bucket.index.num.buckets": 2, "hoodie.clean.commits.retained": 1,
            "hoodie.index.bloom.num_entries": 100, UNSAFE_FOR_JAVA: True,
        },
    )  # fmt: skip


def check(java: JavaHudi, path: str, indexes: set[str]) -> None:
    table = opened(path)
    report = table.validate_metadata()
    assert report is not None and report.ok, report.differences
    assert {i.partition for i in table.indexes() if i.state == "ready"} == indexes
    assert_same(java.read(path, THROUGH), table.scan().to_arrow(), ["id"])
    for where, filter in KEYS if "bloom_filters" in indexes else NAMES:
        assert_same(java.read(path, THROUGH, where), table.scan(filter=filter).to_arrow(), ["id"])


def in_turn(java: JavaHudi, path: str, given: dict[str, str], indexes: set[str]) -> None:
    """Two rounds of both, a compaction of each, a clean of each."""
    for turn in range(2):
        java.write(path, rows_of(range(turn, turn + 8), 200 + 10 * turn), given)
        check(java, path, indexes)
        opened(path).upsert(rows_of(range(turn + 4, turn + 30), 205 + 10 * turn))
        if turn:
            java.compact(path, given)
        else:
            assert opened(path).compact()
        check(java, path, indexes)
    assert opened(path).clean()
    check(java, path, indexes)
    opened(path).upsert(rows_of(range(12), 300))
    assert opened(path).compact()
    java.clean(path, {**given, "hoodie.clean.commits.retained": "1"})
    opened(path).run_services("metadata", if_due=False)
    expression = [name for name in indexes if name.startswith("expr_index")]
    if expression:  # Java takes what its clean removed out of its other indexes alone
        differences = opened(path).validate_metadata().differences
        assert {(d.partition, d.kind) for d in differences} == {(expression[0], "surplus")}
        opened(path).reindex(expression[0])
    check(java, path, indexes)
    java.write(path, rows_of(range(3, 9), 400), given)
    check(java, path, indexes)


@pytest.mark.supports("Indexes", "bloom filters: built, and maintained by every action")
def test_java_reads_by_our_bloom_filters_and_keeps_them_up(java: JavaHudi, path: str) -> None:
    mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="by_file")
    opened(path).upsert(rows_of(range(20), 100))
    opened(path).compact()
    opened(path).create_index("bloom_filters")
    opened(path).upsert(rows_of(range(10, 24), 110))
    opened(path).compact()
    indexes = {"files", "bloom_filters"}
    check(java, path, indexes)
    in_turn(java, path, options(), indexes)


@pytest.mark.supports("Indexes", "bloom filters: built, and maintained by every action")
def test_we_keep_up_bloom_filters_of_java(java: JavaHudi, path: str) -> None:
    given = options(**{BLOOMS: "true"})
    java.write(path, rows_of(range(20), 100), given, mode="overwrite")
    java.compact(path, given)
    opened(path).upsert(rows_of(range(6), 110))
    indexes = {"files", "bloom_filters"}
    check(java, path, indexes)
    in_turn(java, path, given, indexes)


UPPER = {"expr": "upper", "type": "column_stats"}


@pytest.mark.supports("Indexes", "expression indexes: built and maintained (column statistics)")
def test_java_leaves_files_out_by_our_expression_index_and_keeps_it_up(java: JavaHudi, path: str) -> None:
    mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, name="by_file"
    )
    opened(path).upsert(rows_of(range(20), 100))
    opened(path).compact()
    opened(path).create_index("expr_index", ["name"], name="by_upper", options=UPPER)
    opened(path).upsert(rows_of(range(10, 24, 2), 110))
    opened(path).compact()
    indexes = {"files", "expr_index_by_upper"}
    check(java, path, indexes)
    found, files = java.files_read(path, THROUGH, "upper(name) = 'N22'")
    assert found == 1 and files < java.files_read(path, {}, "upper(name) = 'N22'")[1]
    in_turn(java, path, options(("city",)), indexes)


@pytest.mark.supports("Indexes", "expression indexes: built and maintained (column statistics)")
def test_we_keep_up_an_expression_index_of_java(java: JavaHudi, path: str) -> None:
    given = options(("city",))
    java.write(path, rows_of(range(20), 100), given, mode="overwrite")
    java.compact(path, given)
    java.call("sql", text=f"create table made_by_java using hudi location '{path}'")
    making = "create index by_upper on made_by_java using column_stats(name) options(expr='upper')"
    java.call("sql", text=making, conf=given)
    opened(path).upsert(rows_of(range(6), 110))
    indexes = {"files", "expr_index_by_upper"}
    check(java, path, indexes)
    in_turn(java, path, given, indexes)
