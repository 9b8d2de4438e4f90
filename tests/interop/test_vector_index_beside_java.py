"""Goal: Java 1.2.0 neither sees nor minds the folder of vector indexes, and searches find what Java commits.

Method: Java makes a table of vectors with a metadata table; we make an index. Java writes, deletes, compacts
the data and the metadata table, cleans, rolls back, makes a savepoint and restores it. A table without a
metadata table gets one from Java, or none. After each step Java reads through the metadata table where there
is one, and a search by the index equals brute force over Java's rows. Where Java removed the metadata table's
folder the index says so, searches are exact, and a refresh brings it back.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.storage import paths

THROUGH = {"hoodie.metadata.enable": "true"}
OURS = {"hoodie.mainstem.fsync": "false", "hoodie.bucket.index.num.buckets": "2"}
TYPES = {"v": "VECTOR(3)"}
NAME = "vectors_beside_java"
QUERIES = [[0.0, 0.0, 1.0], [3.0, 1.0, -2.0]]


def options(every: int = 1) -> dict[str, str]:
    """``every``: after how many commits Java compacts the metadata table."""
    extra = {
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
        "hoodie.metadata.compact.max.delta.commits": str(every),
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
        "hoodie.clean.fileversions.retained": "1",
    }
    return nbcc_options(NAME, record_key=["id"], ordering=["ts"], buckets=2, extra=extra)


def rows_of(keys: range, ts: int) -> pa.Table:
    chance = np.random.default_rng([7, ts])
    vectors = chance.integers(-4, 5, (len(keys), 3)).astype("f4")
    columns = {
        "id": [f"k{key:03d}" for key in keys],
        "ts": pa.array([ts] * len(keys), pa.int64()),
        "v": pa.array([None if key % 9 == 4 else v for key, v in zip(keys, vectors, strict=True)]),
    }
    return pa.table(columns)


def nearest(found: pa.Table, query: list[float], k: int) -> list[tuple[str, float]]:
    held = [row for row in found.select(["id", "v"]).to_pylist() if row["v"] is not None]
    apart = [(float(np.linalg.norm(np.array(row["v"]) - query)), row["id"]) for row in held]
    return [(key, distance) for distance, key in sorted(apart)[:k]]


def check(java: JavaHudi, path: str, state: str = "ready", through: dict[str, str] = THROUGH) -> None:
    """What Java reads is what a search finds, by the index where it is there."""
    table = mainstem.open_table(path, OURS)
    assert table.index("v").state == state
    rows = java.read(path, through)
    for query in QUERIES:
        found = table.search("v", query, 6, metric="l2", columns=["id"])
        shown = list(zip(found["id"].to_pylist(), found["_hudi_distance"].to_pylist(), strict=True))
        assert [key for key, _ in shown] == [key for key, _ in nearest(rows, query, 6)]
        np.testing.assert_allclose([d for _, d in shown], [d for _, d in nearest(rows, query, 6)])
        assert table.explain_search("v", query, 6, metric="l2").exact == (state != "ready")


def files(path: str) -> list[str]:
    folder = Path(path, paths.VECTORS)
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def call(java: JavaHudi, procedure: str, **arguments: str) -> None:
    given = ", ".join(f"{key} => '{value}'" for key, value in {"table": NAME, **arguments}.items())
    java.call("sql", text=f"CALL {procedure}({given})", conf=options(100))


def newest(path: str) -> str:
    done = (i for i in mainstem.open_table(path).timeline() if i.action in ("deltacommit", "commit"))
    return max(i.requested for i in done)


@pytest.mark.filterwarnings("ignore:the metadata table of")
@pytest.mark.supports("Vectors", "index: beside Java's writers, services, rollbacks and restores")
def test_java_does_all_that_it_does_beside_a_vector_index(java: JavaHudi, path: str) -> None:
    java.write(path, rows_of(range(30), 1), options(100), mode="overwrite", types=TYPES)
    table = mainstem.open_table(path, OURS)
    table.create_index("vector", ["v"], options={"engine": "flat", "metric": "l2", "clusters": 2})
    before = files(path)
    check(java, path)

    java.write(path, rows_of(range(20, 40), 2), options(), types=TYPES)
    check(java, path)
    deleting = {**options(), "hoodie.datasource.write.operation": "delete"}
    java.write(path, rows_of(range(5), 3), deleting, types=TYPES)
    check(java, path)
    java.compact(path, options())
    java.clean(path, options())
    check(java, path)
    assert files(path) == before
    table.refresh_index("v")
    before = files(path)

    java.call("sql", text=f"CREATE TABLE {NAME} USING hudi LOCATION '{path}'")
    java.write(path, rows_of(range(35, 45), 4), options(100), types=TYPES)
    check(java, path)
    undone = newest(path)
    call(java, "rollback_to_instant", instant_time=undone)
    assert newest(path) < undone
    check(java, path)
    assert files(path) == before

    saved = newest(path)
    call(java, "create_savepoint", commit_time=saved)
    java.write(path, rows_of(range(3, 12), 5), options(100), types=TYPES)
    check(java, path)
    call(java, "rollback_to_savepoint", instant_time=saved)
    assert newest(path) == saved
    # Java's metadata table lacks an instant from here on, so rows are read without it.
    check(java, path, "ready" if files(path) == before else "lost", {})
    java.write(path, rows_of(range(50, 60), 6), options(), types=TYPES)
    mainstem.open_table(path, OURS).refresh_index("v")
    check(java, path, through={})


def test_java_begins_its_metadata_table_beside_an_index_of_a_table_without_one(
    java: JavaHudi, path: str
) -> None:
    off = {**options(100), "hoodie.metadata.enable": "false"}
    java.write(path, rows_of(range(30), 1), off, mode="overwrite", types=TYPES)
    table = mainstem.open_table(path, OURS)
    table.create_index("vector", ["v"], options={"engine": "flat", "metric": "l2", "clusters": 2})
    assert [index.name for index in table.indexes()] == ["v"]
    before = files(path)
    check(java, path, through={})

    java.write(path, rows_of(range(20, 40), 2), options(), types=TYPES)
    assert [index.name for index in mainstem.open_table(path, OURS).indexes()] == ["files", "v"]
    assert files(path) == before
    check(java, path)
    java.compact(path, options())
    java.clean(path, options())
    check(java, path)
    assert files(path) == before
    table = mainstem.open_table(path, OURS)
    table.upsert(rows_of(range(50, 60), 3))
    assert table.refresh_index("v").built
    check(java, path)


def test_java_writers_without_a_metadata_table_leave_an_index_alone(java: JavaHudi, path: str) -> None:
    off = {**options(), "hoodie.metadata.enable": "false"}
    table = mainstem.create_table(
        path, rows_of(range(1), 0).schema, record_key="id",
        name=NAME, ordering=["ts"], vectors=TYPES, properties=OURS
    )
    table.upsert(rows_of(range(30), 1))
    table.create_index("vector", ["v"], options={"engine": "flat", "metric": "l2", "clusters": 2})
    before = files(path)
    for step, keys in enumerate([range(20, 40), range(50, 60)], 2):
        java.write(path, rows_of(keys, step), off, types=TYPES)
        assert files(path) == before
        check(java, path, through={})
