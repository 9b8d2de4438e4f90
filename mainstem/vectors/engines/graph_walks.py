"""Shared by engines that walk graphs: the vectors a graph is built of, and when comparing all is faster.

For inner products, one more value makes all vectors equally long: the nearest by Euclidean distance then has
the largest product (otherwise parts of the graph would be unreachable).
"""

from __future__ import annotations

import numpy as np

from mainstem.vectors.distances import COSINE, DOT, unit

# With fewer rows, or a smaller share of them allowed, comparing all beats a walk that drops most results.
FEW_ROWS, FEW_SHARE = 1000, 0.02
# Sums of squares of larger values overflow or lose precision in float32.
LARGEST = 1e15


def stored_of(metric: str, vectors: np.ndarray, *, own: bool = False) -> np.ndarray:
    """The vectors of which the graph is built: unit vectors, equally long ones, or the given ones. ``own``:
    ``vectors`` belong to no one else and may be overwritten."""
    if metric == COSINE:
        return unit(vectors, vectors if own else None)
    if metric != DOT:
        return vectors
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    missing = np.sqrt(np.maximum(squares.max() - squares, 0))
    return np.column_stack([vectors, missing.astype(np.float32)])


def asked_of(metric: str, queries: np.ndarray) -> np.ndarray:
    """Queries in the form that a graph of ``stored_of`` takes."""
    if metric == DOT:
        return np.pad(queries, ((0, 0), (0, 1)))
    return unit(queries) if metric == COSINE else queries
