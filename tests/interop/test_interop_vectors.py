"""Goal: Java 1.2.0 takes our VECTOR columns for its own: it reads them, searches them, writes on, compacts.

Method: a table of ours with vectors of every element type, null ones, rows in base files and in log files
of both formats. Java's rows and column metadata are compared with ours, the neighbours of its
``hudi_vector_search`` with an exact search in NumPy over the same rows. Then Java upserts and compacts, and
we go on.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.layout.properties import load_config
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.storage.local import LocalStorage

pytestmark = pytest.mark.supports("Engines", "Java Hudi 1.2.0 reads, searches and writes our VECTOR columns")
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
TYPES = {"f": "VECTOR(6)", "d": "VECTOR(6, DOUBLE)", "b": "VECTOR(6, INT8)", "again": "VECTOR(6)"}
OPTIONS = nbcc_options("v", record_key=["id"], ordering=["ts"], buckets=2)


def rows(keys, ts):
    random = np.random.default_rng([5, ts])
    count = len(keys)
    lists = {
        "f": random.standard_normal((count, 6)).astype("f4"),
        "d": random.standard_normal((count, 6)),
        "b": random.integers(-128, 128, (count, 6), np.int8),
        "again": random.standard_normal((count, 6)).astype("f4"),
    }
    columns = {"id": [f"k{key:03d}" for key in keys], "ts": pa.array([ts] * count, pa.int64())}
    for name, numbers in lists.items():
        held = zip(keys, numbers, strict=True)
        columns[name] = pa.array([None if key % 7 == 3 else row for key, row in held])
    return columns


def plain(found: pa.Table) -> list[dict]:
    return sorted(found.select(["id", "ts", *TYPES]).to_pylist(), key=lambda row: row["id"])


def expected(*batches) -> list[dict]:
    found = {}
    for batch in batches:
        found |= {row["id"]: row for row in pa.table(batch).to_pylist()}
    return sorted(found.values(), key=lambda row: row["id"])


def nearest(found: list[dict], column: str, query: list[float], metric: str, k: int) -> list[tuple]:
    """(key, distance) of an exact search in float64, by Hudi's formulas."""
    held = [row for row in found if row[column] is not None]
    vectors, asked = np.array([row[column] for row in held], float), np.array(query)
    distances = {
        "cosine": 1 - vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked),
        "l2": np.linalg.norm(vectors - asked, axis=1),
        "dot_product": -(vectors @ asked),
    }[metric]
    return [(held[at]["id"], distances[at]) for at in np.argsort(distances, kind="stable")[:k]]


def check_search(java: JavaHudi, path: str, ours: list[dict]) -> None:
    """Java's brute force finds the neighbours of an exact search, at the same distances."""
    java.call("sql", text=f"create table searched using hudi location '{path}'")
    query = [0.5, -1.0, 2.0, 0.25, -0.5, 1.0]
    for column, numbers in {"f": query, "d": query, "b": [3.0, -100.0, 20.0, 7.0, -50.0, 1.0]}.items():
        array = f"array({','.join(f'cast({n} as double)' for n in numbers)})"
        for metric in ("cosine", "l2", "dot_product"):
            asked = f"hudi_vector_search('searched', '{column}', {array}, 10, '{metric}')"
            text = f"select id, _hudi_distance from {asked} order by _hudi_distance"
            found = java.call("sql", text=text)["rows"]
            wanted = nearest(ours, column, numbers, metric, 10)
            assert [key for key, _ in found] == [key for key, _ in wanted]
            np.testing.assert_allclose([float(d) for _, d in found], [d for _, d in wanted], 1e-6, 1e-6)
    java.call("sql", text="drop table searched")


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
def test_java_reads_searches_writes_and_compacts_our_vectors(java: JavaHudi, path: str, blocks: str) -> None:
    given = {"hoodie.mainstem.fsync": "false", "hoodie.logfile.data.block.format": blocks}
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="v", vectors=TYPES, properties=given
    )
    first, second = rows(range(40), 1), rows(range(20, 60), 2)
    table.bulk_insert(first)
    table.upsert(second)
    table.delete({"id": ["k000"]})
    ours = plain(table.scan().to_arrow())
    assert ours == [row for row in expected(first, second) if row["id"] != "k000"]
    assert plain(java.read(path)) == ours
    shown = java.call("column_metadata", path=path)["columns"]
    assert {name: shown[name] for name in TYPES} == {name: {"hudi_type": TYPES[name]} for name in TYPES}

    if blocks == "avro":
        check_search(java, path, ours)

    third = rows(range(50, 70), 3)
    java.write(path, pa.table(third), OPTIONS, types=TYPES)
    instant = java.schedule_compaction(path, OPTIONS)
    java.run_compaction(path, OPTIONS, instant)
    left = [row for row in expected(first, second, third) if row["id"] != "k000"]
    assert plain(table.scan().to_arrow()) == left == plain(table.scan(mode="read_optimized").to_arrow())
    fourth = rows(range(65, 75), 4)
    table.upsert(fourth)
    table.compact()
    left = [row for row in expected(first, second, third, fourth) if row["id"] != "k000"]
    assert plain(java.read(path)) == left == plain(java.read_optimized(path))


def test_schemas_of_java_and_ours_are_the_same_text(java: JavaHudi, path: str) -> None:
    """Two columns of one type, too: it is defined once."""
    java.write(path, pa.table(rows(range(9), 1)), OPTIONS, mode="overwrite", types=TYPES)
    buckets = {key: OPTIONS[key] for key in ("hoodie.index.type", "hoodie.bucket.index.num.buckets")}
    table = mainstem.open_table(path, properties={"hoodie.mainstem.fsync": "false", **buckets})
    ours = mainstem.create_table(f"{path}-2", SCHEMA, record_key="id", name="v", vectors=TYPES)
    storage = LocalStorage(path)
    found = schema_text(TableState.load(storage, load_config(storage)))
    assert found == ours.properties["hoodie.table.create.schema"]
    more = rows(range(5, 12), 2)
    table.upsert(more)
    assert plain(java.read(path)) == expected(rows(range(9), 1), more)
