"""Vectors in a temporary file while a version is built, read as an array one piece at a time."""

from __future__ import annotations

import numpy as np

from mainstem.errors import CorruptTable
from mainstem.storage.protocol import Storage
from mainstem.vectors.index.version_manifest import ELEMENTS

_PIECE_BYTES = 16 * 1024 * 1024


class StoredVectors:
    """An array (rows, dimension) of an element type in ``ELEMENTS``, read from ``path`` on demand.

    ``CorruptTable`` if the file is shorter. NumPy accepts it as an array, and then reads all of it.
    """

    def __init__(self, storage: Storage, path: str, shape: tuple[int, int], element: str) -> None:
        self.shape = shape
        self.dtype = np.dtype(ELEMENTS[element])
        self._storage, self._path = storage, path

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """Some rows: a slice, or ascending row numbers, for which the file is read in pieces."""
        if isinstance(rows, slice):
            first, end, _ = rows.indices(len(self))
            return self._read(first, max(end - first, 0))
        made = np.empty((len(rows), self.shape[1]), self.dtype)
        step = self._step()
        for first in range(0, len(self), step):
            low, high = np.searchsorted(rows, (first, first + step))
            if high > low:
                made[low:high] = self._read(first, min(step, len(self) - first))[rows[low:high] - first]
        return made

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        made = np.empty(self.shape, dtype or self.dtype)
        step = self._step()
        for first in range(0, len(self), step):
            made[first : first + step] = self._read(first, min(step, len(self) - first))
        return made

    def _step(self) -> int:
        return max(1, _PIECE_BYTES // max(self.shape[1] * self.dtype.itemsize, 1))

    def _read(self, first: int, rows: int) -> np.ndarray:
        width = self.shape[1] * self.dtype.itemsize
        data = self._storage.read_range(self._path, first * width, rows * width)
        if len(data) != rows * width:
            raise CorruptTable("a file of an unfinished version was cut off", path=self._path)
        return np.frombuffer(data, self.dtype).reshape(rows, self.shape[1])
