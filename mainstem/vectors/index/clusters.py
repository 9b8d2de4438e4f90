"""k-means: divides the vectors of a version among its clusters.

Every search looks into all clusters, so the division affects sizes and speed, never answers. It goes by
direction under ``cosine`` and ``dot_product``, by Euclidean distance under ``l2``. Centroids are computed in
float32, one block of rows at a time; memory holds the sample and one block. The cluster of each row is
decided in float64: searches leave out clusters by the planes between them (``search.cluster_bounds``), and
far from the origin, as with map coordinates, float32 would put rows on the wrong side of a plane by more than
a cluster's width.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from mainstem.limits import VECTOR_CLUSTERS_MAX
from mainstem.truetime.seams import Randomness
from mainstem.vectors.distances import L2
from mainstem.vectors.index.vector_spill import StoredVectors

# With fewer rows, one graph is as fast as several; with more, each cluster has up to this many.
_ROWS_OF_ONE = 50_000
_ROWS_EACH = 1_000_000
_LEAST = 4
_SAMPLE_EACH = 256
_SAMPLE_ROWS_MAX = 65_536
_SAMPLE_VALUES_MAX = 16 * 1024 * 1024
_ROUNDS = 10
_BLOCK_VALUES = 4 * 1024 * 1024

Vectors: TypeAlias = np.ndarray | StoredVectors


def cluster_count(rows: int, wanted: int) -> int:
    """Number of clusters of a version with this many rows; ``wanted`` 0: chosen here."""
    if wanted:
        return min(wanted, max(rows, 1))
    if rows < _ROWS_OF_ONE:
        return 1
    return min(max(_LEAST, -(-rows // _ROWS_EACH)), VECTOR_CLUSTERS_MAX)


def centroids(vectors: Vectors, count: int, metric: str, random: Randomness) -> np.ndarray:
    """``count`` centroids, float32 (count, d), of ``vectors`` (n, d), n >= ``count`` >= 1.

    Computed by Lloyd's algorithm over a sample drawn with ``random``.
    """
    rows, width = vectors.shape
    if count == 1:
        total = np.zeros(width, np.float64)
        for _, block in blocks(vectors):
            total += _prepared(block, metric).sum(axis=0, dtype=np.float64)
        return (total / max(rows, 1)).astype(np.float32)[None]
    most = min(_SAMPLE_EACH * count, _SAMPLE_ROWS_MAX, _SAMPLE_VALUES_MAX // max(width, 1))
    size = min(rows, max(count, most))
    sample = _prepared(vectors[_spread(rows, size, random)], metric)
    found = sample[_spread(len(sample), count, random)].copy()
    for _ in range(_ROUNDS):
        near = _nearest(sample, found, metric)
        held = np.bincount(near, minlength=count)
        totals = np.zeros((count, width), np.float64)
        np.add.at(totals, near, sample)
        filled = held > 0
        found[filled] = totals[filled] / held[filled, None]
        if not filled.all():  # an empty cluster starts again with rows of the fullest one
            crowd = sample[near == held.argmax()]
            empty = np.flatnonzero(~filled)
            found[empty] = crowd[_spread(len(crowd), len(empty), random)]
    return found


def assign(vectors: Vectors, found: np.ndarray, metric: str) -> np.ndarray:
    """The cluster of each row of ``vectors`` (n, d), int32 (n,): that of the nearest centroid."""
    made = np.zeros(len(vectors), np.int32)
    if len(found) > 1:
        exact = found.astype(np.float64)
        for first, block in blocks(vectors, len(found)):
            made[first : first + len(block)] = _nearest(block.astype(np.float64), exact, metric)
    return made


def blocks(vectors: Vectors, width: int = 1) -> Iterator[tuple[int, np.ndarray]]:
    """Pieces of bounded size with the number of their first row; ``width``: values computed per row."""
    step = max(1, _BLOCK_VALUES // max(vectors.shape[1], width))
    for first in range(0, len(vectors), step):
        yield first, vectors[first : first + step]


def _prepared(vectors: np.ndarray, metric: str) -> np.ndarray:
    """The vectors as float32, with unit length if only directions count."""
    made = vectors.astype(np.float32)
    if metric != L2:
        norms = np.sqrt(np.einsum("ij,ij->i", made, made, dtype=np.float64)).astype(np.float32)
        made /= np.where(norms > 0, norms, 1)[:, None]
    return made


def _nearest(vectors: np.ndarray, found: np.ndarray, metric: str) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        alike = vectors @ found.T
        if metric == L2:
            alike -= np.einsum("ij,ij->i", found, found) / 2
    return np.argmax(alike, axis=1)


def _spread(rows: int, count: int, random: Randomness) -> np.ndarray:
    """``count`` distinct row numbers at even distances, with a random start."""
    step = rows / count
    return np.minimum(((np.arange(count) + random.random()) * step).astype(np.int64), rows - 1)
