"""Engine ``faiss``: inverted lists (IVF), with compressed vectors (IVF-PQ) if ``m_pq`` is set.

Options: ``nlist``, the number of lists, 0 for four times the square root of the number of vectors;
``nprobe``, how many of them to search, 0 for what ``search_effort`` measures (the ``ef`` of a search is this
number); ``m_pq``, the bytes per compressed vector, 0 for no compression. With compression, callers request
more neighbours and compute distances again (``Graph.oversample``), and the recall is limited by the
compression. A build too small to train a code book keeps its vectors uncompressed.

faiss trusts the content of a file, so ``load`` checks its parts against one another, and every id.
"""

from __future__ import annotations

import os
import struct
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid
from mainstem.vectors.distances import COSINE, L2, unit
from mainstem.vectors.engines import Graph, engine_file
from mainstem.vectors.engines.search_effort import held_back, measured

if TYPE_CHECKING:
    from faiss import IDSelector, Index

_OPTIONS = {
    "nlist": engine_file.Number(0, 0, 1_000_000),
    "nprobe": engine_file.Number(0, 0, 1_000_000),
    "m_pq": engine_file.Number(0, 0, limits.VECTOR_DIMENSION_MAX),
}
_ALIASES = {"ef": "nprobe", "m": "m_pq"}
# faiss needs 39 vectors to train a list, and 39 for each of the 256 entries of a code book.
_TRAINED = 39
_CODES = 256
_OVERSAMPLE = 10
_FEW_SHARE = 0.05
# Kind, dimension, count, two numbers without meaning, trained, metric.
_HEAD = struct.Struct("<4siqqqBi")
_PLAIN, _COMPRESSED = b"IwFl", b"IwPQ"


class _Faiss:
    name = "faiss"
    exact = False
    anywhere = True

    def check(self, options: engine_file.Options) -> dict[str, float]:
        _library()
        return engine_file.checked(self.name, _OPTIONS, options, _ALIASES)

    def build(
        self, vectors: np.ndarray, metric: str, options: engine_file.Options, threads: int = 0, seed: int = 0
    ) -> bytearray:
        chosen = self.check(options)
        faiss = _library()
        values = engine_file.as_float32(vectors)
        count, dimension = values.shape
        if chosen["m_pq"] and dimension % chosen["m_pq"]:
            raise Invalid(
                f"option m_pq={chosen['m_pq']} of engine faiss must divide the dimension {dimension}"
            )
        if not count:
            return bytearray(engine_file.footer(self.name, metric, dimension, 0, 0))
        faiss.omp_set_num_threads(threads or os.cpu_count() or 1)
        stored = unit(values) if metric == COSINE else values
        index = _trained(faiss, stored, metric, chosen, seed)
        effort = min(int(chosen["nprobe"]), index.nlist)
        held = np.zeros(count, bool) if effort else held_back(count)
        _add(index, stored, ~held)
        if held.any():
            steps = _steps(index.nlist)
            search = partial(_tried, faiss, index, metric)
            effort = measured(metric, values, held, steps, search)
            _add(index, stored, held)
        body = faiss.serialize_index(index)
        del index, stored
        data = bytearray(body.data)
        data += engine_file.footer(self.name, metric, dimension, count, len(data), effort or 1)
        return data

    def load(
        self, data: engine_file.Buffer, dimension: int, metric: str, count: int | None = None
    ) -> _Graph:
        file = engine_file.opened(self.name, data, dimension, metric, count)
        return _Graph(file, dimension, metric)


class _Graph(Graph):
    def __init__(self, file: engine_file.Opened, dimension: int, metric: str) -> None:
        self.count, self.dimension, self.oversample = file.count, dimension, 1
        self._metric, self._effort = metric, max(file.effort, 1)
        if not file.count:
            return
        faiss = _library()
        _check_head(file, dimension, metric)
        try:
            self._index = faiss.deserialize_index(np.frombuffer(file.body, np.uint8))
        except (RuntimeError, MemoryError) as error:
            raise CorruptTable(f"faiss cannot read an index: {str(error)[:300]}") from None
        _check_parts(faiss, self._index, file.count, dimension)
        if bytes(file.body[:4]) == _COMPRESSED:
            self.oversample = _OVERSAMPLE

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
        faiss = _library()
        faiss.omp_set_num_threads(threads or os.cpu_count() or 1)
        selector, probes = None, ef or self._effort
        if allowed is not None:
            selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
            # The nearest allowed rows are further away than the nearest rows; if few are allowed, anywhere.
            share = np.count_nonzero(allowed) / self.count
            probes = int(2 * probes / share**0.5) if share > _FEW_SHARE else self._index.nlist
        rows = np.arange(len(queries))
        for width in (min(probes, self._index.nlist), self._index.nlist):
            found = _search(faiss, self._index, self._metric, queries[rows], possible, width, selector)
            labels[rows, :possible], distances[rows, :possible] = found
            rows = rows[found[0][:, -1] < 0]
            if not len(rows):
                break
        return labels, distances


def _trained(
    faiss: ModuleType, stored: np.ndarray, metric: str, chosen: engine_file.Options, seed: int
) -> Index:
    """An empty index with lists and code books trained on ``stored``."""
    count, dimension = stored.shape
    lists = max(1, min(chosen["nlist"] or int(4 * count**0.5), count // _TRAINED))
    kind = faiss.METRIC_L2 if metric == L2 else faiss.METRIC_INNER_PRODUCT
    quantizer = faiss.IndexFlat(dimension, kind)
    if chosen["m_pq"] and count >= _CODES * _TRAINED:
        index = faiss.IndexIVFPQ(quantizer, dimension, lists, chosen["m_pq"], 8, kind)
        index.pq.cp.seed = seed + 1
    else:
        index = faiss.IndexIVFFlat(quantizer, dimension, lists, kind)
    index.cp.seed = seed + 1
    index.cp.min_points_per_centroid = 1  # keeps faiss from printing warnings about small lists
    # A sample trains as well as all: faiss uses at most 256 vectors per list, by default the first ones.
    most = max(lists * _CODES, _CODES * _CODES)
    index.train(stored if count <= most else stored[np.linspace(0, count - 1, most).astype(np.int64)])
    return index


def _add(index: Index, stored: np.ndarray, rows: np.ndarray) -> None:
    edges = np.flatnonzero(np.diff(rows.astype(np.int8), prepend=0, append=0))
    for first, end in edges.reshape(-1, 2):
        index.add_with_ids(stored[first:end], np.arange(first, end, dtype=np.int64))


def _steps(lists: int) -> list[int]:
    return sorted({min(lists, max(1, round(1.5**step))) for step in range(40)})


def _tried(
    faiss: ModuleType, index: Index, metric: str, queries: np.ndarray, k: int, effort: int
) -> np.ndarray:
    wide = k if isinstance(index, faiss.IndexIVFFlat) else k * _OVERSAMPLE
    return _search(faiss, index, metric, queries, wide, effort, None)[0]


def _search(
    faiss: ModuleType,
    index: Index,
    metric: str,
    queries: np.ndarray,
    k: int,
    probes: int,
    selector: IDSelector | None,
) -> tuple[np.ndarray, np.ndarray]:
    parameters = faiss.SearchParametersIVF(nprobe=probes, sel=selector)
    put = unit(queries) if metric == COSINE else queries
    apart, labels = index.search(put, k, params=parameters)
    if metric == L2:
        apart = np.sqrt(np.maximum(apart, 0))
    else:
        apart = 1 - apart if metric == COSINE else -apart
    return labels, np.where(labels < 0, np.inf, apart)


def _check_head(file: engine_file.Opened, dimension: int, metric: str) -> None:
    if len(file.body) < _HEAD.size:
        raise CorruptTable("a faiss file ends within its header")
    kind, values, count, _, _, trained, product = _HEAD.unpack_from(file.body)
    expected = {
        "kind": (kind if kind in (_PLAIN, _COMPRESSED) else None, kind),
        "dimension": (values, dimension),
        "count": (count, file.count),
        "trained": (trained, 1),
        "metric": (product, 1 if metric == L2 else 0),
    }
    for what, (found, wanted) in expected.items():
        if found != wanted:
            raise CorruptTable(f"a faiss file says {found!r} for {what}, expected {wanted!r}")


def _check_parts(faiss: ModuleType, index: Index, count: int, dimension: int) -> None:
    lists, stored = index.nlist, index.invlists
    quantizer = faiss.downcast_index(index.quantizer)
    codes = index.pq.M if isinstance(index, faiss.IndexIVFPQ) else 4 * dimension
    found = {
        "values of a list's centre": (quantizer.d, dimension),
        "list centres": (quantizer.ntotal, lists),
        "lists": (stored.nlist, lists),
        "bytes of a vector": ((stored.code_size, index.code_size), (codes, codes)),
        "vectors": (index.ntotal, count),
    }
    if isinstance(index, faiss.IndexIVFPQ):
        found["values and bits of a code"] = ((index.pq.d, index.pq.nbits), (dimension, 8))
    for what, (there, expected) in found.items():
        if there != expected:
            raise CorruptTable(f"a faiss file has {there} for {what}, expected {expected}")
    seen = np.zeros(count, bool)
    total = 0
    for each in range(lists):
        size = stored.list_size(each)
        if size:
            ids = faiss.rev_swig_ptr(stored.get_ids(each), size)
            total += size
            seen[ids[(ids >= 0) & (ids < count)]] = True
    if total != count or not seen.all():
        raise CorruptTable(f"the lists of a faiss file do not hold the labels 0 to {count - 1}, each once")


def _library() -> ModuleType:
    try:
        import faiss
    except ImportError as error:
        raise engine_file.missing("faiss-cpu", "faiss", error) from error
    return faiss


ENGINE = _Faiss()
