"""A version of a vector index in memory: its graphs, and the rows of their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.vectors.engines import Graph
from mainstem.vectors.index.version_manifest import CoveredSlice, Version
from mainstem.vectors.index.versions import RECORD_KEY, SLICE, TEXT, open_graph, open_keys, open_vectors
from mainstem.vectors.search.cluster_bounds import Reach
from mainstem.vectors.search.hits import one_chunk

Piece = tuple[int, int, int]
"""A cluster, and a range of its labels."""


@dataclass(frozen=True)
class OpenCluster:
    """``vectors`` (n, d) as the column's numbers; ``slices`` (n,): place in ``Version.slices``, ascending."""

    graph: Graph
    keys: pa.ChunkedArray
    texts: pa.ChunkedArray
    slices: np.ndarray
    vectors: np.ndarray


@dataclass(frozen=True)
class Opened:
    """A version whose files have been read and checked; what happens to them on storage no longer matters."""

    version: Version
    clusters: tuple[OpenCluster, ...]
    places: dict[tuple[str, str], int] = field(repr=False)
    reach: Reach = field(repr=False)

    @classmethod
    def load(cls, storage: Storage, version: Version) -> Opened:
        """Open a version. Raises ``CorruptTable`` for damage, ``FileNotFoundError`` if the version was
        cleaned, ``Invalid`` if the engine's library is missing."""
        numbers = range(len(version.clusters))
        clusters = side_by_side(storage, lambda number: _cluster(storage, version, number), numbers)
        places = {(s.partition, s.file_id): at for at, s in enumerate(version.slices)}
        centroids = np.array([c.centroid for c in version.clusters]).reshape(len(clusters), version.dimension)
        return cls(version, tuple(clusters), places, Reach(centroids, version.metric))

    def covered(self, partition: str, file_id: str) -> CoveredSlice | None:
        """The slice of a file group that the version holds; None if it holds none."""
        at = self.places.get((partition, file_id))
        return None if at is None else self.version.slices[at]

    def pieces(self, partition: str, file_id: str) -> list[Piece]:
        """The places of a covered file group's rows."""
        at = self.places[partition, file_id]
        found = []
        for number, cluster in enumerate(self.clusters):
            low, high = np.searchsorted(cluster.slices, (at, at + 1))
            if high > low:
                found.append((number, int(low), int(high)))
        return found

    def keys(self, pieces: Sequence[Piece]) -> pa.ChunkedArray:
        """Record keys of the rows in these pieces, in order."""
        chunks = [c for n, low, high in pieces for c in self.clusters[n].keys.slice(low, high - low).chunks]
        return pa.chunked_array(chunks, pa.string())

    def texts(self, pieces: Sequence[Piece]) -> pa.ChunkedArray:
        """Digests of the texts of the rows in these pieces, in order."""
        chunks = [c for n, low, high in pieces for c in self.clusters[n].texts.slice(low, high - low).chunks]
        return pa.chunked_array(chunks, pa.binary())

    def vectors(self, pieces: Sequence[Piece]) -> np.ndarray:
        """Vectors of the rows in these pieces, in order."""
        parts = [self.clusters[n].vectors[low:high] for n, low, high in pieces]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @cached_property
    def doubled(self) -> str:
        """A file group with repeated record keys (Java's inserts that do not merge); "" if there is none."""
        for partition, file_id in self.places:
            keys = self.keys(self.pieces(partition, file_id))
            if pc.count_distinct(keys).as_py() < len(keys):
                return f"partition {partition!r}, file group {file_id}"
        return ""

    def masks(self) -> list[np.ndarray]:
        """One boolean per label for each cluster, all False."""
        return [np.zeros(len(cluster.slices), bool) for cluster in self.clusters]


def _cluster(storage: Storage, version: Version, number: int) -> OpenCluster:
    rows = open_keys(storage, version, number)
    vectors = open_vectors(storage, version, number)
    graph = open_graph(storage, version, number)
    slices = rows.column(SLICE).to_numpy()
    if len(slices) and (slices[0] < 0 or slices[-1] >= len(version.slices) or (np.diff(slices) < 0).any()):
        raise CorruptTable(
            f"rows of version {version.number} of a vector index are not in the order of their file slices",
            path=version.path(version.clusters[number].keys),
        )
    return OpenCluster(graph, one_chunk(rows.column(RECORD_KEY)), rows.column(TEXT), slices, vectors)


def mark(masks: Sequence[np.ndarray], pieces: Sequence[Piece], chosen: np.ndarray) -> None:
    """Set the masks where ``chosen`` is True (one boolean per row of the pieces)."""
    for (number, low, high), part in zip(pieces, _divided(pieces, chosen), strict=True):
        masks[number][low:high] |= part


def _divided(pieces: Sequence[Piece], values: np.ndarray) -> Iterator[np.ndarray]:
    first = 0
    for _, low, high in pieces:
        yield values[first : first + high - low]
        first += high - low


def contained(keys: pa.ChunkedArray, among: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Which of the keys are in ``among``."""
    if not len(keys):
        return np.zeros(0, bool)
    return pc.is_in(keys, value_set=among).to_numpy()
