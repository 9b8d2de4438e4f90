"""Engines of vector indexes: they turn NumPy arrays into bytes, and search a graph over those bytes.

An engine knows nothing of tables. One file holds the vectors of one cluster, with labels 0..n-1 in the order
given. ``flat`` is built in, exact, and needs only NumPy. ``hnsw`` and ``faiss`` need libraries of the extra
``mainstem[vector]``, which are loaded at first use. ``jvector`` needs Spark's JVM.

A graph finds approximate neighbours, with float32 distances in the engine's own rounding. Callers compute the
distances that users see from the stored vectors (``mainstem.vectors.distances.rerank``).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

import numpy as np

from mainstem.errors import Invalid

# Each name is a module of this package; its ``ENGINE`` is the engine.
_NAMES = ("faiss", "flat", "hnsw", "jvector")
DEFAULT = "hnsw"


class Graph(Protocol):
    """A loaded file; several threads may search it at once.

    ``oversample``: a caller that computes distances again from the stored vectors should request this many
    times as many neighbours as it wants (1 unless the engine compresses vectors).
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

        ``queries`` (q, dimension) are finite. ``ef``: how widely to search; None: as the build options say,
        or else as wide as was needed to find 95 of 100 true neighbours when the engine measured itself at the
        build. ``allowed`` bool (count,): labels that may be found. ``threads``: 0 for one per core. Fewer
        than ``k`` labels are found only if fewer are allowed, or if the engine cannot reach more.
        """

    # A cheaper way to answer a single query. Not every engine has it: these defaults send it to ``search``.

    def prepared(self, query: np.ndarray) -> np.ndarray | None:
        """One query, float32 (1, dimension), in the form that ``walked`` takes for all graphs of this engine,
        metric and dimension; None if the query needs ``search``."""
        return None

    def walked(
        self, asked: np.ndarray, k: int, ef: int | None, allowed: np.ndarray | None, there: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """What ``search`` finds for a prepared query: labels and distances (k,).

        None if a walk alone does not find it: use ``search`` then. ``there``: number of allowed rows;
        1 <= k <= there.
        """
        return None


class Engine(Protocol):
    """Builds files and loads them. Stateless: one object serves all callers.

    ``anywhere``: Spark's tasks can build too, not only the process with the session.
    """

    name: str
    exact: bool
    anywhere: bool

    def check(self, options: Mapping[str, object]) -> Mapping[str, float]:
        """All options with their values: given ones (text or numbers) checked, defaults for the others.

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
        """The file for ``vectors`` (n, d): finite, stored as float32; n may be 0.

        ``options`` as for ``check``. With one thread, the same ``seed`` gives the same bytes.
        """

    def load(
        self, data: bytes | bytearray | memoryview, dimension: int, metric: str, count: int | None = None
    ) -> Graph:
        """A graph over the bytes from ``build``, which must not change while it is in use.

        ``CorruptTable`` if they are not a file of this engine with this dimension, metric and (if given)
        count.
        """


def engine(name: str) -> Engine:
    """The engine with this name, its library not loaded yet; ``Invalid`` lists the known names."""
    place = name.strip().lower() if isinstance(name, str) else None
    if place not in _NAMES:
        raise Invalid(f"unknown vector engine {name!r}; there are {', '.join(_NAMES)}")
    return import_module(f"{__name__}.{place}").ENGINE


def names() -> list[str]:
    """The names of all engines."""
    return list(_NAMES)
