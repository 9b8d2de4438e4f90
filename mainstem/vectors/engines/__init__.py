"""Engines of vector indexes: NumPy in, bytes out, and a graph to search from those bytes again.

An engine knows nothing of tables. One file holds the vectors of one cluster; its labels are 0..n-1, the
order in which they were given. ``flat`` is built in, exact, and needs nothing but NumPy; ``hnsw`` and
``faiss`` need the libraries of the extra ``mainstem[vector]``, which are loaded when first used; ``jvector``
needs Spark's JVM.

What a graph finds are approximate neighbours with float32 distances of the engine's own rounding: callers
compute the distances that users see from the stored vectors (``mainstem.vectors.distances.rerank``).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

import numpy as np

from mainstem.errors import Invalid

# Each is a module of this package, whose ``ENGINE`` it is.
_NAMES = ("faiss", "flat", "hnsw", "jvector")
DEFAULT = "hnsw"


class Graph(Protocol):
    """One loaded file. Safe for searches from several threads.

    ``oversample``: who computes distances again from the stored vectors asks for this many times as many
    neighbours as are wanted (1 unless the engine compresses vectors).
    """

    count: int
    dimension: int
    oversample: int

    def search(
        self,
        queries: np.ndarray,
        k: int,
        ef: int | None = None,
        allowed: np.ndarray | None = None,
        threads: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Labels int64 (q, k) padded with -1 and distances float32 (q, k) padded with infinity, ascending.

        ``queries`` (q, dimension), finite. ``ef``: how widely to search; None: what the options of the
        build say, or else what found 95 of 100 true neighbours when the engine measured itself at the build.
        ``allowed`` bool (count,): labels that may be found. ``threads``: 0 for one per core.
        Fewer than ``k`` are found only if fewer are allowed, or if the engine cannot see further.
        """

    # One query, with less beside the walk. Not every engine has that: these answers send it to ``search``.

    def prepared(self, query: np.ndarray) -> np.ndarray | None:
        """One query, float32 (1, dimension), as ``walked`` of all graphs of this engine, metric and dimension
        takes it; None where it is to be asked of ``search``."""
        return None

    def walked(
        self, asked: np.ndarray, k: int, ef: int | None, allowed: np.ndarray | None, there: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What ``search`` finds for a prepared query: labels and distances (k,); None where that is to be
        asked, as a walk alone does not find it. ``there``: how many rows are allowed; 1 <= k <= there."""
        return None


class Engine(Protocol):
    """Builds files and loads them. Without state: one object serves everybody.

    ``anywhere``: tasks of Spark can build too, not only the process that has the session.
    """

    name: str
    exact: bool
    anywhere: bool

    def check(self, options: Mapping[str, object]) -> Mapping[str, float]:
        """All options with their values, given ones (text or numbers) checked, defaults for the others.

        ``Invalid`` for an unknown option, a value out of bounds, or a library that is not installed.
        """

    def build(
        self,
        vectors: np.ndarray,
        metric: str,
        options: Mapping[str, object],
        threads: int = 0,
        seed: int = 0,
    ) -> bytes | bytearray | memoryview:
        """The file of ``vectors`` (n, d), finite, taken as float32; n may be 0.

        ``options`` as for ``check``; with the same ``seed`` and one thread the same bytes.
        """

    def load(
        self, data: bytes | bytearray | memoryview, dimension: int, metric: str, count: int | None = None
    ) -> Graph:
        """A graph over the bytes of ``build``; they must stay as they are for as long as it lives.

        ``CorruptTable`` if they are no file of this engine with that dimension, metric and (if given) count.
        """


def engine(name: str) -> Engine:
    """The engine of a name; ``Invalid`` names those there are. Its library is not loaded yet."""
    place = name.strip().lower() if isinstance(name, str) else None
    if place not in _NAMES:
        raise Invalid(f"unknown vector engine {name!r}; there are {', '.join(_NAMES)}")
    return import_module(f"{__name__}.{place}").ENGINE


def names() -> list[str]:
    """Names of all engines."""
    return list(_NAMES)
