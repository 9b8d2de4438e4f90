"""Arrays that every batch needs: rows sorted by bucket, repeated texts, sequence numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

# Sequence numbers need only be unique within an instant. They begin here, not at 1, because texts of equal
# length are much cheaper to make and to encode.
FIRST_SEQUENCE = 1_000_000
# Rows encoded at once: few calls for many small buckets, bounded memory for large batches.
_SLAB_ROWS = 131_072
_THREE_DIGITS = np.array([b"%03d" % number for number in range(1000)], "V3")


def repeated(values: list[str], lengths: np.ndarray) -> pa.Array:
    """Each value repeated ``lengths[i]`` times, as a dictionary array (encoded once per value)."""
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    codes = np.array([places[value] for value in values], np.int32)
    indices = pa.array(np.repeat(codes, lengths))
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(places), pa.string()))


def same_width(first: int, count: int) -> int:
    """``first``, or the next power of ten if ``count`` numbers from ``first`` would differ in length."""
    longer = 10 ** len(str(first))
    return first if first + count <= longer else longer


def sequence_texts(prefix: str, first: int, count: int) -> pa.Array:
    """``<prefix><number>`` for ``count`` numbers from ``first``, all of one length (at least four digits)."""
    head = prefix.encode()
    low, high = first // 1000, (first + count - 1) // 1000
    heads = [head + str(n).encode() for n in range(low, high + 1)]
    width = len(heads[0])
    # NumPy copies items of a void type whole; this fills a thousand at a time.
    texts = np.empty((high - low + 1, 1000), [("head", f"V{width}"), ("tail", "V3")])
    texts["head"] = np.array(heads, f"V{width}")[:, None]
    texts["tail"] = _THREE_DIGITS
    texts = texts.reshape(-1)[first - 1000 * low :][:count]
    offsets = np.arange(0, (width + 3) * count + 1, width + 3, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def stable_order(groups: np.ndarray) -> np.ndarray:
    """Stable argsort. Small numbers are sorted as 16-bit ones, for which NumPy uses a radix sort."""
    small = len(groups) and int(groups.max()) < 2**16
    return np.argsort(groups.astype(np.uint16) if small else groups, kind="stable")


def slabs(groups: np.ndarray) -> Iterator[list[int]]:
    """The bounds of sorted groups, in slabs of whole groups with about ``_SLAB_ROWS`` rows each."""
    cuts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
    slab = [cuts[0]]
    for cut in cuts[1:]:
        slab.append(cut)
        if cut - slab[0] >= _SLAB_ROWS:
            yield slab
            slab = [cut]
    if len(slab) > 1:
        yield slab


def key_turns(keys: pa.Array, deleted: np.ndarray) -> np.ndarray:
    """For each row, how many earlier rows of its key, itself included, directly followed a deletion."""
    codes = keys.dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    codes, gone = codes[order], deleted[order]
    same = np.concatenate(([False], codes[1:] == codes[:-1]))
    after = np.concatenate(([False], gone[:-1])) & ~gone & same
    steps = np.cumsum(after)
    starts = np.maximum.accumulate(np.where(same, 0, np.arange(len(codes))))
    turns = np.empty(len(codes), np.int64)
    turns[order] = steps - steps[starts]
    return turns
