"""Finds where each of many length-prefixed items begins, without walking them one by one.

The chain of lengths is sequential: item i+1 begins where item i ends. To walk it with numpy, many *lanes*
start at once, at places that look like the beginning of an item: their bytes equal the first item's first
bytes (the records of one instant all begin with their commit time). All lanes advance in step. The result
counts only if each lane lands exactly on the next lane's start, which proves the whole chain from the known
first item to the known end. Otherwise a plain loop walks the chain.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

from mainstem.formats.avro_rows import Malformed

_LENGTH = struct.Struct(">i")
_LANES_MAX = 1024
_LANES_FROM = 512  # with fewer records, a plain loop is as fast
_PATTERN_BYTES = 24
# In a part of many, so that each has the bytes of several records.
_RECORDS_PER_LANE_MIN = 8


def framed_starts(data: memoryview, count: int) -> np.ndarray:
    """int64[count + 1]: where the int32 length of each framed record is, then the end of ``data``.

    Raises ``Malformed`` unless exactly ``count`` records fill ``data``.
    """
    if count < 0 or count * 4 > len(data):
        raise Malformed(f"{count} records cannot be in {len(data)} bytes")
    if count >= _LANES_FROM:
        seeds = _seeds(data, _lanes(count))
        found = _walk_lanes(data, seeds, count) if len(seeds) > 8 else None
        if found is not None:
            return found
    return _walk_plain(data, count)


def joined_starts(data: memoryview, parts: Sequence[tuple[int, int]]) -> np.ndarray:
    """``framed_starts`` for several contents in one buffer; ``parts`` are (bytes, records) of each."""
    count = sum(records for _, records in parts)
    if len(parts) == 1:
        return framed_starts(data, count)
    possible = all(0 <= 4 * records <= size for size, records in parts)
    if possible and (count >= _LANES_FROM or len(parts) >= 16):
        found = _walk_lanes(data, _seeds_of_parts(data, parts), count)
        if found is not None:
            _check_parts(found, np.cumsum([size for size, _ in parts]), parts)
            return found
    made, base = [], 0
    for size, records in parts:
        made.append(framed_starts(data[base : base + size], records)[:-1] + base)
        base += size
    return np.append(np.concatenate(made), base)


def _lanes(count: int) -> int:
    """How many lanes walk this many records."""
    return min(_LANES_MAX, max(16, int(count**0.5) * 2))


def _seeds_of_parts(data: memoryview, parts: Sequence[tuple[int, int]]) -> np.ndarray:
    """Where the parts begin, and seeds within large parts, which begin differently if they are of several
    instants."""
    lanes, begin, found = _lanes(sum(records for _, records in parts)), 0, []
    for size, records in parts:
        share = min(lanes * size // len(data), records // _RECORDS_PER_LANE_MIN) if size else 0
        if share > 1:
            found.append(begin + _seeds(data[begin : begin + size], share))
        elif size:
            found.append(np.array([begin]))
        begin += size
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _check_parts(starts: np.ndarray, ends: np.ndarray, parts: Sequence[tuple[int, int]]) -> None:
    counts = np.cumsum([records for _, records in parts])
    if (starts[counts] != ends).any():
        raise Malformed("the number of records differs from the declared one")


def _walk_plain(data: memoryview, count: int) -> np.ndarray:
    starts = np.empty(count + 1, np.int64)
    at, size = 0, len(data)
    unpack = _LENGTH.unpack_from
    found = []
    for _ in range(count):
        found.append(at)
        if at + 4 > size:
            raise Malformed(f"the content ends after {len(found) - 1} of {count} records")
        length = unpack(data, at)[0]
        at += 4 + length
        if length < 0 or at > size:
            raise Malformed(f"record {len(found) - 1} has a length of {length} bytes")
    if at != size:
        raise Malformed(f"{size - at} bytes follow the last of {count} records")
    starts[:count] = found
    starts[count] = size
    return starts


def _seeds(data: memoryview, lanes: int) -> np.ndarray:
    """At most ``lanes`` candidates for record starts, ascending from 0."""
    pattern = _pattern(data)
    if len(pattern) < 4:
        return np.zeros(1, np.int64)
    search = re.compile(re.escape(pattern)).search
    stride = len(data) // lanes
    window = max(4096, 4 * stride)
    found = [0]
    for lane in range(1, lanes):
        place = max(lane * stride, found[-1] + 1) + 4
        hit = search(data, place, min(len(data), place + window))
        if hit is None:
            if lane == 4 and len(found) == 1:
                break  # the first field varies between records
            continue
        found.append(hit.start() - 4)
    return np.asarray(found, np.int64)


def _pattern(data: memoryview) -> bytes:
    """The first record's first field if that is a short string, else the record's first bytes."""
    length = _LENGTH.unpack_from(data, 0)[0]
    size = 12
    if length > 2 and data[4] == 2 and data[5] < 0x80:
        size = 2 + (data[5] >> 1)
    return bytes(data[4 : 4 + max(0, min(length, size, _PATTERN_BYTES))])


def _walk_lanes(data: memoryview, seeds: np.ndarray, count: int) -> np.ndarray | None:
    size = len(data)
    if size < 8 or not len(seeds):
        return None
    lengths = np.ndarray((size - 3,), ">i4", data, strides=(1,))
    last = size - 4

    def step(at: np.ndarray) -> np.ndarray:
        at = at + lengths[np.minimum(at, last)]
        at += 4
        return at

    starts = walk_lanes(seeds, size, step, 16 * count // len(seeds) + 64, 4)
    if starts is not None and len(starts) != count + 1:
        raise Malformed(f"{len(starts) - 1} records, {count} are declared")
    return starts


def walk_lanes(
    seeds: np.ndarray, size: int, step: Callable[[np.ndarray], np.ndarray], limit: int, smallest: int
) -> np.ndarray | None:
    """The starts of all items, followed by ``size``; None if a lane does not land on the next lane's seed.

    ``seeds`` ascend from 0. ``step`` leads from each item to the next; no item has fewer than ``smallest``
    bytes. A lane makes about ``limit`` steps at most.
    """
    stops = np.append(seeds[1:], size)
    table = _positions(step, seeds, stops, limit)
    if table is None:
        return None
    before = table < stops[:, None]
    landed = np.take_along_axis(table, before.sum(axis=1)[:, None], axis=1)[:, 0]
    backwards = (np.diff(table, axis=1) < smallest) & before[:, :-1]
    if (landed != stops).any() or backwards.any():
        return None
    return np.append(table[before], size)


def _positions(
    step: Callable[[np.ndarray], np.ndarray], seeds: np.ndarray, stops: np.ndarray, limit: int
) -> np.ndarray | None:
    """int64[lanes, steps]: each lane's position after each step, until all have passed their stops.

    Lanes continue beyond their stops; positions there do not count. None if that takes too many steps.
    """
    at = seeds
    steps = [at]
    while len(steps) <= limit:
        try:
            for _ in range(8):
                at = step(at)
                steps.append(at)
        except IndexError:  # a negative length
            return None
        if (at >= stops).all():
            return np.stack(steps, axis=1)
    return None
