"""Goal: no cluster is left out of a search that holds one of the nearest rows.

Method: random vectors, divided as an index divides them; the least distance that is said of a cluster is held
against the distances of all its rows.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from mainstem.vectors.distances import METRICS, pair_distances
from mainstem.vectors.index.clusters import assign, centroids
from mainstem.vectors.search.cluster_bounds import Reach


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("spread", [0.05, 1.0, 30.0])
def test_no_row_of_a_cluster_is_nearer_than_is_said_of_it(metric, spread):
    chance = np.random.default_rng(11)
    middles = chance.normal(size=(9, 6)) * 10
    vectors = (middles[chance.integers(9, size=3000)] + spread * chance.normal(size=(3000, 6))).astype("f4")
    vectors[17] = 0
    found = centroids(vectors, 5, metric, random.Random(3))
    held = assign(vectors, found, metric)
    queries = np.concatenate([chance.normal(size=(60, 6)) * 12, vectors[:20], np.zeros((1, 6))])
    first, least = Reach(found, metric).least(queries.astype(np.float64))
    assert (first == assign(queries, found, metric)).mean() > 0.95
    for at in range(5):
        rows = vectors[held == at]
        for number, query in enumerate(queries):
            apart = pair_distances(metric, np.repeat(query[None], len(rows), 0), rows)
            assert apart.min(initial=np.inf) >= least[number, at]
    if metric != "dot_product" and spread < 1:
        assert (least > 0.01).any()  # something is told


def test_clusters_far_from_the_origin_are_not_left_out_by_the_rounding_of_float32():
    """Coordinates of maps: metres east and north."""
    chance = np.random.default_rng(5)
    corner = np.array([500_000.0, 4_600_000.0])
    vectors = corner + chance.uniform(-5000, 5000, (4000, 2))
    queries = corner + chance.uniform(-5000, 5000, (300, 2))
    found = centroids(vectors, 8, "l2", random.Random(3))
    held = assign(vectors, found, "l2")
    _, least = Reach(found, "l2").least(queries)
    for at in range(8):
        apart = np.linalg.norm(queries[:, None] - vectors[held == at][None], axis=2)
        assert (apart.min(axis=1) >= least[:, at]).all()
    assert (least > 1000).any()
