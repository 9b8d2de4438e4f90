"""Sorts keys by their unsigned bytes, the order of the metadata table's files."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.avro_pieces import offsets_of

_WORD = 8
_TIES_SHARE = 32


def key_order(keys: pa.Array) -> np.ndarray:
    """int64: positions of texts (without nulls) in the order of their UTF-8 bytes; equal ones in any order.

    Keys mostly differ within eight bytes after their common prefix. Sorting these bytes as numbers takes a
    tenth of the time of sorting texts. Keys that are equal there, if few, are then sorted by all their bytes.
    """
    keys = keys.cast(pa.binary())
    words = _words(keys)
    if words is None:
        return pc.sort_indices(keys).to_numpy()
    order = np.argsort(words)
    tied = np.flatnonzero(np.diff(words[order]) == 0)
    if len(tied) > len(keys) // _TIES_SHARE:
        return pc.sort_indices(keys).to_numpy()
    # Consecutive positions form one run of equal words.
    for _, run in groupby(enumerate(tied.tolist()), key=lambda pair: pair[1] - pair[0]):
        places = [place for _, place in run]
        among = slice(places[0], places[-1] + 2)
        order[among] = sorted(order[among].tolist(), key=lambda row: keys[row].as_py())
    return order


def _words(keys: pa.Array) -> np.ndarray | None:
    """uint64 per key: the eight bytes after the common prefix; None if a key is too short for them."""
    if len(keys) < 2:
        return None
    offsets = offsets_of(keys)
    shortest = int(np.diff(offsets).min())
    if shortest < _WORD:
        return None
    raw = np.frombuffer(keys.buffers()[2], np.uint8)
    every = np.ndarray((len(raw) - _WORD + 1,), ">u8", raw, strides=(1,))
    at = 0
    while at + _WORD <= shortest:
        words = every[offsets[:-1] + at].astype(np.uint64)
        low, high = int(words.min()), int(words.max())
        common = _WORD - ((low ^ high).bit_length() + 7) // 8
        if not common:
            return words
        at += common
    return None
