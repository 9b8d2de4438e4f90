"""Goal: while a version is built, memory is that of some blocks and of one cluster, not of all vectors.

Method: ``tracemalloc``, which counts what NumPy and Python take, so that the figures are the same each time.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from mainstem.errors import CorruptTable
from mainstem.vectors.distances import unit
from mainstem.vectors.engines import engine
from mainstem.vectors.index import clusters
from mainstem.vectors.index import vector_spill as stored_file
from mainstem.vectors.index.clusters import assign, centroids
from mainstem.vectors.index.vector_spill import StoredVectors
from tests.storage.steps import storage_at

ROWS, WIDTH = 16_000, 256


def peak(work: Callable[[], object]) -> int:
    """Bytes that were held at most beyond those of before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    base = tmp_path_factory.mktemp("vectors")
    values = np.random.default_rng(3).random((ROWS, WIDTH), np.float32) - 0.5
    values.tofile(base / "all.vectors")
    return values, StoredVectors(storage_at(base), "all.vectors", values.shape, "FLOAT")


@pytest.fixture(autouse=True)
def blocks_that_are_small_beside_the_vectors(monkeypatch):
    monkeypatch.setattr(clusters, "_BLOCK_VALUES", 1 << 18)
    monkeypatch.setattr(stored_file, "_PIECE_BYTES", 1 << 20)


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_rows_are_divided_by_reading_blocks(stored, metric):
    values, file = stored
    made = {}

    def divided(vectors):
        def work():
            made["found"] = centroids(vectors, 4, metric, random.Random(3))
            made["near"] = assign(vectors, made["found"], metric)

        return work

    assert peak(divided(file)) < values.nbytes * 0.6
    from_file = dict(made)
    divided(values)()
    assert (from_file["found"] == made["found"]).all()
    assert (from_file["near"] == made["near"]).all()
    assert len(np.unique(made["near"])) == 4


def test_unit_vectors_take_their_own_memory_and_a_block(stored):
    values, _ = stored
    assert peak(lambda: unit(values)) < values.nbytes * 1.4


@pytest.mark.parametrize("metric", ["cosine", "dot_product", "l2"])
def test_a_graph_is_built_of_one_copy_of_the_vectors(stored, metric):
    values, file = stored
    options = {"m": "4", "ef_construction": "8", "ef": "16"}
    built = {}
    taken = peak(lambda: built.update(data=engine("hnsw").build(file, metric, options, threads=1)))
    assert values.nbytes < len(built["data"]) < values.nbytes * 1.2
    assert taken < values.nbytes * 2.6  # the vectors and the file
    before = values.copy()
    assert bytes(engine("hnsw").build(values, metric, options, threads=1)) == bytes(built["data"])
    assert (values == before).all()


def test_a_file_is_the_array_that_was_written(stored, tmp_path):
    values, file = stored
    assert file.shape == values.shape == (len(file), WIDTH)
    rows = np.array([0, 5, 7_000, 7_001, ROWS - 1])
    assert (file[rows] == values[rows]).all()
    assert (file[15_990:20_000] == values[15_990:]).all()
    assert peak(lambda: np.asarray(file)) < values.nbytes * 1.4
    assert (np.asarray(file) == values).all()
    (tmp_path / "cut").write_bytes(b"\0" * 20)
    with pytest.raises(CorruptTable, match="cut"):
        np.asarray(StoredVectors(storage_at(tmp_path), "cut", (3, 2), "FLOAT"))
