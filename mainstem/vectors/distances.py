"""Distances as computed by Hudi's ``hudi_vector_search``, and exact search over blocks.

In every metric, smaller is closer: ``cosine`` is 1 - cos within [0, 2], ``l2`` the Euclidean distance (with
the root), ``dot_product`` the negative dot product. Results are doubles. A zero vector has cosine distance 1
to every vector (``VectorDistanceUtils`` of Hudi 1.2.0).

Exact search multiplies blocks in float32, and then computes in float64 every row whose rounded distance is
within the rounding error of the k-th best. The result is that of float64 alone, with ties broken by the
smaller label. Memory is bounded by one block, whatever the number of vectors and queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mainstem.errors import Invalid

COSINE, L2, DOT = "cosine", "l2", "dot_product"
METRICS = (COSINE, L2, DOT)
_ALIASES = {"euclidean": L2, "inner_product": DOT} | {name: name for name in METRICS}
# Values in one block, and most queries in one multiplication (at most 16 MiB of float32 each).
_BLOCK_VALUES = 4 * 1024 * 1024
_QUERIES = 512
# Values normalised at a time, as doubles.
_UNIT_VALUES = 128 * 1024
# Range of norms whose squares and products neither overflow nor lose digits in float32.
_FLOAT32_NORMS = (1e-15, 1e15)


def metric_named(name: str | None) -> str:
    """The metric for one of Hudi's names or aliases, in any case (None: cosine); ``Invalid`` otherwise."""
    if name is None:
        return COSINE
    found = _ALIASES.get(name.strip().lower()) if isinstance(name, str) else None
    if found is None:
        raise Invalid(f"unknown metric {name!r}; there are {', '.join(sorted(_ALIASES))}")
    return found


def pair_distances(metric: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float64 (p,): distances of ``left[i]`` to ``right[i]``, both (p, d) of any number type; ``left`` may
    also be a single vector (1, d)."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if metric == L2:
            apart = left - right
            return np.sqrt(np.einsum("ij,ij->i", apart, apart))
        dot = np.einsum("ij,ij->i", left, right)
        if metric == DOT:
            return -dot
        both = np.sqrt(np.einsum("ij,ij->i", left, left)) * np.sqrt(np.einsum("ij,ij->i", right, right))
        return np.clip(1.0 - np.where(both > 0, dot / np.where(both > 0, both, 1.0), 0.0), 0.0, 2.0)


def unit(vectors: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
    """Vectors scaled to length 1, as float32. Zero vectors stay, at cosine distance 1 to every vector.

    Needs memory for one block of doubles besides the result, which goes to ``into`` (it may be ``vectors``).
    """
    made = np.empty(vectors.shape, np.float32) if into is None else into
    step = max(1, _UNIT_VALUES // max(vectors.shape[1], 1))
    for first in range(0, len(vectors), step):
        block = vectors[first : first + step].astype(np.float64)
        lengths = np.linalg.norm(block, axis=1, keepdims=True)
        made[first : first + step] = block / np.where(lengths > 0, lengths, 1)
    return made


def rerank(
    metric: str, queries: np.ndarray, vectors: np.ndarray, labels: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best ``k`` of ``labels`` (q, m; rows of ``vectors``, -1 for none) by float64 distances.

    Returns labels and distances like ``nearest``. The labels of one query must differ.
    """
    query_of, place = np.nonzero(labels >= 0)
    best = _Best.empty(len(labels), k)
    best.offer(metric, queries, vectors, query_of, labels[query_of, place])
    return best.labels, best.distances


def nearest(
    metric: str, queries: np.ndarray, vectors: np.ndarray, k: int, *, allowed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Labels int64 (q, k) and distances float64 (q, k) of the nearest rows of ``vectors``, exactly.

    ``queries`` (q, d) and ``vectors`` (n, d) are finite numbers of any type; ``allowed`` is bool (n,).
    Distances ascend, ties by label. If fewer than ``k`` rows are allowed, labels are padded with -1,
    distances with infinity.
    """
    best = _Best.empty(len(queries), k)
    if not k or not len(queries):
        return best.labels, best.distances
    parts = [_Queries.prepare(metric, queries, at) for at in range(0, len(queries), _QUERIES)]
    for rows, block in _blocks(vectors, allowed):
        prepared = _Block.prepare(block)
        for part in parts:
            scores, error = prepared.scores(metric, part)
            worst = part.as_score(metric, best.distances[part.start : part.end, -1])
            open_ended = ~np.isfinite(worst)
            if open_ended.any():
                worst[open_ended] = _kth(scores[open_ended], k) + error[open_ended]
            query_of, row_of = np.nonzero(~(scores > (worst + error)[:, None]))
            best.offer(metric, queries, vectors, query_of + part.start, rows[row_of])
    return best.labels, best.distances


def _kth(scores: np.ndarray, k: int) -> np.ndarray:
    if scores.shape[1] <= k:
        return np.full(len(scores), np.inf)
    return np.partition(scores, k - 1, axis=1)[:, k - 1].astype(np.float64)


def _blocks(vectors: np.ndarray, allowed: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Labels and vectors of the allowed rows, one block at a time."""
    count, dimension = vectors.shape
    length = max(1, min(_BLOCK_VALUES // max(dimension, 1), _BLOCK_VALUES // _QUERIES))
    if allowed is not None:
        chosen = np.flatnonzero(allowed)
        for start in range(0, len(chosen), length):
            rows = chosen[start : start + length]
            yield rows, vectors[rows]
        return
    for start in range(0, count, length):
        yield np.arange(start, min(start + length, count)), vectors[start : start + length]


@dataclass
class _Queries:
    """A batch of queries, and their norms (float64)."""

    start: int
    end: int
    exact: np.ndarray
    norms: np.ndarray

    @classmethod
    def prepare(cls, metric: str, queries: np.ndarray, start: int) -> _Queries:
        exact = np.asarray(queries[start : start + _QUERIES], np.float64)
        norms = np.linalg.norm(exact, axis=1)
        if metric == COSINE:
            exact = exact / np.where(norms > 0, norms, 1.0)[:, None]
        return cls(start, start + len(exact), exact, norms)

    def as_score(self, metric: str, distances: np.ndarray) -> np.ndarray:
        """Distances as the scores by which blocks are ranked: l2 squared, without the query's own square."""
        if metric != L2:
            return distances.copy()
        return distances * distances - self.norms * self.norms


@dataclass
class _Block:
    """The vectors of one block, in the type in which they are multiplied."""

    values: np.ndarray
    squares: np.ndarray
    largest: float

    @classmethod
    def prepare(cls, vectors: np.ndarray) -> _Block:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            values = np.asarray(vectors, np.float32)
            squares = np.einsum("ij,ij->i", values, values)
            low, high = (bound * bound for bound in _FLOAT32_NORMS)
            exact_zero = (squares == 0) & ~np.any(vectors, axis=1) if (squares == 0).any() else False
            if not np.all(exact_zero | ((squares >= low) & (squares <= high))):
                values = np.asarray(vectors, np.float64)
                squares = np.einsum("ij,ij->i", values, values)
        return cls(values, squares, float(np.sqrt(squares.max(initial=0))))

    def scores(self, metric: str, queries: _Queries) -> tuple[np.ndarray, np.ndarray]:
        """(q, n) scores that rank like the distances, and (q,) the error that each may have."""
        kind = self.values.dtype
        norms = np.ones(1) if metric == COSINE else queries.norms
        if kind == np.float32 and norms.max() > _FLOAT32_NORMS[1]:
            kind = np.dtype(np.float64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            found = queries.exact.astype(kind) @ self.values.astype(kind, copy=False).T
            # Twice the error bound of a sum of products in any order, with room for casts and norms.
            step = (self.values.shape[1] + 8) * np.finfo(kind).eps
            if metric == COSINE:
                lengths = np.sqrt(self.squares)
                found /= np.where(lengths > 0, lengths, 1)[None, :]
                np.subtract(1, found, out=found)
                return found, np.full(len(found), 2 * step)
            if metric == DOT:
                np.negative(found, out=found)
                return found, step * queries.norms * self.largest
            found *= -2
            found += self.squares[None, :]
            return found, step * (queries.norms + self.largest) ** 2


@dataclass
class _Best:
    """The best rows so far for every query: labels and distances (q, k), ascending."""

    labels: np.ndarray
    distances: np.ndarray

    @classmethod
    def empty(cls, queries: int, k: int) -> _Best:
        return cls(np.full((queries, k), -1, np.int64), np.full((queries, k), np.inf))

    def offer(
        self, metric: str, queries: np.ndarray, vectors: np.ndarray, query_of: np.ndarray, labels: np.ndarray
    ) -> None:
        """Offer rows ``labels`` as candidates to the queries ``query_of`` (ascending), a block at a time."""
        length = max(1, _BLOCK_VALUES // max(vectors.shape[1], 1) // 4)
        for start in range(0, len(labels), length):
            asked, rows = query_of[start : start + length], labels[start : start + length]
            self._take(asked, rows, pair_distances(metric, queries[asked], vectors[rows]))

    def _take(self, query_of: np.ndarray, labels: np.ndarray, distances: np.ndarray) -> None:
        touched = np.unique(query_of)
        k = self.labels.shape[1]
        owners = np.concatenate([np.repeat(touched, k), query_of])
        labels = np.concatenate([self.labels[touched].ravel(), labels])
        distances = np.concatenate([self.distances[touched].ravel(), distances])
        order = np.lexsort((labels, distances, labels < 0, owners))
        owners = owners[order]
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        sizes = np.diff(np.r_[starts, len(owners)])
        rank = np.arange(len(owners)) - np.repeat(starts, sizes)
        kept = rank < k
        self.labels[owners[kept], rank[kept]] = labels[order][kept]
        self.distances[owners[kept], rank[kept]] = distances[order][kept]
