"""Maps ordering values to 64-bit integers that compare as Java compares the values.

Integers, dates and timestamps keep their number. Floats are mapped to their total order (Double.compare:
-0.0 < 0.0, NaN above all). Other types, and several fields together (lexicographic, Hudi's
ArrayComparable), become dense ranks among the values compared. Null sorts below everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unsupported

LOWEST = np.iinfo(np.int64).min

Fields = Sequence[pa.Array]
"""One array per ordering field, all of the same length."""


def comparable(parts: Sequence[Fields]) -> list[np.ndarray]:
    """One int64 array per part; values of different parts compare with each other.

    All parts have the same fields of the same types.
    """
    if len(parts[0]) == 1:
        direct = [_direct(part[0]) for part in parts]
        if all(d is not None for d in direct):
            return direct
    lengths = [len(part[0]) for part in parts]
    ranks: np.ndarray | None = None
    for number in range(len(parts[0])):
        rank = _dense_rank(_joined([part[number] for part in parts]))
        ranks = rank if ranks is None else _refine(ranks, rank)
    assert ranks is not None
    return list(np.split(ranks, np.cumsum(lengths)[:-1]))


def align(values: pa.Array, kind: pa.DataType, where: str) -> pa.Array:
    """Casts ordering values of a delete to the type of the ordering column.

    A long may represent a timestamp and an int a date (Java's LongWrapper and IntWrapper). Raises
    ``Unsupported`` for types that do not compare; ``where``: the log file, for the message.
    """
    if values.type.equals(kind):
        return values
    if values.null_count == len(values):  # none has a value, so their type says nothing
        return pa.nulls(len(values), kind)
    try:
        if pa.types.is_temporal(kind) and pa.types.is_integer(values.type):
            width = pa.int32() if kind.bit_width == 32 else pa.int64()
            return values.cast(width).cast(kind)
        if pa.types.is_temporal(values.type) and pa.types.is_integer(kind):
            width = pa.int32() if values.type.bit_width == 32 else pa.int64()
            return values.cast(width).cast(kind)
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise Unsupported(
            f"delete in {where} with an ordering value of type {values.type} on an ordering column"
            f" of type {kind}: Java cannot compare them either ({error})"
        ) from error


def _direct(values: pa.Array) -> np.ndarray | None:
    kind = values.type
    if pa.types.is_floating(kind):
        return _total_order(values)
    if pa.types.is_boolean(kind):
        numbers: Any = values.cast(pa.int8()).cast(pa.int64())
    elif pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        numbers = values.cast(pa.int64())
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        numbers = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    else:
        return None
    if numbers.null_count:
        numbers = pc.fill_null(numbers, int(LOWEST))
    return numbers.to_numpy(zero_copy_only=False)


def _total_order(values: pa.Array) -> np.ndarray:
    missing = np.asarray(values.is_null()) if values.null_count else None
    doubles = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False).copy()
    doubles[np.isnan(doubles)] = np.nan  # one bit pattern for all NaNs, as Double.compare sees them
    bits = doubles.view(np.int64)
    order = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    if missing is not None:
        order[missing] = LOWEST
    return order


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(list(arrays))


def _dense_rank(values: pa.Array) -> np.ndarray:
    numbers = _direct(values)
    if numbers is not None:
        return np.unique(numbers, return_inverse=True)[1].reshape(-1)
    codes = values.dictionary_encode()
    order = pc.sort_indices(codes.dictionary).to_numpy(zero_copy_only=False)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    index = codes.indices
    missing = np.asarray(index.is_null())
    found = (
        rank[pc.fill_null(index, 0).to_numpy(zero_copy_only=False)]
        if len(order)
        else (np.zeros(len(values), np.int64))
    )
    return np.where(missing, np.int64(-1), found)


def _refine(major: np.ndarray, minor: np.ndarray) -> np.ndarray:
    low = int(minor.min(initial=0))
    width = int(minor.max(initial=0)) - low + 1
    combined = major.astype(np.int64) * width + (minor - low)
    return np.unique(combined, return_inverse=True)[1].reshape(-1)
