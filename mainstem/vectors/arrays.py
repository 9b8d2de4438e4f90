"""Vector columns of Arrow as NumPy matrices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid


def is_vector(kind: pa.DataType) -> bool:
    """Whether a column of this type holds vectors: (fixed-size) lists of numbers."""
    types = pa.types
    lists = types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)
    return lists and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type))


def dimension_of(kind: pa.DataType) -> int | None:
    """Values per vector if the type says it; None for lists of any length."""
    return kind.list_size if pa.types.is_fixed_size_list(kind) else None


def matrix(column: pa.ChunkedArray, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """((n, dimension), (n,)): the non-null vectors, in the column's own number type, and their rows.

    Raises ``Invalid``, naming the first row whose vector has another number of values.
    """
    parts, rows = [], []
    first = 0
    for chunk in column.chunks:
        there = np.flatnonzero(chunk.is_valid().to_numpy(zero_copy_only=False))
        held = chunk if not chunk.null_count else chunk.drop_null()
        _check_lengths(held, dimension, first + there)
        values = held.flatten().to_numpy(zero_copy_only=False)
        parts.append(values.reshape(len(held), dimension))
        rows.append(first + there)
        first += len(chunk)
    if not parts:
        kind = column.type.value_type.to_pandas_dtype()
        return np.zeros((0, dimension), kind), np.zeros(0, np.int64)
    return (parts[0], rows[0]) if len(parts) == 1 else (np.concatenate(parts), np.concatenate(rows))


def _check_lengths(held: pa.Array, dimension: int, rows: np.ndarray) -> None:
    if pa.types.is_fixed_size_list(held.type):
        other = np.full(len(held), held.type.list_size) != dimension
    else:
        other = pc.list_value_length(held).to_numpy() != dimension
    if other.any():
        at = int(np.flatnonzero(other)[0])
        raise Invalid(f"row {rows[at]} holds a vector of {len(held[at])} values, not of {dimension}")
