"""Goal: a glance at a cluster saves the search of it only where the cluster holds none of the nearest rows.

Method: vectors without any gaps, so that every query near a border has neighbours in several clusters, and
vectors in heaps, of which the query's is far from the others, but nearer than that to what divides them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.vectors.search import approximate

K, ROWS, HEAPS = 10, 24_000, 24
OPTIONS = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}


def indexed(path, vectors, metric):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    rows = pa.table({"id": [f"k{at:05d}" for at in range(len(vectors))], "v": lists})
    table = mainstem.create_table(path, rows.schema, record_key="id", buckets=1, properties=OPTIONS)
    table.bulk_insert(rows)
    options = {"metric": metric, "clusters": "4", "m": "8", "ef_construction": "40"}
    table.create_index("vector", ["v"], options=options)
    return table


def nearest(table, queries, metric, **how):
    found = table.search("v", queries, K, metric=metric, columns=["_hoodie_record_key"], **how)
    return np.array(found["_hoodie_record_key"].to_pylist()).reshape(len(queries), K)


@pytest.mark.supports("Vectors", "search: several clusters, most of which are only sampled")
@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_neighbours_beyond_the_borders_of_clusters_are_found(tmp_path, metric):
    chance = np.random.default_rng(3)
    made = chance.normal(size=(ROWS + 200, 6)).astype(np.float32)
    table = indexed(tmp_path / "t", made[:ROWS], metric)
    queries = made[ROWS:]
    found, exact = nearest(table, queries, metric), nearest(table, queries, metric, exact=True)
    hit = [len(set(one) & set(true)) for one, true in zip(found, exact, strict=True)]
    assert np.mean(hit) / K > 0.9  # without the other clusters about 0.8


def test_clusters_that_hold_nothing_near_are_not_searched_in_full(tmp_path, monkeypatch):
    monkeypatch.setattr(approximate, "_GLANCE_ROWS", 0)  # heaps may be divided very unevenly
    chance = np.random.default_rng(4)
    middles = chance.normal(size=(HEAPS, 64))
    made = (middles[np.arange(ROWS) % HEAPS] + chance.random((ROWS, 64)) - 0.5).astype(np.float32)
    table = indexed(tmp_path / "t", made, "l2")

    def searched(ef):
        return sum(table.explain_search("v", made[at], K, ef=ef).clusters for at in range(HEAPS))

    assert HEAPS <= searched(None) < searched(64)
