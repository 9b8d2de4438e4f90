"""Engine ``hnsw``: a layered graph of near neighbours, built and searched by the library usearch.

usearch has wheels for every platform and is maintained; hnswlib has no wheels. Options: ``m`` (also
``connectivity``), edges per vector; ``ef_construction`` (``expansion_add``), how widely a build searches;
``ef`` (``expansion_search``), how widely a search does, 0 for what ``search_effort`` measures.

usearch's graphs work best with true distances. So cosine searches use unit vectors. For inner products, every
vector gets one more value that makes all of them equally long: the nearest by Euclidean distance then has the
largest product (otherwise parts of the graph would be unreachable).

usearch follows a file's edges without checking them, so ``load`` checks every one first. A graph has no
masks: searches ask for more neighbours until enough of them are allowed. If few rows are allowed, or the
edges do not lead to enough of them, the file's vectors are compared one by one.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid
from mainstem.vectors.distances import COSINE, DOT, L2, nearest
from mainstem.vectors.engines import Graph, engine_file
from mainstem.vectors.engines.graph_walks import FEW_ROWS, FEW_SHARE, LARGEST, asked_of, stored_of
from mainstem.vectors.engines.search_effort import EFFORTS, held_back, measured

if TYPE_CHECKING:
    from usearch.index import Index

_OPTIONS = {
    "m": engine_file.Number(16, 2, 256),
    "ef_construction": engine_file.Number(128, 4, 10_000),
    "ef": engine_file.Number(0, 0, limits.VECTOR_EFFORT_MAX),
}
_ALIASES = {
    "connectivity": "m",
    "expansion_add": "ef_construction",
    "ef_search": "ef",
    "expansion_search": "ef",
}
# usearch's format 2: matrix of vectors, this head (magic, version, kinds, counts), the graph's head, levels.
_MATRIX = struct.Struct("<II")
_HEAD = struct.Struct("<7s3H4BQQQ?")
_HEAD_BYTES = 64
_GRAPH = struct.Struct("<5Q")
_NODE_HEAD_BYTES = 10
_FORMAT_MAJOR = 2
# Metric (l2sq, ip), float32, unsigned 64-bit keys, 32-bit slots.
_KINDS = (b"e\x0b\x0e\x0f", b"i\x0b\x0e\x0f")
_LEVELS = 64
_CHUNK = 65_536
_VIEWS = 4


class _Hnsw:
    name = "hnsw"
    exact = False
    anywhere = True

    def check(self, options: engine_file.Options) -> dict[str, float]:
        _library()
        return engine_file.checked(self.name, _OPTIONS, options, _ALIASES)

    def build(
        self, vectors: np.ndarray, metric: str, options: engine_file.Options, threads: int = 0, seed: int = 0
    ) -> bytearray:
        """Build a graph. usearch draws its layers itself; with one thread the draw is always the same."""
        chosen = self.check(options)
        values = engine_file.as_float32(vectors)
        count, dimension = values.shape
        if not count:
            return bytearray(engine_file.footer(self.name, metric, dimension, 0, 0))
        if metric != COSINE and max(values.max(), -values.min()) >= LARGEST:
            raise Invalid(f"engine hnsw takes values up to {LARGEST}: choose the engine flat, or scale them")
        # Vectors read from a file may be overwritten: no caller has them. From here on, one copy exists.
        stored = stored_of(metric, values, own=not isinstance(vectors, np.ndarray))
        values = stored[:, :dimension]
        index = _library()(
            ndim=stored.shape[1],
            metric="ip" if metric == COSINE else "l2sq",
            dtype="f32",
            connectivity=chosen["m"],
            expansion_add=chosen["ef_construction"],
            enable_key_lookups=False,
        )
        effort = int(chosen["ef"])
        held = np.zeros(count, bool) if effort else held_back(count)
        _add(index, stored, ~held, threads)
        if held.any():
            search = partial(_tried, index, metric, threads)
            effort = measured(metric, values, held, EFFORTS, search)
            _add(index, stored, held, threads)
        with tempfile.TemporaryDirectory(prefix="mainstem-") as folder:
            file = Path(folder, "graph")
            try:  # save to disk: in memory the file would stand beside the vectors and the graph
                index.save(str(file))
                data = None
            except (OSError, RuntimeError):  # no room on disk
                data = index.save(None)
            del index, stored, values
            if data is None:
                data = _read_back(file)
        body = len(data)
        data += engine_file.footer(self.name, metric, dimension, count, body, effort)
        return data

    def load(
        self, data: engine_file.Buffer, dimension: int, metric: str, count: int | None = None
    ) -> _Graph:
        file = engine_file.opened(self.name, data, dimension, metric, count)
        return _Graph(file.body, file.count, file.effort, dimension, metric)


class _Graph(Graph):
    """A file that usearch reads in place; one view per effort, since the effort is part of a view's state."""

    oversample = 1

    def __init__(
        self, body: engine_file.Buffer, count: int, effort: int, dimension: int, metric: str
    ) -> None:
        self.count, self.dimension = count, dimension
        self._body, self._metric, self._effort = body, metric, effort or EFFORTS[0]
        self._views: dict[int, _View] = {}
        self._width = dimension + (metric == DOT)
        if count:
            self._vectors, self._keys = _read(memoryview(body), count, self._width, metric)
            if metric == DOT:
                # All stored vectors have the same length; this is its square.
                self._length = float(np.square(self._vectors[0], dtype=np.float64).sum())

    def search(
        self,
        queries: np.ndarray,
        k: int,
        ef: int | None = None,
        allowed: np.ndarray | None = None,
        threads: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        queries, possible = engine_file.checked_search(self.count, self.dimension, queries, k, allowed)
        labels, distances = engine_file.nothing(len(queries), k)
        if not possible or not len(queries):
            return labels, distances
        rows = np.arange(len(queries))
        there = None if allowed is None else int(np.count_nonzero(allowed))
        for asked in self._widths(possible, there) if np.abs(queries).max() < LARGEST else ():
            found = self._walk(queries[rows], asked, ef or self._effort, allowed, possible, threads)
            labels[rows, :possible], distances[rows, :possible] = found
            rows = rows[found[0][:, -1] < 0]
            if not len(rows):
                return labels, distances
        slots = None if allowed is None else allowed[self._keys]
        found, apart = nearest(
            self._metric, queries[rows], self._vectors[:, : self.dimension], possible, allowed=slots
        )
        labels[rows, :possible], distances[rows, :possible] = self._keys[found], apart
        return labels, distances

    def prepared(self, query: np.ndarray) -> np.ndarray | None:
        """One query, float32 (1, dimension), in the form that ``walked`` takes for every graph of the index;
        None if its values are too large for walking a graph."""
        if not np.abs(query).max() < LARGEST:
            return None
        return np.ascontiguousarray(asked_of(self._metric, query))

    def walked(
        self, asked: np.ndarray, k: int, ef: int | None, allowed: np.ndarray | None, there: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What ``search`` finds for one prepared query, without the cost of a batch: labels and distances
        (k,).

        None if a walk is not faster or does not find enough: use ``search`` then. ``there``: number of
        allowed rows; 1 <= ``k`` <= ``there``.
        """
        width = next(self._widths(k, None if allowed is None else there), 0)
        found = self._view(_wide(ef or self._effort, width)).nearest(asked, width) if width else None
        if found is None:
            return None
        labels, apart = found
        if allowed is not None:
            kept = np.flatnonzero(allowed[labels])[:k]
            if len(kept) < k:
                return None
            labels, apart = labels[kept], apart[kept]
        if self._metric == L2:
            return labels, np.sqrt(np.maximum(apart, 0))
        if self._metric == DOT:
            return labels, self._products(asked[:, : self.dimension], apart[None, :])[0].astype(np.float32)
        return labels, apart

    def _widths(self, possible: int, there: int | None) -> Iterator[int]:
        """How many neighbours to request from the graph, one number per attempt; none if comparing all
        vectors is faster. ``there``: number of allowed rows, None for all."""
        few = max(FEW_ROWS, int(self.count * FEW_SHARE))
        if self.count <= FEW_ROWS or possible > few:
            return
        if there is None:
            yield possible
            return
        share = there / self.count
        if share <= FEW_SHARE:
            return
        asked = int(possible / share * 1.5) + 1
        while asked <= few:
            yield asked
            asked *= 4

    def _walk(
        self,
        queries: np.ndarray,
        asked: int,
        effort: int,
        allowed: np.ndarray | None,
        possible: int,
        threads: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The first ``possible`` allowed rows of the ``asked`` nearest: labels (-1: none) and distances."""
        view = self._view(_wide(effort, asked))
        labels, apart = _answers(view.index, asked_of(self._metric, queries), asked, threads)
        none = labels < 0
        if allowed is not None:
            none |= ~allowed[np.where(none, 0, labels)]
        if none.any():
            labels[none], apart[none] = -1, np.inf
            order = np.argsort(none, axis=1, kind="stable")[:, :possible]
            labels, apart = np.take_along_axis(labels, order, 1), np.take_along_axis(apart, order, 1)
        else:
            labels, apart = labels[:, :possible], apart[:, :possible]
        if self._metric == L2:
            apart = np.sqrt(np.maximum(apart, 0))
        elif self._metric == DOT:
            apart = self._products(queries, apart)
        return labels, apart

    def _products(self, queries: np.ndarray, apart: np.ndarray) -> np.ndarray:
        """Negative inner products, from squared distances between vectors that were made equally long."""
        squares = np.square(queries, dtype=np.float64).sum(axis=1, keepdims=True)
        return (apart - squares - self._length) / 2

    def _view(self, effort: int) -> _View:
        found = self._views.get(effort)
        if found is None:
            index = _library()(
                ndim=self._width,
                metric="ip" if self._metric == COSINE else "l2sq",
                dtype="f32",
                enable_key_lookups=False,
            )
            index.view(self._body)
            index.expansion_search = effort
            found = _View(index, self._vectors)
            with suppress(KeyError, RuntimeError):  # another thread may have been faster
                while len(self._views) >= _VIEWS:
                    del self._views[next(iter(self._views))]
            self._views[effort] = found
        return found


class _View:
    """usearch's index over a graph's bytes, for one effort.

    For a single query, usearch's Python class costs several times as much as its compiled part. So the
    compiled part is called directly, provided that it answers like the class.
    """

    def __init__(self, index: Index, vectors: np.ndarray) -> None:
        self.index = index
        self._compiled = _compiled(index, np.array(vectors[:1]))

    def nearest(self, asked: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Labels and usearch's distances (k,) for one query; None if fewer are found."""
        if self._compiled is None:
            answer = self.index.search(asked, k, threads=1)
            labels, apart = answer.keys, answer.distances
        else:
            keys, distances, counts, *_ = self._compiled(asked, count=k, exact=False, threads=1)
            if counts[0] < k:
                return None
            labels, apart = keys[0], distances[0]
        return (labels.astype(np.int64), apart) if len(labels) == k else None


def _compiled(index: Index, query: np.ndarray) -> Callable[..., tuple[Any, ...]] | None:
    """The search of usearch's compiled part; None if this release has none with the same answers."""
    k = min(2, len(index))
    answer = index.search(query, k, threads=1)
    try:
        search = index._compiled.search_many
        keys, apart, counts, *_ = search(query, count=k, exact=False, threads=1)
        same = keys.shape == apart.shape == (1, k) and int(counts[0]) == len(answer.keys)
        same = same and np.array_equal(keys[0, : counts[0]], answer.keys)
        return search if same and np.array_equal(apart[0, : counts[0]], answer.distances) else None
    except (AttributeError, TypeError, ValueError, IndexError):
        return None


def _wide(effort: int, asked: int) -> int:
    """The least effort of a walk that is to find this many neighbours."""
    return max(effort, 1 << (asked - 1).bit_length())


def _read(data: memoryview, count: int, width: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Stored vectors and their keys, in file order; ``CorruptTable`` for a file that usearch must not see.

    Checks both headers, that the nodes take exactly the bytes present, that the keys are 0..n-1 without
    repeats, and that every edge leads to a vector.
    """
    try:
        rows, stride = _MATRIX.unpack_from(data)
        if (rows, stride) != (count, 4 * width):
            raise CorruptTable(
                f"an hnsw file has {rows} vectors of {stride} bytes, expected {count} of {4 * width}"
            )
        start = _MATRIX.size + rows * stride
        head = _HEAD.unpack_from(data, start)
        size, edges, base_edges, top, entry = _GRAPH.unpack_from(data, start + _HEAD_BYTES)
    except struct.error:
        raise CorruptTable("an hnsw file ends within its headers") from None
    magic, major, _, _, *kinds, present, deleted, values, multi = head
    expected = {
        "magic": (magic, b"usearch"),
        "version": (major, _FORMAT_MAJOR),
        "kinds of metric, number, key and slot": (bytes(kinds), _KINDS[metric == COSINE]),
        "present and deleted": ((present, deleted, bool(multi)), (count, 0, False)),
        "values": (values, width),
        "nodes": (size, count),
    }
    for what, (found, wanted) in expected.items():
        if found != wanted:
            raise CorruptTable(f"an hnsw file says {found!r} for {what}, expected {wanted!r}")
    if not (2 <= edges <= base_edges <= 1024 and top <= _LEVELS and entry < count):
        raise CorruptTable(f"an hnsw file has impossible bounds: {edges}, {base_edges}, {top}, {entry}")
    at = start + _HEAD_BYTES + _GRAPH.size
    keys = _check_nodes(data[at:], count, (edges, base_edges, top, entry))
    return np.frombuffer(data, "<f4", rows * width, _MATRIX.size).reshape(rows, width), keys


def _check_nodes(data: memoryview, count: int, bounds: tuple[int, int, int, int]) -> np.ndarray:
    """Keys of the nodes; checks their levels and edges."""
    edges, base_edges, top, entry = bounds
    if len(data) < 2 * count:
        raise CorruptTable("an hnsw file ends within its levels")
    levels = np.frombuffer(data, "<i2", count).astype(np.int64)
    if levels.min() < 0 or levels.max() != top or levels[entry] != top:
        raise CorruptTable("an hnsw file has impossible levels")
    low, high = 4 + 4 * base_edges, 4 + 4 * edges
    sizes = _NODE_HEAD_BYTES + low + high * levels
    ends = np.cumsum(sizes)
    raw = np.frombuffer(data, np.uint8, offset=2 * count)
    if ends[-1] != len(raw):
        raise CorruptTable(f"the nodes of an hnsw file take {ends[-1]} bytes; there are {len(raw)}")
    starts = ends - sizes
    keys = _numbers(raw, starts, 8, "<u8")[:, 0]
    seen = np.zeros(count, bool)
    seen[keys[keys < count].astype(np.int64)] = True
    if not seen.all() or (_numbers(raw, starts + 8, 2, "<i2")[:, 0] != levels).any():
        raise CorruptTable("the nodes of an hnsw file do not have the keys 0 to n-1 and their levels")
    for level in range(top + 1):
        nodes = np.flatnonzero(levels >= level)
        first = starts[nodes] + _NODE_HEAD_BYTES + (low + high * (level - 1) if level else 0)
        _check_edges(raw, first, base_edges if level == 0 else edges, levels, level)
    return keys.astype(np.int64)


def _check_edges(raw: np.ndarray, first: np.ndarray, most: int, levels: np.ndarray, level: int) -> None:
    """Check the lists of edges at ``first``: none is too long, each edge leads to a node of that level."""
    for at in range(0, len(first), _CHUNK):
        lists = _numbers(raw, first[at : at + _CHUNK], 4 + 4 * most, "<u4")
        used = np.arange(most)[None, :] < lists[:, :1]
        targets = lists[:, 1:][used]
        if (lists[:, 0] > most).any() or (targets >= len(levels)).any() or (levels[targets] < level).any():
            raise CorruptTable(f"an edge of an hnsw file leads to no node of its level {level}")


def _numbers(raw: np.ndarray, starts: np.ndarray, width: int, kind: str) -> np.ndarray:
    """``width`` bytes at each of ``starts``, viewed as numbers of ``kind``."""
    windows = np.lib.stride_tricks.sliding_window_view(raw, width)
    return windows[starts].view(kind)


def _add(index: Index, stored: np.ndarray, rows: np.ndarray, threads: int) -> None:
    """Add the marked rows, by runs of neighbours; usearch refers to them in place, without a copy."""
    edges = np.flatnonzero(np.diff(rows.astype(np.int8), prepend=0, append=0))
    for first, end in edges.reshape(-1, 2):
        index.add(np.arange(first, end, dtype=np.uint64), stored[first:end], copy=False, threads=threads)


def _read_back(file: Path) -> bytearray:
    with file.open("rb") as opened:
        data = bytearray(os.fstat(opened.fileno()).st_size)
        if opened.readinto(data) != len(data):
            raise OSError(f"{file} was cut while it was read")
    return data


def _tried(
    index: Index, metric: str, threads: int, queries: np.ndarray, k: int, effort: int
) -> np.ndarray:
    """Labels found in a graph under construction."""
    index.expansion_search = effort
    return _answers(index, asked_of(metric, queries), k, threads)[0]


def _answers(
    index: Index, queries: np.ndarray, k: int, threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """usearch's answer: labels (q, k), -1 for none, and its own distances as float64."""
    answer = index.search(queries, k, threads=threads)
    labels, apart = np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), np.inf)
    if len(queries) == 1:  # for one query, usearch returns plain arrays instead of a batch
        labels[0, : len(answer.keys)], apart[0, : len(answer.keys)] = answer.keys, answer.distances
        return labels, apart
    there = np.arange(k) < answer.counts[:, None]
    labels[there], apart[there] = answer.keys[there], answer.distances[there]
    return labels, apart


def _library() -> type:
    try:
        from usearch.index import Index
    except ImportError as error:
        raise engine_file.missing("usearch", "hnsw", error) from error
    return Index


ENGINE = _Hnsw()
