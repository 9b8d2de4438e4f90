"""Joins encoded columns into the bytes of rows.

Each column becomes pieces. Values with the same number of bytes in every row (doubles, constants, keys of one
length, small numbers) go side by side into one row-major matrix; all others are Arrow binary arrays. One
``binary_join_element_wise`` joins all pieces row by row, and its data buffer is the content. A piece costs
about 8 ns per row whatever it holds, so fewer pieces are faster.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits


class TooLarge(Exception):
    """A chunk would take more than ``limits.CHUNK_BYTES_MAX`` bytes: encode fewer rows at once."""


class Pieces:
    """The pieces of one chunk of ``rows`` rows, in the order of their bytes in a record."""

    def __init__(self, rows: int, framed: bool) -> None:
        self.rows = rows
        self.framed = framed
        self.lengths: np.ndarray | int = 0
        self._runs: list[list[tuple[str, object]] | pa.Array] = []
        self._literal = b""

    def constant(self, data: bytes) -> None:
        """Append the same bytes to every row."""
        self._literal += data
        self.lengths = self.lengths + len(data)

    def fixed(self, dtype: str, values: np.ndarray) -> None:
        """Append ``values.dtype.itemsize`` bytes to every row."""
        run = self._open_run()
        run.append((dtype, values))
        self.lengths = self.lengths + np.dtype(dtype).itemsize

    def varying(self, values: pa.Array, lengths: np.ndarray) -> None:
        """Append a binary array without nulls; ``lengths`` are the lengths of its values."""
        self._flush_literal()
        self._runs.append(values)
        self.lengths = self.lengths + lengths.astype(np.int64)

    def _open_run(self) -> list[tuple[str, object]]:
        if not self._runs or isinstance(self._runs[-1], pa.Array):
            self._runs.append([])
        run = self._runs[-1]
        if self._literal:
            run.append((f"V{len(self._literal)}", np.void(self._literal)))
            self._literal = b""
        return run

    def _flush_literal(self) -> None:
        if self._literal:
            self._open_run()

    def joined(self) -> tuple[pa.Buffer, np.ndarray]:
        """``(bytes of all rows, int64[rows + 1] where each row begins)``.

        Raises ``TooLarge`` before it allocates more than a chunk may take.
        """
        self._flush_literal()
        lengths = np.broadcast_to(np.asarray(self.lengths, np.int64), (self.rows,))
        runs = self._runs
        if self.framed:
            runs = self._with_frame(lengths)
            lengths = lengths + 4
        starts = np.zeros(self.rows + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        if int(starts[-1]) > limits.CHUNK_BYTES_MAX:
            raise TooLarge
        arrays = [run if isinstance(run, pa.Array) else self._matrix(run) for run in runs]
        if len(arrays) == 1 and isinstance(arrays[0], np.ndarray):
            return pa.py_buffer(arrays[0]), starts
        made = [a if isinstance(a, pa.Array) else _fixed_width(a, self.rows) for a in arrays]
        whole = made[0] if len(made) == 1 else pc.binary_join_element_wise(*made, b"")
        return _data_of(whole), starts

    def _with_frame(self, lengths: np.ndarray) -> list:
        frame = (">i4", lengths)
        if self._runs and not isinstance(self._runs[0], pa.Array):
            return [[frame, *self._runs[0]], *self._runs[1:]]
        return [[frame], *self._runs]

    def _matrix(self, run: list[tuple[str, object]]) -> np.ndarray:
        made = np.empty(self.rows, np.dtype([(f"f{i}", dtype) for i, (dtype, _) in enumerate(run)]))
        for i, (_, values) in enumerate(run):
            made[f"f{i}"] = values
        return made


def _fixed_width(matrix: np.ndarray, rows: int) -> pa.Array:
    width = matrix.dtype.itemsize
    offsets = np.arange(0, width * (rows + 1), width, dtype=np.int32)[: rows + 1]
    return binary(offsets, matrix, rows)


def binary(offsets: np.ndarray, data: object, rows: int) -> pa.Array:
    """A binary array of ``data`` cut at int32 ``offsets``, without copying."""
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _data_of(array: pa.Array) -> pa.Buffer:
    offsets = offsets_of(array)
    data = array.buffers()[2]
    if data is None:
        return pa.py_buffer(b"")
    return data.slice(int(offsets[0]), int(offsets[-1]) - int(offsets[0]))


def offsets_of(array: pa.Array) -> np.ndarray:
    """int32[len + 1]: where the values of a string, binary, list or map array begin, and the end."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1, 4 * array.offset)
