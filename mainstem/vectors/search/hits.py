"""Neighbours found by a search, and the selection of the nearest for each query."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Offsets of strings are 31-bit numbers.
_CHUNK_BYTES_MAX = 1 << 31


@dataclass(frozen=True, eq=False)
class Texts:
    """The memory of an array's texts. Copying a few from here is faster than starting an Arrow call."""

    ends: memoryview
    letters: memoryview

    @classmethod
    def of(cls, texts: pa.Array) -> Texts:
        """The texts of an array of strings without nulls."""
        _, ends, letters = texts.buffers()
        first, count = texts.offset, len(texts) + 1
        if count == 1:
            return cls(memoryview(bytes(4)).cast("i"), memoryview(b""))
        return cls(memoryview(ends).cast("i")[first : first + count], memoryview(letters or b""))

    def at(self, row: int) -> memoryview:
        """The bytes of one text."""
        return self.letters[self.ends[row] : self.ends[row + 1]]

    @staticmethod
    def array(texts: Iterable[memoryview]) -> pa.Array:
        """An array of strings from the bytes of texts."""
        letters = list(texts)
        ends = array("i", accumulate(map(len, letters), initial=0))
        return pa.StringArray.from_buffers(len(letters), pa.py_buffer(ends), pa.py_buffer(b"".join(letters)))


@dataclass(frozen=True)
class Hits:
    """One row per neighbour, of any query: the query's number, the file slice's number in the snapshot, the
    record key and the distance (float64)."""

    query: np.ndarray
    slice: np.ndarray
    key: pa.Array
    distance: np.ndarray

    def __len__(self) -> int:
        return len(self.query)

    def take(self, places: np.ndarray) -> Hits:
        """The hits at these places, in this order."""
        return Hits(
            self.query[places], self.slice[places], self.key.take(pa.array(places)), self.distance[places]
        )


def nothing() -> Hits:
    """No hits."""
    return Hits(np.zeros(0, np.int64), np.zeros(0, np.int64), pa.array([], pa.string()), np.zeros(0))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column of keys as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def one_chunk(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same texts in one chunk, so that taking a few does not copy the others; unchanged if they do not
    fit into one."""
    if column.num_chunks < 2 or column.nbytes > _CHUNK_BYTES_MAX:
        return column
    return pa.chunked_array([whole(column)])


def joined(parts: Sequence[Hits]) -> Hits:
    """All hits, in order."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else nothing()
    return Hits(
        np.concatenate([p.query for p in parts]),
        np.concatenate([p.slice for p in parts]),
        pa.concat_arrays([p.key.cast(pa.string()) for p in parts]),
        np.concatenate([p.distance for p in parts]),
    )


def nearest_of(hits: Hits, k: int, partitions: Sequence[str]) -> Hits:
    """The ``k`` nearest hits of each query, query by query, ascending; ties by record key, then partition.

    ``partitions``: the partition path of each slice.
    """
    order = np.lexsort((hits.distance, hits.query))
    if _ties(hits, order):
        table = pa.table(
            {
                "query": hits.query,
                "distance": hits.distance,
                "key": hits.key,
                "partition": pa.array([partitions[at] for at in hits.slice.tolist()], pa.string()),
            }
        )
        ascending = [(name, "ascending") for name in table.column_names]
        order = pc.sort_indices(table, sort_keys=ascending).to_numpy()
    query = hits.query[order]
    starts = np.flatnonzero(np.r_[True, query[1:] != query[:-1]]) if len(query) else np.zeros(0, np.int64)
    rank = np.arange(len(query)) - np.repeat(starts, np.diff(np.r_[starts, len(query)]))
    return hits.take(order[rank < k])


def _ties(hits: Hits, order: np.ndarray) -> bool:
    query, distance = hits.query[order], hits.distance[order]
    same = (query[1:] == query[:-1]) & (distance[1:] == distance[:-1])
    return bool(same.any())
