"""Turns rows of column statistics into ranges to test a filter against, as far as they can be trusted.

Hudi 1.2.0 writes some ranges that do not bound the values. These are not used:

* floating point ranges that contain 0.0: the footer of a column with NaN reads as 0.0 to 0.0, and files with
  several row groups join that with the others;
* ranges with NaN as a bound;
* binary columns: logs compare them by signed bytes;
* text bounds with characters from U+D800 on: Java orders texts in logs by UTF-16, Arrow by code points, and
  the two orders agree only below;
* text ranges of base files and native logs unless zero nulls were counted: Parquet stores no range of a
  column chunk whose bounds take 4 KiB, and Java then leaves the chunk out of the file's range and counts
  minus one null for it;
* ranges that end before they begin;
* upper bounds of a partition's floating point columns that were merged (``without_merged_floats``).

A file without a statistics row, with another column type at that time, or with an empty footer may hold
anything.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.filters.predicates import Ranges
from mainstem.metadata.records.typed_bounds import column_values, type_of

_ORDERED_ALIKE = 0xD800


def unknown(files: int, kind: pa.DataType) -> Ranges:
    """Ranges of files about which nothing is known."""
    yes = np.ones(files, bool)
    return Ranges(pa.nulls(files, kind), pa.nulls(files, kind), yes, yes.copy())


def is_comparable(kind: pa.DataType) -> bool:
    """Whether ranges of a column of this type can be used at all."""
    types = pa.types
    binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return not (types.is_nested(kind) or binary)


def stored_ranges(
    rows: pa.Table,
    keys: pa.Array,
    kind: pa.DataType,
    *,
    logs: np.ndarray,
    deletes_told: bool = False,
    path: str = "",
) -> Ranges:
    """Ranges of one column of type ``kind`` in the files with these keys, in their order.

    ``rows``: the statistics found for the keys (``records.SCHEMAS``); ``logs``: which of the files are log
    files of blocks, whose ranges do not come from a footer; ``deletes_told``: a row that counts no values
    means that such a file holds only deletes.
    """
    found = pc.index_in(keys, value_set=rows["key"].combine_chunks() if rows.num_rows else keys.slice(0, 0))
    there = found.is_valid().to_numpy(zero_copy_only=False)
    at = np.flatnonzero(there)
    ranges = unknown(len(keys), kind)
    if not len(at):
        return ranges
    mine = rows.take(found.drop_null())
    alike = _same_order(mine, kind, path)
    low, high = (_bounds(mine, which, kind, alike, path) for which in ("min", "max"))
    count = _numbers(mine["value_count"])
    nulls = _numbers(mine["null_count"])
    uncounted = (count < 0) | (nulls < 0)
    if pa.types.is_string(kind):
        uncounted |= ~logs[at] & (nulls != 0)
    low, high = (pc.if_else(pa.array(uncounted), pa.scalar(None, kind), bound) for bound in (low, high))
    low, high = _believed(low, high)
    bounded = low.is_valid().to_numpy(zero_copy_only=False) | high.is_valid().to_numpy(zero_copy_only=False)
    # A range without bounds says nothing about nulls either, unless the rows were counted.
    no_value = (mine["min_kind"].to_numpy() == 0) & (mine["max_kind"].to_numpy() == 0)
    only_nulls = no_value & (count > 0) & (nulls == count)
    empty = no_value & (count == 0) & (nulls == 0) & logs[at] & deletes_told
    ranges.values[at] = ~(only_nulls | empty)
    ranges.nulls[at] = ~(empty | (bounded & (nulls == 0) & (count > 0)))
    return Ranges(_placed(low, at, len(keys)), _placed(high, at, len(keys)), ranges.nulls, ranges.values)


def without_rows(found: Ranges, files: np.ndarray) -> Ranges:
    """The ranges, where the files of this mask hold no row, such as those of deletes."""
    return Ranges(found.low, found.high, found.nulls & ~files, found.values & ~files)


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return column.fill_null(-1).to_numpy()


def _placed(values: pa.Array, at: np.ndarray, files: int) -> pa.Array:
    place = np.full(files, -1, np.int64)
    place[at] = np.arange(len(at))
    return values.take(pa.array(place, mask=place < 0))


def _bounds(rows: pa.Table, which: str, kind: pa.DataType, alike: np.ndarray, path: str) -> pa.Array:
    """Bounds in the column's type; null where the stored type has a different order."""
    some = np.flatnonzero(alike)
    found = column_values(rows.take(pa.array(some)), which, kind, path=path)
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return _placed(found, some, rows.num_rows)


def _same_order(rows: pa.Table, kind: pa.DataType, path: str) -> np.ndarray:
    """Which rows store values of a type that orders as ``kind`` does."""
    fits = np.ones(rows.num_rows, bool)
    for which in ("min_kind", "max_kind"):
        stored = zip(rows[which].to_pylist(), rows["ordinal"].to_pylist(), rows["type_info"].to_pylist(),
                     strict=True)  # fmt: skip
        known: dict[tuple, bool] = {}
        for row, key in enumerate(stored):
            if key not in known:
                known[key] = key[0] != 0 and _orders_alike(type_of(*key, path), kind, key[1])
            fits[row] &= known[key]
    return fits


def _orders_alike(stored: pa.DataType, kind: pa.DataType, ordinal: int | None) -> bool:
    types = pa.types
    if stored == kind:
        return True
    if types.is_timestamp(stored) and not ordinal and getattr(kind, "unit", "us") != "us":
        return False  # version V1 does not record the unit
    if types.is_integer(stored):  # version V1 also stores some times as numbers
        return types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind)
    pairs = (types.is_floating, types.is_decimal, types.is_timestamp, types.is_date, types.is_time)
    return any(of(stored) and of(kind) for of in pairs)


def without_merged_floats(found: Ranges, rows: pa.Table, keys: pa.Array) -> Ranges:
    """Ranges of partitions (by ``keys``) without untrusted upper bounds; ``rows``: their statistics rows.

    Earlier versions of mainstem merged loose rows of floating point columns as if NaN (which means "above
    everything") were no value, so another file's upper bound stood for both. Such a row looks like a correct
    one, so upper bounds of all loose rows are dropped. Tight rows, which Java writes, are never merged, nor
    are statistics of files.
    """
    if not pa.types.is_floating(found.high.type):
        return found
    tight = rows.filter(rows["tight"])["key"].combine_chunks()
    nothing = pa.scalar(None, found.high.type)
    high = pc.if_else(pc.is_in(keys, value_set=tight), found.high, nothing)
    return Ranges(found.low, high, found.nulls, found.values)


def _believed(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    kind = low.type
    backwards = pc.greater(low, high).fill_null(False)
    low, high = (pc.if_else(backwards, pa.scalar(None, kind), bound) for bound in (low, high))
    if pa.types.is_floating(kind):
        holds_zero = pc.and_(pc.less_equal(low, 0.0), pc.greater_equal(high, 0.0))
        odd = pc.or_(pc.or_(pc.is_nan(low), pc.is_nan(high)), holds_zero).fill_null(True)
        nothing = pa.scalar(None, kind)
        return pc.if_else(odd, nothing, low), pc.if_else(odd, nothing, high)
    if pa.types.is_string(kind):
        return _plain_texts(low), _plain_texts(high)
    return low, high


def _plain_texts(texts: pa.Array) -> pa.Array:
    if not pc.any(pc.invert(pc.string_is_ascii(texts)), min_count=0).as_py():
        return texts
    plain = [t if t is None or all(ord(c) < _ORDERED_ALIKE for c in t) else None for t in texts.to_pylist()]
    return pa.array(plain, texts.type)
