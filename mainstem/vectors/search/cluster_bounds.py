"""Decides which clusters can hold one of the nearest rows at all.

A row is in the cluster whose centroid suits it best (``clusters.assign``). So between any two centroids there
is a plane, and all rows of a cluster are on its own side. A query is at least as far from them as from that
plane. If that is farther than the k nearest known already, the cluster holds nothing nearer. With inner
products, length matters as well, and no bound is known.
"""

from __future__ import annotations

import math

import numpy as np

from mainstem.vectors.distances import COSINE, DOT

# Room for rounding: relative and absolute, and that of the float32 in which graphs compute the k-th distance.
_SLACK = 1e-3
_ROUNDING = 4 * float(np.finfo(np.float32).eps)


class Reach:
    """Bounds for the clusters of one version; ``centroids`` (c, d)."""

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
        """(q,): the cluster on whose side of all planes each query is; and (q, c): a lower bound on the
        metric's distance to every row of a cluster, minus infinity if none is known."""
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
        """``least`` for one query (d,)."""
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
