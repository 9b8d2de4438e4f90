"""Lets few of many stored keys through that are not among those that are looked for, and all that are.

A table of a million keys to probe is larger than a processor's caches, so most of the time of looking goes
into probes that find nothing. Here a key becomes one of 16 million bits, by its first and last eight bytes,
at a tenth of that cost. What comes through is compared as a whole.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

#: below that the keys' own hash table is as fast
KEYS_MIN = 20_000
_BITS = 24
# Odd numbers without a pattern, as in splitmix64 and xxHash.
_FIRST, _LAST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_WORD = 8


class KeySieve:
    """A sieve for these keys (utf8, without nulls)."""

    def __init__(self, keys: pa.Array) -> None:
        self._marks = np.zeros(1 << _BITS, bool)
        slots, whole = _slots(keys)
        self._marks[slots[whole]] = True

    def through(self, stored: pa.Array) -> pa.Array:
        """The stored keys that may be among those that are looked for, in their order."""
        slots, whole = _slots(stored)
        return stored.filter(pa.array(self._marks[slots] | ~whole))


def _slots(keys: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bit of each key, and which keys have one: those of eight bytes and more."""
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32, len(keys) + 1, keys.offset * 4)
    whole = np.diff(ends) >= _WORD
    if not whole.any():
        return np.zeros(len(keys), np.uint64), whole
    words = np.ndarray((data.size - _WORD + 1,), np.uint64, data, 0, (1,))  # at every byte
    mixed = words[np.where(whole, ends[:-1], 0)] * _FIRST
    mixed ^= words[np.where(whole, ends[1:] - _WORD, 0)] * _LAST
    mixed ^= mixed >> np.uint64(29)
    return (mixed * _FIRST) >> np.uint64(64 - _BITS), whole
