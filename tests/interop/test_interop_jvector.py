"""Goal: the engine jvector keeps the one interface of engines, in the JVM of a Spark session.

Method: a session of Spark that has the library, as a user starts it. The tests of all engines
(``tests/vectors/test_engines.py``) run once more with this engine; then a table is indexed, refreshed by
Spark, searched, and searched on when the JVM is gone.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid
from mainstem.spark.indexes import create_index, refresh_index
from mainstem.vectors.distances import nearest
from mainstem.vectors.engines import engine, jvector
from tests.vectors import test_engines as suite

pytestmark = [
    pytest.mark.spark,
    pytest.mark.supports("Vectors", "index: graphs of jVector, in Spark's JVM"),
]
graphs = suite.graphs
# Its process has no session; below is one for this engine.
LEFT_OUT = {"test_damaged_bytes_are_refused_or_searched_but_end_no_process"}


@pytest.fixture(scope="module", autouse=True)
def session() -> Iterator[object]:
    """A session with jVector; its JVM ends with it, so that no other test of this process has it."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("jvector")
    for key, value in {
        "spark.jars.packages": jvector.PACKAGE,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    suite.VARIANTS.update(suite.OTHER)
    yield made
    gateway = made.sparkContext._gateway
    made.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    type(made.sparkContext)._gateway = type(made.sparkContext)._jvm = None


def _for_jvector(test: Callable[..., None]) -> Callable[..., None]:
    """The test with this engine in the place of the variants that it names."""
    copy = types.FunctionType(test.__code__, test.__globals__, test.__name__, None, test.__closure__)
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.args[:1] != ("variant",)]
    copy.pytestmark = [mark for mark in marks if mark.name != "supports"]
    return pytest.mark.parametrize("variant", ["jvector"])(copy)


def _parameters(test: Callable[..., None]) -> list[str]:
    return list(inspect.signature(test).parameters)


for _name, _test in inspect.getmembers(suite, inspect.isfunction):
    if _name.startswith("test_") and _name not in LEFT_OUT and "variant" in _parameters(_test):
        globals()[_name] = _for_jvector(_test)


def test_damaged_graphs_are_refused_or_searched() -> None:
    random = np.random.default_rng(15)
    vectors = random.normal(size=(1500, 4)).astype(np.float32)
    data = np.frombuffer(bytes(engine("jvector").build(vectors, "l2", {}, threads=1)), np.uint8)
    refused = 0
    for turn in range(45):
        bad = data.copy()
        at = random.integers(0, [200, len(bad), len(bad)][turn % 3])
        bad[at : at + 4] = random.integers(0, 256, len(bad[at : at + 4]))
        try:
            graph = engine("jvector").load(bytes(bad), 4, "l2", 1500)
        except CorruptTable:
            refused += 1
            continue
        labels, _ = graph.search(vectors[:5], 10)
        assert ((labels >= -1) & (labels < 1500)).all()
    assert refused > 10


@pytest.mark.parametrize("length", [1e-9, 1e12])
def test_vectors_may_be_short_or_long(length: float) -> None:
    vectors = suite.drawn("uniform", 2500, 20) * np.float32(length)
    queries = suite.drawn("uniform", 50, 21) * np.float32(length)
    labels, distances = suite.built("jvector", vectors, "l2").search(queries, 10)
    true, apart = nearest("l2", queries, vectors, 10)
    assert suite.recall(labels, true) >= suite.RECALL
    assert np.allclose(distances[:, 0], apart[:, 0], rtol=0.1)


def test_a_table_is_indexed_and_refreshed_by_spark_and_searched(tmp_path, session) -> None:
    path = str(tmp_path / "t")
    schema = pa.schema([("id", pa.string())])
    table = mainstem.create_table(path, schema, record_key="id", buckets=2, vectors={"v": "VECTOR(16)"})
    vectors = suite.drawn("clustered", 3000, 22)
    keys = np.array([f"{at:05d}" for at in range(3000)])
    table.upsert({"id": keys[:2500], "v": list(vectors[:2500])})
    options = {"engine": "jvector", "metric": "l2", "clusters": 2, "m": 24}
    create_index(session, path, "vector", ["v"], options=options)
    table.upsert({"id": keys[2500:], "v": list(vectors[2500:])})
    queries = suite.drawn("clustered", 40, 23)
    true, _ = nearest("l2", queries, vectors, 10)

    def share() -> float:
        found = table.search("v", queries, 10, columns=["_hoodie_record_key"])
        rows = found["_hoodie_record_key"].to_numpy(zero_copy_only=False).reshape(len(queries), 10)
        return suite.recall(np.searchsorted(keys, rows), true)

    assert share() >= suite.RECALL
    refresh_index(session, path, "v")
    assert table.explain_search("v", queries[0], 10).fresh == 0
    assert share() >= suite.RECALL


def test_a_jvm_that_has_no_jvector_is_told_what_it_lacks(monkeypatch) -> None:
    monkeypatch.setattr(jvector, "_compiled", [])
    monkeypatch.setattr(jvector, "_LIBRARY", "not.There")
    with pytest.raises(Invalid, match=r"library jVector in Spark's JVM.*spark\.jars\.packages=io\.github"):
        engine("jvector").check({})


def test_a_search_goes_on_exactly_when_the_jvm_is_gone(monkeypatch) -> None:
    vectors = suite.drawn("clustered", 2500, 24)
    graph = suite.built("jvector", vectors, "l2")

    class Gone:
        def search(self, *_: object) -> None:
            raise ConnectionRefusedError("gone")

    monkeypatch.setattr(graph._java, "_graph", Gone())
    with pytest.warns(UserWarning, match="does not answer.*all vectors are compared"):
        labels, _ = graph.search(vectors[:5], 10)
    assert (labels == nearest("l2", vectors[:5], vectors, 10)[0]).all()
