"""Reads and builds the entries of an HFile's data blocks, by columns.

An entry is the length of its key (int32), the length of its value (int32), the length of its row (int16: the
key's less 12), the row, which Hudi calls the key, ten bytes that are the same in all of Hudi's files (no
column family, timestamp 2^63 - 1, type Put), the value, and a zero (MVCC).

The starts of entries are found as for Avro records (``record_starts``): many lanes start at once, one at the
beginning of each block and more within blocks, found by the ten constant bytes. They count only if each lane
lands on the start of the next.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import Invalid
from mainstem.formats.avro_pieces import offsets_of
from mainstem.formats.avro_rows import Malformed
from mainstem.formats.record_starts import walk_lanes

_HEAD = 10
_TAIL = b"\x00\x7f\xff\xff\xff\xff\xff\xff\xff\x04"
ENTRY_BYTES = _HEAD + len(_TAIL) + 1  # bytes of an entry apart from row and value
_EXTRA = 12  # bytes of a key apart from its row: lengths of row and family, timestamp, type
_HEAD_TYPE = np.dtype([("key", ">i4"), ("value", ">i4"), ("row", ">i2")])
_TAIL_FIRST, _TAIL_LAST = (int.from_bytes(_TAIL[place : place + 8], "big") for place in (0, 2))
_ENTRY = struct.Struct(">iih")
_LENGTHS = struct.Struct(">ii")
_ROW = struct.Struct(">h")
ROW_BYTES_MAX = 32_767  # the length of a row is a signed int16

_LANES_FROM = 512
_LANES_MAX = 512
_ROWS_TRIED = 256  # row lengths tried around a lane's start


# ---------------------------------------------------------------------------------------- reading


class Entries:
    """The entries of some blocks; keys and values are checked and gathered on demand."""

    def __init__(self, blocks: Sequence[bytes | memoryview]) -> None:
        sizes = np.array([len(block) for block in blocks], np.int64)
        if int(sizes.sum()) > limits.CHUNK_BYTES_MAX:
            raise Malformed(f"HFile blocks of {int(sizes.sum())} bytes at once")
        self._data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        self._starts = _starts(memoryview(self._data), np.cumsum(sizes))
        self.count = len(self._starts) - 1

    @cached_property
    def _cells(self) -> pa.BinaryArray:
        return _cells(self._data, self._starts) if self.count else pa.array([], pa.binary())

    def keys(self) -> pa.BinaryArray:
        """All keys, in the order of the entries."""
        return self._cells.take(pa.array(np.arange(0, 4 * self.count, 4)))

    def values(self, rows: np.ndarray | None = None) -> pa.BinaryArray:
        """All values, or those of the entries ``rows``."""
        chosen = np.arange(self.count) if rows is None else rows.astype(np.int64)
        return self._cells.take(pa.array(4 * chosen + 2))

    def of(self, keys: Iterable[bytes]) -> tuple[pa.BinaryArray, pa.BinaryArray]:
        """Keys and values of the entries with any of a few keys; only these are checked. The entries must be
        in the byte order of their keys."""
        rows = sorted({row for key in keys for row in self._rows_of(key)})
        cells = [_cells(self._data, self._starts[row : row + 2]).to_pylist() for row in rows]
        return tuple(pa.array([one[place] for one in cells], pa.binary()) for place in (0, 2))

    def _rows_of(self, key: bytes) -> Iterator[int]:
        row = bisect.bisect_left(range(self.count), key, key=self._key)
        while row < self.count and self._key(row) == key:
            yield row
            row += 1

    def _key(self, row: int) -> bytes:
        begin = int(self._starts[row]) + _HEAD
        (size,) = _ROW.unpack_from(self._data, begin - _ROW.size)
        return bytes(self._data[begin : begin + max(size, 0)])


def _cells(data: bytes | memoryview, starts: np.ndarray) -> pa.BinaryArray:
    """Four cells per entry (three for the last): key, constant bytes, value, the bytes up to the next key."""
    raw = np.frombuffer(data, np.uint8)
    keys, values, rows = _heads(raw, starts[:-1])
    begins, ends = starts[:-1] + _HEAD, starts[1:] - 1
    tails = begins + rows
    wrong = (rows < 0) | (keys != rows + _EXTRA) | (tails + len(_TAIL) + values != ends)
    if wrong.any():
        raise Malformed(f"entry {int(np.flatnonzero(wrong)[0])} of an HFile's chunk: lengths that do not fit")
    first, last = _gathered(raw, ">u8", tails), _gathered(raw, ">u8", tails + 2)
    if (first != _TAIL_FIRST).any() or (last != _TAIL_LAST).any() or raw[ends].any():
        raise Malformed("an HFile entry with a family, a timestamp, a type or a version unknown to Hudi")
    offsets = np.empty(4 * len(rows), np.int32)
    offsets[0::4], offsets[1::4], offsets[2::4], offsets[3::4] = begins, tails, tails + len(_TAIL), ends
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _heads(raw: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lengths of key, value and row of the entries at these places."""
    rows = _gathered(raw, ">i2", at + 8).astype(np.int64)
    both = _gathered(raw, ">i8", at).astype(np.int64)
    return both >> 32, both.astype(np.int32).astype(np.int64), rows


def _gathered(raw: np.ndarray, kind: str, at: np.ndarray) -> np.ndarray:
    """One unaligned number at each place; callers check that it lies within ``raw``."""
    return np.ndarray((len(raw) - int(kind[-1]) + 1,), kind, raw, strides=(1,))[at]


def _starts(data: memoryview, ends: np.ndarray) -> np.ndarray:
    """int64[entries + 1]: where each entry begins, and the end; each block must end where an entry does."""
    size = len(data)
    if not size:
        return np.zeros(1, np.int64)
    if size < ENTRY_BYTES:
        raise Malformed(f"an HFile data block of {size} bytes")
    found = None
    if size >= _LANES_FROM * ENTRY_BYTES:
        firsts = np.append(0, ends[:-1][np.diff(ends) > 0])
        seeds = _changed(np.sort(np.concatenate([firsts, _seeds(data)])))
        limit = 16 * size // (ENTRY_BYTES * len(seeds)) + 64
        found = walk_lanes(seeds, size, _step(data), limit, ENTRY_BYTES)
    if found is None:
        found = _walk_plain(data)
    at = np.searchsorted(found, ends)
    if (found[at] != ends).any():
        raise Malformed("an HFile entry that reaches into the next block")
    return found


def _step(data: memoryview) -> Callable[[np.ndarray], np.ndarray]:
    """A function from the starts of entries to the next starts; beyond the end it just moves on."""
    lengths = np.ndarray((len(data) - 7,), ">i8", data, strides=(1,))
    last = len(data) - ENTRY_BYTES

    def step(at: np.ndarray) -> np.ndarray:
        both = lengths[np.minimum(at, last)].astype(np.int64)
        size = (both >> 32) + (both & 0xFFFFFFFF) + 9
        return at + np.where(at > last, ENTRY_BYTES, size)

    return step


def _walk_plain(data: memoryview) -> np.ndarray:
    at, size, found = 0, len(data), []
    unpack = _LENGTHS.unpack_from
    while at < size:
        found.append(at)
        if at + ENTRY_BYTES > size:
            raise Malformed("an HFile data block that ends within an entry")
        key, value = unpack(data, at)
        at += key + value + 9
        if key < _EXTRA or value < 0 or at > size:
            raise Malformed(f"an HFile entry with a key of {key} and a value of {value} bytes")
    found.append(size)
    return np.array(found, np.int64)


def _seeds(data: memoryview) -> np.ndarray:
    """Places that look like the start of an entry, ascending."""
    size = len(data)
    lanes = min(_LANES_MAX, max(16, size // 2048))
    whole = data.obj if isinstance(data.obj, bytes) and len(data.obj) == size else bytes(data)
    find = whole.find
    places = [find(_TAIL, lane * size // lanes) for lane in range(1, lanes)]
    tails = _changed(np.array([place for place in places if place > 0], np.int64))
    raw = np.frombuffer(data, np.uint8)
    found = _before(raw, tails, _heads(raw, np.zeros(1, np.int64))[2])
    if 2 * len(found) < len(tails):
        found = _before(raw, tails, np.arange(min(_ROWS_TRIED, size)))
    return found


def _before(raw: np.ndarray, tails: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Where the entries with these constant bytes begin, if their rows have one of these lengths."""
    begins = tails[:, None] - (_HEAD + rows)
    said = _gathered(raw, ">i2", np.maximum(begins, 0) + 8)
    lane, which = np.nonzero((said == rows) & (begins >= 0))
    begins = begins[lane, which]
    keys, values, _ = _heads(raw, begins)
    fits = (keys == rows[which] + _EXTRA) & (values >= 0)
    first = np.append(True, np.diff(lane[fits]) > 0)[: int(fits.sum())]
    return np.sort(begins[fits][first])


def _changed(ascending: np.ndarray) -> np.ndarray:
    """An ascending array without repeats."""
    return ascending[np.append(True, np.diff(ascending) > 0)[: len(ascending)]]


# ---------------------------------------------------------------------------------------- writing


def lengths_of(values: pa.BinaryArray | pa.DictionaryArray) -> np.ndarray:
    """int64 per value: its length in bytes."""
    if isinstance(values, pa.DictionaryArray):
        return lengths_of(values.dictionary)[values.indices.to_numpy()]
    return pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)


def entries_of(keys: pa.BinaryArray, values: pa.BinaryArray | pa.DictionaryArray) -> pa.Buffer:
    """The entries with these keys and values, one after another; each value of a dictionary is laid out
    once."""
    rows, sizes = lengths_of(keys), lengths_of(values)
    tail, end, separator = _constant(_TAIL), _constant(b"\0"), _constant(b"")
    if not isinstance(values, pa.DictionaryArray):
        plain = _written_heads(rows, sizes), keys, tail, values, end, separator
        return pc.binary_join_element_wise(*plain).buffers()[2]
    ends = pc.binary_join_element_wise(tail, values.dictionary, end, separator)
    if len(keys) and 0 < rows.min() == rows.max() and len(set(lengths_of(ends).tolist())) == 1:
        return _alike(keys, ends, values.indices.to_numpy())
    parts = _written_heads(rows, sizes), keys, ends.take(values.indices), separator
    return pc.binary_join_element_wise(*parts).buffers()[2]


def _alike(keys: pa.BinaryArray, ends: pa.BinaryArray, which: np.ndarray) -> pa.Buffer:
    """Entries of one size; ``ends[which[i]]`` follows key ``i``."""
    first = int(offsets_of(keys)[0])
    width, end = len(keys[0].as_py()), len(ends[0].as_py())
    made = np.empty(len(keys), [("head", f"V{_HEAD}"), ("key", f"V{width}"), ("end", f"V{end}")])
    sizes = np.array([width]), np.array([end - len(_TAIL) - 1])
    made["head"] = np.frombuffer(_written_heads(*sizes).buffers()[2], f"V{_HEAD}")
    made["key"] = np.frombuffer(keys.buffers()[2], f"V{width}", len(keys), first)
    made["end"] = np.frombuffer(ends.buffers()[2], f"V{end}", len(ends))[which]
    return pa.py_buffer(made)


def _written_heads(rows: np.ndarray, values: np.ndarray) -> pa.BinaryArray:
    heads = np.empty(len(rows), _HEAD_TYPE)
    heads["key"], heads["value"], heads["row"] = rows + _EXTRA, values, rows
    places = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(_HEAD)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(places), pa.py_buffer(heads)])


def entry_of(key: bytes, value: bytes) -> bytes:
    """One entry."""
    return b"".join((_ENTRY.pack(len(key) + _EXTRA, len(value), len(key)), key, _TAIL, value, b"\0"))


def _constant(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.binary())


def in_order(
    keys: pa.Array | pa.ChunkedArray, values: pa.Array | pa.ChunkedArray
) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Keys and values as binary arrays, sorted by the unsigned bytes of the keys.

    Raises ``Invalid`` for nulls, repeated keys and keys too long for an HFile.
    """
    if len(keys) != len(values):
        raise Invalid(f"{len(keys)} keys and {len(values)} values")
    if keys.null_count or values.null_count:
        raise Invalid("a key or a value of an HFile is null")
    keys, values = _binary(keys), _binary(values)
    if not _ascending(keys):
        order = pc.sort_indices(keys)
        keys, values = keys.take(order), values.take(order)
        if not _ascending(keys):
            same = pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1))
            twice = keys.filter(pa.concat_arrays([same, pa.array([False])]))
            raise Invalid(f"{len(twice)} keys of an HFile occur twice, such as {twice[0].as_py()[:200]!r}")
    longest = int(lengths_of(keys).max(initial=0))
    if longest > ROW_BYTES_MAX:
        raise Invalid(f"a key of {longest} bytes; an HFile holds keys of {ROW_BYTES_MAX} bytes at most")
    return keys, values


def _binary(column: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.cast(pa.binary())


def _ascending(keys: pa.BinaryArray) -> bool:
    if len(keys) < 2:
        return True
    return bool(pc.all(pc.less(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py())
