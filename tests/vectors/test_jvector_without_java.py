"""Goal: the engine jvector without a JVM: what is missing is said, other engines and right answers remain.

Method: no Spark session is active here. Files of the engine are made by hand, put in the place of an index's
graph, damaged in every part. With a JVM the engine is tested in ``tests/interop``.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import pyarrow as pa
import pytest
from jvector_files import jvector_file

import mainstem
from mainstem.errors import CorruptTable, Invalid
from mainstem.vectors.distances import nearest
from mainstem.vectors.engines import engine, engine_file
from mainstem.vectors.index import building

JVECTOR = engine("jvector")
VECTORS = np.random.default_rng(1).normal(size=(400, 6)).astype(np.float32)


@pytest.fixture(autouse=True)
def no_session(monkeypatch):
    """A session of another test of this process does not count."""
    monkeypatch.setitem(sys.modules, "pyspark", types.SimpleNamespace())


def new_table(tmp_path):
    schema, vectors = pa.schema([("id", pa.string())]), {"v": "VECTOR(6)"}
    return mainstem.create_table(str(tmp_path / "t"), schema, record_key="id", buckets=2, vectors=vectors)


def loaded(data, count=400):
    return JVECTOR.load(bytes(data), 6, "l2", count)


def test_without_a_session_the_package_and_the_other_engines_are_named(tmp_path) -> None:
    table = new_table(tmp_path)
    said = r"spark\.jars\.packages=io\.github\.jbellis:jvector:4.*hnsw, faiss or flat"
    with pytest.raises(Invalid, match=said):
        table.create_index("vector", ["v"], options={"engine": "jvector"})
    with pytest.raises(Invalid, match=said):
        JVECTOR.build(VECTORS, "l2", {})
    assert table.indexes() == []


def test_a_version_made_with_a_jvm_is_searched_exactly_without_one_and_says_so(tmp_path, monkeypatch) -> None:
    table = new_table(tmp_path)
    vectors = np.random.default_rng(2).normal(size=(1300, 6)).astype(np.float32)
    table.upsert({"id": [f"{at:04d}" for at in range(1300)], "v": list(vectors)})

    class Made:
        """The engine as a process with a JVM has it, as far as a build goes."""

        name, exact, anywhere = "jvector", False, True

        def build(self, values, metric, options):
            return jvector_file(values)

    monkeypatch.setattr(type(JVECTOR), "check", lambda self, options: dict(options))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(building, "engine", lambda name: Made())
        table.create_index("vector", ["v"], options={"engine": "jvector", "metric": "l2"})
    asked = VECTORS[0]
    with pytest.warns(UserWarning, match="all vectors are compared instead.*no Spark session"):
        found = table.search("v", asked, 5)
    true, _ = nearest("l2", asked[None], vectors, 5)
    assert found["id"].to_pylist() == [f"{at:04d}" for at in true[0]]


def test_few_vectors_are_compared_one_by_one_without_a_jvm() -> None:
    allowed = np.arange(400) % 3 == 0
    labels, _ = loaded(jvector_file(VECTORS)).search(VECTORS[:9], 7, allowed=allowed)
    assert (labels == nearest("l2", VECTORS[:9], VECTORS, 7, allowed=allowed)[0]).all()


def test_damage_in_any_part_of_a_file_is_refused_before_java_sees_it() -> None:
    whole = jvector_file(VECTORS)
    head, vectors, edges = 24, 24 + 4 * VECTORS.size, 4 * 4
    upper = vectors + 400 * edges
    places = {
        "magic": (0, b"X"),
        "degree": (4, b"\0\0\0\0"),
        "degree beyond the file": (4, b"\5"),
        "levels": (8, b"\xff\xff"),
        "entry on the lowest level only": (12, b"\1\0"),
        "nodes of a level": (20, b"\xff\xff\xff\x7f"),
        "a vector": (head, b"\0\0\xc0\x7f"),
        "an edge to nowhere": (vectors, b"\xff\xff\0\0"),
        "a negative edge": (vectors, b"\xfe\xff\xff\xff"),
        "a node of a level": (upper, b"\xff\xff\0\0"),
        "the order of a level": (upper, b"\4\0\0\0"),
        "an edge to a node that is not on the level": (upper + 400, b"\1\0\0\0"),
    }
    assert loaded(whole).count == 400
    for what, (at, wrong) in places.items():
        bad = whole.copy()
        bad[at : at + len(wrong)] = wrong
        with pytest.raises(CorruptTable, match="jvector file"):
            pytest.fail(f"{what} was taken: {loaded(bad)}")
    short = whole[:20] + engine_file.footer("jvector", "l2", 6, 400, 20)
    with pytest.raises(CorruptTable, match="head"):
        loaded(short)


def test_options_are_checked_with_their_bounds_and_other_names(monkeypatch) -> None:
    monkeypatch.setattr("mainstem.vectors.engines.jvector._java_class", object)
    chosen = JVECTOR.check({"M": "16", "alpha": 1.4})
    assert (chosen["m"], chosen["alpha"], chosen["neighbor_overflow"]) == (16, 1.4, 1.2)
    for wrong, said in (
        ({"alpha": "0.5"}, "between 1.0 and 4.0"),
        ({"alpha": "nan"}, "between"),
        ({"neighborOverflow": "x"}, "must be a number"),
        ({"beam_width": 9, "efConstruction": 9}, "twice"),
        ({"nlist": 3}, "no option 'nlist'"),
    ):
        with pytest.raises(Invalid, match=said):
            JVECTOR.check(wrong)
