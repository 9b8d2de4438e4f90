"""A seekable file over ranges of an object, for pyarrow.

Opening it is one request, which fetches the end of the object: a Parquet footer, or a small file as a whole.
Other bytes are fetched when they are read, in large parts. A reader that knows what it will read next asks
for it by ``prefetch``: near ranges become one request, and all requests run at the same time.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from mainstem.limits import KEPT_END_BYTES, MIB, PREFETCH_BYTES_MAX
from mainstem.storage.kept_reads import End

# One request of this size takes hardly longer than one of the 64 KiB that pyarrow reads of a footer.
TAIL_BYTES = KEPT_END_BYTES
# The least that a read fetches: readers go forward in small steps.
_READ_BYTES = MIB
# What is longer is fetched in parts of this size at the same time.
_PART_BYTES = 8 * MIB
# Ranges nearer than this are fetched by one request: the bytes between cost less than another request.
_NEAR_BYTES = MIB


class RangeStore(Protocol):
    """What is needed of a store."""

    def read_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        """The last bytes and the size."""

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Several ranges, a request for each."""


class RangeFile(pa.PythonFile):  # type: ignore[misc]  # pyarrow is taken untyped
    """The file that pyarrow reads; see the module."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges  # pyarrow itself takes it before this runs

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Fetch these (offset, length) together, and forget what was fetched before.

        What does not fit into ``PREFETCH_BYTES_MAX`` is left to the reads.
        """
        self._ranges.prefetch(ranges)


def open_ranges(storage: RangeStore, path: str, end: End | None = None) -> RangeFile:
    """The object as a file; raises ``FileNotFoundError`` if there is none. ``end``: as for ``Ranges``."""
    return RangeFile(Ranges(storage, path, end))


class Ranges:
    """Reads by ranges. ``end``: the object's end, if it is known already.

    ``_blocks``: (offset, bytes) of what is in memory. Not safe for several threads.
    """

    def __init__(self, storage: RangeStore, path: str, end: End | None = None) -> None:
        self._storage = storage
        self._path = path
        tail, self._size = storage.read_tail(path, TAIL_BYTES) if end is None else end
        self._tail = (self._size - len(tail), tail)
        self._last: tuple[int, memoryview] = (0, memoryview(b""))
        self._blocks: list[tuple[int, memoryview]] = []
        self._at = 0
        self.closed = False

    @property
    def size(self) -> int:
        """The object's size in bytes."""
        return self._size

    def part(self, offset: int, length: int) -> memoryview:
        """These bytes, fewer at the end of the object."""
        return self._bytes(offset, min(length, max(0, self._size - offset)))

    def close(self) -> None:
        self.closed = True
        self._blocks.clear()
        self._last = self._tail = (0, memoryview(b""))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "before the beginning of the file", self._path)
        self._at = start + offset
        return self._at

    def read(self, count: int | None = -1) -> memoryview:
        left = max(0, self._size - self._at)
        count = left if count is None or count < 0 else min(count, left)
        found = self._bytes(self._at, count)
        self._at += count
        return found

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._blocks.clear()
        wanted: list[tuple[int, int]] = []
        total = 0
        for offset, length in sorted(ranges):
            inside = offset >= 0 and length > 0 and offset + length <= self._size
            if not inside or self._held(offset, length) is not None:
                continue  # a damaged footer may say anything: the reader finds out
            total += length
            if total > PREFETCH_BYTES_MAX:
                break
            wanted.append((offset, length))
        self._blocks = self._fetched(part for one in _merged(wanted) for part in _parts(one, wanted))

    def _fetched(self, parts: Iterable[tuple[int, int]]) -> list[tuple[int, memoryview]]:
        ranges = list(parts)
        found = self._storage.read_ranges(self._path, ranges) if ranges else []
        return [(offset, block) for (offset, _), block in zip(ranges, found, strict=True)]

    def _held(self, offset: int, count: int) -> memoryview | None:
        for start, block in (self._tail, self._last, *self._blocks):
            if start <= offset and offset + count <= start + len(block):
                return block[offset - start : offset - start + count]
        return self._across(offset, count)

    def _across(self, offset: int, count: int) -> memoryview | None:
        """Bytes that lie in several neighbouring blocks."""
        pieces, at = [], offset
        for start, block in self._blocks:
            if start <= at < start + len(block):
                pieces.append(block[at - start : offset + count - start])
                at = start + len(block)
                if at >= offset + count:
                    return memoryview(b"".join(pieces))
        return None

    def _bytes(self, offset: int, count: int) -> memoryview:
        if not count:
            return memoryview(b"")
        held = self._held(offset, count)
        if held is not None:
            return held
        length = min(max(count, _READ_BYTES), self._size - offset)
        found = self._fetched(_cut(offset, length))
        if len(found) == 1:
            self._last = found[0]
            return found[0][1][:count]
        return memoryview(b"".join(block for _, block in found))[:count]


def _cut(offset: int, length: int) -> list[tuple[int, int]]:
    """A range in parts that are fetched at the same time."""
    end = offset + length
    return [(at, min(_PART_BYTES, end - at)) for at in range(offset, end, _PART_BYTES)]


def _parts(merged: tuple[int, int], wanted: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """As ``_cut``, for a range that was made of several: where possible between those, so that a read finds
    all of its bytes in one part."""
    at, end = merged[0], sum(merged)
    for start in (offset for offset, _ in wanted if offset < end):
        if at + _PART_BYTES <= start:
            yield from [(at, start - at)] if start < at + 2 * _PART_BYTES else _cut(at, start - at)
            at = start
    yield from _cut(at, end - at)


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, with near ones made one."""
    merged: list[tuple[int, int]] = []
    for offset, length in ranges:
        if merged and offset <= sum(merged[-1]) + _NEAR_BYTES:
            start, before = merged.pop()
            length = max(start + before, offset + length) - start
            offset = start
        merged.append((offset, length))
    return merged
