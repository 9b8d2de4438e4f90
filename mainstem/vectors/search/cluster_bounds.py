"""Which clusters can hold one of the nearest rows at all.

A row lies in the cluster whose centroid suits it best (``clusters.assign``): between two centroids there is
a plane, and all rows of a cluster lie on its side of it. A query is at least as far from them as from that
plane. Where that is farther than the k nearest that are known already, the cluster holds none that is nearer.
Under inner products length counts as well, and nothing can be told.
"""

from __future__ import annotations

import math

import numpy as np

from mainstem.vectors.distances import COSINE, DOT

# Room for rounding: relative and absolute, and of the float32 of which graphs compute the k-th distance.
_SLACK = 1e-3
_ROUNDING = 4 * float(np.finfo(np.float32).eps)


class Reach:
    """Of the clusters of one version; ``centroids`` (c, d)."""

    def __init__(self, centroids: np.ndarray, metric: str) -> None:
        self._metric = metric
        self._centroids = centroids.astype(np.float64)
        squares = np.einsum("ij,ij->i", self._centroids, self._centroids)
        self._largest = float(np.sqrt(squares.max(initial=0)))
        self._half = squares / 2 if metric not in (COSINE, DOT) else np.zeros(len(squares))
        between = squares[:, None] + squares[None, :] - 2 * self._centroids @ self._centroids.T
        self._between = np.sqrt(np.maximum(between, 0))
        self._divisor = np.where(self._between > 0, self._between, np.inf)

    def least(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(q,): the cluster on whose side of all planes the query lies, and (q, c): a distance that no row of
        a cluster is below, by the metric; minus infinity where nothing can be told."""
        if self._metric == COSINE:
            norms = np.linalg.norm(queries, axis=1, keepdims=True)
            queries = queries / np.where(norms > 0, norms, 1)
        suits = queries @ self._centroids.T - self._half
        first = suits.argmax(axis=1)
        if self._metric == DOT:
            return first, np.full(suits.shape, -np.inf)
        ahead = suits.max(axis=1, keepdims=True) - suits
        apart = self._between[first]
        far = np.divide(ahead, apart, out=np.zeros_like(ahead), where=apart > 0) * (1 - _SLACK) - _SLACK
        if self._metric == COSINE:
            return first, np.where(far > 0, far * far / 2, 0)
        rounding = _ROUNDING * (np.linalg.norm(queries, axis=1, keepdims=True) + self._largest)
        return first, far - rounding

    def of_one(self, query: np.ndarray) -> tuple[int, list[float]]:
        """The same for one query (d,)."""
        norm = math.sqrt(query.dot(query))
        if self._metric == COSINE and norm > 0:
            query = query / norm
        suits = self._centroids.dot(query) - self._half
        first = int(suits.argmax())
        if self._metric == DOT:
            return first, [-math.inf] * len(suits)
        far = (suits[first] - suits) / self._divisor[first] * (1 - _SLACK) - _SLACK
        if self._metric == COSINE:
            return first, np.where(far > 0, far * far / 2, 0).tolist()
        return first, (far - _ROUNDING * (norm + self._largest)).tolist()
