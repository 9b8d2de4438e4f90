"""What engines share whose graphs are walked: the vectors they are made of, and when comparing all is faster.

A graph of inner products is built of vectors that are made equally long by one more value, so that the
nearest by euclidean distance is the one with the largest product (else parts of it cannot be reached).
"""

from __future__ import annotations

import numpy as np

from mainstem.vectors.distances import COSINE, DOT, unit

# Below this many rows, or this share of them, comparing all is faster than a walk that throws most away.
FEW_ROWS, FEW_SHARE = 1000, 0.02
# The squares of larger values do not add up in float32.
LARGEST = 1e15


def stored_of(metric: str, vectors: np.ndarray, *, own: bool = False) -> np.ndarray:
    """What the graph is built of: unit vectors, equally long ones, or the vectors. ``own``: nobody else has
    ``vectors``, so that they may be changed in their place."""
    if metric == COSINE:
        return unit(vectors, vectors if own else None)
    if metric != DOT:
        return vectors
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    missing = np.sqrt(np.maximum(squares.max() - squares, 0))
    return np.column_stack([vectors, missing.astype(np.float32)])


def asked_of(metric: str, queries: np.ndarray) -> np.ndarray:
    """Queries as the graph of ``stored_of`` takes them."""
    if metric == DOT:
        return np.pad(queries, ((0, 0), (0, 1)))
    return unit(queries) if metric == COSINE else queries
