"""Engine ``flat``: compares all vectors one by one. Exact, without options, needing only NumPy."""

from __future__ import annotations

import numpy as np

from mainstem.errors import CorruptTable
from mainstem.vectors.distances import nearest
from mainstem.vectors.engines import Graph, engine_file


class _Flat:
    name = "flat"
    exact = True
    anywhere = True

    def check(self, options: engine_file.Options) -> dict[str, float]:
        return engine_file.checked(self.name, {}, options)

    def build(
        self, vectors: np.ndarray, metric: str, options: engine_file.Options, threads: int = 0, seed: int = 0
    ) -> bytearray:
        self.check(options)
        values = engine_file.as_float32(vectors)
        data = bytearray(values.astype("<f4", copy=False).data.cast("B") if values.size else b"")
        data += engine_file.footer(self.name, metric, values.shape[1], len(values), len(data))
        return data

    def load(
        self, data: engine_file.Buffer, dimension: int, metric: str, count: int | None = None
    ) -> _FlatGraph:
        file = engine_file.opened(self.name, data, dimension, metric, count)
        if len(file.body) != 4 * dimension * file.count:
            raise CorruptTable(
                f"{file.count} vectors of {dimension} float32 values do not take {len(file.body)} bytes"
            )
        return _FlatGraph(np.frombuffer(file.body, "<f4").reshape(file.count, dimension), metric)


class _FlatGraph(Graph):
    oversample = 1

    def __init__(self, vectors: np.ndarray, metric: str) -> None:
        self._vectors, self._metric = vectors, metric
        self.count, self.dimension = vectors.shape

    def search(
        self,
        queries: np.ndarray,
        k: int,
        ef: int | None = None,
        allowed: np.ndarray | None = None,
        threads: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        queries, found = engine_file.checked_search(self.count, self.dimension, queries, k, allowed)
        labels, distances = engine_file.nothing(len(queries), k)
        if found:
            best = nearest(self._metric, queries, self._vectors, found, allowed=allowed)
            labels[:, :found], distances[:, :found] = best
        return labels, distances


ENGINE = _Flat()
