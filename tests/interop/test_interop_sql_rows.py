"""Goal: what UPDATE, DELETE and MERGE write are Hudi's own rows and deletes: Java goes on with them.

Method: the operations that these statements run are written without Spark, and Java looks at the table.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.writers.write_spec import DELETE_MARK, DELETE_ROWS, MERGE_ROWS

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.string()), ("ts", pa.int64())])


def _rows(*listed: tuple[str, str | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in listed], schema=SCHEMA)


def _shown(found: pa.Table) -> dict[str, str]:
    return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))


@pytest.mark.supports("Engines", "Spark SQL: DELETE, UPDATE, MERGE with every clause")
def test_java_reads_one_instant_with_rows_and_deletes_whose_ordering_values_count(java: JavaHudi, path: str):
    properties = {"hoodie.metadata.enable": "true"}
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="t", properties=properties
    )
    options = nbcc_options(
        "t", record_key=["id"], ordering=["ts"], buckets=2, extra={"hoodie.metadata.enable": "true"}
    )
    table.upsert(_rows(*((key, "0", 10) for key in "abcd")))
    merged = _rows(("a", "set", 10), ("b", "0", 10), ("e", "new", 1))
    with table.begin(MERGE_ROWS) as txn:
        txn.write(merged.append_column(DELETE_MARK, pa.array([False, True, False])))
        txn.commit()
    with table.begin(DELETE_ROWS) as txn:
        txn.write(_rows(("c", None, 10)).select(["id", "ts"]))
        txn.commit()
    wanted = {"a": "set", "d": "0", "e": "new"}
    assert _shown(java.read(path)) == _shown(table.scan().to_arrow()) == wanted
    java.write(path, _rows(("b", "newer", 11), ("c", "late", 9), ("d", "java", 10)), options)
    wanted |= {"b": "newer", "d": "java"}
    assert _shown(java.read(path)) == _shown(table.scan().to_arrow()) == wanted
    java.compact(path, options)
    assert _shown(java.read_optimized(path)) == _shown(table.scan().to_arrow()) == wanted
    report = table.validate_metadata()
    assert report is not None and not report.differences


@pytest.mark.supports("Engines", "Spark SQL: ALTER TABLE, DESCRIBE, SHOW, CREATE TABLE LIKE")
def test_java_reads_and_writes_the_columns_that_a_commit_without_rows_added(java: JavaHudi, path: str):
    table = mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="t")
    table.upsert(_rows(("a", "0", 10)))
    table.evolve(pa.schema([("tip", pa.float64()), ("n", pa.int32())]))
    assert java.read(path).select(["id", "tip", "n"]).to_pylist() == [{"id": "a", "tip": None, "n": None}]
    table.evolve(pa.schema([("n", pa.int64())]))
    rows = _rows(("b", "1", 10)).append_column("tip", pa.array([0.5])).append_column("n", pa.array([2**40]))
    java.write(path, rows, nbcc_options("t", record_key=["id"], ordering=["ts"], buckets=2))
    for _ in range(2):
        found = {row["id"]: (row["tip"], row["n"]) for row in table.scan().to_arrow().to_pylist()}
        shown = java.read(path).to_pylist()
        assert found == {row["id"]: (row["tip"], row["n"]) for row in shown}
        assert found == {"a": (None, None), "b": (0.5, 2**40)}
        table.compact()
